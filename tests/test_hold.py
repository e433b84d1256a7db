"""Steps that a pipeline without a model is held for."""

import time
from pathlib import Path
from typing import Any

import pytest

from etlrun.run.drain import Hold
from tests.runs import run_here, small


@pytest.mark.parametrize(("cores", "computed_ms"), [(0, 0), (0.5, 10), (1, 20), (2.5, 50)])
def test_a_step_takes_its_time_and_its_cores(cores: float, computed_ms: float) -> None:
    with Hold(20, cores) as hold:
        hold.step()  # starts the threads
        began_s, computed_s = time.perf_counter(), time.process_time()
        hold.step()
        took_s, computed_s = time.perf_counter() - began_s, time.process_time() - computed_s
    assert took_s >= 0.02
    assert computed_s >= computed_ms / 1000


def test_no_step_takes_no_thread() -> None:
    with Hold(0, 2) as hold:
        hold.step()
        assert hold._pool is None


def test_a_batch_that_is_held_is_the_same(tiny: Path, tmp_path: Path) -> None:
    words = [word for word in small(tiny, "trainer=drain", "measure.digest=true") if not word.startswith("model.")]
    found: list[dict[str, Any]] = []
    for step in ((), ("trainer.step_ms=5",), ("trainer.step_ms=5", "trainer.step_cores=1")):
        status, summary = run_here(tmp_path / str(len(found)), [*words, *step])
        assert status == 0
        assert summary["epochs"][0]["wall_s"] >= 6 * 0.005 * bool(step)
        found.append(summary)
    assert len({summary["epochs"][0]["digest"] for summary in found}) == 1
    assert len({summary["plan_fingerprint"] for summary in found}) == 1
