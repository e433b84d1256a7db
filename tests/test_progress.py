import dataclasses
import re
from pathlib import Path

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.outcome import outcome
from etlrun.record.record import Record
from etlrun.record.summary import Summary
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.runs import Progress
from etlrun.system.progress import fetching
from etlrun.system.terminal import print_table

DONE = outcome(Summary(status="completed", overrides=[], wall_s=60.0))


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    request = Request(overrides=["model=emulated", "load.prefetch=0,1,2,3,4", "sweep.max_jobs_in_flight=2"])
    found = grid.of(request, STAGES)
    return Progress(Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, {}), found.sweep.max_jobs_in_flight)


def test_before_the_first_job_has_ended_there_is_no_time_left_to_tell(progress: Progress) -> None:
    assert progress.line([RunKey(0, 0)]) == "sweep 0/5 | running 0: load.prefetch=0"


def test_the_line_tells_done_running_failed_best_and_time_left(progress: Progress) -> None:
    progress.note(RunKey(0, 0), dataclasses.replace(DONE, examples_per_s=100.0))
    progress.note(RunKey(1, 0), dataclasses.replace(DONE, examples_per_s=130.0, wall_s=120.0))
    progress.note(RunKey(2, 0), dataclasses.replace(DONE, status="failed", wall_s=1.0))
    assert progress.line([RunKey(3, 0), RunKey(4, 0)]) == (
        "sweep 3/5 | 1 failed | 0:01:30 left | running 3: load.prefetch=3, 4: load.prefetch=4 | "
        "best 130.0 examples/s (load.prefetch=1)"
    )


def test_where_there_is_no_terminal_a_line_stays_for_each_job(
    progress: Progress, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress:
        ended = dataclasses.replace(DONE, examples_per_s=100.0)
        progress.note(RunKey(1, 0), ended)
        progress.show([RunKey(2, 0)])
        progress.ended(RunKey(1, 0), ended)
        killed = outcome(Summary(status="failed", overrides=[], error="the job's process:\n  found SIGKILL"))
        progress.ended(RunKey(2, 0), killed)
    assert capsys.readouterr().out.splitlines() == [
        "1/5 1 load.prefetch=1: completed, 100.0 examples/s, 60.0 s",
        "1/5 2 load.prefetch=2: failed: the job's process: found SIGKILL",
    ]


def test_what_is_fetched_tells_its_rate_and_the_time_left_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with fetching(1_200_000_000, line_every_s=0.0) as tell:
        tell(0)
        tell(300_000_000)
        tell(900_000_000)
    with fetching(1_000) as tell:
        tell(500)
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"etlrun: fetched 300\.0 of 1,200\.0 MB at [\d,.]+ MB/s, \d+ s left", first)
    assert re.fullmatch(r"etlrun: fetched 1,200\.0 of 1,200\.0 MB at [\d,.]+ MB/s, 0 s left", last)


def test_a_table_is_whole_where_colours_are_asked_for_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["name", "overrides"], [["a", "one two three four five six"]])
    assert re.search("a +one two three four five six", capsys.readouterr().out)


def test_the_line_tells_the_epoch_that_a_running_job_is_in(progress: Progress) -> None:
    folder = progress.ledger.start(RunKey(3, 0))
    assert progress.line([RunKey(3, 0)]).endswith("running 3: load.prefetch=3")
    record = Record(folder)
    for epoch in (1, 2):
        record.event("epoch_began", epoch=epoch)
    assert progress.line([RunKey(3, 0)]).endswith("running 3: load.prefetch=3")  # read once a second
    progress._epochs.clear()
    assert progress.line([RunKey(3, 0)]).endswith("running 3: load.prefetch=3, epoch 2")
