"""Slices of splits in TFDS's language, such as `train[:80%]+test[10:20]`."""

from __future__ import annotations

import re


def slices(split: str, counts: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return the parts of `split`: name, number of the first example, and number behind the last one.

    Splits have `counts` examples; percentages are rounded to the nearest example, as TFDS does. Empty if `split` isn't
    a sum of slices of these splits.
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
