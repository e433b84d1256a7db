"""Models of rows: dense layers over numbers, vectors and embeddings of categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from etlrun.stages.base import TRAINING, Flag, Positive, Rate
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network


@dataclass(frozen=True, kw_only=True)
class Tabular(Network):
    """Dense layers over all inputs side by side, of which the categories become vectors that are learned.

    Attributes:
        units: Units of each hidden layer.
        dropout: Share of the units of each hidden layer that are dropped in training.
        wide: Whether there is a linear part beside the hidden layers (wide and deep learning; Cheng et al. 2016).
    """

    path = "model.tabular"

    units: Annotated[tuple[Positive, ...], TRAINING]
    dropout: Annotated[Rate, TRAINING]
    wide: Annotated[Flag, TRAINING]

    @staticmethod
    def network(inputs: Mapping[str, Any], *, units: tuple[int, ...], dropout: float, wide: bool) -> Any:
        """Return the features (batch, features) from inputs (batch, ...) by name."""
        columns = [keras.layers.Flatten()(values) for values in inputs.values()]
        features = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
        deep = features
        for count in units:
            deep = keras.layers.Dense(count, activation="relu")(deep)
            deep = keras.layers.Dropout(dropout)(deep) if dropout else deep
        return keras.layers.Concatenate()([deep, features]) if wide else deep
