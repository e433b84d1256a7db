"""What runs have to share to be compared: data, by the digests of their epochs and by their plans; and machines."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import yaml

from etlrun.record.outcome import Outcome
from etlrun.results.results import BASELINE, Run, are_others
from etlrun.review.difference import Values, compare_configs
from etlrun.system.errors import EtlrunError

Completed = Mapping[int, Sequence[tuple[Run, Outcome]]]
"""Completed runs of each config, by its number."""
Digests = Sequence[tuple[str, str]]
"""Training and validation digest of each epoch; empty strings for those not taken."""


def model_of(values: Values) -> str:
    """Return what tells the model of a config from others; empty if its file can't be read."""
    with suppress(EtlrunError, OSError, ValueError, yaml.YAMLError):
        return repr((values() or {}).get("model"))
    return ""


def of_other_seeds(values: Values) -> str:
    """Return why runs of one config with different seeds see different data; empty if they see the same."""

    def reseeded() -> Mapping[str, Any]:
        config = values()
        return {**config, "trainer": {**config["trainer"], "seed": config["trainer"]["seed"] ^ 1}}

    found = compare_configs(values, reseeded)
    return (
        "" if found is None or not found.doubts else f"{found.doubts[0][:1].lower()}{found.doubts[0][1:].rstrip('.')}"
    )


def of_first(completed: Completed) -> dict[int, Digests]:
    """Return the digests of each config's first run, without configs whose runs have seen different data."""
    return {number: several[0][1].digests for number, several in completed.items() if several and not _differ(several)}


def of_one_seed(completed: Completed) -> dict[int, Digests]:
    """Return the digests of one round, in which all configs have the same seed: the round with the most digests."""
    rounds: dict[int, dict[int, Digests]] = {}
    for number, several in completed.items():
        for run, of in several:
            turn, is_twin = (run.repeat, 0) if number != BASELINE else divmod(run.repeat, 2)
            if of.digests and not is_twin:
                rounds.setdefault(turn, {})[number] = of.digests
    return max((rounds[turn] for turn in sorted(rounds)), key=len, default={})


def notes(completed: Completed, seeded: Sequence[Values]) -> Iterator[str]:
    """Yield notes on configs whose runs have not seen the same data; `seeded` has all configs if seeds differ."""
    reasons: dict[str, list[str]] = {}
    for number, several in completed.items():
        if _differ(several):
            doubt = of_other_seeds(seeded[number]) if seeded else ""
            reasons.setdefault(doubt and f", since their seeds differ: {doubt}", []).append(str(number))
    for reason, numbers in reasons.items():
        yield f"the runs of configs {', '.join(numbers)} have not all seen the same data{reason}"
    others = [
        str(number)
        for number, every in completed.items()
        if any(are_others(of.records, every[0][1].records) for _, of in every)
    ]
    if others:
        yield f"the runs of configs {', '.join(others)} have not all read the same records"


def _differ(several: Sequence[tuple[Run, Outcome]]) -> bool:
    """Return whether runs of one config have seen different data."""
    return len(set(labels({run.repeat: of.digests for run, of in several}).values())) > 1


def _is_same(one: Digests, other: Digests) -> bool:
    """Return whether all digests that both runs have are equal; either may lack epochs, or validation."""
    return all(
        mine == its
        for epochs in zip(one, other, strict=False)
        for mine, its in zip(*epochs, strict=True)
        if mine and its
    )


def labels(digests: Mapping[int, Digests]) -> dict[int, str]:
    """Return a label for each config or run with digests: `same` if all agree, else a letter for each group."""
    found = {number: of for number, of in digests.items() if of}
    groups: list[list[int]] = []
    for number in sorted(found, key=lambda number: -len(found[number])):  # the longest represents its group
        group = next((group for group in groups if _is_same(found[group[0]], found[number])), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    if len(groups) == 1:
        return dict.fromkeys(found, "same" if len(found) > 1 else "")
    groups.sort(key=min)
    return {number: f"differs: {_letters(place)}" for place, group in enumerate(groups) for number in group}


def _letters(number: int) -> str:
    """Return the letters of a group: A to Z, then AA, AB and so on."""
    head, last = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + last)


def on_one_machine(completed: Completed) -> dict[int, list[tuple[Run, Outcome]]]:
    """Return the runs that had a machine like most runs of the baseline, as far as that is known."""
    kind = _kind(completed)
    return {number: [run for run in of if run[1].machine in {"", kind}] for number, of in completed.items()}


def notes_on_machines(completed: Completed) -> Iterator[str]:
    """Yield a sentence on runs that had another kind of machine."""
    kind = _kind(completed)
    others = [(run, of) for several in completed.values() for run, of in several if of.machine not in {"", kind}]
    if others:
        yield (
            f"runs {', '.join(run.name for run, _ in others)} ran on another kind of machine "
            f"({'; '.join(sorted({of.machine for _, of in others}))}) than those that are compared ({kind}), and are "
            "excluded from comparison"
        )


def _kind(completed: Completed) -> str:
    """Return the kind of machine that most runs of the baseline had, or most of all where that is unknown."""
    known = {number: [of.machine for _, of in several if of.machine] for number, several in completed.items()}
    return statistics.mode(known.get(BASELINE) or [*chain.from_iterable(known.values())] or [""])
