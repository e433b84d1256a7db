"""Readers of objects that are killed with SIGKILL while they fetch, and whether a wrong byte is ever read.

python -m benchmarks.remote_kills [--kills N] [--output FILE]

Two processes share a folder of copies, and read objects of a server on this machine in passes, each in an order of its
own; several objects are fetched at a time. At random moments one of them is killed, and another one started. Half of
the kills have `keep: all` and a new folder after each third kill, the others a size that holds less than half of the
objects. Readers compare each object with what the server has. After each kill, while the other process is stopped, the
copies that are there are compared, too, and the space that they and the parts take.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from etlrun.remote.copies import Copies
from etlrun.remote.objects import list_objects
from tests.servers import Server, serving

OBJECTS, BYTES = 12, 2_000_000
KEEP_BYTES = 5 * OBJECTS // 12 * BYTES
LONGEST_S = 5.0
"""Seconds to wait for a transfer before a kill."""
WRONG = 3
"""Exit status of a reader that has read a wrong byte."""


@dataclass
class Found:
    """What was found so far."""

    kills: int = 0
    while_fetching: int = 0
    compared: int = 0
    wrong_copies: int = 0
    wrong_reads: int = 0
    failed_readers: int = 0
    most_bytes: int = 0
    told: list[str] = field(default_factory=list)


def read(folder: Path, keep_bytes: int | None, sums: dict[str, str], passes: int | None) -> None:
    """Read all objects in passes; end with the status WRONG at a wrong byte."""
    copies, objects = Copies(folder, {"at_once": 2}, keep_bytes), [of for url in sums for of in list_objects(url, {})]
    while passes is None or passes > 0:
        random.shuffle(objects)
        ahead = copies.ahead(objects)
        for of in objects:
            if hashlib.sha256(Path(ahead.take(of)).read_bytes()).hexdigest() != sums[of.url]:
                print("wrong:", of.url)
                sys.exit(WRONG)
            ahead.leave(of)
        ahead.close()
        passes = None if passes is None else passes - 1


def started(folder: Path, keep_bytes: int | None, sums: Path, passes: int = 0) -> subprocess.Popen[str]:
    """A reader in a process of its own."""
    words = ["--read", str(folder), "--keep", str(keep_bytes or 0), "--sums", str(sums), "--passes", str(passes)]
    command = [sys.executable, "-m", "benchmarks.remote_kills", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check(found: Found, folder: Path, server: Server) -> None:
    """Compare all copies that are there, and count the bytes of all."""
    files = [path for path in folder.glob("fetched/[0-9a-f]*/*") if path.is_file()]
    found.while_fetching += any(path.name == ".part" for path in files)
    found.most_bytes = max(found.most_bytes, sum(path.stat().st_size for path in files))
    for path in files:
        if not path.name.startswith("."):
            found.compared += 1
            found.wrong_copies += path.read_bytes() != server.files[path.name]


def killed(found: Found, readers: list[subprocess.Popen[str]], folder: Path, server: Server) -> None:
    """Kill one of two readers, and compare what is there."""
    victim, other = readers if random.random() < 0.5 else readers[::-1]  # noqa: S311 - chance
    victim.kill()
    other.send_signal(signal.SIGSTOP)
    victim.communicate()
    check(found, folder, server)
    other.send_signal(signal.SIGCONT)
    found.kills += victim.returncode == -signal.SIGKILL
    readers[:] = [other]


def rounds(found: Found, keep_bytes: int | None, kills: int, server: Server, where: Path) -> None:
    """Kill readers of one folder, and let one read all in the end."""
    folder, sums = Path(tempfile.mkdtemp(dir=where)), where / "sums.json"
    readers = [started(folder, keep_bytes, sums)]
    for _ in range(kills):
        readers.append(started(folder, keep_bytes, sums))
        sent, ends_s = len(server.sent), time.monotonic() + LONGEST_S
        while len(server.sent) < sent + 16 and time.monotonic() < ends_s:  # or all is there
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5))  # noqa: S311 - a moment
        killed(found, readers, folder, server)
    readers.append(started(folder, keep_bytes, sums, passes=1))
    readers[0].kill()
    for reader in readers:
        told, _ = reader.communicate()
        found.wrong_reads += reader.returncode == WRONG
        if reader.returncode not in (0, -signal.SIGKILL):
            found.failed_readers += 1
            found.told.append(told)
    check(found, folder, server)
    shutil.rmtree(folder)


def report(all_found: dict[str, Found], output: Path | None) -> None:
    """Print the table, and write it."""
    rows = [
        ("kills", "kills"),
        ("of these, with an object that had come in part", "while_fetching"),
        ("copies compared after kills", "compared"),
        ("copies that were wrong", "wrong_copies"),
        ("reads that were wrong", "wrong_reads"),
        ("readers that failed otherwise", "failed_readers"),
        ("most bytes of copies and parts, in MB", "most_bytes"),
    ]
    text = f"| | {' | '.join(all_found)} |\n|---|{'---|' * len(all_found)}\n"
    for title, name in rows:
        values = [getattr(of, name) for of in all_found.values()]
        shown = [f"{of / 1e6:.1f}" if name == "most_bytes" else str(of) for of in values]
        text += f"| {title} | {' | '.join(shown)} |\n"
    print(text, *(told for of in all_found.values() for told in of.told), sep="\n")
    if output is not None:
        output.write_text(f"`python -m benchmarks.remote_kills {' '.join(sys.argv[1:])}`\n\n{text}")


def main() -> None:
    """Kill, compare and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sums", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read is not None:
        read(given.read, given.keep or None, json.loads(given.sums.read_text()), given.passes or None)
        return
    where, names = Path(tempfile.mkdtemp(prefix="remote-kills-")), [f"x-{number}" for number in range(OBJECTS)]
    with serving() as server:
        server.pause_s = 0.004
        contents = {server.put(name, os.urandom(BYTES)): server.files[name] for name in names}
        sums = {url: hashlib.sha256(content).hexdigest() for url, content in contents.items()}
        (where / "sums.json").write_text(json.dumps(sums))
        found = {"keep: all": Found(), f"keep: {KEEP_BYTES // 10**6}MB of {OBJECTS * BYTES // 10**6}": Found()}
        for of, keep_bytes in zip(found.values(), (None, KEEP_BYTES), strict=True):
            while of.kills < given.kills // 2:
                rounds(of, keep_bytes, min(3, given.kills // 2 - of.kills), server, where)
    shutil.rmtree(where)
    report(found, given.output)


if __name__ == "__main__":
    main()
