"""`etlrun service`: a dispatcher or a worker of tf.data's service on this machine, for `load.service.address`."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Callable

from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.service.servers import dispatch, work
from etlrun.stages.load import LAST_PORT
from etlrun.system.errors import ConfigError, Fault

_ALL = ("0.0.0.0", "::", "[::]")  # noqa: S104 - which a worker may not have
"""Addresses of all interfaces, at which nobody can be reached."""


def main(arguments: list[str]) -> None:
    """Serve until a SIGINT or a SIGTERM.

    Raises:
        ConfigError: The network is not said to be trusted, or a worker has no name.
        WorldError: The port is taken, or there is no dispatcher of the same version.
    """
    known = parser().parse_args(arguments)
    if not known.trusted_network:
        expected = "it, since tf.data's service listens on all interfaces, and neither encrypts nor authenticates"
        remedy = "add --trusted-network where a firewall lets only machines that you trust through"
        raise ConfigError([Fault(where="--trusted-network", found="no such option", expected=expected, remedy=remedy)])
    if known.role == "worker" and known.host in _ALL:
        expected = "the name under which runs on other machines reach this one"
        raise ConfigError([Fault(where="--host", found=known.host, expected=expected, remedy="name it")])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if known.role == "dispatcher":
        dispatch(known.port, _say)
    else:
        work(known.dispatcher, known.host, known.port, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    says = "Serve the input of runs with load.service.address: a dispatcher and its one worker."
    parser = parsers.of_command("service", says)
    example = "etlrun service worker --dispatcher trainer-1:5050 --trusted-network"
    roles = parser.add_subparsers(dest="role", required=True, metavar="dispatcher | worker")
    dispatcher = parsers.of_part(roles, "dispatcher", "hand out the work to the worker", COMMANDS["service"].example)
    worker = parsers.of_part(roles, "worker", "compute batches", example)
    worker.add_argument(
        "--dispatcher", type=_address, required=True, metavar="HOST:PORT", help="address of the dispatcher"
    )
    worker.add_argument(
        "--host",
        type=_host,
        default="localhost",
        metavar="NAME",
        help="name under which runs reach this machine; default: localhost",
    )
    for role, port, low in ((dispatcher, 5050, 1), (worker, 0, 0)):
        default = f"port to listen on; default: {port or 'any that is free'}"
        role.add_argument("--port", type=_port(low, LAST_PORT), default=port, metavar="PORT", help=default)
        trusted = "there is neither encryption nor authentication: who reaches a port can run operations here"
        role.add_argument("--trusted-network", action="store_true", help=trusted)
    return parser


def _host(text: str) -> str:
    if not re.fullmatch(r"\S+", text):  # of which servers make all interfaces
        raise argparse.ArgumentTypeError("found nothing; expected a name of this machine")
    return text


def _address(text: str) -> str:
    if not re.fullmatch(r"\S+:[0-9]+", text):
        raise argparse.ArgumentTypeError(f"found {text}; expected HOST:PORT")
    return text


def _port(low: int, high: int) -> Callable[[str], int]:
    def port(text: str) -> int:
        if not re.fullmatch("[0-9]{1,5}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found {text}; expected an integer from {low} to {high}")
        return int(text)

    return port
