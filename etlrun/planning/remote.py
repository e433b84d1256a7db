"""Rules of a run whose shards are fetched from URLs while it reads, and notes on it."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import conflict, fault
from etlrun.stages.dataset import Declared
from etlrun.stages.load import Service
from etlrun.system.errors import Fault


def remote_rules(spec: RunSpec) -> Iterator[Fault]:
    """Yield the faults of a run that can't fetch its shards one after the other."""
    dataset, load = spec.dataset, spec.load
    if not isinstance(dataset, Declared) or not dataset.urls:
        return
    if load.service is not None:
        expected = f"null with {dataset.key(dataset.given_by)} at a URL, which Python fetches in its own process"
        yield fault(Service.path, "a service", expected, "set load=shuffled, or copy the files to this machine")
    if dataset.keep == "all":
        return
    for found, remedy in _of_all(spec):
        expected = f"all with {found}, for which all shards are read at once"
        yield conflict(dataset, "keep", expected, f"set {dataset.key('keep')}=all, or {remedy}")


def _of_all(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield what needs all shards on this machine, and what to set instead."""
    if spec.extract.parses:
        yield spec.extract.path, "extract=interleave"
    if spec.load.is_by_number:
        yield f"{spec.load.key('shuffle')}=full", f"{spec.load.key('shuffle')}=buffer"
    if spec.load.class_weights != "none":
        yield f"{spec.load.key('class_weights')}={spec.load.class_weights}", f"{spec.load.key('class_weights')}=none"


def remote_notes(spec: RunSpec) -> Iterator[str]:
    """Yield the note on options of URLs that have no effect, since there are none."""
    dataset = spec.dataset
    if isinstance(dataset, Declared) and not dataset.urls:
        idle = {"storage": dataset.storage, "keep": dataset.keep, "copies": dataset.copies}
        for name in (name for name, value in idle.items() if value not in (None, "all")):
            yield f"{dataset.key(name)} has no effect: {dataset.key(dataset.given_by)} is on this machine."
