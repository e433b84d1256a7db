"""A layer of Keras that makes the inputs of a model from columns, with the operations of the pipeline."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from etlrun.graph.datasets import with_tables
from etlrun.stages.columns import Columns, outputs_of
from etlrun.stages.flow import MISSING
from etlrun.stages.load import padded
from etlrun.system.values import Block
from etlrun.trained.scores import Tensors


class ColumnsLayer(keras.layers.Layer):  # type: ignore[misc]
    """The outputs of `transform.columns` by name, of batches of columns by the names of an export's inputs.

    A saved model needs this class: `import etlrun.trained.columns_layer` before Keras loads it. It runs on the backend
    `tensorflow` alone, since others have no texts.
    """

    def __init__(
        self,
        outputs: Block,
        taken: Sequence[Block],
        *,
        beside: bool = False,
        dropped: Sequence[str] = (),
        **others: Any,
    ) -> None:
        """Make the layer of `outputs` as `Columns.described` describes them.

        If they stand `beside` the columns, all of these but those `dropped` are outputs, too. The inputs that are
        `taken` have a `name` and that of their `column`. One may be `is_required`, without a missing value, or
        `is_missing_when_empty`, where an empty text is one. One that `is_list` has NaN, or of integers the smallest
        one, behind its items, unless `lengths` names the input with the numbers of its items.
        """
        super().__init__(**{**others, "autocast": False, "trainable": False})
        self._convert_input_args = False  # to the dtype of the layer
        self.supports_jit = False  # texts and tables are not compiled
        self.outputs, self.taken = dict(outputs), [dict(of) for of in taken]
        self.beside, self.dropped = beside, list(dropped)
        whole = Columns(outputs=outputs_of(outputs), dropped=tuple(dropped), beside=beside)
        self._held, self.tables = with_tables(whole)  # tables are tracked, so that exports have them

    def call(self, inputs: Tensors) -> Tensors:
        """Return the inputs of the model by name, (batch, ...)."""
        return padded(self._held.given({of["column"]: self._given(of, inputs) for of in self.taken}))

    def _given(self, of: Block, inputs: Tensors) -> Any:
        values = inputs[of["name"]]
        if of["is_missing_when_empty"]:
            values = tf.where(values == "", tf.constant(MISSING), values)
        if of["is_list"]:
            lengths = inputs.get(of["lengths"])
            if lengths is None:  # lists end before NaN, or of integers before the smallest one
                places = tf.range(1, tf.shape(values)[1] + 1)
                is_padding = tf.math.is_nan(values) if values.dtype.is_floating else values == values.dtype.min
                lengths = tf.maximum(tf.reduce_max(tf.where(is_padding, 0, places), axis=1), 0)
            return tf.RaggedTensor.from_tensor(values, lengths=lengths)
        if not of["is_required"]:
            return values
        is_missing = values == MISSING if values.dtype == tf.string else tf.math.is_nan(values)
        there = tf.debugging.Assert(~tf.reduce_any(is_missing), [f"{of['name']} has no value"])
        with tf.control_dependencies([there]):
            return tf.identity(values)

    def get_config(self) -> Block:
        """Return what makes this layer again."""
        names = ("outputs", "taken", "beside", "dropped")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


keras.saving.register_keras_serializable("etlrun")(ColumnsLayer)
