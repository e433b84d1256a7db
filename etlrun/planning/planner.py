"""Planner: makes a `Plan` from a `RunSpec`, with notes on what is valid and may surprise."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from typing import Any

from etlrun.planning.plan import (
    Plan,
    PlannedStage,
    PlannedStep,
    given_to_model,
    keeps_file_order,
    plugins_in,
    served,
    unordered,
    validates,
    with_defaults,
    with_library,
)
from etlrun.planning.rule import Draft
from etlrun.planning.rules import rules
from etlrun.planning.spec import ConflictError, RunSpec, parse, told
from etlrun.stages import STAGES
from etlrun.stages import Stages as Known
from etlrun.stages.base import Scope, Stage
from etlrun.stages.cache import POINTS, NoCache
from etlrun.stages.columns import Columns, Number
from etlrun.stages.dataset import Declared, Fetch
from etlrun.stages.extract import SkipCorrupt, SkippedInBatches
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.image import Decode, DecodeJpeg, EncodeJpeg, Turbo, turbo_of, turbo_steps
from etlrun.stages.load import FullShuffle, PadSequences, Prefetch, SampleByClass, Shuffle, batch_of
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.network import Network
from etlrun.stages.objectives import is_of_kind, kind_of, loss_of
from etlrun.stages.paths import AT_ONCE
from etlrun.stages.rows import Rows
from etlrun.stages.step import ROWS_AT_ONCE, AfterCache, AfterTurbo, Map, Parse, Step
from etlrun.system.errors import ConfigError, Fault, counted, did_you_mean, refuse
from etlrun.system.values import Composed

_LARGE = 10_000
"""Standard deviation of a target above which a network needs many epochs to reach its values."""


def remarks(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a valid run, one sentence each."""
    yield from (f"{sentence}." for sentence in told(spec.unused))
    if isinstance(spec.dataset, Rows):
        found = spec.dataset.found
        if found.folder:
            size = f"{counted(sum(found.rows.values()), 'row')} of {counted(len(found.columns), 'column')}"
            yield f"{size} are cached in {found.folder}, {found.held_bytes / 1e6:,.1f} MB."
        yield from (*found.notes, *found.splits)
    if loose := unordered(spec):
        yield f"{' and '.join(loose)} = false: the order of the examples, and each result, differs from run to run."
    yield from _of_places(spec)
    if keeps_file_order(spec):
        yield "extract.shuffle_files = true: the cache keeps the order of the first pass for all later ones."
    yield from _of_targets(spec)
    if spec.cache.codec != "raw" and not spec.cache.keeps:
        what = "examples" if isinstance(spec.dataset, Rows) else "images"
        yield f"cache.codec = {spec.cache.codec} has no effect with cache=none: {what} stay as they are."
    yield from _of_unread_cache(spec)
    if spec.cache.keeps_features and spec.fit is not None:
        frozen = spec.fit.frozen_phases
        if frozen != spec.fit.planned_phases:
            served = f"cache.at = features: the cache serves phase{'s 1 to' * bool(frozen[1:])} {frozen[-1].number}"
            yield f"{served}; later ones read images without a cache, since they train layers of the base."
        yield "cache.at = features: losses differ from those without a cache by rounding."


def _of_targets(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on targets that are numbers or one of two classes."""
    flow, trainer = spec.dataset.examples, spec.learner
    columns = spec.columns if isinstance(spec.dataset, Rows) else None  # which know the names of classes
    given = flow.features if columns is None else columns.flow(flow).features
    for name in flow.targets:
        target, classes = flow.features[name], given[name].classes if columns is not None else ()
        if target.is_binary and classes:
            yield f"target `{name}` is {classes[1]} or {classes[0]}: the model gives the probability of {classes[1]}."
        if trainer is not None and kind_of(target) == "number":
            loss = loss_of(target, trainer.loss).replace("_", " ")
            metrics = [name for name in trainer.metrics if is_of_kind(name, "number")]
            measured = f"metric{'s' * (len(metrics) > 1)} {', '.join(metrics)}" if metrics else "no metrics"
            yield f"target `{name}` is a number: loss {loss}; {measured}."
            outputs = () if columns is None else columns.outputs
            steps = (step for output in outputs if output.name == name for step in output.steps)
            std = next((of.std or 0 for of in steps if isinstance(of, Number) and not of.standardize), 0)
            if std > _LARGE:
                scaled = f"{{{name}: {{number: standardize}}}} in {spec.dataset.key('target')}"
                yield f"target `{name}` has a standard deviation of {std:,.0f}: {scaled} learns it in fewer epochs."


def _of_unread_cache(spec: RunSpec) -> Iterator[str]:
    """Yield the note on a cache without a benefit."""
    epochs = spec.trainer.all_epochs
    if spec.fit is not None and spec.cache.keeps_features:
        epochs = spec.fit.frozen_phases[-1].end
    if epochs != 1 or spec.trainer.steps_per_epoch is not None or not spec.cache.keeps:
        return
    reads = "never reads it back."
    if is_whole := spec.load.is_by_number:
        reads = "waits for all of it, and reads it once."
    effect = "benefits only other runs" if is_whole or spec.cache.outlives_run else "has no effect"
    yield f"{spec.cache.path} {effect}: a single epoch {reads}"


def _of_places(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a run that reads in other processes, on several hosts, or not from URLs."""
    dataset = spec.dataset
    if isinstance(dataset, Declared) and not dataset.urls:
        idle = {"storage": dataset.storage, "keep": dataset.keep, "copies": dataset.copies}
        for name in (name for name, value in idle.items() if value not in (None, "all")):
            yield f"{dataset.key(name)} has no effect: {dataset.key(dataset.given_by)} is on this machine."
    if spec.load.service is not None:
        yield "load.service: its dispatcher and workers listen on all network interfaces: limit that by a firewall."
    if spec.hosts > 1:
        share = f"{spec.load.batch_size // spec.hosts} of the {spec.load.batch_size} of a batch"
        yield f"trainer.hosts = {spec.hosts}: each host reads its own part of the examples, and makes {share}."


def plan(spec: RunSpec) -> Plan:
    """Return the plan of `spec`; raise `ConfigError` with all pairs of stages that don't fit together."""
    asked = with_data(spec)
    spec = served(asked)
    draft = drafted(spec)
    refuse(dict.fromkeys((*draft.faults, *rules(draft, drafted))))
    notes, fit = [*remarks(spec)], spec.fit
    if spec != asked:
        why = "workers can't call Python"
        notes.append(f"{Decode.key('library')} = turbo: with load.service TensorFlow decodes and resizes, since {why}.")
    notes += spec.columns.notes if spec.columns is not None else ()
    notes += spec.model.notes(_seen(draft)) if fit is not None else ()
    changes_base = fit is not None and spec.cache.keeps_features and fit.frozen_phases != fit.planned_phases
    return Plan(
        spec=spec,
        train=draft.train,
        evaluation=draft.evaluation,
        by_model=draft.by_model,
        plain=_Planner(_Planner(spec).plainly()).pipelines(),
        remarks=tuple(notes),
        unfrozen=plan(replace(spec, cache=NO_CACHE)) if changes_base else None,
        code={name: plugin.code for name, plugin in plugins_in(spec).items()},
    )


def with_data(spec: RunSpec) -> RunSpec:
    """Return a run with what its data decide: the columns of rows, and losses and metrics of declared targets."""
    if isinstance(spec.dataset, Rows):
        from etlrun.planning.rows import resolved  # which imports Arrow

        return resolved(spec)
    flow = spec.dataset.examples
    kinds = [kind_of(flow.features[name]) for name in flow.targets]
    if len(kinds) > 1 or kinds[0] in ("binary", "labels"):  # others have what their config says
        spec = with_defaults(spec, kinds)
    if spec.columns is not None:
        from etlrun.planning.rows import beside

        return beside(spec)
    return spec


def drafted(spec: RunSpec) -> Draft:
    """Return a run with its stages, and the faults of each of them."""
    planner = _Planner(spec)
    train, evaluation, by_model = planner.pipelines()
    draft = Draft(**vars(spec), train=train, evaluation=evaluation, by_model=by_model, faults=tuple(planner.faults))
    if spec.fit is not None and not planner.faults:
        planner.through(spec.model, _seen(draft))
    return replace(draft, faults=tuple(planner.faults))


def _seen(draft: Draft) -> Flow:
    """Return what the model sees, behind the steps that it applies."""
    return draft.by_model[-1].gives if draft.by_model else given_to_model(draft.train)


def planned(config: Composed, stages: Known) -> Plan:
    """Return the plan of a composed config; raise `ConfigError` with the faults of its values and of its stages."""
    try:
        return plan(parse(config, stages))
    except ConflictError as conflict:
        if conflict.spec is None:
            raise
        try:
            plan(conflict.spec)
        except ConfigError as error:
            raise ConfigError([*conflict.faults, *error.faults]) from None
        raise


Stages = tuple[PlannedStage, ...]
NO_CACHE = NoCache(at="transformed", dir=None)
_OF_IMAGE = (None, None, 3)
"""Shape of an image of any size."""


class _Planner:
    """Makes the pipelines of a spec, and collects all faults on the way."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.faults: list[Fault] = []
        self.by_model = self._scaled_by_model()

    def pipelines(self) -> tuple[Stages, Stages, tuple[PlannedStep, ...]]:
        """Return the stages of training and of validation, and the steps that the model applies."""
        train = self._pipeline(self.spec.transform, evaluation=False)
        evaluation = self._pipeline(self.spec.eval_transform, evaluation=True) if validates(self.spec) else ()
        return train, evaluation, self._steps(self.by_model, given_to_model(train))

    def _add(self, where: str, found: object, expected: str, remedy: str, *, is_rule: bool = True) -> None:
        self.faults.append(Fault(where, str(found), expected, remedy, is_rule=is_rule))

    def _pipeline(self, steps: Map, *, evaluation: bool) -> Stages:
        stages, flow = [], self.spec.dataset.examples
        for stage in self._stages(steps, evaluation=evaluation):
            inner = self._steps(stage.inner, flow)
            flow = inner[-1].gives if inner else self.through(stage, flow)
            stages.append(PlannedStage(stage=stage, gives=flow, steps=inner))
        return tuple(stages)

    def _steps(self, steps: tuple[Step, ...], flow: Flow) -> tuple[PlannedStep, ...]:
        planned = []
        for step in steps:
            flow = self.through(step, flow)
            planned.append(PlannedStep(stage=step, gives=flow))
        return tuple(planned)

    def _stages(self, transform: Map, *, evaluation: bool) -> Iterator[Stage]:
        """Yield the stages in order; `drop_remainder` applies to training only."""
        load = self.spec.load
        stages = list(self._before_batch(transform, evaluation=evaluation))
        batch = batch_of(load, transform, drops=load.drop_remainder and not evaluation)
        of_batches = [stage for stage in (stages[-1].of_batches,) if stage is not None]
        if of_batches:
            stages.pop()
        if load.service is None and isinstance(stages[-1], Map) and all(step.parses for step in stages[-1].steps):
            of_batches.insert(0, stages.pop())
        yield from (*stages, batch, *of_batches)
        if load.mixes and not evaluation and not self.spec.cache.keeps_features:
            yield Mix(
                target=self.spec.dataset.examples.target,
                mixup_alpha=load.mixup_alpha,
                cutmix_alpha=load.cutmix_alpha,
                num_parallel_calls=transform.num_parallel_calls,
            )
        if load.boundaries is not None:
            yield PadSequences(boundaries=load.boundaries)
        if load.service is not None:
            yield load.service
        if load.prefetch:
            yield Prefetch(buffer_size=load.prefetch)

    def _before_batch(self, transform: Map, *, evaluation: bool) -> Iterator[Stage]:
        """Yield the stages that work on single examples; random ones apply to training only."""
        spec, load = self.spec, self.spec.load
        steps, place = self._steps_and_place(transform)
        shuffle: list[Stage] = []
        if load.shuffles and not evaluation:
            by_number = FullShuffle if load.sample == "all" else SampleByClass
            buffered = Shuffle(buffer_size=load.shuffle_buffer, seed=spec.trainer.seed)
            shuffle = [by_number(seed=spec.trainer.seed) if load.is_by_number else buffered]
        # Examples are shuffled as they are read if their order stays, and none are larger: a cache stores them in the
        # order of the data, and an example that is skipped shifts those behind it.
        keeps_order = transform.deterministic and spec.dataset.on_corrupt == "raise" and not spec.extract.decode
        is_early = not spec.cache.keeps and (load.is_by_number or (load.shuffle_at == "auto" and keeps_order))
        if isinstance(spec.dataset, Declared) and spec.dataset.urls:
            at_once = int((spec.dataset.storage or {}).get("at_once", AT_ONCE))
            yield Fetch(at_once=at_once, keep=spec.dataset.keep)
        yield spec.extract.for_evaluation() if evaluation else spec.extract
        yield from shuffle if is_early else ()
        has_several = len({step.feature for step in steps if isinstance(step, Decode)}) > 1
        skips_several = has_several and spec.dataset.on_corrupt == "skip"  # which is counted for all images at once
        turbo, codec = (False,) * len(steps) if skips_several else turbo_steps(steps), self._codec(steps[:place])
        is_turbo = [*turbo[:place], *(step.uses_turbo for step in codec), *turbo[place:]]
        steps, place = (*steps[:place], *codec, *steps[place:]), place + len(codec[:1])
        yield from (stages := [*self._maps(replace(transform, steps=steps[:place]), is_turbo[:place])])
        if spec.dataset.on_corrupt == "skip":
            yield SkippedInBatches() if isinstance(stages[-1], Turbo) and stages[-1].skips else SkipCorrupt()
        if spec.cache.keeps:
            if spec.cache.at == "features" and spec.model.features is not None:
                yield Backbone(features=spec.model.features)
            yield spec.cache
        yield from () if is_early else shuffle
        if steps[place:]:
            yield from self._maps(AfterCache.like(transform, steps[place:]), is_turbo[place:])

    def _codec(self, held: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the steps that encode and decode what a cache holds after these steps; none if it holds it raw."""
        cache = self.spec.cache
        if cache.quality is None or cache.at == "features" or (flow := self._quietly(held)) is None:
            return ()
        image = flow.features.get(EncodeJpeg.feature)
        height, width, channels = image.shape if image and len(image.shape) == len(_OF_IMAGE) else _OF_IMAGE
        resizes = any(step.path == "transform.resize" for step in self.spec.transform.steps)
        if image is None or image.dtype != "uint8" or channels != _OF_IMAGE[-1] or not height or not width:
            expected = "uint8 images of one size with three channels, which JPEGs can hold"
            remedy = "set cache.codec=raw" + ", or cache.at=resize with transform.resize.dtype=uint8" * resizes
            self._add(cache.key("codec"), f"{cache.codec}, for {flow}", expected, remedy)
            return ()
        library: Any = "turbo" if any(step.uses_turbo for step in held) else "tensorflow"
        return EncodeJpeg(quality=cache.quality), DecodeJpeg(size=(height, width), library=library)

    def _maps(self, whole: Map, is_turbo: Sequence[bool]) -> Iterator[Stage]:
        """Yield the stages of these steps: one, or up to three if `turbo` does the work of some."""
        fitting = [step for step, fits in zip(whole.steps, is_turbo, strict=True) if fits]
        part = [step for step in fitting if step.feature == fitting[0].feature]  # several images one after the other
        turbo = turbo_of(part, whole, skips=self.spec.dataset.on_corrupt == "skip")
        if turbo is None:
            whole = with_library(whole, "tensorflow")
            dataset = self.spec.dataset
            has_images = not all(isinstance(step, Parse | Columns) for step in whole.steps)
            if isinstance(dataset, Rows) and whole.is_first and not has_images:
                whole = replace(whole, at_once=dataset.found.rows_at_once(ROWS_AT_ONCE))
            yield whole
            return
        place = whole.steps.index(part[0])
        before, after = whole.steps[:place], whole.steps[place + len(part) :]
        if before or whole.is_first:
            yield replace(whole, steps=before)
        yield turbo
        if after:
            later = (AfterCache if whole.scope is Scope.EACH else AfterTurbo).like(whole, after)
            yield from self._maps(later, is_turbo[-len(after) :]) if fitting[len(part) :] else (later,)

    def _steps_and_place(self, transform: Map) -> tuple[tuple[Step, ...], int]:
        """Return the steps of a pipeline, without those that the model applies, and the number before the cache."""
        parse = () if self.spec.extract.parses else (Parse(),)
        steps = (*parse, *transform.steps[: len(transform.steps) - len(self.by_model)])
        at, extract = self.spec.cache.at, self.spec.extract
        if not self.spec.cache.keeps or at in {"transformed", "features"}:
            return steps, len(steps)
        if any(at in step.points for step in steps):
            return self._parted(steps, at)
        if at == ("decoded" if extract.decode else "source"):  # the examples are at that point when they are read
            return steps, 0
        where, known = NoCache.key("at"), tuple(dict.fromkeys((*POINTS, *(step.points[-1] for step in steps))))
        if at == "source":
            self._add(where, at, "images that are not decoded yet", "set cache.at=decoded")
        else:
            remedy = did_you_mean(at, known, otherwise="name a step of both lists that comes before the scaling")
            self._add(where, at, f"one of {', '.join(known)}", remedy, is_rule=at in STAGES["transform"])
        return steps, len(steps)

    @staticmethod
    def _parted(steps: tuple[Step, ...], at: str) -> tuple[tuple[Step, ...], int]:
        """Return the steps with those before the point `at` first, of each image, and their number."""
        ends = {step.feature: place for place, step in reversed([*enumerate(steps, 1)]) if at in step.points}
        last = max(ends.values())
        early = {place for place, step in enumerate(steps, 1) if place <= ends.get(step.feature, last)}
        before = [step for place, step in enumerate(steps, 1) if place in early]
        return (*before, *(step for place, step in enumerate(steps, 1) if place not in early)), len(before)

    def _scaled_by_model(self) -> tuple[Step, ...]:
        """Return the scaling steps at the end of both lists, if the one input before them is uint8 in both."""
        spec = self.spec
        if isinstance(spec.model, Network):
            return ()
        lists = [spec.transform.steps, *([spec.eval_transform.steps] if validates(spec) else [])]
        common = takewhile(
            lambda ends: ends[0].factors is not None and all(end == ends[0] for end in ends),
            zip(*(reversed(steps) for steps in lists), strict=False),
        )
        tail = tuple(reversed([ends[0] for ends in common]))
        flows = [self._quietly(steps[: len(steps) - len(tail)]) for steps in lists]
        is_uint8 = (flow and [flow.feature(name).dtype for name in flow.inputs] == ["uint8"] for flow in flows)
        return tail if all(is_uint8) else ()

    def plainly(self) -> RunSpec:
        """Return the same run without a cache, and with all that changes nothing but its speed as it was first."""
        spec = self.spec

        def with_codec(transform: Map) -> Map:
            steps, place = self._steps_and_place(transform)
            held = tuple(step for step in steps[:place] if not step.parses)
            codec, later = self._codec(steps[:place]), transform.steps[len(held) :]
            return replace(transform, steps=(*held, *codec, *later))

        load = replace(spec.load, shuffle_at="before_batch")
        return replace(spec.with_maps(with_codec), cache=NO_CACHE, load=load)

    def _quietly(self, steps: tuple[Step, ...]) -> Flow | None:
        """Return the output of these steps; None if they don't accept their input."""
        stages = (self.spec.extract, *(() if self.spec.extract.parses else (Parse(),)), *steps)
        try:
            return reduce(lambda flow, stage: stage.flow(flow), stages, self.spec.dataset.examples)
        except UnfitError:
            return None

    def through(self, stage: Stage, flow: Flow) -> Flow:
        """Return the output of `stage` for `flow`; add a fault if the stage doesn't accept it."""
        try:
            return stage.flow(flow)
        except UnfitError as unfit:
            self._add(stage.path, f"{flow} before it", unfit.expected, unfit.remedy)
            return flow
