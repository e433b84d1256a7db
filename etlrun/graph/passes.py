"""A dataset whose iterations are made by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class Passes(tf.data.Dataset):  # type: ignore[misc]
    """What Keras takes for `like`, and reads by the iterators that `begin` gives, of the same elements."""

    def __init__(self, like: tf.data.Dataset, begin: Callable[[], Iterator[Any]]) -> None:
        self._like, self._begin = like, begin
        super().__init__(like._variant_tensor)  # noqa: SLF001 - what tf.data's own wrappers pass on

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._like]

    @property
    def element_spec(self) -> Any:
        """As that of `like`."""
        return self._like.element_spec

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
