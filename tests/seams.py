"""Runs that are sent a signal at a seam: just before a file is renamed, copied or removed."""

import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.run import run

_FILES = {"os.rename": 1, "shutil.copyfile": 1, "os.remove": 0}
"""Of each of Python's audit events the argument that names the file which there is, or will be."""


@dataclass(frozen=True)
class Seam:
    """Before the first time that `event` happens to a file of this name, its temporary one included."""

    event: str
    name: str


def sent_at(seam: Seam, number: signal.Signals, folder: Path) -> tuple[int | None, str]:
    """Run what is frozen in `folder`, with this signal at `seam`; the exit code, and what was said on stderr.

    The process is forked from one that has imported TensorFlow.
    """
    said = folder.with_name(f"{folder.name}.err")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["etlrun.sweep.preload"])
    process = context.Process(target=_run, args=(seam, number, folder, said))
    process.start()
    process.join()
    return process.exitcode, said.read_text()


def _run(seam: Seam, number: signal.Signals, folder: Path, said: Path) -> None:
    is_sent = False

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal is_sent
        if event == seam.event and not is_sent:
            path = Path(os.fsdecode(arguments[_FILES[event]]))
            if path.is_relative_to(folder) and path.name.removeprefix(f".{os.getpid()}.") == seam.name:
                is_sent = True
                os.kill(os.getpid(), number)

    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.addaudithook(look)
    sys.exit(run.run(folder))
