"""Differences between two plans, each with what it changes: data, order, training or speed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etlrun.planning.kinds import differing, drawn, kinds_in
from etlrun.planning.plan import STAGES, Plan, keeps_file_order, parts_of
from etlrun.planning.spec import RunSpec, bare
from etlrun.planning.unused import leaves
from etlrun.review.columns import changed, rows_changed
from etlrun.review.doubts import doubts_about, notes_on, other_rows, unrepeatable
from etlrun.review.packages import of_packages
from etlrun.review.sources import Sources
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Stage, parameters
from etlrun.stages.cache import NoCache
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import Dataset, TfdsDataset
from etlrun.stages.extract import Shards
from etlrun.stages.image import EncodeJpeg
from etlrun.stages.load import Batch, Load, Service, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.trainer import Phase, Trainer

PIPELINES = ("train", "validation")
_BY_NAME = {"extract": ORDER, "cache": SPEED, "model": TRAINING, "trainer": TRAINING, "profile": SPEED, "logger": SPEED}
"""Groups that select a stage by name, with the kind of change that another selection makes."""
_ABSENT, _CACHE = object(), "the cache"
_OF_JPEGS = {NoCache.key("at"), NoCache.key("codec")}
_ONLY_REPORTED = {Trainer.key("metrics"): "changes what is reported of epochs, nothing else"}
_SINCE_OF_TRAINING_ALONE = {
    Load.key("sample"): "the dataset",
    **{Load.key(name): Batch.path for name in ("mixup_alpha", "cutmix_alpha", "drop_remainder")},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between two plans.

    Attributes:
        path: Config key of a value, or name of a step.
        old: Old value as text, None if it is absent; `new` likewise.
        kind: What the difference changes, the strongest if that is several things; None for nothing.
        since: For data, the first stage whose examples differ.
        pipelines: Pipelines that it affects, if not both.
        note: Additional note for the reader.
        also: Weaker kinds of what it changes.
    """

    path: str
    old: str | None
    new: str | None
    kind: Kind | None
    since: str = ""
    pipelines: tuple[str, ...] = ()
    note: str = ""
    also: tuple[Kind, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of two plans.

    Attributes:
        differences: Differences, those with the largest effect first.
        kinds: All that the change changes or may change, the strongest first; empty for no change.
        since: For data, the first stage whose examples differ; empty if the data is the same.
        is_reordered: Whether the order of examples differs, or is not fixed.
        doubts: Reasons why runs may see different examples beside values that change the data, one sentence each.
        notes: The doubts and further notes on the whole comparison.
    """

    differences: tuple[Difference, ...]
    kinds: tuple[Kind, ...]
    since: str
    is_reordered: bool
    doubts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_unsure(self) -> bool:
        """Whether the data may differ though no value is known to change it; see the notes."""
        return DATA in self.kinds and all(difference.kind != DATA for difference in self.differences)

    @property
    def changes_data(self) -> bool:
        """Whether a value changes the data, whatever the order of the examples."""
        return DATA in self.kinds and not self.is_unsure

    @property
    def changes_training(self) -> bool:
        """Whether a value changes the model, or how it is fitted."""
        return TRAINING in self.kinds

    @property
    def headline(self) -> str:
        """Summary of the changes in one line."""
        if self.kinds == (SPEED,):
            reports = {difference.path in _ONLY_REPORTED for difference in self.differences if difference.kind}
            parts = ((False, "the speed"), (True, "what is reported of epochs"))
            return f"changes only {' and '.join(text for is_report, text in parts if is_report in reports)}"
        data = f"{'perhaps ' if self.is_unsure else ''}the data, from {self.since} on"
        words = [data if kind == DATA else f"the {kind}" for kind in self.kinds]
        if not words:
            return "changes nothing"
        *first, last = words
        return "changes " + (f"{', '.join(first)}{',' * (DATA in self.kinds)} and {last}" if first else last)


def compare(
    old: Plan,
    new: Plan,
    configs: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    sources: tuple[Sources, Sources] = ({}, {}),
    beside: Sequence[Difference] = (),
) -> Comparison:
    """Compare two plans; with their `configs`, values without effect are reported as well.

    `sources` are those of what packages add to both, and `beside` are further differences, which no plan has.
    """
    found = [
        *_values(old, new),
        *_of_dataset(old.spec, new.spec),
        *_of_columns(old.spec, new.spec),
        *_steps(old, new),
        *_scaled(old, new),
    ]
    found += [*_code(old, new, *sources), *beside]
    are_others = bool(other_rows(old.spec, new.spec))
    found += _unexplained(old, new, _kinds(found) | ({DATA} if are_others else set()))
    if configs is not None:
        counted = values_that_count(old.spec).keys() | values_that_count(new.spec).keys()
        found += _uncounted(*configs, counted | _reported_otherwise(old.spec, new.spec))
    kinds = _kinds(found)
    is_fixed = all(plan.spec.has_order for plan in (old, new))
    doubts = tuple(doubts_about(old.spec, new.spec, kinds))
    is_reordered = ORDER in kinds or not is_fixed
    is_unknown = are_others or (kinds and any(unrepeatable(plan.spec) for plan in (old, new)))
    if is_unknown or (doubts and kinds - {SPEED}):
        kinds |= {DATA}  # which examples a pass has is unknown
    order: list[Kind | None] = [*Kind, None]
    return Comparison(
        differences=tuple(sorted(found, key=lambda difference: order.index(difference.kind))),
        kinds=tuple(kind for kind in Kind if kind in kinds),
        since=first_stage(old, new, found) if DATA in kinds else "",
        is_reordered=is_reordered,
        doubts=doubts,
        notes=(*doubts, *notes_on(old, new, is_unordered=bool(kinds) and not is_fixed)),
    )


def _kinds(found: Sequence[Difference]) -> set[Kind]:
    """Return all that differences change."""
    return {kind for of in found if of.kind is not None for kind in (of.kind, *of.also)}


def _unexplained(old: Plan, new: Plan, said: set[Kind]) -> Iterator[Difference]:
    """Yield what differs in the fingerprints and changes more than what is `said`: it is never told as speed alone."""
    for path, kinds in differing(old, new).items():
        if missing := [kind for kind in Kind if kind in kinds - said]:
            values = (bare(plan.decisive.get(path)) for plan in (old, new))
            since = "the dataset" if missing[0] == DATA else ""
            yield Difference(path=path, old=next(values), new=next(values), kind=missing[0], since=since)


def _values(before: Plan, after: Plan) -> Iterator[Difference]:
    """Yield the differences of values that have an effect on both sides, and of stages selected by name."""
    old, new, is_lossy = before.spec, after.spec, _as_jpegs(before) != _as_jpegs(after)
    values = values_that_count(old)
    for path, (value, kinds) in values_that_count(new).items():
        was, others = values.get(path, (_ABSENT, kinds))
        if was is not _ABSENT and was != value:
            is_speed = path in _ONLY_REPORTED or (path in _OF_JPEGS and not is_lossy)
            changed = {SPEED} if is_speed else {*kinds, *others}
            yield _difference(path, was, value, *(kind for kind in Kind if kind in changed), specs=(old, new))
    for group, kind in _BY_NAME.items():
        stages = [getattr(spec, group) for spec in (old, new)]
        if stages[0].path != stages[1].path:
            names = [stage.name if stage.names else stage.path.split(".")[1] for stage in stages]
            is_order = group == "cache" and keeps_file_order(old) != keeps_file_order(new)
            is_data = group == "cache" and is_lossy
            changes = [DATA] * is_data + [ORDER] * is_order or [kind]
            since, note = (_CACHE, "one of the two holds JPEGs: see cache.codec") if is_data else ("", "")
            shown = {"path": group, "old": names[0], "new": names[1], "since": since, "note": note}
            yield Difference(**shown, kind=changes[0], also=tuple(changes[1:]))
    phases = [spec.fit.phases for spec in (old, new) if spec.fit is not None]
    if len({len(of or ()) for of in phases}) > 1:
        yield _difference(Phase.path, phases[0], phases[-1], TRAINING)
    if old.extract.random and new.extract.random and old.trainer.seed != new.trainer.seed:
        yield _difference(f"{Shards.key('shuffle_files')}.seed", old.trainer.seed, new.trainer.seed, ORDER)
    if old.load.shuffles and new.load.shuffles and old.trainer.seed != new.trainer.seed:
        yield _difference(Shuffle.key("seed"), old.trainer.seed, new.trainer.seed, ORDER)


def _of_dataset(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    """Yield the values of the data that only the new kind of dataset has, such as its folder, but defaults."""
    had = {of.name for of in parameters(old.dataset)}
    for of in parameters(new.dataset):
        if of.name not in had and of.kind == DATA and not of.is_default and of.value is not None:
            path, value = f"dataset.{of.name}", bare(of.value)
            yield Difference(path=path, old=None, new=value, kind=DATA, since="the dataset")


def _as_jpegs(plan: Plan) -> list[Any]:
    """Return which images a cache holds as JPEGs: the steps before it and their quality; nothing if it holds none."""
    lists = [of for path, of in plan.decisive.items() if path.endswith(f"/{STAGES}") and EncodeJpeg.path in of]
    steps = ([path for path in of[: of.index(EncodeJpeg.path)] if path.startswith("transform.")] for of in lists)
    return [plan.spec.cache.quality, *steps] if lists else []


def _difference(path: str, old: Any, new: Any, kind: Kind, *also: Kind, specs: tuple[RunSpec, ...] = ()) -> Difference:
    since, note, pipelines = "", _ONLY_REPORTED.get(path, ""), tuple[str, ...]()
    if path.startswith("dataset.") and kind == DATA:
        since = "the dataset"
        pipelines = tuple(name for name in PIPELINES if path == Dataset.key_of(name))
    elif path in _SINCE_OF_TRAINING_ALONE:
        since, pipelines = _SINCE_OF_TRAINING_ALONE[path], ("train",)
        note = "keeps or drops the last, smaller batch of a pass" * (path == Load.key("drop_remainder"))
    elif path == Trainer.key("seed") and kind == DATA:
        first = next(name for spec in specs for name in drawn(spec))
        since, pipelines = {Load.key("sample"): "the dataset", Mix.path: Batch.path}.get(first, first), ("train",)
    elif path == TfdsDataset.key("data_dir"):
        note = "if it holds the same files"
    elif kind == DATA:
        group = path.rpartition(".")[0]
        since = {"cache": _CACHE, "load": Batch.path}.get(group, group)
        note = "JPEGs of other images: see cache.codec" if path == NoCache.key("at") else ""
    texts = {"old": bare(old), "new": bare(new), "since": since, "note": note}
    return Difference(path=path, kind=kind, pipelines=pipelines, also=also, **texts)


def values_that_count(spec: RunSpec) -> dict[str, tuple[Any, tuple[Kind, ...]]]:
    """Return the values that the plan of a config uses, with their kinds, by config key."""
    blocks: list[tuple[str, Stage]] = [(name, getattr(spec, name)) for name in ("dataset", "extract", "transform")]
    steps = (step for steps in _lists(spec).values() for step in steps)
    blocks += [(step.path, step) for step in steps if not isinstance(step, Columns)]
    blocks += [("cache", spec.cache)] if spec.cache.keeps else []
    blocks += [("load", spec.load), (Service.path, spec.load.service or Service())]
    blocks += [("model", spec.model), ("trainer", spec.trainer)]
    blocks += [(of.path, of) for of in parts_of(spec.fit)] if spec.fit is not None else []
    blocks += [(name, getattr(spec, name)) for name in ("profile", "logger", "measure")]
    return {
        f"{path}.{parameter.name}": (parameter.value, kinds_in(spec, stage, parameter))
        for path, stage in blocks
        for parameter in parameters(stage)
        if stage is not spec.load or parameter.name not in spec.load.without_effect
    }


def _lists(spec: RunSpec) -> dict[str, tuple[Stage, ...]]:
    """Return the steps of each pipeline."""
    lists: dict[str, tuple[Stage, ...]] = {"train": spec.transform.steps}
    return lists if spec.dataset.eval_split is None else {**lists, "validation": spec.eval_transform.steps}


def _steps(old: Plan, new: Plan) -> Iterator[Difference]:
    """Yield the steps that exist on one side only, or at a different position."""
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
        kind = DATA if stages[path].changes_data else SPEED
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
    """Yield the scaling steps that the model performs on one side only."""
    by_model = [{planned.stage.path for planned in plan.by_model} for plan in (old, new)]
    for step in old.spec.transform.steps:
        if step.factors is not None and step.path in {item.path for item in new.spec.transform.steps}:
            places = ["in the model" if step.path in paths else "in the pipeline" for paths in by_model]
            if places[0] != places[1]:
                yield Difference(path=step.path, old=places[0], new=places[1], kind=DATA, since=step.path)


def _of_columns(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    """Yield the numbers of rows, the outputs and what they have learned that differ."""
    columns = [step for spec in (old, new) for step in spec.transform.steps if isinstance(step, Columns)]
    for path, since, before, after in (*rows_changed(old, new), *(changed(*columns) if len(columns) > 1 else ())):
        yield Difference(path=path, old=before, new=after, kind=DATA, since=since)


def _code(old: Plan, new: Plan, was: Sources, now: Sources) -> Iterator[Difference]:
    """Yield what packages add to both sides with other code, in another version, or with other code around it."""
    for name in [of for of in {**new.code, **now} if of in old.code or of in was]:
        sources = (was[name], now[name]) if name in was and name in now else None
        before, after, how = of_packages(old.code.get(name, ""), new.code.get(name, ""), sources)
        if before != after:
            yield of_code(name, before, after, how)


def of_code(name: str, before: str, after: str, how: str) -> Difference:
    """Return the difference of what packages add to a run, by its name as `Plan.code` has it."""
    is_dataset, is_metric = name.startswith("the dataset "), name.startswith("the metric ")
    since = "the dataset" if is_dataset else name if name.startswith("transform.") else ""
    kind = DATA if since else SPEED if is_metric else TRAINING
    note = ", ".join(filter(None, [how, _ONLY_REPORTED[Trainer.key("metrics")] * is_metric]))
    return Difference(path=f"code of {name}", old=before, new=after, kind=kind, since=since, note=note)


def _reported_otherwise(old: RunSpec, new: RunSpec) -> set[str]:
    """Return the keys whose differences are reported as other stages."""
    names = ["steps"] if None in (old.dataset.eval_split, new.dataset.eval_split) else ["steps", "eval_steps"]
    lists = {f"{new.transform.block}.{name}" for name in names}
    return {f"{group}.name" for group in _BY_NAME} | lists | {Phase.path, Service.path, Columns.path}


def _uncounted(old: Mapping[str, Any], new: Mapping[str, Any], reported: set[str]) -> Iterator[Difference]:
    """Yield the values that differ in the configs and that neither plan uses."""
    before, after, inner = dict(leaves("", old)), dict(leaves("", new)), tuple(f"{path}." for path in reported)
    for path in sorted(path for path in (before.keys() | after.keys()) - reported if not path.startswith(inner)):
        values = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if values[0] != values[1]:
            shown = [None if value is _ABSENT else bare(value) for value in values]
            yield Difference(path=path, old=shown[0], new=shown[1], kind=None)


def first_stage(old: Plan, new: Plan, found: Sequence[Difference]) -> str:
    """Return the first stage, in pipeline order, whose examples differ."""
    paths = [step.path for plan in (new, old) for steps in _lists(plan.spec).values() for step in steps]
    order = ["the dataset", *dict.fromkeys(paths), _CACHE, Batch.path, Service.path]
    unsure = "the dataset" if other_rows(old.spec, new.spec) else Batch.path
    since = [difference.since for difference in found if difference.kind == DATA] or [unsure]
    return min(since, key=order.index)
