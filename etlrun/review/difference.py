"""Differences between two plans, each with what it changes: data, order, training or speed."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import yaml

from etlrun.planning.plan import STAGES as LISTED
from etlrun.planning.plan import Plan, differing, drawn, keeps_file_order, kinds_in, sections, set_of_monitor, validates
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, bare, leaves, parse
from etlrun.review.revisions import Sources
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Stage, parameters
from etlrun.stages.cache import NoCache
from etlrun.stages.column_numbers import ColumnStep, shown
from etlrun.stages.columns import Columns, Output
from etlrun.stages.dataset import Dataset, TfdsDataset
from etlrun.stages.extract import Shards
from etlrun.stages.image import EncodeJpeg
from etlrun.stages.load import Batch, Load, Service, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import Phase, Trainer
from etlrun.system.errors import EtlrunError, counted, first_few, printable
from etlrun.system.values import Composed, frozen

PIPELINES = ("train", "validation")
_BY_NAME = {"extract": ORDER, "cache": SPEED, "model": TRAINING, "trainer": TRAINING, "profile": SPEED, "logger": SPEED}
"""Groups that select a stage by name, with the kind of change that another selection makes."""
_ABSENT, _CACHE, DATASET = object(), "the cache", "the dataset"
_SETS = Dataset.key("eval_splits")
_OF_JPEGS = {NoCache.key("at"), NoCache.key("codec")}
_ONLY_REPORTED = {Trainer.key("metrics"): "changes what is reported of epochs, nothing else"}
_SINCE_OF_TRAINING_ALONE = {
    Load.key("sample"): DATASET,
    **{Load.key(name): Batch.path for name in ("mixup_alpha", "cutmix_alpha", "drop_remainder")},
}  # fmt: skip
_MOST_NAMED, _LONGEST = 6, 30
"""Values of a vocabulary that are named, and the characters of each."""
Values = Callable[[], Composed]
"""Function that reads a composed config; `OSError` if it no longer exists."""


@dataclass(frozen=True)
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

    @property
    def change(self) -> str:
        """The old and the new value."""
        return " -> ".join("(none)" if value is None else printable(value) for value in (self.old, self.new))

    @property
    def what(self) -> str:
        """What it changes, in words."""
        kinds, since = " and ".join([self.kind or "nothing", *self.also]), f"from {self.since} on" * bool(self.since)
        pipelines = f"in {' and '.join(self.pipelines)}" * bool(self.pipelines)
        return ", ".join(filter(None, [kinds, since, pipelines, self.note]))


@frozen
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

    differences: tuple[Difference, ...] = ()
    kinds: tuple[Kind, ...] = ()
    since: str = ""
    is_reordered: bool = False
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
            parts = {False: "the speed", True: "what is reported of epochs"}
            return f"changes only {' and '.join(parts[is_report] for is_report in sorted(reports))}"
        data = f"{'perhaps ' * self.is_unsure}the data, from {self.since} on"
        *first, last = [data if kind == DATA else f"the {kind}" for kind in self.kinds] or ["nothing"]
        return f"changes {', '.join(first)}{',' * (DATA in self.kinds)} and {last}" if first else f"changes {last}"


def compare(
    old: Plan,
    new: Plan,
    configs: tuple[Composed, Composed] | None = None,
    sources: tuple[Sources, Sources] = ({}, {}),
    beside: Sequence[Difference] = (),
) -> Comparison:
    """Compare two plans; with their `configs`, values without effect are reported as well.

    `sources` are those of what packages add to both, and `beside` are further differences, which no plan has.
    """
    specs = old.spec, new.spec
    found = [*_values(old, new), *_of_dataset(*specs), *_steps(*specs), *_scaled(old, new)]
    found += [*_code(old, new, *sources), *beside]
    are_others = bool(_other_rows(*specs))
    said = _kinds(found) | ({DATA} if are_others else set())
    for path, kinds in differing(old, new).items():
        if missing := [kind for kind in Kind if kind in kinds - said]:  # never told as speed alone
            was, now = (bare(plan.decisive.get(path)) for plan in (old, new))
            found.append(Difference(path, was, now, missing[0], DATASET * (missing[0] == DATA)))
    found += _uncounted(*specs, *configs) if configs is not None else ()
    kinds = _kinds(found)
    is_fixed = all(spec.has_order for spec in specs)
    doubts = tuple(_doubts(*specs, kinds))
    is_reordered = ORDER in kinds or not is_fixed
    if are_others or (kinds and any(_cut(of) and not of.has_order for of in specs)) or (doubts and kinds - {SPEED}):
        kinds |= {DATA}  # which examples a pass has is unknown
    order: list[Kind | None] = [*Kind, None]
    return Comparison(
        differences=tuple(sorted(found, key=lambda difference: order.index(difference.kind))),
        kinds=tuple(kind for kind in Kind if kind in kinds),
        since=first_stage(old, new, found) if DATA in kinds else "",
        is_reordered=is_reordered,
        doubts=doubts,
        notes=(*doubts, *_notes(old, new, is_unordered=bool(kinds) and not is_fixed)),
    )


def compare_configs(old: Values, new: Values) -> Comparison | None:
    """Compare the plans of the configs of two runs; None if they can't be planned."""
    try:
        one, other = (plan(parse(values() or {}, STAGES)) for values in (old, new))
    except (EtlrunError, OSError, ValueError, yaml.YAMLError):  # of another version, or without its file
        return None
    return compare(one, other)


def _kinds(found: Sequence[Difference]) -> set[Kind]:
    return {kind for of in found if of.kind is not None for kind in (of.kind, *of.also)}


def _values(before: Plan, after: Plan) -> Iterator[Difference]:
    """Yield the differences of values that have an effect on both sides, and of stages selected by name."""
    old, new, is_lossy = before.spec, after.spec, _as_jpegs(before) != _as_jpegs(after)
    values = _values_that_count(old)
    for path, (value, kinds) in _values_that_count(new).items():
        was, others = values.get(path, (_ABSENT, kinds))
        if path == _SETS:
            sets, decides = [of.dataset.sets for of in (old, new)], {set_of_monitor(of) for of in (old, new)}
            for name in (name for name in {**sets[0], **sets[1]} if sets[0].get(name) != sets[1].get(name)):
                also = [TRAINING] * (name in decides)
                yield _difference(Dataset.key_of(name), sets[0].get(name), sets[1].get(name), DATA, *also)
        elif was is not _ABSENT and was != value:
            is_speed = path in _ONLY_REPORTED or (path in _OF_JPEGS and not is_lossy)
            changed = {SPEED} if is_speed else {*kinds, *others}
            yield _difference(path, was, value, *(kind for kind in Kind if kind in changed), specs=(old, new))
    for group, kind in _BY_NAME.items():
        stages = [getattr(spec, group) for spec in (old, new)]
        if stages[0].path != stages[1].path:
            was, now = (stage.name if stage.names else stage.path.split(".")[1] for stage in stages)
            is_order = group == "cache" and keeps_file_order(old) != keeps_file_order(new)
            is_data = group == "cache" and is_lossy
            changes = [DATA] * is_data + [ORDER] * is_order or [kind]
            since, note = (_CACHE, "one of the two holds JPEGs: see cache.codec") if is_data else ("", "")
            yield Difference(group, was, now, changes[0], since, note=note, also=tuple(changes[1:]))
    phases = [spec.fit.phases for spec in (old, new) if spec.fit is not None]
    if len({len(of or ()) for of in phases}) > 1:
        yield _difference(Phase.path, phases[0], phases[-1], TRAINING)


def _of_dataset(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    """Yield the values of the data that only the new kind of dataset has, but defaults, and other rows and columns."""
    had = {of.name for of in parameters(old.dataset)}
    for of in parameters(new.dataset):
        if of.name not in had and of.kind == DATA and not of.is_default and of.value is not None:
            yield Difference(f"dataset.{of.name}", None, bare(of.value), DATA, DATASET)
    datasets = old.dataset, new.dataset
    before, after = (data.known.rows if isinstance(data, Rows) and data.known else {} for data in datasets)
    for split, count in after.items():
        if before.get(split, count) != count:
            texts = f"{before[split]:,} of {split}", f"{count:,} of {split}"
            yield Difference(f"{Rows.path}.rows", *texts, DATA, DATASET)
    if old.columns is not None and new.columns is not None:
        yield from of_columns(old.columns, new.columns)


def _as_jpegs(plan: Plan) -> list[Any]:
    """Return which images a cache holds as JPEGs: the steps before it and their quality; nothing if it holds none."""
    lists = [of for path, of in plan.decisive.items() if path.endswith(f"/{LISTED}") and EncodeJpeg.path in of]
    steps = ([path for path in of[: of.index(EncodeJpeg.path)] if path.startswith("transform.")] for of in lists)
    return [plan.spec.cache.quality, *steps] if lists else []


def _difference(path: str, old: Any, new: Any, kind: Kind, *also: Kind, specs: tuple[RunSpec, ...] = ()) -> Difference:
    since, note, pipelines = "", _ONLY_REPORTED.get(path, ""), tuple[str, ...]()
    if path.startswith("dataset.") and kind == DATA:
        names = (*PIPELINES, path.removeprefix(f"{_SETS}."))
        since, pipelines = DATASET, tuple(name for name in names if path == Dataset.key_of(name))
    elif path in _SINCE_OF_TRAINING_ALONE:
        since, pipelines = _SINCE_OF_TRAINING_ALONE[path], ("train",)
        note = "keeps or drops the last, smaller batch of a pass" * (path == Load.key("drop_remainder"))
    elif path == Trainer.key("seed") and kind == DATA:
        first = next(name for spec in specs for name in drawn(spec))
        since, pipelines = {Load.key("sample"): DATASET, Mix.path: Batch.path}.get(first, first), ("train",)
    elif path == TfdsDataset.key("data_dir"):
        note = "if it holds the same files"
    elif kind == DATA:
        group = path.rpartition(".")[0]
        since = {"cache": _CACHE, "load": Batch.path}.get(group, group)
        note = "JPEGs of other images: see cache.codec" * (path == NoCache.key("at"))
    return Difference(path, bare(old), bare(new), kind, since, pipelines, note, also)


def _values_that_count(spec: RunSpec) -> dict[str, tuple[Any, tuple[Kind, ...]]]:
    """Return the values that the plan of a config uses, with their kinds, by config key."""
    stages: list[Stage] = [spec.dataset, spec.extract, spec.transform, *[spec.cache] * spec.cache.keeps, spec.load]
    stages += [*sections(spec), spec.load.service or Service()]
    stages += [step for steps in _lists(spec).values() for step in steps if not isinstance(step, Columns)]
    drawing = {f"{Shards.key('shuffle_files')}.seed": spec.extract.random, Shuffle.key("seed"): spec.load.shuffles}
    seeds = {path: (spec.trainer.seed, (ORDER,)) for path, is_drawn in drawing.items() if is_drawn}
    return seeds | {
        f"{stage.block or stage.path}.{parameter.name}": (parameter.value, kinds_in(spec, stage, parameter))
        for stage in stages
        for parameter in parameters(stage)
        if stage is not spec.load or not (spec.load.is_by_number and parameter.name in {"shuffle_buffer", "shuffle_at"})
    }


def _lists(spec: RunSpec) -> dict[str, tuple[Stage, ...]]:
    lists: dict[str, tuple[Stage, ...]] = {"train": spec.transform.steps}
    return {**lists, "validation": spec.eval_transform.steps} if validates(spec) else lists


def _steps(old: RunSpec, new: RunSpec) -> Iterator[Difference]:
    """Yield the steps that exist on one side only, or at a different position."""
    found: dict[Difference, list[str]] = {}
    before, after = _lists(old), _lists(new)
    shared = [name for name in before if name in after]
    for name in shared:
        was, now = ([step.path for step in lists[name]] for lists in (before, after))
        changes = difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes()
        paths = [(*was[i:j], *now[m:n]) for tag, i, j, m, n in changes if tag != "equal"]
        stages = {step.path: step for step in (*before[name], *after[name])}
        for path in dict.fromkeys(chain(*paths)):
            kind, since = (DATA, path) if stages[path].changes_data else (SPEED, "")
            found.setdefault(Difference(path, _place(path, was), _place(path, now), kind, since), []).append(name)
    for difference, names in found.items():
        yield replace(difference, pipelines=() if names == shared else tuple(names))


def _place(path: str, paths: list[str]) -> str | None:
    if path not in paths:
        return None
    place = paths.index(path)
    return f"after {paths[place - 1].removeprefix('transform.')}" if place else "first"


def _scaled(old: Plan, new: Plan) -> Iterator[Difference]:
    """Yield the scaling steps that the model performs on one side only."""
    by_model = [{planned.stage.path for planned in plan.by_model} for plan in (old, new)]
    scaling = {step.path for step in old.spec.transform.steps if step.factors is not None}
    for path in [step.path for step in new.spec.transform.steps if step.path in scaling]:
        was, now = ("in the model" if path in paths else "in the pipeline" for paths in by_model)
        if was != now:
            yield Difference(path, was, now, DATA, path)


def _code(old: Plan, new: Plan, was: Sources, now: Sources) -> Iterator[Difference]:
    """Yield what packages add to both sides with other code or versions; sources also tell what that code rests on."""
    for name in [of for of in {**new.code, **now} if of in old.code or of in was]:
        source, files = now.get(name) if name in was else None, list[str]()
        if source is not None:
            files = sorted({file for file, _ in was[name].files.items() ^ source.files.items()})
        one, other = old.code.get(name, ""), new.code.get(name, "")
        (before, _, code), (after, _, new_code) = (text.rpartition(", code ") for text in (one, other))
        place = "" if source is None else f"{source.title} in {', '.join(files or [source.file])}"
        if one == other and source is not None and files:
            told = [f"{of.package}, sources {of.digest}" for of in (was[name], source)]
            note = f"{source.title} uses {', '.join(files)}, in which something has changed"
            yield _of_code(name, told[0], told[1], note)
        elif one != other and before == after:
            yield _of_code(name, one, other, ": ".join(filter(None, ["other code of the same version", place])))
        elif one != other:
            yield _of_code(name, before, after, "with the same code" if code == new_code else place)


def _of_code(name: str, before: str, after: str, how: str) -> Difference:
    """Return the difference of what packages add to a run, by its name as `Plan.code` has it."""
    is_dataset, is_metric = name.startswith("the dataset "), name.startswith("the metric ")
    since = DATASET if is_dataset else name if name.startswith("transform.") else ""
    kind = DATA if since else SPEED if is_metric else TRAINING
    note = ", ".join(filter(None, [how, _ONLY_REPORTED[Trainer.key("metrics")] * is_metric]))
    return Difference(f"code of {name}", before, after, kind, since, note=note)


def _uncounted(old: RunSpec, new: RunSpec, *configs: Composed) -> Iterator[Difference]:
    """Yield the values that differ in the configs, and that neither plan uses or reports as other stages."""
    names = ["steps", "eval_steps"] if validates(old) and validates(new) else ["steps"]
    reported = {*(f"{new.transform.block}.{name}" for name in names), *(f"{group}.name" for group in _BY_NAME)}
    reported |= {Phase.path, Service.path, Columns.path, *_values_that_count(old), *_values_that_count(new)}
    before, after = (dict(leaves("", config)) for config in configs)
    inner = tuple(f"{path}." for path in reported)
    for path in sorted((before.keys() | after.keys()) - reported):
        if not path.startswith(inner) and before.get(path, _ABSENT) != after.get(path, _ABSENT):
            was, now = (bare(values[path]) if path in values else None for values in (before, after))
            yield Difference(path, was, now, None)


def first_stage(old: Plan, new: Plan, found: Sequence[Difference]) -> str:
    """Return the first stage, in pipeline order, whose examples differ."""
    paths = [step.path for plan in (new, old) for steps in _lists(plan.spec).values() for step in steps]
    order = [DATASET, *dict.fromkeys(paths), _CACHE, Batch.path, Service.path]
    unsure = DATASET if _other_rows(old.spec, new.spec) else Batch.path
    since = [difference.since for difference in found if difference.kind == DATA] or [unsure]
    return min(since, key=order.index)


def of_columns(old: Columns, new: Columns) -> Iterator[Difference]:
    """Yield the differences of columns; of those without their rows on one side, which have learned nothing, of steps.

    Outputs that are chosen when rows are read are not compared with those of rows that are not on this machine.
    """
    is_unread = bool(old.assumed) is not bool(new.assumed)
    before, after = ({output.name: output for output in step.outputs} for step in (old, new))
    for name in dict.fromkeys([*before, *after]) if not (is_unread and (old.is_auto or new.is_auto)) else ():
        was, now = before.get(name), after.get(name)
        if was is not None and now is not None and _asked(was, is_unread=is_unread) == _asked(now, is_unread=is_unread):
            yield from _learned(was, now)
        elif not (is_unread and any(of is not None and of.is_of_target for of in (was, now))):
            one, other = (None if output is None else output.text.removeprefix("<- ") for output in (was, now))
            if one == other:  # in the digits that they show
                one, other = (None if output is None else bare(output.described) for output in (was, now))
            yield Difference(f"{Columns.path}.{name}", one, other, DATA, Columns.path)
    if old.dropped != new.dropped:
        one, other = (", ".join(step.dropped) for step in (old, new))
        yield Difference(f"{Columns.path}: drop", one, other, DATA, Columns.path)


def _asked(output: Output, *, is_unread: bool) -> tuple[Any, list[ColumnStep | str]]:
    """Return what an output is made of and its steps without what they have learned, unread ones by their names."""
    return output.of, [of.name if is_unread else of.replace(**dict.fromkeys(of.learned)) for of in output.steps]


def _learned(old: Output, new: Output) -> Iterator[Difference]:
    """Yield what two outputs with the same steps have learned differently; nothing of values that one side lacks."""
    names = [step.name for step in new.steps]
    for place, (was, now) in enumerate(zip(old.steps, new.steps, strict=True)):
        number = f"[{names[:place].count(now.name)}]" if names.count(now.name) > 1 else ""
        for field in now.learned:
            before, after = getattr(was, field), getattr(now, field)
            if before != after and None not in (before, after):
                what = "vocabulary" if field == "values" else field
                key = f"{Columns.path}.{new.name}.{now.name}{number}.{what}"
                yield Difference(key, *_texts(before, after), DATA, Columns.path)


def _texts(old: Any, new: Any) -> tuple[str, str]:
    if not isinstance(new, tuple) or (isinstance(new[0], float) and max(len(old), len(new)) <= _MOST_NAMED):
        one, other = (printable(shown(value)) for value in (old, new))  # in four digits, unless they look alike
        return (one, other) if one != other else (str(old), str(new))
    before, after = (counted(len(of), "value") for of in (old, new))
    was_there, is_there = {*old}, {*new}
    if was_there == is_there:
        return before, f"{after}: the same ones, in another order"
    parts = {"added": [of for of in new if of not in was_there], "removed": [of for of in old if of not in is_there]}
    named = {what: f" ({first_few(map(_word, of), _MOST_NAMED)})" * bool(of) for what, of in parts.items()}
    return before, f"{after}: {', '.join(f'{len(of):,} {what}{named[what]}' for what, of in parts.items())}"


def _word(value: Any) -> str:
    text = printable(str(value)) or "''"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _cut(spec: RunSpec) -> str:
    """Return the override that drops examples depending on their order; empty if there is none."""
    if spec.trainer.steps_per_epoch is not None:
        return f"trainer.steps_per_epoch={spec.trainer.steps_per_epoch}"
    return "load.drop_remainder=true" if spec.load.drop_remainder else ""


def _other_rows(*specs: RunSpec) -> str:
    """Return why the rows of two runs may differ though their configs do not tell; empty if they are the same."""
    known = [of.known for spec in specs if isinstance(of := spec.dataset, Rows) and of.known is not None]
    found = [of.identity for of in known]
    if len({*found}) < 2:  # noqa: PLR2004 - two sides
        return ""
    if "" in found:
        return "The rows of one side alone are on this machine: what columns learn of those of the other is unknown."
    return f"The rows may be others: their identity is {found[0]}, and then {found[1]}, by content, names and reader."


def _doubts(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> Iterator[str]:
    """Yield reasons why runs may see different examples though no value changes the data; also for equal specs."""
    specs = old, new
    if DATA not in kinds and (other := _other_rows(*specs)):
        yield other
    cuts = [cut for spec in specs if (cut := _cut(spec))]
    if any(_cut(of) and not of.has_order for of in specs):
        yield f"Without a fixed order, {cuts[0]} drops different examples in each pass and in each run."
    elif cuts and ORDER in kinds:
        yield f"{cuts[0]}: with a different order or different batches, a pass drops different examples."
    elif _ends_elsewhere(old, new, kinds):
        yield f"{cuts[0]}: if training ends after a different step, it drops different examples."
    if all(spec.load.drop_long for spec in specs) and len({max(spec.load.boundaries or (0,)) for spec in specs}) > 1:
        yield "load.drop_long=true: with another last boundary, a pass leaves out other sequences."
    if kinds & {DATA, ORDER} and any(spec.load.mixes for spec in specs):
        yield "With a different order or different batches, MixUp and CutMix mix other images."
    if limits := [spec.trainer.seconds for spec in specs if spec.trainer.seconds is not None]:
        yield f"trainer.seconds={limits[0]:g} ends a run within a pass: the number of examples depends on the speed."
    *others, last = [step.path for step in new.transform.steps if step.random] or [""]
    if last and old.trainer.seed != new.trainer.seed:
        names = " and ".join(filter(None, [", ".join(others), last]))
        yield f"With a different seed, {names} transform{'s' * (not others)} each image differently."


def _ends_elsewhere(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> bool:
    """Return whether epochs of `steps_per_epoch` end at different examples, or after a different number of epochs."""
    fits = [fit for fit in (old.fit, new.fit) if fit is not None]
    spans = [(fit.steps_per_epoch, fit.all_epochs, fit.early_stopping.patience) for fit in fits]
    may_stop = TRAINING in kinds and any(patience is not None for _, _, patience in spans)
    return any(steps is not None for steps, _, _ in spans) and (len(set(spans)) > 1 or may_stop)


def _notes(old: Plan, new: Plan, *, is_unordered: bool) -> Iterator[str]:
    if is_unordered and not any(_cut(plan.spec) for plan in (old, new)):
        yield "The order of examples is not fixed: it differs in each run."
    if any(plan.spec.cache.keeps_features for plan in (old, new)):
        yield "cache.at = features: losses differ from those without a cache by rounding."
