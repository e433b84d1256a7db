"""Text of a pipeline in a program: a function that makes a dataset, with a line for each stage."""

from __future__ import annotations

from collections.abc import Sequence

from etlrun.eject.datasets import expression
from etlrun.eject.place import Place, differs_by_pass, last_random
from etlrun.eject.text import function
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number, reads_features
from etlrun.stages.base import Scope


def pipeline(plan: Plan, name: str, beside: Plan | None = None) -> tuple[str, ...]:
    """Return `train_dataset` or `validation_dataset` after the functions that it needs.

    They are `train_images` and `validation_images` of the phases that follow those of the plan `beside`.
    """
    writer, suffix = _Writer(plan, name, beside), "images" if beside else "dataset"
    body = writer.body(plan.pipelines[name])
    arguments = ["base: keras.Model"] if reads_features(plan) else []
    if name == "train":
        gives = f"Return the batches of all epochs, pass by pass: {writer.flow}."
        if _has_phases(plan):
            gives = f"Return the batches of so many passes: {writer.flow}."
            arguments += ["first: int"] if differs_by_pass(plan.train) else []
            arguments.append("passes: int")
        elif plan.spec.dataset.on_corrupt == "skip":
            arguments.append(f"passes: int = {_passes(plan) or -1}")
    else:
        gives = f"Return the batches of a pass: {writer.flow}."
    made = function(f"{name}_{suffix}({', '.join(arguments)}) -> tf.data.Dataset", gives, *body)
    return (*writer.needed, made)


def _passes(plan: Plan) -> str:
    """Return the number of passes as text; an empty one for endless passes."""
    trainer = plan.spec.trainer
    is_endless = trainer.all_epochs is None or trainer.steps_per_epoch is not None
    return "" if is_endless else "EPOCHS"


def _has_phases(plan: Plan) -> bool:
    return plan.spec.fit is not None and plan.spec.fit.phases is not None


class _Writer:
    """Writes stage after stage.

    All training passes are in one dataset, and Keras reads a fixed number of steps of it in each epoch. If it
    has to find the end of a pass by itself, it counts one step of the optimizer too many (Keras 3.15).

    Attributes:
        flow: Output of the last stage.
        needed: Functions that the stages call.
    """

    def __init__(self, plan: Plan, name: str, beside: Plan | None) -> None:
        self.plan, self.name, self._beside = plan, name, beside
        self.flow = plan.spec.dataset.examples
        self.needed: list[str] = []
        self._last = last_random(plan.pipelines[name])
        self._carries = self._last is not None

    def body(self, stages: Sequence[PlannedStage]) -> list[str]:
        """Return the lines of the function. Random stages are rebuilt for each pass; prefetching spans all passes."""
        ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
        in_pass = [planned for planned in stages if planned not in ahead]
        numbered = [] if reads_features(self.plan) else by_number(in_pass)
        if numbered:
            self.flow, in_pass = numbered[0].gives, list(numbered[1:])
        kept = len(at_cache(in_pass)[0])  # these are fixed by the first pass
        place = next((place for place, planned in enumerate(in_pass) if planned.is_random and place >= kept), None)
        is_given = self.plan.spec.dataset.on_corrupt == "skip" or _has_phases(self.plan)
        passes, first = "passes" if is_given else _passes(self.plan), "first" if _has_phases(self.plan) else 1
        if place is not None:
            count = f".take({passes})" if passes else ""
            before = self._chain(in_pass[:place], "", "examples")
            lines = [
                *before,
                "",
                self._one_pass(in_pass[place:]),
                "",
                f"dataset = tf.data.Dataset.counter({first}){count}.flat_map(one_pass)",
            ]
        else:
            lines = self._chain(in_pass, "", "dataset")
            lines += [f"dataset = dataset.repeat({passes})"] if self.name == "train" else []
        return [*lines, *self._chain(ahead, "dataset", "dataset"), "return dataset.with_options(AS_WRITTEN)"]

    def _one_pass(self, stages: Sequence[PlannedStage]) -> str:
        *lines, last = self._chain(stages, "examples", "dataset")
        return function(
            "one_pass(number: tf.Tensor) -> tf.data.Dataset",
            "Return pass `number`, from 1; SEED and `number` determine its randomness.",
            "seed = number + SEED * 1_000_003",
            *lines,
            f"return {last.removeprefix('dataset = ')}",
        )

    def _chain(self, stages: Sequence[PlannedStage], dataset: str, name: str) -> list[str]:
        """Return an assignment to `name` for each stage; the first one takes `dataset`."""
        lines = []
        for planned in stages:
            place = Place(
                plan=self.plan,
                pipeline=self.name,
                planned=planned,
                incoming=self.flow,
                dataset=dataset,
                last_random=self._last,
                carries=self._carries,
                beside=self._beside,
            )
            text, self._carries = expression(place), place.gives_index
            self.needed += place.functions
            self.flow = planned.gives
            if text != dataset:
                lines.append(f"{name} = {text}")
                dataset = name
        return lines
