"""How the frameworks are imported: sooner, and without what they print."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_PLOTS, _PLOTTER = "matplotlib.pyplot", "keras.src.visualization.plot_image_gallery"


@contextmanager
def loading() -> Iterator[None]:
    """Import frameworks inside, without garbage collections and native messages."""
    with _uncollected(), native_messages_kept():
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without garbage collections, a tenth of the time, and exempt the objects of frameworks from later ones.

    A full collection takes 0.3 s in a process that has imported TensorFlow, and finds nothing among its modules.
    """
    if "tensorflow_datasets" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Plots:
    """Stands for pyplot, which is imported with its first attribute."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(_PLOTS), name)


def import_keras() -> None:
    """Import Keras, which is to import pyplot when it plots images, and not before: it takes 0.3 s."""
    is_later = not {_PLOTS, _PLOTTER} & sys.modules.keys() and find_spec("matplotlib") is not None
    if is_later:
        sys.modules[_PLOTS] = None  # type: ignore[assignment]  # as if there were none
    try:
        import_module("keras")
    finally:
        if is_later:
            del sys.modules[_PLOTS]
    if is_later and _PLOTTER in sys.modules:
        sys.modules[_PLOTTER].plt = _Plots()  # type: ignore[attr-defined]


@contextmanager
def native_messages_kept() -> Iterator[None]:
    """Buffer what native libraries write to stderr while they load; print it if the block fails.

    TensorFlow reports missing CUDA drivers on every machine without a GPU, before it reads any log level.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(saved, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
