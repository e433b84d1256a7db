"""Slices of splits in TFDS's language, such as `train[:80%]+test[10:20]`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from etlrun.stages.dataset import Dataset

_VALIDATION = ("val", "dev")
"""Beginnings of the names of splits for validation, in lower case."""
Slice = tuple[str, int, int]
"""The name of a split, the number of the first example, and the number behind the last one."""


def slices(split: str, counts: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return the parts of `split`, of whole splits that have `counts` examples; empty if it isn't a sum of slices.

    Percentages are rounded to the nearest example, as TFDS does.
    """
    found = []
    for part in split.split("+"):
        match = re.fullmatch(r"(\w+)(?:\[(-?\d+%?)?:(-?\d+%?)?\])?", part.strip())
        if match is None or match[1] not in counts:
            return []
        whole, bounds = counts[match[1]], []
        for text, otherwise in ((match[2], "0"), (match[3], "100%")):
            bound = text or otherwise
            number = round(int(bound[:-1]) * whole / 100) if bound.endswith("%") else int(bound)
            bounds.append(min(max(number + whole if number < 0 else number, 0), whole))
        found.append((match[1], bounds[0], max(bounds)))
    return found


def in_files(counts: Mapping[str, int], first: int, end: int) -> list[tuple[str, int, int]]:
    """Return the files, of these counts, that hold the records from `first` to before `end`.

    Each with the records to skip and to take.
    """
    found, before = [], 0
    for path, count in counts.items():
        skip, until = max(first - before, 0), min(end - before, count)
        if until > skip:
            found.append((path, skip, until - skip))
        before += count
    return found


def note_of_unused(dataset: Dataset, counts: Mapping[str, int]) -> str | None:
    """Return the note on a split for validation that is there while a part of the training split validates.

    `counts` are the examples of each split; None if there is nothing to note.
    """
    train, validation = (
        {name for name, _, _ in slices(split, {**counts})} for split in (dataset.split, dataset.eval_split or "")
    )
    unused = [name for name, count in counts.items() if count and name.lower().startswith(_VALIDATION)]
    if not unused or not validation or not validation <= train or {*unused} & train:
        return None
    return (
        f"The split {unused[0]} ({counts[unused[0]]:,} examples) is not used: the validation reads "
        f"{dataset.eval_split}. To use it, set dataset.split={min(train)} dataset.eval_split={unused[0]}."
    )
