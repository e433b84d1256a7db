"""Runs on several hosts: this process among them, its part of the data, and what all of them have in common."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from etlrun.measure.digest import union
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import DOCS, EtlrunError, Fault, WorldError, counted, refuse
from etlrun.system.loading import pip_install
from etlrun.system.values import Block, frozen

if TYPE_CHECKING:  # which a process that launches runs, and reads nothing, would wait for
    from etlrun.graph.context import Context, Reading
    from etlrun.sources.base import Split

_JOIN_S = 300
"""Longest time between the start of the first host and that of the last one."""
_SILENT_S = 30
"""Time without a sign of a host after which JAX ends the processes of all others."""
_BYTES = 64
"""Bytes of a digest's text."""
_SAID_BYTES = 2048
"""Bytes of what a host says, beside a digest for each host."""
_SHOWN_CLASSES = 100
"""Most characters of the classes in a message."""
_SEEDS_APART = 2**31
"""Distance of the seeds of two hosts, so that their examples are shuffled and augmented differently."""
_SEVERAL_STEPS = 5
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_COUNTED = (
    ("JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""For each launcher the variables with the number of its processes and that of this one, from 0; the first counts."""
_KEY = Trainer.key("hosts")


@frozen
class HostPlace:
    """A host among several.

    Attributes:
        number: Number of the host, from 0; host 0 leads.
        count: Number of hosts.
    """

    number: int
    count: int

    @property
    def leads(self) -> bool:
        """Whether this is the host that writes the results."""
        return self.number == 0

    @property
    def fixed_steps(self) -> int | None:
        """Number of steps on a batch that is ready, which all hosts have to take; None for one that is alone."""
        return _SEVERAL_STEPS if self.count > 1 else None

    def part(self, split: Split) -> Split:
        """Return what this host reads of a split: consecutive examples, as many as every other host reads."""
        each = split.num_examples // self.count
        return split.part(each * self.number, each * (self.number + 1))

    def context(self, whole: Context) -> Context:
        """Return the context of what this host reads of a split, in an order of its own."""
        if self.count == 1:
            return whole
        return replace(whole, split=self.part(whole.split), seed=whole.seed + self.number * _SEEDS_APART)

    def notes(self, devices: int, splits: Mapping[str, Split]) -> Iterator[str]:
        """Yield the notes on splits that hosts share, each with so many `devices`, one sentence each."""
        for name, split in splits.items():
            each = split.num_examples // self.count
            left = split.num_examples - self.count * (each if name == "train" else each - each % devices)
            if left:
                last = f"{counted(left, 'example')} of '{split.name}'"
                passes = "Each pass" if name == "train" else "The validation"
                who = "hosts" if devices == 1 else "devices"
                yield f"{passes} leaves out the last {last}, so that all {who} get equally many."

    def remedy(self, resumable: Callable[[], str | None]) -> str:
        """Return how to see why a step has failed, perhaps by the end of another host, and to go on; empty if alone.

        Of hosts, the leading one alone looks for what is `resumable`: in a folder that may be what has failed.
        """
        if self.count == 1:
            return ""
        left = resumable() if self.leads else None
        again = f"resume with this or another number of them: {Trainer.key('resume')}={left}; " if left else ""
        return f"see what the other hosts say, since one may have ended; {again}"

    def end(self, status: int, *, is_failure: bool) -> NoReturn:
        """End this process; at once after a failure on several hosts, since JAX would wait for the others."""
        if is_failure and self.count > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        raise SystemExit(status)


ALONE = HostPlace(number=0, count=1)
_place = ALONE


def here() -> HostPlace:
    """Return the place of this process in the run; that of a single host before `join_hosts`."""
    return _place


def place_of(trainer: Trainer | None, environment: Mapping[str, str] = os.environ) -> HostPlace:
    """Return the place of this process; raise `WorldError` if the processes aren't those that `trainer` expects."""
    if trainer is None:
        return ALONE
    launcher, count, number = "", 1, 0
    for name, *variables in _COUNTED:
        values = [environment.get(variable, "") for variable in variables]
        if all(map(str.isdigit, values)) and not launcher:
            launcher, count, number = name, *map(int, values)
    if count != trainer.hosts:
        by = f", the number of processes that {launcher} counts" if launcher else ", since no launcher has started more"
        start = f"start a process on each host with srun or mpirun ({DOCS}/training.md), or set {_KEY}=1"
        raise WorldError(_KEY, str(trainer.hosts), f"{count}{by}", f"set {_KEY}={count}" if launcher else start)
    if not 0 <= number < count:
        variable = next(of for name, _, of in _COUNTED if name == launcher)
        expected = f"a number from 0 to {count - 1}, another one on each host"
        raise WorldError(variable, str(number), expected, "start them all with the same launcher")
    return HostPlace(number=number, count=count)


def require_jax(trainer: Trainer | None) -> None:
    """Raise `WorldError` if `trainer` has several hosts, and JAX, whose processes they are, isn't installed."""
    if trainer is not None and trainer.hosts > 1 and find_spec("jax") is None:
        expected, remedy = "the package jax, whose processes the hosts are", pip_install("jax")
        raise WorldError(_KEY, f"{trainer.hosts}, without JAX", expected, f"{remedy}, or set {_KEY}=1")


def leads(trainer: Trainer | None) -> bool:
    """Return whether this process, which has not joined the others yet, writes the results of a run."""
    return trainer is None or trainer.hosts == 1 or place_of(trainer).leads


def join_hosts(backend: str, trainer: Trainer) -> None:
    """Join the processes of the other hosts, before JAX looks for devices; nothing for a run on one host.

    JAX ends this process if it loses one of them, which a collective operation would wait for.

    Raises:
        WorldError: Keras's `backend` can't train on several hosts; the address of host 0 is unknown, or a host is
            missing.
    """
    global _place  # noqa: PLW0603 - as JAX's own state of a process
    if trainer.hosts == 1:
        return
    if backend != "jax":
        expected = f"1 with Keras's {backend} backend, whose fit shares no batches with other hosts"
        remedy = f"set the environment variable KERAS_BACKEND=jax, or {_KEY}=1"
        raise WorldError(_KEY, str(trainer.hosts), expected, remedy)
    import jax

    place, address = place_of(trainer), os.environ.get(_ADDRESS, "")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", val=False)  # after whose notice of SIGTERM a run goes on
    initialize = partial(
        jax.distributed.initialize,
        num_processes=place.count,
        process_id=place.number,
        # A host has all of its devices, and not the one of its number, as JAX would have it with Slurm.
        local_device_ids=None if "JAX_LOCAL_DEVICE_IDS" in os.environ else [],
        initialization_timeout=2 * _JOIN_S,  # at its end, JAX ends the process without a word of what is missing
        heartbeat_timeout_seconds=_SILENT_S,
        coordinator_bind_address=address if address.startswith(("127.", "localhost:", "[::1]:")) else None,
    )
    try:
        ThreadPoolExecutor(1).submit(initialize).result(_JOIN_S)
    except TimeoutError as error:
        found = f"a host that is missing {_JOIN_S} s after the start of host {place.number}"
        expected = f"{place.count} hosts, which reach {address or 'host 0'}"
        remedy = "see whether the others were started, and whether that port is open"
        raise WorldError(_KEY, found, expected, remedy) from error
    except (ValueError, RuntimeError) as error:
        expected, remedy = "HOST:PORT of host 0, a free port there", "set that environment variable for all processes"
        raise WorldError(_ADDRESS, f"{address or 'nothing'}: {error}", expected, remedy) from error
    _place = place


def leave() -> None:
    """Wait for all hosts to come to the end of the run, and part from them."""
    global _place  # noqa: PLW0603
    if _place.count > 1:
        import jax

        jax.distributed.shutdown()
        _place = ALONE


def joint(digest: str) -> str:
    """Return the digest of what all hosts have read, of which this one has read `digest`; each host calls it."""
    return digest if _place.count == 1 else union(_gathered(digest, _BYTES))


def _gathered(text: str, size: int) -> list[str]:
    """Return what each host has as `text`, of at most `size` bytes in UTF-8, in their order; each host calls it."""
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(text.encode().ljust(size), np.uint8)
    return [bytes(of).decode().strip() for of in np.asarray(process_allgather(own))]


def part_of(planned: Plan) -> Plan:
    """Return the plan of the part that one host has in each batch; `planned` itself for a run on one host."""
    spec, fit = planned.spec, planned.spec.fit
    if fit is None or fit.hosts == 1:
        return planned
    load = replace(spec.load, batch_size=spec.load.batch_size // fit.hosts)
    return plan(replace(spec, load=load, trainer=replace(fit, hosts=1)))


def require_same(plan: Plan, readings: Mapping[str, Reading]) -> None:
    """Raise `EtlrunError`, on all hosts, unless they have the same plan and the same data; all of them call it.

    Each host reads the checksums of its own part of the data; host 0, which identifies all of it, those of all parts.
    """
    if _place.count > 1:
        said = _gathered(json.dumps(said_by(_place, plan, readings)), _SAID_BYTES + _BYTES * _place.count)
        refuse(differences([*map(json.loads, said)]), EtlrunError)


def said_by(place: HostPlace, plan: Plan, readings: Mapping[str, Reading]) -> Block:
    """Return what a host says of its plan and its data: digests of its own part, on host 0 those of all parts."""
    names = readings["train"].source.names_of_classes or ()
    shown = ", ".join(names)
    if len(shown) > _SHOWN_CLASSES:
        shown = f"{shown[:_SHOWN_CLASSES]}… of digest {_hashed(names)}"
    digests = {}
    for number in range(place.count) if place.leads else [place.number]:
        of = replace(place, number=number)
        parts = [of.part(reading.split).content.digest for reading in readings.values()]
        digests[str(number)] = None if None in parts else _hashed(parts)
    return {
        "plan": f"the plan {plan.fingerprint}",
        "resume": f"{Trainer.key('resume')}={(plan.spec.fit and plan.spec.fit.resume) or 'null'}",
        "classes": f"the classes {shown} ({len(names):,})",
        "examples": ", ".join(
            f"{counted(of.split.num_examples, 'example')} in '{of.split.name}'" for of in readings.values()
        ),
        "digests": digests,
    }


def _hashed(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogateescape")).hexdigest()[:16]


def differences(said: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield the first difference between each host and host 0, from what they say."""
    for number, other in enumerate(said[1:], 1):
        copy = f"copy the dataset of host 0 to host {number}, or share one storage"
        same = "start all with the same command"
        remedies = {"plan": f"{same}, in the same version of etlrun", "resume": same, "classes": copy, "examples": copy}
        own, first = (of["digests"][str(number)] for of in (other, said[0]))
        key = next((key for key in remedies if other[key] != said[0][key]), None)
        if key is not None:
            yield Fault(f"host {number}", other[key], f"{said[0][key]}, as on host 0", remedies[key])
        elif None not in (own, first) and own != first:
            what = "other records or images in its part of the data"
            yield Fault(f"host {number}", what, "the same ones, as on host 0", copy)
