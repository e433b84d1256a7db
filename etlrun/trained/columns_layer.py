"""A layer of Keras that makes the inputs of a model from columns, with the operations of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from etlrun.graph.datasets import with_tables
from etlrun.planning.learned import outputs_of
from etlrun.stages.columns import Columns
from etlrun.stages.flow import MISSING
from etlrun.stages.sequences import padded


class ColumnsLayer(keras.layers.Layer):  # type: ignore[misc]
    """The outputs of `transform.columns` by name, of batches of columns by the names of an export's inputs.

    A saved model needs this class: `import etlrun.trained.columns_layer` before Keras loads it. It runs on the backend
    `tensorflow` alone, since others have no texts.
    """

    def __init__(  # noqa: PLR0913 - each is a field of its config
        self,
        outputs: Mapping[str, Any],
        columns: Mapping[str, str],
        *,
        beside: bool = False,
        dropped: Sequence[str] = (),
        empty_is_missing: Sequence[str] = (),
        required: Sequence[str] = (),
        lists: Sequence[str] = (),
        lengths: Mapping[str, str] | None = None,
        **others: Any,
    ) -> None:
        """Make the layer of `outputs` as `Columns.described` describes them.

        `columns` are the names of the columns by those of the inputs. If the outputs stand `beside` them, all columns
        but those `dropped` are outputs, too. Of the inputs `empty_is_missing` an empty text is
        a missing value, and those `required` must have no missing one. Those of
        `lists` have NaN, or of integers the smallest one, behind their items, unless `lengths` names the input with the
        numbers of their items.
        """
        super().__init__(**{**others, "autocast": False, "trainable": False})
        self._convert_input_args = False  # to the dtype of the layer
        self.supports_jit = False  # texts and tables are not compiled
        self.outputs, self.columns, self.beside, self.dropped = dict(outputs), dict(columns), beside, list(dropped)
        self.empty_is_missing, self.required = list(empty_is_missing), list(required)
        self.lists, self.lengths = list(lists), dict(lengths or {})
        whole = Columns(outputs=outputs_of(outputs), dropped=tuple(dropped), beside=beside)
        self._held, self.tables = with_tables(whole)  # tables are tracked, so that exports have them

    def call(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of the model by name, (batch, ...)."""
        given = {column: self._given(name, inputs) for name, column in self.columns.items()}
        return padded(self._held.given(given))

    def _given(self, name: str, inputs: Mapping[str, Any]) -> Any:
        values = inputs[name]
        if name in self.empty_is_missing:
            values = tf.where(values == "", tf.constant(MISSING), values)
        if name in self.lists:
            return in_lists(values, inputs.get(self.lengths.get(name, "")))
        if name not in self.required:
            return values
        is_missing = values == MISSING if values.dtype == tf.string else tf.math.is_nan(values)
        there = tf.debugging.Assert(~tf.reduce_any(is_missing), [f"{name} has no value"])
        with tf.control_dependencies([there]):
            return tf.identity(values)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this layer again."""
        names = ("outputs", "columns", "beside", "dropped", "empty_is_missing", "required", "lists", "lengths")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def in_lists(values: Any, lengths: Any = None) -> tf.RaggedTensor:
    """Return lists of different lengths, of numbers (batch, items).

    Without their `lengths`, ints (batch,), they end before NaN, or of integers before the smallest one.
    """
    if lengths is None:
        places = tf.range(1, tf.shape(values)[1] + 1)
        is_padding = tf.math.is_nan(values) if values.dtype.is_floating else values == values.dtype.min
        lengths = tf.maximum(tf.reduce_max(tf.where(is_padding, 0, places), axis=1), 0)
    return tf.RaggedTensor.from_tensor(values, lengths=lengths)


keras.saving.register_keras_serializable("etlrun")(ColumnsLayer)
