"""Classes of the examples of a split, for runs whose training depends on their shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from etlrun.sources.base import Source, Split
from etlrun.sources.corrupt import raise_first
from etlrun.stages.lazy import tf
from etlrun.stages.load import TO_SKIP


def labels_of(source: Source, split: Split, *, by_number: bool) -> npt.NDArray[np.int64]:
    """Return the class of each example in the order of the data, in [0, num_classes); images are not decoded.

    With `dataset.on_corrupt=skip`, records without such a class are left out. `by_number` says whether examples are
    read by number, which can't skip any.

    Raises:
        WorldError: A record is corrupt, or a file can't be read.
    """
    try:
        found = source.labels_of(split)
    except tf.errors.OpError as error:
        raise_first(error, source, split, TO_SKIP if by_number else "")
        raise
    is_class = (found >= 0) & (found < (source.num_classes or 0))
    if not is_class.all() and source.dataset.on_corrupt != "skip":
        raise_first(None, source, split, TO_SKIP if by_number else "")
    return found[is_class]


def counts_of(source: Source, split: Split, *, by_number: bool) -> dict[str, int]:
    """Return the number of examples of each class by its name, in the order of the classes; see `labels_of`."""
    classes = source.num_classes or 0
    counts = np.bincount(labels_of(source, split, by_number=by_number), minlength=classes)
    return dict(zip(source.names_of_classes or (), map(int, counts), strict=True))
