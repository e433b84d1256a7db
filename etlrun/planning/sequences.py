"""Batches of sequences: what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import conflict
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import Flow
from etlrun.stages.load import Load
from etlrun.stages.rows import Rows
from etlrun.system.errors import Fault

_WITHOUT = "load.boundaries=[]"


def sequence_rules(spec: RunSpec, given: Flow) -> Iterator[Fault]:
    """Yield the faults of a run whose batches are made of sequences; `given` is what the model takes."""
    load = spec.load
    if spec.cache.keeps and given.sequences:
        found, remedy = spec.cache.path.removeprefix("cache."), "set cache=none"
        expected = "none with sequences, of which a run of several epochs keeps the items"
        yield Fault(where="cache.name", found=found, expected=expected, remedy=remedy, is_rule=True)
    if load.service is not None and given.sequences:
        yield conflict(load, "service", "null with sequences", "set load.service=null")
    if load.boundaries is not None and not isinstance(spec.dataset, Rows) and (load.boundaries or given.sequences):
        expected = "null with a dataset that is not of rows, whose examples are batched one by one"
        remedy = "end their steps with multi_hot or tf_idf, or set dataset=table"
        yield conflict(load, "boundaries", expected, remedy if given.sequences else "set load.boundaries=null")
    if load.boundaries and isinstance(spec.dataset, Rows):
        yield from _of_buckets(spec, load, given)


def _of_buckets(spec: RunSpec, load: Load, given: Flow) -> Iterator[Fault]:
    if not given.sequences:
        remedy = "set load.boundaries=null, or end the steps of a text with `embed`"
        yield conflict(load, "boundaries", f"null, since there is no sequence in {given}", remedy)
    if load.shuffles and not load.is_by_number:
        ordered = " and extract.shuffle_files=false" * spec.extract.random
        remedy = f"set load.shuffle=full{ordered} or load.shuffle_buffer=0"
        yield conflict(load, "shuffle", "full with load.boundaries", remedy)
    if not isinstance(spec.extract, Sequential):
        found, remedy = spec.extract.path.removeprefix("extract."), "set extract=sequential"
        expected = "sequential with load.boundaries, which reads rows by their numbers"
        yield Fault(where="extract.name", found=found, expected=expected, remedy=remedy, is_rule=True)
    if spec.fit is not None and spec.fit.devices != 1:
        devices = spec.fit.key("devices")
        expected = f"[] with {devices}={spec.fit.devices}, since the last batches of buckets have no equal shares"
        yield conflict(load, "boundaries", expected, f"set {_WITHOUT}, or {devices}=1")
    if spec.fit is not None and spec.fit.hosts > 1:
        expected = f"[] with {spec.fit.key('hosts')}={spec.fit.hosts}, since hosts train on as many batches"
        yield conflict(load, "boundaries", expected, f"set {_WITHOUT}")
