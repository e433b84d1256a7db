"""Exports of a run's model: written beside their place, checked with their own runtime, and then put there."""

import dataclasses
import errno
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from etlrun.planning.plan import resizes
from etlrun.stages.columns import Columns
from etlrun.stages.lazy import keras
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.files import locked, refuse_unwritable, sync
from etlrun.system.loading import native_messages_kept, version_of
from etlrun.system.values import Block
from etlrun.trained.files import NEW_FOLDER, OUTPUT, taken
from etlrun.trained.formats import FORMATS, OPTION, Format
from etlrun.trained.load import Trained
from etlrun.trained.model import ready
from etlrun.trained.raw import images_of, is_named

_OF_EXAMPLES = 1e-4
"""Largest difference of a prediction of a real example that is allowed where the same library resizes."""
DESCRIPTION = "export.json"


def taken_by(run: Trained, name: str) -> str:
    """Return what an export of a run in the format of that name takes."""
    if is_named(run.plan) and run.plan.spec.columns is not None and not FORMATS[name].takes_columns:
        return f"what {Columns.path} gives"
    if is_named(run.plan):
        return "columns" if isinstance(run.plan.spec.dataset, Rows) else "inputs by name"
    return "image files" if FORMATS[name].takes_files else "arrays"


def export(run: Trained, name: str, output: Path) -> Block:
    """Write the model of a run in a format into the new folder `output`, which appears complete; return `export.json`.

    Raises:
        EtlrunError: The model can't be loaded or written in that format, or its predictions differ.
    """
    of, size_bytes, in_run = FORMATS[name], run.path.stat().st_size, resizes(run.plan.spec)
    with _model(run, of, name) as model, _appearing(output, size_bytes) as folder:
        from etlrun.trained.predict import heads  # import TensorFlow, and Keras with the backend of the format
        from etlrun.trained.serving import Serving, compared

        serving = Serving(run, model, heads(run, model, None), of)
        with _holding(name):
            of.write(serving, folder / of.file)
            written = of.load(folder / of.file)

        def compute(inputs: Any) -> Any:
            with _holding(name):
                return written.compute(inputs)

        check, is_image = compared(run, model, serving, compute), bool(images_of(run.plan))
        check["tolerance"] = of.tolerance
        if "examples" in check:
            _require_alike(name, "the model's", check["largest_difference"], of.tolerance)
            if not (is_image and in_run):  # pixels of another library differ
                whose = f"those of predict for {check['examples']} examples of {check['split']}"
                _require_alike(name, whose, check["from_predict"], _OF_EXAMPLES)
        by = f"{'TensorFlow' if of.takes_files else 'the caller'}, in the run by"
        pixels = f"decoded and resized by {by} {'libjpeg-turbo and OpenCV' if in_run else 'TensorFlow'}"
        classes = [head.names for head in serving.heads]
        described = {
            "format": name,
            "file": of.file or ".",
            "run": str(run.folder.absolute()),
            "fingerprint": run.then.fingerprint,
            "epoch": run.epoch and run.epoch.epoch,
            **serving.described(written.input, written.output),
            **({"pixels": pixels} if is_image else {}),
            "check": check,
            "versions": {package: version_of(package) for package in of.runtime},
            "classes": [*classes[0]] if len(classes) == 1 and classes[0] is not None else None,
        }
        (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return described


@contextmanager
def _model(run: Trained, of: Format, name: str) -> Iterator[Any]:
    """Yield the model of a run on the backend of a format, on the CPU."""
    if "keras" not in sys.modules:
        os.environ |= {"KERAS_BACKEND": of.backend, "KERAS_TORCH_DEVICE": "cpu"}
    trainer = dataclasses.replace(run.trainer, device="cpu", devices=1)
    with ready(dataclasses.replace(run, trainer=trainer), of.backend) as model:
        if (backend := keras.backend.backend()) != of.backend:
            raise WorldError(
                OPTION,
                f"{name} in a process whose Keras runs on {backend}",
                f"the backend {of.backend}, which writes it",
                "export in a process of its own: etlrun export",
            )
        yield model


@contextmanager
def _appearing(output: Path, size_bytes: int) -> Iterator[Path]:
    """Yield a folder beside `output` that is renamed to it after the block, when all of it is on the disk."""
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
                refuse_unwritable(output.parent, OUTPUT, size_bytes)  # whatever a library made of a full disk
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


@contextmanager
def _holding(name: str) -> Iterator[None]:
    """Raise `WorldError` if a format can't be written, loaded or run."""
    try:
        with native_messages_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of converters, for those who write them
            yield
    except Exception as error:  # converters may raise anything
        found = f"{name}, which can't hold the model: {type(error).__name__}: {headline(error)}"
        raise WorldError(OPTION, found, "layers that the format supports", _other(name)) from error


def _require_alike(name: str, whose: str, difference: float, tolerance: float) -> None:
    if not difference <= tolerance:  # also if it is not a number
        found = f"{name}, whose predictions differ from {whose} by {difference:.2g}"
        raise WorldError(OPTION, found, f"at most {tolerance:g}", _other(name))


def _other(name: str) -> str:
    return f"choose another format: {', '.join(other for other in FORMATS if other != name)}"
