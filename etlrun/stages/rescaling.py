"""Scaling of pixels as a layer of Keras does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rescaling:
    """Computes `image * scale + offset`, as `keras.layers.Rescaling` does.

    Attributes:
        scale: Factor of all channels, or one for each.
        offset: Number that is added to all channels, or one for each.
        reverses: Whether the channels are reversed first.
    """

    scale: float | list[float]
    offset: float | list[float]
    reverses: bool = False
