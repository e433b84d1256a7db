"""Rules of a run on several hosts, each of which reads its own part of the data, and the note on it."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import by_records, conflict, fault
from etlrun.stages.flow import Flow
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, Fault


def host_rules(spec: RunSpec, trainer: Trainer, given: Flow) -> Iterator[Fault]:
    """Yield the faults of a run that several hosts can't share; `given` is what the model takes."""
    load, hosts = spec.load, f"{trainer.key('hosts')}={trainer.hosts}"
    one = f"set {trainer.key('hosts')}=1"
    if not spec.model.learns:
        yield conflict(trainer, "hosts", f"1 with {spec.model.path}, which computes nothing", one)
    if spec.cache.keeps_features:
        yield conflict(trainer, "hosts", "1 with cache.at=features, which one device computes", one)
    elif spec.cache.outlives_run and not given.sequences:  # of which no cache keeps any
        expected = f"memory or none with {hosts}, whose hosts keep their own parts of a split"
        other = "none" if load.is_by_number else "memory"
        yield fault("cache.name", spec.cache.path.removeprefix("cache."), expected, f"set cache={other}, or {one[4:]}")
    if load.service is not None:
        expected = f"null with {hosts}, whose hosts read by themselves"
        yield fault(load.service.path, "a service", expected, f"set load=shuffled, or {one[4:]}")
    if spec.extract.parses:
        expected = f"sequential or interleave with {hosts}, whose hosts read a part of a split by its records"
        yield fault("extract.name", spec.extract.path.removeprefix("extract."), expected, by_records(spec))
    if spec.dataset.on_corrupt == "skip":
        expected = f"raise with {hosts}, since hosts that skip records would take different numbers of steps"
        remedy = f"repair the data and set dataset.on_corrupt=raise, or {one}"
        yield conflict(spec.dataset, "on_corrupt", expected, remedy)
    if load.sample != "all":
        expected = f"all with {hosts}, since a host has not all examples of a class"
        yield conflict(load, "sample", expected, f"set load.sample=all, or {one[4:]}")
    if trainer.jit_compile is False:
        expected = f"true or auto with {hosts}, whose steps meet inside"
        yield conflict(trainer, "jit_compile", expected, f"set trainer.jit_compile=auto, or {one[4:]}")
    yield from _shares(spec, trainer)


def _shares(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of batches that have no equal parts."""
    load, hosts, devices = spec.load, trainer.hosts, trainer.devices
    if not load.drop_remainder:
        expected = f"true with {trainer.key('hosts')}={hosts}, since a smaller batch may have no equal parts"
        other = f", or {trainer.key('hosts')}=1" * (devices == 1)
        yield conflict(load, "drop_remainder", expected, f"set load.drop_remainder=true{other}")
    each = 1 if devices == "all" else devices
    if load.batch_size % (hosts * each):
        size = -(-load.batch_size // (hosts * each)) * hosts * each
        of = f"{hosts}, the number of hosts" if each == 1 else f"{hosts * each}, the devices of {hosts} hosts"
        expected = f"a multiple of {of} that share a batch"
        remedy = f"set {load.key('batch_size')}={size}, or another {trainer.key('hosts')}"
        yield conflict(load, "batch_size", expected, remedy)


def host_note(trainer: Trainer, batch_size: int) -> str:
    """Return the note on a run on several hosts."""
    return (
        f"{trainer.key('hosts')} = {trainer.hosts}: each host reads its own part of the examples, and makes "
        f"{batch_size // trainer.hosts} of the {batch_size} of a batch."
    )


def require_one_host(spec: RunSpec, what: str) -> None:
    """Raise `ConfigError` if the run trains on several hosts, as `what` does not."""
    if spec.fit is not None and spec.fit.hosts != 1:
        raise ConfigError([conflict(spec.fit, "hosts", f"1, since {what}", f"add {spec.fit.key('hosts')}=1")])
