"""Targets of rows as a config describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from etlrun.stages.flow import Faults
from etlrun.stages.objectives import Kinds
from etlrun.system.values import frozen

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Options = dict[Literal["standardize", "separator", "weight"], bool | Weight | Annotated[str, Field(min_length=1)]]
_Described = dict[Kinds, Annotated[str, Field(min_length=1)] | _Options]
Described = Kinds | Annotated[_Described, Field(min_length=1, max_length=1)]
"""A target as a config describes it."""
TARGETS = (
    "class, binary, labels or number, or one of them with its options, such as {number: standardize}, "
    "{labels: '|'} or {class: {weight: 0.5}}"
)
_OPTIONS: dict[Kinds, dict[str, tuple[type, str]]] = {
    "class": {},
    "binary": {},
    "labels": {"separator": (str, "the text between two labels, such as ','")},
    "number": {"standardize": (bool, "true or false")},
}


@frozen
class Target:
    """A target of rows.

    Attributes:
        name: Name of its column.
        kind: What it is.
        weight: Weight of its loss in the sum of those of several targets.
        standardize: Whether the loss counts a number in standard deviations.
        separator: Text between the labels of a row; None if a column has a number for each.
    """

    name: str
    kind: Kinds
    weight: float = 1.0
    standardize: bool = False
    separator: str | None = None

    @classmethod
    def of(cls, name: str, described: Any) -> Self:
        """Return the target that a config describes."""
        kind, options = _parsed(described)
        known = {key: value for key, value in options.items() if key in ("weight", *_OPTIONS[kind])}
        return cls(name=name, kind=kind, **known)

    @property
    def options(self) -> dict[str, Any]:
        """The options that targets of its kind have, with their values."""
        return {name: getattr(self, name) for name in _OPTIONS[self.kind]}

    def between(self, separator: str) -> Self:
        """Return the target with a separator of its labels, if it has labels without one."""
        return replace(self, separator=separator) if self.kind == "labels" and self.separator is None else self


def _parsed(described: Any) -> tuple[Kinds, dict[str, Any]]:
    kind, options = next(iter(described.items())) if isinstance(described, dict) else (described, {})
    if isinstance(options, str):
        options = {"separator": options} if kind == "labels" else {options: True}
    return kind, options


def unfit_options(target: Mapping[str, Any]) -> Faults:
    """Yield the faults of the options of targets: key, what was found, what was expected, and the remedy."""
    described = {name: _parsed(of) for name, of in target.items()}
    yield from unfit_of_several(described)
    for name, (kind, options) in described.items():
        known: dict[str, tuple[type, str]] = {**_OPTIONS[kind], "weight": (float, "a positive number")}
        for key, value in options.items():
            where = f"target.{name}.{kind}.{key}"
            if key not in known:
                yield where, f"an option of {kind}", f"one of {', '.join(known)}", "leave it out"
            elif not isinstance(value, known[key][0]):
                yield where, str(value), known[key][1], ""


def unfit_of_several(target: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Faults:
    """Yield the faults of the names and of the weights of targets, of which each has a kind and options."""
    for name, (kind, options) in target.items():
        if len(target) > 1 and not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            expected = "a name of letters, digits and _.- of each of several targets, by which Keras names their losses"
            yield f"target.{name}", f"the column {name!r}", expected, "give the column another name"
        if "weight" in options and len(target) == 1:
            expected = "none with a single target, whose loss is the whole one"
            yield f"target.{name}.{kind}.weight", str(options["weight"]), expected, "leave it out"
