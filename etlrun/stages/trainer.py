"""Training of a model, and runs of a pipeline alone."""

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
    """Ends the training when a metric has stopped improving.

    Attributes:
        patience: Epochs without improvement after which to end; null trains all epochs.
        monitor: The metric.
        min_delta: Minimum change that counts as an improvement.
    """

    path: ClassVar[str] = "trainer.early_stopping"

    patience: Annotated[OptionalPositive, TRAINING]
    monitor: Annotated[Monitored, Expected("loss, accuracy, val_loss or val_accuracy"), TRAINING]
    min_delta: Annotated[Number, TRAINING]


@dataclass(frozen=True, kw_only=True)
class Trainer(Stage):
    """Trains with Keras's `fit`.

    Attributes:
        epochs: Passes over the training examples, or spans of `steps_per_epoch` steps.
        steps_per_epoch: Steps of an epoch, which are taken from the endless sequence of passes; null for one pass.
        optimizer: Keras's name of the optimizer.
        learning_rate: Learning rate of the optimizer.
        seed: Seed of all randomness: weights, shuffling, augmentation.
        mixed_precision: Keras's dtype policy for the layers; null for float32.
        jit_compile: Whether XLA compiles the steps; `auto` leaves it to Keras.
        device: `auto` uses an accelerator if there is one, `gpu` fails if there is none.
        tensorboard: Whether to write TensorBoard logs into the run's folder.
        resume: Folder of an interrupted run of the same config, to resume from its last epoch.
        early_stopping: When to end before the last epoch.
        checkpoint_every_steps: Steps of an epoch after which the state of the training is saved, so that a run resumes
            inside an epoch; null saves after each epoch only.
        checkpoint_keep: Number of epochs whose checkpoints are kept, the last ones.
        checkpoint_best: Metric of the epoch whose model is kept as `checkpoints/best.keras`; null for none.
    """

    path: ClassVar[str] = "trainer.fit"
    block: ClassVar[str] = "trainer"
    seconds: ClassVar[None] = None
    """None, because it ends only with an epoch."""

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
    checkpoint_every_steps: Annotated[OptionalPositive, SPEED] = None
    checkpoint_keep: Annotated[Positive, SPEED] = 1
    checkpoint_best: Annotated[Monitored | None, Expected("loss, accuracy, val_loss, val_accuracy or null"), SPEED] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Drain(Stage):
    """Runs the training pipeline alone, without a model. It ends when the first limit is reached.

    Attributes:
        seconds: Seconds after which to end; null for no such limit.
        epochs: Passes after which to end; null for no such limit.
        seed: Seed of shuffling and augmentation.
    """

    path: ClassVar[str] = "trainer.drain"
    block: ClassVar[str] = "trainer"
    steps_per_epoch: ClassVar[None] = None
    """None, because its epochs are passes."""

    seconds: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Expected("a positive number, or null"),
        TRAINING,
    ]
    epochs: Annotated[OptionalPositive, TRAINING]
    seed: Annotated[Seed, TRAINING]

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        if self.seconds is None and self.epochs is None:
            yield "seconds", "null, as is trainer.epochs", "a limit", "set trainer.seconds or trainer.epochs"
