"""Values of rows that a model can't take: those that float32 does not hold behind the steps of their output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.kept import Kept
from etlrun.stages.column_numbers import LARGEST
from etlrun.stages.columns import Output
from etlrun.system.errors import WorldError


def require_held(
    kept: Kept, outputs: Sequence[Output], batch: Mapping[str, Any], rows: Numbers, place: Callable[[int], str]
) -> None:
    """Raise `WorldError` for the first of the kept `rows` of a batch with an output that is infinite.

    `batch` has the outputs by name; `place` names a row of the batch.
    """
    for output in outputs:
        if output.name not in batch or not batch[output.name].dtype.is_floating:
            continue
        unheld = np.isinf(np.asarray(batch[output.name])).reshape(len(rows), -1).any(axis=1)
        if not unheld.any():
            continue
        at = int(unheld.argmax())
        takes = "predicts" if output.is_of_target else "takes"
        raise WorldError(
            where=f"{place(at)}, {', '.join(output.of)}",
            found=", ".join(_largest(kept, batch, name, at, int(rows[at])) for name in output.of),
            expected=f"numbers of at most {LARGEST:.4g}, since a model {takes} float32",
            remedy="repair the value, or write it in the unit of the training",
        )


def _largest(kept: Kept, batch: Mapping[str, Any], name: str, at: int, row: int) -> str:
    """Return the value of a column, or of an output above, in a row: of several the largest one."""
    value = kept.arrow(name)[row].as_py() if name in kept.known.columns else np.asarray(batch[name])[at].tolist()
    return str(max(value, key=abs) if isinstance(value, list) else value)
