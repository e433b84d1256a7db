"""Renderings of a plan: text for pull requests, JSON for machines, Mermaid for diagrams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from etlrun.planning.plan import Plan, PlannedStage, kinds_in, sections
from etlrun.planning.spec import RunSpec, bare
from etlrun.stages.base import Parameter, Stage, parameters
from etlrun.stages.columns import Columns
from etlrun.stages.trainer import PlannedPhase
from etlrun.system import machine
from etlrun.system.errors import printable
from etlrun.system.machine import CORES, calls_here, rounded

FORMAT_VERSION = 1
_MOST_LISTED = 1_000
"""Most values of a list in the JSON of a plan: `columns.json` of a run has all of a vocabulary."""
_INDENT = " " * 5
_WIDTHS = (22, 20)
_STEP_WIDTH = 29


def text(plan: Plan, cores: int | None = None, read_bytes: float | None = None) -> str:
    """Return the plan with a line for each stage and each parameter with its kind, so that a diff shows what changed.

    Optional parameters that do nothing, such as null, are left out. With `cores`, values such as `cores-1` are also
    shown as numbers; with `read_bytes`, the mean size of an example in its file, also the size of a buffer of such
    examples. Without, the text holds for any machine.
    """
    lines = ["dataset", *_parameter_lines(plan.spec, plan.spec.dataset, _INDENT, cores)]
    for title, stages in _pipelines(plan):
        lines += ["", title, *(_stage_lines(plan.spec, stages, cores, read_bytes) if stages else [f"{_INDENT}none"])]
    for stage in sections(plan.spec):
        steps = _step_lines(plan.spec, plan.by_model, cores) if stage is plan.spec.model else ()
        more = {"unfreeze": _layers(plan, stage)} if isinstance(stage, PlannedPhase) else {}
        lines += ["", stage.path, *steps, *_parameter_lines(plan.spec, stage, _INDENT, cores, more)]
    lines += [*_code_lines(plan), *chosen_columns(plan), "", f"fingerprint {plan.fingerprint}"]
    lines += [f"note: {remark}" for remark in plan.remarks]
    return "".join(f"{printable(line)}\n" for line in lines)


def _code_lines(plan: Plan) -> Iterator[str]:
    if plan.code:
        yield from ("", "code of installed packages")
    yield from (f"{_INDENT}{name:<{_WIDTHS[0] - 1}} {code}" for name, code in plan.code.items())


def chosen_columns(plan: Plan) -> Iterator[str]:
    """Yield the lines of what `transform.columns=auto` has chosen, as a config has it; none if nothing was chosen."""
    columns = next((step for step in plan.spec.transform.steps if isinstance(step, Columns)), None)
    if columns is None or not columns.chosen:
        return
    yield from ("", "# what transform.columns=auto has chosen, as a config has it", "transform:", "  columns:")
    for output in columns.chosen:
        of = output.of[0] if len(output.of) == 1 else list(output.of)
        written = {output.name: {"of": of, "steps": [step.written for step in output.steps]}}
        text = yaml.safe_dump(written, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
        yield f"    {text.strip()[1:-1]}"


def _pipelines(plan: Plan) -> Iterator[tuple[str, tuple[PlannedStage, ...]]]:
    """Yield the pipelines in order, each with its title: those of phases that cached features do not serve are last."""
    yield from (("train", plan.train), ("validation", plan.evaluation))
    if plan.unfrozen is not None and plan.spec.fit is not None:
        since = f", from phase {len(plan.spec.fit.frozen_phases) + 1} on"
        yield from ((f"{name}{since}", stages) for name, stages in plan.unfrozen.pipelines.items())


def _layers(plan: Plan, phase: PlannedPhase) -> str:
    """Return how many layers of the base a phase trains, in parentheses; an empty string for none."""
    model = plan.spec.model
    if phase.unfreeze is None:
        return ""
    return f" (the last {model.last_layers(phase.unfreeze)} of {model.layers})"


def text_here(plan: Plan, read_bytes: float | None = None) -> str:
    """Return the text of the plan for this machine."""
    return text(plan, machine.cores(), read_bytes)


def _stage_lines(
    spec: RunSpec, stages: tuple[PlannedStage, ...], cores: int | None, read_bytes: float | None
) -> Iterator[str]:
    for number, planned in enumerate(stages, 1):
        yield f"{number:3}. {planned.stage.path:<{_STEP_WIDTH}} -> {planned.gives}"
        size = _buffer(planned, read_bytes) if planned.stage.holds else ""
        yield from _parameter_lines(spec, planned.stage, _INDENT + "  ", cores, {"buffer_size": size})
        yield from _step_lines(spec, planned.steps, cores)


def _buffer(planned: PlannedStage, read_bytes: float | None) -> str:
    """Return the memory of a full buffer of examples; an empty string if nothing is known of their size."""
    each = planned.gives.example_bytes
    if each is None and read_bytes is None:
        return ""
    size = planned.stage.holds * (read_bytes or 0 if each is None else each)
    return f" ({'' if each is not None else 'about '}{rounded(size)})"


def _step_lines(spec: RunSpec, steps: tuple[PlannedStage, ...], cores: int | None) -> Iterator[str]:
    for letter, step in zip("abcdefghijklmnopqrstuvwxyz", steps, strict=False):
        yield f"{_INDENT}{letter}. {step.stage.path:<{_STEP_WIDTH}} -> {step.gives}"
        if isinstance(step.stage, Columns):
            yield from (f"{_INDENT}     {printable(name):<{_WIDTHS[0] - 1}} {line}" for name, line in step.stage.lines)
        else:
            yield from _parameter_lines(spec, step.stage, _INDENT + "     ", cores)


def _parameter_lines(
    spec: RunSpec, stage: Stage, indent: str, cores: int | None, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    for parameter in _shown(stage):
        value = bare(parameter.value)
        if value in CORES and cores is not None:
            calls, most = calls_here(value, cores), getattr(stage, "cycle_length", "all")
            value = f"{value} ({calls if most == 'all' else min(calls, most)})"
        value = f"{value}{more.get(parameter.name, '')}"
        yield f"{indent}{parameter.name:<{_WIDTHS[0] - 1}} {value:<{_WIDTHS[1]}} {kinds_in(spec, stage, parameter)[0]}"


def _shown(stage: Stage) -> list[Parameter]:
    """Return the parameters of a stage that people see: without optional ones that do nothing."""
    return [parameter for parameter in parameters(stage) if not parameter.is_idle]


def as_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values; `format` rises with each incompatible change."""
    trainer, fit = plan.spec.trainer, plan.spec.fit
    nested: dict[str, Any] = {}
    if fit is not None:
        nested = {name: _values(plan.spec, getattr(fit, name)) for name in ("early_stopping", "schedule")}
        nested |= {} if fit.phases is None else {"phases": [_values(plan.spec, phase) for phase in fit.planned_phases]}
    return {
        "format": FORMAT_VERSION,
        "fingerprint": plan.fingerprint,
        "dataset": _values(plan.spec, plan.spec.dataset),
        **_pipelines_dict(plan),
        **({} if plan.unfrozen is None else {"unfrozen": _pipelines_dict(plan.unfrozen)}),
        "model": {
            "stage": plan.spec.model.path,
            "parameters": _values(plan.spec, plan.spec.model),
            "steps": [_stage_dict(plan.spec, planned) for planned in plan.by_model],
        },
        "trainer": {"stage": trainer.path, "parameters": _values(plan.spec, trainer), **nested},
        "profile": {"stage": plan.spec.profile.path, "parameters": _values(plan.spec, plan.spec.profile)},
        "logger": {"stage": plan.spec.logger.path, "parameters": _values(plan.spec, plan.spec.logger)},
        "measure": _values(plan.spec, plan.spec.measure),
        **({"code": dict(plan.code)} if plan.code else {}),
        "remarks": list(plan.remarks),
    }


def _pipelines_dict(plan: Plan) -> dict[str, Any]:
    return {name: [_stage_dict(plan.spec, planned) for planned in stages] for name, stages in plan.pipelines.items()}


def _stage_dict(spec: RunSpec, planned: PlannedStage) -> dict[str, Any]:
    described: dict[str, Any] = {
        "stage": planned.stage.path,
        "parameters": _values(spec, planned.stage),
        "gives": str(planned.gives),
    }
    if planned.steps:
        described["steps"] = [_stage_dict(spec, step) for step in planned.steps]
    return described


def _values(spec: RunSpec, stage: Stage) -> dict[str, Any]:
    return {
        parameter.name: {
            "value": _without_long_lists(parameter.value),
            "kind": str(kinds_in(spec, stage, parameter)[0]),
        }
        for parameter in parameters(stage)
    }


def _without_long_lists(value: Any) -> Any:
    """Return a plain value with the lengths of lists in their place, if they are as long as vocabularies."""
    if isinstance(value, dict):
        return {key: _without_long_lists(of) for key, of in value.items()}
    if not isinstance(value, list):
        return value
    return f"{len(value):,} values" if len(value) > _MOST_LISTED else [_without_long_lists(of) for of in value]


def as_json(plan: Plan) -> str:
    """Return `as_dict` as indented JSON."""
    return json.dumps(as_dict(plan), indent=2) + "\n"


def mermaid(plan: Plan) -> str:
    """Return a Mermaid flowchart, which code hosts render in comments."""
    lines = ["flowchart LR"]
    for name, stages, split in (
        ("train", plan.train, plan.spec.dataset.split),
        ("validation", plan.evaluation, plan.spec.dataset.eval_split),
    ):
        if stages:
            lines.append(f'  {name}_0[("{_label(plan.spec.dataset.title, split)}")]')
            lines += _chain(name, stages)
            lines.append(f"  {name}_{len(stages)} --> model")
    scaling = [planned.stage.path for planned in plan.by_model]
    lines.append(f'  model["{_label(*scaling, plan.spec.model.path)}"]')
    return "\n".join(lines) + "\n"


def _chain(name: str, stages: tuple[PlannedStage, ...]) -> Iterator[str]:
    for number, planned in enumerate(stages, 1):
        values = [f"{item.name}={bare(item.value)}" for item in _shown(planned.stage)]
        steps = [step.stage.path for step in planned.steps]
        yield f'  {name}_{number}["{_label(planned.stage.path, *steps, *values)}"]'
        yield f"  {name}_{number - 1} --> {name}_{number}"


def _label(*lines: str | None) -> str:
    escaped = {ord('"'): "#quot;", ord("`"): "#96;", ord("<"): "#lt;", ord(">"): "#gt;"}
    return "<br/>".join(printable(" ".join(str(line).split())).translate(escaped) for line in lines)


FORMATS = {"text": text_here, "json": as_json, "mermaid": mermaid}
