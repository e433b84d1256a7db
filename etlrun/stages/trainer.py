"""How the model is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import (
    SPEED,
    TRAINING,
    Expected,
    Flag,
    Number,
    OptionalPath,
    OptionalPositive,
    Positive,
    PositiveNumber,
    Seed,
    Stage,
)

Monitored = Literal["loss", "accuracy", "val_loss", "val_accuracy"]


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(Stage):
    """Ends the training when a measure has stopped to improve.

    Attributes:
        patience: Epochs without improvement after which to end; null trains all epochs.
        monitor: The measure.
        min_delta: What counts as an improvement at least.
    """

    path: ClassVar[str] = "trainer.early_stopping"

    patience: Annotated[OptionalPositive, TRAINING]
    monitor: Annotated[Monitored, Expected("loss, accuracy, val_loss or val_accuracy"), TRAINING]
    min_delta: Annotated[Number, TRAINING]


@dataclass(frozen=True, kw_only=True)
class Trainer(Stage):
    """Keras's `fit`.

    Attributes:
        epochs: Passes over the training examples, or spans of `steps_per_epoch` steps.
        steps_per_epoch: null makes an epoch one pass; a number cuts the endless sequence of passes
            into epochs of so many steps.
        optimizer: As Keras calls it.
        learning_rate: Of the optimizer.
        seed: Of everything random: weights, shuffling, augmentation.
        mixed_precision: Keras's dtype policy for the layers; null for float32.
        jit_compile: Whether XLA compiles the steps; `auto` leaves it to Keras.
        device: `auto` takes an accelerator where there is one, `gpu` fails where there is none.
        tensorboard: Whether to write TensorBoard logs into the run's folder.
        resume: The folder of an interrupted run of the same config, to go on from its last epoch.
        early_stopping: When to end before the last epoch.
    """

    path: ClassVar[str] = "trainer.fit"

    epochs: Annotated[Positive, TRAINING]
    steps_per_epoch: Annotated[OptionalPositive, TRAINING]
    optimizer: Annotated[
        Literal["adam", "adamw", "rmsprop", "sgd"],
        Expected("adam, adamw, rmsprop or sgd"),
        TRAINING,
    ]
    learning_rate: Annotated[PositiveNumber, TRAINING]
    seed: Annotated[Seed, TRAINING]
    mixed_precision: Annotated[
        Literal["mixed_float16", "mixed_bfloat16"] | None,
        Expected("mixed_float16, mixed_bfloat16 or null"),
        TRAINING,
    ]
    jit_compile: Annotated[bool | Literal["auto"], Expected("true, false or auto"), TRAINING]
    device: Annotated[Literal["auto", "cpu", "gpu"], Expected("auto, cpu or gpu"), TRAINING]
    tensorboard: Annotated[Flag, SPEED]
    resume: Annotated[OptionalPath, SPEED]
    early_stopping: Annotated[EarlyStopping, Expected("a mapping")]


@dataclass(frozen=True, kw_only=True)
class Drain(Stage):
    """Runs the training pipeline alone, without a model. It ends with whichever limit is reached first.

    Attributes:
        seconds: After which to end; null for no such limit.
        epochs: Passes after which to end; null for no such limit.
        seed: Of shuffling and augmentation.
    """

    path: ClassVar[str] = "trainer.drain"
    steps_per_epoch: ClassVar[None] = None
    """Its epochs are passes."""

    seconds: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Expected("a number above 0, or null"),
        TRAINING,
    ]
    epochs: Annotated[OptionalPositive, TRAINING]
    seed: Annotated[Seed, TRAINING]

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        if self.seconds is None and self.epochs is None:
            yield "seconds", "null, as is trainer.epochs", "a limit", "set trainer.seconds or trainer.epochs"
