"""Items of lists that are beyond the categories of a step: the first of them, and where it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.reader import Reader
from etlrun.stages.column_buckets import Identity
from etlrun.stages.columns import Output


def beyond(output: Output, place: int, readers: Sequence[Reader]) -> str:
    """Return which item of lists is the first that `identity`, the step at `place`, has no category for, for people."""
    before = output.steps[:place]
    if not isinstance([*output.steps, None][place], Identity) or not all(step.is_fitted for step in before):
        return ""
    for reader in readers if output.of[0] in readers[0].columns else ():
        values = reader.behind(before)
        if not pa.types.is_large_list(values.type):
            break
        numbers, most = values.flatten(), output.steps[place].arguments["categories"]
        at = pc.index(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, most)), value=True).as_py()
        if at >= 0:
            row = pc.list_parent_indices(values)[at].as_py()
            return f"{numbers[at]} of {output.of[0]} in {reader.split.where(reader.split.shards[0], row)}"
    return ""
