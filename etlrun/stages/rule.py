"""Rules between the parts of a run as data: while a condition holds, a key needs one of some values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

TextT = TypeVar("TextT", str, tuple[str, ...])
Of: TypeAlias = "TextT | Callable[[Any], TextT]"
"""A value, or a function of a run that has been drafted."""
Words = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class When:
    """A condition of a run.

    Attributes:
        words: How people know it; `{load.shuffle}` stands for that key and its value.
        holds: Whether it does.
        undo: Overrides that end it, to be tried in order.
    """

    words: Of[str]
    holds: Callable[[Any], object]
    undo: Of[Words] = ()


@dataclass(frozen=True, eq=False)
class Need:
    """What a key needs while a condition holds.

    Attributes:
        values: Dotted key, or a group for its option, and behind a `=` what it needs: values in YAML, divided by `or`,
            or other words.
        because: Why, behind the condition.
        met: Whether the run has what is needed, if that is not one of `values`.
        by: Overrides that mend it, to be tried in order, if they are not to set one of `values`.
        advice: What to do where no change of values mends it.
    """

    values: Of[str]
    because: str = ""
    met: Callable[[Any], object] | None = None
    by: Of[Words] | None = None
    advice: str = ""


Rules = Mapping[When, tuple[Need, ...]]
