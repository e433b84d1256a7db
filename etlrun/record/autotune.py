"""What AUTOTUNE settled on in a run, as a YAML overlay that is reviewed like any other change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from etlrun.errors import WorldError
from etlrun.record import record as records
from etlrun.record.summary import read_summary


def overlay(folder: Path) -> str:
    """The overlay of the run in `folder`; `WorldError` where there is no run, or nothing that AUTOTUNE has set."""
    summary = read_summary(folder)
    if summary is None or not (folder / records.EVENTS).is_file():
        raise WorldError(
            where=str(folder),
            found="no run" if summary is None else f"a run without {records.EVENTS}",
            expected="the folder of a run that was completed",
            remedy="give the folder that a run printed at its end",
        )
    tuned = summary.autotune
    if not tuned:
        raise WorldError(
            where=str(folder),
            found="nothing that AUTOTUNE has set" if tuned is not None else "a run that ended before it was measured",
            expected="a completed run with `autotune` in extract.num_parallel_calls, transform.num_parallel_calls or "
            "load.prefetch",
            remedy="run it with one of these set to autotune",
        )
    head = [
        "# @package _global_",
        f"# What AUTOTUNE settled on in {folder}, on {summary.host.cores or '?'} cores.",
        f"# The run: {' '.join(summary.overrides) or 'no overrides'}; plan {summary.plan_fingerprint}.",
    ]
    return "\n".join([*head, yaml.safe_dump(_nested(tuned), sort_keys=False)])


def _nested(values: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        group, name = key.split(".")
        nested.setdefault(group, {})[name] = value
    return nested
