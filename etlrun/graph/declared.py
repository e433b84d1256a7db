"""Comparison of what stages give with what they declare, before any data is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from etlrun.planning.plan import PlannedStage
from etlrun.stages.flow import NUMBER, Flow
from etlrun.stages.step import Map


def differs(dataset: tf.data.Dataset, flow: Flow) -> str:
    """Return what the elements of a graph are where they don't match `flow`; empty if they match."""
    specs = {name: spec for name, spec in dataset.element_spec.items() if name != NUMBER}
    if {*specs} != {*flow.features}:
        return f"the features {', '.join(sorted(specs))}"
    for name in flow.columns:
        spec, feature = specs[name], flow.features[name]
        shape = tuple(spec.shape)[flow.batch_size is not None :]
        if (spec.dtype.name, shape) != (feature.dtype, feature.shape):
            return f"{spec.dtype.name} {shape}{f' for {name}' if len(flow.inputs) > 1 else ''}"
    return ""


def wrong(build: Callable[[Sequence[PlannedStage]], tf.data.Dataset], stages: Sequence[PlannedStage]) -> str:
    """Return what the first stage or step that doesn't give what it declares gives instead.

    `build` returns the output of stages in the first pass.
    """
    for place, whole in enumerate(stages):
        for path, stage, part in _parts(whole):
            found = "" if part.gives.is_serialised else differs(build([*stages[:place], part]), part.gives)
            if found:
                where = f"{path} of {type(stage).__module__}"
                return f"{where} gives {found}, and declares {part.gives}: its `gives` or its `op` is wrong"
    return "a stage gives something else than it declares"


def _parts(whole: PlannedStage) -> Iterator[tuple[str, object, PlannedStage]]:
    """Yield a stage, or a map up to each of its steps."""
    if not isinstance(whole.stage, Map):
        yield whole.stage.path, whole.stage, whole
        return
    for count, step in enumerate(whole.steps, 1):
        stage = dataclasses.replace(whole.stage, steps=whole.stage.steps[:count])
        yield step.stage.path, step.stage, dataclasses.replace(whole, stage=stage, gives=step.gives)
