"""A review judged by a policy: which rules a change breaks, by what, and which labels waive them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from etlrun.review.policy import FORBIDDEN, STATES, Judgement, Policy, Rule
from etlrun.review.review import Review, Reviewed
from etlrun.review.sides import Side
from etlrun.stages.base import Kind
from etlrun.system.errors import Fault, of_file

_MOST_NAMES = 5
"""Maximum number of names in a sentence."""
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
    keep = ""
    if rule.name in STATES:
        names = [of.name for of in experiments if of.state == STATES[rule.name] and of.is_experiment]
        found = f"{len(names)} {rule.name} experiment{'s' * (len(names) > 1)}: {_listed(names)}" if names else ""
    else:
        changed = [of for of in experiments if of.is_mended or rule.name in of.kinds]
        found, keep = _changes(Kind(rule.name), changed), _KEEP * any(of.is_mended for of in changed)
    if not found:
        return None
    waive = f"give it the label {rule.label}" if rule.label else ""
    expected = f"none without the label {rule.label}" if rule.label else "none"
    remedy = ", or ".join(filter(None, [keep, waive]))
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


def _in(names: Sequence[str]) -> str:
    """Return the experiments in which something is; empty for a single config."""
    return f" in {_listed(names)}" if any(names) else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
