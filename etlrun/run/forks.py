"""The server from which a run forks its own servers: it imports TensorFlow once for all of them."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

_PRELOADED = ["etlrun.run.service.preload"]
"""Modules that it imports, if it does not run yet."""


def fork_server() -> ForkServerContext:
    """Return the context of the fork server; start it if it does not run yet, without waiting for its imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    forkserver.ensure_running()
    return context
