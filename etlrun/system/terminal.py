"""Lines for the terminal, the one that it repaints, and the formatting of numbers."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from io import TextIOWrapper
from threading import Lock
from typing import TYPE_CHECKING, TextIO

from etlrun.system.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text


STANDARD_OUTPUT = "standard output"
"""What the message of an error calls it."""

_MARKS = re.compile(r"[&`<\[@*\\~$]|(?<![^\W_])_|_(?![^\W_])")
"""Characters that Markdown may read as markup; an underscore within a word is none."""


class _State:
    """How lines are printed: notes and errors alone if it is quiet, and above what is repainted on the terminal."""

    is_quiet = False
    above: Callable[[str], None] | None = None


_state = _State()


@contextmanager
def quietly(*, is_quiet: bool) -> Iterator[None]:
    """Print nothing but notes and errors inside, if `is_quiet`."""
    before, _state.is_quiet = _state.is_quiet, is_quiet
    try:
        yield
    finally:
        _state.is_quiet = before


def is_quiet() -> bool:
    """Return whether notes and errors alone are printed."""
    return _state.is_quiet


def say(text: str) -> None:
    """Print a line on standard output; what would end it or move the cursor is escaped, as of values of a config."""
    say_whole(f"{printable(text)}\n")


def tell(text: str) -> None:
    """Print a line about what goes on on standard error, unless notes and errors alone are printed."""
    if not _state.is_quiet:
        _on_stderr(text)


def say_note(text: str) -> None:
    """Print a note on standard error."""
    _on_stderr(f"note  {text}")


def _on_stderr(text: str) -> None:
    """Print a line on standard error, escaped as by `say`; a terminal that has been closed ends no run."""
    text = printable(text)
    try:
        if _state.above:
            _state.above(text)
        else:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(2)


def discard(descriptor: int) -> None:
    """Let a file that can't be written to lead nowhere, where Python flushes the rest at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


@contextmanager
def printing() -> Iterator[None]:
    """Let an `OSError` inside name standard output: a long text is written before its end."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def say_whole(text: str) -> None:
    """Write a text as it is to standard output."""
    with printing():
        sys.stdout.write(text)


def megabytes(size: float | None) -> str:
    """Format a number of bytes in megabytes; `-` for None."""
    return "-" if size is None else f"{size / 1e6:,.1f} MB"


def number(value: float | None, digits: int) -> str:
    """Format a number with `digits` decimal places; `-` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def significant(value: float | None) -> str:
    """Format a number of any size with five significant digits; `-` for None."""
    return "-" if value is None else f"{float(f'{value:.5g}'):,.12g}"


def in_four_digits(value: float) -> str:
    """Format a number of any size with four significant digits."""
    return f"{float(f'{value:.4g}'):,.12g}"


def plain(text: str) -> str:
    """Escape `text` for one line of Markdown, so that nothing in it renders as markup, a formula or a mention."""
    return re.sub(_MARKS, lambda mark: f"&#{ord(mark.group())};", printable(" ".join(text.split())))


Begin = Callable[[str, int], Callable[[int], None]]
"""A function that begins a task of so many images or megabytes, and returns one to which progress is told."""
_PAINTS_PER_S = 5
_BAR = 30


class Task:
    """What goes on, as the line of a terminal shows it; subclasses read it when it is painted.

    Attributes:
        what: Its name.
        done: Number of what has been done.
        total: Number of all that is to be done; None if that is unknown.
        is_bytes: Whether it is a number of bytes, of which megabytes and their rate are shown.
    """

    def __init__(self, what: str, total: int | None = None, *, is_bytes: bool = False) -> None:
        self.what, self.total, self.is_bytes, self.done = what, total, is_bytes, 0
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since its beginning."""
        return time.monotonic() - self._began_s

    def advance(self, count: int) -> None:
        """Record that `count` more are done."""
        self.done += count

    def count(self) -> str:
        """Return how much is done."""
        if self.total is None:
            return f"{self.elapsed_s:.0f} s"
        return (
            f"{self.done / 1e6:,.1f}/{self.total / 1e6:,.1f} MB" if self.is_bytes else f"{self.done:,}/{self.total:,}"
        )

    def further(self) -> Iterable[str]:
        """Yield what else is known, the most important first."""
        if self.total and self.done:
            yield left(self.elapsed_s * max(0, self.total - self.done) / self.done)
            yield from [f"{self.done / 1e6 / max(self.elapsed_s, 1e-9):,.1f} MB/s"] * self.is_bytes

    def text(self) -> str:
        """Return all of it."""
        return "  ".join([self.what, self.count(), *self.further()])

    def painted(self, *, ascii_only: bool) -> Text:
        """Return its line, of which a narrow terminal shows the beginning."""
        from rich.text import Text

        line = Text(self.text(), no_wrap=True, overflow="ellipsis")
        if self.total:
            full, empty = "#-" if ascii_only else "━╌"
            filled = min(_BAR, _BAR * self.done // self.total)
            line.append("  ").append(full * filled, "green").append(empty * (_BAR - filled), "dim")
        return line


def left(seconds: float) -> str:
    """Return the time that is left."""
    return f"{timedelta(seconds=round(seconds))} left"


_slots: list[list[Task]] = []
"""Places of tasks that go on, each within the one before: a list of the one that is there now."""
_lock = Lock()


class _Line:
    """The line of the process, which shows the task that has begun last."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        slots = _slots[-1:]  # which another thread may change meanwhile
        yield slots[0][0].painted(ascii_only=options.ascii_only) if slots else ""


@contextmanager
def showing(task: Task | str) -> Iterator[list[Task]]:
    """Show `task` inside, or the one that takes its place in the list; `doing` may change the outermost one."""
    slot = [task if isinstance(task, Task) else Task(task)]
    with _lock:
        is_first = not _slots
        _slots.append(slot)
    try:
        with _painting() if is_first and is_repainted(sys.stderr) else nullcontext():
            yield slot
    finally:
        with _lock:
            _slots.remove(slot)


def doing(task: Task | str) -> None:
    """Show `task` instead of what `showing` shows outside of all; nothing where it shows none."""
    if _slots:
        _slots[0][0] = task if isinstance(task, Task) else Task(task)


@contextmanager
def _painting() -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live

    shown = os.fdopen(os.dup(sys.stderr.fileno()), "wb")  # see `loading`
    stream = _Terminal(shown, sys.stderr.encoding, "backslashreplace")
    console = Console(file=stream)
    both = sys.stdout.isatty()  # else what is printed there would be sent here
    live = Live(_Line(), console=console, refresh_per_second=_PAINTS_PER_S, transient=True, redirect_stdout=both)

    def above(text: str) -> None:
        console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    try:
        with live:
            _state.above = above
            yield
    finally:
        _state.above = None
        with suppress(OSError):
            stream.close()


class _Terminal(TextIOWrapper):
    """Standard error of a terminal; if that is closed, nothing is written any more."""

    def write(self, text: str) -> int:
        """Write `text`, if it can be written."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what has been written, if it can be."""
        with suppress(OSError):
            super().flush()


def is_repainted(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that a line can be repainted on, and on which one is wanted."""
    is_log = bool(os.environ.get("CI")) or os.environ.get("TTY_INTERACTIVE") == "0"
    return stream.isatty() and not is_quiet() and os.environ.get("TERM", "") not in ("dumb", "unknown") and not is_log


@contextmanager
def progress() -> Iterator[Begin]:
    """Yield a function that begins a task of so many images or megabytes, and returns one to which progress is told."""
    with showing("") as slot:

        def begin(what: str, total: int) -> Callable[[int], None]:
            slot[0] = Task(what, total)
            return slot[0].advance

        yield begin


@contextmanager
def fetching(total_bytes: int, line_every_s: float = 10.0) -> Iterator[Callable[[int], None]]:
    """Yield a function to which new bytes are told, from any thread: a bar, or a line each so many seconds."""
    task = Task("fetching", total_bytes, is_bytes=True)
    if is_repainted(sys.stderr):
        with showing(task):
            yield task.advance
        return
    lock, said_s = Lock(), 0.0

    def advance(count: int) -> None:
        nonlocal said_s
        with lock:
            task.advance(count)
            if task.elapsed_s - said_s >= line_every_s and task.done:
                said_s = task.elapsed_s
                tell(f"etlrun: {task.text()}")

    yield advance
