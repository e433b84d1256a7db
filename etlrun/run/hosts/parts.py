"""The part of the data of one host: as many batches as every other host has, of examples that no other host reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.run.hosts.here import Place
from etlrun.sources.base import Identified, Split

_SEEDS_APART = 2**31
"""Distance of the seeds of two hosts, so that their examples are shuffled and augmented differently."""


def part_of(planned: Plan) -> Plan:
    """Return the plan of the part that one host has in each batch; `planned` itself for a run on one host."""
    spec, fit = planned.spec, planned.spec.fit
    if fit is None or fit.hosts == 1:
        return planned
    load = dataclasses.replace(spec.load, batch_size=spec.load.batch_size // fit.hosts)
    return plan(dataclasses.replace(spec, load=load, trainer=dataclasses.replace(fit, hosts=1)))


def part_on(place: Place, split: Split) -> Split:
    """Return what a host reads of a split: a part of consecutive examples, as many as every other host reads."""
    each = split.num_examples // place.count
    return split.part(each * place.number, each * (place.number + 1))


def notes_on(place: Place, devices: int, splits: dict[str, Split]) -> Iterator[str]:
    """Yield the notes on splits that hosts share, each with so many `devices`, one sentence each."""
    for name, split in splits.items():
        each = split.num_examples // place.count
        left = split.num_examples - place.count * (each if name == "train" else each - each % devices)
        if left:
            last = f"The last {left:,} examples" if left > 1 else "The last example"
            passes = "no pass" if name == "train" else "no validation"
            why = "all hosts read equally many" if devices == 1 else "all devices compute equally many"
            yield f"{last} of '{split.name}' {'are' if left > 1 else 'is'} in {passes}, so that {why}."
    train = splits["train"]
    if (files := len(train.paths)) < place.count and train.noun == "shard":
        few = f"{files} shard{'s' * (files > 1)}, fewer than the {place.count} hosts"
        yield f"'{train.name}' has {few}: a host reads over the records of others to find its own."


class Part(Pipeline):
    """A pipeline of the part of one host, of a `context` of the whole split."""

    def __init__(self, place: Place, planned: Plan, name: str, context: Context) -> None:
        part = part_on(place, context.split)
        self._whole = context.split if place.leads else part
        if not place.leads:
            _ = part.content.digest  # finds images that are too large
        seed = context.seed + place.number * _SEEDS_APART
        of_host = Context(source=context.source, split=part, seed=seed, backbone=context.backbone)
        super().__init__(planned.pipelines[name], of_host)

    @property
    def content(self) -> Identified:
        """The records that this host identifies: all of the split on host 0, its part on others."""
        return self._whole.content
