"""Weights of classes in programs."""

from __future__ import annotations

import functools

import numpy as np

from etlrun.eject.printed.given import TRAIN_SPLIT, labels_of, num_classes
from etlrun.stages.balance import balanced


@functools.cache
def class_weights() -> list[float]:
    """Return the weight of each class."""
    return balanced(np.bincount(labels_of(TRAIN_SPLIT), minlength=num_classes()).tolist())
