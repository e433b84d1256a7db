"""A learning rate that rises before it follows another schedule; programs contain the text of this class."""

from __future__ import annotations

import keras
import tensorflow as tf


class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Rises linearly from 0 to the first rate of another schedule, whose steps begin after the warm-up."""

    def __init__(self, after: keras.optimizers.schedules.LearningRateSchedule, warmup_steps: int) -> None:
        self.after, self.warmup_steps = after, warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the rate of a step, a float32 scalar."""
        past = keras.ops.cast(step, "float32") - self.warmup_steps
        rising = keras.ops.minimum(1.0 + past / self.warmup_steps, 1.0)
        return rising * self.after(keras.ops.maximum(past, 0.0))

    def get_config(self) -> dict[str, object]:
        """Return what makes this schedule again."""
        return {"after": keras.optimizers.schedules.serialize(self.after), "warmup_steps": self.warmup_steps}

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Warmup:
        """Return the schedule of a config."""
        after = keras.optimizers.schedules.deserialize(config["after"])
        return cls(**{**config, "after": after})


keras.saving.register_keras_serializable("etlrun")(Warmup)
