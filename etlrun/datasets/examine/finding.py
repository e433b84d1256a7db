"""Findings: what is wrong with a dataset, and what to do."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from etlrun.datasets.prepare.check import Groups
from etlrun.report.doc import Part
from etlrun.sources.base import Split
from etlrun.system.values import Block, frozen

NAMED = 20
"""Places that a finding names."""
MOST_UNLIKE = 10
"""Ratio of the largest to the smallest class, from which on it is a finding."""
Item = TypeVar("Item")
_MEMBERS = 4
"""Equal examples that a place names."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        text: What was found.
        remedy: What to do.
        places: Files and records, the first `NAMED` of them; all that can't be used.
    """

    text: str
    remedy: str
    places: Sequence[str] = ()


@frozen
class Diagnosis:
    """What is in a dataset, and what is wrong with it.

    Attributes:
        dataset: Its name.
        findings: What is wrong, the worst first.
        notes: What a reader may not expect of the dataset, a sentence each.
        splits: Figures of each split, as plain values.
        parts: The same for readers.
    """

    dataset: str = ""
    findings: Sequence[Finding]
    notes: Sequence[str] = ()
    splits: Sequence[Block]
    parts: Sequence[Part]


def share_of(count: int, rows: int, what: str) -> str:
    """Return a count among rows in words."""
    return f"{count:,} of {rows:,} {what} ({count / max(rows, 1):.1%})"


def apart(items: Iterable[Item], splits: Sequence[Split]) -> Iterator[Item]:
    """Yield the items of the first split, the training, and of those that have no example of another one before."""
    for place, (item, split) in enumerate(zip(items, splits, strict=True)):
        if not any(before.source is split.source and before.shared(split) for before in splits[1:place]):
            yield item


def of_balance(split: str, counts: Mapping[str, int], what: str, remedy: str) -> Iterator[Finding]:
    """Yield the finding of classes of which one is much larger than another."""
    most, least = (choose(counts, key=counts.__getitem__) for choose in (max, min))
    if counts[most] > MOST_UNLIKE * counts[least]:
        yield Finding(f"{split} has {counts[most]:,} {what} {most} and {counts[least]:,} of {least}", remedy)


def of_equal(
    groups: Groups,
    kinds: Iterable[tuple[npt.NDArray[np.bool_], str, str]],
    noun: tuple[str, str],
    where: Callable[[int], str],
    *,
    but: str = "",
) -> Iterator[Finding]:
    """Yield a finding for each of the `kinds` of groups: which they are, where they are equal, and what to do.

    `where` is a function from the number of an example to its place.
    """

    def place(members: npt.NDArray[np.int64]) -> str:
        """Return the places of equal examples; of many, the first ones and their number."""
        some = " = ".join(map(where, members[:_MEMBERS].tolist()))
        return some + (f" = … ({len(members):,} in all)" if len(members) > _MEMBERS else "")

    for is_chosen, text, remedy in kinds:
        chosen = np.flatnonzero(is_chosen).tolist()
        if chosen:
            named = [groups.members(group) for group in chosen[:NAMED]]
            what = f"1 {noun[0]} is" if len(chosen) == 1 else f"{len(chosen):,} {noun[1]} are"
            yield Finding(f"{what} {text}{but}", remedy, [*map(place, named)])
