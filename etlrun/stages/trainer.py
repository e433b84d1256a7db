"""Training of a model, and runs of a pipeline alone."""

from dataclasses import dataclass, fields, replace
from itertools import takewhile
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from etlrun.stages.base import (
    TRAINING,
    Expected,
    Factor,
    Fraction,
    Natural,
    Number,
    OptionalPositive,
    Positive,
    PositiveNumber,
    Rate,
    Seed,
    Speed,
    Stage,
    Training,
    selectable,
)
from etlrun.stages.flow import Faults
from etlrun.stages.installed import Callback, Loss
from etlrun.stages.model import Unfrozen
from etlrun.stages.objectives import MONITORED, NAMES, NAMES_OF_LOSSES, MetricName, Monitored, falls
from etlrun.stages.paths import OptionalPath
from etlrun.stages.plugins import CALLBACKS, LOSSES, Plugin, named
from etlrun.stages.plugins import METRICS as OF_PACKAGES
from etlrun.system.values import Block, frozen


@dataclass(frozen=True, kw_only=True, repr=False)
class Phase(Stage):
    """Epochs in which the same layers are trained, by an optimizer that begins with them.

    Attributes:
        epochs: Passes over the training examples.
        unfreeze: Layers of the base that are trained, too, from here on: `last_block`, a number of last layers, or
            `all`; null for those of the phase before, at first none. Batch normalizations stay frozen.
        learning_rate: Learning rate of the optimizer; null for `trainer.learning_rate`.
    """

    path = "trainer.phases"

    epochs: Training[Positive]
    unfreeze: Training[Unfrozen | None] = None
    learning_rate: Training[PositiveNumber | None] = None

    def __repr__(self) -> str:
        """Return the phase as in a config."""
        values = ((field.name, getattr(self, field.name)) for field in fields(Phase))
        return f"{{{', '.join(f'{name}: {value}' for name, value in values if value is not None)}}}"


@dataclass(frozen=True, kw_only=True, repr=False)
class PlannedPhase(Phase):
    """A phase with all its values.

    Attributes:
        number: Number of the phase, from 1.
        done: Epochs before it.
    """

    number: int
    done: int

    @property
    def path(self) -> str:  # type: ignore[override] # each has its own
        """Key of the phase in a config, whose lists begin with 0."""
        return f"{Phase.path}[{self.number - 1}]"

    @property
    def end(self) -> int:
        """Epochs up to its end."""
        return self.done + self.epochs


@frozen
class Schedule(Stage):
    """Changes the learning rate with the training steps, from 0: each step of a run is one.

    Attributes:
        name: Keras's `CosineDecay`, or a constant rate.
        warmup_steps: First steps, in which the rate rises linearly from 0 to `learning_rate`.
        decay_steps: Steps after the warm-up until the cosine ends; null for all steps of the run.
        alpha: Rate at the end of the cosine, relative to `learning_rate`.
    """

    path = "trainer.schedule"

    name: Training[Literal["constant", "cosine"]] = "constant"
    warmup_steps: Training[Natural] = 0
    decay_steps: Training[OptionalPositive] = None
    alpha: Training[Fraction] = 0.0

    @property
    def needs_run(self) -> bool:
        """Whether it depends on the number of steps of the whole run."""
        return self.name == "cosine" and self.decay_steps is None

    def rules(self) -> Faults:
        for name, nothing in (("decay_steps", "null"), ("alpha", 0.0)) if self.name == "constant" else ():
            if (value := getattr(self, name)) not in (None, 0.0):
                yield name, value, f"{nothing} with {self.key('name')}=constant", f"set {self.key(name)}={nothing}"


_CONSTANT = Schedule()


@frozen
class EarlyStopping(Stage):
    """Ends the training when a metric has stopped improving.

    Attributes:
        patience: Epochs without improvement after which to end; null trains all epochs.
        monitor: Metric that has to improve, and by which `trainer.keep` finds the best epoch.
        min_delta: Minimum change that counts as an improvement.
    """

    path = "trainer.early_stopping"

    patience: Training[OptionalPositive]
    monitor: Annotated[Monitored, Expected(MONITORED, OF_PACKAGES), TRAINING]
    min_delta: Training[Number]

    @property
    def arguments(self) -> Block:
        """Arguments of Keras's callback of the same name."""
        mode = "min" if falls(self.monitor) else "max"
        return {"monitor": self.monitor, "patience": self.patience, "min_delta": self.min_delta, "mode": mode}


@selectable
class Trainer(Stage):
    """Trains with Keras's `fit`.

    Attributes:
        epochs: Passes over the training examples, or spans of `steps_per_epoch` steps; null with `phases`.
        steps_per_epoch: Steps of an epoch, taken from the endless sequence of passes; null for one pass.
        optimizer: Keras's name of the optimizer.
        learning_rate: Learning rate of the optimizer.
        seed: Seed of all randomness: weights, shuffling, augmentation.
        mixed_precision: Keras's dtype policy; null for float32. `auto` is mixed_bfloat16 on a GPU of compute capability
            8.0 or more, mixed_float16 from 7.0 on, else float32.
        jit_compile: Whether XLA compiles the steps; `auto` leaves it to Keras, null does so on JAX alone.
        device: `auto` uses an accelerator if there is one, `gpu` fails if there is none.
        devices: Devices that share each batch of `load.batch_size`.
        hosts: Processes, each on a host of its own, that read equal parts of each batch; `devices` are those of each
            host.
        resume: Folder of an interrupted run of the same config, to resume from its last epoch.
        early_stopping: When to end before the last epoch.
        checkpoint_every_steps: Steps after which the training is saved, so that a run resumes inside an epoch; null
            saves after each epoch only.
        checkpoint_keep: Epochs whose checkpoints are kept, the last ones.
        keep: Epoch whose model is saved as `model.keras`: the `best` by the validation, of several the first; or the
            `last`, as without a validation.
        schedule: How the learning rate changes with the steps.
        global_clipnorm: Largest norm of all gradients together; null for any.
        gradient_accumulation_steps: Steps whose mean gradient changes the weights once; null for each step.
        weight_decay: Keras's weight decay; null for that of the optimizer, which is 0.004 for adamw.
        ema_momentum: Momentum of averages of the weights, which the validation and the saved model use; null for none.
        loss: Keras's loss; `crossentropy` means `mean_squared_error` where the target is a number.
        label_smoothing: Share of the target that is spread evenly over all classes.
        metrics: Metrics beside the loss. Of classes: `accuracy`, `top_N_accuracy` (the class is among the N most
            probable), and `precision`, `recall` and `f1`, means over the classes. Of two classes: `accuracy`, `auc`,
            `precision` and `recall`. Of numbers: `mae`, `rmse` and `r2`. The default means all of them for rows of a
            table, and none for other numbers.
        callbacks: Callbacks of installed packages, by their names.
        on_nan: What the first loss that is not finite does: `fail` ends the run, `warn` adds a note.
        phases: Parts of the training, each with further layers of the base; null for one part, with `epochs`.
    """

    path = "trainer.fit"
    block = "trainer"
    seconds: ClassVar[None] = None
    """None, because it ends only with an epoch."""
    step_ms: ClassVar[float] = 0.0
    step_cores: ClassVar[float] = 0.0
    """0, because the steps are those of a model."""

    epochs: Annotated[OptionalPositive, Expected("a positive integer"), TRAINING]
    steps_per_epoch: Training[OptionalPositive]
    optimizer: Training[Literal["adam", "adamw", "rmsprop", "sgd"]]
    learning_rate: Training[PositiveNumber]
    seed: Training[Seed]
    mixed_precision: Training[Literal["mixed_float16", "mixed_bfloat16", "auto"] | None]
    jit_compile: Training[bool | Literal["auto"] | None]
    device: Training[Literal["auto", "cpu", "gpu"]]
    devices: Training[Positive | Literal["all"]] = 1
    hosts: Training[Positive] = 1
    resume: Speed[OptionalPath]
    early_stopping: EarlyStopping
    checkpoint_every_steps: Speed[OptionalPositive] = None
    checkpoint_keep: Speed[Positive] = 1
    keep: Training[Literal["best", "last"]] = "best"
    schedule: Schedule = _CONSTANT
    global_clipnorm: Training[PositiveNumber | None] = None
    gradient_accumulation_steps: Training[Annotated[int, Field(ge=2, le=1_000_000)] | None] = None
    weight_decay: Training[Factor | None] = None
    ema_momentum: Training[Rate | None] = None
    loss: Annotated[Loss, Expected(NAMES_OF_LOSSES, LOSSES), TRAINING] = "crossentropy"
    label_smoothing: Training[Rate] = 0.0
    metrics: Annotated[tuple[MetricName, ...], Expected(f"a list of {NAMES}", OF_PACKAGES), TRAINING] = ("accuracy",)
    callbacks: Annotated[tuple[Callback, ...], Expected("a list of names of callbacks", CALLBACKS), TRAINING] = ()
    on_nan: Speed[Literal["fail", "warn"]] = "fail"
    phases: Annotated[
        Annotated[tuple[Phase, ...], Field(min_length=1)] | None,
        Expected("a list of phases, such as [{epochs: 3}, {epochs: 5, unfreeze: last_block}], or null"),
    ] = None

    @property
    def planned_phases(self) -> tuple[PlannedPhase, ...]:
        """The phases with all their values; a training without is a single one."""
        planned: list[PlannedPhase] = []
        for number, phase in enumerate(self.phases or (Phase(epochs=self.epochs or 1),), 1):
            unfreeze = phase.unfreeze or (planned[-1].unfreeze if planned else None)
            rate, done = phase.learning_rate or self.learning_rate, planned[-1].end if planned else 0
            own = PlannedPhase(epochs=phase.epochs, unfreeze=unfreeze, learning_rate=rate, number=number, done=done)
            planned.append(own)
        return tuple(planned)

    @property
    def all_epochs(self) -> int:
        """Epochs of the run, of all its phases."""
        return self.planned_phases[-1].end

    @property
    def frozen_phases(self) -> tuple[PlannedPhase, ...]:
        """The first phases, in which the layers of the base are what they were before."""
        return tuple(takewhile(lambda phase: phase.unfreeze is None, self.planned_phases))

    def jit_on(self, backend: str) -> bool | str:
        """Return Keras's `jit_compile` on `backend`: without XLA, JAX would take each operation of a step by itself."""
        return ("auto" if backend == "jax" else False) if self.jit_compile is None else self.jit_compile

    def in_phase(self, phase: PlannedPhase) -> Self:
        """Return the trainer of that phase alone."""
        return replace(self, epochs=phase.epochs, learning_rate=phase.learning_rate or self.learning_rate, phases=None)

    @property
    def own_functions(self) -> list[Plugin]:
        """The loss, metrics and callbacks that installed packages add."""
        wanted = [(LOSSES, self.loss), *((OF_PACKAGES, name) for name in self.metrics)]
        wanted += [(CALLBACKS, name) for name in self.callbacks]
        return [plugin for group, name in wanted if (plugin := named(group, name)) is not None]

    def rules(self) -> Faults:
        for name, *texts in self.schedule.rules():
            yield f"schedule.{name}", *texts  # type: ignore[misc] # three of them
        for name in ("metrics", "callbacks"):
            if len(set(given := getattr(self, name))) < len(given):
                yield name, given, f"each of the {name} once", "name it once"
        if self.phases is None and self.epochs is None:
            yield "epochs", "null", "a positive integer without trainer.phases", f"set {self.key('epochs')}"
        if self.phases and self.phases[0].unfreeze is not None:
            expected = "null in the first phase, which trains the head on the frozen base"
            remedy = "put a phase without it first, or train the base from the start: model.trainable=true"
            yield "phases[0].unfreeze", self.phases[0].unfreeze, expected, remedy


@selectable
class Drain(Stage):
    """Runs the training pipeline alone, without a model. It ends when the first limit is reached.

    Attributes:
        seconds: Seconds after which to end; null for no such limit.
        epochs: Passes after which to end; null for no such limit.
        seed: Seed of shuffling and augmentation.
        step_ms: Milliseconds for which each batch is held, as by a training step; 0 for none.
        step_cores: Cores that compute in that time, as a model on a CPU does; 0 waits as for an accelerator.
    """

    path = "trainer.drain"
    block = "trainer"
    steps_per_epoch: ClassVar[None] = None
    """None, because its epochs are passes."""

    @property
    def all_epochs(self) -> int | None:
        """Epochs of the run; None for no such limit."""
        return self.epochs

    seconds: Training[PositiveNumber | None]
    epochs: Training[OptionalPositive]
    seed: Training[Seed]
    step_ms: Speed[Factor] = 0.0
    step_cores: Speed[Factor] = 0.0

    def rules(self) -> Faults:
        if self.seconds is None and self.epochs is None:
            yield "seconds", "null, as is trainer.epochs", "a limit", "set trainer.seconds or trainer.epochs"
