"""Columns of rows as the training has fitted them, in the plans of commands on its run; without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from etlrun.planning.learned import FILE
from etlrun.planning.spec import RunSpec
from etlrun.sources.base import source_type
from etlrun.stages.dataset import Dataset
from etlrun.stages.rows import Rows
from etlrun.system.errors import Fault


def like_the_training(spec: RunSpec, then: RunSpec, *, reads: bool) -> RunSpec:
    """Return a run of rows with the columns that the training has fitted; any other as it is.

    `reads` says whether the command reads rows of a dataset.
    """
    if not isinstance(spec.dataset, Rows):
        return spec
    from etlrun.planning.rows import with_columns_of  # which imports Arrow

    return with_columns_of(spec, then, reads=reads)


def absent(dataset: Dataset) -> Iterator[Fault]:
    """Yield that the rows that a command reads are not on this machine."""
    if isinstance(dataset, Rows) and not _is_there(dataset):
        expected = "the rows to read: the folder of a run has what their columns have learned, and no rows"
        where, remedy = dataset.key(dataset.given_by), dataset.restore
        yield Fault(where=where, found="no rows on this machine", expected=expected, remedy=remedy)


def unfitted(folder: Path, dataset: Dataset) -> Iterator[Fault]:
    """Yield that neither the folder of a run has what its columns have learned, nor this machine their rows."""
    if isinstance(dataset, Rows) and not dataset.found.identity:
        found, where = f"no {FILE}, and no rows of {dataset.title} on this machine", str(folder)
        expected, remedy = "what the columns have learned", f"restore the file; or {dataset.restore}"
        yield Fault(where=where, found=found, expected=expected, remedy=remedy)


def _is_there(dataset: Rows) -> bool:
    from etlrun.sources.rows.source import RowsSource  # which imports Arrow

    return cast("type[RowsSource]", source_type(dataset)).is_there(dataset)
