"""What a terminal shows of the steps of a run, and how a run leaves it."""

import json
import re
import signal
from pathlib import Path

import pytest

from etlrun.measure import meter as meters
from etlrun.measure.meter import Loop, Meter, StepKind, StepTimes
from etlrun.measure.watched import Watch
from etlrun.record import report
from etlrun.record.record import Record
from etlrun.remote.copies import Traffic
from etlrun.run.epochs import Steps
from tests.judged import KIND
from tests.pty_process import HIDDEN, VISIBLE, Terminal, once
from tests.run_pages import course, epoch
from tests.runs import emulated, summary_of


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(meters, "time", stopped)
    return stopped


def measured(clock: Clock, *, ahead: int = 0, compiles_each: bool = False) -> Loop:
    """A pass of three batches: 1 s for the first, 0.25 s for the others, steps of 2 s, callbacks of 0.125 s.

    In each second 10 bytes are fetched, and for half of it a shard is waited for.
    """
    traffic = lambda: Traffic(bytes=int(10 * clock.now_s), waited_s=clock.now_s / 2)  # noqa: E731
    meter = Meter(traffic)
    meter.compiles_each = compiles_each
    meter.begin()
    meter.is_filling = True
    waits = [1.0, 0.25, 0.25]

    def fetch() -> None:
        wait_s = waits.pop(0)
        clock.now_s += wait_s
        meter.fetched(wait_s, ((8, 4, 4, 3),) if waits else ((5, 4, 4, 3),))

    def end() -> None:
        clock.now_s += 0.5
        meter.ended(0.5)

    for _ in range(ahead):
        fetch()
    for step in range(3):
        if waits:
            fetch()
        elif step == 2 and ahead:
            end()
        clock.now_s += 2.0
        meter.stepped()
        clock.now_s += 0.125
    if not ahead:
        end()
    return meter.end()


def test_waits_and_steps_are_told_apart(clock: Clock) -> None:
    loop = measured(clock)
    assert [(step.wait_s, step.step_s, step.examples) for step in loop.steps] == [(0, 2, 8), (0.25, 2, 8), (0.25, 2, 5)]
    assert (loop.fill_s, loop.tail_s, loop.wall_s) == (1.0, 0.5, 8.375)
    assert loop.input_wait_s == 1.0
    assert loop.overhead_s == pytest.approx(0.375)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_loop_has_what_was_fetched_meanwhile(clock: Clock, ahead: int) -> None:
    clock.now_s = 100.0
    loop = measured(clock, ahead=ahead)
    assert loop.traffic == Traffic(bytes=int(10 * loop.wall_s), waited_s=loop.wall_s / 2)
    assert loop.first_fetch_s == 0.5


def test_the_wait_for_a_digest_is_neither_a_wait_for_data_nor_a_step(clock: Clock) -> None:
    meter = Meter()
    meter.begin()
    for wait_s, held_s, step_s in ((0.5, 4.0, 2.0), (0.25, 8.0, 2.0)):
        clock.now_s += wait_s
        meter.fetched(wait_s, ((8, 4, 4, 3),))
        clock.now_s += held_s
        meter.held_up(held_s)
        clock.now_s += step_s
        meter.stepped()
    loop = meter.end()
    assert [(step.wait_s, step.step_s) for step in loop.steps] == [(0.5, 2.0), (0.25, 2.0)]
    assert loop.digest_s == 12.0
    assert (loop.wall_s, loop.overhead_s) == (16.75, 12.0)


def test_the_first_step_alone_may_compile_where_one_graph_takes_all_shapes(clock: Clock) -> None:
    loop = measured(clock)
    assert [step.starts_up for step in loop.steps] == [True, False, False]
    assert [step.kind for step in loop.warm] == [StepKind(0, ((8, 4, 4, 3),)), StepKind(0, ((5, 4, 4, 3),))]


def test_a_model_that_is_compiled_anew_has_steps_of_another_kind(clock: Clock) -> None:
    meter = Meter()
    meter.begin()
    for compiled in (False, True, False):
        if compiled:
            meter.times_compiled += 1
        meter.fetched(0.0, ((8, 4),))
        clock.now_s += 1.0
        meter.stepped()
    loop = meter.end()
    assert [(step.starts_up, step.kind.compiled) for step in loop.steps] == [(True, 0), (True, 1), (False, 1)]


def test_a_step_with_a_new_shape_may_compile(clock: Clock) -> None:
    loop = measured(clock, compiles_each=True)
    assert [step.starts_up for step in loop.steps] == [True, False, True]
    assert (loop.startup_s, loop.described()["startup_examples"], loop.warm[0].step_s) == (4.0, 13, 2.0)
    assert loop.measured_s == 8.375 - 4.0


def test_a_loop_may_read_a_batch_ahead(clock: Clock) -> None:
    loop = measured(clock, ahead=1)
    assert (loop.waited_s, loop.fill_s) == (2.0, 1.25)
    assert [(step.step_s, step.examples) for step in loop.steps] == [(2.0, 8), (2.0, 8), (2.0, 5)]


def test_what_a_first_fill_takes_too_long_is_start_up(clock: Clock) -> None:
    loop = measured(clock)
    loop.split_fill(10.0)
    assert (loop.start_s, loop.fill_s) == (0.0, 1.0)
    loop.split_fill(0.25)
    assert (loop.start_s, loop.fill_s, loop.startup_s) == (0.75, 0.25, 2.75)


def test_tracing_is_start_up(clock: Clock) -> None:
    meter = Meter()
    meter.begin()
    meter.is_filling = True
    clock.now_s += 3.0
    meter.loop.start_s += 3.0
    meter.fetched(0.0, ((8, 4, 4, 3),))
    clock.now_s += 2.0
    meter.stepped()
    loop = meter.end()
    loop.split_fill(0.25)
    assert (loop.start_s, loop.fill_s, loop.startup_s) == (3.0, 0.0, 5.0)
    assert (loop.wall_s, loop.measured_s, loop.overhead_s) == (5.0, 0.0, 0.0)


def test_an_epoch_is_described() -> None:
    loop = Loop([StepTimes(0.001 * number, 0.5, KIND) for number in range(101)], tail_s=0.05, fill_s=2.0)
    assert loop.described() == {
        "wall_s": 0.0,
        "steps": 101,
        "examples": 1010,
        "examples_per_s": 0.0,
        "startup_s": 0,
        "startup_examples": 0,
        "input_wait_s": pytest.approx(5.1),
        "fill_wait_s": 2.0,
        "digest_s": 0.0,
    }


def test_a_fault_of_the_page_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = course(tmp_path, epoch(1))
    monkeypatch.setattr(report, "stages_of", lambda *_: 1 / 0)
    report.renew(record)
    event = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (event["event"], event["error"]) == ("page_failed", "ZeroDivisionError: division by zero")
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_kept_as_the_refusal(tmp_path: Path) -> None:
    record: Record = course(tmp_path, epoch(1))
    (tmp_path / "report.html").mkdir()
    with pytest.raises(IsADirectoryError):
        report.renew(record)
    assert isinstance(record.refusal, IsADirectoryError)


EPOCH = re.compile(r"epoch 2/3  (\d+)/19  \d:\d\d:\d\d left  [\d,.]+ examples/s  wait \d+%  [━╌ …]+")


def watch(*steps: tuple[float, float, int, bool]) -> Watch:
    """A watch of steps: their seconds, those of their waits, their examples, and whether each may compile."""
    found = Watch()
    add(found, *steps)
    return found


def add(to: Watch, *steps: tuple[float, float, int, bool]) -> None:
    for step_s, wait_s, examples, starts_up in steps:
        to.meter.loop.steps.append(StepTimes(wait_s, step_s, StepKind(0, ((examples,),)), starts_up))


def line(of: Steps) -> str:
    return of.painted(ascii_only=True).plain


def test_the_first_step_is_awaited() -> None:
    assert line(Steps("epoch 1/2", None, watch())) == "epoch 1/2  first step, 0 s"
    assert line(Steps("epoch 1/2", 4, watch((9.0, 1.0, 8, True)))) == f"epoch 1/2  1/4  {'#' * 7}{'-' * 23}"


def test_steps_tell_the_time_left_of_the_run_their_rate_and_their_wait() -> None:
    seen = watch((9.0, 0.0, 8, True), (0.75, 0.25, 8, False), (0.75, 0.25, 8, False))
    seen.meter.loop.fill_s = 2.0
    steps = Steps("epoch 1/3", 10, seen, epochs_left=2, others_s=60.0)
    shown = f"epoch 1/3  3/10  0:01:27 left  8.0 examples/s  wait 62%  {'#' * 9}{'-' * 21}"
    assert line(steps) == shown
    assert line(steps) == shown  # nothing is counted again
    add(seen, (1.75, 0.25, 8, False))
    assert line(steps) == f"epoch 1/3  4/10  0:01:35 left  6.0 examples/s  wait 46%  {'#' * 12}{'-' * 18}"


def test_steps_of_another_process_and_of_another_loop_are_told_apart() -> None:
    seen = watch((0.5, 0.0, 8, False))
    seen.resumed_batches = 5
    steps = Steps("epoch 1/1", 10, seen)
    assert "  6/10  0:00:02 left  16.0 examples/s  wait 0%" in line(steps)
    seen.resumed_batches = 0
    seen.meter.begin()
    assert line(steps) == f"epoch 1/1  first step, 0 s  {'-' * 30}"


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
    folder = tmp_path / "run"
    terminal = start(emulated(tiny, "trainer.epochs=400", "cache=none", f"hydra.run.dir={folder}"), tmp_path)
    of_steps = re.compile(r"epoch (?!1/)\d+/400  .* left")
    interrupted = once(of_steps.match, lambda of: of.process.send_signal(signal.SIGINT))
    assert terminal.finish(interrupted) == 130, terminal.text
    assert f"\x1b[1A\x1b[2Ketlrun: interrupted; resume with: etlrun trainer.resume={folder}\r\n" in terminal.text
    assert terminal.text.count(HIDDEN) == terminal.text.count(VISIBLE) == 1
    assert summary_of(folder)["status"] == "interrupted"


@pytest.mark.slow
def test_a_run_goes_on_when_its_terminal_is_closed(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = emulated(tiny, "trainer.epochs=6", "cache=none", "model.step_ms=30", f"hydra.run.dir={folder}")
    program = "import signal, runpy; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    program += "; runpy.run_module('tests.quick_jobs', run_name='__main__')"
    terminal = Terminal(["-c", program, *words], tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    terminal.finish(once(re.compile("epoch 2/").match, Terminal.close))
    summary = summary_of(folder)
    assert (summary["status"], len(summary["epochs"])) == ("completed", 6)
