"""Progress bars of commands, for a terminal alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Begin = Callable[[str, int], Callable[[int], None]]
"""A function that begins a task of so many images or megabytes, and returns one to which progress is told."""


@contextmanager
def progress() -> Iterator[Begin]:
    """Yield a function that begins a task of so many images or megabytes, and returns one to which progress is told."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def begin(what: str, total: int) -> Callable[[int], None]:
            task = bars.add_task(what, total=total)
            return lambda count: bars.advance(task, count)

        yield begin
