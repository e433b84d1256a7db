"""Values that a field takes, in words, from its type: `an integer from 1 to 8, auto, or null`."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from etlrun.stages.base import Expected

_LARGEST = 2**63 - 1
_LIMITS = ("ge", "gt", "le", "lt")
_WORDS = {bool: ("true", "false"), str: ("a string",), type(None): ("null",)}
_NUMBERS = {int: "an integer", float: "a number"}


def expectation(stage_type: Any, field: str) -> str:
    """Return the description of the valid values of `field` of `stage_type`."""
    return described(typing.get_type_hints(stage_type, include_extras=True)[field])


def described(annotation: Any) -> str:
    """Return the values that a type takes: words that are annotated to it as `Expected`, or those of its parts."""
    if own := [item.whole for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Expected)]:
        return own[0]
    values = list(dict.fromkeys(_alternatives(annotation, {})))
    has_phrases = any(" " in value for value in values)
    return (", or " if has_phrases else " or ").join(filter(None, (", ".join(values[:-1]), values[-1])))


def _alternatives(annotation: Any, limits: dict[str, Any]) -> Iterator[str]:
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
        each = re.sub(r"^an? ((?:[\w-]+ )??)(\w+)(?= from|$)", r"\1\2s", described(args[0]))
        yield f"a list of {each}" if args[1:] == (...,) else f"a list of {len(args)} {each}"
    elif args and origin is not dict:
        yield from (text for of in args for text in _alternatives(of, limits))
    elif annotation in _NUMBERS:
        yield _within(_NUMBERS[annotation], {**dict.fromkeys(_LIMITS), **limits})
    else:
        yield from _WORDS.get(annotation, ("a mapping",))


def _within(noun: str, limits: dict[str, Any]) -> str:
    """Return an integer or a number with its limits."""
    least, above, most, below = (limits[name] for name in _LIMITS)
    if most == _LARGEST:
        most = None
    is_integer = noun == "an integer"
    if most is None and below is None:
        sign = "positive " * (above == 0 or (is_integer and least == 1)) or "non-negative " * (least == 0)
        return f"a {sign}{noun.split()[1]}" if sign else f"{noun} from {least}" if least is not None else noun
    if below is not None:
        return f"{noun} in [{least}, {below:,})"
    return f"{noun} above {above}, at most {most:,}" if least is None else f"{noun} from {least} to {most:,}"
