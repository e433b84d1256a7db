"""Fitting of columns: what their steps learn from the training split, kept beside the columns; vectors of words."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.remote.copies import name_of
from etlrun.sources.content import sha256_of_all
from etlrun.sources.records import digest, known, stamp_of
from etlrun.sources.rows.kept import lacking
from etlrun.sources.rows.reader import Reader
from etlrun.sources.rows.sequences import keep_lengths
from etlrun.sources.rows.source import RowSplit, RowsSource, placed
from etlrun.stages.column_categories import Embed, Identity, Lookup
from etlrun.stages.column_numbers import ColumnStep, Log1p, UnfitColumnError, items, shown, without_missing
from etlrun.stages.columns import Columns, Output, UnfitStepError
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.words import vectors_in, vocabulary_of
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.files import write_atomically


def beyond(output: Output, place: int, readers: Sequence[Reader]) -> UnfitColumnError | None:
    """Return the error of the first item of lists for which the step at `place` has no result; None if all have one."""
    step, before = [*output.steps, None][place], output.steps[:place]
    is_bounded = isinstance(step, Identity | Log1p) and all(of.is_fitted for of in before)
    for reader in readers if is_bounded and output.of[0] in readers[0].columns else ():
        values = reader.behind(before)
        if not pa.types.is_large_list(values.type):
            break
        numbers = values.flatten()
        at = pc.index(_unfit(step, numbers), value=True).as_py()
        if at >= 0:
            row = pc.list_parent_indices(values)[at].as_py()
            found = f"{numbers[at]} of {output.of[0]} in {reader.split.where(reader.split.shards[0], row)}"
            if not isinstance(step, Identity):
                return UnfitColumnError(found, "values above -1", "put {clip: [0, null]} before it, or leave it out")
            last = step.categories - 1
            remedy = f"name more categories, or put {{clip: [0, {last}]}} before it"
            return UnfitColumnError(found, f"integers from 0 to {last}", remedy)
    return None


def _unfit(step: ColumnStep | None, numbers: pa.Array) -> pa.Array:
    """Return for which numbers a step has no result."""
    if isinstance(step, Identity):
        return pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, step.categories))
    return pc.less_equal(numbers, -1)


_FORMAT = 4
"""Version of what is kept."""
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
    contents = [[split.name, split.content.digest] for split in splits]
    path = source.kept.folder / f"fitted-{digest([_FORMAT, described, contents])}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        held = json.loads(path.read_text())

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
            for output, steps in zip(opened, held["learned"], strict=True)
        )
        return found, tuple((name, text) for name, text in held["shares"])
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
        except UnfitColumnError as unfit:
            yield Fault(
                where,
                f"{output.name}: {unfit.found}{_first_missing(source, output.of)}",
                unfit.expected,
                f"write such values, or train again: {unfit.remedy}" if unfit.remedy else "write such values",
            )


def _first_missing(source: RowsSource, names: Sequence[str]) -> str:
    """Return which row is the first without a value in one of the columns; empty if there is none."""
    known = source.kept.known.columns
    missing = [lacking(source.kept.arrow(name)) for name in names if name in known and known[name].missing]
    if not missing:
        return ""
    paths, ends = [*source.kept.stamps], [*accumulate(source.kept.known.file_rows)]
    path, row = placed(min(pc.index(of, value=True).as_py() for of in missing), paths, ends)
    return f", the first of which is row {row}{f' of {path}' if len(paths) > 1 else ''}"


def _opened(output: Output, faults: list[Fault]) -> Output:
    """Return the output with what the files of its steps contain; add a fault for each that can't be read."""
    steps = []
    for place, step in enumerate(output.steps):
        try:
            steps.append(step.opened())
        except UnfitColumnError as unfit:
            if unfit.found not in {fault.found for fault in faults}:  # of a tokenizer, and of the lookup behind it
                faults.append(fault_of(output, UnfitStepError(place, unfit, "")))
    return dataclasses.replace(output, steps=tuple(steps)) if len(steps) == len(output.steps) else output


def _fit(outputs: Sequence[Output], source: RowsSource, splits: Sequence[RowSplit]) -> Fitted:
    features: dict[str, Feature] = dict(source.dataset.examples.features)
    done: dict[str, Output] = {}
    faults: list[Fault] = []
    shares: list[tuple[str, str]] = []
    names = {output.name for output in outputs}
    sequences: list[tuple[Output, list[Reader]]] = []
    for output in outputs:
        readers = [Reader(output, done, source, split) for split in splits]
        try:
            made, feature = output.fitted(features, readers[0].read)
        except UnfitStepError as unfit:
            if output.indicator_of not in names:  # whose steps it repeats
                unfit.found += f", such as {first.found}" if (first := beyond(output, unfit.place, readers)) else ""
                faults.append(fault_of(output, unfit))
            feature = Feature(dtype="int64", categories=1)
        else:
            done[output.name] = made
            faults += _outside(made, readers)
            text = "" if output.indicator_of in names else _shares(made, readers)
            shares += [(made.name, text)] if text else []
            sequences += [(made, readers)] if feature.is_sequence else []
        features.setdefault(output.name, feature)
    if faults:
        raise ConfigError(faults)
    for place, split in enumerate(splits if sequences else ()):
        keep_lengths(
            source, split, {of.name: readers[place].known_lengths(of.steps) for of, readers in sequences}, done
        )
    return tuple(done.values()), tuple(shares)


def _outside(output: Output, readers: Sequence[Reader]) -> Iterator[Fault]:
    """Yield a fault for each split that has values which a vocabulary with `oov: error` lacks."""
    for place, step in enumerate(output.steps):
        if place and (unfit := beyond(output, place, readers)):
            yield fault_of(output, UnfitStepError(place, unfit, ""))
        if type(step) is not Lookup or step.oov != "error":
            continue
        for reader in readers:
            count, of_items = _unknown(step, reader, output.steps[:place])
            if count:
                found: dict[Any, None] = {}
                for part in reader.parts(output.steps[:place]):
                    found |= dict.fromkeys(step.unknown(part).unique()[: _LISTED + 1].to_pylist())
                    if len(found) > _LISTED:
                        break
                different = [
                    shown(repr(value.decode(errors="replace")) if isinstance(value, bytes) else value)
                    for value in ([*found][: _LISTED + 1])
                ]
                more = ", …" if different[_LISTED:] else ""
                whole = f"{of_items:,} items" if of_items else f"{len(reader.split.rows):,} rows"
                rows = f"{count:,} of {whole} of {reader.split.name}"
                yield fault_of(
                    output,
                    UnfitStepError(
                        place,
                        UnfitColumnError(
                            f"{', '.join(different[:_LISTED])}{more} in {rows}, of {output.of[0]}",
                            f"a value of the vocabulary: {shown(step.values)}",
                            "add the value to `values`, or set `oov` to 1",
                        ),
                        "",
                    ),
                )


def _unknown(step: Lookup, reader: Reader, before: Sequence[ColumnStep]) -> tuple[int, int]:
    """Return the number of values that are not in a vocabulary; and of all items, if they are those of sequences."""
    if not reader.has_sequences(before):
        return len(step.unknown(reader.behind(before))), 0
    if (counted := reader.counted(before)) is not None:
        values = counted.table["value"]
        known = counted.table.filter(pc.invert(pc.is_in(values, step.unknown(values.combine_chunks()))))
        return counted.there - (pc.sum(known["count"]).as_py() or 0), counted.total
    found = [(len(step.unknown(part)), len(items(part))) for part in reader.parts(before)]
    return sum(unknown for unknown, _ in found), sum(count for _, count in found)


def _shares(output: Output, readers: Sequence[Reader]) -> str:
    """Return the shares of missing and of unknown values in each split, for people; an empty string for none."""
    found: dict[str, list[str]] = {"missing": [], "unknown": []}
    for reader in readers:
        rows = len(reader.split.rows)
        found["missing"] += [f"{reader.missing / rows:.1%} of {reader.split.name}"] if reader.missing else []
        lookups = [(place, step) for place, step in enumerate(output.steps) if isinstance(step, Lookup)]
        values = [_unknown(step, reader, output.steps[:place]) for place, step in lookups if step.oov != "error"]
        if count := sum(unknown for unknown, _ in values):
            tokens = sum(of for _, of in values)
            of_items = f" of the tokens of {reader.split.name}" if tokens else f" of {reader.split.name}"
            found["unknown"].append(f"{count / (tokens or rows):.1%}{of_items}")
    return "; ".join(f"{kind} {' and '.join(texts)}" for kind, texts in found.items() if texts)


Shares = tuple[tuple[str, str], ...]


def with_weights(outputs: Sequence[Output]) -> tuple[tuple[Output, ...], Shares]:
    """Return outputs that know what the files of their vectors contain, and the share of words that have one.

    Raises:
        ConfigError: All files that have no vectors for a vocabulary.
    """
    faults: list[Fault] = []
    made, shares = [], []
    for output in outputs:
        if output.weights is None:
            made.append(output)
            continue
        place, step = len(output.steps) - 1, cast("Embed", output.steps[-1])
        try:
            found = len(vectors_of(output)["vectors"])
        except UnfitError as unfit:
            faults.append(fault_of(output, UnfitStepError(place, unfit, "")))
            continue
        files = [path for path in (output.weights, step.words) if path]
        contents = known({path: stamp_of(path) for path in files}, sha256_of_all)
        content = "-".join((contents[path] or b"").hex() for path in files)
        made.append(dataclasses.replace(output, steps=(*output.steps[:-1], step.replace(content=content))))
        count = len(_lookup(output).values or ())
        shares.append((output.name, f"{found / count:.1%} of {count:,} words have a vector of {output.weights}"))
    if faults:
        raise ConfigError(faults)
    return tuple(made), tuple(shares)


def require_unchanged(outputs: Sequence[Output]) -> None:
    """Raise `ConfigError` for files of vectors that have been changed since the run was planned, or can't be read."""
    changed = [of for of, now in zip(outputs, with_weights(outputs)[0], strict=True) if now != of]
    if changed:
        found, remedy = "a file that was changed since the run was planned", "restore it, or start a new run"
        raise ConfigError([Fault(str(of.weights), found, "one that stays", remedy) for of in changed])


def vectors_of(output: Output) -> dict[str, Any]:
    """Return the arguments of `set_vectors` for an output that ends with an embedding whose vectors a file has.

    Raises:
        UnfitError: It has none for the vocabulary, or there is no vocabulary of texts.
    """
    given, others = arguments_of_vectors(output)
    try:
        return {"vectors": vectors_in(str(output.weights), **given), **others}
    except (OSError, ValueError) as error:
        raise cast("Embed", output.steps[-1]).unfit(error) from error


def arguments_of_vectors(output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `vectors_in` beside the path, and those of `set_vectors` beside the vectors."""
    step, lookup = cast("Embed", output.steps[-1]), _lookup(output)
    listed = None if step.words is None else [*vocabulary_of(step.words)]
    words = {"listed": listed, "words": [str(value) for value in lookup.values or ()], "dimension": step.dimension}
    first = (lookup.oov if isinstance(lookup.oov, int) else 0) + bool(step.padding)
    return words, {"name": output.name, "first": first, "trainable": step.trainable}


def _lookup(output: Output) -> Lookup:
    found = next((step for step in reversed(output.steps) if isinstance(step, Lookup)), None)
    if found is None or not isinstance((found.values or (None,))[0], str):
        expected, remedy = "a vocabulary of texts before vectors of words", "put `lookup` before it"
        raise UnfitColumnError("embed with weights", expected, remedy)
    return found
