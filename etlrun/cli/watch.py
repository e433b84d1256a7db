"""`etlrun watch`: the page of a run or a sweep in a browser, up to date."""

from __future__ import annotations

import argparse
from pathlib import Path

from etlrun.record.summary import SUMMARY
from etlrun.results.folders import kind_of
from etlrun.results.watch import Pages, Server
from etlrun.system.errors import WorldError

_MOST_PORTS = 65_535


def main(arguments: list[str]) -> None:
    """Serve the pages until Ctrl-C.

    Raises:
        WorldError: There is no run, or the port can't be used.
    """
    parser = argparse.ArgumentParser(
        prog="etlrun watch",
        description="Serve the page of a run, or those of a sweep and its jobs, for a browser on this machine, which "
        "reloads a page when it changes. Ends with Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of a run or a sweep")
    parser.add_argument("--port", type=_port, default=0, help="default: any free one")
    known = parser.parse_args(arguments)
    folder = known.folder.resolve()
    if kind_of(folder) not in ("run", "sweep"):
        raise WorldError(
            where=str(known.folder),
            found="no run" if folder.is_dir() else "no such folder",
            expected=f"the folder of a run, with a {SUMMARY}, or of a sweep",
            remedy="pass the folder that a run or a multirun prints at its end",
        )
    with Server(Pages(folder), known.port) as server:
        try:
            print(f"watch     {server.url}  (Ctrl-C ends it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= _MOST_PORTS):
        raise argparse.ArgumentTypeError(f"found {text}; expected a port from 0 to {_MOST_PORTS}")
    return int(text)
