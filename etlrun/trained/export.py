"""Exports of a run's model: written beside their place, checked with their own runtime, and then put there."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etlrun.planning.plan import resizes
from etlrun.report.render import RENDER
from etlrun.stages.columns import Columns
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.files import locked, refuse_unwritable, sync
from etlrun.system.loading import native_messages_kept, version_of
from etlrun.system.terminal import say_note
from etlrun.trained.documents import DESCRIPTION, card
from etlrun.trained.files import NEW_FOLDER, OUTPUT, taken
from etlrun.trained.formats import FORMATS, OPTION, Exported, begin
from etlrun.trained.load import Trained
from etlrun.trained.model import ready
from etlrun.trained.raw import has_image, is_named, split

if TYPE_CHECKING:
    from etlrun.trained.serving import Serving  # imports TensorFlow

_OF_EXAMPLES = 1e-4
"""Largest difference of a prediction of a real example that is allowed where the same library resizes."""
CARD = "model_card.md"


def taken_by(run: Trained, name: str) -> str:
    """Return what an export of a run in the format of that name takes."""
    if is_named(run.plan) and run.plan.spec.columns is not None and not FORMATS[name].takes_columns:
        return f"what {Columns.path} gives"
    if is_named(run.plan):
        return "columns" if isinstance(run.plan.spec.dataset, Rows) else "inputs by name"
    return "image files" if FORMATS[name].takes_files else "arrays"


def export(run: Trained, name: str, output: Path) -> dict[str, Any]:
    """Write the model of a run in the format of that name into the new folder `output`, which appears complete.

    Returns the content of its `export.json`.

    Raises:
        EtlrunError: The model can't be loaded or written in that format, or its predictions differ.
    """
    size_bytes = run.path.stat().st_size
    with _model(run, name) as model, _appearing(output, size_bytes) as folder, tempfile.TemporaryDirectory() as images:
        serving = _serving(run, model, name)
        inputs, expected = serving.drawn(Path(images))
        if not np.isfinite(expected).all():
            found, remedy = ("a model whose predictions are not finite", "train again with a lower learning rate")
            raise WorldError(str(run.folder), found, "finite predictions", remedy)
        written, found = _written(name, serving, folder, inputs)
        of, classes = FORMATS[name], [head.names for head in serving.heads]
        by, in_run = "TensorFlow" if of.takes_files else "its user", resizes(run.plan.spec)
        whose = f"{by}, in the run by {'libjpeg-turbo and OpenCV' if in_run else 'TensorFlow'}"
        pixels = {"pixels": f"decoded and resized by {whose}"} if has_image(run.plan) else {}
        described = {
            "format": name,
            "file": of.file or ".",
            "run": str(run.folder.absolute()),
            "fingerprint": run.then.fingerprint,
            "epoch": run.epoch and run.epoch.epoch,
            **serving.described(written.inputs, written.output),
            **pixels,
            "check": {
                serving.noun: len(expected),
                **_checked(found, expected, name, serving.noun),
                "validation": _seen(run, name, model, serving, written),
            },
            "versions": {package: version_of(package) for package in of.runtime},
            "classes": [*classes[0]] if len(classes) == 1 and classes[0] is not None else None,
        }
        (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        (folder / CARD).write_text(RENDER["md"](card(run, described)), encoding="utf-8", errors="backslashreplace")
    return described


@contextmanager
def _model(run: Trained, name: str) -> Iterator[Any]:
    """Yield the model of a run on the backend of a format, on the CPU."""
    if "keras" not in sys.modules:
        begin(name)
    with ready(dataclasses.replace(run, trainer=dataclasses.replace(run.trainer, device="cpu"))) as model:
        import keras

        if keras.backend.backend() != FORMATS[name].backend:
            raise WorldError(
                OPTION,
                f"{name} in a process whose Keras runs on {keras.backend.backend()}",
                f"the backend {FORMATS[name].backend}, which writes it",
                "export in a process of its own: etlrun export",
            )
        yield model


@contextmanager
def _appearing(output: Path, size_bytes: int) -> Iterator[Path]:
    """Yield a folder beside `output` that is renamed to it after the block, when all of it is on the disk.

    `size_bytes` is about what it takes: an error on a disk without that space is one of the disk, whatever a library
    made of it.
    """
    refuse_unwritable(output.parent, OUTPUT)
    with ExitStack() as lock:
        folder = _begun(output, lock)
        try:
            yield folder
            for path in folder.rglob("*"):
                if path.is_file():
                    sync(path)
            try:
                folder.rename(output)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise
                raise EtlrunError([taken(output, NEW_FOLDER)]) from error  # another one has published there meanwhile
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, Exception) and not os.path.lexists(output):
                refuse_unwritable(output.parent, OUTPUT, size_bytes)
            raise


def _begun(output: Path, lock: ExitStack) -> Path:
    """Return a new hidden folder beside `output`, locked; those that killed exports to it have left are removed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with locked(output.parent, waits=True):  # so that no other export sees the new folder before its lock
        for left in output.parent.iterdir():
            if left.is_dir() and re.fullmatch(rf"\.\d+\.{re.escape(output.name)}", left.name):
                with locked(left, waits=False) as is_nobodys:
                    shutil.rmtree(left, ignore_errors=True) if is_nobodys else None
        folder = output.with_name(f".{os.getpid()}.{output.name}")
        folder.mkdir()
        lock.enter_context(locked(folder, waits=False))
    return folder


def _written(name: str, serving: Any, folder: Path, inputs: Any) -> tuple[Exported, Any]:
    """Write a model into `folder`; return it as the runtime of the format loads it, and its predictions."""
    of = FORMATS[name]
    try:
        with native_messages_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of converters, for those who write them
            of.write(serving, folder / of.file)
            written = of.load(folder / of.file)
            return written, written.compute(inputs)
    except Exception as error:  # converters may raise anything
        raise WorldError(
            OPTION,
            f"{name}, which can't hold the model: {type(error).__name__}: {headline(error)}",
            "a model whose layers the format has",
            _other(name),
        ) from error


def _checked(found: Any, expected: Any, name: str, noun: str) -> dict[str, float]:
    """Return the comparison of an export's predictions with the model's; raise `WorldError` if they differ."""
    tolerance = FORMATS[name].tolerance
    difference = float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected))))
    _require_alike(name, "the model's", difference, tolerance)
    spread = float(np.ptp(expected, axis=0).max())
    if spread <= tolerance:
        same = f"The model predicts the same for all drawn {noun}"
        say_note(f"{same}, which says little about its export: compare your own.")
    return {"largest_difference": difference, "tolerance": tolerance, "spread": spread}


def _seen(run: Trained, name: str, model: Any, serving: Any, written: Exported) -> dict[str, Any] | str:
    """Return the comparison of an export with `predict` on examples; raise `WorldError` if it has no reason to differ.

    Pixels of another library are one.
    """
    from etlrun.trained.serving import seen  # imports TensorFlow

    found = seen(run, model, serving, written.compute)
    if not isinstance(found, str) and not (has_image(run.plan) and resizes(run.plan.spec)):
        whose = f"those of predict for {found['examples']} examples of {found['split']}"
        _require_alike(name, whose, found["largest_difference"], _OF_EXAMPLES)
    return found


def _require_alike(name: str, whose: str, difference: float, tolerance: float) -> None:
    if not difference <= tolerance:  # also if it is not a number
        found = f"{name}, whose predictions differ from {whose} by {difference:.2g}"
        raise WorldError(OPTION, found, f"at most {tolerance:g}", _other(name))


def _other(name: str) -> str:
    return f"choose another format: {', '.join(other for other in FORMATS if other != name)}"


def _serving(run: Trained, model: Any, name: str) -> Serving:
    """Return a run's model as its users take it in a format."""
    from etlrun.trained.predict import heads  # imports TensorFlow
    from etlrun.trained.serving import OutputsServing, Serving

    of, image = FORMATS[name], None
    if has_image(run.plan) or not is_named(run.plan):
        image = split(run.plan, takes_files=of.takes_files)
    kind = Serving if of.takes_columns or not is_named(run.plan) else OutputsServing
    return kind(run=run, model=model, image=image, heads=heads(run, model, None))
