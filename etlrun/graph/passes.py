"""Dataset with iterators made by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class Passes(tf.data.Dataset):  # type: ignore[misc]
    """Dataset that Keras treats as `like`, and reads through the iterators of `begin`, with the same elements.

    Attributes:
        begin: Function that begins a pass.
        handed: Function from what an iterator gives to an element; None if they are the same. It is called outside of
            any graph, where it takes no node and no thread.
    """

    def __init__(
        self, like: tf.data.Dataset, begin: Callable[[], Iterator[Any]], handed: Callable[[Any], Any] | None = None
    ) -> None:
        self._like, self.begin, self.handed = like, begin, handed
        super().__init__(like._variant_tensor)  # noqa: SLF001 - as tf.data's own wrappers do

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._like]

    @property
    def element_spec(self) -> Any:
        """Element spec of `like`."""
        return self._like.element_spec

    def __iter__(self) -> Iterator[Any]:
        return self.begin() if self.handed is None else map(self.handed, self.begin())
