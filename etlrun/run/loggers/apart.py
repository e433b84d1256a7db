"""Proxy of a log in a process of its own: a server that hangs, or a package that crashes, never reaches the run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from etlrun.record.summary import COMPLETED
from etlrun.run.loggers.writer import LoggerError, Opening

PATIENCE_S = 30.0
"""Longest wait for the process at the end of a run."""
IMPATIENCE_S = 5.0
"""The same for a run that was interrupted or has failed."""
_QUIET = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "PYTHONWARNINGS": "ignore",
}
"""Environment of the process, where it is not set already: MLflow tries for up to hours otherwise."""
_CHUNK = 65_536


class Apart:
    """A writer whose process does the writing. Nothing but `end` waits, and that not for longer than its patience.

    An error of the process is raised as `LoggerError` by the next method.
    """

    def __init__(self) -> None:
        self._unsent, self._answer = b"", b""

    def open(self, opening: Opening) -> str:
        """Start the process, in a session of its own: a Ctrl-C ends the run, which then ends the log."""
        answers, theirs = os.pipe()
        environment = {
            **_QUIET,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "etlrun.run.loggers", str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)
        self._answers = answers
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._messages = self._process.stdin.fileno()
        os.set_blocking(self._messages, False)
        os.set_blocking(self._answers, False)
        self._send("open", asdict(opening))
        return ""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Send texts."""
        self._send("texts", texts)
        self._raise_if_failed()

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Send the figures of an epoch."""
        self._send("epoch", {"number": number, "at_s": at_s, "figures": figures})
        self._raise_if_failed()

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Send the end, and wait until the process has written all."""
        self._send("end", {"status": status, "texts": texts, "figures": figures})
        patience_s = PATIENCE_S if status == COMPLETED else IMPATIENCE_S
        until_s = time.monotonic() + patience_s
        while self._unsent and time.monotonic() < until_s:
            select.select([], [self._messages], [], 0.1)
            self._flush()
        self._close_messages()
        while self._process.poll() is None and time.monotonic() < until_s:
            select.select([self._answers], [], [], 0.1)
            self._raise_if_failed()
            if self._answer:
                return
        self._raise_if_failed()
        if not self._answer:
            raise LoggerError(f"no answer within {patience_s:.0f} s")

    def close(self) -> None:
        """End the process with all that it has started, if it still runs."""
        if not hasattr(self, "_process"):
            return
        self._close_messages()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._answers)
        del self._process

    def _send(self, what: str, values: Mapping[str, Any]) -> None:
        self._unsent += json.dumps({what: dict(values)}, default=str).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Write what the pipe takes now; a process that has ended is found by its answer."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._messages, self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""

    def _close_messages(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _raise_if_failed(self) -> None:
        has_ended = self._process.poll() is not None
        with suppress(BlockingIOError):
            self._answer += os.read(self._answers, _CHUNK)
        if self._answer.endswith(b"\n"):
            answer = json.loads(self._answer)
            if "failed" in answer:
                raise LoggerError(answer["failed"])
        elif has_ended:
            raise LoggerError(f"its process ended with status {self._process.returncode}")
