"""`etlrun service`: a dispatcher or a worker of tf.data's service on this machine, for `load.service.address`."""

from __future__ import annotations

import argparse
import signal
import sys

from etlrun.run.service.standalone import dispatch, work
from etlrun.stages.service import is_loopback
from etlrun.system.errors import ConfigError, Fault


def main(arguments: list[str]) -> None:
    """Serve until a SIGINT or a SIGTERM.

    Raises:
        ConfigError: Another machine is to be served, and the network is not said to be trusted.
        WorldError: The port is taken, or there is no dispatcher of the same versions.
    """
    known = _parser().parse_args(arguments)
    far = [of for of in (known.host, getattr(known, "dispatcher", "").rpartition(":")[0]) if of and not is_loopback(of)]
    if far and not known.trusted_network:
        expected = "an address of this machine alone, since the service neither encrypts nor authenticates"
        remedy = "add --trusted-network on a network whose machines you trust"
        raise ConfigError([Fault(where="--host", found=far[0], expected=expected, remedy=remedy)])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if known.role == "dispatcher":
        dispatch(known.host, known.port, _say)
    else:
        work(known.dispatcher, known.host, known.port, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="etlrun service",
        description="Serve the input of runs with load.service.address: one dispatcher, and workers that compute.",
        allow_abbrev=False,
    )
    roles = parser.add_subparsers(dest="role", required=True, metavar="dispatcher | worker")
    dispatcher = roles.add_parser("dispatcher", help="deal the work to workers", allow_abbrev=False)
    worker = roles.add_parser("worker", help="compute batches", allow_abbrev=False)
    worker.add_argument("--dispatcher", required=True, metavar="HOST:PORT", help="address of the dispatcher")
    for role, port in ((dispatcher, 5050), (worker, 0)):
        role.add_argument("--host", default="localhost", help="name under which others reach this machine")
        role.add_argument("--port", type=int, default=port, help=f"default: {port or 'any that is free'}")
        trusted = "there is neither encryption nor authentication: who reaches a port can run operations here"
        role.add_argument("--trusted-network", action="store_true", help=trusted)
    return parser
