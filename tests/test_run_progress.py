"""What a terminal shows of the steps of a run, and how a run leaves it."""

import re
import signal
from pathlib import Path

import pytest

from etlrun.measure.watched import Watch
from etlrun.run.epochs import Steps
from tests.pty_process import HIDDEN, VISIBLE, Terminal
from tests.runs import emulated, summary_of

EPOCH = re.compile(r"epoch 2/3  [━╌]{8,30}  (\d+)/19  \d:\d\d:\d\d left  [\d,.]+ examples/s  wait \d+%")


def watch(*steps: tuple[float, float, int, bool]) -> Watch:
    """A watch of steps: their seconds, those of their waits, their examples, and whether each may compile."""
    found = Watch(with_digest=False)
    add(found, *steps)
    return found


def add(to: Watch, *steps: tuple[float, float, int, bool]) -> None:
    loop = to.meter.loop
    for step_s, wait_s, examples, starts_up in steps:
        loop.steps_s.append(step_s)
        loop.waits_s.append(wait_s)
        loop.examples.append(examples)
        loop.starts_up.append(starts_up)


def line(of: Steps, width: int = 120) -> str:
    return of.painted(width, ascii_only=True).plain


def test_the_first_step_is_awaited() -> None:
    assert line(Steps("epoch 1/2", None, watch())) == "epoch 1/2  first step, 0 s"
    assert line(Steps("epoch 1/2", 4, watch((9.0, 1.0, 8, True)))) == f"epoch 1/2  {'#' * 7}{'-' * 23}  1/4"


def test_steps_tell_the_time_left_of_the_run_their_rate_and_their_wait() -> None:
    seen = watch((9.0, 0.0, 8, True), (0.75, 0.25, 8, False), (0.75, 0.25, 8, False))
    seen.meter.loop.fill_s = 2.0
    steps = Steps("epoch 1/3", 10, seen, epochs_left=2, others_s=60.0)
    shown = f"epoch 1/3  {'#' * 9}{'-' * 21}  3/10  0:01:27 left  8.0 examples/s  wait 62%"
    assert line(steps) == shown
    assert line(steps) == shown  # nothing is counted again
    add(seen, (1.75, 0.25, 8, False))
    assert line(steps) == f"epoch 1/3  {'#' * 12}{'-' * 18}  4/10  0:01:35 left  6.0 examples/s  wait 46%"


def test_steps_of_another_process_and_of_another_loop_are_told_apart() -> None:
    seen = watch((0.5, 0.0, 8, False))
    seen.resumed_batches = 5
    steps = Steps("epoch 1/1", 10, seen)
    assert "  6/10  0:00:02 left  16.0 examples/s  wait 0%" in line(steps)
    seen.resumed_batches = 0
    seen.meter.begin()
    assert line(steps) == f"epoch 1/1  {'-' * 30}  first step, 0 s"


def test_steps_of_an_unknown_number_have_no_bar_and_no_time_left() -> None:
    steps = Steps("pass 1", None, watch((0.5, 0.5, 8, False)))
    assert re.fullmatch(r"pass 1  \d s  8.0 examples/s  wait 50%", line(steps))


def start(words: list[str], cwd: Path) -> Terminal:
    return Terminal(["-m", "tests.quick_jobs", *words], cwd, 100, PYTHONPATH=str(Path(__file__).parents[1]))


@pytest.mark.slow
def test_a_run_on_a_terminal_shows_its_parts_and_steps_and_leaves_its_lines(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "trainer.epochs=3", "cache=none", "model.step_ms=60", f"hydra.run.dir={tmp_path / 'run'}")
    terminal = start(words, tmp_path)
    assert terminal.finish() == 0, terminal.text
    lines = terminal.lines
    counts = [int(match[1]) for text in lines if (match := EPOCH.fullmatch(text))]
    assert counts
    assert counts == sorted(counts)
    parts = [text.split("  ")[0] for text in lines]
    assert "import TensorFlow" in parts  # drawn by a thread of its own, before or after the device
    own = ["device", "data", "epoch 1/3", "status", "tables"]
    places = [parts.index(name) for name in own]
    assert places == sorted(places)
    assert len([text for text in lines if re.match(r"epoch \d/3 +\d+\.\d s ", text)]) == 3
    assert terminal.text.count(HIDDEN) == terminal.text.count(VISIBLE) == 1


@pytest.mark.slow
def test_ctrl_c_in_a_run_leaves_a_clean_line_and_the_command_that_resumes_it(tiny: Path, tmp_path: Path) -> None:
    def interrupted(terminal: Terminal) -> bool:
        if not any(re.match(r"epoch (?!1/)\d+/400  .* left", text) for text in terminal.lines):
            return False
        terminal.process.send_signal(signal.SIGINT)
        return True

    folder = tmp_path / "run"
    terminal = start(emulated(tiny, "trainer.epochs=400", "cache=none", f"hydra.run.dir={folder}"), tmp_path)
    assert terminal.finish(interrupted) == 130, terminal.text
    assert f"\x1b[1A\x1b[2Ketlrun: interrupted; resume with: etlrun trainer.resume={folder}\r\n" in terminal.text
    assert terminal.text.count(HIDDEN) == terminal.text.count(VISIBLE) == 1
    assert summary_of(folder)["status"] == "interrupted"


@pytest.mark.slow
def test_a_run_goes_on_when_its_terminal_is_closed(tiny: Path, tmp_path: Path) -> None:
    def closed(terminal: Terminal) -> bool:
        if not any(text.startswith("epoch 2/") for text in terminal.lines):
            return False
        terminal.close()
        return True

    folder = tmp_path / "run"
    words = emulated(tiny, "trainer.epochs=6", "cache=none", "model.step_ms=30", f"hydra.run.dir={folder}")
    program = "import signal, runpy; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    program += "; runpy.run_module('tests.quick_jobs', run_name='__main__')"
    terminal = Terminal(["-c", program, *words], tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    terminal.finish(closed)
    summary = summary_of(folder)
    assert (summary["status"], len(summary["epochs"])) == ("completed", 6)
