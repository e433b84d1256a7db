"""Each gain that a report prints follows from the seconds that it prints beside it."""

import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from etlrun.measure.meter import Loop
from etlrun.record.report import lines
from etlrun.record.summary import Summary
from tests.judged import BATCH, KIND, costs, side, verdict

_WAITS, _STEPS = st.floats(0.0, 0.3), st.floats(0.001, 0.3)


@st.composite
def _loops(draw: st.DrawFn) -> Loop:
    steps = draw(st.integers(1, 30))
    waits, taken = ([draw(of) for _ in range(steps)] for of in (_WAITS, _STEPS))
    starts = [draw(st.booleans()) for _ in range(steps)]
    fill_s, start_s, tail_s, idle_s = (draw(st.floats(0.0, 5.0)) for _ in range(4))
    wall_s = sum(waits) + sum(taken) + fill_s + start_s + tail_s + idle_s
    return Loop(waits, taken, [BATCH] * steps, starts, fill_s, start_s, tail_s, 0.0, wall_s, kinds=[KIND] * steps)


_RUNS = st.lists(_loops(), min_size=1, max_size=4)


@given(_RUNS, st.none() | _RUNS, st.floats(0.001, 0.3), st.floats(0.0, 0.05))
@settings(max_examples=150)
def test_each_gain_follows_from_the_seconds_beside_it(
    train: list[Loop], validation: list[Loop] | None, floor_s: float, handover_s: float
) -> None:
    values: dict[str, Any] = {"of": costs(map=80.0), "floors": {KIND: floor_s}, "handover_s": handover_s}
    sides = [side(*train, **values), *([side(*validation, name="validation", **values)] if validation else [])]
    summary = Summary(status="completed", overrides=[], verdict=verdict(*sides))
    told = dict(lines(summary, Path("run")))
    pairs = []
    if found := re.search(r": training at most ([\d.]+)x faster", told["verdict"]):
        waited = re.match(r"([\d.]+) s of ([\d.]+) s were spent waiting for data", told["because"])
        assert waited is not None
        pairs.append((found[1], waited[1], waited[2]))
    apart = re.findall(r"(?:took|waited) ([\d.]+) of ([\d.]+) s[a-z_. ]*: ([\d.]+)x without", told.get("apart", ""))
    assert len(apart) == len(summary.verdict.apart if summary.verdict else ())
    pairs += [(gain, lost, total) for lost, total, gain in apart]
    for gain, waited_s, total_s in pairs:
        total, waiting = float(total_s) - _half(total_s), float(waited_s) + _half(waited_s)
        assert float(gain) >= 1.0
        assert waiting >= total or float(gain) - _half(gain) <= total / (total - waiting) + 1e-9


def _half(text: str) -> float:
    """Half of the last digit of a number."""
    return float(0.5 * 10.0 ** -len(text.partition(".")[2]))
