"""Steps of this project. They refer to nothing but their arguments and `tf`, so that caches know when they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from etlrun.stages.base import DATA, Number
from etlrun.stages.flow import Feature
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import tf  # imports TensorFlow when it is used: plans don't wait for it
from etlrun.stages.step import Step


@dataclass(frozen=True, kw_only=True)
class Grey(Step):
    """Moves each pixel towards its brightness.

    Attributes:
        strength: Share of the way: 0 keeps all colour, 1 none.
    """

    path: ClassVar[str] = "transform.my_project_grey"  # in configs: its name in `steps`, and the block of its values

    strength: Annotated[Number, DATA]  # what a change of the value changes: the data

    def gives(self, incoming: Feature) -> Feature:
        """Return the type of the output; refuse what is no image."""
        require_decoded(incoming)
        return incoming.replace(dtype="float32")

    @staticmethod
    def op(image: tf.Tensor, *, strength: float) -> tf.Tensor:
        """Image (height, width, channels) of any dtype -> float32, same shape."""
        image = tf.cast(image, tf.float32)
        return image + strength * (tf.reduce_mean(image, axis=-1, keepdims=True) - image)
