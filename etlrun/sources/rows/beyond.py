"""Items of lists for which a step has no result: the first of them, and where it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.reader import Reader
from etlrun.stages.column_categories import Identity
from etlrun.stages.column_numbers import ColumnStep, Log1p, UnfitColumnError
from etlrun.stages.columns import Output


def beyond(output: Output, place: int, readers: Sequence[Reader]) -> UnfitColumnError | None:
    """Return the error of the first item of lists for which the step at `place` has no result; None if all have one."""
    step, before = [*output.steps, None][place], output.steps[:place]
    is_bounded = isinstance(step, Identity | Log1p) and all(of.is_fitted for of in before)
    for reader in readers if is_bounded and output.of[0] in readers[0].columns else ():
        values = reader.behind(before)
        if not pa.types.is_large_list(values.type):
            break
        numbers = values.flatten()
        at = pc.index(_unfit(step, numbers), value=True).as_py()
        if at >= 0:
            row = pc.list_parent_indices(values)[at].as_py()
            found = f"{numbers[at]} of {output.of[0]} in {reader.split.where(reader.split.shards[0], row)}"
            if not isinstance(step, Identity):
                return UnfitColumnError(found, "values above -1", "put {clip: [0, null]} before it, or leave it out")
            last = step.categories - 1
            remedy = f"name more categories, or put {{clip: [0, {last}]}} before it"
            return UnfitColumnError(found, f"integers from 0 to {last}", remedy)
    return None


def _unfit(step: ColumnStep | None, numbers: pa.Array) -> pa.Array:
    """Return for which numbers a step has no result."""
    if isinstance(step, Identity):
        return pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, step.categories))
    return pc.less_equal(numbers, -1)
