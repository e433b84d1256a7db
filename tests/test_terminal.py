"""The line that a terminal repaints: what it shows at which width, when there is none, and how it is left."""

import dataclasses
import os
import re
import signal
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.outcome import outcome
from etlrun.record.summary import Summary
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.runs import Runs
from etlrun.system.terminal import fetching, showing
from tests.golden import Says
from tests.pty_process import HIDDEN, VISIBLE, Terminal, once

DONE = outcome(Summary(status="completed", overrides=[], wall_s=60.0))


@pytest.fixture
def progress(tmp_path: Path) -> Runs:
    request = Request(overrides=["model=emulated", "load.prefetch=0,1,2,3,4", "sweep.max_jobs_in_flight=2"])
    found = grid.of(request, STAGES)
    ledger = Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, {})
    return Runs(ledger, {}, found.sweep.max_jobs_in_flight)


def test_before_the_first_job_has_ended_there_is_no_time_left_to_tell(progress: Runs) -> None:
    assert progress.line([RunKey(0, 0)]) == "sweep 0/5 | running 0: load.prefetch=0"


def test_the_line_tells_done_running_failed_and_time_left(progress: Runs, says: Says) -> None:
    progress.note(RunKey(0, 0), dataclasses.replace(DONE, examples_per_s=100.0))
    progress.note(RunKey(1, 0), dataclasses.replace(DONE, examples_per_s=130.0, wall_s=120.0))
    progress.note(RunKey(2, 0), dataclasses.replace(DONE, status="failed", wall_s=1.0))
    says(progress.line([RunKey(3, 0), RunKey(4, 0)]))


def test_where_there_is_no_terminal_a_line_stays_for_each_job(
    progress: Runs, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    with showing(progress.task):
        ended = dataclasses.replace(DONE, examples_per_s=100.0)
        progress.note(RunKey(1, 0), ended)
        progress.show([RunKey(2, 0)])
        progress.ended(RunKey(1, 0), ended)
        killed = outcome(Summary(status="failed", overrides=[], error="the job's process:\n  found SIGKILL"))
        progress.ended(RunKey(2, 0), killed)
    says(capsys.readouterr().out.splitlines())


def test_what_is_fetched_tells_its_rate_and_the_time_left_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with fetching(1_200_000_000, line_every_s=0.0) as tell:
        tell(0)
        tell(300_000_000)
        tell(900_000_000)
    with fetching(1_000) as tell:
        tell(500)
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"etlrun: fetching  300\.0/1,200\.0 MB  \d:\d\d:\d\d left  [\d,.]+ MB/s", first)
    assert re.fullmatch(r"etlrun: fetching  1,200\.0/1,200\.0 MB  0:00:00 left  [\d,.]+ MB/s", last)


READING = """
import time
from etlrun.system.terminal import doing, fetching, progress, showing
from etlrun.system.terminal import say_note, tell

with showing("plan the run"):
    tell("device  CPU, 2 cores")
    doing("open the data")
    with progress() as begin:
        count = begin("reading rows", 3670)
        for _ in range(30):
            count(100)
            time.sleep(0.02)
    say_note("Half a note.")
print("the end")
"""
FETCHING = """
import time
from etlrun.system.terminal import fetching
with fetching(1_200_000_000) as told:
    for _ in range(12):
        told(50_000_000)
        time.sleep(0.05)
"""
PERMANENT = ["device  CPU, 2 cores", "note  Half a note.", "the end"]
BAR = re.compile(r"reading rows  ([\d,]+)/3,670  \d:\d\d:\d\d left  ([━╌]+)")


def script(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    return ["script.py"]


def environment() -> dict[str, Any]:
    return {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}


def shown(folder: Path, text: str, columns: int = 80, **more: str) -> Terminal:
    terminal = Terminal(script(folder, text), folder, columns, **environment(), **more)
    assert terminal.finish() == 0, terminal.text
    return terminal


def test_a_line_tells_what_is_done_with_a_bar_and_the_time_left(tmp_path: Path) -> None:
    terminal = shown(tmp_path, READING)
    bars = [match for line in terminal.lines if (match := BAR.fullmatch(line))]
    assert bars
    for bar in bars:
        filled, done = bar[2].count("━"), int(bar[1].replace(",", ""))
        assert (len(bar[2]), filled) == (30, 30 * done // 3670)
    assert [line for line in terminal.lines if line in PERMANENT] == PERMANENT
    assert (terminal.text.count(HIDDEN), terminal.text.count(VISIBLE)) == (1, 1)
    assert terminal.text.endswith("\x1b[1A\x1b[2Kthe end\r\n")


@pytest.mark.parametrize(
    ("columns", "pattern"),
    [
        (200, BAR.pattern),
        (40, r"reading rows  [\d,]+/3,670  \d:\d\d:\d\d.*"),
        (20, r"reading rows  [\d,/]+…?"),
        (8, r"reading…"),
    ],
)
def test_a_line_has_what_there_is_room_for(columns: int, pattern: str, tmp_path: Path) -> None:
    lines = [line for line in shown(tmp_path, READING, columns).lines if line.startswith("reading")]
    assert lines
    assert [line for line in lines if not re.fullmatch(pattern, line) or len(line) > columns] == []


def test_what_is_fetched_has_megabytes_and_a_rate(tmp_path: Path) -> None:
    lines = shown(tmp_path, FETCHING).lines
    pattern = r"fetching  [\d.]+/1,200\.0 MB  \d:\d\d:\d\d left  [\d,.]+ MB/s  [━╌]+…?"
    assert [line for line in lines if not re.fullmatch(pattern, line)] == [
        line for line in lines if line.startswith("fetching  ") and "  0.0/" in line
    ]
    assert len(lines) > 1


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "true"}, {"TTY_INTERACTIVE": "0"}])
def test_a_terminal_that_is_a_log_has_lines_alone(variables: dict[str, Any], tmp_path: Path) -> None:
    terminal = shown(tmp_path, READING, **variables)
    assert terminal.text.splitlines() == PERMANENT


def test_no_color_leaves_the_line_without_colours(tmp_path: Path) -> None:
    assert "\x1b[32m" in shown(tmp_path, READING).text
    terminal = shown(tmp_path, READING, NO_COLOR="1")
    assert "\x1b[32m" not in terminal.text
    assert any(BAR.fullmatch(line) for line in terminal.lines)


def test_ascii_has_a_bar_of_ascii(tmp_path: Path) -> None:
    lines = shown(tmp_path, READING, PYTHONIOENCODING="ascii").lines
    assert any(re.fullmatch(r"reading rows  [\d,]+/3,670  \d:\d\d:\d\d left  [#-]{30}", line) for line in lines)


def test_a_line_follows_the_size_of_its_terminal(tmp_path: Path) -> None:
    terminal = Terminal(script(tmp_path, READING), tmp_path, **environment())
    assert terminal.finish(once(BAR.fullmatch, lambda of: of.resize(20))) == 0
    assert any(len(line) <= 20 and line.startswith("reading rows") for line in terminal.lines)


def test_ctrl_c_leaves_the_cursor_visible_and_the_line_clean(tmp_path: Path) -> None:
    forever = indent(READING.replace("30", "100_000"), "    ")
    text = f"try:\n{forever}except KeyboardInterrupt:\n    print('interrupted')\n"
    terminal = Terminal(script(tmp_path, text), tmp_path, **environment())
    interrupted = once(BAR.fullmatch, lambda of: of.process.send_signal(signal.SIGINT))
    assert terminal.finish(interrupted) == 0, terminal.text
    assert terminal.text.endswith("\x1b[1A\x1b[2Kinterrupted\r\n")
    assert terminal.text.count(HIDDEN) == terminal.text.count(VISIBLE) == 1


def test_a_terminal_that_is_closed_ends_nothing(tmp_path: Path) -> None:
    text = f"import signal, pathlib\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{READING}"
    text = text.replace('print("the end")', 'pathlib.Path("done").touch()')
    terminal = Terminal(script(tmp_path, text), tmp_path, **environment())
    assert terminal.finish(once(BAR.fullmatch, Terminal.close)) == 0
    assert (tmp_path / "done").exists()
