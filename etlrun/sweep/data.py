"""Which runs have seen the same data, by the digests of their epochs; and what their plans tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from etlrun.difference import Comparison, compare
from etlrun.errors import EtlrunError
from etlrun.planning import plan
from etlrun.spec import parse
from etlrun.stages import STAGES

Values = Callable[[], Mapping[str, Any]]
"""Reads a composed config; `OSError` where it is not there any more."""
Digests = Sequence[tuple[str, str]]
"""Of each epoch that of its training and that of its validation; an empty one where it was not taken."""


def compared(old: Values, new: Values) -> Comparison | None:
    """What one config's plan changes in the other's, as `etlrun diff` tells it; None where they can't be planned."""
    try:
        one, other = (plan(parse(values() or {}, STAGES)) for values in (old, new))
    except (EtlrunError, OSError, ValueError, yaml.YAMLError):  # of another version, or without its file
        return None
    return compare(one, other)


def _is_same(one: Digests, other: Digests) -> bool:
    """Whether nothing that two runs both have tells them apart: neither need have all epochs, or a validation."""
    return all(
        mine == its
        for epochs in zip(one, other, strict=False)
        for mine, its in zip(*epochs, strict=True)
        if mine and its
    )


def words(digests: Mapping[int, Digests]) -> dict[int, str]:
    """For each config, or run, with digests: `same` where all agree, else a letter, so that what differs is marked."""
    found = {number: of for number, of in digests.items() if of}
    groups: list[list[int]] = []
    for number in sorted(found, key=lambda number: -len(found[number])):  # the longest tells most of its group
        group = next((group for group in groups if _is_same(found[group[0]], found[number])), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    if len(groups) == 1:
        return dict.fromkeys(found, "same" if len(found) > 1 else "")
    groups.sort(key=min)
    return {number: f"differs: {_letters(place)}" for place, group in enumerate(groups) for number in group}


def _letters(number: int) -> str:
    """A to Z, then AA, AB and so on."""
    head, last = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + last)
