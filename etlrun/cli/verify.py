"""`etlrun verify`: the effect of a change, and what a short pass of both sides reads."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from etlrun.cli import diff
from etlrun.planning.plan import Plan
from etlrun.review.facts import Facts, Read, Sides, facts_of, repeatable
from etlrun.review.review import Review, Reviewed
from etlrun.review.sides import Side
from etlrun.stages.rows import Python
from etlrun.system.errors import EtlrunError, headline

_EXAMPLES = 2000
_NOT_READ = ("model.", "trainer.", "logger.", "profile.", "measure.")
"""Beginnings of keys on which no pipeline rests."""


def main(arguments: list[str]) -> None:
    """Run `etlrun verify BASE [NEW]`, with the exit statuses of `etlrun diff`; 1 if the comparison was wrong."""
    known = parser().parse_intermixed_args(arguments)
    diff.compare(known, partial(with_facts, examples=known.examples))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = diff.parser("verify", " Then read some examples of both sides, without a training.")
    parser.add_argument(
        "--examples",
        type=_positive,
        default=_EXAMPLES,
        metavar="N",
        help=f"examples of each split; default: {_EXAMPLES}",
    )
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text}; expected a positive integer")
    return int(text)


def with_facts(review: Review, old: Side, new: Side, examples: int) -> Review:
    """Return the review with facts on each experiment that changes or is new; equal pipelines are read once."""
    chosen = [of for of in review.experiments if of.changes and of.new is not None and not of.faults]
    readers = _Reader(old, examples), _Reader(new, examples)
    facts = {of.name: _facts(of, readers) for of in chosen}
    return replace(review, experiments=tuple(replace(of, facts=facts.get(of.name)) for of in review.experiments))


def _facts(reviewed: Reviewed, readers: tuple[_Reader, _Reader]) -> Facts:
    plans, absent = (reviewed.old, reviewed.new), [key for key in reviewed.missing if not key.startswith(_NOT_READ)]
    reason = f"{', '.join(absent)}: found ???, which a run is given" if absent else ""
    codes = [of for of in reviewed.comparison.differences if of.path.startswith("code of the dataset ")]
    if any(of.old == of.new for of in codes) and any(plan and isinstance(plan.spec.dataset, Python) for plan in plans):
        reason = reason or "the rows of a function are kept, and not made anew for other files"
    sides = [{} if plan is None else of.read(plan, reason) for plan, of in zip(plans, readers, strict=True)]
    read: dict[str, Sides] = {name: (sides[0].get(name), sides[1].get(name)) for name in {**sides[1], **sides[0]}}
    is_own = not any(reader.side.is_of_runs for reader in readers)
    found = facts_of(reviewed.comparison, plans, read, by_own_code=is_own)
    if found.contradicts and reviewed.old is not None:
        again = _Reader(readers[0].side, readers[0].examples).read(reviewed.old, "")
        return facts_of(reviewed.comparison, plans, repeatable(read, again), by_own_code=is_own)
    return found


class _Reader:
    """Reads one side, each of its pipelines once."""

    def __init__(self, side: Side, examples: int) -> None:
        self.side, self.examples = side, examples
        self._done: list[tuple[Any, Read]] = []

    def read(self, plan: Plan, reason: str) -> dict[str, Read]:
        """Return what was read of each pipeline of a plan; nothing if there is a `reason` not to."""
        names = [name for name, stages in plan.pipelines.items() if stages]
        return {name: Read(reason=reason) if reason else self._known(plan, name) for name in names}

    def _known(self, plan: Plan, name: str) -> Read:
        spec = plan.spec
        key = (name, plan.pipelines[name], spec.dataset, spec.trainer.seed, spec.load.service)
        found = next((read for done, read in self._done if done == key), None)
        if found is None:
            found = self.side.call(_read, plan, name, self.examples)
            self._done.append((key, found))
        return found


def _read(plan: Plan, name: str, examples: int) -> Read:
    from etlrun.run.backend import prepare, seed_all  # imports TensorFlow, so only after configs have been validated

    with prepare(None):
        from etlrun.datasets.examine.facts import read

        seed_all(plan.spec.trainer.seed)
        try:
            sample = read(plan, name, examples)
        except EtlrunError as error:
            return Read(reason="; ".join(f"{fault.place}: found {fault.found}" for fault in error.faults))
        except Exception as error:  # noqa: BLE001 - code of a plugin raises anything, and the others are to be read
            return Read(reason=f"{type(error).__name__}: {headline(error)}")
    return Read(hashes=sample.hashes, split_examples=sample.split_examples, is_ordered=plan.spec.has_order)
