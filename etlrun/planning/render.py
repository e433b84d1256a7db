"""Renderings of a plan: text for pull requests, and JSON for machines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from etlrun.planning.plan import Plan, PlannedStage, kinds_in, sections
from etlrun.planning.spec import RunSpec, bare
from etlrun.stages.base import Stage, parameters
from etlrun.stages.columns import Columns
from etlrun.stages.trainer import PlannedPhase
from etlrun.system import machine
from etlrun.system.errors import printable
from etlrun.system.machine import CORES, calls_here, rounded
from etlrun.system.values import Block

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
    spec, of, sets = plan.spec, _Lines(plan.spec, cores, read_bytes), plan.spec.dataset.sets
    first = "validation" if spec.dataset.eval_split is not None else next(iter(sets), "")
    pipelines = dict(plan.pipelines)
    if plan.unfrozen is not None and spec.fit is not None:
        since = f", from phase {len(spec.fit.frozen_phases) + 1} on"
        pipelines |= {f"{name}{since}": stages for name, stages in plan.unfrozen.pipelines.items() if name not in sets}
    lines = ["dataset", *of.parameters(spec.dataset, _INDENT)]
    for title, stages in pipelines.items():
        same = [f"{_INDENT}as {first}, of {bare(sets[title])}"] if title in sets and title != first else []
        lines += ["", title, *(same or (of.stages(stages) if stages else [f"{_INDENT}none"]))]
    for stage in sections(spec):
        more = {}
        if isinstance(stage, PlannedPhase) and stage.unfreeze is not None:
            more = {"unfreeze": f" (the last {spec.model.last_layers(stage.unfreeze)} of {spec.model.layers})"}
        steps = of.steps(plan.by_model) if stage is spec.model else ()
        lines += ["", stage.path, *steps, *of.parameters(stage, _INDENT, more)]
    lines += ["", "code of installed packages"] if plan.code else []
    lines += [f"{_INDENT}{name:<{_WIDTHS[0] - 1}} {code}" for name, code in plan.code.items()]
    lines += [*chosen_columns(plan), "", f"fingerprint {plan.fingerprint}"]
    lines += [f"note: {remark}" for remark in plan.remarks]
    return "".join(f"{printable(line)}\n" for line in lines)


@dataclass(frozen=True)
class _Lines:
    """Lines of the stages of a run, their steps and parameters; what they show is as in `text`."""

    spec: RunSpec
    cores: int | None
    read_bytes: float | None

    def stages(self, stages: Sequence[PlannedStage]) -> Iterator[str]:
        for number, planned in enumerate(stages, 1):
            yield f"{number:3}. {planned.stage.path:<{_STEP_WIDTH}} -> {planned.gives}"
            each, more = planned.gives.example_bytes, {}
            if planned.stage.holds and (each or self.read_bytes):
                size = rounded(planned.stage.holds * (each or self.read_bytes or 0))
                more = {"buffer_size": f" ({'' if each else 'about '}{size})"}
            yield from self.parameters(planned.stage, f"{_INDENT}  ", more)
            yield from self.steps(planned.steps)

    def steps(self, steps: Sequence[PlannedStage]) -> Iterator[str]:
        for letter, step in zip("abcdefghijklmnopqrstuvwxyz", steps, strict=False):
            yield f"{_INDENT}{letter}. {step.stage.path:<{_STEP_WIDTH}} -> {step.gives}"
            indent = f"{_INDENT}     "
            if isinstance(step.stage, Columns):
                yield from (f"{indent}{printable(name):<{_WIDTHS[0] - 1}} {line}" for name, line in step.stage.lines)
            else:
                yield from self.parameters(step.stage, indent)

    def parameters(self, stage: Stage, indent: str, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
        for parameter in parameters(stage):
            if parameter.does_nothing:
                continue
            value = bare(parameter.value)
            if value in CORES and self.cores is not None:
                calls, most = calls_here(value, self.cores), getattr(stage, "cycle_length", "all")
                value = f"{value} ({calls if most == 'all' else min(calls, most)})"
            value, kind = f"{value}{more.get(parameter.name, '')}", kinds_in(self.spec, stage, parameter)[0]
            yield f"{indent}{parameter.name:<{_WIDTHS[0] - 1}} {value:<{_WIDTHS[1]}} {kind}"


def chosen_columns(plan: Plan) -> Iterator[str]:
    """Yield the lines of what `transform.columns=auto` has chosen, as a config has it; none if nothing was chosen."""
    columns = plan.spec.columns
    if columns is None or not columns.chosen:
        return
    yield from ("", "# what transform.columns=auto has chosen, as a config has it", "transform:", "  columns:")
    for output in columns.chosen:
        of = output.of[0] if len(output.of) == 1 else list(output.of)
        written = {output.name: {"of": of, "steps": [step.written for step in output.steps]}}
        text = yaml.safe_dump(written, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
        yield f"    {text.strip()[1:-1]}"


def text_here(plan: Plan, read_bytes: float | None = None) -> str:
    """Return the text of the plan for this machine."""
    return text(plan, machine.cores(), read_bytes)


def as_dict(plan: Plan) -> Block:
    """Return the plan as plain values; `format` rises with each incompatible change."""
    spec, fit = plan.spec, plan.spec.fit
    nested: Block = {}
    if fit is not None:
        nested = {name: _values(spec, getattr(fit, name)) for name in ("early_stopping", "schedule")}
        nested |= {} if fit.phases is None else {"phases": [_values(spec, phase) for phase in fit.planned_phases]}
    parts = {
        stage.path.partition(".")[0]: {"stage": stage.path, "parameters": _values(spec, stage)}
        for stage in (spec.model, spec.trainer, spec.profile, spec.logger)
    }
    return {
        "format": FORMAT_VERSION,
        "fingerprint": plan.fingerprint,
        "dataset": _values(spec, spec.dataset),
        **_pipelines_dict(plan),
        **({} if plan.unfrozen is None else {"unfrozen": _pipelines_dict(plan.unfrozen)}),
        "model": {**parts["model"], "steps": [_stage_dict(spec, planned) for planned in plan.by_model]},
        "trainer": {**parts["trainer"], **nested},
        "profile": parts["profile"],
        "logger": parts["logger"],
        "measure": _values(spec, spec.measure),
        **({"code": dict(plan.code)} if plan.code else {}),
        "remarks": list(plan.remarks),
    }


def _pipelines_dict(plan: Plan) -> Block:
    pipelines = {"train": plan.train, "validation": plan.evaluation}  # which is that of named sets, too
    return {name: [_stage_dict(plan.spec, planned) for planned in stages] for name, stages in pipelines.items()}


def _stage_dict(spec: RunSpec, planned: PlannedStage) -> Block:
    steps = {"steps": [_stage_dict(spec, step) for step in planned.steps]} if planned.steps else {}
    stage = planned.stage
    return {"stage": stage.path, "parameters": _values(spec, stage), "gives": str(planned.gives), **steps}


def _values(spec: RunSpec, stage: Stage) -> Block:
    return {
        of.name: {"value": _without_long_lists(of.value), "kind": str(kinds_in(spec, stage, of)[0])}
        for of in parameters(stage)
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
