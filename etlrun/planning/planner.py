"""Planner: makes a `Plan` from a `RunSpec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from typing import Any

from etlrun.planning.notes import decoding_notes, remarks
from etlrun.planning.plan import (
    Plan,
    PlannedStage,
    PlannedStep,
    code_in,
    given_to_model,
    place_of_point,
    served,
    validates,
    with_defaults,
    with_library,
)
from etlrun.planning.rule import Draft
from etlrun.planning.rules import rules
from etlrun.planning.spec import ConflictError, RunSpec, parse
from etlrun.stages import STAGES
from etlrun.stages import Stages as Known
from etlrun.stages.base import Stage
from etlrun.stages.cache import POINTS, NoCache
from etlrun.stages.dataset import fetch_of
from etlrun.stages.extract import SkipCorrupt, SkippedInBatches
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.image import DecodeJpeg, EncodeJpeg
from etlrun.stages.load import FullShuffle, Prefetch, SampleByClass, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.network import Network
from etlrun.stages.objectives import kind_of
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import PadSequences, batch_of
from etlrun.stages.step import ROWS_AT_ONCE, AfterCache, AfterTurbo, Map, Parse, ParseBatch, Step
from etlrun.stages.turbo import Turbo, turbo_of, turbo_steps
from etlrun.system.errors import ConfigError, Fault, did_you_mean


def plan(spec: RunSpec) -> Plan:
    """Return the plan of `spec`; raise `ConfigError` with all pairs of stages that don't fit together."""
    asked = with_data(spec)
    spec = served(asked)
    draft = drafted(spec)
    if faults := [*draft.faults, *rules(draft, drafted)]:
        raise ConfigError([*dict.fromkeys(faults)])
    notes = [*spec.columns.notes] if spec.columns is not None else []
    notes += spec.model.notes(_seen(draft)) if spec.fit is not None else ()
    changes_base = (
        spec.fit is not None and spec.cache.keeps_features and spec.fit.frozen_phases != spec.fit.planned_phases
    )
    return Plan(
        spec=spec,
        train=draft.train,
        evaluation=draft.evaluation,
        by_model=draft.by_model,
        plain=_Planner(_Planner(spec).plainly()).pipelines(),
        remarks=(*remarks(spec), *decoding_notes(asked), *notes),
        unfrozen=plan(replace(spec, cache=NO_CACHE)) if changes_base else None,
        code=code_in(spec),
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
    if spec.fit is None or planner.faults:
        return draft
    planner.through(spec.model, _seen(draft))
    return replace(draft, faults=tuple(planner.faults))


def _seen(draft: Draft) -> Flow:
    """Return what the model sees, behind the steps that it applies."""
    return draft.by_model[-1].gives if draft.by_model else given_to_model(draft.train)


def planned(config: Mapping[str, Any], stages: Known) -> Plan:
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
NO_CACHE = NoCache(at="transformed", dtype="auto", dir=None, when_busy="uncached")
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
        fault = Fault(where, str(found), expected, remedy, is_rule=is_rule)
        if fault not in self.faults:
            self.faults.append(fault)

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
            if stages[-1].maps_each and all(step.parses for step in stages[-1].inner):
                of_batches.insert(0, stages.pop())
        yield from (*stages, batch, *of_batches)
        if load.mixes and not evaluation and not self.spec.cache.keeps_features:
            yield Mix(
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
        has_shuffle = load.shuffles and not evaluation
        shuffle: list[Stage] = []
        if has_shuffle and load.is_by_number:
            by_number = FullShuffle if load.sample == "all" else SampleByClass
            shuffle = [by_number(seed=spec.trainer.seed)]
        elif has_shuffle:
            shuffle = [Shuffle(buffer_size=load.shuffle_buffer, seed=spec.trainer.seed)]
        is_early = self._shuffles_as_read(transform)
        yield from (*fetch_of(spec.dataset), spec.extract.for_evaluation() if evaluation else spec.extract)
        yield from shuffle if is_early else ()
        if transform.parse_batch:
            yield ParseBatch(
                examples=transform.parse_batch,
                num_parallel_calls=transform.num_parallel_calls,
                deterministic=transform.deterministic,
            )
        turbo, codec = turbo_steps(steps), self._codec(steps[:place])
        held, again = (*steps[:place], *codec[:1]), (*codec[1:], *steps[place:])
        maps = self._maps(replace(transform, steps=held), (*turbo[:place], *(False for _ in codec[:1])))
        yield from (stages := [*maps])
        if spec.dataset.on_corrupt == "skip":
            yield SkippedInBatches() if isinstance(stages[-1], Turbo) and stages[-1].skips else SkipCorrupt()
        if spec.cache.keeps:
            if spec.cache.at == "features" and spec.model.features is not None:
                yield Backbone(features=spec.model.features)
            yield spec.cache
        yield from () if is_early else shuffle
        if again:
            decodes = (step.uses_turbo for step in codec[1:])
            yield from self._maps(AfterCache.like(transform, again), (*decodes, *turbo[place:]))

    def _codec(self, held: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the steps that encode and decode what a cache holds after these steps; none if it holds it raw."""
        cache = self.spec.cache
        if cache.quality is None or cache.at == "features" or (flow := self._quietly(held)) is None:
            return ()
        image = flow.features.get(EncodeJpeg.feature)
        height, width, channels = image.shape if image and len(image.shape) == len(_OF_IMAGE) else _OF_IMAGE
        resizes = any(step.path == "transform.resize" for step in self.spec.transform.steps)
        if image is None or image.dtype != "uint8" or channels != _OF_IMAGE[-1] or not height or not width:
            self._add(
                cache.key("codec"),
                f"{cache.codec}, for {flow}",
                "uint8 images of one size with three channels, which JPEGs can hold",
                "set cache.codec=raw" + ", or cache.at=resize with transform.resize.dtype=uint8" * resizes,
            )
            return ()
        decode = DecodeJpeg(
            size=(height, width), library="turbo" if any(step.uses_turbo for step in held) else "tensorflow"
        )
        return EncodeJpeg(quality=cache.quality), decode

    def _maps(self, whole: Map, is_turbo: Sequence[bool]) -> Iterator[Stage]:
        """Yield the stages of these steps: one, or up to three if `turbo` does the work of some."""
        part = [step for step, fits in zip(whole.steps, is_turbo, strict=True) if fits]
        turbo = turbo_of(part, whole, skips=self.spec.dataset.on_corrupt == "skip")
        if turbo is None:
            whole = with_library(whole, "tensorflow")
            dataset = self.spec.dataset
            if isinstance(dataset, Rows) and whole.is_first:
                whole = replace(whole, at_once=dataset.found.rows_at_once(ROWS_AT_ONCE))
            yield whole
            return
        place = whole.steps.index(part[0])
        before, after = whole.steps[:place], whole.steps[place + len(part) :]
        if before or whole.is_first:
            yield replace(whole, steps=before)
        yield turbo
        if after:
            yield (AfterTurbo if whole.is_first else AfterCache).like(whole, after)

    def _shuffles_as_read(self, transform: Map) -> bool:
        """Return whether examples can be shuffled before the steps: same order, and no larger ones in the buffer.

        A cache stores examples in the order of the data, and an example that is skipped shifts those behind it.
        """
        spec = self.spec
        if spec.load.is_by_number:
            return not spec.cache.keeps
        keeps_order = transform.deterministic and spec.dataset.on_corrupt == "raise" and not spec.cache.keeps
        return spec.load.shuffle_at == "auto" and keeps_order and not spec.extract.decodes

    def _steps_and_place(self, transform: Map) -> tuple[tuple[Step, ...], int]:
        """Return the steps of a pipeline, without those that the model applies, and the number before the cache."""
        parse = () if self.spec.extract.parses or transform.parse_batch else (Parse(),)
        steps = (*parse, *transform.steps[: len(transform.steps) - len(self.by_model)])
        return steps, self._place_of_cache(steps)

    def _place_of_cache(self, steps: tuple[Step, ...]) -> int:
        """Return the number of steps before the cache."""
        at, extract = self.spec.cache.at, self.spec.extract
        if not self.spec.cache.keeps or at in {"transformed", "features"}:
            return len(steps)
        place = place_of_point(at, steps)
        if place is not None:
            return place
        if at == ("decoded" if extract.decodes else "source"):  # the examples are at that point when they are read
            return 0
        where, known = NoCache.key("at"), tuple(dict.fromkeys((*POINTS, *(step.points[-1] for step in steps))))
        if at == "source":
            self._add(where, at, "images that are not decoded yet", "set cache.at=decoded")
        else:
            remedy = did_you_mean(at, known, otherwise="name a step of both lists that comes before the scaling")
            self._add(where, at, f"one of {', '.join(known)}", remedy, is_rule=at in STAGES["transform"])
        return len(steps)

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
        inputs = [[flow.feature(name).dtype for name in flow.inputs] if flow else [] for flow in flows]
        return tail if all(dtypes == ["uint8"] for dtypes in inputs) else ()

    def plainly(self) -> RunSpec:
        """Return the same run without a cache, and with all that changes nothing but its speed as it was first."""
        spec = self.spec

        def with_codec(transform: Map) -> Map:
            steps, place = self._steps_and_place(transform)
            held = tuple(step for step in steps[:place] if not step.parses)
            codec, later = self._codec(steps[:place]), transform.steps[len(held) :]
            return replace(transform, steps=(*held, *codec, *later))

        return replace(
            spec,
            cache=NO_CACHE,
            load=replace(spec.load, shuffle_at="before_batch"),
            transform=with_codec(replace(spec.transform, parse_batch=None)),
            eval_transform=with_codec(replace(spec.eval_transform, parse_batch=None)),
        )

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
            self._add(stage.told_as or stage.path, f"{flow} before it", unfit.expected, unfit.remedy)
            return flow
