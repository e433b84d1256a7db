import pytest

from etlrun.measure import meter as meters
from etlrun.measure.meter import Loop, Meter, StepKind
from etlrun.remote.copies import Traffic


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
    meter = Meter(traffic, compiles_each=compiles_each)
    meter.begin()
    meter.pass_begun()
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
    assert loop.waits_s == [0.0, 0.25, 0.25]
    assert loop.steps_s == [2.0, 2.0, 2.0]
    assert loop.examples == [8, 8, 5]
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
    assert (loop.waits_s, loop.steps_s, loop.digest_s) == ([0.5, 0.25], [2.0, 2.0], 12.0)
    assert (loop.wall_s, loop.overhead_s) == (16.75, 12.0)


def test_the_first_step_alone_may_compile_where_one_graph_takes_all_shapes(clock: Clock) -> None:
    loop = measured(clock)
    assert loop.starts_up == [True, False, False]
    assert loop.warm(loop.kinds) == [StepKind(0, ((8, 4, 4, 3),)), StepKind(0, ((5, 4, 4, 3),))]


def test_a_model_that_is_compiled_anew_has_steps_of_another_kind(clock: Clock) -> None:
    meter = Meter()
    meter.begin()
    for compiled in (False, True, False):
        if compiled:
            meter.compiled()
        meter.fetched(0.0, ((8, 4),))
        clock.now_s += 1.0
        meter.stepped()
    loop = meter.end()
    assert loop.starts_up == [True, True, False]
    assert [kind.compiled for kind in loop.kinds] == [0, 1, 1]


def test_a_step_with_a_new_shape_may_compile(clock: Clock) -> None:
    loop = measured(clock, compiles_each=True)
    assert loop.starts_up == [True, False, True]
    assert (loop.startup_s, loop.startup_examples, loop.warm_steps_s) == (4.0, 13, [2.0])
    assert loop.measured_s == 8.375 - 4.0


def test_a_loop_may_read_a_batch_ahead(clock: Clock) -> None:
    loop = measured(clock, ahead=1)
    assert loop.examples == [8, 8, 5]
    assert loop.fill_s + loop.input_wait_s == 2.0
    assert loop.fill_s == 1.25
    assert loop.steps_s == [2.0, 2.0, 2.0]


def test_what_a_first_fill_takes_too_long_is_start_up(clock: Clock) -> None:
    loop = measured(clock)
    loop.split_fill(10.0)
    assert (loop.start_s, loop.fill_s) == (0.0, 1.0)
    loop.split_fill(0.25)
    assert (loop.start_s, loop.fill_s, loop.startup_s) == (0.75, 0.25, 2.75)


def test_tracing_is_start_up(clock: Clock) -> None:
    meter = Meter()
    meter.begin()
    meter.pass_begun()
    clock.now_s += 3.0
    meter.started_up(3.0)
    meter.fetched(0.0, ((8, 4, 4, 3),))
    clock.now_s += 2.0
    meter.stepped()
    loop = meter.end()
    loop.split_fill(0.25)
    assert (loop.start_s, loop.fill_s, loop.startup_s) == (3.0, 0.0, 5.0)
    assert (loop.wall_s, loop.measured_s, loop.overhead_s) == (5.0, 0.0, 0.0)


def test_an_epoch_is_described_with_median_and_percentile() -> None:
    loop = Loop(waits_s=[0.001 * number for number in range(101)], tail_s=0.05, fill_s=2.0)
    assert loop.described() == {
        "wall_s": 0.0,
        "steps": 0,
        "examples": 0,
        "examples_per_s": 0.0,
        "startup_s": 0,
        "startup_examples": 0,
        "input_wait_s": pytest.approx(5.1),
        "input_wait_ms_median": pytest.approx(50),
        "input_wait_ms_p95": pytest.approx(95),
        "fill_wait_s": 2.0,
        "digest_s": 0.0,
    }
