"""Models of sequences: embeddings of their items, and layers over them that leave out the padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from etlrun.stages.base import TRAINING, Positive, Rate
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network


@dataclass(frozen=True, kw_only=True)
class TextModel(Network):
    """Layers over the vectors of each sequence, whose result stands beside the other inputs.

    Attributes:
        layer: `pool` takes the mean of the vectors; `conv` the largest values of a convolution over three items; `gru`
            the last state of a gated recurrent unit; `transformer` the mean behind a layer of self-attention with four
            heads (Vaswani et al. 2017), in which a convolution tells the places (Chu et al. 2021).
        units: Units of the layer, and of the dense layer behind it.
        dropout: Share of the vectors' and the units' values that are dropped in training.
    """

    path = "model.text"
    takes_sequences = True

    layer: Annotated[Literal["pool", "conv", "gru", "transformer"], TRAINING]
    units: Annotated[Positive, TRAINING]
    dropout: Annotated[Rate, TRAINING]

    @staticmethod
    def network(inputs: Mapping[str, Any], masks: Mapping[str, Any], *, layer: str, units: int, dropout: float) -> Any:
        """Return the features (batch, features) from inputs (batch, ...) by name, of which sequences have masks."""
        columns = []
        for name, values in inputs.items():
            if name not in masks:
                columns.append(keras.layers.Flatten()(values))
                continue
            there = keras.ops.cast(keras.ops.expand_dims(masks[name], -1), values.dtype)
            is_number = values.shape[-1] == 1  # of which nothing is left if it is dropped
            items = (values if is_number else keras.layers.Dropout(dropout)(values)) * there
            if layer == "gru":
                columns.append(keras.layers.GRU(units)(items, mask=masks[name]))
            elif layer == "conv":
                found = keras.layers.Conv1D(units, 3, padding="same", activation="relu")(items)
                columns.append(keras.layers.GlobalMaxPooling1D()(found * there))
            else:
                items = items if layer == "pool" else attended(items, masks[name], there, units)
                columns.append(keras.ops.sum(items, axis=1) / keras.ops.maximum(keras.ops.sum(there, axis=1), 1))
        features = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
        features = keras.layers.Dense(units, activation="relu")(features)
        return keras.layers.Dropout(dropout)(features)


def attended(items: Any, mask: Any, there: Any, units: int) -> Any:
    """Return items (batch, items, dimension) behind a layer of self-attention, as (batch, items, units)."""
    placed = items + keras.layers.Conv1D(items.shape[-1], 3, padding="same")(items)
    placed = keras.layers.Dense(units)(placed)
    attention = keras.layers.MultiHeadAttention(4, max(units // 4, 1))
    found = attention(placed, placed, attention_mask=keras.ops.expand_dims(mask, 1))
    found = keras.layers.LayerNormalization()(placed + found)
    inner = keras.layers.Dense(units)(keras.layers.Dense(2 * units, activation="relu")(found))
    return keras.layers.LayerNormalization()(found + inner) * there
