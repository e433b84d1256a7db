"""Outline of a plan, which fits a screen: what differs from the defaults, and what each stage may change and gives."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from etlrun.planning.plan import Plan, PlannedStage, kinds_in, parts_of, sections
from etlrun.planning.spec import RunSpec, bare
from etlrun.stages.base import SPEED, Kind, Stage, parameters
from etlrun.stages.columns import Columns
from etlrun.system.errors import printable
from etlrun.system.values import Block, Composed

_WIDTH, _NAMES, _KINDS = 100, 37, 15
_MOST = 12
"""Most values that differ, and most columns."""


def outline(plan: Plan, changed: Composed) -> str:
    """Return the stages of a plan with what each may change, and what is `changed` from the defaults, by key.

    Of these, groups have other options than by default.
    """
    spec = plan.spec
    splits = ", ".join(f"{name} = {bare(split)}" for name, split in spec.dataset.splits.items())
    lines = [_cut(f"dataset {spec.dataset.title}: {splits}"), ""]
    lines += [*_changed(spec, changed), "", f"{'train':<{_NAMES}} {'may change':<{_KINDS}} gives"]
    lines += _stages(spec, plan.train)
    pipelines = {name: stages for name, stages in plan.pipelines.items() if stages and name != "train"}
    if plan.unfrozen is not None and spec.fit is not None:
        since = f", from phase {len(spec.fit.frozen_phases) + 1} on"
        unfrozen = {name: plan.unfrozen.pipelines[name] for name in ("train", *pipelines)}
        pipelines |= {f"{name}{since}": stages for name, stages in unfrozen.items()}
    for name, stages in pipelines.items():
        lines += wrap(f"{name}: as train{_difference(plan.train, stages)}", _WIDTH, subsequent_indent="     ")
    lines += ["validation: none"] * (len(pipelines) == 0)
    lines += ["", _row(spec.model.path, [spec.model], spec), *_steps(spec, plan.by_model, "")]
    trainer = [spec.trainer, *(parts_of(spec.fit) if spec.fit is not None else ())]
    lines += [_row(spec.trainer.path, trainer, spec)]
    lines += [_row(of.path, [of], spec) for of in (spec.profile, spec.logger) if not of.path.endswith(".none")]
    lines += [f"code of {name}: {code}" for name, code in plan.code.items()]
    lines += ["", f"fingerprint {plan.fingerprint}", *(f"note: {remark}" for remark in plan.remarks)]
    return "".join(f"{printable(line).rstrip()}\n" for line in lines)


def _changed(spec: RunSpec, changed: Composed) -> Iterator[str]:
    """Yield the values that differ from the defaults, each with the strongest kind of what it changes."""
    if not changed:
        yield "all values are defaults: etlrun plan --all prints them"
        return
    steps = (spec.transform, *spec.transform.steps, *spec.eval_transform.steps)
    stages = filter(None, (spec.dataset, spec.extract, *steps, spec.cache, spec.load, spec.load.service))
    every = (*stages, *sections(spec))
    kinds = {of.key(each.name): kinds_in(spec, of, each)[0] for of in every for each in parameters(of)}
    yield "differs from the defaults: etlrun plan --all prints all values"
    options = {key: value for key, value in changed.items() if "." not in key}
    values = [(key, value) for key, value in changed.items() if key not in options]
    if options:
        yield _cut(f"     {' '.join(f'{group}={option}' for group, option in options.items())}")
    width = max((len(key) for key, _ in values[:_MOST]), default=0)
    for key, value in values[:_MOST]:
        of = next((of for of in kinds if f"{key}.".startswith(f"{of}.")), "")
        kind = kinds.get(of, Kind.DATA if key.startswith("transform.") else "")
        yield _cut(f"     {key:<{width}}  {kind:<8}  {bare(value)}")
    yield from [f"     and {len(values) - _MOST:,} more"] * (len(values) > _MOST)


def _stages(spec: RunSpec, stages: Sequence[PlannedStage]) -> Iterator[str]:
    """Yield a line for each stage and each step, with what it gives where that differs from what is before it."""
    before = ""
    for number, planned in enumerate(stages, 1):
        gives = str(planned.gives)
        yield _row(
            f"{number:3}. {planned.stage.path}", [planned.stage], spec, gives * (gives != before and not planned.steps)
        )
        yield from _steps(spec, planned.steps, before)
        before = gives


def _steps(spec: RunSpec, steps: Sequence[PlannedStage], before: str) -> Iterator[str]:
    for letter, step in zip("abcdefghijklmnopqrstuvwxyz", steps, strict=False):
        gives = str(step.gives)
        yield _row(f"    {letter}. {step.stage.path}", [step.stage], spec, gives * (gives != before))
        before = gives
        lines = [*step.stage.lines] if isinstance(step.stage, Columns) else []
        yield from (_cut(f"{'':7}{printable(name):<21} {line}") for name, line in lines[:_MOST])
        yield from [f"{'':7}and {len(lines) - _MOST:,} more"] * (len(lines) > _MOST)


def _row(name: str, stages: Sequence[Stage], spec: RunSpec, gives: str = "") -> str:
    effective = [(stage, of) for stage in stages for of in parameters(stage) if not of.does_nothing]
    found = {kinds_in(spec, stage, parameter)[0] for stage, parameter in effective}
    kinds = ", ".join(kind for kind in Kind if kind in found and (kind != SPEED or found == {SPEED}))
    return _cut(f"{name:<{_NAMES}} {kinds:<{_KINDS}} {gives}")


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _difference(train: Sequence[PlannedStage], other: Sequence[PlannedStage]) -> str:
    """Return in which stages, steps and values a pipeline differs from that of the training."""
    mine, others = _flat(train), _flat(other)
    gone, new = _alone(mine, others), _alone(others, mine)
    new += [
        f"{path}.{name}={bare(value)}"
        for path in others
        for name, value in others[path].items()
        if path in mine and mine[path][name] != value
    ]
    parts = {"without": gone, "with": new}
    told = (
        f", {word} {', '.join(path.rpartition('/')[2] for path in paths)}" for word, paths in parts.items() if paths
    )
    return "".join(told)


def _alone(of: Composed, other: Composed) -> list[str]:
    return [path for path in of if path not in other and path.rpartition("/")[0] not in of.keys() - other.keys()]


def _flat(stages: Sequence[PlannedStage]) -> dict[str, Block]:
    """Return the values of stages and of their steps, which are behind a slash."""
    pairs = [(of.stage.path, of) for of in stages]
    pairs += [(f"{of.stage.path}/{step.stage.path}", step) for of in stages for step in of.steps]
    return {path: {each.name: each.value for each in parameters(of.stage)} for path, of in pairs}
