"""Columns: each output of a dataset of rows, from one or several of its columns through steps on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from etlrun.stages.base import DATA, Expected
from etlrun.stages.column_steps import ColumnStep
from etlrun.stages.flow import Feature, Flow, UnfitError
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


def narrowed(values: tf.Tensor) -> tf.Tensor:
    """Return float64 values as float32, and all others as they are."""
    return tf.cast(values, tf.float32) if values.dtype == tf.float64 else values


@dataclass(frozen=True, kw_only=True)
class Output:
    """One output of `transform.columns`.

    Attributes:
        name: Its name, by which the model gets it.
        of: Columns that it is made of; one, unless the first step takes several.
        steps: Steps in the order in which they are applied.
    """

    name: str
    of: tuple[str, ...]
    steps: tuple[ColumnStep, ...] = ()

    def given(self, example: Mapping[str, Any]) -> Any:
        """Return the output for an example, or for a batch of them, of the features by name."""
        value: Any = example[self.of[0]] if len(self.of) == 1 else tuple(example[name] for name in self.of)
        for step in self.steps:
            value = step.op(value, **step.arguments)
        return narrowed(value)

    def gives(self, features: Mapping[str, Feature]) -> Feature:
        """Return its feature; raise `UnfitError` for the first step that doesn't accept what is before it."""
        given: Any = tuple(features[name] for name in self.of)
        for place, step in enumerate(self.steps):
            before = given[0] if isinstance(given, tuple) and len(given) == 1 else given
            try:
                given = step.gives(before)
            except UnfitError as unfit:
                found = " and ".join(map(str, before)) if isinstance(before, tuple) else str(before)
                expected = f"{unfit.expected} before {step.name}, step {place} of {self.name}, instead of {found}"
                raise UnfitError(expected=expected, remedy=unfit.remedy) from unfit
        last: Feature = given[0] if isinstance(given, tuple) else given
        return last.replace(dtype="float32") if last.dtype == "float64" else last

    @property
    def described(self) -> dict[str, Any]:
        """The output as plain values: what it is made of, and each step with its parameters."""
        steps = [{step.name: {**step.arguments, **step.also}} for step in self.steps]
        return {"of": list(self.of), "steps": steps}


@dataclass(frozen=True, kw_only=True)
class Columns(Step):
    """Makes the inputs and the target of rows: each output from one column or several, in steps on whole batches.

    Attributes:
        outputs: The outputs; none before they are chosen.
        assumed: Features of the outputs where the rows are not on this machine, so that they are neither chosen nor
            fitted; none otherwise.
    """

    path: ClassVar[str] = "transform.columns"
    described_by: ClassVar[tuple[str, ...]] = ("outputs",)

    outputs: Annotated[tuple[Output, ...], Expected("a mapping from names to columns, or auto"), DATA]
    assumed: tuple[tuple[str, Feature], ...] = ()

    def described(self) -> dict[str, Any]:
        return {output.name: output.described for output in self.outputs}

    def given(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name, for an example or for a batch of them."""
        return {output.name: output.given(example) for output in self.outputs}

    def flow(self, incoming: Flow) -> Flow:
        if self.assumed:
            return incoming.replace(features=dict(self.assumed))
        if not self.outputs:
            return incoming
        known = {name: incoming.feature(name) for output in self.outputs for name in output.of}
        return incoming.replace(features={output.name: output.gives(known) for output in self.outputs})

    @property
    def makers(self) -> tuple[Callable[..., Any], ...]:
        return tuple(dict.fromkeys(step.op for output in self.outputs for step in output.steps))
