"""What the model of a run predicts of paths, of images in memory, and of rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, refuse
from etlrun.system.values import frozen
from etlrun.trained.files import ImagePaths, Inputs, OnCorrupt, inputs_of, unfit_for_files, unfit_for_rows
from etlrun.trained.load import Trained, trained
from etlrun.trained.rows import Place, named, paired

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


def predictions(
    folder: Path, model: Model, given: Sequence[Given | Iterable[Given]], top: int | None, on_corrupt: OnCorrupt
) -> list[Prediction]:
    """Return a prediction for each image or row, in their order; see `Run.predict`."""
    refuse([Fault("top", str(top), "a positive integer")] if top is not None and top < 1 else ())
    flat = [*_flat(given)]
    kinds = {kind for of in flat for kind in (bytes, Mapping, (str, os.PathLike)) if isinstance(of, kind)}
    if len(kinds) > 1:
        expected, remedy = "paths and overrides, or images as bytes, or rows", "predict them one after the other"
        raise ConfigError([fault("predict", "several kinds of inputs", expected, remedy)])
    if given and not flat:
        return []
    if kinds <= {(str, os.PathLike)}:
        return _collected(inputs_of(folder, [os.fspath(of) for of in flat], on_corrupt), model, top)
    run, are_images = trained(folder, [f"dataset.on_corrupt={on_corrupt}"], reads_split=False), bytes in kinds
    takes_rows = isinstance(run.then.spec.dataset, Rows)
    faults = [*(unfit_for_files(run) if are_images else unfit_for_rows(on_corrupt))]
    if are_images and takes_rows:
        remedy = "pass rows as mappings from columns to values, or dataset.split=SPLIT"
        faults = [replace(of, where="predict", expected="paths or rows", remedy=remedy) for of in faults]
    elif not are_images and not takes_rows:
        expected = "paths of images, or images as bytes: the run was trained on them"
        faults.append(Fault("predict", "rows", expected))
    refuse(faults)
    with TemporaryDirectory(prefix="etlrun-") as name:
        if are_images:
            return _of_images(run, model, flat, top, Path(name))
        rows = [{str(key): value for key, value in row.items()} for row in flat]
        return _collected(Inputs(run=run, rows=rows, folder=Path(name)), model, top)


def _of_images(run: Trained, model: Model, given: Sequence[Any], top: int | None, folder: Path) -> list[Prediction]:
    paths = [folder / str(number) for number in range(len(given))]
    for path, image in zip(paths, given, strict=True):
        path.write_bytes(image)
    try:
        found = _collected(Inputs(run=run, images=ImagePaths((*map(str, paths),))), model, top)
    except EtlrunError as error:
        each = ((of.where, of.found, of.expected, of.remedy) for of in error.faults)
        faults = [fault(*(text.replace(f"{folder}/", "image ") for text in texts)) for texts in each]
        raise EtlrunError(faults) from error
    return [replace(of, path=None, row=int(Path(of.path or "").name)) for of in found]


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


def _collected(inputs: Inputs, model: Model, top: int | None) -> list[Prediction]:
    network, found = model(inputs.run), list[Prediction]()
    from etlrun.trained.predict import heads, predict

    reading, of_targets = inputs.reading(network), heads(inputs.run, network, top)

    def add(places: Sequence[Place], outputs: Sequence[Any]) -> None:
        for place, pairs in paired(of_targets, places, outputs):
            targets = {head.target: head.described(row) for head, row in pairs}
            own, where = targets.pop("", {}), named(reading.header, place)
            others = {name: Predicted(**values) for name, values in targets.items()}
            found.append(Prediction(**where, **own, targets=others))

    predict(inputs.run, reading, network, add)
    return found
