"""Arrow's types of lists: which they are, lists of views, and lists of texts as texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.stages.rows import BETWEEN


def is_list(values: pa.DataType) -> bool:
    """Return whether a type is that of lists."""
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(values) for check in checks) or is_view(values)


def is_view(values: pa.DataType) -> bool:
    """Return whether a type is that of views of lists."""
    return bool(pa.types.is_list_view(values) or pa.types.is_large_list_view(values))


def from_views(values: pa.Array) -> pa.Array:
    """Return lists of which each has its own items, which Arrow's own cast of views gets wrong."""
    lengths = pc.list_value_length(values).fill_null(0).cast(pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return pa.LargeListArray.from_arrays(ends, values.flatten(), mask=values.is_null())


def joined_texts(values: pa.Array) -> pa.Array:
    """Return the items of each list as one text, with `BETWEEN` between two; null if the list or an item is missing."""
    return pc.binary_join(values.cast(pa.large_list(pa.large_string())), pa.scalar(BETWEEN, pa.large_string()))
