"""Lazy imports of TensorFlow, TFDS, Keras, NumPy and decoders, so that configs and plans don't wait for them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Placeholder of a module, which imports it on first use, and keeps what it has been asked for."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


tf: Any = _Lazy("tensorflow")
tfds: Any = _Lazy("tensorflow_datasets")
keras: Any = _Lazy("keras")
simplejpeg: Any = _Lazy("simplejpeg")
cv2: Any = _Lazy("cv2")
np: Any = _Lazy("numpy")
