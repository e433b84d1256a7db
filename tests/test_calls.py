"""A stage that is a call of a method of `tf.data.Dataset` is one class, for graphs and for programs."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from etlrun.eject.pipeline import DATASET_TEXTS
from etlrun.eject.program import ejected, versions
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.planning.plan import PlannedStage
from etlrun.stages import STAGES
from etlrun.stages.base import Stage
from etlrun.stages.made import Call, Constant
from etlrun.stages.measure import Logger
from etlrun.stages.step import Step
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import loaded, of_tiny


def test_every_stage_has_a_text() -> None:
    """A call is its own text; no cache is no stage, a logger is a callback; a service and URLs are refused."""
    texts: set[type[Stage]] = {*DATASET_TEXTS}
    of_pipelines = [stages for group, stages in STAGES.items() if group not in {"model", "trainer", "profile"}]
    registered = {stage for stages in of_pipelines for stage in stages.values() if not issubclass(stage, Step | Logger)}
    missing = {stage.__name__ for stage in (registered | DATASET_STAGES.keys()) - texts}
    assert missing == {"NoCache", "MemoryCache", "Service", "Fetch"}, f"etlrun/eject does not know all of {missing}"
    assert not [stage for stage in texts if stage.call is not Stage.call]


def test_a_stage_that_is_a_call_is_one_class(tiny: Path, tmp_path: Path) -> None:
    """A graph makes the call, and a program holds it, with what each knows of its arguments."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Skip(Stage):
        path: ClassVar[str] = "load.skip"
        count: int

        def call(self) -> Call:
            return Call("skip", (Constant("SKIPPED", self.count),))

    plan, module = of_tiny(tiny, tmp_path, "cache=none", "load.shuffle_buffer=0", "trainer.epochs=1")
    skip = PlannedStage(stage=Skip(count=2), gives=plan.train[-1].gives)
    with_skip = dataclasses.replace(plan, train=(*plan.train, skip))
    text = ejected(with_skip, [], versions())
    assert "\nSKIPPED = 2\n" in text
    assert "    dataset = dataset.skip(SKIPPED)\n" in text
    skipped = as_bytes(loaded(text, tmp_path).train_dataset())
    with training_pipeline(with_skip) as pipeline:
        assert as_bytes(pipeline.dataset) == skipped == as_bytes(module.train_dataset())[2:]
