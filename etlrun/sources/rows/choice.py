"""Choice of the outputs of `columns: auto`: each column by its type and by the number of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_categories import Embed, Identity, Lookup, OneHot
from etlrun.stages.column_numbers import ColumnStep, Fill, Log1p, Part, Standardize
from etlrun.stages.column_text import Ngrams, StandardizeText, Tokenize, Truncate
from etlrun.stages.columns import Columns, Output, with_indicators
from etlrun.stages.rows import Column
from etlrun.system.errors import ConfigError, Fault

FEW = 10
"""Values of a column up to which each is an input of its own."""
_MOST_READ = 100_000
"""Rows of the training split that are read, which are a sample of it."""
_LONG_TAIL = 1.0
"""Skewness from which the logarithm of numbers is taken."""
_MOST_WORDS = 10_000
_MOST_NGRAMS, _NGRAM_DIMENSION = 20_000, 32
LONGEST = 512
"""Tokens of a text that are taken where no boundary of a bucket says it."""
_FEWEST_BLANKS = 3
"""Mean number of blanks from which texts have many words."""
_HOURS, _WEEKDAYS, _MONTHS = 24, 7, 13


def chosen(source: RowsSource, split: RowSplit, longest: int | None = None) -> Columns:
    """Return the outputs for the inputs of a dataset, whose training split is `split`, and why others are none.

    `longest` is how many tokens of a text of many words are taken; None if batches take no sequences.
    """
    rows, by = pa.array(split.rows[:_MOST_READ]), source.dataset.splits_by
    left_out = [by.column] if by is not None and by.is_of_rows and source.dataset.inputs is None else []
    outputs: list[Output] = []
    notes: list[str] = []
    for name in source.dataset.examples.inputs:
        column = source.kept.known.columns[name]
        if column.is_joined:
            notes.append(f"{name} is no input, since it has lists of texts: they may be labels to predict")
            continue
        if column.feature.is_sequence:
            if longest is None:
                notes.append(f"{name} is no input, since it has sequences: set load=bucketed and model=text to use it")
            else:
                outputs.append(Output(name=name, of=(name,), steps=tuple(_of_lists(column, longest))))
            continue
        if column.feature.shape:
            filled = (Fill(value="median"),) if column.missing else ()
            outputs.append(Output(name=name, of=(name,), steps=(*filled, Standardize())))
            continue
        values = source.kept.arrow(name).take(rows)
        reason = "rows are split by it" if name in left_out else _useless(column, values)
        if name not in left_out and is_prose(column, values):
            if longest is not None:
                steps = (
                    StandardizeText(to="lower_and_strip_punctuation"),
                    Tokenize(by="whitespace"),
                    Ngrams(size=2),
                    Truncate(length=longest),
                    Lookup(top=_MOST_NGRAMS, min_count=2),
                    Embed(dimension=_NGRAM_DIMENSION),
                )
                outputs.append(Output(name=name, of=(name,), steps=steps))
            else:
                told = "is no input, since its texts have many words: set load=bucketed and model=text to use it"
                notes.append(f"{name} {told}")
        elif reason:
            notes.append(f"{name} is no input, since {reason}: name it in transform.columns to use it")
        else:
            outputs += _outputs(name, column, values)
    columns = Columns(outputs=with_indicators(outputs), chosen=tuple(outputs), notes=tuple(notes))
    if faults := list(_twice(columns.outputs)):
        raise ConfigError(faults)
    return columns


def _twice(outputs: Sequence[Output]) -> Iterator[Fault]:
    """Yield a fault for each name of two outputs, such as a column `age_missing` and the indicator of `age`."""
    columns: dict[str, list[str]] = {}
    for output in outputs:
        columns.setdefault(output.name, []).extend(output.of)
    for name, of in columns.items():
        if len(of) > 1:
            found, remedy = f"an output of {' and one of '.join(of)}", "leave one of them out of dataset.inputs"
            where, expected = f"{Columns.path}.{name}", "one output of auto of that name"
            remedy += f", or name the columns with their steps in {Columns.path}"
            yield Fault(where, found, expected, remedy)


def _useless(column: Column, values: pa.Array) -> str:
    """Return why a column tells nothing of other rows; an empty string if it may."""
    there = values.drop_null()
    if column.feature.dtype == "float64" and len(there):
        there = there.filter(pc.is_finite(there))
    different = len(there.unique())
    if different <= 1:
        return "it has no value" if not different else "all rows have the same value"
    if column.feature.dtype == "string" and different > len(there) / 2:
        return "nearly each row has another value"
    if column.feature.dtype == "int64" and column.feature.format is None and different == len(values):
        span = (column.feature.high or 0) - (column.feature.low or 0)
        if column.distinct is not None and span == column.distinct - 1 and different > FEW:
            return "its values are numbers of rows"
    return ""


def is_prose(column: Column, values: pa.Array) -> bool:
    """Return whether a column has texts of many words, of which nearly each is another one."""
    there = values.drop_null()
    if column.feature.dtype != "string" or not len(there) or len(there.unique()) <= len(there) / 2:
        return False
    return bool(pc.mean(pc.count_substring(there, b" ")).as_py() >= _FEWEST_BLANKS)


def _of_lists(column: Column, longest: int) -> Iterator[ColumnStep]:
    """Yield the steps of lists of numbers: few different integers are categories."""
    yield Truncate(length=longest)
    if column.feature.dtype == "int64" and column.distinct is not None and column.distinct <= FEW:
        yield from (Lookup(), Embed())
        return
    if column.feature.has_missing:
        yield Fill(value="median")
    yield Standardize()


def _outputs(name: str, column: Column, values: pa.Array) -> Iterator[Output]:
    feature = column.feature
    if feature.format == "timestamp":
        yield from _times(name, column, values)
        return
    yield Output(name=name, of=(name,), steps=tuple(_steps(column, values)))


def _steps(column: Column, values: pa.Array) -> Iterator[ColumnStep]:
    """Yield the steps of a column of text, truth values or numbers."""
    is_few = column.distinct is not None and column.distinct <= FEW
    if column.feature.dtype == "string":
        yield from (Lookup(), OneHot()) if is_few else (Lookup(top=_MOST_WORDS, min_count=2), Embed())
        return
    if pa.types.is_boolean(values.type):
        yield from (Fill(value="most_frequent", indicator=True),) if column.missing else ()
        return
    numbers = values.drop_null().cast(pa.float64(), safe=False).to_numpy()  # which rounds large integers
    if is_few and pa.types.is_integer(values.type):
        yield from (Lookup(), OneHot())
        return
    if column.missing:
        yield Fill(value="median", indicator=True)
    if (column.feature.low or 0) >= 0 and _skewness(numbers) > _LONG_TAIL:
        yield Log1p()
    yield Standardize()


def _skewness(numbers: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that `standardize` refuses
        deviations = numbers - numbers.mean()
        spread = deviations.std()
        return float((deviations**3).mean() / spread**3) if spread else 0.0


def _times(name: str, column: Column, values: pa.Array) -> Iterator[Output]:
    """Yield the parts of times that differ: the year as a number, the others as categories."""
    times = values.drop_null().cast(pa.timestamp("us"))
    has_missing = column.missing > 0
    year_fill = (Fill(value="median", indicator=True),) if has_missing else ()
    if len(pc.year(times).unique()) > 1:
        yield Output(name=f"{name}_year", of=(name,), steps=(Part(part="year"), *year_fill, Standardize()))
    fill = (Fill(value="most_frequent"),) if has_missing else ()
    parts: tuple[tuple[Literal["month", "weekday", "hour"], Callable[[pa.Array], pa.Array], int], ...] = (
        ("month", pc.month, _MONTHS),
        ("weekday", pc.day_of_week, _WEEKDAYS),
        ("hour", pc.hour, _HOURS),
    )
    for part, of, count in parts:
        if len(of(times).unique()) > 1:
            steps = (Part(part=part), *fill, Identity(categories=count), OneHot())
            yield Output(name=f"{name}_{part}", of=(name,), steps=steps)
