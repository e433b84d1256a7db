"""Models of this project. Head, loss and metrics are etlrun's, by the kind of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from etlrun.stages.base import TRAINING, Positive
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network


@dataclass(frozen=True, kw_only=True)
class SmallNet(Network):
    """Convolutions over one image, each of which halves its sides.

    Attributes:
        units: Channels of the first convolution; each further one has twice as many.
    """

    path: ClassVar[str] = "model.my_project_net"

    units: Annotated[Positive, TRAINING]  # what a change of the value changes: the training

    @staticmethod
    def network(inputs: Mapping[str, Any], *, units: int) -> Any:
        """Inputs (batch, height, width, channels) by name -> features (batch, 4 * units)."""
        (values,) = inputs.values()
        for factor in (1, 2, 4):
            values = keras.layers.Conv2D(units * factor, 3, strides=2, padding="same", activation="relu")(values)
        return keras.layers.GlobalAveragePooling2D()(values)
