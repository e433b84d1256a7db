"""The process of a host that starts its part of the run, watches it and all other hosts, and ends it with them.

The part runs in a process of its own, since a collective operation that waits for a lost host can't be interrupted,
and since JAX ends a process at once when the one of host 0 is gone: this process still says why, and what to do.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any, Self

from etlrun.plan.plan import Plan
from etlrun.record.record import Record
from etlrun.record.summary import RUNNING
from etlrun.run import run
from etlrun.run.hosts.link import JOIN_S, MESSAGE, REFUSED, Link, News
from etlrun.run.hosts.place import Place
from etlrun.run.interrupts import interrupts
from etlrun.stages.trainer import Trainer
from etlrun.system.ends import how_ended
from etlrun.system.errors import INTERRUPTED, Fault, WorldError

MEMBER: tuple[str, ...] = (sys.executable, "-m", "etlrun.run.hosts.member")
"""Command of the process that does a host's part, to which the folder of the run is added."""
OUTPUT = "output.txt"
"""Output of the part of a host that doesn't lead."""
_SETTLE_S = 3.0
"""Time in which news of a lost host may explain why a collective operation has failed."""
_END_S = 10.0
"""Time that a process has to end after SIGTERM."""
_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM)
"""Signals of which the output of a process says nothing."""
_RANKS = ("interrupted", "lost", "refused", "fault", "error", "completed")
"""How a part ends, the likeliest cause of the other ends first."""
_END, _RUN = "end", "run"
"""What host 0 tells the others: the end of the run, and its folder."""
_CONSEQUENCES = ("error", "completed")


@dataclass(frozen=True, kw_only=True)
class End:
    """How the part of a host has ended.

    Attributes:
        rank: One of `_RANKS`: a `fault` was foreseen, an `error` may follow from the end of another host.
        status: Exit status.
        text: What to say; empty for a completed part.
    """

    rank: str
    status: int = 1
    text: str = ""


def led(place: Place, folder: Path, plan: Plan) -> int:
    """Run the part of host 0, frozen in `folder`, and return the exit status of the run."""
    try:
        guard = _linked(place, plan, folder)
    except WorldError as error:
        run.end(folder, str(error))
        raise
    with guard:
        end = guard.until_end()
    return _concluded(folder, end)


def followed(place: Place, plan: Plan, freeze: Callable[[Path], None]) -> int:
    """Run the part of another host, frozen by `freeze` in a folder that is removed, and return the status of the run.

    The folder is kept if the message names a file in it, such as the traceback of an error.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"etlrun_host_{place.number}_")) / "run"
    freeze(folder)
    with _linked(place, plan, folder) as guard:
        end = guard.until_end()
    if str(folder) not in end.text:
        shutil.rmtree(folder.parent, ignore_errors=True)
    _say(end)
    return end.status


def _linked(place: Place, plan: Plan, folder: Path) -> Guard:
    fit = plan.spec.fit
    assert fit is not None  # noqa: S101 - only such a run has several hosts
    hello = {"plan": plan.fingerprint, Trainer.key("resume"): fit.resume}
    try:
        link = Link(place, hello, {_RUN: str(folder)})
    except OSError as error:
        raise WorldError(
            where=f"port {place.port - 1} of host 0",
            found=error.strerror or str(error),
            expected="a free port, the one below that of JAX's coordinator",
            remedy="set JAX_COORDINATOR_ADDRESS=HOST:PORT to another one on all hosts",
        ) from error
    return Guard(place, folder, link)


class Guard:
    """The part of a host and the connections to the others; a context manager that ends both."""

    def __init__(self, place: Place, folder: Path, link: Link) -> None:
        self.place, self.folder, self.link, self.run = place, folder, link, ""
        self._part: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_part()
        self.link.close()

    def until_end(self) -> End:
        """Start the part, and return the end of the run, which all hosts have then heard of, or are lost."""
        try:
            with interrupts():
                self._start()
                return self._led() if self.place.leads else self._followed()
        except KeyboardInterrupt:
            return self._interrupted()

    def _start(self) -> None:
        output = None if self.place.leads else (self.folder / OUTPUT).open("wb")
        # Its standard input ends with this process; Ctrl-C reaches this process alone.
        command = [*MEMBER, str(self.folder)]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
        self._part = subprocess.Popen(command, **streams, start_new_session=True)
        threading.Thread(target=self._wait, args=(self._part,), daemon=True).start()

    def _wait(self, part: subprocess.Popen[bytes]) -> None:
        self.link.news.put((self.place.number, MESSAGE, vars(self._end_of(part.wait()))))

    def _end_of(self, status: int) -> End:
        summary = Record(self.folder).summary
        if status in (run.OK, run.TOO_SLOW):
            return End(rank="completed", status=status)
        if status == INTERRUPTED:
            return self._as_interrupted()
        if status < 0 or summary.status == RUNNING:
            how = f"the end of its process: {how_ended(status)}"
            if not self.place.leads and -status not in _BY_OTHERS:
                how = f"{how}, see {self.folder / OUTPUT}"
            return End(rank="error" if status == -signal.SIGABRT else "lost", text=how)
        is_unexpected = (self.folder / run.TRACEBACK).exists()
        return End(rank="error" if is_unexpected else "fault", status=status, text=summary.error or how_ended(status))

    def _led(self) -> End:
        ends: dict[int, End] = {}
        until_s: float | None = None
        while len(ends) < self.place.count:
            try:
                news = self.link.news.get(timeout=None if until_s is None else max(0.0, until_s - time.monotonic()))
            except Empty:
                break
            host, end = news[0], self._understood(news)
            known = ends.get(host)
            if known is not None and (known.rank == "completed" or _RANKS.index(known.rank) <= _RANKS.index(end.rank)):
                continue
            ends[host] = end
            if end.rank not in _CONSEQUENCES:
                break
            if end.rank == "error" and until_s is None:
                until_s = time.monotonic() + _SETTLE_S
        number = min(ends, key=lambda host: (_RANKS.index(ends[host].rank), ends[host].rank == "completed" and host))
        whole = self._whole(number, ends[number])
        self.link.wait(_SETTLE_S)  # for those that start late, which are to hear why it ends
        self.link.send({_END: vars(whole)})
        return whole

    def _followed(self) -> End:
        while True:
            news = self.link.news.get()
            number, kind, message = news
            if number == self.place.number:
                self.link.wait(JOIN_S)
                self.link.send(message)
            elif kind == MESSAGE and _END in message:
                return End(**message[_END])
            elif kind == MESSAGE:
                self.run = message[_RUN]
                print(f"host {self.place.number}: the first host writes the run, in {self.run}", flush=True)
            else:
                return self._whole(0, self._understood(news))

    def _understood(self, news: News) -> End:
        _, kind, message = news
        if kind == MESSAGE:
            return End(**message)
        if kind == REFUSED:
            key, found, expected = message
            fault = Fault(
                where=key, found=found, expected=f"{expected}, as on host 0", remedy="start all with the same command"
            )
            return End(rank="refused", text=str(fault))
        return End(rank="lost", text=message)

    def _whole(self, number: int, end: End) -> End:
        """Return the end of the run whose cause is the end of the part of that host."""
        if end.rank == "completed":
            return End(rank=end.rank, status=end.status)
        if end.rank == "interrupted":
            return self._as_interrupted()
        text = end.text
        if end.rank == "lost" or (end.rank == "error" and "expected" not in text):
            fault = Fault(
                where=f"host {number}",
                found=text,
                expected=f"{self.place.count} hosts until the end of the run",
                remedy=self._remedy(),
            )
            text = str(fault)
        elif number and not text.startswith("host "):
            text = f"host {number}: {text}"
        return End(rank=end.rank, status=end.status if end.status > 0 else 1, text=text)

    def _remedy(self) -> str:
        left = run.resumable(Record(self.folder)) if self.place.leads else self.run
        again = f"with this or another {Trainer.key('hosts')}"
        return f"resume {again}: {Trainer.key('resume')}={left}" if left else f"start again, {again}"

    def _as_interrupted(self) -> End:
        return End(rank="interrupted", status=INTERRUPTED, text="interrupted")

    def _interrupted(self) -> End:
        end = self._as_interrupted()
        self.link.wait(_SETTLE_S)
        self.link.send({_END: vars(end)} if self.place.leads else vars(end))
        return end

    def _end_part(self) -> None:
        part = self._part
        if part is None or part.poll() is not None:
            return
        part.terminate()
        with suppress(subprocess.TimeoutExpired):
            part.wait(_END_S)
        part.kill()
        part.wait()


def _concluded(folder: Path, end: End) -> int:
    """Complete the summary and the report of a run that has not completed, and say how it ended."""
    if end.rank == "completed":
        return end.status
    if end.rank != "error":  # that of a collective operation, which has failed with another host
        (folder / run.TRACEBACK).unlink(missing_ok=True)
    if end.rank == "interrupted":
        run.end(folder, None)
        run.say_interrupted(Record(folder))
        return end.status
    run.end(folder, end.text)
    _say(end)
    return end.status


def _say(end: End) -> None:
    if end.text:
        text = end.text if end.rank == "interrupted" else f"failed\n  {end.text}"
        print(f"etlrun: {text}", file=sys.stderr)
