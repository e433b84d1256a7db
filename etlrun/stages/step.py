"""Steps, which transform one example at a time."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, Self

from etlrun.stages.base import BATCHES, Nodes, Order, Parallelism, Rescaling, Scope, Speed, Stage, Tuned, single
from etlrun.stages.flow import Feature, Flow
from etlrun.stages.plugins import remember
from etlrun.system.values import Block, frozen


def fields_of(step: Stage) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a stage, in order."""
    return dataclasses.fields(step)  # type: ignore[arg-type] # each stage that is not a base is a dataclass


class Step(Stage):
    """A stage that works on one feature of each example.

    A graph calls `op`, an ejected program contains its source, and a cache's key its code: it refers to nothing but
    its arguments, `tf`, and the functions in `calls`. `gives` describes its output for configs and plans.

    Attributes:
        feature: Name of the feature.
        parses: Whether it works on the serialised example instead, from which it parses all features.
        factors: Scale and offset of a step that a model can apply instead; None for any other step.
        op: Function from a feature to a feature. It takes fields of its class by name (those that it does not take
            choose another way to do the same, or are what its arguments come from), and if the step is random also
            `seed`, the int64 scalar of the pass and the example; where `random` is a property, it has the default None.
    """

    feature: ClassVar[str] = "image"
    parses: ClassVar[bool] = False
    factors: ClassVar[tuple[float, float] | None] = None
    rests_on: ClassVar[tuple[str, ...]] = ("tensorflow",)
    op: ClassVar[Callable[..., Any]]
    calls: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Functions of modules that `op` and they themselves call, each behind those that it calls."""
    chooses_stages: ClassVar[tuple[str, ...]] = ()
    """Fields that decide which stages a plan has, and change nothing else: the stages say what differs."""

    def __init_subclass__(cls) -> None:
        made = (getattr(cls, "op", None), *getattr(cls, "calls", ()))
        remember(function for function in made if isinstance(function, FunctionType))

    @classmethod
    @cache
    def on(cls, feature: str) -> type[Self]:
        """Return the same step for another feature, an image among columns, whose name is in its path and its keys."""
        path = f"transform.columns.{feature}.{cls.path.rpartition('.')[2]}"
        return type(cls.__name__, (cls,), {"feature": feature, "path": path, "__doc__": cls.__doc__})

    @property
    def points(self) -> tuple[str, ...]:
        """Names of the point after it for `cache.at`; messages use the first one."""
        return (self.path.rpartition(".")[2],)

    @property
    def uses_turbo(self) -> bool:
        """Whether libjpeg-turbo does its work, for whole batches."""
        return getattr(self, "library", "") == "turbo"

    @property
    def rescaling(self) -> Rescaling | None:  # type: ignore[override]
        return None if self.factors is None else Rescaling(scale=self.factors[0], offset=self.factors[1])

    def gives(self, incoming: Feature) -> Feature:
        """Return its output for a feature; raise `UnfitError` if it doesn't accept that."""
        return incoming

    def flow(self, incoming: Flow) -> Flow:
        return incoming.with_feature(self.feature, self.gives(incoming.feature(self.feature)))

    @property
    def makers(self) -> tuple[Callable[..., Any], ...]:  # type: ignore[override]
        return (self.op, *self.calls)

    @property
    def arguments(self) -> Block:
        """Fields by name, as `op` takes them."""
        code = self.op.__code__
        names = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        return {of.name: getattr(self, of.name) for of in fields_of(self) if of.name in names}


@frozen
class Parse(Step):
    """Parses the features of a serialised example; a plan puts it before the first step."""

    path = "transform.parse"
    parses = True
    changes_data = False
    points = ("source",)
    makers = ()
    rests_on = ()

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(record="")


@frozen
class Map(Stage):
    """Applies the steps to one example after the other, or to several in parallel.

    Attributes:
        num_parallel_calls: Examples processed in parallel; `cores-1` leaves a core to the training; null runs in the
            consumer's thread.
        deterministic: `false` outputs examples as they are ready: no run can be repeated exactly.
        steps: Steps in the order in which they are applied.
        at_once: Rows of the batches that it makes for itself; 0 if its input is in batches, None for single examples.
    """

    path = "transform.map"
    block = "transform"
    maps_each = True
    tuned = Tuned("num_parallel_calls", "parallelism", "transform.num_parallel_calls")
    is_first: ClassVar[bool] = True
    """Whether its input is as it was read."""

    num_parallel_calls: Speed[Parallelism]
    deterministic: Order[bool]
    steps: tuple[Step, ...]
    at_once: int | None = None

    @property
    def nodes(self) -> tuple[Nodes, ...]:  # type: ignore[override]
        if self.at_once is None:
            return (Nodes(("Map", "ParallelMap")),)
        maps = single("Map", "ParallelMap", examples=self.at_once or None)
        return (single("Unbatch"), maps, single(*BATCHES, examples=self.at_once)) if self.at_once else (maps,)

    @property
    def of_batches(self) -> Self | None:
        return replace(self, at_once=0) if self.at_once else None

    @property
    def inner(self) -> tuple[Step, ...]:  # type: ignore[override]
        return self.steps


ROWS_AT_ONCE = 1_024
"""Rows of a batch that no model takes."""


@frozen
class _Later(Map):
    """Base of the maps behind another stage of the same pipeline."""

    nodes = (single("Map", "ParallelMap"),)
    is_first = False

    @classmethod
    def like(cls, other: Map, steps: tuple[Step, ...]) -> Self:
        """Return the map of `steps` with the parallelism of another one."""
        return cls(num_parallel_calls=other.num_parallel_calls, deterministic=other.deterministic, steps=steps)


@frozen
class AfterCache(_Later):
    """Applies the steps after a cache, which are repeated in each pass."""

    path = "transform.after_cache"
    scope = Scope.EACH


@frozen
class AfterTurbo(_Later):
    """Applies the steps after `transform.turbo`."""

    path = "transform.after_turbo"
