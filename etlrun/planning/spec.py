"""Parsing of a composed config into a `RunSpec`, strictly.

All faults are reported at once, each with its dotted path. There are no silent defaults: a config gives all values.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from etlrun.planning.hints import Options, hint, listed_stage, nested_stage, of_name, of_value
from etlrun.stages import UNUSABLE, Stages
from etlrun.stages.base import Stage, described, field_metadata, hints_of, names_of, selected
from etlrun.stages.cache import Cache
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import SOURCES, Dataset, dataset_type
from etlrun.stages.extract import Extract
from etlrun.stages.load import Load
from etlrun.stages.measure import Logger, Measure, NoProfile, Trace
from etlrun.stages.model import Emulated, ImageModel
from etlrun.stages.rows import Rows, Table
from etlrun.stages.step import Map
from etlrun.stages.trainer import Drain, Trainer
from etlrun.system.errors import ConfigError, Fault, did_you_mean, printable, refuse
from etlrun.system.values import Block, Composed, frozen, grouped

ABSENT = object()
"""Value of a key that a block does not have."""
_AMONG_STEPS = "`{}` in transform.steps or transform.eval_steps"


def innermost(error: ValidationError) -> list[Any]:
    """Return the details of an error, without those of a list whose items have faults: pydantic finds it too short."""
    details = error.errors(include_url=False)
    places = [detail["loc"] for detail in details]
    inside = {place[:end] for place in places for end in range(1, len(place))}
    return [detail for detail in details if detail["loc"] not in inside]


def owner_of(stage_type: type[Stage], location: list[str]) -> tuple[type[Stage], list[str]]:
    """Return the stage type that has the fault, and the keys of the field; a place in a list is `[0]`."""
    annotation = hints_of(stage_type).get(location[0])
    for inner, count in ((nested_stage(annotation), 1), (listed_stage(annotation), 2)):
        if inner is not None and location[count:]:
            owner, deeper = owner_of(inner, location[count:])
            return owner, [location[0], *(f"[{place}]" for place in location[1:count]), *deeper]
    return stage_type, location[:1]


def value_at(block: Composed, keys: list[str]) -> Any:
    """Return the value that a block has at nested keys; `ABSENT` if it has none."""
    value: Any = block
    for key in keys:
        if key.startswith("[") and isinstance(value, list | tuple):
            value = value[int(key[1:-1])]
        else:
            value = value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value


@frozen
class Unused:
    """An unused value.

    Attributes:
        key: Dotted key.
        value: Its value.
        why: The reason.
        fault: The error for a value that was set explicitly, or by a file that has no other use.
        is_default: Whether a config that omits it means the same.
    """

    key: str
    value: Any
    why: str
    fault: Fault
    is_default: bool = False


def unused(config: Composed, stages: Stages) -> Iterator[Unused]:
    """Yield the values of a config for options that are not selected, or for unused steps, but for unknown keys."""
    for group, options in stages.items():
        block = config.get(group)
        if isinstance(block, Mapping):
            yield from _of_steps(block, options) if group == "transform" else _of_options(group, block, options)


def told(values: Sequence[Unused]) -> Iterator[str]:
    """Yield a sentence without its period for each reason, with all keys that are unused for it, but for defaults."""
    for why, of in grouped((value.why, value.key) for value in values if not value.is_default).items():
        of_several = why.replace(" it, ", " them, ")
        yield f"{', '.join(of)} {'is' if len(of) == 1 else 'are'} unused: {why if len(of) == 1 else of_several}"


def without(config: Block, values: Iterable[Unused]) -> Block:
    """Remove these values from `config`, with mappings that become empty, and return it."""
    for value in values:
        _take_out(config, value.key.split("."))
    return config


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the innermost values of a mapping with their dotted keys; for another value, the value itself."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(f"{key}.{name}" if key else str(name), item)
    else:
        yield key, value


def _of_options(group: str, block: Composed, options: Options) -> Iterator[Unused]:
    option = selected(options, block.get("name"))
    if option is None:
        return
    chosen = options[option]
    known = tuple(field_metadata(chosen))
    for name, item in block.items():
        for key, value in leaves(str(name), item) if name != "name" and name not in known else ():
            owners = [f"{group}={option}" for option, other in options.items() if _has(other, key.split("."))]
            if owners:
                why = f"{' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it, {chosen.path} does not"
                expected, where = f"one of the keys {', '.join(known)}" if known else "no key here", f"{group}.{key}"
                fault = Fault(where, "an unknown key", expected, f"choose {' or '.join(owners)}, which has it")
                yield Unused(key=where, value=value, why=why, fault=fault)


def _of_steps(block: Composed, steps: Options) -> Iterator[Unused]:
    lists = [block.get(name) for name in ("steps", "eval_steps")]
    if not all(isinstance(listed, list | tuple) for listed in lists):
        return
    used = [name for listed in lists for name in listed or ()]
    for name, step in steps.items():
        if not isinstance(parameters := block.get(name), Mapping) or name in used:
            continue
        for key, value in leaves(name, parameters):
            if key == name or _has(step, key.split(".")[1:]):
                found, expected = "a parameter of a step that is not used", _AMONG_STEPS.format(name)
                fault = Fault(f"transform.{key}", found, expected, "add the step, or leave it out")
                why, is_default = f"{name} is not one of the steps", value == getattr(step, key.partition(".")[2], step)
                yield Unused(key=fault.where, value=value, why=why, fault=fault, is_default=is_default)


def _has(stage_type: type[Stage], keys: Sequence[str]) -> bool:
    """Return whether this stage has the nested key."""
    if keys[0] not in field_metadata(stage_type):
        return False
    inner = nested_stage(hints_of(stage_type).get(keys[0]))
    return not keys[1:] or inner is None or _has(inner, keys[1:])


def _take_out(block: Block, keys: Sequence[str]) -> None:
    if keys[1:]:
        _take_out(block[keys[0]], keys[1:])
    if not keys[1:] or not block[keys[0]]:
        del block[keys[0]]


StageT = TypeVar("StageT", bound=Stage)

GROUPS = ("dataset", "extract", "transform", "cache", "load", "model", "trainer", "profile", "logger", "measure")


@frozen
class RunSpec:
    """A valid run.

    Attributes:
        dataset: The dataset and its splits.
        extract: How records are read.
        transform: Steps for training examples.
        eval_transform: Steps for validation examples.
        cache: Where examples are cached, and at which point.
        load: Shuffling, batching and prefetching.
        model: The model to train.
        trainer: How the model is trained.
        profile: The steps to profile.
        logger: Where the figures are written beside the run's folder.
        measure: Optional measurements.
        unused: Values for options that are not selected; they have no effect.
    """

    dataset: Dataset
    extract: Extract
    transform: Map
    eval_transform: Map
    cache: Cache
    load: Load
    model: ImageModel | Emulated
    trainer: Trainer | Drain
    profile: NoProfile | Trace
    logger: Logger
    measure: Measure
    unused: tuple[Unused, ...] = field(default=(), compare=False)

    @property
    def fit(self) -> Trainer | None:
        """The trainer of a model; None if the run only reads its examples."""
        return self.trainer if isinstance(self.trainer, Trainer) else None

    @property
    def learner(self) -> Trainer | None:
        """The trainer of a model that learns; None of any other run."""
        return self.fit if self.model.learns else None

    @property
    def hosts(self) -> int:
        """Number of hosts that read equal parts of each batch, with this one."""
        return 1 if self.fit is None else self.fit.hosts

    def require_one_host(self, what: str) -> None:
        """Raise `ConfigError` if the run trains on several hosts, as `what` does not."""
        if self.hosts > 1:
            key = Trainer.key("hosts")
            raise ConfigError([Fault(key, str(self.hosts), f"1, since {what}", f"add {key}=1", is_rule=True)])

    def with_maps(self, changed: Callable[[Map], Map]) -> RunSpec:
        """Return the run with other steps, for training and for validation."""
        return replace(self, transform=changed(self.transform), eval_transform=changed(self.eval_transform))

    @property
    def columns(self) -> Columns | None:
        """What the steps make of columns; None if they make nothing of them."""
        return next((step for step in self.transform.steps if isinstance(step, Columns)), None)

    @property
    def has_order(self) -> bool:
        """Whether all runs read the examples in the same order."""
        return self.extract.deterministic and self.transform.deterministic


class ConflictError(ConfigError):
    """Values that are valid by themselves, and not together: the plan of their `spec` may have further faults."""

    spec: RunSpec | None = None


def parse(config: Composed, stages: Stages) -> RunSpec:
    """Return the `RunSpec` of a composed config; raise `ConfigError` with all its faults."""
    refuse(UNUSABLE)
    idle = tuple(unused(config, stages))
    parser = _Parser(without(copy.deepcopy(dict(config)), idle) if idle else config, stages)
    spec = parser.run()
    if parser.faults or spec is None:
        error = ConflictError(parser.faults)
        error.spec = spec
        raise error
    return replace(spec, unused=idle)


def parse_command(block: object, stage_type: type[StageT]) -> StageT:
    """Return a group that configures a command, `Sweep` or `Tune`; raise `ConfigError` with its faults."""
    parser = _Parser({stage_type.path: block}, {})
    found = parser.stage(stage_type.path, parser.group(stage_type.path), stage_type)
    if found is None or parser.faults:
        raise ConfigError(parser.faults)
    return found


_FIXED: Options = {"load": Load, "measure": Measure}
"""Groups of a single kind of stage."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character of UTF-16, which text has only if it is unpaired."""


class _Parser:
    """Parses a config, and collects all faults on the way."""

    def __init__(self, config: Composed, stages: Stages) -> None:
        self.config = config
        self.stages = stages
        self.faults: list[Fault] = []

    def run(self) -> RunSpec | None:
        self.unknown_keys("", self.config, GROUPS)
        groups, parts = {name: self.group(name) for name in GROUPS}, Block()
        for name, block in groups.items():
            if name == "dataset":
                parts[name] = self.dataset(block)
            elif name == "transform":
                parts[name], parts["eval_transform"] = self.transform(block)
            elif name in _FIXED:
                parts[name] = self.stage(name, block, _FIXED[name])
            else:
                parts[name] = self.named(name, block)
        if any(not of.is_rule for of in self.faults) or None in parts.values():
            return None
        return self.with_images(RunSpec(**parts))

    def with_images(self, spec: RunSpec) -> RunSpec:
        """Return a run whose columns of images are declared; add a fault for one that its dataset can't have."""
        images = [of for of in (spec.columns.outputs if spec.columns is not None else ()) if of.image is not None]
        if images and isinstance(spec.dataset, Table):
            types, first = dict(spec.dataset.columns), dict.fromkeys(spec.dataset.columns, spec.dataset.key("columns"))
            for of in images:
                ((column,), where), kind = (of.of, f"{Columns.path}.{of.name}"), of.image or "image"
                before = first.setdefault(column, where)
                if (expected := types.setdefault(column, kind)) != kind:
                    remedy = "begin the steps with `read` if the column has paths, and only then"
                    self.add(where, f"{column} as {kind}", f"{expected}, as of {before}", remedy, is_rule=True)
            return replace(spec, dataset=replace(spec.dataset, columns=types))
        if not isinstance(spec.dataset, Rows):  # examples have an image under its name, which other steps decode, too
            images = [of for of in images if of.image != "image" or of.name != of.of[0]]
        if images:
            where, found = f"{Columns.path}.{images[0].name}", f"an image of dataset={spec.dataset.name}"
            remedy = "write the rows as a table, with the paths of the images or their bytes"
            self.add(where, found, "an image of dataset=table", remedy, is_rule=True)
        return spec

    def add(self, where: str, found: object, expected: str, remedy: str = "", *, is_rule: bool = False) -> None:
        self.faults.append(Fault(where, str(found), expected, remedy, is_rule=is_rule))

    def unknown_keys(self, path: str, block: Composed, known: tuple[str, ...]) -> None:
        for key in block:
            if key not in known:
                name = printable(str(key)) or "''"
                self.unknown_key(f"{path}.{name}" if path else name, known)

    def unknown_key(self, where: str, known: tuple[str, ...]) -> None:
        listing = f"one of the keys {', '.join(known)}" if known else "no key here"
        block, _, name = where.rpartition(".")
        is_in_list = block.endswith("]")
        near = did_you_mean(name, known, otherwise="remove it", cutoff=0.8)
        remedy = near if is_in_list else hint(where, self.config, self.stages)
        self.add(where, "an unknown key", listing, remedy)

    def group(self, name: str) -> Block | None:
        block = self.config.get(name)
        if isinstance(block, Mapping):
            return dict(block)
        options = f"one of {', '.join(self.stages[name])}" if name in self.stages else "a mapping"
        self.add(name, "nothing" if block is None else show(block), options, f"choose {name}=…")
        return None

    def dataset(self, block: Block | None) -> Any:
        """Return the dataset; None if there is a fault, such as an unknown name without the keys of TFDS."""
        name = (block or {}).get("name")
        found = dataset_type(name)
        if block and isinstance(name, str) and found.is_of_tfds and not {"data_dir", "download"} & block.keys():
            expected = f"one of {', '.join(SOURCES)}, or a dataset of TFDS with the keys of dataset=tfds"
            return self.add("dataset.name", show(name), expected, of_name("dataset.name", name, SOURCES))
        before, dataset = len(self.faults), self.stage("dataset", block, found)
        if dataset is not None and block is not None and len(self.faults) == before:
            alone = {"split": "train"} | {of: None for of in ("eval_split", "eval_splits", "split_by") if of in block}
            for name, other in dataset.sets.items():
                if not isinstance(other, str):
                    self.stage(dataset.key_of(name), {**block, **alone, **other}, found)
        return dataset

    def named(self, group: str, block: Block | None) -> Any:
        """Return the stage that the `name` of a group selects; None if there is a fault."""
        if block is None:
            return None
        name, options = block.get("name"), self.stages[group]
        chosen, known = selected(options, name), names_of(options)
        if chosen is None:
            where = f"{group}.name"
            return self.add(where, show(name), f"one of {', '.join(known)}", of_name(where, name, known))
        if not options[chosen].names:
            del block["name"]
        return self.stage(group, block, options[chosen])

    def stage(self, path: str, block: Composed | None, stage_type: type[StageT]) -> StageT | None:
        if block is None:
            return None
        try:
            stage: StageT = _validated(stage_type, json.dumps(block, default=_nothing))  # type: ignore[arg-type] # as in field_metadata
        except ValidationError as error:
            if (again := {key: mapping_in(value) for key, value in block.items()}) != block:
                return self.stage(path, again, stage_type)
            self.validation(path, block, stage_type, error)
            return None
        except ValueError:  # Python does not convert an integer of so many digits to JSON
            self.add(path, "an integer of more than 4,300 digits", "a number with fewer digits")
            return None
        for faults, is_rule in ((stage.faults(), False), (stage.rules(), True)):
            for key, found, expected, remedy in faults:
                self.add(f"{path}.{key}", bare(found), expected, remedy, is_rule=is_rule)
        return stage

    def validation(self, path: str, block: Composed, stage_type: type[Stage], error: ValidationError) -> None:
        """Add a fault for each field that pydantic rejects, with the expectation of its type."""
        seen = set()
        for detail in innermost(error):
            if not detail["loc"]:  # it is not valid JSON
                texts = {key: json.dumps(value, ensure_ascii=False, default=_nothing) for key, value in block.items()}
                halves = [key for key, text in texts.items() if _SURROGATE.search(text)]
                self.add(".".join([path, *halves[:1]]), "a string with an unpaired surrogate", "valid Unicode")
                continue
            owner, keys = owner_of(stage_type, [str(key) for key in detail["loc"]])
            where, value = ".".join([path, *keys]).replace(".[", "["), value_at(block, keys)
            if where in seen:
                continue
            seen.add(where)
            if detail["type"] == "unexpected_keyword_argument":
                self.unknown_key(where, tuple(field_metadata(owner)))
            else:
                expected = described(hints_of(owner, include_extras=True)[keys[-1]])
                found = "nothing" if value is ABSENT else show(value)
                self.add(where, found, expected, of_value(where, value, expected))

    def transform(self, block: Block | None) -> tuple[Map | None, Map | None]:
        if block is None:
            return None, None
        known = self.stages["transform"]
        options = ("steps", "eval_steps", "num_parallel_calls", "deterministic", "columns", *known)
        self.unknown_keys("transform", block, options)
        columns: tuple[Columns, ...] = ()
        if (described := block.pop("columns", None)) is not None:
            from etlrun.planning.columns import parsed_columns  # with all steps on columns

            columns = parsed_columns(mapping_in(described), self)
        names = {key: self.step_names(key, block.pop(key, None)) for key in options[:2]}
        used = {name for listed in names.values() for name in listed}
        for name in known:
            if block.get(name) is not None and name not in used:
                found, remedy = "parameters of a step that is not used", f"add the step, or set transform.{name}=null"
                self.add(f"transform.{name}", found, _AMONG_STEPS.format(name), remedy)
        steps = {name: self.step(name, block.get(name), known[name]) for name in sorted(used)}
        settings = {key: block[key] for key in options[2:4] if key in block}
        shell = self.stage("transform", {**settings, "steps": []}, Map)
        if shell is None or None in steps.values():
            return None, None
        images = [step for made in columns for step in made.of_images]
        of_evaluation = [step for step in images if not step.random]
        both = [
            replace(shell, steps=(*columns, *some, *(steps[name] for name in of)))
            for some, of in zip((images, of_evaluation), names.values(), strict=True)
        ]
        return both[0], both[1]

    def step_names(self, key: str, listed: object) -> list[str]:
        known = self.stages["transform"]
        if not isinstance(listed, list | tuple):
            self.add(f"transform.{key}", show(listed), "a list of steps")
            return []
        for index, name in enumerate(listed):
            where = f"transform.{key}[{index}]"
            if not isinstance(name, str) or name not in known:
                self.add(where, show(name), f"one of {', '.join(known)}", of_name(f"transform.{key}", name, known))
            elif name in listed[:index]:
                self.add(where, f"{name} again", "each step once", "remove one of the two")
        return [name for name in listed if isinstance(name, str) and name in known]

    def step(self, name: str, block: object, step_type: type[Stage]) -> Any:
        if block is None or isinstance(block, Mapping):
            return self.stage(f"transform.{name}", block or {}, step_type)
        return self.add(f"transform.{name}", show(block), "a mapping of the step's parameters")


def mapping_in(value: Any) -> Any:
    """Return the mapping of a text, which Hydra's grammar needs for some names of columns; another value as it is."""
    if not isinstance(value, str) or not value.startswith("{"):
        return value
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return found if isinstance(found, dict) else value


@lru_cache(maxsize=10_000)  # the configs of a sweep share most of their stages
def _validated(stage_type: Any, text: str) -> Any:
    return _adapter(stage_type).validate_json(text)


@cache  # making one takes longer than using it
def _adapter(stage_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(stage_type)


def _nothing(value: object) -> dict[str, None]:
    """Return a value that no parameter accepts, for one that only YAML has, such as bytes."""
    return {type(value).__name__: None}


def show(value: object) -> str:
    """Return a config value as in YAML, for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {bare(item)}' for key, item in value.items())}}}"
    return repr(value) if isinstance(value, str) else str(value)


def bare(value: object) -> str:
    """Return the same without quotes around a string."""
    return value if isinstance(value, str) else show(value)
