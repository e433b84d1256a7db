"""Fitting of columns: what their steps learn from the training split, kept beside the columns."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.beyond import beyond
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_numbers import counts_in
from etlrun.stages.column_step import ColumnStep, UnfitColumnError, items, shown
from etlrun.stages.columns import Columns, Output, UnfitStepError
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.lazy import tf
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.files import write_atomically

_FORMAT = 3
"""Version of what is kept."""
_AT_ONCE = 2_048
"""Rows whose sequences are in memory at once."""
_LISTED = 3
"""Values outside of a vocabulary that a message lists."""


Fitted = tuple[tuple[Output, ...], tuple[tuple[str, str], ...]]
"""Outputs that have learned what they do; what is missing or unknown in the columns of each, by name, for people."""


def fitted(outputs: Sequence[Output], source: RowsSource, splits: Sequence[RowSplit]) -> Fitted:
    """Return outputs whose steps know what they learn from the first of `splits`, and the shares of all of them.

    Those that were fitted before are not again.

    Raises:
        ConfigError: All outputs whose steps do not accept what is before them, or have nothing to learn from.
    """
    faults: list[Fault] = []
    opened = [_opened(output, faults) for output in outputs]
    if faults:
        raise ConfigError(faults)
    described = [[output.name, output.described] for output in opened]
    text = json.dumps([_FORMAT, described, [[split.name, split.content.digest] for split in splits]], default=str)
    path = source.kept.folder / f"fitted-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        return _read(opened, json.loads(path.read_text()))
    made, shares = _fit(opened, source, splits)
    learned = [[{name: getattr(step, name) for name in step.learned} for step in of.steps] for of in made]
    with contextlib.suppress(OSError):  # they are learned again
        write_atomically(path, json.dumps({"learned": learned, "shares": shares}))
    return made, shares


def fault_of(output: Output, unfit: UnfitStepError) -> Fault:
    """Return the fault of a step of an output."""
    where = f"{Columns.path}.{output.name}.steps[{unfit.place}]"
    if output.is_of_target:
        where = "dataset.target"
    return Fault(where=where, found=unfit.found, expected=unfit.expected, remedy=unfit.remedy)


def _opened(output: Output, faults: list[Fault]) -> Output:
    """Return the output with what the files of its steps contain; add a fault for each that can't be read."""
    steps = []
    for place, step in enumerate(output.steps):
        try:
            steps.append(step.opened())
        except UnfitColumnError as unfit:
            faults.append(fault_of(output, UnfitStepError(place, unfit, "")))
    return dataclasses.replace(output, steps=tuple(steps)) if len(steps) == len(output.steps) else output


def _read(outputs: Sequence[Output], held: dict[str, Any]) -> Fitted:
    """Return the outputs with what their steps have learned."""

    def value(of: Any) -> Any:
        return tuple(of) if isinstance(of, list) else of

    found = tuple(
        dataclasses.replace(
            output,
            steps=tuple(
                step.replace(**{name: value(of) for name, of in found.items()})
                for step, found in zip(output.steps, steps, strict=True)
            ),
        )
        for output, steps in zip(outputs, held["learned"], strict=True)
    )
    return found, tuple((name, text) for name, text in held["shares"])


def _fit(outputs: Sequence[Output], source: RowsSource, splits: Sequence[RowSplit]) -> Fitted:
    features: dict[str, Feature] = dict(source.dataset.examples.features)
    done: dict[str, Output] = {}
    faults: list[Fault] = []
    shares: list[tuple[str, str]] = []
    names = {output.name for output in outputs}
    for output in outputs:
        readers = [Reader(output, done, source, split) for split in splits]
        try:
            made, feature = output.fitted(features, readers[0].read)
        except UnfitStepError as unfit:
            if output.indicator_of not in names:  # whose steps it repeats
                unfit.found += f", such as {first}" if (first := beyond(output, unfit.place, readers)) else ""
                faults.append(fault_of(output, unfit))
            feature = Feature(dtype="int64", categories=1)
        else:
            done[output.name] = made
            faults += _outside(made, readers)
            text = "" if output.indicator_of in names else _shares(made, readers)
            shares += [(made.name, text)] if text else []
        features.setdefault(output.name, feature)
    if faults:
        raise ConfigError(faults)
    return tuple(done.values()), tuple(shares)


class Reader:
    """The values of an output's columns in a split, which are read once."""

    def __init__(self, output: Output, above: dict[str, Output], source: RowsSource, split: RowSplit) -> None:
        self.output, self.split, self._above, self._source = output, split, above, source
        self._done: list[ColumnStep] = []
        self._value: Any = None
        self._counted: tuple[list[ColumnStep], Any] = [], None

    def read(self, steps: Sequence[ColumnStep], *, parts: bool = False, counts: bool = False) -> Any:
        """Return the values after some of the steps, their `parts`, or the `counts` of their items."""
        if counts:
            return self.counts(steps)
        return self.parts(steps) if parts else self.behind(steps)

    def parts(self, steps: Sequence[ColumnStep]) -> Iterator[pa.Array]:
        """Yield the values after some of the steps, those of some rows after the other."""
        for start in range(0, self.split.num_examples, _AT_ONCE):
            part = self.split.part(start, min(start + _AT_ONCE, self.split.num_examples))
            yield Reader(self.output, self._above, self._source, part).behind(steps)

    def counts(self, steps: Sequence[ColumnStep]) -> pa.Table:
        """Return the items of sequences after some of the steps, and how often each is there."""
        if self._counted[0] != [*steps] or self._counted[1] is None:
            self._counted = [*steps], counts_in(items(part) for part in self.parts(steps))
        return self._counted[1]

    def behind(self, steps: Sequence[ColumnStep]) -> pa.Array:
        """Return the values after some of the steps; null where they are missing."""
        if not steps and (column := self.columns.get(self.output.of[0])) is not None:
            return column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        value = self._applied(steps)
        if isinstance(value, tf.RaggedTensor):
            return pa.LargeListArray.from_arrays(value.row_splits.numpy(), _arrow(value.flat_values.numpy()))
        return _arrow(value.numpy().ravel())

    def lengths(self, steps: Sequence[ColumnStep]) -> np.ndarray:
        """Return the number of items of each sequence after some of the steps."""
        return np.asarray(self._applied(steps).row_lengths())

    def _applied(self, steps: Sequence[ColumnStep]) -> Any:
        if self._value is None or [*steps[: len(self._done)]] != self._done:
            self._value, self._done = self.output.behind((), self._example), []
        for step in steps[len(self._done) :]:
            self._value = step.applied(self._value)
            self._done.append(step)
        return self._value

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """The columns themselves in the rows of the split, null where they are missing, by name."""
        features, rows = self._source.dataset.examples.features, pa.array(self.split.rows)
        names = [name for name in self._needed(self.output) if name in features]
        return {name: self._source.kept.arrow(name).take(rows) for name in names}

    def _needed(self, output: Output) -> Iterator[str]:
        for name in output.of:
            yield name
            if name in self._above and name not in self._source.dataset.examples.features:
                yield from self._needed(self._above[name])

    @cached_property
    def _example(self) -> dict[str, Any]:
        features = self._source.dataset.examples.features
        found = {name: _given(values, features[name]) for name, values in self.columns.items()}
        for name, output in self._above.items():
            if name in self._needed(self.output) and name not in found:
                found[name] = output.given(found)
        return found


def _arrow(values: np.ndarray) -> pa.Array:
    """Return values of a pipeline; null where they are missing."""
    if values.dtype == object:
        return pa.array(values, pa.large_binary(), mask=values == MISSING)
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)


def _given(values: pa.Array, feature: Feature) -> Any:
    """Return the values of a column as the rows of a pipeline have them: a tensor, or for lists a ragged one."""
    if feature.is_sequence:
        items = _plain(values.flatten(), feature.replace(shape=()))
        return tf.RaggedTensor.from_row_splits(items, np.asarray(values.offsets))
    return tf.constant(_plain(values, feature))


def _plain(values: pa.Array, feature: Feature) -> Any:
    if feature.dtype == "string":
        return values.fill_null(MISSING).to_numpy(zero_copy_only=False)
    if feature.format == "timestamp":
        return values.fill_null(MISSING_TIME).to_numpy(zero_copy_only=False)
    numbers = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    found = numbers.to_numpy(zero_copy_only=False).astype(feature.dtype)
    return found.reshape(len(values), *feature.shape) if feature.shape else found


def _outside(output: Output, readers: Sequence[Reader]) -> Iterator[Fault]:
    """Yield a fault for each split that has values which a vocabulary with `oov: error` lacks."""
    for place, step in enumerate(output.steps):
        if place and (found := beyond(output, place, readers)):
            last = step.arguments["categories"] - 1
            expected, remedy = (
                f"integers from 0 to {last}",
                f"name more categories, or put {{clip: [0, {last}]}} before it",
            )
            unfit = UnfitColumnError(found=found, expected=expected, remedy=remedy)
            yield fault_of(output, UnfitStepError(place, unfit, ""))
        if type(step) is not Lookup or step.oov != "error":
            continue
        for reader in readers:
            values = reader.behind(output.steps[:place])
            unknown, count = step.unknown(values), f"{len(reader.split.rows):,} rows"
            count = f"{len(items(values)):,} items" if pa.types.is_large_list(values.type) else count
            if len(unknown):
                different = [shown(_text(value)) for value in unknown.unique()[:_LISTED].to_pylist()]
                more = ", …" if len(unknown.unique()) > _LISTED else ""
                rows = f"{len(unknown):,} of {count} of {reader.split.name}"
                yield fault_of(
                    output,
                    UnfitStepError(
                        place,
                        UnfitColumnError(
                            found=f"{', '.join(different)}{more} in {rows}, of {output.of[0]}",
                            expected=f"a value of the vocabulary: {shown(step.values)}",
                            remedy="add the value to `values`, or set `oov` to 1",
                        ),
                        "",
                    ),
                )


def _is_missing(values: pa.Array) -> pa.Array:
    """Return where a value is missing, or any item of a list."""
    if not pa.types.is_large_list(values.type):
        return values.is_null()
    parents = pc.list_parent_indices(values).filter(values.flatten().is_null())
    return pc.is_in(pa.array(np.arange(len(values))), value_set=parents)


def _text(value: Any) -> Any:
    return repr(value.decode(errors="replace")) if isinstance(value, bytes) else value


def _unknown(step: Lookup, reader: Reader, before: Sequence[ColumnStep]) -> tuple[int, int]:
    """Return the number of values that are not in a vocabulary; and of all items, if they are those of sequences."""
    if not any(of.of_sequences for of in before):
        values = reader.behind(before)
        return len(step.unknown(values)), len(items(values)) if pa.types.is_large_list(values.type) else 0
    counted = reader.counts(before)
    unknown = step.unknown(counted["value"].combine_chunks())
    of_unknown = counted.filter(pc.is_in(counted["value"], unknown))
    return pc.sum(of_unknown["count"]).as_py() or 0, pc.sum(counted["count"]).as_py() or 0


def _shares(output: Output, readers: Sequence[Reader]) -> str:
    """Return the shares of missing and of unknown values in each split, for people; an empty string for none."""
    found: dict[str, list[str]] = {"missing": [], "unknown": []}
    for reader in readers:
        rows = len(reader.split.rows)
        masks = [_is_missing(column) for column in reader.columns.values()]
        missing = pc.sum(reduce(pc.or_, masks)).as_py() if masks else 0
        found["missing"] += [f"{missing / rows:.1%} of {reader.split.name}"] if missing else []
        lookups = [(place, step) for place, step in enumerate(output.steps) if isinstance(step, Lookup)]
        values = [_unknown(step, reader, output.steps[:place]) for place, step in lookups if step.oov != "error"]
        if count := sum(unknown for unknown, _ in values):
            tokens = sum(of for _, of in values)
            of_items = f" of the tokens of {reader.split.name}" if tokens else f" of {reader.split.name}"
            found["unknown"].append(f"{count / (tokens or rows):.1%}{of_items}")
    return "; ".join(f"{kind} {' and '.join(texts)}" for kind, texts in found.items() if texts)
