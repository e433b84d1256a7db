"""Fitting of columns: the choice of `columns: auto`, and what steps learn from the training split and from files."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.remote.copies import name_of
from etlrun.sources.base import Split
from etlrun.sources.rows.counting import MOST_DIFFERENT
from etlrun.sources.rows.kept import lacking, remembered
from etlrun.sources.rows.reader import OutputReader, keep_lengths
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.column_categories import Embed, Identity, Lookup, OneHot
from etlrun.stages.column_numbers import ColumnStep, Fill, Log1p, Part, Standardize, shown, without_missing
from etlrun.stages.column_text import Ngrams, StandardizeText, Tokenize, Truncate
from etlrun.stages.columns import Columns, Output, outputs_of, with_indicators
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.rows import Column
from etlrun.system.errors import Fault, counted, refuse

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


def chosen(source: RowsSource, split: Split, longest: int | None = None) -> Columns:
    """Return the outputs for the inputs of a dataset, whose training split is `split`, and why others are none.

    `longest` is how many tokens of a text of many words are taken; None if batches take no sequences.
    """
    outputs: list[Output] = []
    notes: list[str] = []
    for name in source.dataset.examples.inputs:
        made = _outputs(name, source, split, longest)
        if isinstance(made, str):
            notes.append(f"column `{name}` is not used: {made}")
        else:
            outputs += made
    columns = Columns(outputs=with_indicators(outputs), chosen=tuple(outputs), notes=tuple(notes))
    names: dict[str, list[str]] = {}
    for output in columns.outputs:
        names.setdefault(output.name, []).extend(output.of)
    remedy = f"leave one of them out by dataset.exclude, or name the columns with their steps in {Columns.path}"
    twice = {name: f"an output of {' and one of '.join(of)}" for name, of in names.items() if len(of) > 1}
    expected = "one output of auto of that name"  # as for a column `age_missing` and the indicator of `age`
    refuse([Fault(f"{Columns.path}.{name}", found, expected, remedy) for name, found in twice.items()])
    return columns


def _outputs(name: str, source: RowsSource, split: Split, longest: int | None) -> list[Output] | str:
    column, by = source.kept.known.columns[name], source.dataset.splits_by
    steps: Iterable[ColumnStep] = ()
    reason, to_use, by_name = "", "to use it: load=bucketed model=text", f"to use it, name it in {Columns.path}"
    if column.feature.format == "image":
        return f"it holds images; {by_name} with its steps"
    if column.is_joined:
        return "it holds lists of texts, which can only be labels to predict"
    if column.feature.is_sequence:
        reason, steps = f"it holds sequences; {to_use}", () if longest is None else _of_lists(column, longest)
    elif column.feature.shape:
        steps = (*((Fill(value="median"),) if column.missing else ()), Standardize())
    else:
        values = source.kept.arrow(name, split.numbers[:_MOST_READ])
        splits_rows = by is not None and by.column == name and by.by in {"column", "group"}
        is_of_splits = splits_rows and source.dataset.inputs is None  # no other split has its values
        if not is_of_splits and is_prose(column, values):
            reason = f"it holds sentences; {to_use}"
            prose = StandardizeText(to="lower_and_strip_punctuation"), Tokenize(by="whitespace"), Ngrams(size=2)
            words = Lookup(top=_MOST_NGRAMS, min_count=2), Embed(dimension=_NGRAM_DIMENSION)
            steps = () if longest is None else (*prose, Truncate(length=longest), *words)
        elif reason := "rows are split by it" if is_of_splits else _useless(column, values):
            reason += f"; {by_name}"
        elif column.feature.format == "timestamp":
            return [*_times(name, column, values)]
        else:
            steps = _steps(column, values)
    return [Output(name=name, of=(name,), steps=tuple(steps))] if steps else reason


def _useless(column: Column, values: pa.Array) -> str:
    """Return why a column tells nothing of other rows; an empty string if it may."""
    there = values.drop_null()
    if column.feature.dtype == "float64" and len(there):
        there = there.filter(pc.is_finite(there))
    different = len(there.unique())
    if different <= 1:
        return "it has no values" if not different else "all rows have the same value"
    if column.feature.dtype == "string" and different > len(there) / 2:
        return f"{different:,} of its {len(there):,} texts differ"
    if column.feature.dtype == "int64" and column.feature.format is None and different == len(values):
        span, numbers = (column.feature.high or 0) - (column.feature.low or 0), values.to_numpy()
        step = int(np.gcd.reduce(numbers - numbers.min()))  # 1, or 10 where they come in tens
        if column.distinct is not None and span == step * (column.distinct - 1) and different > FEW:
            return "it numbers the rows"
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


def _steps(column: Column, values: pa.Array) -> Iterator[ColumnStep]:
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
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that `standardize` refuses
        deviations = numbers - numbers.mean()
        spread = deviations.std()
        skewness = (deviations * deviations * deviations).mean() / spread**3 if spread else 0.0
    if (column.feature.low or 0) >= 0 and skewness > _LONG_TAIL:
        yield Log1p()
    yield Standardize()


def _times(name: str, column: Column, values: pa.Array) -> Iterator[Output]:
    """Yield the parts of times that differ: the year as a number, the others as categories."""
    times = values.drop_null().cast(pa.timestamp("us"))
    has_missing = column.missing > 0
    year_fill = (Fill(value="median", indicator=True),) if has_missing else ()
    if len(pc.year(times).unique()) > 1:
        yield Output(name=f"{name}_year", of=(name,), steps=(Part(part="year"), *year_fill, Standardize()))
    fill = (Fill(value="most_frequent"),) if has_missing else ()
    parts = ("month", pc.month, _MONTHS), ("weekday", pc.day_of_week, _WEEKDAYS), ("hour", pc.hour, _HOURS)
    for part, of, count in cast("Any", parts):
        if len(of(times).unique()) > 1:
            steps = (Part(part=part), *fill, Identity(categories=count), OneHot())
            yield Output(name=f"{name}_{part}", of=(name,), steps=steps)


def beyond(output: Output, place: int, readers: Sequence[OutputReader]) -> UnfitError | None:
    """Return the error of the first item of lists for which the step at `place` has no result; None if all have one."""
    step, before = [*output.steps, None][place], output.steps[:place]
    is_bounded = isinstance(step, Identity | Log1p) and all(of.is_fitted for of in before)
    for reader in readers if is_bounded and output.of[0] in readers[0].columns else ():
        values = reader.behind(before)
        if not pa.types.is_large_list(values.type):
            break
        numbers = values.flatten()
        if isinstance(step, Identity):
            unfit = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, step.categories))
            expected, remedy = f"integers from 0 to {step.categories - 1}", "name more categories, or "
            remedy += f"put {{clip: [0, {step.categories - 1}]}} before it"
        else:
            unfit, expected = pc.less_equal(numbers, -1), "values above -1"
            remedy = "put {clip: [0, null]} before it, or leave it out"
        if (at := pc.index(unfit, value=True).as_py()) >= 0:
            row = pc.list_parent_indices(values)[at].as_py()
            found = f"{numbers[at]} of {output.of[0]} in {reader.split.where(reader.split.shards[0], row)}"
            return UnfitError(expected, remedy, found)
    return None


_FORMAT = 5
"""Version of what is kept."""
_LISTED = 3
"""Values outside of a vocabulary that a message lists."""


Fitted = tuple[tuple[Output, ...], tuple[tuple[str, str], ...]]
"""Outputs that have learned what they do; what is missing in the columns of each, or not counted, for people."""


def fitted(outputs: Sequence[Output], source: RowsSource, splits: Sequence[Split]) -> Fitted:
    """Return outputs whose steps know what they learn from the first of `splits`, and the shares of all of them.

    Those that were fitted before are not again.

    Raises:
        ConfigError: All outputs whose steps do not accept what is before them, or have nothing to learn from.
    """
    faults: list[Fault] = []
    opened = [_opened(output, faults) for output in outputs]
    refuse(faults)
    described = [[output.name, output.described] for output in opened]
    contents = [[split.name, split.content.digest] for split in splits]

    def made() -> dict[str, Any]:
        outputs, shares = _fit(opened, source, splits)
        return {"outputs": {of.name: of.described for of in outputs}, "shares": shares}

    def read(held: dict[str, Any]) -> Fitted:
        return outputs_of(held["outputs"]), tuple((name, text) for name, text in held["shares"])

    return remembered(source.kept.folder, "fitted", [_FORMAT, described, contents], made, read)


def fault_of(output: Output, place: int, unfit: UnfitError) -> Fault:
    """Return the fault of the step of an output at a place."""
    where = f"{Columns.path}.{output.name}.steps[{place}]"
    if output.is_of_target:
        where = "dataset.target"
    return Fault(where, unfit.found, unfit.expected, unfit.remedy)


def unfit_for(source: RowsSource, outputs: Sequence[Output]) -> Iterator[Fault]:
    """Yield why steps that were fitted to other rows, or the model behind them, do not take those of `source`.

    `outputs` are inputs of the model, which takes no missing value.
    """
    features = {name: of.feature for name, of in source.kept.known.columns.items()}
    where = ", ".join(map(name_of, source.kept.stamps))
    for output in outputs:
        try:
            feature = output.gives(features)
            features.setdefault(output.name, feature)
            if feature.has_missing:
                without_missing(feature)
        except UnfitError as unfit:
            found = f"{output.name}: {unfit.found}{_missing(source, output.of)}"
            remedy = f"write such values{unfit.remedy and f', or train again: {unfit.remedy}'}"
            yield Fault(where, found, unfit.expected, remedy)


def _missing(source: RowsSource, names: Sequence[str]) -> str:
    """Return how many rows are without a value in one of the columns, and the first ones; empty if there are none."""
    known = source.kept.known.columns
    missing = [lacking(source.kept.arrow(name)) for name in names if name in known and known[name].missing]
    if not missing:
        return ""
    rows = np.flatnonzero(np.logical_or.reduce([of.to_numpy(zero_copy_only=False) for of in missing])).tolist()
    places = (source.kept.place(row) for row in rows[:_LISTED])
    several = len(source.kept.stamps) > 1
    shown = [f"{row} of {path}" if several else str(row) for path, row in places]
    more = f" and {len(rows) - _LISTED:,} more" if rows[_LISTED:] else ""
    return f", in row{'s' * (len(rows) > 1)} {', '.join(shown)}{more}"


def _opened(output: Output, faults: list[Fault]) -> Output:
    """Return the output with what the files of its steps contain; add a fault for each that can't be read."""
    steps = []
    for place, step in enumerate(output.steps):
        try:
            steps.append(step.opened())
        except UnfitError as unfit:
            if unfit.found not in {fault.found for fault in faults}:  # of a tokenizer, and of the lookup behind it
                faults.append(fault_of(output, place, unfit))
    return dataclasses.replace(output, steps=tuple(steps)) if len(steps) == len(output.steps) else output


def _fit(outputs: Sequence[Output], source: RowsSource, splits: Sequence[Split]) -> Fitted:
    features: dict[str, Feature] = dict(source.dataset.examples.features)
    done: dict[str, Output] = {}
    faults: list[Fault] = []
    shares: list[tuple[str, str]] = []
    names = {output.name for output in outputs}
    sequences: list[tuple[Output, list[OutputReader]]] = []
    for output in outputs:
        readers = [OutputReader(output, done, source, split) for split in splits]
        try:
            made, feature = output.fitted(features, readers[0].read)
        except UnfitError as unfit:
            if output.indicator_of not in names:  # whose steps it repeats
                unfit.found += f", such as {first.found}" if (first := beyond(output, unfit.place, readers)) else ""
                faults.append(fault_of(output, unfit.place, unfit))
            feature = Feature(dtype="int64", categories=1)
        else:
            done[output.name] = made
            faults += _outside(made, readers)
            text = "" if output.indicator_of in names else _shares(readers)
            shares += [(made.name, text)] if text else []
            sequences += [(made, readers)] if feature.is_sequence else []
        features.setdefault(output.name, feature)
    refuse(faults)
    for place, split in enumerate(splits if sequences else ()):
        lengths = {of.name: readers[place].known_lengths(of.steps) for of, readers in sequences}
        keep_lengths(source, split, lengths, done)
    return tuple(done.values()), tuple(shares)


def _outside(output: Output, readers: Sequence[OutputReader]) -> Iterator[Fault]:
    """Yield a fault for each split that has values which a vocabulary with `oov: error` lacks, or a later step."""
    for place, step in enumerate(output.steps):
        if place and (unfit := beyond(output, place, readers)):
            yield fault_of(output, place, unfit)
        if type(step) is not Lookup or step.oov != "error":
            continue
        for reader in readers:
            count, found = 0, dict[Any, None]()
            for part in reader.parts(output.steps[:place]):
                unknown = step.unknown(part)
                count += len(unknown)
                found |= dict.fromkeys(unknown.unique()[: _LISTED + 1 - len(found)].to_pylist())
            if found:
                texts = [shown(repr(of.decode(errors="replace")) if isinstance(of, bytes) else of) for of in found]
                values = ", ".join(texts[:_LISTED]) + ", …" * (len(texts) > _LISTED)
                what = f"{values} in {counted(count, 'value')} of {reader.split.name}, of {output.of[0]}"
                expected, remedy = f"a value of the vocabulary: {shown(step.values)}", "add the value to `values`, or "
                yield fault_of(output, place, UnfitError(expected, f"{remedy}set `oov` to 1", what))


def _shares(readers: Sequence[OutputReader]) -> str:
    """Return the shares of missing values in each split, and what was not counted, for people; mostly empty."""
    found = [f"{of.missing / len(of.split.numbers):.1%} of {of.split.name}" for of in readers if of.missing]
    texts = [f"missing {' and '.join(found)}"] if found else []
    if readers[0].is_dropped:
        texts.append(f"more than {MOST_DIFFERENT:,} different values, of which rare ones are not all counted")
    return "; ".join(texts)
