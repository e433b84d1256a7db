"""Keras callbacks: records, checkpoints, states inside epochs, early stopping, divergence, profiles."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras
import numpy as np
import tensorflow as tf

from etlrun.cluster.hosts import here, joint
from etlrun.measure.assessment import Input, Work
from etlrun.measure.meter import Loop
from etlrun.measure.watched import Watch, Watched
from etlrun.planning.plan import given_to_model, kept_by
from etlrun.record.outcome import FINITE_LOSS, FINITE_WEIGHTS
from etlrun.record.record import MODEL, Record
from etlrun.record.summary import MEASURES, Epoch, Kept
from etlrun.run.checkpoint import best_epoch, checkpoint_path, checkpoints_in, state_path, states_in
from etlrun.run.epochs import Steps, record_epoch
from etlrun.run.model import add_seeds, averaged
from etlrun.stages.keras_models import TrainingData
from etlrun.stages.trainer import EarlyStopping as EarlyStoppingRule
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted, headline
from etlrun.system.files import replacing, sync
from etlrun.system.loading import raise_if_interrupted
from etlrun.system.terminal import doing, say_note, tell
from etlrun.system.values import Block, frozen


@contextmanager
def saving(path: Path, record: Record) -> Iterator[Path]:
    """Give the path to write what is then `path`, in the folder of `record`, atomically and synced to disk."""
    with record.writing(), replacing(path) as temporary:
        temporary.parent.mkdir(exist_ok=True)
        yield temporary
        sync(temporary)


def _variables(whole: keras.Model) -> list[Any]:
    return [*whole.variables, *(whole.optimizer.variables if whole.optimizer else [])]


def _reader(variable: Any) -> Callable[[], Any]:
    """Return the function that copies the value of a variable."""
    of = variable.value
    # To trace the reading of all, which copies a value only when it is changed, takes 1.5 s, and saves 6 ms each time.
    if hasattr(of, "_handle"):
        return partial(tf.raw_ops.ReadVariableOp, resource=of.handle, dtype=of.dtype)
    return lambda: np.array(keras.ops.convert_to_tensor(variable))  # a copy: on JAX each step sets another value


def _unusable(path: Path, found: str) -> WorldError:
    remedy = (
        "remove the file, so that the run is resumed from its last epoch, or start a new run without trainer.resume"
    )
    return WorldError(str(path), found, "the complete state that a run saves after a step", remedy)


@frozen
class Training:
    """What the parts of a training share.

    Attributes:
        whole: Model of the run, of which cached features train the dense layer alone.
        work: Plan, record and pipelines of the run.
        data: What its data decide of the model.
    """

    whole: keras.Model
    work: Work
    data: TrainingData


class _Callback(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, training: Training) -> None:
        super().__init__()
        self.whole, self.work = training.whole, training.work
        self.record, self.trainer, self.train = self.work.record, self.work.trainer, self.work.train.watch
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remember the epoch."""
        self.epoch = epoch


class Checkpoint(_Callback):
    """Saves the state of the training every so many steps of an epoch, and the complete model after each epoch.

    The training waits while the variables are copied. A thread writes the copy; a state that is due before the
    previous one is written waits for it. The newest replaces the previous one. The best model is `model.keras` from its
    checkpoint on, so that a kill leaves that of a completed epoch.
    """

    def __init__(self, training: Training, recorder: EpochRecorder) -> None:
        super().__init__(training)
        self.recorder, self.monitor = recorder, kept_by(self.work.plan.spec)
        self._readers: dict[str, list[Callable[[], Any]]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="etlrun-checkpoint")
        self._writing: Future[None] | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save the state if it is due; an error of the previous one is raised here."""
        steps, every_steps, watch = batch + 1, self.trainer.checkpoint_every_steps, self.train
        if every_steps is None or steps % every_steps or steps <= watch.resumed_batches:
            return
        began_s = time.perf_counter()
        self.wait()
        model = self.model  # on JAX, this sets the variables
        if not self._readers:
            of = {"variable": _variables(self.whole), "metric": model.metrics_variables}
            self._readers = {kind: [*map(_reader, variables)] for kind, variables in of.items()}
        copies = {f"{kind}{place}": read() for kind, of in self._readers.items() for place, read in enumerate(of)}
        digest = joint(watch.digest.so_far(watch.meter.ahead)) if watch.digest else ""
        position = {"epochs": self.epoch, "steps": steps, "digest": digest}
        self._writing = self._writer.submit(self._write, position, copies, began_s, time.perf_counter())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save the model after its epoch has been recorded, of which a line is printed then; remove older ones.

        A kill while saving leaves the previous checkpoint, and a run resumed from there prints no line again.
        """
        self.wait()
        record, folder, number = self.record, self.record.folder, epoch + 1
        path = checkpoint_path(folder, number)
        save(self.whole, path, record)
        there = {number, kept.epoch if (kept := record.summary.kept) else None}
        if best_epoch([of for of in record.summary.epochs if of.epoch in there], self.monitor) == number:
            keep(path, record, number, self.monitor, self.whole if self.trainer.ema_momentum else None)
        old = [of for of in checkpoints_in(folder) if of <= number - self.trainer.checkpoint_keep]
        for state in (*(checkpoint_path(folder, of) for of in old), *states_in(folder)):
            state.unlink(missing_ok=True)
        record.event("checkpoint", epoch=number, path=str(path.relative_to(folder)))
        tell(self.recorder.line)

    def on_train_end(self, logs: Any = None) -> None:
        """Release the thread."""
        self.wait()
        self._writer.shutdown()

    def wait(self) -> None:
        """Wait until the last state is written; raises the error of its writing."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, position: Block, copies: Block, began_s: float, copied_s: float) -> None:
        record, epoch, steps = self.record, position["epochs"], position["steps"]
        path = state_path(record.folder, epoch, steps)
        with saving(path, record) as temporary:
            np.savez(temporary, position=np.array(json.dumps(position)), **copies)
        for older in states_in(record.folder):
            if older != path:
                older.unlink(missing_ok=True)
        record.event(
            "checkpoint",
            epoch=epoch,
            steps=steps,
            path=str(path.relative_to(record.folder)),
            held_up_s=copied_s - began_s,
            written_s=time.perf_counter() - copied_s,
        )


class Continuation(_Callback):
    """Continues an epoch from a state: Keras counts its first steps, which are not trained again."""

    def __init__(self, training: Training, model: keras.Model, path: Path) -> None:
        """Read the state, set the variables of the whole model, and make the first steps of `model` read no batch.

        Raises `WorldError` if the state is damaged, or of another model.
        """
        super().__init__(training)
        variables = _variables(self.whole)
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
                position = json.loads(str(file["position"]))
                self.epochs, steps, self.digest = (position[key] for key in ("epochs", "steps", "digest"))
                values, self.metrics = (
                    [file[f"{kind}{place}"] for place in range(sum(name.startswith(kind) for name in file.files))]
                    for kind in ("variable", "metric")
                )
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, EOFError) as error:
            raise _unusable(path, f"a file that can't be read: {type(error).__name__}: {headline(error)}") from error
        if [tuple(variable.shape) for variable in variables] != [array.shape for array in values]:
            raise _unusable(path, f"{counted(len(values), 'variable')} of another model")
        for variable, array in zip(variables, values, strict=True):
            variable.assign(array)
        self.logs = Block()
        self.train.resumed_batches = left = steps
        model.make_train_function()  # returns it on TensorFlow alone
        step: Callable[..., Any] = model.train_function

        def function(*arguments: Any) -> Any:  # (iterator) on TensorFlow, (state, iterator) on JAX
            nonlocal left
            if not left:
                return step(*arguments)
            left -= 1
            return (self.logs, arguments[0]) if len(arguments) > 1 else self.logs

        model.train_function = function

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the metrics and the digest of the first epoch, which Keras has reset."""
        if epoch != self.epochs:
            return
        model = self.model
        for variable, array in zip(model.metrics_variables, self.metrics, strict=True):
            variable.assign(array)
        self.logs = model.get_metrics_result()
        if self.train.digest is not None and self.digest and here().leads:
            self.train.digest.resume(self.digest)


_OF_HOSTS = ("examples", "examples_per_s", "startup_examples")
"""Figures of an epoch that are those of all hosts together."""


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """Keras's early stopping, with the epochs of the resumed run replayed first."""

    def __init__(self, rule: EarlyStoppingRule, done: list[Epoch]) -> None:
        super().__init__(**rule.arguments)
        measured = [(epoch.epoch - 1, epoch.measure(rule.monitor)) for epoch in done]
        self.done = [(epoch, value) for epoch, value in measured if value is not None]

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the state after the completed epochs."""
        super().on_train_begin(logs)
        for epoch, value in self.done:
            self.on_epoch_end(epoch, {self.monitor: value})


def keep(path: Path, record: Record, epoch: int, monitor: str | None, averages: keras.Model | None = None) -> None:
    """Keep the checkpoint of an epoch as the model of a run, or its model with the `averages` of its weights."""
    if averages is None:
        copy(path, record.folder / MODEL, record)
    else:
        with averaged(averages):
            save(averages, record.folder / MODEL, record)
    (value,) = (of.measure(monitor) for of in record.summary.epochs if of.epoch == epoch) if monitor else (None,)
    record.update(kept=Kept(epoch=epoch, monitor=monitor, value=value), best_epoch=epoch if monitor else None)


def copy(path: Path, target: Path, record: Record) -> None:
    """Copy a file into the folder of `record`."""
    with saving(target, record) as temporary:
        shutil.copyfile(path, temporary)


def save(model: keras.Model, path: Path, record: Record) -> None:
    """Save `model`, with the states of its seeds, in the folder of `record`."""
    with saving(path, record) as temporary:
        model.save(temporary)
        add_seeds(model, temporary)


class EpochRecorder(_Callback):
    """Measures each epoch, records it, and shows the progress of the training.

    An epoch's `wall_s` is the time of its training steps; `validation_s` that of its validations. Keras passes the
    logs of a step to a callback only when they are computed, so that the step is complete when a method is called. It
    hands all callbacks the same logs of an epoch, to which this one, the first, adds the measures of named sets.
    """

    def __init__(self, training: Training, phase: int | None) -> None:
        super().__init__(training)
        self.phase, self.steps = phase, self.trainer.steps_per_epoch or self.work.train.batches
        self.loops, self.validation_s = dict[str, Loop](), 0.0
        self.sets, self.tested = dict[str, Watched](), "validation"
        self.heard: keras.callbacks.CallbackList | None = None
        self.name = self.line = ""
        targets = given_to_model(self.work.plan.train).targets
        names = [f"{target}_{name}" for target in targets for name in (*self.trainer.metrics, "loss") if targets[1:]]
        self.order = [*MEASURES, *names, *(f"val_{name}" for name in names)]
        monitor = self.trainer.early_stopping.monitor.rpartition(".")[2].removeprefix("val_")
        self.metrics = [of for of in (monitor, *self.trainer.metrics, *names) if not of.endswith("loss")]

    def measures(self, sets: dict[str, Watched], heard: keras.callbacks.CallbackList) -> None:
        """Measure these named validation sets after each epoch, of which all callbacks hear as of the validation."""
        self.sets, self.heard = sets, heard

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock of the epoch."""
        super().on_epoch_begin(epoch)
        self.record.event("epoch_began", epoch=epoch + 1)
        self.loops = {}
        self.train.meter.begin()
        self.name = f"epoch {epoch + 1}/{self.trainer.all_epochs}"
        self._show(self.name, self.steps, self.train, (self._left + 1) * self.validation_s)

    def _place(self, name: str) -> int:
        """Return the place of a measure in its order, behind which others stay."""
        return [*self.order, name].index(name)

    @property
    def _left(self) -> int:
        return self.trainer.all_epochs - self.epoch - 1

    def _show(self, what: str, steps: int, watch: Watch, others_s: float) -> None:
        doing(Steps(what, steps, watch, epochs_left=self._left, others_s=others_s))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record the end of a step."""
        raise_if_interrupted()
        if batch >= self.train.resumed_batches:
            self.train.meter.stepped()

    def on_test_begin(self, logs: Any = None) -> None:
        """Switch from training to validation: Keras has the metrics of the epoch, so its last step is complete."""
        if "train" not in self.loops:
            self._end(self.work.train)
        if (validation := self.work.inputs.get(self.tested)) is not None:
            validation.watch.meter.begin()
            others_s = self._left * self.loops["train"].measured_s
            self._show(f"{self.name} {self.tested}", validation.batches, validation.watch, others_s)

    def _end(self, of: Input) -> Loop:
        loop = self.loops[of.name] = self.work.end(of)
        return loop

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record the end of a step."""
        raise_if_interrupted()
        if (validation := self.work.inputs.get(self.tested)) is not None:
            validation.watch.meter.stepped()

    def on_test_end(self, logs: Any = None) -> None:
        """Stop the clock of the validation."""
        if (validation := self.work.inputs.get(self.tested)) is not None:
            self._end(validation)
            self.validation_s = sum(of.wall_s for name, of in self.loops.items() if name != "train")

    def _measure_sets(self, logs: Block) -> None:
        """Add the measures of the named validation sets to the logs of an epoch."""
        for name, batches in self.sets.items():
            self.tested = name
            found = self.model.evaluate(batches, callbacks=self.heard, verbose=0, return_dict=True)
            logs |= {f"{name}.{measure}": found[measure] for measure in sorted(found, key=self._place)}
        self.tested = "validation"

    def on_epoch_end(self, epoch: int, logs: Block | None = None) -> None:
        """Measure the named validation sets, and record the epoch."""
        loop = self.loops.get("train") or self._end(self.work.train)
        self._measure_sets({} if logs is None else logs)
        validations = [of for name, of in self.loops.items() if name != "train"]
        names = sorted(logs or {}, key=self._place)
        found = {name: float((logs or {})[name]) for name in names}
        described = loop.described()
        described |= {key: here().count * described[key] for key in _OF_HOSTS}
        more: Block = {} if self.phase is None else {"phase": self.phase}
        if self.work.plan.spec.model.learns:
            more["learning_rate"] = _learning_rate(self.model)
        for of in self.work.inputs.values():
            if (digest := of.watch.digest) is not None:
                taken = joint(digest.taken(of.watch.meter.ahead))
                key = {"train": "digest", "validation": "validation_digest"}.get(of.name)
                more |= {key: taken} if key else {"set_digests": {**more.get("set_digests", {}), of.name: taken}}
        metrics = {key: value for key, value in found.items() if key not in MEASURES}
        more |= {key: value for key, value in found.items() if key in MEASURES}
        more |= {"metrics": metrics} if metrics else {}
        record_epoch(
            self.work.record,
            Epoch(
                epoch=epoch + 1,
                au=self.work.au,
                resumed_steps=self.train.resumed_batches,
                validation_s=sum((of.wall_s for of in validations), 0.0),
                validation_startup_s=sum((of.startup_s for of in validations), 0.0),
                validation_wait_s=sum((of.waited_s for of in validations), 0.0),
                **described,
                **more,
            ),
        )
        rate = f"{described['examples_per_s']:6.1f} examples/s"
        head = f"{self.name}  {loop.wall_s:5.1f} s  {rate}  input wait {loop.waited_s:4.1f} s"
        self.line = "  ".join([head, *(f"{key} {found[key]:.4f}" for key in self._shown(found))])
        self.train.resumed_batches = 0

    def _shown(self, found: Collection[str]) -> Iterator[str]:
        """Yield the measures of an epoch's line: the losses and one metric; of named sets the metric, or the loss."""
        metric = next((of for of in self.metrics if of in found), "loss")
        shown = {"loss", metric, "val_loss", f"val_{metric}", *(f"{name}.{metric}" for name in self.sets)}
        yield from (name for name in found if name in shown)


def _learning_rate(model: keras.Model) -> float:
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


class Profiler(_Callback):
    """Records TensorBoard profiles of windows of training steps; other steps are not profiled."""

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.step, self.end = sum(epoch.steps for epoch in self.record.summary.epochs), 0
        self.start, self.stop = tf.profiler.experimental.start, tf.profiler.experimental.stop
        if keras.backend.backend() == "jax":
            from jax import profiler

            self.start, self.stop = profiler.start_trace, profiler.stop_trace

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start a profile at the start of a window, or within a window if a resumed run starts there."""
        inside = [end for first, end in self.work.plan.spec.profile.windows if first <= self.step < end]
        if inside and not self.end:
            self.end = inside[0]
            self.start(f"{self.record.folder}/profile/steps_{self.step:06}_{self.end:06}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop the profile at the end of the window."""
        self.step += 1
        if self.step == self.end:
            self.on_train_end()

    def on_train_end(self, logs: Any = None) -> None:
        """Stop the profile when the training ends within a window."""
        if self.end:
            self.stop()
            self.end = 0


_LOOK_AT_DATA = (
    "no step had changed the weights before: look at inputs and targets with `etlrun show`, and at model.weights"
)


class FiniteLoss(_Callback):
    """Ends the training at its first loss that is no finite number, or notes it with `trainer.on_nan=warn`.

    Keras hands a callback the mean loss over the steps of the epoch so far, which one such loss makes infinite or no
    number. After each epoch, before its checkpoint, the weights are looked at: those of the last step have no loss yet.
    """

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.last, self.is_noted = dict[str, float](), False
        self.has_trained = bool(self.record.summary.epochs)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Look at the loss of the training."""
        self._look("training", batch + 1, logs)
        self.has_trained = True

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Look at the loss of the validation."""
        self._look("validation", batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Look at the weights."""
        wrong = [of.path for of in self.whole.variables if not np.isfinite(keras.ops.convert_to_numpy(of)).all()]
        if wrong:
            found = f"weights that are not finite in {len(wrong)} of {len(self.whole.variables)} variables: {wrong[0]}"
            self._found("at its end", found, FINITE_WEIGHTS)

    def _look(self, of: str, step: int, logs: Mapping[str, Any] | None) -> None:
        loss = (logs or {}).get("loss", 0.0)  # an emulated model has none
        if math.isfinite(loss):
            self.last[of] = loss
        else:
            before = f", after a mean of {self.last[of]:.4g}" if of in self.last else ""
            self._found(f"{of} step {step}", f"a loss of {loss:g}{before}", FINITE_LOSS)

    def _found(self, where: str, found: str, expected: str) -> None:
        """Raise `EtlrunError`, or note the first finding."""
        key, where = Trainer.key("on_nan"), f"epoch {self.epoch + 1}, {where}"
        if self.trainer.on_nan == "fail":
            remedy = f"{self._remedy()}; {key}=warn trains on with a note"
            raise EtlrunError([Fault(where, found, expected, remedy)])
        if self.is_noted:
            return
        self.is_noted = True
        text = f"The training has diverged: {found}, in {where} ({key}=warn)."
        say_note(text)
        self.record.remark(text)

    def _remedy(self) -> str:
        if not self.has_trained:
            return _LOOK_AT_DATA
        took = f"{self.trainer.optimizer} took a learning rate of {_learning_rate(self.model):g}"
        limit = "" if self.trainer.global_clipnorm else f", or {Trainer.key('global_clipnorm')}=1"
        of_precision = f", or {Trainer.key('mixed_precision')}=null" if self.trainer.mixed_precision else ""
        return f"{took}; set a smaller {Trainer.key('learning_rate')}{limit}{of_precision}"
