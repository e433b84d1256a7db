"""What differs between two plans, and what each difference changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etlrun.plan.plan import Plan, PlannedStage, changes_data, keeps_file_order
from etlrun.plan.spec import RunSpec, bare
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Stage, parameters
from etlrun.stages.cache import NoCache
from etlrun.stages.image import Scaling
from etlrun.stages.trainer import Trainer

PIPELINES = ("train", "validation")
_BY_NAME = (("extract", ORDER), ("cache", SPEED), ("model", TRAINING), ("trainer", TRAINING), ("profile", SPEED))
"""Groups that choose a stage by its name, with what another stage changes."""
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that differs.

    Attributes:
        path: Of a value: its key in the config; of a step: its name.
        old: As a message has it; None where it is not there. So is `new`.
        kind: What it changes; None for nothing.
        since: For data, the first stage whose examples differ.
        pipelines: In which it counts, where it does not count in both.
        note: What a reader should know beside it.
    """

    path: str
    old: str | None
    new: str | None
    kind: Kind | None
    since: str = ""
    pipelines: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Of two plans.

    Attributes:
        differences: Those that change most come first.
        kinds: What changes, in that order; empty for nothing.
        since: For data, the first stage whose examples differ; empty where data do not.
        is_reordered: Whether examples come in another order, or in one that is another in each run.
        doubts: Why runs of the two may see other examples though no value changes the data, one sentence each.
        notes: These, and what else a reader should know of the whole.
    """

    differences: tuple[Difference, ...]
    kinds: tuple[Kind, ...]
    since: str
    is_reordered: bool
    doubts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_unsure(self) -> bool:
        """Whether data differ from run to run, whatever the config; see the notes."""
        return DATA in self.kinds and all(difference.kind != DATA for difference in self.differences)

    @property
    def headline(self) -> str:
        """In one line what changes."""
        if self.kinds == (SPEED,):
            return "changes only the speed"
        data = f"{'perhaps ' if self.is_unsure else ''}the data, from {self.since} on"
        words = [data if kind == DATA else f"the {kind}" for kind in self.kinds]
        if not words:
            return "changes nothing"
        *first, last = words
        return "changes " + (f"{', '.join(first)}{',' * (DATA in self.kinds)} and {last}" if first else last)


def compare(old: Plan, new: Plan, configs: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None) -> Comparison:
    """Of two plans; with their `configs`, values that count for nothing are told as well."""
    found = [*_values(old.spec, new.spec), *_steps(old, new), *_scaled(old, new)]
    if configs is not None:
        counted = values_that_count(old.spec).keys() | values_that_count(new.spec).keys()
        found += _uncounted(*configs, counted | _told_otherwise(old.spec, new.spec))
    kinds = {difference.kind for difference in found if difference.kind is not None}
    is_fixed = all(_is_deterministic(plan.spec) for plan in (old, new))
    doubts = tuple(_doubts(old.spec, new.spec, kinds))
    if kinds and any(_unrepeatable(plan.spec) for plan in (old, new)):
        kinds |= {DATA}  # nobody can know which examples a pass leaves out
    order: list[Kind | None] = [*Kind, None]
    return Comparison(
        differences=tuple(sorted(found, key=lambda difference: order.index(difference.kind))),
        kinds=tuple(kind for kind in Kind if kind in kinds),
        since=_first(old, new, found) if DATA in kinds else "",
        is_reordered=ORDER in kinds or not is_fixed,
        doubts=doubts,
        notes=(*doubts, *_notes(old, new, is_unordered=bool(kinds) and not is_fixed)),
    )


def _values(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    """Values that count on both sides, and stages that are chosen by name."""
    before, after = values_that_count(old), values_that_count(new)
    for path, (value, kind) in after.items():
        was = before.get(path, (_ABSENT, kind))[0]
        if was is not _ABSENT and was != value:
            yield _difference(path, was, value, kind)
    for group, kind in _BY_NAME:
        names = [getattr(spec, group).path.split(".")[1] for spec in (old, new)]
        if names[0] != names[1]:
            is_order = group == "cache" and keeps_file_order(old) != keeps_file_order(new)
            yield Difference(path=group, old=names[0], new=names[1], kind=ORDER if is_order else kind)
    if old.extract.random and new.extract.random and old.trainer.seed != new.trainer.seed:
        yield _difference("extract.shuffle_files.seed", old.trainer.seed, new.trainer.seed, ORDER)
    if old.load.shuffle_buffer and new.load.shuffle_buffer and old.trainer.seed != new.trainer.seed:
        yield _difference("load.shuffle.seed", old.trainer.seed, new.trainer.seed, ORDER)


def _difference(path: str, old: Any, new: Any, kind: Kind) -> Difference:
    since, note = "", ""
    pipelines: tuple[str, ...] = ()
    if path.startswith("dataset.") and kind == DATA:
        since = "the data set"
        pipelines = {"dataset.split": ("train",), "dataset.eval_split": ("validation",)}.get(path, ())
    elif path == "load.drop_remainder":
        kind, since, pipelines = DATA, "load.batch", ("train",)
        note = "the last, smaller batch of a pass is there or left out"
    elif path == "dataset.data_dir":
        note = "as long as the same files are there"
    elif kind == DATA:
        since = path.rpartition(".")[0]
    return Difference(path=path, old=bare(old), new=bare(new), kind=kind, since=since, pipelines=pipelines, note=note)


def values_that_count(spec: RunSpec) -> dict[str, tuple[Any, Kind]]:
    """The values of a config that its plan uses, with their kinds, by their keys in the config."""
    blocks: list[tuple[str, Stage]] = [
        ("dataset", spec.dataset),
        ("extract", spec.extract),
        ("transform", spec.transform),
    ]
    blocks += [(step.path, step) for steps in _lists(spec).values() for step in steps]
    blocks += [] if isinstance(spec.cache, NoCache) else [("cache", spec.cache)]
    blocks += [("load", spec.load), ("model", spec.model), ("trainer", spec.trainer)]
    blocks += [("trainer.early_stopping", spec.trainer.early_stopping)] if isinstance(spec.trainer, Trainer) else []
    blocks += [("profile", spec.profile), ("measure", spec.measure)]
    return {
        f"{path}.{parameter.name}": (parameter.value, parameter.kind)
        for path, stage in blocks
        for parameter in parameters(stage)
    }


def _lists(spec: RunSpec) -> dict[str, tuple[Stage, ...]]:
    """The steps of each pipeline that there is."""
    lists: dict[str, tuple[Stage, ...]] = {"train": spec.transform.steps}
    return lists if spec.dataset.eval_split is None else {**lists, "validation": spec.eval_transform.steps}


def _steps(old: Plan, new: Plan) -> Iterator[Difference]:
    """Steps that are there on one side only, or in another place."""
    found: dict[Difference, list[str]] = {}
    before, after = _lists(old.spec), _lists(new.spec)
    shared = [name for name in PIPELINES if name in before and name in after]
    for name in shared:
        for difference in _moves([step.path for step in before[name]], before[name], after[name]):
            found.setdefault(difference, []).append(name)
    for difference, pipelines in found.items():
        counts = () if pipelines == shared else tuple(pipelines)
        yield Difference(**{**difference.__dict__, "pipelines": counts})


def _moves(was: list[str], before: Sequence[Stage], after: Sequence[Stage]) -> Iterator[Difference]:
    now, stages = [step.path for step in after], {step.path: step for step in (*before, *after)}
    gone, come = [], []
    for tag, start, end, other_start, other_end in difflib.SequenceMatcher(
        None, was, now, autojunk=False
    ).get_opcodes():
        gone += was[start:end] if tag != "equal" else []
        come += now[other_start:other_end] if tag != "equal" else []
    for path in dict.fromkeys([*gone, *come]):
        kind = DATA if changes_data(stages[path]) else SPEED
        yield Difference(
            path=path,
            old=_place(path, was) if path in was else None,
            new=_place(path, now) if path in now else None,
            kind=kind,
            since=path if kind == DATA else "",
        )


def _place(path: str, paths: list[str]) -> str:
    place = paths.index(path)
    return f"after {paths[place - 1].removeprefix('transform.')}" if place else "first"


def _scaled(old: Plan, new: Plan) -> Iterator[Difference]:
    """Scaling that is done by the model on one side only."""
    for step in old.spec.transform.steps:
        if isinstance(step, Scaling) and step.path in {item.path for item in new.spec.transform.steps}:
            places = ["in the model" if _in(plan.by_model, step) else "in the pipeline" for plan in (old, new)]
            if places[0] != places[1]:
                yield Difference(path=step.path, old=places[0], new=places[1], kind=DATA, since=step.path)


def _in(stages: Iterable[PlannedStage], step: Stage) -> bool:
    return any(planned.stage.path == step.path for planned in stages)


def _told_otherwise(old: RunSpec, new: RunSpec) -> set[str]:
    """Keys whose differences are told as other stages."""
    lists = {"transform.steps"} if None in _evaluated(old, new) else {"transform.steps", "transform.eval_steps"}
    return {f"{group}.name" for group, _ in _BY_NAME} | lists


def _evaluated(*specs: RunSpec) -> list[str | None]:
    return [spec.dataset.eval_split for spec in specs]


def _uncounted(old: Mapping[str, Any], new: Mapping[str, Any], told: set[str]) -> Iterator[Difference]:
    """Values that differ in the configs, and that neither plan uses."""
    before, after, inner = leaves(old), leaves(new), tuple(f"{path}." for path in told)
    for path in sorted(path for path in (before.keys() | after.keys()) - told if not path.startswith(inner)):
        values = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if values[0] != values[1]:
            shown = [None if value is _ABSENT else bare(value) for value in values]
            yield Difference(path=path, old=shown[0], new=shown[1], kind=None)


def leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a config by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found


def _unrepeatable(spec: RunSpec) -> bool:
    return bool(_cut(spec)) and not _is_deterministic(spec)


def _cut(spec: RunSpec) -> str:
    """What leaves examples out of a pass, by their order; empty where nothing does."""
    steps = getattr(spec.trainer, "steps_per_epoch", None)
    if steps is not None:
        return f"trainer.steps_per_epoch={steps}"
    return "load.drop_remainder=true" if spec.load.drop_remainder else ""


def _is_deterministic(spec: RunSpec) -> bool:
    return spec.transform.deterministic and bool(getattr(spec.extract, "deterministic", True))


def _doubts(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> Iterator[str]:
    """Why runs may see other examples though no value changes the data; of runs of one spec, too."""
    cuts = [cut for spec in (old, new) if (cut := _cut(spec))]
    if any(_unrepeatable(spec) for spec in (old, new)):
        yield f"Without a fixed order, {cuts[0]} leaves other examples out of each pass, and in each run."
    elif cuts and ORDER in kinds:
        yield f"{cuts[0]}: in another order, or with other batches, a pass leaves other examples out."
    elif _ends_elsewhere(old, new, kinds):
        yield f"{cuts[0]}: where training ends after other steps, it leaves other examples out."
    limits = [limit for spec in (old, new) if (limit := getattr(spec.trainer, "seconds", None)) is not None]
    if limits:
        yield f"trainer.seconds={limits[0]:g} ends a run within a pass: how much it has read depends on the speed."
    random = [step.path for step in new.transform.steps if step.random]
    if random and old.trainer.seed != new.trainer.seed:
        yield f"With another seed {' and '.join(random)} does something else to each picture."


def _ends_elsewhere(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> bool:
    """Whether epochs of so many steps end at other places of the sequence of examples, or after another number."""
    spans = [
        (spec.trainer.steps_per_epoch, spec.trainer.epochs, spec.trainer.early_stopping.patience)
        for spec in (old, new)
        if isinstance(spec.trainer, Trainer)
    ]
    may_stop = TRAINING in kinds and any(patience is not None for _, _, patience in spans)
    return any(steps is not None for steps, _, _ in spans) and (len(set(spans)) > 1 or may_stop)


def _notes(old: Plan, new: Plan, *, is_unordered: bool) -> Iterator[str]:
    plans = (old, new)
    if is_unordered and not any(_cut(plan.spec) for plan in plans):
        yield "The order of examples is not fixed: it is another one in each run."
    if any(values_that_count(plan.spec).get("cache.at", ("",))[0] == "features" for plan in plans):
        yield "cache.at = features: losses are those of a run without it within float tolerance, not to the bit."


def _first(old: Plan, new: Plan, found: Sequence[Difference]) -> str:
    """The first stage, in the order of the pipelines, whose examples differ."""
    paths = [step.path for plan in (new, old) for steps in _lists(plan.spec).values() for step in steps]
    order = ["the data set", *dict.fromkeys(paths), "load.batch"]
    since = [difference.since for difference in found if difference.kind == DATA] or ["load.batch"]
    return min(since, key=order.index)
