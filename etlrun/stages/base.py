"""What every stage is made of: typed fields that say whether they change the data or only the speed."""

from __future__ import annotations

import dataclasses
import re
import typing
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field

from etlrun.stages.call import Call
from etlrun.stages.flow import Flow


class Kind(StrEnum):
    """What a parameter can change. Each field of a stage carries exactly one."""

    DATA = "data"
    """Which examples there are, and what is in them."""
    ORDER = "order"
    """The order of the examples, or which of them share a batch; not the set."""
    TRAINING = "training"
    """The model, or how it is fitted."""
    SPEED = "speed"
    """How fast it goes and what is kept; never a number that comes out."""


DATA, ORDER, TRAINING, SPEED = Kind.DATA, Kind.ORDER, Kind.TRAINING, Kind.SPEED


@dataclasses.dataclass(frozen=True)
class Expected:
    """The words that an error message uses for the values of a type."""

    text: str


def is_remote(path: str) -> bool:
    """Whether `path` is a URL, of which the file system here would make a folder named as its scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def _of_this_machine(path: str) -> str:
    if is_remote(path):
        raise ValueError
    return path


OptionalPath = Annotated[
    Annotated[str, Field(min_length=1), AfterValidator(_of_this_machine)] | None,
    Expected("a path on this machine, or null"),
]

AUTOTUNE: Literal["autotune"] = "autotune"

Flag = Annotated[bool, Expected("true or false")]
Text = Annotated[str, Field(min_length=1), Expected("a text")]
OptionalText = Annotated[str | None, Expected("a text or null")]
_LARGEST = 2**63 - 1

Natural = Annotated[int, Field(ge=0, le=_LARGEST), Expected("an integer of at least 0")]
Seed = Annotated[int, Field(ge=0, lt=2**32), Expected("an integer from 0 to 2**32 - 1")]
Positive = Annotated[int, Field(ge=1, le=_LARGEST), Expected("an integer of at least 1")]
OptionalPositive = Annotated[
    Annotated[int, Field(ge=1, le=_LARGEST)] | None, Expected("an integer of at least 1, or null")
]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False), Expected("a number above 0")]
Number = Annotated[float, Field(allow_inf_nan=False), Expected("a finite number")]
Parallelism = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | Literal["autotune", "cores", "cores-1"] | None,
    Expected("an integer from 1 to 10,000, autotune, cores, cores-1, or null for a serial stage"),
]
Buffer = Annotated[
    Annotated[int, Field(ge=0, le=1_000_000)] | Literal["autotune"],
    Expected("an integer from 0 to 1,000,000, or autotune"),
]
_Side = Annotated[int, Field(ge=1, le=65_536)]
Size = Annotated[
    tuple[_Side, _Side],
    Expected("[height, width], two integers from 1 to 65,536"),
]


BATCHES = ("Batch", "ParallelBatch")
"""How the names of nodes that make batches begin."""


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes of one stage in the model of the graph that tf.data keeps for AUTOTUNE.

    Attributes:
        names: How the names of the nodes begin; empty for all that no other stage claims.
        is_single: Whether it is one node, so that the next node of that name belongs to the next stage.
        examples: The examples in an element, where the stage makes batches of its own; None for those of its place.
    """

    names: tuple[str, ...] = ()
    is_single: bool = False
    examples: int | None = None


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A parameter that AUTOTUNE sets.

    Attributes:
        field: The field of the stage.
        setting: The name under which the measured costs of a stage give its value.
        key: Its key in a config.
    """

    field: str
    setting: Literal["parallelism", "buffer_size"]
    key: str


class Scope(StrEnum):
    """The passes over the data that one dataset of a stage serves."""

    ONCE = "once"
    """The dataset is made once, and all passes read it."""
    EACH = "each"
    """Each pass has a dataset of its own, which ends with the pass."""
    AROUND = "around"
    """The dataset goes on from one pass to the next."""


class Stage:
    """A frozen, keyword-only dataclass of parameters.

    Attributes:
        path: The group and the name by which configs and plans call it: `extract.interleave`.
        block: The block of a config that holds its fields, where that is not `path`.
        changes_data: Whether its mere presence changes the numbers of a run.
        keeps: Whether later passes read what it holds instead of what comes before it.
        scope: The passes that one dataset of it serves.
        only_reorders: Whether it changes nothing but the order of examples, whatever they are.
        leaves_out: Whether it skips examples that can't be read.
        nodes: Its nodes in the model of tf.data's graph, from the end of the graph to its source.
        tuned: The parameter that AUTOTUNE sets where the config says `autotune`.
    """

    path: ClassVar[str]
    block: ClassVar[str] = ""
    changes_data: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    scope: ClassVar[Scope] = Scope.ONCE
    only_reorders: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = False
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(),)
    tuned: ClassVar[Tuned | None] = None
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    @classmethod
    def key(cls, name: str) -> str:
        """Return the dotted key of the field `name` in a config; `AttributeError` where there is no such field."""
        if name not in field_metadata(cls):
            raise AttributeError(f"{cls.__name__} has no field {name}")
        return f"{cls.block or cls.path}.{name}"

    @property
    def random(self) -> bool:
        """Whether each pass over the data gives another result."""
        return False

    def flow(self, incoming: Flow) -> Flow:
        """What goes out when `incoming` comes in; `UnfitError` where it can't take that."""
        return incoming

    def call(self) -> Call | None:
        """Return the call that the stage is; None where a graph and a program have functions for its type."""
        return None

    def canonical(self, shards: int) -> Self:
        """Return one and the same stage for all that mean the same if a split has so many shards."""
        return self

    @property
    def makers(self) -> tuple[object, ...]:
        """The code of the stage that the key of a cache covers."""
        return (type(self),)

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The packages whose version may change the output of the stage."""
        return ()

    def faults(self) -> typing.Iterator[tuple[str, str, str, str]]:
        """Faults of single fields that their types can't tell: (field, found, expected, remedy)."""
        yield from ()

    def rules(self) -> typing.Iterator[tuple[str, str, str, str]]:
        """Faults between valid fields: (field, found, expected, remedy)."""
        yield from ()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One field of a stage as a reader sees it."""

    name: str
    value: object
    kind: Kind
    is_default: bool = False
    """Whether it is the default of its field: only fields that were added later have one, which changes nothing."""


_METADATA: dict[type[Any], dict[str, tuple[object, ...]]] = {}


def field_metadata(stage_type: type[Any]) -> dict[str, tuple[object, ...]]:
    """For each field of a stage type what its annotation carries: `Kind`, `Expected` and limits."""
    if stage_type not in _METADATA:
        hints = typing.get_type_hints(stage_type, include_extras=True)
        _METADATA[stage_type] = {
            field.name: tuple(getattr(hints[field.name], "__metadata__", ()))
            for field in dataclasses.fields(stage_type)
        }
    return _METADATA[stage_type]


def parameters(stage: object) -> list[Parameter]:
    """The fields of `stage` that carry a kind, in order of definition, with their values."""
    defaults = {field.name: field.default for field in dataclasses.fields(stage)}  # type: ignore[arg-type]
    return [
        Parameter(name, getattr(stage, name), kind, is_default=getattr(stage, name) == defaults[name])
        for name, metadata in field_metadata(type(stage)).items()
        for kind in metadata
        if isinstance(kind, Kind)
    ]


def expectation(stage_type: type, field: str) -> str:
    """The words for the values that `field` of `stage_type` takes."""
    texts = [item.text for item in field_metadata(stage_type)[field] if isinstance(item, Expected)]
    return texts[0]
