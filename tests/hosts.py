"""Hosts of a run: processes on loopback, each with the environment that a launcher gives it."""

import os
import socket
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.forked import Forked

SHARED = ("trainer.hosts=2", "load.drop_remainder=true", "trainer.jit_compile=auto")
QUICK = (sys.executable, "-m", "tests.quick_member")
WAITING = (sys.executable, "-c", "import time; time.sleep(600)")
"""Commands of the part of a host: one that trains, and one that does nothing until it is ended."""


def free_port() -> int:
    """A port of loopback that is free, as is the one below."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as above:
            port: int = above.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port - 1)).close()
            except OSError:
                continue
            return port


def on_two_hosts(
    words: list[str], cwd: Path, member: tuple[str, ...], *, other: list[str] | None = None
) -> list[Forked]:
    """`etlrun` with `words` on host 0, and the same, or `other` words, on host 1."""
    started, port = [], free_port()
    for number, of_host in enumerate((words, other or words)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAX_COORDINATOR_ADDRESS", f"127.0.0.1:{port}")
            patch.setenv("JAX_NUM_PROCESSES", "2")
            patch.setenv("JAX_PROCESS_ID", str(number))
            patch.setenv(
                "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
            )
            started.append(Forked(partial(_host, of_host, member, str(cwd)), cwd))
    return started


def _host(words: list[str], member: tuple[str, ...], temporary: str) -> None:
    from etlrun.cli.main import main
    from etlrun.run.hosts import watch

    tempfile.tempdir = temporary  # TMPDIR is read once, before the fork
    watch.MEMBER = member
    main(words)


def wait_for(what: str, host: Forked, *, longest_s: float = 240.0, is_there: partial[bool]) -> None:
    """Wait until something is there, while `host` is at work."""
    deadline = time.monotonic() + longest_s
    while not is_there():
        if time.monotonic() > deadline or host.poll() is not None:
            pytest.fail(f"there is no {what}: {host.communicate(1)}")
        time.sleep(0.001)


def is_linked(host: Forked, run: Path) -> bool:
    """Whether a host other than the first has heard from that where the run is, and has started its part."""
    said = f"host 1: the first host writes the run, in {run}\n"
    return host.out == said and bool(psutil.Process(host.pid).children())
