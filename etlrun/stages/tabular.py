"""Models of rows: dense layers over numbers, vectors and embeddings of categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from etlrun.stages.base import TRAINING, Expected, Flag, Positive
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.lazy import keras
from etlrun.stages.model import Model

_Rate = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class Tabular(Model):
    """Dense layers over all inputs side by side, of which the categories become vectors that are learned.

    Attributes:
        units: Units of each hidden layer.
        dropout: Share of the units of each hidden layer that are dropped in training.
        wide: Whether there is a linear part beside the hidden layers (wide and deep learning; Cheng et al. 2016).
    """

    path: ClassVar[str] = "model.tabular"
    block: ClassVar[str] = "model"
    trainable: ClassVar[bool] = True
    weights: ClassVar[None] = None

    units: Annotated[tuple[Positive, ...], Expected("a list of positive integers"), TRAINING]
    dropout: Annotated[_Rate, Expected("a number in [0, 1)"), TRAINING]
    wide: Annotated[Flag, TRAINING]

    def flow(self, incoming: Flow) -> Flow:
        super().flow(incoming)
        for name in incoming.inputs:
            feature = incoming.features[name]
            if feature.dtype == "string" or feature.format == "timestamp":
                raise UnfitError(expected=f"numbers or categories, not {name}", remedy="add steps to transform.columns")
            if feature.has_missing:
                raise UnfitError(expected=f"a value of {name} in each row", remedy="add {fill: median} to its steps")
            if feature.categories is not None and feature.embedding is None:
                raise UnfitError(expected=f"{name} as vectors", remedy="end its steps with one_hot or embed")
        return incoming

    @staticmethod
    def hidden(
        inputs: Mapping[str, Any],
        *,
        embedded: Mapping[str, tuple[int, int]],
        units: tuple[int, ...],
        dropout: float,
        wide: bool,
    ) -> Any:
        """Return the features (batch, features) from inputs by name, of which the `embedded` are categories."""
        columns = []
        for name, values in inputs.items():
            if name in embedded:
                categories, dimension = embedded[name]
                columns.append(keras.layers.Embedding(categories, dimension, name=f"{name}_embedding")(values))
            elif len(values.shape) == 1:
                columns.append(keras.layers.Reshape((1,))(values))
            else:
                columns.append(keras.layers.Flatten()(values))
        features = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
        deep = features
        for count in units:
            deep = keras.layers.Dense(count, activation="relu")(deep)
            deep = keras.layers.Dropout(dropout)(deep) if dropout else deep
        return keras.layers.Concatenate()([deep, features]) if wide else deep


def embedded(flow: Flow) -> dict[str, tuple[int, int]]:
    """Return the categories and the dimension of each input that is embedded."""
    found = ((name, flow.features[name]) for name in flow.inputs)
    return {name: (of.categories, of.embedding) for name, of in found if of.embedding and of.categories}
