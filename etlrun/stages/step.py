"""What is done to each example, one step after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from etlrun.stages.base import ORDER, SPEED, Flag, Nodes, Parallelism, Scope, Stage, Tuned
from etlrun.stages.flow import Feature, Flow


class Step(Stage):
    """A stage that works on one feature of each example.

    A graph calls `op`, an ejected program holds its source, and a cache's key its code: it names nothing but its
    arguments and `tf`. `gives` says the same of what goes out, for configs and plans.

    Attributes:
        feature: The name of the feature that it works on.
        parses: Whether it works on the serialised example instead, and reads all features from it.
        op: From a feature to a feature. It takes the fields of its class by their names, and where the step is random
            `seed`, the int64 scalar of the pass.
    """

    feature: ClassVar[str] = "image"
    parses: ClassVar[bool] = False
    op: ClassVar[Callable[..., Any]]
    is_costly: ClassVar[bool] = False
    """Whether it takes so long that reading its result from a cache is faster."""

    @property
    def points(self) -> tuple[str, ...]:
        """The names of the point after it, as `cache.at` takes them; the first one is that of messages."""
        return (self.path.partition(".")[2],)

    @property
    def factors(self) -> tuple[float, float] | None:
        """Scale and offset of a step that a model can do as well; None for any other."""
        return None

    def gives(self, incoming: Feature) -> Feature:
        """Return what the step makes of its feature; raise `UnfitError` where it can't take that feature."""
        return incoming

    def flow(self, incoming: Flow) -> Flow:
        return incoming.with_feature(self.feature, self.gives(incoming.feature(self.feature)))

    @property
    def makers(self) -> tuple[object, ...]:
        return (self.op,)

    @property
    def rests_on(self) -> tuple[str, ...]:
        return ("tensorflow",)

    @property
    def values(self) -> dict[str, Any]:
        """The fields by their names, as `op` takes them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Parse(Step):
    """Parse a serialised example into its features; a plan puts it before the first step."""

    path: ClassVar[str] = "transform.parse"
    parses: ClassVar[bool] = True
    changes_data: ClassVar[bool] = False
    points: ClassVar[tuple[str, ...]] = ("source",)
    makers: ClassVar[tuple[object, ...]] = ()
    rests_on: ClassVar[tuple[str, ...]] = ()

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(is_serialised=False)


@dataclass(frozen=True, kw_only=True)
class Map(Stage):
    """The steps, applied to one example after the other or to several at once.

    Attributes:
        num_parallel_calls: Examples worked on at once; `cores` as many as this process may use cores, `cores-1` leaves
            one to the training; null works in the consumer's thread.
        deterministic: false gives examples as they get ready, so that no run can be repeated exactly.
        steps: In the order in which they are applied.
    """

    path: ClassVar[str] = "transform.map"
    block: ClassVar[str] = "transform"
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Map", "ParallelMap")),)
    tuned: ClassVar[Tuned | None] = Tuned("num_parallel_calls", "parallelism", "transform.num_parallel_calls")

    num_parallel_calls: Annotated[Parallelism, SPEED]
    deterministic: Annotated[Flag, ORDER]
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class AfterCache(Map):
    """Those steps that come after a cache, done again in each pass."""

    path: ClassVar[str] = "transform.after_cache"
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Map", "ParallelMap"), is_single=True),)
    scope: ClassVar[Scope] = Scope.EACH
