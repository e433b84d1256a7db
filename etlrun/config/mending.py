"""Overrides that end a fault of a config: found by its key, and tried on the config."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from etlrun.config.composer import UNCOMPOSABLE, Composer
from etlrun.config.overrides import set_to
from etlrun.config.request import options_of
from etlrun.planning.hints import kinds_of, meant
from etlrun.planning.planner import planned
from etlrun.planning.spec import ABSENT, ConflictError, parse, value_at
from etlrun.stages import Stages
from etlrun.stages.base import SPEED
from etlrun.system.errors import ConfigError, EtlrunError, Fault, override
from etlrun.system.values import Block, Composed

Compose = Callable[[list[str]], Block]
"""Function that composes words."""


def mended(
    faults: Sequence[Fault], words: Sequence[str], files: Composer, stages: Stages, compose: Compose | None = None
) -> Iterator[Fault]:
    """Yield the faults of the config that `words` compose with what ends each, and whether a person chooses.

    Those of rules have been tried. Others are known keys in the place of unknown ones, and defaults in the place of
    wrong values: what they leave is composed and parsed once more, and planned where planning has found the faults, or
    where there are several, since the data may refuse some.
    """
    compose = compose or files.values
    config, default = _values(words, compose), _values(_choices(words, files), compose)
    plan, usual = partial(planned, stages=stages), _judge(config, stages)
    for fault in faults:
        found, is_default = fault.overrides, False
        if not fault.is_rule:
            if not found:
                found, is_default = _proposed(fault, words, config, default, stages)
            others = [word for word in words if not _sets(word, fault.where)]
            judge = plan if found[1:] else usual
            found = tuple(of for of in found if not _has(fault, [*others, *of], compose, judge))
        keys = [word.lstrip("~").partition("=")[0] for of in found for word in of if is_default or word[0] != "~"]
        changes = any(kinds_of(key, config, stages) != {SPEED} for key in keys)
        yield replace(fault, overrides=found, decide=changes and (is_default or len(found) > 1))


def _proposed(
    fault: Fault, words: Sequence[str], config: Composed, default: Composed, stages: Stages
) -> tuple[tuple[tuple[str, ...], ...], bool]:
    """Return overrides that may end the fault of a value or of an unknown key, and whether they set the default."""
    where, path = fault.where, fault.where.split(".")
    value, usual = value_at(config, path), value_at(default, path)
    if fault.found == "an unknown key":
        gone = (f"~{where}",) * (value is not ABSENT and not any(_sets(word, where) for word in words))
        keys = [of for of in meant(where, config, stages) if of.path != where and (not of.needs or "=" in of.needs)]
        found = ((*filter(None, [of.needs]), *gone, _word(of.path, value)) for of in keys)
        return tuple(found) or (gone,) * bool(gone), False
    wrong = value[0] if isinstance(value, list) and fault.found.startswith("[") else fault.found.strip("'")
    if fault.meant and (right := _corrected(value, wrong, fault.meant)) != value:
        return ((_word(where, right),),), False
    names = [*value] if isinstance(value, list | Mapping) else [value]
    if where == "dataset.target" and len(names) == 1 and isinstance(names[0], str):
        return tuple((shlex.split(override(where, names[0], kind))[0],) for kind in ("class", "number")), False
    if isinstance(usual, Mapping) or where == "dataset.storage":  # of a group or a block; or a store would be asked
        return (), False
    if usual is ABSENT:
        return ((f"~{where}",),) * (value is not ABSENT and "[" not in where), True
    fewer = [of for of in value if of != fault.found] if isinstance(value, list) else value
    return tuple((_word(where, of),) for of in (fewer, usual) if of not in (value, [])), True


def _corrected(value: Any, wrong: object, meant: str) -> Any:
    """Return a value with the name that was meant in the place of a wrong one."""
    if isinstance(value, Mapping):
        return {_corrected(key, wrong, meant): of for key, of in value.items()}
    if isinstance(value, list):
        return [_corrected(of, wrong, meant) for of in value]
    return meant if value == wrong else value


def _word(key: str, value: Any) -> str:
    """Return the override of a plain value."""
    return set_to(f"{key}=", value) if isinstance(value, str) else f"{key}={_written(value)}"


def _written(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}: {_written(of)}' for key, of in value.items())}}}"
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else json.dumps(value)


def _sets(word: str, key: str) -> bool:
    return word.lstrip("+~").partition("=")[0] == key


def _choices(words: Sequence[str], files: Composer) -> list[str]:
    """Return the options that a config chooses of its groups, without what an experiment sets beside them."""
    with suppress(*UNCOMPOSABLE, ConfigError):
        return [f"{group}={of}" for group, of in options_of(files, [of for of in words if "." not in of]).items()]
    return []


def _judge(config: Composed, stages: Stages) -> Callable[[Block], object]:
    """Return what finds faults where those of a config are found: planning reads data, which values may not need."""
    try:
        parse(config, stages)
    except ConflictError as error:
        if error.spec is None:
            return partial(parse, stages=stages)
    return partial(planned, stages=stages)


def _values(words: Sequence[str], compose: Compose) -> Composed:
    """Return the config of some words; empty if it can't be composed."""
    with suppress(ConfigError):
        return compose([*words])
    return {}


def _has(fault: Fault, words: list[str], compose: Compose, judge: Callable[[Block], object]) -> bool:
    """Return whether a config has a fault, or can't be composed, of which Hydra tells one reason after the other."""
    try:
        judge(compose(words))
    except ConfigError as error:
        found = [of for of in error.faults if of.where in (fault.where, "config")]
        return any(fault.where not in ("", "config") or of.found == fault.found for of in found)
    except EtlrunError:  # of data, which are looked at behind all faults of values
        return False
    return False
