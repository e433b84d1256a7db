"""Stages at their places in a program, and their text there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etlrun.eject.own import sources
from etlrun.eject.text import call, parallel
from etlrun.planning.plan import Plan, PlannedStage, at_cache
from etlrun.stages.dataset import Dataset
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
        last_random: Last stage of the pipeline with random steps, which takes the index of each example; None if there
            is none.
        carries: Whether examples carry their index up to here.
        beside: Plan of the phases before, whose pipelines are in the program, too.
        functions: Functions that the text of the stage needs.
    """

    plan: Plan
    pipeline: str
    planned: PlannedStage
    incoming: Flow
    dataset: str
    last_random: PlannedStage | None = None
    carries: bool = False
    beside: Plan | None = None
    functions: list[str] = field(default_factory=list)

    @property
    def split(self) -> str:
        """Name of the constant that is the split of the pipeline."""
        return f"{self.pipeline.upper()}_SPLIT"

    @property
    def gives_index(self) -> bool:
        """Whether examples carry their index behind this stage."""
        return self.carries and self.planned is not self.last_random

    @property
    def data(self) -> Dataset:
        """Dataset of the plan."""
        return self.plan.spec.dataset

    def calls(self, function: Callable[..., Any], *arguments: str) -> str:
        """Return a call of a function of this package, which the program contains then."""
        self.functions.extend(sources(self.data, function))
        return call(function.__name__, *arguments)


def differs_by_pass(stages: Sequence[PlannedStage]) -> bool:
    """Return whether the passes over a pipeline differ; what is before a cache is fixed by the first one."""
    return any(planned.is_random for planned in at_cache(stages)[2])


def last_random(stages: Sequence[PlannedStage]) -> PlannedStage | None:
    """Return the last stage with random steps; None if there is none."""
    found = [planned for planned in stages if any(step.is_random for step in planned.steps)]
    return found[-1] if found else None


def calls_of(num_parallel_calls: int | str | None, *, deterministic: bool, most: str = "") -> tuple[str, ...]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if num_parallel_calls is None:
        return ()
    calls = parallel(num_parallel_calls)
    if most and num_parallel_calls != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return f"num_parallel_calls={calls}", f"deterministic={deterministic}"
