"""Processes that are forked from a server which has imported TensorFlow or, on JAX, Keras, as jobs of a sweep are.

For tests to which it is the same how a process has begun: it saves each the seconds of importing TensorFlow. What the
environment changes at the import of a framework does not reach it, it ends without Python's own clean-up, and its runs
are quick (`tests.quick_jobs`); `tests.runs.start` gives what a shell would.
"""

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from multiprocessing import forkserver, get_context, util
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from etlrun.sweep.engine import _context
from tests.quick import quick_jax


class Forked:
    """A process that does `work` in `cwd`, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        work: Callable[[], object],
        cwd: Path,
        largest_file_bytes: int | None = None,
        *,
        on_jax: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._output = Path(tempfile.mkdtemp(dir=cwd.parent))  # `cwd` stays as it is
        variables = {**os.environ, **({"KERAS_BACKEND": "jax"} if on_jax else {}), **environment}
        context = get_context("forkserver") if on_jax else _context()
        self._process = context.Process(target=_do, args=(work, cwd, variables, self._output, largest_file_bytes))
        with pytest.MonkeyPatch.context() as patch:
            if on_jax:
                patch.setattr(forkserver, "connect_to_new_process", _server_of_jax().connect_to_new_process)
            self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Return the exit status, or None before the end."""
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; stdout and stderr."""
        self._process.join(timeout)
        if self.poll() is None:
            self._process.kill()
            raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
        return self.out, (self._output / "2").read_text()

    @property
    def out(self) -> str:
        """Stdout so far."""
        output = self._output / "1"
        return output.read_text() if output.exists() else ""

    @property
    def returncode(self) -> int | None:
        return self.poll()


def forked(words: list[str], cwd: Path, largest_file_bytes: int | None = None) -> Forked:
    """`etlrun` with `words`, in a process group of its own."""
    return Forked(partial(_etlrun, words), cwd, largest_file_bytes)


def forked_on_jax(words: list[str], cwd: Path, **environment: str) -> Forked:
    """`etlrun` with `words` on JAX, in a process group of its own."""
    return Forked(partial(_etlrun, words), cwd, on_jax=True, environment=environment)


def in_turn(runs: Sequence[Sequence[str]]) -> None:
    """`etlrun` with the words of one run after the other, in this process, which prints the exit status of each."""
    for words in runs:
        try:
            _etlrun([*words])
        except SystemExit as end:
            print("ended:", end.code)


@cache
def _server_of_jax() -> forkserver.ForkServer:
    """A server that has imported Keras on JAX, which compiles once for all of its processes and optimizes little."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload(["tests.quick_jobs", "etlrun.run.fit"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_jax(Path(os.environ["XDG_CACHE_HOME"]) / "jax").items():
            patch.setenv(name, value)
        server.ensure_running()
    return server


def _etlrun(words: list[str]) -> None:
    from etlrun.cli import main as cli

    sys.argv = ["etlrun", *words]
    cli.main(words)


def _do(
    work: Callable[[], object], cwd: Path, environment: dict[str, str], output: Path, largest_file_bytes: int | None
) -> None:
    """Do `work` as if a shell had started it in `cwd`."""
    spawn = util.spawnv_passfds

    def spawned(path: bytes, args: Any, passfds: Sequence[int]) -> int:
        return _served(args[-1], passfds) if "forkserver" in args[-1] else spawn(path, args, passfds)

    util.spawnv_passfds = spawned
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # which the server may have found in its own environment
    for stream in (1, 2):
        os.dup2(os.open(output / str(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if largest_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
    work()


def _served(code: str, passed: Sequence[int]) -> int:
    """Start a fork server of this process: a fork, which has imported all there is, and not a new interpreter."""
    return os.fork() or _serve(code, passed)


def _serve(code: str, passed: Sequence[int]) -> NoReturn:
    """Be the server of `code`, with those descriptors alone; the others keep their numbers, which objects may close."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(of.name) for of in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in {*passed, nothing}:
            with suppress(OSError):  # the folder's own
                os.fstat(descriptor)
                os.dup2(nothing, descriptor)
    try:
        exec(code, {})  # noqa: S102 - multiprocessing's own line
    finally:  # it ends by SystemExit
        os._exit(0)
