"""Base of all stages: typed fields, each marked by what it can change, such as the data or only the speed."""

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field

from etlrun.stages.flow import Faults, Flow
from etlrun.stages.made import Call
from etlrun.stages.plugins import names
from etlrun.system.values import Block, frozen


@frozen
class Rescaling:
    """Computes `image * scale + offset`, as `keras.layers.Rescaling` does.

    Attributes:
        scale: Factor of all channels, or one for each.
        offset: Number that is added to all channels, or one for each.
        reverses: Whether the channels are reversed first.
    """

    scale: float | list[float]
    offset: float | list[float]
    reverses: bool = False


class Kind(StrEnum):
    """What a parameter can change, the strongest first. Each field has one kind, or several in this order."""

    DATA = "data"
    """The set of examples, or their content."""
    TRAINING = "training"
    """The model, or its training, by more than another seed would change it."""
    ORDER = "order"
    """The order of the examples, or their assignment to batches; not the set."""
    SPEED = "speed"
    """Speed, or which files are kept; never the results."""


DATA, ORDER, TRAINING, SPEED = Kind.DATA, Kind.ORDER, Kind.TRAINING, Kind.SPEED

_Type = TypeVar("_Type")
Data = Annotated[_Type, DATA]
Order = Annotated[_Type, ORDER]
Training = Annotated[_Type, TRAINING]
Speed = Annotated[_Type, SPEED]
"""Types of fields of one kind, such as `Speed[Parallelism]`."""


@dataclasses.dataclass(frozen=True)
class Expected:
    """Description of the valid values of a type for error messages.

    Attributes:
        group: Group of entry points, whose names in installed packages are valid, too.
    """

    text: str
    group: str = ""

    @property
    def whole(self) -> str:
        """The text with the names of installed packages."""
        own = names(self.group)
        return f"{self.text}; of installed packages {', '.join(own)}" if own else self.text


AUTOTUNE: Literal["autotune"] = "autotune"

Text = Annotated[str, Field(min_length=1)]
OptionalText = str | None
_LARGEST = 2**63 - 1

Natural = Annotated[int, Field(ge=0, le=_LARGEST)]
Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Positive = Annotated[int, Field(ge=1, le=_LARGEST)]
OptionalPositive = Positive | None
Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False), Expected("a finite number")]
Parallelism = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | Literal["autotune", "cores", "cores-1"] | None,
    Expected("an integer from 1 to 10,000, autotune, cores, cores-1, or null for a serial stage"),
]
Processes = Annotated[
    Annotated[int, Field(ge=0, le=1_000)] | Literal["cores"], Expected("an integer from 0 to 1,000, or cores")
]
Buffer = Annotated[int, Field(ge=0, le=1_000_000)] | Literal["autotune"]
_Side = Annotated[int, Field(ge=1, le=65_536)]
Size = Annotated[tuple[_Side, _Side], Expected("[height, width], two integers from 1 to 65,536")]

BATCHES = ("Batch", "ParallelBatch", "Rebatch")
"""Name prefixes of nodes that make batches."""
CUT = ("TensorSlice",)
"""Name prefixes of nodes that cut batches out of the whole order of a pass."""


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes of one stage in the graph model that tf.data keeps for AUTOTUNE.

    Attributes:
        names: Prefixes of the node names; empty for all nodes that no other stage claims.
        is_single: Whether it is a single node, so that the next node of that name belongs to the next stage.
        examples: Examples per element, if the stage makes batches of its own; None for those of its input.
    """

    names: tuple[str, ...] = ()
    is_single: bool = False
    examples: int | None = None


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A parameter that AUTOTUNE sets.

    Attributes:
        field: Field of the stage.
        setting: Name of its value in the measured costs of a stage.
        key: Key in a config.
    """

    field: str
    setting: Literal["parallelism", "buffer_size"]
    key: str


def single(*names: str, examples: int | None = None) -> Nodes:
    """Return the nodes of a stage that is one of these names alone."""
    return Nodes(names, is_single=True, examples=examples)


class Scope(StrEnum):
    """Lifetime of a stage in a graph."""

    ONCE = "once"
    """Built once and read by all passes."""
    EACH = "each"
    """Rebuilt for each pass, with a state that ends with the pass."""
    AROUND = "around"
    """Built around all passes, with a state that continues from one to the next."""


class Stage:
    """A frozen, keyword-only dataclass of parameters.

    Attributes:
        path: Group and name in configs and plans, such as `extract.interleave`.
        block: Block of a config that holds its fields, if that is not `path`.
        names: Values of its field `name` that select it in a config; empty if its key in the registry does.
        changes_data: Whether its mere presence changes the results of a run.
        keeps: Whether later passes read what it has stored instead of its input.
        scope: Its lifetime in a graph.
        only_reorders: Whether it changes only the order of examples.
        leaves_out: Whether it drops examples that can't be read.
        maps_each: Whether it makes one example of each, in the same order.
        does_steps: Whether it does the work of steps, for several examples in one call.
        nodes: Its nodes in tf.data's graph model, from the end of the graph to its source.
        nodes_of_reading: The same in a pass that reads a disk cache, if they differ there.
        tuned: The parameter that AUTOTUNE sets if its value is `autotune`.
        random: Whether its result differs from pass to pass.
        inner: Steps that it applies to each example, one after the other.
        of_batches: The same stage for the batches of the model, which saves it batches of its own; None for others.
        rescaling: Scaling of pixels that is all it does, which a layer of Keras does as well; None for any other stage.
        holds: Number of examples that it collects before its first output.
        makers: Functions whose source is part of a cache's key.
        rests_on: Packages whose version may change its output.
    """

    path: ClassVar[str]
    block: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ()
    changes_data: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    scope: ClassVar[Scope] = Scope.ONCE
    only_reorders: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = False
    maps_each: ClassVar[bool] = False
    does_steps: ClassVar[bool] = False
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(),)
    nodes_of_reading: ClassVar[tuple[Nodes, ...] | None] = None
    tuned: ClassVar[Tuned | None] = None
    random: ClassVar[bool] = False
    inner: ClassVar[tuple[Any, ...]] = ()
    of_batches: ClassVar[Any] = None
    rescaling: ClassVar[Rescaling | None] = None
    holds: ClassVar[int] = 0
    makers: ClassVar[tuple[Callable[..., Any], ...]] = ()
    rests_on: ClassVar[tuple[str, ...]] = ()
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    @classmethod
    def key(cls, name: str) -> str:
        """Return the dotted key of the field `name` in a config; raise `AttributeError` if there is no such field."""
        if name not in (field.name for field in dataclasses.fields(cls)):  # type: ignore[arg-type]
            raise AttributeError(f"{cls.__name__} has no field {name}")
        return f"{cls.block or cls.path}.{name}"

    def plain(self, name: str) -> Any:
        """Return the value of the field `name` as plain values, which JSON has, too."""
        return getattr(self, name)

    def flow(self, incoming: Flow) -> Flow:
        """Return its output for `incoming`; raise `UnfitError` if it doesn't accept that."""
        return incoming

    def call(self) -> Call | None:
        """Return its method call; None if graphs and programs have functions of their own for its type."""
        return None

    def canonical(self, shards: int) -> Self:
        """Return the same stage for all values that are equivalent for this number of shards."""
        return self

    def faults(self) -> Faults:
        """Yield faults of single fields that their types don't check: (field, found, expected, remedy)."""
        yield from ()

    def rules(self) -> Faults:
        """Yield faults between valid fields: (field, found, expected, remedy)."""
        yield from ()


_Stage = TypeVar("_Stage", bound=type[Stage])
SELECTABLE: dict[str, dict[str, type[Stage]]] = {}
"""Stages of etlrun that configs select, by the group and the name in their `path`."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def selectable(cls: _Stage) -> _Stage:
    """Make a frozen dataclass of a stage that configs select by its `path`."""
    group, _, name = cls.path.partition(".")
    SELECTABLE.setdefault(group, {})[name] = made = frozen(cls)
    return made


def selected(options: Mapping[str, type[Stage]], name: object) -> str | None:
    """Return the key of the option of a group that `name` selects in a config; None if there is none."""
    return next((option for option, stage in options.items() if name in (stage.names or (option,))), None)


def names_of(options: Mapping[str, type[Stage]]) -> list[str]:
    """Return all names that select an option of a group."""
    return [name for option, stage in options.items() for name in stage.names or (option,)]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A field of a stage, as it is shown."""

    name: str
    value: object
    kinds: tuple[Kind, ...]
    is_default: bool = False
    """Whether a config may omit this value: fields that were added later have a default that changes nothing."""

    @property
    def kind(self) -> Kind:
        """The strongest of its kinds."""
        return self.kinds[0]

    @property
    def does_nothing(self) -> bool:
        """Whether it is an optional one that is left out, such as null, or `all` of what could be less."""
        return self.is_default and self.value in (None, "all")


_HINTS: dict[tuple[Any, bool], Block] = {}
_METADATA: dict[type[Any], dict[str, tuple[object, ...]]] = {}


def hints_of(stage_type: type[Any], *, include_extras: bool = False) -> Block:
    """Return `typing.get_type_hints` of a stage type, which takes milliseconds, once for each type."""
    key = stage_type, include_extras
    if key not in _HINTS:
        _HINTS[key] = typing.get_type_hints(stage_type, include_extras=include_extras)
    return _HINTS[key]


def field_metadata(stage_type: type[Any]) -> dict[str, tuple[object, ...]]:
    """Return the metadata of the annotation of each field of a stage type: `Kind`, `Expected` and limits."""
    if stage_type not in _METADATA:
        hints, names = hints_of(stage_type, include_extras=True), dataclasses.fields(stage_type)
        _METADATA[stage_type] = {of.name: tuple(getattr(hints[of.name], "__metadata__", ())) for of in names}
    return _METADATA[stage_type]


def parameters(stage: Stage) -> list[Parameter]:
    """Return the fields of `stage` that have kinds, in order of definition, with their values."""
    stage_type: Any = type(stage)
    return [
        Parameter(name, stage.plain(name), kinds, is_default=getattr(stage, name) == default)
        for name, kinds, default in _with_kinds(stage_type)
    ]


@cache  # a plan of a sweep asks for them over and over
def _with_kinds(stage_type: Any) -> list[tuple[str, tuple[Kind, ...], object]]:
    """Return the name, the kinds and the default of each field that has kinds."""
    metadata = field_metadata(stage_type)
    kinds = {name: tuple(item for item in of if isinstance(item, Kind)) for name, of in metadata.items()}
    return [(of.name, kinds[of.name], of.default) for of in dataclasses.fields(stage_type) if kinds[of.name]]


_LIMITS = ("ge", "gt", "le", "lt")
_WORDS = {bool: ("true", "false"), str: ("a string",), type(None): ("null",)}
_NUMBERS = {int: "an integer", float: "a number"}


def described(annotation: Any) -> str:
    """Return the values that a type takes: words that are annotated to it as `Expected`, or those of its parts."""
    if own := [item.whole for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Expected)]:
        return own[0]
    values = list(dict.fromkeys(_alternatives(annotation, {})))
    has_phrases = any(" " in value for value in values)
    return (", or " if has_phrases else " or ").join(filter(None, (", ".join(values[:-1]), values[-1])))


def _alternatives(annotation: Any, limits: Block) -> Iterator[str]:
    """Yield a phrase for each word and each kind of values that a type takes within limits, null last."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        own = [item.whole for item in annotation.__metadata__ if isinstance(item, Expected)]
        fields = [of for item in annotation.__metadata__ for of in getattr(item, "metadata", ())]
        limits = limits | {name: getattr(of, name) for of in fields for name in _LIMITS if hasattr(of, name)}
        yield from own or _alternatives(args[0], limits)
    elif origin is Literal:
        yield from map(str, args)
    elif origin is tuple:
        each = re.sub(r"^an? ((?:[\w-]+ )??)(\w+)(?= from| above|$)", r"\1\2s", described(args[0]))
        yield f"a list of {each}" if args[1:] == (...,) else f"a list of {len(args)} {each}"
    elif args and origin is not dict:
        yield from (text for of in args for text in _alternatives(of, limits))
    elif annotation in _NUMBERS:
        yield _within(_NUMBERS[annotation], **limits)
    else:
        yield from _WORDS.get(annotation, ("a mapping",))


def _within(noun: str, *, ge: Any = None, gt: Any = None, le: Any = None, lt: Any = None) -> str:
    """Return an integer or a number with its limits."""
    if lt is not None:
        return f"{noun} in [{ge}, {lt:,})"
    if le not in (None, _LARGEST):
        return f"{noun} above {gt}, at most {le:,}" if ge is None else f"{noun} from {ge} to {le:,}"
    is_from_one = ge == 1 and noun == "an integer"
    sign = "positive " * (gt == 0 or is_from_one) or "non-negative " * (ge == 0)
    return f"a {sign}{noun.split()[1]}" if sign else f"{noun} from {ge}" if ge is not None else noun
