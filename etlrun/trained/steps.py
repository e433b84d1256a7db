"""Steps of a run's validation: those of a pass, and those that an export holds; without TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etlrun.planning.plan import Plan, PlannedStage
from etlrun.planning.planner import plan
from etlrun.stages.cache import NoCache
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import Feature
from etlrun.stages.image import Decode


def of_validation(planned: Plan) -> list[PlannedStage]:
    """Return the stages of the validation without a cache: the base of a model is part of the whole model.

    What only the training does is left out, since it may not fit together with records that are skipped.
    """
    spec = planned.spec
    load = dataclasses.replace(spec.load, shuffle="buffer", sample="all")
    if load.boundaries:  # batches of sequences in their order, none of which is left out
        load = dataclasses.replace(load, boundaries=(), batch_sizes=None, tokens_per_batch=None, drop_long=False)
    changes: dict[str, Any] = {"load": load}
    if spec.cache.quality is None:  # a codec changes images, which are then in one with the steps
        changes["cache"] = NoCache(at="transformed", dtype="auto", dir=None, when_busy="uncached")
    if spec.fit is not None:
        changes["trainer"] = dataclasses.replace(spec.fit, steps_per_epoch=None)
    is_of_tfds = spec.extract.parses
    if is_of_tfds:
        changes["extract"] = Sequential(shuffle_files=False)
    for name, steps in (("transform", spec.transform), ("eval_transform", spec.eval_transform)):
        first = (Decode(library="tensorflow"),) if is_of_tfds and spec.extract.decodes else ()
        parse_batch = None if spec.dataset.on_corrupt == "skip" else steps.parse_batch
        changes[name] = dataclasses.replace(steps, steps=(*first, *steps.steps), parse_batch=parse_batch)
    return [of for of in plan(dataclasses.replace(spec, **changes)).evaluation if not of.stage.keeps]


@dataclass(frozen=True, kw_only=True)
class Split:
    """The steps of a run's validation for its one input, or its image, split between an export and whoever uses it.

    Attributes:
        name: Name of the input.
        given: The input as the export takes it.
        caller: What has to be done before, with outputs.
        inside: What the export does before the model, in order.
    """

    name: str
    given: Feature
    caller: tuple[PlannedStage, ...]
    inside: tuple[PlannedStage, ...]


def split(planned: Plan, *, takes_files: bool) -> Split:
    """Return the steps of a plan for an export: all are inside if it takes files, else those that scale at the end.

    Of several inputs they are those of the image. TensorFlow does what is inside, whatever library a run decodes with.
    """
    names = planned.spec.dataset.examples.inputs
    name = names[0] if len(names) == 1 else IMAGE
    steps = [of for of in _each(planned) if not isinstance(of.stage, Columns)]
    inside = len(steps) if takes_files else 0
    while inside < len(steps) and steps[-1 - inside].stage.rescaling is not None:
        inside += 1
    place = len(steps) - inside
    before = steps[place - 1].gives if place else planned.spec.dataset.examples
    return Split(name=name, given=before.features[name], caller=tuple(steps[:place]), inside=tuple(steps[place:]))


def _each(planned: Plan) -> Iterator[PlannedStage]:
    """Yield the steps that work on the input of a pass, with their outputs."""
    for of in of_validation(planned):
        yield from (step for step in of.steps if not step.stage.parses)
