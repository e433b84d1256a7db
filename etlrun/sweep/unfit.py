"""What of a grid is left out, since values don't fit together, told rule by rule; and which values go unused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from etlrun.config.jobs import Unfit
from etlrun.sweep.ledger import own_words

MOST_RULES = 8
"""That are told; all of them stand in results.json."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A combination that has no config.

    Attributes:
        overrides: Of the combination.
        own: Those that not all combinations have.
        rules: The rules that it breaks, each with what was found.
    """

    overrides: tuple[str, ...]
    own: tuple[str, ...]
    rules: tuple[str, ...]


def left_out(unfit: Sequence[Unfit], configs: Sequence[Sequence[str]]) -> tuple[LeftOut, ...]:
    """The combinations `unfit`, beside configs with these overrides."""
    own = own_words([*configs, *(combination.overrides for combination in unfit)])[len(configs) :]
    return tuple(
        LeftOut(overrides=combination.overrides, own=words, rules=combination.rules)
        for combination, words in zip(unfit, own, strict=True)
    )


def told(combinations: Sequence[LeftOut]) -> Iterator[str]:
    """A sentence for each rule: how many combinations break it, and what all of these have in common."""
    broken: dict[str, list[LeftOut]] = {}
    for combination in combinations:
        for rule in combination.rules:
            broken.setdefault(rule, []).append(combination)
    rules = sorted(broken.items(), key=lambda item: -len(item[1]))
    for rule, of in rules[:MOST_RULES]:
        common = [word for word in of[0].own if all(word in other.own for other in of)]
        which = f" with {' '.join(common)}" if common else ""
        yield f"{_counted(len(of), 'combination')}{which}: {rule}"
    if rules[MOST_RULES:]:
        more = {combination.overrides for _, of in rules[MOST_RULES:] for combination in of}
        others = _counted(len(rules) - MOST_RULES, "other rule")
        yield f"{_counted(len(more), 'combination')} by {others}, all of them in results.json"


def unused(sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is said of values that go unused, given by config, each sentence once, with the configs that it is about."""
    for sentence in dict.fromkeys(chain.from_iterable(sentences)):
        of = [str(number) for number, own in enumerate(sentences) if sentence in own]
        yield sentence if len(of) == len(sentences) else f"configs {', '.join(of)}: {sentence}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
