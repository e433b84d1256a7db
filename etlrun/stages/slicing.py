"""Syntax of splits in TFDS's slicing language, such as `train[:80%]+test[10:20]`, checked without the dataset.

The language: https://www.tensorflow.org/datasets/splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

EXPECTED = "splits such as train, train[:80%] or train[100:200], joined by +"
_WHOLE = 100


@dataclass(frozen=True)
class Language:
    """Slicing language of a dataset.

    Attributes:
        name: Pattern of the name of a split.
        bound: Pattern of one end of a slice.
        bounds: Description of such ends.
        has_shards: Whether a slice may be of shards, and a single one of them.
    """

    name: str
    bound: str
    bounds: str
    has_shards: bool


_BOUND_OF_TFDS = r"-?(\d[\d_]*(\.\d*)?|\.\d+)(%|shard)?"
TFDS = Language(r"[\w-]+", _BOUND_OF_TFDS, "numbers of examples, percents or shards", has_shards=True)
FILES = Language(r"\w+", r"-?\d+%?", "whole numbers of examples or percents", has_shards=False)
"""Languages of TFDS, and of the sources of files."""


def malformed(split: str, language: Language) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each part of a split and at which character, counted from 1, with the remedy."""
    start = 1
    for part in split.split("+"):
        text = part.strip()
        fault = (
            _of_part(text, language) if text else (0, "no split", f"name a split{', or remove the +' * ('+' in split)}")
        )
        if fault is not None:
            place = start + len(part) - len(part.lstrip()) + fault[0]
            yield f"{split!r} with {fault[1]} at character {place}", fault[2]
        start += len(part) + 1


def _of_part(text: str, language: Language) -> tuple[int, str, str] | None:
    """Return the place of a fault in a part, from 0, what it is, and the remedy; None if there is none."""
    name, bracket, rest = text.partition("[")
    known = re.match(language.name, name)
    if known is None or known.end() < len(name):
        place = known.end() if known else 0
        return place, f"{text[place]!r} in the name of a split", "write NAME or NAME[FROM:TO], such as train[:80%]"
    inner, closed, behind = rest.partition("]")
    if bracket and not closed:
        likely = inner if ":" in inner else f":{inner or '80%'}"
        return len(name), "a '[' that is not closed", f"close it, as in {name}[{likely}]"
    if behind:
        return len(name) + len(inner) + 2, f"{behind!r} behind the slice", "remove it, or join splits by +"
    return _of_slice(name, inner, language) if bracket else None


def _of_slice(name: str, inner: str, language: Language) -> tuple[int, str, str] | None:
    start, bounds = len(name) + 1, inner.split(":")
    place = start
    for bound in bounds:
        if bound and (found := _of_bound(bound, inner, language)):
            return place, found, f"write {language.bounds}, such as {name}[:80%]"
        place += len(bound) + 1
    if len(bounds) > 2:  # noqa: PLR2004 - both ends
        return start, "a third value", f"write {name}[{':'.join(bounds[:2])}]: slices have no step"
    if not inner or (language.has_shards and inner == ":"):
        return start - 1, "a slice without ends", f"write {name} for all of it"
    if len(bounds) == 1 and not inner.endswith("shard"):
        return start, "a slice without ':'", f"write {name}[:{inner}] for what is before it, or {name}[{inner}:]"
    return None


def _of_bound(bound: str, inner: str, language: Language) -> str:
    """Return what is wrong with one end of a slice; empty if nothing is."""
    if not re.fullmatch(language.bound, bound):
        return f"{bound!r} as an end of a slice"
    if "." in bound and "%" not in inner:
        return f"{bound!r}, a part of an example,"
    return f"{bound!r}, more than 100%," if bound.endswith("%") and abs(float(bound[:-1])) > _WHOLE else ""
