"""What the functions of the stages share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from etlrun.graph.source import Source, Split


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a pipeline stands.

    Attributes:
        source: The data set.
        split: The examples that are read.
        folder: For this pipeline's own files; made when a stage needs it.
        seed: Of the run.
        passes_begun: Over the data, where something random is done to an example; int64 scalar.
    """

    source: Source
    split: Split
    folder: Path
    seed: int
    passes_begun: tf.Variable
