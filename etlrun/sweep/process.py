"""A job's own process: forked from a server that has imported TensorFlow and done nothing else with it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from etlrun.run import run

OUTPUT = "output.txt"
"""What a job has printed."""


_LOOK_S = 0.5
"""Between two looks at whether a job is alone."""
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
"""Which whoever ends a group of processes sends to the server of jobs as well."""


def started(folder: Path, **environment: str) -> BaseProcess:
    """Start the job that is frozen in `folder`. It has a heap and a session of its own, and ends with this process.

    `environment` is set before a backend looks for its GPUs.

    Forking saves each job the seconds of importing TensorFlow, and all jobs run the code that was there at first.
    """
    process = _context().Process(target=_work, args=(str(folder), environment), name=str(folder))
    process.start()
    return process


def _context() -> ForkServerContext:
    if multiprocessing.get_start_method(allow_none=True) not in (None, *multiprocessing.get_all_start_methods()):
        # A worker of joblib: the method that it names is one of its own, which a job would not find.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["etlrun.sweep.preload"])
    resource_tracker.ensure_running()  # which unblocks these signals where it begins
    # They are the sweep's to hear: the server, which inherits this, ends with the sweep, and a job when it is told.
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with (folder / OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        logging.basicConfig(level=logging.WARNING)
        sys.exit(run.run(folder))


def _end_with_parent() -> None:
    """A sweep that is killed, or its server, takes its jobs with it: they would be made again, and meet themselves."""
    parent, server = multiprocessing.parent_process(), os.getppid()
    if parent is not None:
        while not connection.wait([parent.sentinel], timeout=_LOOK_S) and os.getppid() == server:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
