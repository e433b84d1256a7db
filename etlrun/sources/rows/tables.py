"""Tables as a source of rows."""

from __future__ import annotations

from etlrun.remote.copies import named_by_url
from etlrun.sources.rows.files import files_of, is_there
from etlrun.sources.rows.keeping import kept_of
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import Rows, Table


class TableSource(RowsSource):
    """Rows of tables."""

    @classmethod
    def files(cls, dataset: Rows) -> dict[str, list[str]]:
        return files_of(_table(dataset))

    @classmethod
    def is_there(cls, dataset: Rows) -> bool:
        return is_there(_table(dataset))

    @classmethod
    @named_by_url()
    def opened(cls, dataset: Rows) -> Kept:
        return kept_of(_table(dataset))


def _table(dataset: Rows) -> Table:
    assert isinstance(dataset, Table)  # noqa: S101 - its `source` is the class above
    return dataset
