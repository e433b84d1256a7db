"""Combinations of a grid that are left out because their values don't fit together; and values that are unused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from etlrun.config.grid import Unfit
from etlrun.sweep.ledger import own_overrides
from etlrun.system.errors import counted

MOST_RULES = 8
"""Number of rules to report; results.json lists all of them."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A combination without a config.

    Attributes:
        overrides: Overrides of the combination.
        own: Overrides that not all combinations have.
        rules: Rules that the combination breaks, each with the value found.
    """

    overrides: tuple[str, ...]
    own: tuple[str, ...]
    rules: tuple[str, ...]


def left_out(unfit: Sequence[Unfit], configs: Sequence[Sequence[str]]) -> tuple[LeftOut, ...]:
    """Return the combinations `unfit` of a grid whose configs have these overrides."""
    own = own_overrides([*configs, *(combination.overrides for combination in unfit)])[len(configs) :]
    return tuple(
        LeftOut(overrides=combination.overrides, own=overrides, rules=combination.rules)
        for combination, overrides in zip(unfit, own, strict=True)
    )


def describe(combinations: Sequence[LeftOut]) -> Iterator[str]:
    """Yield a line for each rule: how many combinations break it, and which overrides these have in common."""
    broken: dict[str, list[LeftOut]] = {}
    for combination in combinations:
        for rule in combination.rules:
            broken.setdefault(rule, []).append(combination)
    rules = sorted(broken.items(), key=lambda item: -len(item[1]))
    for rule, of in rules[:MOST_RULES]:
        common = [override for override in of[0].own if all(override in other.own for other in of)]
        which = f" with {' '.join(common)}" if common else ""
        yield f"{counted(len(of), 'combination')}{which}: {rule}"
    if rules[MOST_RULES:]:
        more = {combination.overrides for _, of in rules[MOST_RULES:] for combination in of}
        others = counted(len(rules) - MOST_RULES, "other rule")
        yield f"{counted(len(more), 'combination')} by {others}; results.json lists all"


def unused(sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the notes on unused values, given by config, each once with the configs that it applies to."""
    for sentence in dict.fromkeys(chain.from_iterable(sentences)):
        of = [str(number) for number, own in enumerate(sentences) if sentence in own]
        yield sentence if len(of) == len(sentences) else f"configs {', '.join(of)}: {sentence}"
