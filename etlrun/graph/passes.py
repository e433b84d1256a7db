"""Dataset with iterators made by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class Passes(tf.data.Dataset):  # type: ignore[misc]
    """Dataset that Keras treats as `like`, and reads through the iterators of `begin`, with the same elements."""

    def __init__(self, like: tf.data.Dataset, begin: Callable[[], Iterator[Any]]) -> None:
        self._like, self._begin = like, begin
        super().__init__(like._variant_tensor)  # noqa: SLF001 - as tf.data's own wrappers do

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._like]

    @property
    def element_spec(self) -> Any:
        """Element spec of `like`."""
        return self._like.element_spec

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
