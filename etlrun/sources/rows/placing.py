"""Places of rows in their split: which rows a slice such as `train[:80%]` has, for runs and for programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from etlrun.stages.lazy import pa, pc


def placed(by: str, rows: np.ndarray, values: pa.Array, order: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return `rows` in the order in which slices take them, and the places where slices may end; None for anywhere.

    `values` are those of the column in each of the rows, which are in the order in which they are read.
    """
    keys = keys_of(by, values, order)
    places = np.argsort(keys, kind="stable")
    if by == "stratify":
        return rows[places], None
    changes = np.flatnonzero(keys[places[1:]] != keys[places[:-1]]) + 1  # rows of one value stay together
    return rows[places], np.concatenate([[0], changes, [len(rows)]])


def keys_of(by: str, values: pa.Array, order: str) -> np.ndarray:
    """Return the keys by which rows are sorted: times, places of groups, or places among the rows of their value."""
    if by == "time":
        return np.asarray(values)
    coded = values.dictionary_encode()
    codes, count = np.asarray(coded.indices), len(coded.dictionary)
    if by == "group":
        return codes if order == "file" else np.random.default_rng(0).permutation(count)[codes]
    counts = np.bincount(codes)
    places = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = np.empty(len(codes))
    keys[np.argsort(codes, kind="stable")] = (places + 0.5) / np.repeat(counts, counts)
    return keys


def sliced(rows: np.ndarray, line: np.ndarray, ends: np.ndarray | None, start: int, stop: int) -> np.ndarray:
    """Return the rows from one place of `line` to before another, moved to the nearest of `ends`, in their order."""
    if ends is not None:
        start, stop = (int(ends[np.abs(ends - place).argmin()]) for place in (start, stop))
    return rows[np.isin(rows, line[start:stop])]


def having(rows: np.ndarray, values: pa.Array, of: list[Any]) -> np.ndarray:
    """Return those of `rows` whose value is one `of` these."""
    is_one = np.asarray(pc.is_in(values, value_set=pa.array(of, values.type)))
    return np.asarray(rows[is_one])
