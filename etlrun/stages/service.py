"""Reading of the input on other machines: tf.data's service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from etlrun.stages.base import SPEED, Expected, Flag, Scope, Stage
from etlrun.stages.flow import Faults

_Address = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^\s:/,\[\]]+):[1-9][0-9]{0,4}$")]
_Addresses = Annotated[tuple[_Address, ...], Field(min_length=1)] | _Address | None
LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Service(Stage):
    """Reads and transforms the examples on other machines, by tf.data's service; batches arrive over the network.

    The examples, their order and the batches are those of a run without a service: the worker of each dispatcher makes
    every n-th batch.

    Attributes:
        address: HOST:PORT of a dispatcher that `etlrun service dispatcher` started, or a list of them, each of which
            has a worker.
        timeout_s: Longest wait for a batch in seconds, at least 1, after which the run fails.
        trusted_network: Whether all who reach the ports are trusted. tf.data's service listens on all interfaces of its
            machine, without encryption or authentication: who reaches a port can read files and run operations there.
    """

    path = "load.service"
    changes_data = False
    nodes = ()
    scope = Scope.EACH

    address: Annotated[_Addresses, Expected("HOST:PORT, or a list of them"), SPEED] = None
    timeout_s: Annotated[float, Field(ge=1, allow_inf_nan=False), SPEED] = 120.0
    trusted_network: Annotated[Flag, SPEED] = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Dispatchers from which the batches are read in turn."""
        return (self.address,) if isinstance(self.address, str) else self.address or ()

    def rules(self) -> Faults:
        if self.address is None:
            expected = "HOST:PORT of a dispatcher, or a list of them"
            remedy = "start `etlrun service dispatcher` and a worker, and set load.service.address=localhost:5050"
            yield "address", "null", expected, remedy
        if len(set(self.addresses)) < len(self.addresses):
            expected = "each dispatcher once, which has one worker for each"
            yield "address", str(list(self.addresses)), expected, "name each dispatcher once"
        for port in (int(of.rpartition(":")[2]) for of in self.addresses):
            if port > LAST_PORT:
                yield "address", f"the port {port}", f"a port of at most {LAST_PORT}", "name the port of the dispatcher"
        if not self.trusted_network:
            expected = "true, since tf.data's service listens on all interfaces, and neither encrypts nor authenticates"
            remedy = "set load.service.trusted_network=true where a firewall lets only machines that you trust through"
            yield "trusted_network", "false", expected, remedy
