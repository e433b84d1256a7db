"""Files of tables as batches of rows, of one schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from etlrun.sources.shards import matched, unmatched
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
"""Formats of tables by the ends of the names of their files."""


def files_of(dataset: Table) -> dict[str, list[str]]:
    """Return the paths of the files of each split; raise `EtlrunError` if a pattern names none."""
    found = {split: matched(pattern) for split, pattern in dataset.patterns.items()}
    faults = [
        Fault(
            where=dataset.key("files"),
            found=f"no file {dataset.patterns[split]} for {split}",
            expected=f"a pattern of files that end in {', '.join(_FORMATS)}",
            remedy=unmatched(dataset.patterns[split])
            or "check the pattern; relative ones start in the folder of the command",
        )
        for split, paths in found.items()
        if not paths
    ]
    if faults:
        raise EtlrunError(faults)
    return {split: [*paths] for split, paths in found.items()}


def is_there(dataset: Table) -> bool:
    """Return whether each pattern names a file on this machine."""
    return all(matched(pattern) for pattern in dataset.patterns.values())


def batches(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, in order, with the types of `Writer`."""
    source = pyarrow.dataset.dataset(path, format=_FORMATS[Path(path).suffix])
    for batch in source.to_batches():
        yield pa.RecordBatch.from_arrays(
            [_plain(values) for values in batch.columns], names=[str(name) for name in batch.schema.names]
        )


def _plain(values: pa.Array) -> pa.Array:
    """Return the values of one of the types that are kept."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return values.cast(pa.timestamp("us"))
    return values if pa.types.is_boolean(kind) else values.cast(pa.large_string())
