"""The part of the data of one host, and what all hosts have in common, compared before the first step."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context, Reading
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.run.hosts import HostPlace, gathered, here
from etlrun.sources.base import Identified, Split
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, Fault

_SEEDS_APART = 2**31
"""Distance of the seeds of two hosts, so that their examples are shuffled and augmented differently."""


def part_of(planned: Plan) -> Plan:
    """Return the plan of the part that one host has in each batch; `planned` itself for a run on one host."""
    spec, fit = planned.spec, planned.spec.fit
    if fit is None or fit.hosts == 1:
        return planned
    load = dataclasses.replace(spec.load, batch_size=spec.load.batch_size // fit.hosts)
    return plan(dataclasses.replace(spec, load=load, trainer=dataclasses.replace(fit, hosts=1)))


def part_on(place: HostPlace, split: Split) -> Split:
    """Return what a host reads of a split: a part of consecutive examples, as many as every other host reads."""
    each = split.num_examples // place.count
    return split.part(each * place.number, each * (place.number + 1))


def notes_on(place: HostPlace, devices: int, splits: dict[str, Split]) -> Iterator[str]:
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


class HostPart(Pipeline):
    """A pipeline of the part of one host, of a `context` of the whole split."""

    def __init__(self, place: HostPlace, planned: Plan, name: str, context: Context) -> None:
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


_BYTES, _BYTES_EACH = 2048, 64
"""Bytes of what a host says, and more for each host."""
_SHOWN = 100
"""Characters of the classes in a message."""


def require_same(plan: Plan, readings: Mapping[str, Reading]) -> None:
    """Raise `EtlrunError`, on all hosts, unless they have the same plan and the same data; all of them call it.

    Each host reads the checksums of its own part of the data; host 0, which identifies all of it, those of all parts.
    """
    place = here()
    if place.count > 1:
        said = json.dumps(said_by(place, plan, readings))
        faults = list(differences([json.loads(text) for text in gathered(said, _BYTES + _BYTES_EACH * place.count)]))
        if faults:
            raise EtlrunError(faults)


def said_by(place: HostPlace, plan: Plan, readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Return what a host says of its plan and its data: digests of its own part, on host 0 those of all parts."""
    names = readings["train"].source.names_of_classes or ()
    hosts = range(place.count) if place.leads else [place.number]
    return {
        "plan": plan.fingerprint,
        "resume": None if plan.spec.fit is None else plan.spec.fit.resume,
        "classes": [len(names), ", ".join(names)[:_SHOWN], _hashed(names)],
        "examples": {reading.split.name: reading.split.num_examples for reading in readings.values()},
        "digests": {str(number): _digest(readings, number, place.count) for number in hosts},
    }


def _digest(readings: Mapping[str, Reading], number: int, count: int) -> str | None:
    """Return a digest of what a host reads; None if it is unknown."""
    of = HostPlace(number=number, count=count)
    digests = [part_on(of, reading.split).content.digest for reading in readings.values()]
    return None if None in digests else _hashed(digests)


def _hashed(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogateescape")).hexdigest()[:16]


def differences(said: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield the first difference between each host and host 0, from what they say."""
    first = said[0]
    for number, other in enumerate(said[1:], 1):
        if other["plan"] != first["plan"]:
            remedy = "start all with the same command, in the same version of etlrun"
            yield _fault(number, f"the plan {other['plan']}", first["plan"], remedy)
        elif other["resume"] != first["resume"]:
            resumed = [f"{Trainer.key('resume')}={of['resume'] or 'null'}" for of in (other, first)]
            yield _fault(number, resumed[0], resumed[1], "start all with the same command")
        elif other["classes"] != first["classes"]:
            yield _fault(number, f"the classes {_shown(other)}", _shown(first))
        elif other["examples"] != first["examples"]:
            yield _fault(number, _counted(other), _counted(first))
        elif None not in (found := [of["digests"][str(number)] for of in (other, first)]) and found[0] != found[1]:
            yield _fault(number, "other records or images in its part of the data", "the same ones")


def _counted(said: Mapping[str, Any]) -> str:
    return ", ".join(f"{count:,} examples in '{name}'" for name, count in said["examples"].items())


def _shown(said: Mapping[str, Any]) -> str:
    count, names, _ = said["classes"]
    return f"{names}{'…' if len(names) == _SHOWN else ''} ({count:,})"


def _fault(number: int, found: str, expected: str, remedy: str = "") -> Fault:
    return Fault(
        f"host {number}",
        found,
        f"{expected}, as on host 0",
        remedy or f"copy the dataset of host 0 to host {number}, or share one storage",
    )
