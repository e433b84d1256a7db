"""Reasons why runs may see different examples though no value of their configs changes the data, and further notes."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.planning.plan import Plan, reads_features
from etlrun.planning.spec import RunSpec
from etlrun.stages.base import DATA, ORDER, TRAINING, Kind
from etlrun.stages.rows import Rows


def unrepeatable(spec: RunSpec) -> bool:
    """Return whether a pass drops examples by an order that differs from run to run."""
    return bool(_cut(spec)) and not spec.has_order


def _cut(spec: RunSpec) -> str:
    """Return the override that drops examples depending on their order; empty if there is none."""
    if spec.trainer.steps_per_epoch is not None:
        return f"trainer.steps_per_epoch={spec.trainer.steps_per_epoch}"
    return "load.drop_remainder=true" if spec.load.drop_remainder else ""


def other_rows(*specs: RunSpec) -> str:
    """Return why the rows of two runs may differ though their configs do not tell; empty if they are the same."""
    known = [of.known for spec in specs if isinstance(of := spec.dataset, Rows) and of.known is not None]
    found = [of.identity for of in known]
    if len({*found}) < 2:  # noqa: PLR2004 - two sides
        return ""
    if "" in found:
        return "The rows of one side alone are on this machine: what columns learn of those of the other is unknown."
    return f"The rows may be others: their identity is {found[0]}, and then {found[1]}, by content, names and reader."


def doubts_about(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> Iterator[str]:
    """Yield reasons why runs may see different examples though no value changes the data; also for equal specs."""
    if DATA not in kinds and (other := other_rows(old, new)):
        yield other
    cuts = [cut for spec in (old, new) if (cut := _cut(spec))]
    if any(unrepeatable(spec) for spec in (old, new)):
        yield f"Without a fixed order, {cuts[0]} drops different examples in each pass and in each run."
    elif cuts and ORDER in kinds:
        yield f"{cuts[0]}: with a different order or different batches, a pass drops different examples."
    elif _ends_elsewhere(old, new, kinds):
        yield f"{cuts[0]}: if training ends after a different step, it drops different examples."
    if all(spec.load.drop_long for spec in (old, new)) and len({_last(spec) for spec in (old, new)}) > 1:
        yield "load.drop_long=true: with another last boundary, a pass leaves out other sequences."
    if kinds & {DATA, ORDER} and any(spec.load.mixes for spec in (old, new)):
        yield "With a different order or different batches, MixUp and CutMix mix other images."
    limits = [limit for spec in (old, new) if (limit := spec.trainer.seconds) is not None]
    if limits:
        yield f"trainer.seconds={limits[0]:g} ends a run within a pass: the number of examples depends on the speed."
    random = [step.path for step in new.transform.steps if step.random]
    if random and old.trainer.seed != new.trainer.seed:
        names = " and ".join(filter(None, [", ".join(random[:-1]), random[-1]]))
        yield f"With a different seed, {names} transform{'s' if len(random) == 1 else ''} each image differently."


def _last(spec: RunSpec) -> int:
    """Return the last boundary of the buckets."""
    return max(spec.load.boundaries or (0,))


def _ends_elsewhere(old: RunSpec, new: RunSpec, kinds: set[Kind]) -> bool:
    """Return whether epochs of `steps_per_epoch` end at different examples, or after a different number of epochs."""
    fits = [fit for fit in (old.fit, new.fit) if fit is not None]
    spans = [(fit.steps_per_epoch, fit.all_epochs, fit.early_stopping.patience) for fit in fits]
    may_stop = TRAINING in kinds and any(patience is not None for _, _, patience in spans)
    return any(steps is not None for steps, _, _ in spans) and (len(set(spans)) > 1 or may_stop)


def notes_on(old: Plan, new: Plan, *, is_unordered: bool) -> Iterator[str]:
    """Yield further notes on a comparison."""
    if is_unordered and not any(_cut(plan.spec) for plan in (old, new)):
        yield "The order of examples is not fixed: it differs in each run."
    if any(reads_features(plan) for plan in (old, new)):
        yield "cache.at = features: losses equal those of a run without it within float tolerance, not bit for bit."
