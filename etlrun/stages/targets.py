"""Targets: what the kind of one decides of the loss and the metrics, and the steps on a target of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from etlrun.stages.base import DATA, Expected
from etlrun.stages.column_categories import Classes
from etlrun.stages.column_step import ColumnStep, number, without_missing
from etlrun.stages.flow import Feature
from etlrun.stages.lazy import pa, pc, tf

Kinds = Literal["class", "binary", "number"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a kind of target decides.

    Attributes:
        title: The kind in a message, behind the name of the target.
        losses: Values of `trainer.loss` for it, the default first.
        metrics: Metrics of its rows where a config names none, the one that is shown first before the others.
    """

    title: str
    losses: tuple[str, ...]
    metrics: tuple[str, ...]


KINDS: dict[Kinds, Kind] = {
    "class": Kind(title="a class", losses=("crossentropy", "focal_crossentropy"), metrics=("accuracy",)),
    "binary": Kind(
        title="one of two classes",
        losses=("crossentropy", "focal_crossentropy"),
        metrics=("accuracy", "auc", "precision", "recall"),
    ),
    "number": Kind(
        title="not a class",
        losses=("mean_squared_error", "mean_absolute_error", "huber", "poisson"),
        metrics=("mae", "rmse", "r2"),
    ),
}
"""Kinds of targets by their names in `dataset.target` of rows."""


def kind_of(target: Feature) -> Kinds:
    """Return the kind of a target."""
    return "binary" if target.is_binary else "class" if target.is_class else "number"


def loss_of(target: Feature, loss: str) -> str:
    """Return the loss for a target; the default of `trainer.loss` stands for that of the kind of the target."""
    losses = KINDS[kind_of(target)].losses
    return loss if loss in losses else losses[0]


@dataclass(frozen=True, kw_only=True)
class Binary(Classes):
    """The index of one of two classes, of which the positive one is 1; a plan puts it behind a binary target."""

    name: ClassVar[str] = "binary"

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        found = super().fitted(values, incoming).values or ()
        return self.replace(values=tuple(sorted(found, key=_is_positive)))

    def gives(self, incoming: Feature) -> Feature:
        return super().gives(incoming).replace(is_binary=True)


def _is_positive(value: str | int) -> bool:
    return str(value).casefold() in ("1", "true", "yes")


@dataclass(frozen=True, kw_only=True)
class Number(ColumnStep):
    """The number to predict; a plan puts it behind a target that is a number.

    Attributes:
        standardize: Whether the loss counts it in standard deviations, which the last layer of the model undoes.
        mean: Mean of the training split. `std` is its standard deviation, `least` the smallest value.
    """

    name: ClassVar[str] = "number"
    learned: ClassVar[tuple[str, ...]] = ("mean", "std", "least")
    not_of_op: ClassVar[tuple[str, ...]] = ("standardize", *learned)

    standardize: Annotated[bool, Expected("true or false"), DATA] = False
    mean: Annotated[float | None, Expected("null"), DATA] = None
    std: Annotated[float | None, Expected("null"), DATA] = None
    least: Annotated[float | None, Expected("null"), DATA] = None

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return the numbers as float32."""
        return tf.cast(values, tf.float32)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        found = values().cast(pa.float64(), safe=False)
        mean, std, least = pc.mean(found).as_py(), pc.stddev(found).as_py(), pc.min(found).as_py()
        return self.replace(mean=mean, std=std, least=least)

    def gives(self, incoming: Feature) -> Feature:
        std = self.std if self.standardize else None
        return number(without_missing(incoming)).replace(dtype="float32", mean=self.mean, std=std)


TARGET_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in (Classes, Binary, Number)}
"""Steps on targets by their names, which no config has."""
