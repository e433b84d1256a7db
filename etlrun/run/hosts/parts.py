"""The part of the data of one host: as many batches as every other host has, of examples that no other host reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.graph.passes import Passes
from etlrun.plan.plan import Plan, PlannedStage, stage_of
from etlrun.plan.planner import plan
from etlrun.run.hosts.here import whole_batches
from etlrun.run.hosts.place import Place
from etlrun.sources.base import Identified, Split
from etlrun.stages.load import Batch

_SEEDS_APART = 2**31
"""Distance of the seeds of two hosts, so that their examples are shuffled and augmented differently."""


def part_of(planned: Plan) -> Plan:
    """Return the plan of the part that one host has in each batch; `planned` itself for a run on one host."""
    spec, fit = planned.spec, planned.spec.fit
    if fit is None or fit.hosts == 1:
        return planned
    load = dataclasses.replace(spec.load, batch_size=spec.load.batch_size // fit.hosts)
    return plan(dataclasses.replace(spec, load=load, trainer=dataclasses.replace(fit, hosts=1)))


def pipelines_on(
    place: Place, stages: Mapping[str, Sequence[PlannedStage]], contexts: Mapping[str, Context]
) -> dict[str, Pipeline]:
    """Return the pipelines of this host, of which the contexts are those of the whole splits."""
    found: dict[str, Pipeline] = {"train": _TrainingPart(place, stages["train"], contexts["train"])}
    if "validation" in contexts:
        found["validation"] = _ValidationPart(place, stages["validation"], contexts["validation"])
    return found


def notes_on(place: Place, train: Split) -> Iterator[str]:
    """Yield the notes on a training split that hosts share, one sentence each."""
    left, files = train.num_examples % place.count, len(train.paths)
    if left:
        last = f"The last {left:,} examples" if left > 1 else "The last example"
        yield f"{last} of '{train.name}' {'are' if left > 1 else 'is'} in no pass, so that all hosts read equally many."
    if files < place.count and train.noun == "shard":
        few = f"{files} shard{'s' * (files > 1)}, fewer than the {place.count} hosts"
        yield f"'{train.name}' has {few}: a host reads over the records of others to find its own."


def parts_of(place: Place, name: str, stages: Sequence[PlannedStage], split: Split) -> list[Split]:
    """Return what a host reads of the split of the pipeline `name`: its own part, and the last batch of a validation.

    All hosts share a last batch that is smaller than a full one.
    """
    total, batch = split.num_examples, stage_of(stages, Batch)
    assert batch is not None  # noqa: S101 - all plans have it
    is_training = name == "train"
    each = total // place.count if is_training else total // (batch.batch_size * place.count) * batch.batch_size
    bounds = [(each * place.number, each * (place.number + 1)), *([] if is_training else [(each * place.count, total)])]
    return [split.part(start, stop) for start, stop in bounds if start < stop]


class _Part(Pipeline):
    """A pipeline of the examples of one host."""

    def __init__(self, place: Place, stages: Sequence[PlannedStage], context: Context, split: Split) -> None:
        self._whole = context.split if place.leads else split
        if not place.leads:
            _ = split.content.digest  # finds images that are too large
        super().__init__(stages, _of(context, split, place))

    @property
    def content(self) -> Identified:
        return self._whole.content


class _TrainingPart(_Part):
    """An equal part of the training examples, in the order of the data."""

    def __init__(self, place: Place, stages: Sequence[PlannedStage], context: Context) -> None:
        super().__init__(place, stages, context, parts_of(place, "train", stages, context.split)[0])


class _ValidationPart(_Part):
    """An equal part of the full batches of a validation; and the whole of the last batch, if it is a smaller one.

    Each example counts once, since all devices compute the same of the last batch.
    """

    def __init__(self, place: Place, stages: Sequence[PlannedStage], context: Context) -> None:
        batch, split = stage_of(stages, Batch), context.split
        assert batch is not None  # noqa: S101 - all plans have it
        each = split.num_examples // (batch.batch_size * place.count) * batch.batch_size
        rest = split.part(each * place.count, split.num_examples) if each * place.count < split.num_examples else None
        own = split.part(each * place.number, each * (place.number + 1)) if each else None
        super().__init__(place, stages, context, own or rest or split)
        count = split.num_examples - each * place.count
        self._rest = None if rest is None else _rest(stages, _of(context, rest, place), count)
        self._has_own, own_passes = own is not None, self.dataset
        self.dataset = Passes(own_passes, lambda: self._batches(own_passes))

    def _batches(self, own_passes: Any) -> Iterator[Any]:
        if self._has_own:
            yield from own_passes
        if self._rest is not None:
            with whole_batches():
                yield from self._rest.dataset

    def close(self) -> None:
        super().close()
        if self._rest is not None:
            self._rest.close()


def _rest(stages: Sequence[PlannedStage], context: Context, examples: int) -> Pipeline:
    """Return the pipeline of the last batch."""
    as_one = [
        dataclasses.replace(of, stage=dataclasses.replace(of.stage, batch_size=examples))
        if isinstance(of.stage, Batch)
        else of
        for of in stages
    ]
    return Pipeline(as_one, context)


def _of(context: Context, split: Split, place: Place) -> Context:
    return Context(
        source=context.source,
        split=split,
        seed=context.seed + place.number * _SEEDS_APART,
        backbone=context.backbone,
    )
