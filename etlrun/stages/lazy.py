"""Lazy imports of TensorFlow, TFDS, Keras, NumPy, Arrow and decoders, so that configs and plans don't wait for them."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

_FRAMEWORKS = ("tensorflow", "keras")


class _Lazy(ModuleType):
    """Placeholder of a module, which imports it on first use, and keeps what it has been asked for."""

    def __getattr__(self, name: str) -> Any:
        if self.__name__ in _FRAMEWORKS and "tensorflow" not in sys.modules:
            from etlrun.system.loading import load_tensorflow

            load_tensorflow()
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import cv2
    import keras
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.compute as pc
    import simplejpeg
    import tensorflow as tf
    import tensorflow_datasets as tfds
else:
    tf = _Lazy("tensorflow")
    tfds = _Lazy("tensorflow_datasets")
    keras = _Lazy("keras")
    simplejpeg = _Lazy("simplejpeg")
    cv2 = _Lazy("cv2")
    np = _Lazy("numpy")
    npt = _Lazy("numpy.typing")
    pa = _Lazy("pyarrow")
    pc = _Lazy("pyarrow.compute")

__all__ = ["cv2", "keras", "np", "npt", "pa", "pc", "simplejpeg", "tf", "tfds"]
