"""What the functions of the stages share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from etlrun.graph.source import Source, Split

_PASS_STRIDE = 1_000_003
"""A prime: the seeds of the passes of one run don't meet those of a run with another small seed."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a pipeline stands.

    Attributes:
        source: The data set.
        split: The examples that are read.
        folder: For this pipeline's own files; made when a stage needs it.
        examples_left: After a pass, the examples that corrupt records left of it; int64 scalar.
    """

    source: Source
    split: Split
    folder: Path
    examples_left: tf.Variable


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass over the data.

    Attributes:
        number: From 0; a Python integer or an int64 scalar.
        seed: Of the run.
    """

    number: int | tf.Tensor
    seed: int

    def stage_seed(self, seed: int) -> tf.Tensor:
        """A seed, int64 scalar, for this pass and a stage's own seed."""
        return tf.cast(self.number, tf.int64) + tf.constant(seed * _PASS_STRIDE, tf.int64)
