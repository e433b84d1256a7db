"""Export of the values that AUTOTUNE chose in a run, as a YAML overlay to review like any other change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from etlrun.record import record as records
from etlrun.record.summary import read_summary
from etlrun.system.errors import WorldError


def overlay(folder: Path) -> str:
    """Return the overlay of the run in `folder`; `WorldError` if there is no run, or AUTOTUNE has set nothing."""
    summary = read_summary(folder)
    if summary is None or not (folder / records.EVENTS).is_file():
        raise WorldError(
            where=str(folder),
            found="no run" if summary is None else f"a run without {records.EVENTS}",
            expected="the folder of a completed run",
            remedy="pass the folder that a run prints at its end",
        )
    tuned = summary.autotune
    if not tuned:
        raise WorldError(
            where=str(folder),
            found="no value set by AUTOTUNE" if tuned is not None else "a run that ended before it was measured",
            expected="a completed run with `autotune` in extract.num_parallel_calls, transform.num_parallel_calls, "
            "load.num_parallel_calls or load.prefetch",
            remedy="run it with one of these set to autotune",
        )
    head = [
        "# @package _global_",
        f"# Values chosen by AUTOTUNE in {folder}, on {summary.host.cores or '?'} cores.",
        f"# Run: {' '.join(summary.overrides) or 'no overrides'}; plan {summary.plan_fingerprint}.",
    ]
    return "\n".join([*head, yaml.safe_dump(_nested(tuned), sort_keys=False)])


def _nested(values: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        group, name = key.split(".")
        nested.setdefault(group, {})[name] = value
    return nested
