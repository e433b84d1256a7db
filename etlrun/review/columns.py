"""Differences of columns: of how they are made, and of what they have learned from their training splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from etlrun.planning.spec import RunSpec, bare
from etlrun.stages.column_numbers import ColumnStep, shown
from etlrun.stages.columns import Columns, Output
from etlrun.stages.rows import Rows
from etlrun.system.errors import printable

Change = tuple[str, str, str | None, str | None]
"""Key of what differs, the first stage whose examples do, and both values as text, None for an absent one."""
_MOST_NAMED, _LONGEST = 6, 30
"""Values of a vocabulary that are named, and the characters of each."""


def rows_changed(*specs: RunSpec) -> Iterator[Change]:
    """Yield the numbers of rows that differ, such as those of a file that has changed since a run."""
    before, after = (of.known.rows if isinstance(of := spec.dataset, Rows) and of.known else {} for spec in specs)
    for split, count in after.items():
        if before.get(split, count) != count:
            yield f"{Rows.path}.rows", "the dataset", f"{before[split]:,} of {split}", f"{count:,} of {split}"


def changed(old: Columns, new: Columns) -> Iterator[Change]:
    """Yield the differences of columns; of those without their rows on one side, which have learned nothing, of steps.

    Outputs that are chosen when rows are read are not compared with those of rows that are not on this machine.
    """
    is_unread = bool(old.assumed) is not bool(new.assumed)
    before, after = ({output.name: output for output in step.outputs} for step in (old, new))
    for name in dict.fromkeys([*before, *after]) if not (is_unread and (old.is_auto or new.is_auto)) else ():
        was, now = before.get(name), after.get(name)
        if was is not None and now is not None:
            if is_unread:
                is_same = was.of == now.of and [of.name for of in was.steps] == [of.name for of in now.steps]
            else:
                is_same = was.of == now.of and [*map(_asked, was.steps)] == [*map(_asked, now.steps)]
            if is_same:
                yield from _learned_otherwise(was, now)
                continue
        if not (is_unread and any(of is not None and of.is_of_target for of in (was, now))):
            yield f"{Columns.path}.{name}", Columns.path, *_whole(was, now)
    if old.dropped != new.dropped:
        yield f"{Columns.path}: drop", Columns.path, ", ".join(old.dropped), ", ".join(new.dropped)


def _whole(*sides: Output | None) -> tuple[str | None, str | None]:
    old, new = (None if output is None else output.text.removeprefix("<- ") for output in sides)
    if old == new:  # in the digits that they show
        old, new = (None if output is None else bare(output.described) for output in sides)
    return old, new


def _asked(step: ColumnStep) -> ColumnStep:
    """Return a step without what it has learned."""
    return step.replace(**dict.fromkeys(step.learned))


def _learned_otherwise(old: Output, new: Output) -> Iterator[Change]:
    """Yield what two outputs with the same steps have learned differently; nothing of values that one side lacks."""
    names = [step.name for step in new.steps]
    for place, (was, now) in enumerate(zip(old.steps, new.steps, strict=True)):
        number = f"[{names[:place].count(now.name)}]" if names.count(now.name) > 1 else ""
        for field in now.learned:
            before, after = getattr(was, field), getattr(now, field)
            if before != after and None not in (before, after):
                what = "vocabulary" if field == "values" else field
                key = f"{Columns.path}.{new.name}.{now.name}{number}.{what}"
                yield key, Columns.path, *_texts(before, after)


def _texts(old: Any, new: Any) -> tuple[str, str]:
    if not isinstance(new, tuple) or (isinstance(new[0], float) and max(len(old), len(new)) <= _MOST_NAMED):
        return _distinct(old, new)
    counts = [f"{len(of):,} value{'s' * (len(of) != 1)}" for of in (old, new)]
    if not isinstance(new[0], float):
        return counts[0], f"{counts[1]}: {_of_vocabulary(old, new)}"
    if len(old) != len(new):
        return counts[0], counts[1]
    others = [" -> ".join(_distinct(*pair)) for pair in zip(old, new, strict=True) if len({*pair}) > 1]
    return counts[0], f"{counts[1]}: {_listed(others)}"


def _distinct(old: Any, new: Any) -> tuple[str, str]:
    """Return two values in four digits; in all of theirs if they would look alike."""
    texts = [printable(shown(value)) for value in (old, new)]
    return (texts[0], texts[1]) if texts[0] != texts[1] else (str(old), str(new))


def _of_vocabulary(old: Sequence[Any], new: Sequence[Any]) -> str:
    """Return which values are added and removed, or from where on they are in another order."""
    before, after = set(old), set(new)
    if before == after:
        first = next(now for was, now in zip(old, new, strict=True) if was != now)
        return f"the same ones, in another order from {_word(first)} on"
    parts = {"added": [of for of in new if of not in before], "removed": [of for of in old if of not in after]}
    texts = [f"{len(of):,} {what}{f' ({_listed([*map(_word, of)])})' if of else ''}" for what, of in parts.items()]
    return ", ".join(texts)


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return ", ".join([*texts[:_MOST_NAMED], *([f"and {more:,} more"] if more > 0 else [])])


def _word(value: Any) -> str:
    text = printable(str(value)) or "''"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
