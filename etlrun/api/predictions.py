"""What the model of a run predicts of paths, of images in memory, and of rows."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault
from etlrun.system.loading import load_tensorflow
from etlrun.system.terminal import say_note
from etlrun.trained.files import OnCorrupt, inputs_of, unfit_for_files, unfit_for_rows
from etlrun.trained.load import Trained, trained

if TYPE_CHECKING:
    from etlrun.trained.rows import Prediction

Given = str | os.PathLike[str] | bytes | Mapping[str, Any]
"""What is predicted: a path, a URL or an override as on the command line, an encoded image, or a row."""
Model = Callable[[Trained], Any]
"""Function that returns the model of a run."""
_ROWS, _IMAGES = "row", "image"
_LINES = "rows.jsonl"
_INSTEAD = "pass rows as mappings from columns to values, or dataset.split=SPLIT"
_LINE = re.compile(r"\bline (\d+(?:,\d{3})*)")


def predictions(
    folder: Path, model: Model, given: Sequence[Given | Iterable[Given]], top: int | None, on_corrupt: OnCorrupt
) -> list[Prediction]:
    """Return a prediction for each image or row, in their order; see `Run.predict`."""
    if top is not None and top < 1:
        raise ConfigError([Fault("top", str(top), "a positive integer")])
    flat = [*_flat(given)]
    kinds = {kind for of in flat for kind in (bytes, Mapping, (str, os.PathLike)) if isinstance(of, kind)}
    if len(kinds) > 1:
        expected, remedy = "paths and overrides, or images as bytes, or rows", "predict them one after the other"
        raise ConfigError([fault("predict", "several kinds of inputs", expected, remedy)])
    if bytes in kinds or Mapping in kinds:
        run = trained(folder, [f"dataset.on_corrupt={on_corrupt}"], reads_split=False)
        if bytes in kinds:
            return _of_images(run, model, flat, top)
        return _of_rows(run, model, flat, top, [*unfit_for_rows(on_corrupt)])
    if given and not flat:
        return []
    inputs = inputs_of(folder, [os.fspath(of) for of in flat], on_corrupt)
    for text in inputs.notes():
        say_note(text)
    rows = inputs.opened()
    return _collected(inputs.run, model, rows or inputs.reading, top)


def _flat(given: Iterable[Any]) -> Iterator[Any]:
    """Yield what is given one by one, or in lists."""
    for of in given:
        if isinstance(of, (str, os.PathLike, bytes, Mapping)):
            yield of
        elif isinstance(of, Iterable) and not (
            hasattr(of, "columns") or hasattr(of, "element_spec") or getattr(of, "ndim", 1) != 1
        ):  # no DataFrame, dataset or array of numbers, whose items are no inputs
            yield from _flat(of)
        else:
            expected = "paths, overrides, images as bytes, or rows as mappings from columns to values"
            is_frame = hasattr(of, "to_dict")
            remedy = "of a DataFrame pass frame.to_dict('records')" if is_frame else "pass a path, or a list of rows"
            raise ConfigError([fault("predict", f"a {type(of).__name__}", expected, remedy)])


def _of_images(run: Trained, model: Model, given: Sequence[bytes], top: int | None) -> list[Prediction]:
    """Return the predictions of encoded images, which are numbered."""
    if faults := [*unfit_for_files(run)]:
        if isinstance(run.then.spec.dataset, Rows):
            faults = [replace(of, where="predict", expected="paths or rows", remedy=_INSTEAD) for of in faults]
        raise ConfigError(faults)
    with _files(_IMAGES) as folder:
        paths = [folder / str(number) for number in range(len(given))]
        for path, image in zip(paths, given, strict=True):
            path.write_bytes(image)

        def reading(_: Any) -> Any:
            from etlrun.trained.predict import of_files  # imports TensorFlow

            return of_files(run, [*map(str, paths)])

        found = _collected(run, model, reading, top)
    return [replace(of, path=None, row=int(Path(of.path or "").name)) for of in found]


def _of_rows(
    run: Trained, model: Model, given: Sequence[Mapping[str, Any]], top: int | None, faults: list[Fault]
) -> list[Prediction]:
    """Return the predictions of rows without `faults`, which are read as those of a file of JSON lines are."""
    if not isinstance(run.then.spec.dataset, Rows):
        expected = "paths of images, or images as bytes: the run was trained on them"
        faults.append(Fault("predict", "rows", expected))
    if faults:
        raise ConfigError(faults)
    columns = dict.fromkeys(name for row in given for name in row)
    with _files(_ROWS) as folder:
        path = folder / _LINES
        lines = (_line(number, row, columns) for number, row in enumerate(given))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        load_tensorflow()
        from etlrun.trained.tables import opened

        return _collected(run, model, opened(run, [str(path)]), top)


def _line(number: int, row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Return a row as a line of JSON; raise `ConfigError` for a name or a value that JSON does not have."""
    for name in row:
        if not isinstance(name, str | int):
            remedy = "name the columns as in the table of the training"
            raise ConfigError(
                [fault(f"row {number}", f"the key {name!r}", "names of columns, which are texts", remedy)]
            )
    values = []
    for name in columns:
        try:
            values.append(f"{json.dumps(str(name))}: {json.dumps(_plain(row.get(name)))}")
        except (TypeError, ValueError, RecursionError):
            found = f"a value of type {type(row.get(name)).__name__}"
            expected = "a number of 64 bits, a truth value, a text, a time, or a list of numbers or of texts"
            remedy = "convert the value, or leave it out, which is missing"
            raise ConfigError([fault(f"row {number}, {name}", found, expected, remedy)]) from None
    return f"{{{', '.join(values)}}}"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: of NumPy and pandas those of Python, times as texts, NaN as a missing value."""
    if isinstance(value, Decimal):
        value = float("nan") if value.is_nan() else float(value)
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()  # noqa: PLR0124 - NaT
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    is_missing = isinstance(value, float) and value != value  # noqa: PLR0124 - NaN
    return None if is_missing or type(value).__name__ == "NAType" else value


@contextmanager
def _files(noun: str) -> Iterator[Path]:
    """Yield a folder for files, which faults name by `noun` and number."""
    with tempfile.TemporaryDirectory(prefix="etlrun-") as folder:
        try:
            yield Path(folder)
        except EtlrunError as error:
            error.faults = tuple(_named(of, folder, noun) for of in error.faults)
            error.args = ("\n".join(map(str, error.faults)),)
            raise


def _named(of: Fault, folder: str, noun: str) -> Fault:
    def shown(text: str) -> str:
        text = text.replace(f"{folder}/{_LINES}, ", "").replace(f"{folder}/{_LINES}", f"{noun}s")
        text = text.replace(f"{folder}/", f"{noun} ").replace("repair the line", f"repair the {noun}")
        return text if noun != _ROWS else _LINE.sub(lambda line: f"row {int(line[1].replace(',', '')) - 1}", text)

    where, found, expected, remedy = map(shown, (of.where, of.found, of.expected, of.remedy))
    return replace(of, where=where, found=found, expected=expected, remedy=remedy)


def _collected(run: Trained, model: Model, reading: Any, top: int | None) -> list[Prediction]:
    """Return the predictions of a reading, or of one that a function makes for the model."""
    network = model(run)
    from etlrun.system.progress import progress
    from etlrun.trained.predict import heads, predict
    from etlrun.trained.rows import Collector

    rows = reading(network) if callable(reading) else reading
    with progress() as begin:
        collector = Collector(heads(run, network, top), rows.header)
        lost = predict(run, rows, network, collector, begin("predicted", rows.split.num_examples))
    for of in lost:
        print(f"skipped   {of.place}: {of.reason}", file=sys.stderr)
    return collector.predictions
