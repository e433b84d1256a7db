"""Code of installed packages in a run, which its fingerprint and its folder have beside the values of its config."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from etlrun.planning.plan import Plan
from etlrun.planning.spec import RunSpec
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, MODELS, STEPS, Plugin, named

_WORDS = {LOSSES: "the loss ", METRICS: "the metric ", CALLBACKS: "the callback "}


def code_in(spec: RunSpec) -> dict[str, str]:
    """Return package, version and code of each step, model, loss, metric and callback that packages add to a run."""
    return {name: plugin.code for name, plugin in plugins_in(spec).items()}


def plugins_in(spec: RunSpec) -> dict[str, Plugin]:
    """Return the steps, the model, the loss, metrics and callbacks that packages add to a run, by their names in it."""
    steps = dict.fromkeys((*spec.transform.steps, *spec.eval_transform.steps))
    stages = [(STEPS, step.path) for step in steps] + [(MODELS, spec.model.path)]
    used = {path: plugin for group, path in stages if (plugin := named(group, path.partition(".")[2])) is not None}
    if spec.fit is not None:
        used |= {f"{_WORDS[of.group]}{of.name}": of for of in spec.fit.own_functions}
    return used


def as_recorded(plan: Plan, path: Path) -> Plan:
    """Return the plan of a run with the code that its `plan.json` has noted; as it is if there is no such file."""
    try:
        code = json.loads(path.read_text(encoding="utf-8")).get("code", {})
    except (OSError, ValueError, AttributeError):
        return plan
    return dataclasses.replace(plan, code=code)
