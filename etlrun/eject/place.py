"""Stages at their places in a program, and their text there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etlrun.eject.text import parallel
from etlrun.plan.plan import Plan, PlannedStage, at_cache
from etlrun.stages.flow import Flow


@dataclass(frozen=True, kw_only=True)
class Place:
    """A stage of a program.

    Attributes:
        plan: Plan of the run.
        pipeline: `train` or `validation`.
        planned: The stage with its steps.
        incoming: Input of the stage.
        dataset: Expression of the input.
    """

    plan: Plan
    pipeline: str
    planned: PlannedStage
    incoming: Flow
    dataset: str


@dataclass(frozen=True, kw_only=True)
class Expression:
    """Text of a stage in a program.

    Attributes:
        text: Expression of the dataset.
        functions: Functions that the expression needs.
    """

    text: str
    functions: tuple[str, ...] = ()


def differs_by_pass(stages: Sequence[PlannedStage]) -> bool:
    """Return whether the passes over a pipeline differ; what is before a cache is fixed by the first one."""
    return any(planned.is_random for planned in at_cache(stages)[2])


def calls_of(num_parallel_calls: int | str | None, *, deterministic: bool, most: str = "") -> tuple[str, ...]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if num_parallel_calls is None:
        return ()
    calls = parallel(num_parallel_calls)
    if most and num_parallel_calls != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return f"num_parallel_calls={calls}", f"deterministic={deterministic}"
