"""Rules between the parts of a run: while a condition holds, a key needs one of some values.

A fault is worded from the rule. Its remedies are changes that were tried on the run: after each, the rule is kept, and
no other rule is broken that was not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, cast

import yaml

from etlrun.planning.plan import PlannedStage, PlannedStep, at_cache
from etlrun.planning.spec import RunSpec, bare
from etlrun.stages.base import Stage
from etlrun.stages.cache import CACHES
from etlrun.stages.extract import Interleave, Sequential
from etlrun.stages.flow import Feature, Flow
from etlrun.stages.measure import NoProfile
from etlrun.stages.mix import Mix
from etlrun.stages.model import MobileNetV2
from etlrun.stages.rule import Need, Of, Rules, TextT, When
from etlrun.stages.step import Map
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault
from etlrun.system.values import Block, frozen

Stages = tuple[PlannedStage, ...]


@frozen
class Draft(RunSpec):
    """A run with its stages, before it is known whether they fit together.

    Attributes:
        train: Stages of the training pipeline, in order.
        evaluation: Stages of the validation pipeline; empty without validation.
        by_model: Scaling steps that the model applies.
        faults: Faults of single stages; only without them are the flows of the others valid.
    """

    train: Stages
    evaluation: Stages
    by_model: tuple[PlannedStep, ...]
    faults: tuple[Fault, ...]

    @property
    def given(self) -> Flow:
        """What the model takes; the targets as they are before they are mixed."""
        given = self.train[-1].gives
        place = next((place for place, of in enumerate(self.train) if isinstance(of.stage, Mix)), None)
        if place is None or self.faults:  # features that are cached are not mixed
            return given
        return given.with_feature(given.target, self.train[place - 1].gives.features[given.target])

    @property
    def held(self) -> Flow:
        """What the cache holds, if there is one."""
        return at_cache(self.train)[0][-1].gives

    @property
    def training(self) -> Trainer:
        """The trainer of a model, if it is one."""
        return cast("Trainer", self.trainer)

    @property
    def targets(self) -> list[Feature]:
        """The targets, the main one first."""
        flow = self.dataset.examples
        return [flow.features[name] for name in flow.targets]


Rule = tuple[When, Need]


def broken(draft: Draft, rules: Rules) -> list[Rule]:
    """Return the rules that a run breaks. A key that is null, or not there, needs nothing."""
    found = list[Rule]()
    for when, need in ((when, need) for when, needs in rules.items() if when.holds(draft) for need in needs):
        if need.met is not None:
            is_met = need.met(draft)
        else:
            key, _, values = _given(need.values, draft).partition("=")
            value = value_of(draft, key)
            is_met = value is None or bare(value) in values.split(" or ")
        found += [] if is_met else [(when, need)]
    return found


def _given(of: Of[TextT], draft: Draft) -> TextT:
    return of(draft) if callable(of) else of


def faults_of(draft: Draft, rules: Rules, redraft: Callable[[RunSpec], Draft]) -> Iterator[Fault]:
    """Yield a fault for each rule that a run breaks; `redraft` makes the stages of a changed run."""
    found = broken(draft, rules)
    known = {*found, *_own(draft)}

    @cache
    def left(words: str) -> set[object]:
        """Return the rules that are broken after a change."""
        again = redraft(changed(draft, words))
        return {*broken(again, rules), *_own(again)}

    for when, need in found:
        (key, _, values), words = _given(need.values, draft).partition("="), _given(when.words, draft)
        by = [f"{key}={value}" for value in values.split(" or ")] if need.by is None else _given(need.by, draft)
        undo = _given(when.undo, draft)
        ends = [change for change in (*by, *undo) if (when, need) not in left(change)]
        clean = [change for change in ends if left(change) <= known]
        firsts = [next((change for change in clean if change in changes), "") for changes in (by, undo)]
        remedies = [*dict.fromkeys(filter(None, firsts))] or ends[: not need.advice]
        remedy = ", or ".join(f"{'repair the data and ' * ('=raise' in of)}set {of}" for of in remedies) or need.advice
        condition = re.sub(r"{(.+?)}", lambda of: f"{of[1]}={bare(value_of(draft, of[1]))}", words)
        values = values.replace(" or ", ", ", max(values.count(" or ") - 1, 0))
        expected = ", ".join(filter(None, (" with ".join(filter(None, (values, condition))), need.because)))
        where, tried = key if "." in key else f"{key}.name", tuple(tuple(of.split()) for of in remedies if of in clean)
        yield Fault(where, bare(value_of(draft, key)), expected, remedy, is_rule=True, overrides=tried)


def _own(draft: Draft) -> Iterator[object]:
    """Yield the faults of the stages of a run by themselves, and the rules between their fields."""
    yield from ((fault.where, fault.expected) for fault in draft.faults)
    for stage in (draft.dataset, draft.extract, draft.load, draft.model, draft.trainer):
        yield from ((stage.path, key, expected) for key, _, expected, _ in stage.rules())


def value_of(spec: RunSpec, key: str) -> Any:
    """Return the value of a dotted key; of a group, the name of its option; None where there is no such key."""
    group, *names = key.split(".")
    found: Any = getattr(spec, group)
    for name in names:
        steps = {step.path: step for step in getattr(found, "steps", ())}
        found = steps.get(f"transform.{name}", getattr(found, name, None))
    if not isinstance(found, Stage):
        return found
    name = found.path.rpartition(".")[2]
    return f"a {name}" if names else name


OPTIONS = {
    **{f"cache={name}": of(at="transformed", dir=None) for name, of in CACHES.items()},
    "extract=sequential": Sequential(shuffle_files=False),
    "extract=interleave": Interleave(
        shuffle_files=False, cycle_length=4, block_length=1, num_parallel_calls="autotune", deterministic=True
    ),
    "model=mobilenet_v2": MobileNetV2(alpha=1.0, weights="imagenet", trainable=False, batch_norm_momentum=None),
    "profile=none": NoProfile(),
}
"""Options that a remedy may choose, as their files have them."""


def changed(spec: RunSpec, words: str) -> RunSpec:
    """Return a run with overrides of values and of options applied to it, but for keys that it does not have."""
    parts: Block = {field.name: getattr(spec, field.name) for field in dataclasses.fields(RunSpec)}
    for word in words.split():
        key, _, text = word.partition("=")
        group, *names = key.split(".")
        if names:
            value = yaml.safe_load(text)
            value = tuple(value) if isinstance(value, list) else value
            for name in (group, "eval_transform")[: 1 + (group == "transform")]:
                parts[name] = _with(parts[name], names, value)
        else:
            option: Any = OPTIONS[word]
            kept = vars(parts[group]).keys() & vars(option).keys()
            parts[group] = replace(option, **{name: getattr(parts[group], name) for name in kept})
    return RunSpec(**parts)


def _with(stage: Any, names: list[str], value: Any) -> Any:
    """Return a stage with a value of its own or of a stage in it; as it is if it has no such key."""
    name, *inner = names
    if inner and isinstance(stage, Map):
        steps = (_with(step, inner, value) if step.path == f"transform.{name}" else step for step in stage.steps)
        return replace(stage, steps=tuple(steps))
    if name not in vars(stage):
        return stage
    return replace(stage, **{name: _with(getattr(stage, name), inner, value) if inner else value})
