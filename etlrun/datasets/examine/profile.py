"""Figures of a split that need no pass over images: of rows by their kept columns, of images by their files.

They are plain values, which a run keeps: `examples`, the `digest` of the records, and `columns`, each with its `type`,
the number of its `rows` and of what is `missing`, the `counts` of few values, and the least one, 5 %, median, 95 % and
the largest one of its numbers, or its times in microseconds (`quantiles`), and of its `lengths`.
"""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.datasets.examine.columns import numbers_of, plain
from etlrun.sources.base import Source, Split
from etlrun.sources.folder import FilesSource
from etlrun.sources.rows.dividing import names_examined
from etlrun.sources.rows.kept import remembered
from etlrun.sources.rows.source import RowsSource
from etlrun.system.values import Block

_FORMAT = 2
_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)
_AT_ONCE = 262_144
"""Rows of a column that are taken at once."""
_FEW, _MOST_CLASSES = 20, 1_000
"""Different values up to which those of a text, and those of a class to predict, are counted."""


def profiled(source: Source, split: Split, digest: str | None = None) -> Block:
    """Return the figures of a split, those of rows as they were found before, with the `digest` of its records."""
    columns: Block = {}
    if isinstance(source, RowsSource):
        columns = _of_rows(source, split)
    elif isinstance(source, FilesSource):
        classes = source.by_class(source.dataset, split.name) or {}
        whole = {"rows": split.num_examples, "missing": 0, "counts": {}, "quantiles": [], "lengths": []}
        label = {**whole, "type": "class", "counts": classes}
        sizes = {**whole, "type": "image", "lengths": _quantiles([*split.sizes.values()])}
        columns = {source.dataset.examples.target: label, "image": sizes}
    return {"examples": split.num_examples, "digest": digest, "columns": columns}


def _quantiles(values: Any) -> list[float]:
    return [*map(float, np.quantile(values, _QUANTILES))] if len(values) else []


def _of_rows(source: RowsSource, split: Split) -> Block:
    names = names_examined(source.kept, source.dataset)
    key = [_FORMAT, split.name, split.content.digest, names, [*source.dataset.target]]
    return remembered(
        source.kept.folder, "profile", key, lambda: {of: _column(source, split, of) for of in names}, dict
    )


def _column(source: RowsSource, split: Split, name: str) -> Block:
    column, whole, rows = source.kept.known.columns[name], source.kept.arrow(name), np.sort(split.numbers)
    is_class = name in {of.name for of in source.dataset.targets if of.kind != "number"}
    most = _MOST_CLASSES if is_class else min(_FEW, len(rows) // 2) if column.type in ("text", "truth") else 0
    is_image, is_list = column.feature.format == "image", pa.types.is_nested(whole.type)
    is_counted = column.distinct is not None and column.distinct <= most and not (is_list or is_image)
    counts, numbers, lengths = Counter[Any](), [np.empty(0)], [np.empty(0)]
    count = missing = 0
    for start in range(0, len(rows), _AT_ONCE):
        values = whole.take(pa.array(rows[start : start + _AT_ONCE]))
        if pa.types.is_large_list(values.type):
            lengths.append(pc.list_value_length(values).to_numpy(zero_copy_only=False))
        values = values.flatten() if is_list else values
        count, missing, there = count + len(values), missing + values.null_count, values.drop_null()
        if is_counted:
            found = pc.value_counts(there)
            counts.update(dict(zip(*(found.field(part).to_pylist() for part in (0, 1)), strict=True)))
        elif pa.types.is_large_binary(there.type):
            sizes = pc.binary_length(there) if is_image else pc.utf8_length(there.cast(pa.large_string(), safe=False))
            lengths += [] if column.is_path else [sizes.to_numpy()]
        else:
            numbers.append(numbers_of(there))
    return {
        "type": column.type,
        "rows": count,
        "missing": missing,
        "counts": {plain(value, column.type): count for value, count in counts.most_common()},
        "quantiles": _quantiles(np.concatenate(numbers)),
        "lengths": _quantiles(np.concatenate(lengths)),
    }
