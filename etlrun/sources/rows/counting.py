"""Counts of the values in parts of a column, of which only those that may be frequent stay in memory.

Runs of two tokens are counted by numbers for their tokens: there are many of them, and few of their texts are needed.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.stages.column_numbers import ColumnStep, counted_in
from etlrun.stages.column_text import Ngrams, Truncate
from etlrun.stages.flow import MISSING

MOST_DIFFERENT = 2_000_000
"""Different values from which those that are rare so far are dropped."""

Numbers = npt.NDArray[np.int64]
_Texts = Callable[[pa.Array], pa.Array]


def counts_in(
    parts: Iterable[pa.Array], least: int, most: int, *, in_memory: int = MOST_DIFFERENT, pairs: "Pairs | None" = None
) -> tuple[pa.Table, bool]:
    """Return the `most` most frequent values in the parts, of those that are there `least` times; one at least.

    Column `value` has them, and `count` how often each is there. Parts of numbers of `pairs` have the texts of these.

    As soon as `in_memory` values are different, those that came once are dropped, and of the others the rarer ones, so
    that half as many are left at most; whether that was so is returned, too.
    """
    counted, waiting, is_dropped = pa.table({}), list[pa.Table](), False
    texts: _Texts = (lambda values: values) if pairs is None else pairs.texts
    for part in parts:
        waiting.append(counted_in(part))
        if sum(map(len, waiting)) > len(counted):  # so that many parts are added up a few times alone
            counted, waiting = _added([counted, *waiting]), []
        if len(counted) > in_memory:
            counted, is_dropped = _first(counted, 2, in_memory // 2, texts), True
            counted = counted if pairs is None else pairs.shortened(counted, in_memory)
    found = _first(_added([counted, *waiting]), least, most, texts)
    return pa.table({"value": texts(found["value"].combine_chunks()), "count": found["count"]}), is_dropped


def _added(counted: Sequence[pa.Table]) -> pa.Table:
    tables = [table for table in counted if table.num_columns]
    if not tables:
        return pa.table({"value": pa.array([]), "count": pa.array([], pa.int64())})
    found = pa.concat_tables(tables).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return pa.table({"value": found["value"], "count": found["count_sum"]})


def _first(counted: pa.Table, least: int, most: int, texts: _Texts) -> pa.Table:
    """Return the most frequent values; of those that are there as often as the last one, the first by their texts."""
    counts = counted["count"].to_numpy()
    enough = max(min(int(np.count_nonzero(counts >= least)), most), 1)
    if enough >= len(counts):
        return counted
    last = np.partition(counts, -enough)[-enough]
    above, equal = np.flatnonzero(counts > last), np.flatnonzero(counts == last)
    values = texts(counted["value"].combine_chunks().take(pa.array(equal)))
    equal = equal[pc.sort_indices(values).to_numpy()[: enough - len(above)]]
    return counted.take(pa.array(np.concatenate([above, equal])))


_BITS, _SECOND = np.int64(32), np.int64(2**32 - 1)


def pairs_behind(steps: Sequence[ColumnStep]) -> "tuple[Sequence[ColumnStep], Pairs] | None":
    """Return the steps before that which makes pairs of tokens, and these; None if others than `Truncate` follow."""
    place = len(steps)
    while place and isinstance(steps[place - 1], Truncate):
        place -= 1
    made = steps[place - 1] if place else None
    if not isinstance(made, Ngrams) or made.size != 2:  # noqa: PLR2004
        return None
    before = steps[: place - 1]
    if any(isinstance(step, Ngrams) for step in before):  # whose tokens have blanks: other pairs have the same text
        return None
    return before, Pairs([step for step in steps[place:] if isinstance(step, Truncate)])


class Pairs:
    """Numbers for what `Ngrams` makes of tokens: these, and pairs of them."""

    def __init__(self, behind: Sequence[Truncate]) -> None:
        """Take the steps `behind` it."""
        self._behind, self._codes = behind, {MISSING: 0}

    def numbers(self, tokens: pa.LargeListArray) -> tuple[pa.Array, Numbers]:
        """Return the numbers that rows of tokens have behind all steps, in any order, and how many each row has."""
        coded, counts = tokens.flatten().dictionary_encode(), np.diff(np.asarray(tokens.offsets))
        places = [self._codes.setdefault(token, len(self._codes)) for token in coded.dictionary.to_pylist()]
        codes = np.array([*places, 0])[coded.indices.fill_null(-1).to_numpy()]
        low, high = self._window(counts)
        first, end, count = (np.repeat(of, counts) for of in (low, high, counts))
        place = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        single = codes[(first <= place) & (place < end) & (codes > 0)]
        place_of_pair = count + place
        at = np.flatnonzero((place + 1 < count) & (first <= place_of_pair) & (place_of_pair < end))
        paired = (codes[at] + 1 << _BITS) | codes[at + 1]
        return pa.array(np.concatenate([single, paired])), high - low

    def _window(self, counts: Numbers) -> tuple[Numbers, Numbers]:
        """Return which items of a row it has behind all steps, by its number of tokens: from one to before another."""
        low, high = np.zeros_like(counts), counts + np.maximum(counts - 1, 0)
        for step in self._behind:
            if step.keep == "first":
                high = np.minimum(high, low + step.length)
            else:
                low = np.maximum(low, high - step.length)
        return low, high

    def texts(self, numbers: pa.Array) -> pa.Array:
        """Return the texts for numbers, as `Ngrams` makes them."""
        firsts, seconds = _parted(numbers)
        words = pa.array([*self._codes], pa.large_binary())
        before = words.take(pa.array(firsts, mask=firsts < 0))
        blank = pa.scalar(b" ", pa.large_binary())
        return pc.binary_join_element_wise(before, words.take(pa.array(seconds)), blank, null_handling="skip")

    def shortened(self, counted: pa.Table, in_memory: int) -> pa.Table:
        """Return what is counted with other numbers, so that other tokens take no memory, if there are many of them."""
        if len(self._codes) <= in_memory:
            return counted
        firsts, seconds = _parted(counted["value"].combine_chunks())
        used, words = np.unique(np.concatenate([[-1, 0], firsts, seconds]))[1:], [*self._codes]
        self._codes = {words[code]: place for place, code in enumerate(used.tolist())}
        firsts = np.where(firsts < 0, -1, np.searchsorted(used, firsts))
        numbers = (firsts + 1 << _BITS) | np.searchsorted(used, seconds)
        return pa.table({"value": numbers, "count": counted["count"]})


def _parted(numbers: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the codes of the first tokens, -1 for a single one, and those of the last tokens."""
    found = numbers.cast(pa.int64()).to_numpy()
    return (found >> _BITS) - 1, found & _SECOND
