"""What flows from one stage to the next, known before TensorFlow is imported."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal


class UnfitError(Exception):
    """A stage can't take what the stage before it gives."""

    def __init__(self, *, expected: str, remedy: str) -> None:
        self.expected = expected
        self.remedy = remedy
        super().__init__(expected)


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The examples at one point of a pipeline, each a picture and its label.

    Attributes:
        content: `record` (a serialised example), `encoded` (the picture's file), `decoded` (pixels) or `features`
            (of a picture, as a frozen base sees it).
        dtype: Of the pixels.
        height: Of the picture in pixels; None where pictures differ. So is `width`.
        low: The least value that a pixel can have. `high` is the largest.
        features: Numbers for each picture; None for pictures.
        batch_size: Examples in an element; None before batching.
    """

    content: Literal["record", "encoded", "decoded", "features"] = "record"
    dtype: Literal["uint8", "float32"] = "uint8"
    height: int | None = None
    width: int | None = None
    low: float = 0.0
    high: float = 255.0
    features: int | None = None
    batch_size: int | None = None

    def replace(self, **changes: object) -> Flow:
        """This flow with some attributes changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    @property
    def example_bytes(self) -> int | None:
        """Of one picture, or of its features; None where they differ in size."""
        itemsize = 4 if self.dtype == "float32" else 1
        if self.features is not None:
            return self.features * itemsize
        if self.content != "decoded" or self.height is None or self.width is None:
            return None
        return self.height * self.width * 3 * itemsize

    def __str__(self) -> str:
        if self.content == "record":
            return "serialised example"
        if self.content == "encoded":
            return "encoded picture, label"
        batch = f"{self.batch_size} x " if self.batch_size else ""
        if self.content == "features":
            return f"{batch}{self.dtype} [{self.features}], label"
        shape = ", ".join(str(size or "?") for size in (self.height, self.width, 3))
        return f"{batch}{self.dtype} [{shape}] in [{self.low:g}, {self.high:g}], label"

    def require_decoded(self) -> None:
        """Raise `UnfitError` unless these are pixels."""
        if self.content != "decoded":
            raise UnfitError(expected="a decoded picture", remedy="put `decode` before it in the steps")
