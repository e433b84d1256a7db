"""Reading of the input on other processes and machines: tf.data's service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import DATA, ORDER, SPEED, Expected, Flag, Nodes, Scope, Stage

_Address = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^\s:/,\[\]]+):[1-9][0-9]{0,4}$")]
_Timeout = Annotated[float, Field(ge=1, allow_inf_nan=False), Expected("a number of seconds, at least 1")]
_Addresses = Annotated[tuple[_Address, ...], Field(min_length=1)] | _Address | None
LAST_PORT = 65534
"""Last port of a dispatcher, whose versions are told at the next one."""
_LOOPBACK = ("localhost", "[::1]")


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine by a name or a number that no other machine can reach."""
    return host.lower() in _LOOPBACK or re.fullmatch(r"127(\.[0-9]{1,3}){1,3}", host) is not None


@dataclass(frozen=True, kw_only=True)
class Service(Stage):
    """Reads and transforms the examples in other processes, by tf.data's service; batches arrive over the network.

    Attributes:
        workers: Processes on this machine that are started for the run and end with it; null with `address`.
        address: HOST:PORT of the dispatcher that `etlrun service dispatcher` started, or a list of them; null for
            processes of the run.
        order: `exact` gives the examples, the order and the batches of a run without a service: each worker, or each
            dispatcher of `address`, makes every n-th batch. `dynamic` deals parts of the files to the workers that are
            free: the order differs from run to run, and what a worker had when it ended is lost.
        on_loss: `fail` ends the run at the end of a pass that has lost examples, `report` counts them; `dynamic` only.
        timeout_s: Longest wait for a batch in seconds, at least 1, after which the run fails.
        trusted_network: Whether all who reach the ports of an address on another machine are trusted: tf.data's service
            has neither encryption nor authentication, and who reaches a port can read files and run operations there.
    """

    path: ClassVar[str] = "load.service"
    changes_data: ClassVar[bool] = False
    nodes: ClassVar[tuple[Nodes, ...]] = ()
    scope: ClassVar[Scope] = Scope.EACH

    workers: Annotated[
        Annotated[int, Field(ge=1, le=256)] | None, Expected("an integer from 1 to 256, or null"), SPEED
    ] = None
    address: Annotated[_Addresses, Expected("HOST:PORT, a list of them, or null"), SPEED] = None
    order: Annotated[Literal["exact", "dynamic"], Expected("exact or dynamic"), ORDER] = "exact"
    on_loss: Annotated[Literal["fail", "report"], Expected("fail or report"), DATA] = "fail"
    timeout_s: Annotated[_Timeout, SPEED] = 120.0
    trusted_network: Annotated[Flag, SPEED] = False

    @property
    def is_exact(self) -> bool:
        """Whether its batches are those of a run without it."""
        return self.order == "exact"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Dispatchers that others have started; empty if the run starts its own."""
        return (self.address,) if isinstance(self.address, str) else self.address or ()

    @property
    def lanes(self) -> int:
        """Number of sequences of batches that are read at a time."""
        return (self.workers or len(self.addresses)) if self.is_exact else 1

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        if self.workers is None and self.address is None:
            expected = "a number of processes, or an address"
            yield "workers", "null, as is load.service.address", expected, "set load.service.workers=2"
        if self.workers is not None and self.address is not None:
            expected = "null with load.service.address, whose workers others have started"
            yield "workers", str(self.workers), expected, "set load.service.workers=null or load.service.address=null"
        if not self.is_exact and len(self.addresses) > 1:
            expected = "one dispatcher with order=dynamic, which has all workers"
            yield "address", str(list(self.addresses)), expected, "name one of them, or set load.service.order=exact"
        if self.is_exact and len(set(self.addresses)) < len(self.addresses):
            expected = "each dispatcher once with order=exact, which has one worker for each"
            yield "address", str(list(self.addresses)), expected, "name each dispatcher once"
        for port in (int(of.rpartition(":")[2]) for of in self.addresses):
            if port > LAST_PORT:
                expected = f"a port of at most {LAST_PORT}, since the dispatcher tells its versions at the next one"
                yield "address", f"the port {port}", expected, "name the port of the dispatcher"
        far = [of for of in self.addresses if not is_loopback(of.rpartition(":")[0])]
        if far and not self.trusted_network:
            expected = f"true, since {far[0]} is on another machine, and the service neither encrypts nor authenticates"
            remedy = "set load.service.trusted_network=true on a network whose machines you trust"
            yield "trusted_network", "false", expected, remedy
        if self.is_exact and self.on_loss != "fail":
            expected = "fail with order=exact, which loses no example"
            yield "on_loss", self.on_loss, expected, "set load.service.on_loss=fail or load.service.order=dynamic"
