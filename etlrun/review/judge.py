"""A review judged by a policy: which rules a change breaks, by what, and which labels waive them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from etlrun.review.cost import Refill, refilled
from etlrun.review.policy import FORBIDDEN, KINDS, STATES, Judgement, Policy, Rule
from etlrun.review.review import Review, Reviewed
from etlrun.review.sides import Side
from etlrun.stages.base import Kind
from etlrun.system.errors import Fault, of_file
from etlrun.system.terminal import significant

_MOST_NAMES = 5
"""Maximum number of names in a sentence."""
_MEASURE = "run it, and commit the file that etlrun costs --write writes"
_UNKNOWN = "its old config cannot be composed with the code that is installed here"
_KEEP = "keep what the old configs need beside what the new ones need, or remove them in a change of its own"


def judged(review: Review, sides: tuple[Side, Side], fail_on: Collection[str], labels: Collection[str]) -> Review:
    """Return the review with what the policy of its sides says, and with what `fail_on` forbids, which none waives."""
    policy, note, faults = _chosen(*sides)
    if policy is None and not faults and not fail_on:
        return review
    rules = [Rule(name=name, where="--fail-on") for name in FORBIDDEN if name in fail_on]
    rules += [] if policy is None else policy.rules
    broken, waived = [], []
    for rule in rules:
        fault = _broken(rule, review.experiments)
        if fault is not None and rule.label and rule.label in labels:
            waived.append(f"{fault.place}: found {fault.found}, which the label {rule.label} waives")
        elif fault is not None:
            broken.append(fault)
    file = "" if policy is None else policy.file
    unjudged = _listed([of.name for of in review.experiments if of.state == "faulty"])
    found = Judgement(broken=tuple(broken), waived=tuple(waived), file=file, note=note, faults=faults)
    return replace(review, policy=replace(found, unjudged=unjudged))


def _chosen(old: Side, new: Side) -> tuple[Policy | None, str, tuple[Fault, ...]]:
    """Return the policy that judges, a sentence on it if it changes, and the faults of what can't judge.

    It is the old one: no change loosens the rules by which it is judged itself.
    """
    policies = [side.policy for side in (old, new)]
    judging = next((policy for policy in policies if policy is not None and not policy.faults), None)
    before, after = policies
    changed = after or before
    if judging is None or changed is None:
        return None, "", () if changed is None else changed.faults
    note = ""
    if old.is_revision and new.is_revision and (before and before.text) != (after and after.text):
        state = "added" if before is None else "removed" if after is None else "changed"
        note = f"{changed.file}: {state}"
        note += ", and has faults" if changed.faults else ""
        note += f"; {old.word} has one with faults" if judging is after and before is not None else ""
        note += f"; this change is judged by the one of {(old if judging is before else new).word}"
    return judging, note, ()


def _broken(rule: Rule, experiments: Sequence[Reviewed]) -> Fault | None:
    """Return the fault of a rule that a change breaks; None if it keeps it."""
    if rule.name in KINDS:
        changed = [of for of in experiments if of.is_mended or rule.name in of.kinds]
        found = _changes(Kind(rule.name), changed)
        return _fault(rule, found, "none", _KEEP * any(of.is_mended for of in changed)) if found else None
    if rule.name in STATES:
        names = [of.name for of in experiments if of.state == STATES[rule.name] and of.is_experiment]
        found = f"{len(names)} {rule.name} experiment{'s' * (len(names) > 1)}: {_listed(names)}"
        return _fault(rule, found, "none") if names else None
    states = {"compared", "added"}
    changed = [of for of in experiments if of.changes and (of.state in states or of.is_mended) and "=" not in of.name]
    found, expected, is_known = (_slow if rule.name == "au_min" else _dear)(rule, changed)
    return _fault(rule, found, expected, "" if is_known else _MEASURE) if found else None


def _fault(rule: Rule, found: str, expected: str, remedy: str = "") -> Fault:
    waive = f"give it the label {rule.label}" if rule.label else ""
    expected += f" without the label {rule.label}" * bool(rule.label)
    remedy = ", or ".join(filter(None, [remedy, waive]))
    return of_file(rule.file, found, expected, remedy, line=rule.line, key=rule.where)


def _changes(kind: Kind, changed: Sequence[Reviewed]) -> str:
    """Return a sentence on changes of a kind, with the values that make them; empty without a change."""
    sure: dict[str, list[str]] = {}
    unsure: dict[str, list[str]] = {}
    for reviewed in changed:
        paths = [of.path for of in reviewed.comparison.differences if of.kind == kind or kind in of.also]
        doubts = " ".join(reviewed.comparison.doubts) or "examples that were read differ"
        doubts = _UNKNOWN if reviewed.is_mended else doubts
        (sure if paths else unsure).setdefault(_listed(paths) if paths else doubts, []).append(reviewed.name)
    texts = [f"a change of the {kind}{_in(names)} by {paths}" for paths, names in sure.items()]
    texts += [f"perhaps a change of the {kind}{_in(names)} ({doubts.rstrip('.')})" for doubts, names in unsure.items()]
    return ", and ".join(texts)


def _dear(rule: Rule, changed: Sequence[Reviewed]) -> tuple[str, str, bool]:
    """Return what breaks a limit of cost, if anything does, what the limit is, and whether all is known."""
    is_size = rule.name == "cost.refill_gb"
    unit, what = ("GB", "of caches to refill") if is_size else ("min", "of refilling caches")
    refills = refilled([of.cost for of in changed if of.cost is not None])
    amounts = {refill.key: _gigabytes(refill) if is_size else _minutes(refill) for refill in refills}
    unknown = [
        of.name for of in changed if of.cost is None or any(amounts[refill.key] is None for refill in of.cost.refills)
    ]
    total = sum(amount for amount in amounts.values() if amount is not None)
    filling = [of.name for of in changed if of.cost is not None and of.cost.refills]
    texts = [f"{significant(total)} {unit} {what}{_in(filling)}"] if total > rule.limit else []
    texts += [f"an unknown {'size' if is_size else 'time'} {what}{_in(unknown)}"] if unknown else []
    return " and ".join(texts), f"at most {significant(rule.limit)} {unit}", not unknown


def _gigabytes(refill: Refill) -> float | None:
    return None if refill.size_bytes is None else refill.size_bytes / 1e9


def _minutes(refill: Refill) -> float | None:
    return None if refill.duration_s is None else refill.duration_s.value / 60


def _slow(rule: Rule, changed: Sequence[Reviewed]) -> tuple[str, str, bool]:
    """Return which experiments fall short of the least utilization, what it is, and whether all is known."""
    found = {of.name: None if of.cost is None else of.cost.au[1] for of in changed}
    unknown = [name for name, au in found.items() if au is None]
    low = {name: au.value for name, au in found.items() if au is not None and au.value < rule.limit}
    texts = [f"an AU of {significant(au)}{_in([name])}" for name, au in low.items()]
    texts += [f"an unknown AU{_in(unknown)}"] if unknown else []
    return " and ".join(texts), f"at least {significant(rule.limit)}", not unknown


def _in(names: Sequence[str]) -> str:
    """Return the experiments in which something is; empty for a single config."""
    return f" in {_listed(names)}" if any(names) else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
