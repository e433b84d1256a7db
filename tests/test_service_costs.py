"""Costs of the stages of a service: measured in its workers, and what they say of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow.core.framework.model_pb2 import ModelProto

from etlrun.measure.elsewhere import over_workers
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import judge, judge_alone
from etlrun.sweep import process
from tests.service import planned, served, servers
from tests.test_verdict import loop, no_steps, side

SLOW = ("transform.resize.size=[512,512]", "transform.resize.antialias=true")
READING = {"extract.interleave", "load.shuffle"}


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


@pytest.mark.parametrize("order", ["exact", "dynamic"])
def test_each_worker_tells_what_its_stages_cost(tiny: Path, order: str) -> None:
    plan = planned(tiny, *SLOW, f"load.service.order={order}", "load.batch_size=4")
    with servers(workers=2, order=order) as own, served(plan, own) as pipeline:
        models = pipeline.models_elsewhere(0.3)
        reading, readers = pipeline.read_elsewhere()
        assert len(models) == 2
        stages = [of.stage for of in pipeline.stages]
        each = [StageCosts(ModelProto.FromString(of[0]), stages, 4, 2) for of in models]
        costs = {row.stage: row.cost_ms for row in each[0].rows}
        assert max(costs, key=lambda stage: costs[stage]) == "transform.map"
        assert (set(reading), readers) == ((READING, 2) if order == "exact" else (set(), 1))
        alone_ms = [one.periods.slowest.period_ms for one in each]
        read_ms = sum(sum(one.periods.work.of(reading).shares.values()) for one in each) / 2
        whole = over_workers(each, reading, readers, 0.0)
        found = {row.stage: row.cost_ms for row in whole.rows}
        assert found["load.service"] == 0.0
        assert sum(found[stage] for stage in READING & found.keys() & set(reading)) == pytest.approx(readers * read_ms)
        assert whole.periods.slowest.period_ms >= sum(alone_ms) / 4 * 0.99
        of_service = over_workers(each, reading, readers, 1000.0)
    paths = tuple(stage.path for stage in stages)
    for costs_of, named in ((whole, "transform.map"), (of_service, "load.service")):
        waiting = side(loop(wait_s=0.05), of=costs_of, paths=paths)
        verdict = judge([waiting], None, no_steps, cores=64)
        assert verdict.stage == judge_alone(waiting, 10.0).stage == named
        assert (" of each worker; a step takes " in verdict.because) == (named == "transform.map")


def test_a_worker_that_has_ended_is_told(tiny: Path) -> None:
    heard = list[str]()
    with servers(heard, workers=1) as own, served(planned(tiny, "load.service.workers=1"), own) as pipeline:
        own._dispatchers[0].stop()
        assert pipeline.models_elsewhere(0.1) == []
    assert len(heard) == 1
    assert heard[0].startswith("the costs of stages are not known: a worker of load.service does not answer (")
