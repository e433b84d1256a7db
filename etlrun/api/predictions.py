"""What the model of a run predicts of paths, of images in memory, and of rows."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault
from etlrun.system.values import frozen
from etlrun.trained.files import ImagePaths, Inputs, OnCorrupt, inputs_of, unfit_for_files, unfit_for_rows
from etlrun.trained.load import Trained, trained
from etlrun.trained.rows import Pairs, Place, Writer

if TYPE_CHECKING:
    from etlrun.trained.predict import Reading

Given = str | os.PathLike[str] | bytes | Mapping[str, Any]
"""What is predicted: a path, a URL or an override as on the command line, an encoded image, or a row."""
Model = Callable[[Trained], Any]
"""Function that returns the model of a run."""


@frozen
class Predicted:
    """What a model predicts of a target.

    Attributes:
        class_name: The likeliest class; None for labels and numbers.
        labels: Labels with a probability above 0.5; None for classes and numbers.
        probabilities: Probability of each class or label from 0 to 1, the likeliest first; empty for numbers.
        value: The number, or several; None for classes and labels.
    """

    class_name: str | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    value: float | tuple[float, ...] | None = None


@frozen
class Prediction(Predicted):
    """Prediction of an example; the attributes of `Predicted` are those of the only target, if there is one.

    Attributes:
        path: Path of the image, or of the table; None for rows and images that are in no file.
        row: Number of the row in its table, or of what was given, from 0; None for an image file.
        targets: What is predicted of several targets, by their names; empty with a single one.
    """

    path: str | None = None
    row: int | None = None
    targets: Mapping[str, Predicted] = field(default_factory=dict)


class Collector(Writer):
    """Adds a `Prediction` of each row to a list, its `file`."""

    def _add(self, place: Place, pairs: Pairs) -> None:
        targets = {head.target: head.described(row) for head, row in pairs}
        own = targets.pop("", {})
        others = {name: Predicted(**values) for name, values in targets.items()}
        self._file.append(Prediction(**self._named(place), **own, targets=others))


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
    if given and not flat:
        return []
    if kinds <= {(str, os.PathLike)}:
        inputs = inputs_of(folder, [os.fspath(of) for of in flat], on_corrupt)
        return _collected(inputs.run, model, inputs.reading, top)
    run, are_images = trained(folder, [f"dataset.on_corrupt={on_corrupt}"], reads_split=False), bytes in kinds
    takes_rows = isinstance(run.then.spec.dataset, Rows)
    faults = [*(unfit_for_files(run) if are_images else unfit_for_rows(on_corrupt))]
    if are_images and takes_rows:
        remedy = "pass rows as mappings from columns to values, or dataset.split=SPLIT"
        faults = [replace(of, where="predict", expected="paths or rows", remedy=remedy) for of in faults]
    elif not are_images and not takes_rows:
        expected = "paths of images, or images as bytes: the run was trained on them"
        faults.append(Fault("predict", "rows", expected))
    if faults:
        raise ConfigError(faults)
    with _files() as parent:
        if are_images:
            paths = [parent / str(number) for number in range(len(flat))]
            for path, image in zip(paths, flat, strict=True):
                path.write_bytes(image)
            inputs = Inputs(run=run, images=ImagePaths((*map(str, paths),)))
            found = _collected(run, model, inputs.reading, top)
            return [replace(of, path=None, row=int(Path(of.path or "").name)) for of in found]
        path, columns = parent / "rows.jsonl", dict.fromkeys(name for row in flat for name in row)
        path.write_text("".join(_line(number, row, columns) for number, row in enumerate(flat)), encoding="utf-8")
        return _collected(run, model, Inputs(run=run, tables=[str(path)]).reading, top)


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


def _line(number: int, row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Return a row as a line of JSON; raise `ConfigError` for a value that JSON does not have."""
    values = {}
    for name in columns:
        try:
            values[str(name)] = _plain(row.get(name))
            json.dumps(values[str(name)])
        except (TypeError, ValueError, RecursionError):
            found = f"a value of type {type(row.get(name)).__name__}"
            expected = "a number of 64 bits, a truth value, a text, a time, or a list of numbers or of texts"
            remedy = "convert the value, or leave it out, which is missing"
            raise ConfigError([fault(f"row {number}, {name}", found, expected, remedy)]) from None
    return f"{json.dumps(values)}\n"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: of NumPy and pandas those of Python, times as texts, NaN as a missing value."""
    if "[ns]" in str(getattr(value, "dtype", "")):
        value = value.astype("datetime64[us]")  # Python's times have no nanoseconds
    value = float(value) if isinstance(value, Decimal) else value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    if type(value).__name__ == "NAType" or value != value:  # noqa: PLR0124 - NaN, NaT
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


@contextmanager
def _files() -> Iterator[Path]:
    """Yield a folder for images, or for `rows.jsonl`, which faults name by their numbers."""
    with tempfile.TemporaryDirectory(prefix="etlrun-") as folder:
        names = {f"{folder}/rows.jsonl, ": "", f"{folder}/rows.jsonl": "rows", f"{folder}/": "image "}

        def shown(text: str) -> str:
            for path, name in names.items():
                text = text.replace(path, name)
            text = text.replace("repair the line", "repair the row")
            return re.sub(r"\bline (\d+(?:,\d{3})*)", lambda of: f"row {int(of[1].replace(',', '')) - 1}", text)

        try:
            yield Path(folder)
        except EtlrunError as error:
            words = (map(shown, (of.where, of.found, of.expected, of.remedy)) for of in error.faults)
            error.faults = tuple(fault(*of) for of in words)
            error.args = ("\n".join(map(str, error.faults)),)
            raise


def _collected(run: Trained, model: Model, reading: Callable[[Any], Reading], top: int | None) -> list[Prediction]:
    """Return the predictions of what `reading` reads for the model."""
    network, found = model(run), list[Prediction]()
    from etlrun.system.terminal import progress
    from etlrun.trained.predict import heads, predict

    rows = reading(network)
    with progress() as begin:
        collector = Collector(found, heads(run, network, top), rows.header)
        lost = predict(run, rows, network, collector, begin("predicted", rows.split.num_examples))
    for of in lost:
        print(f"skipped   {of.place}: {of.reason}", file=sys.stderr)
    return found
