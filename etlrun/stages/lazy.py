"""TensorFlow and Keras, imported when they are first used: configs and plans have no need to wait for them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for the module of its name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


tf: Any = _Lazy("tensorflow")
keras: Any = _Lazy("keras")
