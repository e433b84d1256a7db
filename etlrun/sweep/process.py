"""Process of a job, forked from a server that has imported TensorFlow and not used it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from etlrun.run import run
from etlrun.system.ends import end_with_parent

OUTPUT = "output.txt"
"""Output of a job."""

_PRELOADED = ["etlrun.sweep.preload"]
"""Modules that the server imports, in this order."""
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
"""Signals to a process group, which reach the fork server as well."""


def started(folder: Path, **environment: str) -> BaseProcess:
    """Start the job frozen in `folder`, in a process with its own heap and session that ends with this process.

    Forking saves each job the import of TensorFlow, and all jobs run the code that was there at the start.

    Args:
        folder: Folder of the run.
        environment: Environment variables to set before a backend looks for its GPUs.
    """
    process = _context().Process(target=_work, args=(str(folder), environment), name=str(folder))
    process.start()
    return process


def _context() -> ForkServerContext:
    if multiprocessing.get_start_method(allow_none=True) not in (None, *multiprocessing.get_all_start_methods()):
        # A worker of joblib: it has set a start method of its own, which a job would not know.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    resource_tracker.ensure_running()  # it unblocks these signals at its start
    # Only the sweep handles them: the server, which inherits this mask, ends with the sweep, and jobs are terminated.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _work(name: str, environment: dict[str, str]) -> None:
    folder = Path(name)
    os.environ |= environment
    os.setsid()  # Ctrl-C reaches the sweep alone
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with (folder / OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        logging.basicConfig(level=logging.WARNING)
        sys.exit(run.run(folder))
