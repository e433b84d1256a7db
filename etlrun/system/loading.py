"""How the frameworks are imported: sooner, and without what they print."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LOGGED = re.compile(rb"([IWEF])\d{4} ")
"""Beginning of a line of absl's log."""
_USUAL = re.compile(
    rb"All log messages before absl::InitializeLog|To enable the following instructions: "
    rb"|Unable to register cu\w+ factory|computation placer already registered"
    rb"|failed call to cuInit: .*UNKNOWN ERROR \(303\)"
)
"""Warnings and errors of machines on which nothing is wrong; the last one, of a machine that has no driver of GPUs."""


class _State:
    """What has been asked for before TensorFlow is imported."""

    leaves_gpus = False


_state = _State()


def load_tensorflow() -> None:
    """Import TensorFlow, without what it prints about the instructions of the CPU and the drivers of GPUs."""
    with loading():  # which also looks for the driver, and takes no memory of a GPU
        importlib.import_module("tensorflow").config.list_physical_devices()
    if _state.leaves_gpus:
        leave_gpus()


def leave_gpus() -> None:
    """Have TensorFlow use no GPU, now or as soon as it is imported; it can't change that once it has computed."""
    _state.leaves_gpus = True
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.set_visible_devices([], "GPU")


def keras_backend() -> str:
    """Return the name of Keras's backend, chosen as Keras does, without importing it."""
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(json.loads((folder / "keras.json").read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return "tensorflow"


@contextmanager
def loading() -> Iterator[None]:
    """Import frameworks inside, without garbage collections and native messages."""
    os.environ.setdefault(_LEVEL, "1")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # otherwise TensorFlow allocates all memory of a GPU
    is_first = "tensorflow_datasets" not in sys.modules and gc.isenabled()
    with native_messages_kept():
        if is_first:  # collections are a tenth of the time
            gc.disable()
        try:
            yield
        finally:
            if is_first:  # later ones take 0.3 s, and find nothing among the modules of TensorFlow
                gc.freeze()
                gc.enable()


@contextmanager
def native_messages_kept() -> Iterator[None]:
    """Buffer what native libraries write to stderr while they load, and print what says that something is wrong.

    TensorFlow reports oneDNN and missing CUDA drivers on every machine without a GPU, before it reads any log level. If
    the block fails, all is printed, but not if it is interrupted.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        has_failed = False
        try:
            yield
        except Exception:
            has_failed = True
            raise
        finally:
            sys.stderr.flush()
            kept.seek(0)
            said = kept.read()
            os.dup2(saved, 2)
            os.close(saved)
            with suppress(OSError):  # a terminal may be closed
                os.write(2, said if has_failed else _wrong(said))


def _wrong(said: bytes) -> bytes:
    """Return the lines of native libraries of the user's log level, without those that every machine prints."""
    level = os.environ.get(_LEVEL, "")
    shown = b"IWEF"[int(level) :] if level.isdigit() else b"IWEF"
    if shown == b"IWEF":
        return said
    lines = [(line, _LOGGED.match(line)) for line in said.splitlines(keepends=True) if not _USUAL.search(line)]
    return b"".join(line for line, logged in lines if logged is None or logged[1] in shown)


_OTHER_NAMES = {"tensorflow": ("tensorflow-cpu",)}
"""Packages with the same content under another name."""


def version_of(package: str) -> str:
    """Return the version of a package, under any name that is known; `PackageNotFoundError` if it isn't installed."""
    for name in (package, *_OTHER_NAMES.get(package, ())):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    raise metadata.PackageNotFoundError(package)
