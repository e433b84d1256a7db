"""Points of a pipeline at which its examples can be looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from etlrun.planning.plan import Plan, PlannedStage, PlannedStep
from etlrun.stages.base import Stage
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import Fetch
from etlrun.stages.flow import Feature, Flow
from etlrun.stages.image import Decode
from etlrun.stages.step import AfterCache, AfterTurbo, Map
from etlrun.stages.turbo import Turbo

StageT = TypeVar("StageT", bound=Stage)


@dataclass(frozen=True, kw_only=True)
class Point:
    """The output of a step, or of a stage that changes examples as a step does.

    Attributes:
        path: Path of the step.
        stages: Stages from a record to here, without those that only move, keep or batch examples.
        features: Features that the step has made, by name.
        is_random: Whether they differ from pass to pass.
        is_of_model: Whether the model applies the step.
    """

    path: str
    stages: tuple[Stage, ...]
    features: Mapping[str, Feature]
    is_random: bool
    is_of_model: bool = False


def points(plan: Plan, pipeline: str) -> list[Point]:
    """Return the points of the pipeline `train` or `validation`, in order, up to the base of a model."""
    first, *others = reading(plan, pipeline)
    found: list[Point] = []
    if not first.gives.is_serialised:
        found.append(Point(path=first.stage.path, stages=(), features=_inputs(first.gives), is_random=False))
    chain: tuple[Stage, ...] = ()
    incoming = first.gives
    for planned in others:
        stage = planned.stage
        if isinstance(stage, Map):
            _add_steps(found, chain, stage, planned.steps, incoming)
            chain = (*chain, in_order(stage))
        elif isinstance(stage, Turbo):
            *before, last = planned.steps
            if not stage.values["fast"]:  # TensorFlow's steps then give the same pixels
                whole = AfterTurbo.like(plan.spec.transform, stage.steps)
                _add_steps(found, chain, whole, before, incoming)
            chain = (*chain, in_order(stage))
            made = {Decode.feature: planned.gives.features[Decode.feature]}
            path = last.stage.path
            found.append(Point(path=path, stages=chain, features=made, is_random=_is_random(made, found)))
        incoming = planned.gives
    scaling = AfterCache.like(plan.spec.transform, tuple(planned.stage for planned in plan.by_model))
    _add_steps(found, chain, scaling, plan.by_model, incoming, is_of_model=True)
    return found


def reading(plan: Plan, pipeline: str) -> list[PlannedStage]:
    """Return the stages of a pipeline from the one that reads on: a fetch before it has nothing to show."""
    return [planned for planned in plan.pipelines[pipeline] if not isinstance(planned.stage, Fetch)]


def in_order(stage: StageT) -> StageT:
    """Return the same stage for one example after the other, without parallel calls, which might change the order."""
    values = {"num_parallel_calls": 1, "deterministic": True}
    values |= {"at_once": 1, "skips": False} if isinstance(stage, Turbo) else {}
    return dataclasses.replace(stage, **{name: of for name, of in values.items() if hasattr(stage, name)})  # type: ignore[type-var]


def _add_steps(
    found: list[Point],
    chain: tuple[Stage, ...],
    whole: Map,
    steps: Sequence[PlannedStep],
    incoming: Flow,
    *,
    is_of_model: bool = False,
) -> None:
    """Add the points after the steps of one map, which follows the stages `chain` and takes `incoming`."""
    for number, planned in enumerate(steps, 1):
        step = planned.stage
        for path, columns, features in _of_columns(step, incoming) if isinstance(step, Columns) else ():
            stages = (*chain, dataclasses.replace(in_order(whole), steps=(*whole.steps[: number - 1], columns)))
            found.append(Point(path=path, stages=stages, features=features, is_random=_is_random(features, found)))
        made = (
            _inputs(planned.gives)
            if step.parses or isinstance(step, Columns)
            else {step.feature: planned.gives.features[step.feature]}
        )
        point = Point(
            path=step.path,
            stages=(*chain, dataclasses.replace(in_order(whole), steps=whole.steps[:number])),
            features=made,
            is_random=planned.is_random or _is_random(made, found),
            is_of_model=is_of_model,
        )
        found.append(point)
        incoming = planned.gives


def _of_columns(step: Columns, incoming: Flow) -> Iterator[tuple[str, Columns, dict[str, Feature]]]:
    """Yield the outputs of columns after each of their steps but the last: path, the columns so far, and features.

    Those of which others are made are whole at once, since the others begin with them.
    """
    whole = {name for output in step.outputs for name in output.of if name not in incoming.features}
    for count in range(1, max((len(output.steps) for output in step.outputs), default=0)):
        shown = {output.name for output in step.outputs if len(output.steps) > count and output.name not in whole}
        outputs = tuple(
            dataclasses.replace(output, steps=output.steps[:count]) if output.name in shown else output
            for output in step.outputs
        )
        columns = dataclasses.replace(step, outputs=outputs)
        features = columns.flow(incoming).features
        if shown:
            yield f"{step.path} after step {count}", columns, {name: features[name] for name in sorted(shown)}


def _is_random(made: Iterable[str], before: Sequence[Point]) -> bool:
    """Return whether one of these features was random before."""
    return any(point.is_random and not point.features.keys().isdisjoint(made) for point in before)


def _inputs(flow: Flow) -> dict[str, Feature]:
    return {name: flow.features[name] for name in flow.inputs}
