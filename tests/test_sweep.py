import os
import signal
import time
from pathlib import Path

import pytest

from tests.runs import events_of, finish, small, start, summary_of

AXIS = "model.weights=null,missing.h5"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("sweep") / "sweep"
    words = [*small(tiny, "cache=none,memory", AXIS), f"hydra.sweep.dir={folder}"]
    return folder, finish(start(["-m", *words], folder.parent))


def test_one_job_that_fails_stops_no_other(swept: tuple[Path, tuple[int, str, str]]) -> None:
    folder, (status, _, _) = swept
    assert status == 1
    states = [summary_of(folder / str(job))["status"] for job in range(4)]
    assert states == ["completed", "failed", "completed", "failed"]


def test_each_job_has_a_fresh_process(swept: tuple[Path, tuple[int, str, str]]) -> None:
    folder, _ = swept
    starts = [event for job in range(4) for event in events_of(folder / str(job)) if event["event"] == "started"]
    assert len({event["pid"] for event in starts}) == 4


def test_the_table_has_a_row_a_job_best_first_and_stands_in_the_folder(
    swept: tuple[Path, tuple[int, str, str]],
) -> None:
    folder, (_, out, _) = swept
    lines = (folder / "report.md").read_text().splitlines()
    head = "| job | overrides | status | examples/s | seconds | au | bound by | gain | val accuracy | reason |"
    assert lines[:3] == ["# Sweep", "", head]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert [row[2] for row in rows] == ["completed", "completed", "failed", "failed"]
    rates = [float(row[3]) for row in rows[:2]]
    assert rates == sorted(rates, reverse=True)
    assert rows[2][-1].startswith("model.weights: found no file missing.h5; expected `imagenet`, null, or the path")
    table = out[out.rindex("job  overrides") :]
    assert [line.split()[0] for line in table.splitlines()[1:3]] == [row[0] for row in rows[:2]]
    assert {row[1] for row in rows[:2]} == {"cache=none model.weights=null", "cache=memory model.weights=null"}
    assert out.endswith(f"report    {folder}/report.md\n")


def test_report_prints_the_table_again(swept: tuple[Path, tuple[int, str, str]]) -> None:
    folder, (_, out, _) = swept
    status, again, _ = finish(start(["report", str(folder)], folder.parent))
    assert status == 0
    assert again in out


def test_a_wrong_value_anywhere_in_the_grid_refuses_the_whole_sweep(tiny: Path, tmp_path: Path) -> None:
    words = [*small(tiny, "cache=none,memory", "load.prefetch=0,-1"), f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    status, _, err = finish(start(["-m", *words], tmp_path))
    assert status == 2
    assert err == ("etlrun: 1 fault\n  load.prefetch: found -1; expected an integer of at least 0, or autotune\n")
    assert not (tmp_path / "sweep").exists()


def test_a_job_that_is_killed_is_a_row_that_says_so(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = [*small(tiny, "trainer.seed=0,1", "trainer.epochs=200"), f"hydra.sweep.dir={folder}"]
    process = start(["-m", *words], tmp_path)
    for job, with_signal in ((0, signal.SIGKILL), (1, signal.SIGINT)):
        events = folder / str(job) / "events.jsonl"
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not (events.exists() and '"epoch"' in events.read_text()):
            time.sleep(0.01)
        pid = next(event["pid"] for event in events_of(events.parent) if event["event"] == "started")
        if with_signal == signal.SIGKILL:
            os.kill(pid, with_signal)
        else:
            os.killpg(process.pid, with_signal)
    status, out, _ = finish(process)
    assert status == 130
    assert summary_of(folder / "0")["error"] == (
        "the job's process: found SIGKILL; expected an ordinary end\n"
        "    -> the kernel kills what needs too much memory; see its log"
    )
    assert summary_of(folder / "1")["status"] == "interrupted"
    assert out.endswith(f"report    {folder}/report.md\n")
