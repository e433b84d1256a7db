"""Facts on a change: what a short pass of both sides has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from etlrun.review.difference import Comparison, Difference, first_stage
from etlrun.stages.base import DATA
from etlrun.system.values import frozen

if TYPE_CHECKING:
    from etlrun.planning.plan import Plan

_SHOWN = 16
"""Hex digits of a digest in a sentence."""
CONTRADICTION = "contradiction: "
"""Beginning of the sentence on a fact that the comparison denies."""


@frozen
class ReadExamples:
    """What a pass over a split has read on one side.

    Attributes:
        hashes: Hash of each example, in the order of the pass.
        split_examples: Number of examples of the whole split.
        is_ordered: Whether their order is the same in each run.
        reason: Why nothing was read, or what was read says nothing; empty otherwise.
    """

    hashes: tuple[bytes, ...] = ()
    split_examples: int = 0
    is_ordered: bool = True
    reason: str = ""

    @property
    def digest(self) -> str:
        """Digest of the examples, independent of their order; empty if there is a `reason` for none."""
        from etlrun.measure.digest import digest_of  # imports NumPy

        return "" if self.reason else digest_of(self.hashes)

    @property
    def amount(self) -> str:
        """How many examples were read, of how many, such as `2 of 3 examples`."""
        count = len(self.hashes)
        whole = f" of {self.split_examples:,}" * (count != self.split_examples)
        return f"{count:,}{whole} example{'s' * (self.split_examples != 1)}"


Plans = tuple["Plan | None", "Plan | None"]
Sides = tuple[ReadExamples | None, ReadExamples | None]
"""What was read before and after a change; None on a side that doesn't have the pipeline."""


@frozen
class Facts:
    """What a short pass of both sides has read.

    Attributes:
        lines: The facts, a sentence each.
        is_same: Whether both sides have read the same examples, in any order; None if that is unknown.
        is_ordered: Whether they were in the same order; None if that is unknown.
        digests: Digest of each side, by pipeline; empty for a side that was not read.
        contradicts: Whether this is not what the comparison of the plans says.
    """

    lines: list[str]
    is_same: bool | None
    is_ordered: bool | None
    digests: dict[str, tuple[str, str]]
    contradicts: bool = False

    @property
    def summary(self) -> str:
        """The facts in a few words."""
        if self.contradicts or self.is_same is None:
            return "contradiction" if self.contradicts else "not all was read"
        order = {True: "the same order", False: "another order", None: "no fixed order"}[self.is_ordered]
        return f"read the same in {order}" if self.is_same else "read others"


def facts_of(comparison: Comparison, plans: Plans, read: Mapping[str, Sides], *, by_own_code: bool = True) -> Facts:
    """Return the facts on what was read of both plans, by pipeline, beside what their comparison says.

    Runs are not read `by_own_code`, but with the packages that are installed now.
    """
    compared = {name: (old, new) for name, (old, new) in read.items() if old and new and old.digest and new.digest}
    same = [_is_same(*sides) for sides in compared.values()]
    ordered = [_is_ordered(*sides) for sides in compared.values()]
    denied = []
    if not (comparison.is_unsure or comparison.doubts):
        for name in [name for name in compared if not _reaching(name, comparison)]:
            if not _is_same(*compared[name]):
                denied.append(f"the examples of {name} differ, which the comparison denies")
            elif not comparison.is_reordered and _is_ordered(*compared[name]) is False:
                denied.append(f"the order of {name} differs, which the comparison denies")
    is_known = bool(compared) and len(compared) == len(read)
    return Facts(
        lines=[
            *_lines(comparison, plans, read),
            *_notes(comparison, plans, by_own_code=by_own_code),
            *(f"{CONTRADICTION}{text}" for text in denied),
        ],
        is_same=False if False in same else True if is_known else None,
        is_ordered=False if False in ordered else True if is_known and None not in ordered else None,
        digests={name: (old.digest if old else "", new.digest if new else "") for name, (old, new) in read.items()},
        contradicts=bool(denied),
    )


def repeatable(read: Mapping[str, Sides], again: Mapping[str, ReadExamples]) -> dict[str, Sides]:
    """Return what was read, without pipelines whose old side has read other examples when it was read `again`."""
    found: dict[str, Sides] = {}
    for name, (old, new) in read.items():
        found[name] = old, new
        if old and new and name in again and (not _is_same(old, again[name]) or _is_ordered(old, again[name]) is False):
            reason = "a second pass over the same config has read others: a step is random beyond its seed"
            found[name] = replace(old, reason=reason), replace(new, reason=reason)
    return found


def _is_same(old: ReadExamples, new: ReadExamples) -> bool:
    return Counter(old.hashes) == Counter(new.hashes)


def _is_ordered(old: ReadExamples, new: ReadExamples) -> bool | None:
    return old.hashes == new.hashes if old.is_ordered and new.is_ordered else None


def _lines(comparison: Comparison, plans: Plans, read: Mapping[str, Sides]) -> Iterator[str]:
    """Yield the sentences on what was read, and why the rest was not, pipelines with the same reason together."""
    unread: dict[tuple[str, str], list[str]] = {}
    for name, (old, new) in read.items():
        if old and new and old.digest and new.digest:
            yield _compared(name, old, new, comparison, plans)
            continue
        sides = [(side, of) for side, of in (("before", old), ("after", new)) if of is not None]
        for side, of in sides:
            if of.digest:
                alone = f" {side} the change alone" * (None not in plans)
                yield f"read: {of.amount} of {name}{alone} ({_short(of)})"
        reasons = [f"{side} the change, since {of.reason}" for side, of in sides if of.reason]
        if old and new and old.reason == new.reason:
            reasons = [f"since {old.reason}"]
        verb = "compared" if old and old.hashes and old.reason else "read"
        for reason in reasons:
            unread.setdefault((verb, reason), []).append(name)
    for (verb, reason), names in unread.items():
        yield f"not {verb}: {' and '.join(names)}{',' * reason.startswith('since')} {reason}"


def _compared(name: str, old: ReadExamples, new: ReadExamples, comparison: Comparison, plans: Plans) -> str:
    """Return the sentence on a pipeline of which both sides were read."""
    amount = old.amount if old.amount == new.amount else f"{old.amount.rpartition(' ')[0]} -> {new.amount}"
    begin, count = f"read: {amount} of {name}, ", len(new.hashes)
    reaching = _reaching(name, comparison)
    if _is_same(old, new):
        is_ordered, is_part = _is_ordered(old, new), count < new.split_examples
        order = {True: "the same order", False: "another order", None: "an order that is not fixed"}[is_ordered]
        may_differ = is_part and (reaching or (comparison.is_reordered and is_ordered))
        others = "; the others may differ" if may_differ else ""
        return f"{begin}the same in {order} ({_short(new)}){others}"
    shared = (Counter(old.hashes) & Counter(new.hashes)).total()
    digests = f"({_short(old)} -> {_short(new)})"
    if old.amount != new.amount:
        return f"{begin}{shared:,} of them the same {digests}"
    before, after = plans
    since = f" from {first_stage(before, after, reaching)} on" if before and after and reaching else ""
    return f"{begin}{f'{count - shared:,}' if shared else 'all'} of which differ{since} {digests}"


def _reaching(name: str, comparison: Comparison) -> list[Difference]:
    return [item for item in comparison.differences if item.kind == DATA and name in (item.pipelines or (name,))]


def _short(of: ReadExamples) -> str:
    count, _, digest = of.digest.partition(":")
    return f"{count}:{digest[:_SHOWN]}…"


def _notes(comparison: Comparison, plans: Plans, *, by_own_code: bool) -> Iterator[str]:
    """Yield what differs and is not part of what is read."""
    old, new = ({step.stage.path for step in plan.by_model} if plan is not None else set() for plan in plans)
    paths = [item.path for item in comparison.differences if item.kind == DATA]
    applied = [step for step in sorted(old & new) if any(path.startswith(f"{step}.") for path in paths)]
    if applied:
        yield f"not read: what {', '.join(applied)} changes, which the model applies"
    if not by_own_code and any(path.startswith("code of ") for path in paths):
        yield "not read: the code of the other side; both sides were read with the packages that are installed here"
