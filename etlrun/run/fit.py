"""Training with Keras's `Model.fit` and its callbacks, whose loops read from any Python iterator."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from etlrun.cluster.hosts import here, require_same
from etlrun.measure.assessment import Work
from etlrun.measure.meter import Loop
from etlrun.measure.watched import Watch, Watched, WatchedPass
from etlrun.planning.plan import Plan, kept_by, monitor_of, windows_past
from etlrun.record.record import MODEL, Record
from etlrun.record.summary import Findings, Kept, TrainedPhase, read_summary
from etlrun.run import devices
from etlrun.run.baseline import FILE, BaselineFit
from etlrun.run.callbacks import (
    Checkpoint,
    Continuation,
    EarlyStopping,
    EpochRecorder,
    FiniteLoss,
    Profiler,
    Training,
    copy,
    keep,
    save,
)
from etlrun.run.checkpoint import CHECKPOINTS, PreviousRun, best_epoch, checkpoint_path, note_of_completed, note_of_last
from etlrun.run.custom_objects import own_callbacks
from etlrun.run.devices import distributed, shared_equally
from etlrun.run.model import backbone, finish, loaded, training_data, whole_model
from etlrun.run.readings import readings_of
from etlrun.run.session import at_work, go_on_without_cache, opened, prepared
from etlrun.stages.keras_models import compile_model, head
from etlrun.stages.model import Emulated, ImageModel, unfreeze
from etlrun.stages.trainer import PlannedPhase, Trainer
from etlrun.system.errors import refuse
from etlrun.system.terminal import doing


def read_from_python(model: keras.Model, stage: ImageModel | Emulated, train: Any, validation: Any = None) -> None:
    """Make the loops of `model` read from any Python iterator, so that the input wait can be measured.

    On JAX Keras's own loops do. On TensorFlow they would trace the model for each batch shape; here a step is traced
    once, for the element specs `train` and `validation`. An emulated step is a sleep.
    """
    if isinstance(stage, Emulated):
        model.train_function = _slept(stage.step_ms / 1000)
        model.test_function = _slept(stage.eval_step_ms / 1000)
    elif keras.backend.backend() == "tensorflow":
        for variable in model.variables:
            variable.value._trainable = variable.trainable  # noqa: SLF001 - TensorFlow has no other way
        later = None if validation is None else _function(model, model.test_step, validation)
        model.train_function = _traced(_function(model, model.train_step, train), later)
        if later is not None:
            model.test_function = _traced(later)


def _slept(seconds: float) -> Callable[..., Any]:
    """Return a step function that sleeps: of (iterator) on TensorFlow, of (state, iterator) on JAX."""

    def function(*arguments: Any) -> Any:
        next(arguments[-1])
        time.sleep(seconds)
        return ({}, arguments[0]) if len(arguments) > 1 else {}

    return function


def _function(model: keras.Model, step: Callable[[Any], Any], spec: Any) -> Any:
    on_devices = devices.shared(model, step)
    counted, compiled = _counted(model, on_devices or step), on_devices is None and model.jit_compile
    return tf.function(counted, input_signature=[spec], jit_compile=compiled, autograph=False)


def _traced(on_batch: Any, later: Any = None) -> Callable[[Any], Any]:
    """Return the step function of `on_batch`, traced while the first batch is read, and `later` in its first step."""
    is_traced = False

    def function(batches: Any) -> Any:
        nonlocal is_traced
        if not is_traced and isinstance(batches, WatchedPass):
            batches.begin(meanwhile=on_batch.get_concrete_function)
        batch, was_traced, is_traced = next(batches), is_traced, True
        if not was_traced and later is not None and devices.shares() == 1:
            tracer = ThreadPoolExecutor(1, thread_name_prefix="etlrun-trace")  # TensorFlow optimizes without Python
            tracer.submit(later.get_concrete_function)  # an error of which is raised where it is called
            tracer.shutdown(wait=False)
        return on_batch(batch)

    return function


def _counted(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `step`, after which the loss of each of several targets is a mean over examples: Keras's is of batches."""

    def function(batch: Any) -> Any:
        outputs = getattr(model, "output", None)  # which a `Sequential` has after its first call alone
        names = {f"{name}_loss" for name in outputs} if isinstance(outputs, dict) else set()
        losses = [metric for metric in model.metrics if metric.name in names]
        before = [(tf.identity(of.total.value), tf.identity(of.count.value)) for of in losses]
        for of in losses:
            of.reset_state()
        found = step(batch)
        examples = tf.cast(tf.shape(tf.nest.flatten(batch)[0])[0], tf.float32)
        for of, (total, count) in zip(losses, before, strict=True):
            of.total.assign(total + of.result() * examples)
            of.count.assign(count + examples)
        return model.get_metrics_result() if losses else found

    return function


def build_loops(model: keras.Model, stage: ImageModel | Emulated, batch_size: int, targets: Any = None) -> None:
    """Create the metrics, the loss and the optimizer variables that Keras would create in the first step.

    `targets` are the specs of the targets, several by name. On TensorFlow a function that creates variables is traced
    twice; on JAX `fit` would consume a batch for it.
    """
    if not stage.learns:
        return
    is_jax = keras.backend.backend() == "jax"

    def blank(of: Any) -> Any:
        """Return zeros of a spec; of sequences one item."""
        dtype = getattr(of.dtype, "as_numpy_dtype", of.dtype)
        return np.zeros((batch_size if is_jax else 1, *(side or 1 for side in of.shape[1:])), dtype)

    is_class = targets is None or (not isinstance(targets, dict) and len(targets.shape) == 1)
    labels = keras.tree.map_structure(blank, tf.TensorSpec([None], tf.int64) if is_class else targets)
    if is_jax:
        model.test_on_batch(keras.tree.map_structure(blank, model.input), labels)
    else:
        several = isinstance(targets, dict)
        shapes = {name: of.shape for name, of in model.output.items()} if several else model.output_shape
        found = keras.tree.map_shape_structure(lambda shape: keras.ops.ones((1, *shape[1:])), shapes)
        with devices.scope():
            model.compute_loss(y=labels, y_pred=found)
            model.compute_metrics(None, labels, found)
            if not model.optimizer.built:  # a second time would add a new loss scale to that of a checkpoint
                model.optimizer.build(model.trainable_variables)
    model.reset_metrics()


_FLOOR_STEPS, _FEWEST_FLOOR_STEPS = 20, 2
_FEWEST_KINDS = 3
"""Kinds of steps that are timed, also if they take longer than a probe."""


@contextmanager
def without_end_warnings() -> Iterator[None]:
    """Suppress Keras's warning at the end of every dataset of unknown length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data", category=UserWarning)
        yield


def ready_steps(model: keras.Model, work: Work) -> list[Loop]:
    """Time steps on batches that are ready: a loop for each kind, on one batch again and again.

    The kinds that took most of the training come first, until the time of a probe is up. The model has been saved, so
    these updates are discarded.
    """
    watch, found, probe_s = work.train.watch, list[Loop](), work.probe_s()
    shares = {} if here().fixed_steps else work.shares()
    batches = sorted(watch.ready.items(), key=lambda of: -shares.get(of[0], 0.0))
    until_s = time.perf_counter() + probe_s
    for shapes, batch in batches if shares else batches[:1]:
        if len(found) >= _FEWEST_KINDS and time.perf_counter() > until_s:
            break
        for variable in model.optimizer.variables if keras.backend.backend() == "jax" else ():
            variable.assign(keras.ops.copy(variable))  # which shares the memory of weights after each `fit`
        found.append(_timed(model, batch, watch.meter.times_compiled, probe_s * shares.get(shapes, 1.0)))
    return found


def _timed(model: keras.Model, batch: Any, times_compiled: int, seconds: float) -> Loop:
    """Time steps on a batch until there are enough, or until the time is up."""
    watch, until_s = Watch(), time.perf_counter() + seconds
    meter = watch.meter
    meter.times_compiled = times_compiled

    def stepped(*_: object, **__: object) -> None:
        meter.stepped()
        steps, is_late = len(meter.loop.steps), time.perf_counter() > until_s
        is_over = steps > _FLOOR_STEPS or (is_late and steps >= _FEWEST_FLOOR_STEPS)
        fixed = here().fixed_steps
        model.stop_training = is_over if fixed is None else steps >= fixed

    ready = Watched(tf.data.Dataset.from_tensors(batch).repeat(), watch)
    meter.begin()
    began_s = time.process_time()
    with without_end_warnings():
        model.fit(
            ready, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stepped)], shuffle=False, verbose=0
        )
    loop = meter.end()
    loop.cores = (time.process_time() - began_s) / loop.wall_s
    return loop


def train(plan: Plan, record: Record, previous: PreviousRun | None) -> None:
    """Train according to `plan`, or resume from `previous`, and save `model.keras` in the run's folder.

    Raises `ConfigError` if profile windows extend beyond the run; `WorldError` if data or weights are missing or
    corrupt, or too few; `EtlrunError` if another host has another plan or other data.
    """
    source, trainer = opened(plan), plan.spec.fit
    assert trainer is not None  # noqa: S101 - for mypy
    readings = readings_of(plan, source)
    require_same(plan, readings)
    doing("build the model")
    with distributed(trainer):
        data = training_data(plan, readings["train"])
        whole, unfrozen = whole_model(plan, data, previous), plan.unfrozen
        if unfrozen is not None and previous is not None and len(previous.epochs) >= trainer.frozen_phases[-1].end:
            plan, unfrozen = unfrozen, None
        base = backbone(whole) if plan.spec.cache.keeps_features else None
        work = prepared(plan, record, source, base, previous)
        with at_work(work):
            _train(Training(whole=whole, work=work, data=data), previous, unfrozen)


def _train(training: Training, previous: PreviousRun | None, unfrozen: Plan | None) -> None:
    """Train the phases that the pipelines serve, and then those of the plan `unfrozen`; save and measure the model."""
    whole, work = training.whole, training.work
    record, spec, trainer = work.record, work.plan.spec, work.trainer
    steps = work.train.batches * trainer.all_epochs
    if trainer.steps_per_epoch is None:
        refuse(windows_past(spec.profile.windows, steps))
    record.update(parameters=int(whole.count_params()))
    if previous is not None:
        _carry_over(record, previous, trainer, kept_by(spec))
    baseline = BaselineFit(training)
    with work.measured():
        model = _fit_phases(training, previous.state if previous else None)
        if unfrozen is not None:
            go_on_without_cache(work, unfrozen)
            number = len(trainer.frozen_phases) + 1
            record.remark(f"The verdict and the stages are those from phase {number} on, which reads images.")
            with at_work(work):
                model = _fit_phases(training)
    doing("save the model")
    _save_model(whole, work)
    baseline.conclude()
    doing("measure the model and the pipeline alone")
    work.conclude(ready_steps(model, work))


def _fit_phases(training: Training, state: Path | None = None) -> keras.Model:
    """Train the phases that are left, the first one from `state`; return the last model, `whole` or its dense layer."""
    whole, work, trainer = training.whole, training.work, training.work.trainer
    done, from_features, model = len(work.record.summary.epochs), work.plan.spec.cache.keeps_features, None
    skipped = done

    def trained() -> keras.Model:
        return head(whole, trainer, training.data.classes) if from_features else whole

    for phase in trainer.frozen_phases if from_features else trainer.planned_phases:
        if phase.end > done:
            _begin(training, phase)
            model = trained()
            _fit(training, model, phase, state, skipped=skipped)
            state, skipped = None, 0
    if model is None:
        finish(whole)
    return trained() if model is None else model


def _begin(training: Training, phase: PlannedPhase) -> None:
    """Begin a phase, or go on with it: compile the model anew, unless it comes from a checkpoint of the phase."""
    whole, work, record = training.whole, training.work, training.work.record
    if phase.number > 1 and len(record.summary.epochs) == phase.done:
        finish(whole)
        if phase.unfreeze is not None:
            unfreeze(whole.layers[-2], work.plan.spec.model.last_layers(phase.unfreeze))
        with devices.scope():
            compile_model(whole, work.plan.spec.model, work.trainer.in_phase(phase), training.data)
        for of in work.inputs.values():
            of.watch.meter.times_compiled += 1
    if work.trainer.phases is not None:
        begun = TrainedPhase(
            phase=phase.number,
            first_epoch=phase.done + 1,
            last_epoch=phase.end,
            unfreeze=None if phase.unfreeze is None else str(phase.unfreeze),
            learning_rate=phase.learning_rate or 0.0,
            trainable_parameters=sum(math.prod(of.shape) for of in whole.trainable_variables),
        )
        record.event("phase_began", **begun.written)
        record.update(phases=[*record.summary.phases[: phase.number - 1], begun])


def _fit(training: Training, model: keras.Model, phase: PlannedPhase, state: Path | None, *, skipped: int) -> None:
    """Train `model` in one phase, from `state` on; `skipped` epochs are new to its pipeline."""
    work, stage, datasets = training.work, training.work.plan.spec.model, dict[str, Any]()
    for name, of in work.inputs.items():
        datasets[name] = of.pipeline.dataset
    specs = [dataset.element_spec for dataset in datasets.values()]
    read_from_python(model, stage, *specs[:2])  # those of all validations are the same
    callbacks = _callbacks(training, phase)
    build_loops(model, stage, work.plan.spec.load.batch_size, specs[0][1])
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):  # which may have ended the resumed run
            callback.set_model(model)
            callback.on_train_begin()
            if model.stop_training:
                finish(model)
                return
    if state is not None:
        callbacks.insert(0, Continuation(training, model, state))
    shared = {name: shared_equally(dataset) for name, dataset in datasets.items() if name != "train"}
    datasets = {"train": _batches(work, skipped), **shared}
    for of in work.inputs.values():
        of.watch.meter.compiles_each = model.jit_compile and stage.learns
    watched = {name: Watched(dataset, work.inputs[name].watch) for name, dataset in datasets.items()}
    train, validation = watched.pop("train"), watched.pop("validation", None)
    steps, heard = work.trainer.steps_per_epoch, callbacks
    if watched:
        heard = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, verbose=0, epochs=phase.end, steps=steps
        )
        next(of for of in callbacks if isinstance(of, EpochRecorder)).measures(watched, heard)
    with without_end_warnings():
        model.fit(
            train,
            initial_epoch=len(work.record.summary.epochs),
            epochs=phase.end,
            steps_per_epoch=steps,
            validation_data=validation,
            callbacks=heard,
            shuffle=False,
            verbose=0,
        )


def _callbacks(training: Training, phase: PlannedPhase) -> list[keras.callbacks.Callback]:
    work, trainer, spec = training.work, training.work.trainer, training.work.plan.spec
    recorder = EpochRecorder(training, phase.number if trainer.phases is not None else None)
    callbacks = [recorder, FiniteLoss(training)]  # it is first, so that no other one counts as step time
    if trainer.ema_momentum is not None and spec.model.learns:
        callbacks.append(keras.callbacks.SwapEMAWeights())
    if trainer.early_stopping.patience is not None and spec.model.learns:
        callbacks.append(EarlyStopping(trainer.early_stopping, work.record.summary.epochs))
    callbacks += own_callbacks(trainer)
    if spec.profile.windows:
        callbacks.append(Profiler(training))
    return [*callbacks, Checkpoint(training, recorder)]


def _batches(work: Work, done: int) -> tf.data.Dataset:
    """Return the dataset for `fit` after `done` epochs: one pass per epoch, or endless if epochs count steps."""
    pipeline, watch, per_epoch = work.train.pipeline, work.train.watch, work.trainer.steps_per_epoch
    steps = watch.resumed_batches
    if per_epoch is not None:
        watch.pass_batches, watch.passed = work.train.batches, done * per_epoch + steps
        done, steps = divmod(watch.passed, watch.pass_batches)
    pipeline.skip(done, steps)
    return pipeline.dataset if per_epoch is None else pipeline.endless()


def _save_model(whole: keras.Model, work: Work) -> None:
    """Save the last model, unless the best is kept: a copy of its checkpoint if nothing may have changed it since."""
    record, trainer = work.record, work.trainer
    epochs, kept = record.summary.epochs, record.summary.kept
    last = checkpoint_path(record.folder, len(epochs))
    best = kept.epoch if kept is not None and kept.monitor is not None else None
    if best and trainer.callbacks:
        before = _checkpoint(last)
        finish(before)
        if not all(map(np.array_equal, whole.get_weights(), before.get_weights())):  # as an averaging one does
            changed = f"{trainer.key('callbacks')} have changed the weights after the last epoch"
            record.remark(f"{changed}; {MODEL} does not have that: trainer.keep=last keeps it.")
    if note := note_of_last(epochs, monitor_of(work.plan.spec), best):
        record.remark(note)
    if best:
        return
    if trainer.ema_momentum is None and not trainer.callbacks and last.exists():
        copy(last, record.folder / MODEL, record)
    else:
        save(whole, record.folder / MODEL, record)
    if work.plan.spec.model.learns:
        record.update(kept=Kept(epoch=len(epochs)))


def _carry_over(record: Record, previous: PreviousRun, trainer: Trainer, monitor: str | None) -> None:
    """Copy the completed epochs, their best model, and then their checkpoint, with which a folder can be resumed."""
    if note := note_of_completed(previous, trainer):
        record.remark(note)
    if trainer.callbacks:
        names = ", ".join(trainer.callbacks)
        record.remark(f"{trainer.key('callbacks')} start anew, since Keras doesn't save their state: {names}.")
    if (before := read_summary(previous.folder)) is not None:
        known = {key: value for key, value in before.written.items() if key in Findings.model_fields}
        others = {name: of for name in ("phases", "baseline") if (of := getattr(before, name))}
        record.update(**known, **others)
        if (previous.folder / FILE).exists():
            copy(previous.folder / FILE, record.folder / FILE, record)
    for epoch in previous.epochs:
        record.epoch(epoch)
    best = best_epoch([of for of in previous.epochs if of.epoch in previous.kept], monitor)
    if best is not None:
        if best != (of_all := best_epoch(previous.epochs, monitor)):
            gone = f"The model of epoch {of_all}, the best by {monitor}, is not in {previous.folder}"
            record.remark(f"{gone}: it can't be kept.")
        path = previous.kept[best]
        # A checkpoint has no averages of its weights yet.
        averages = _checkpoint(path) if trainer.ema_momentum and path.name != MODEL else None
        keep(path, record, best, monitor, averages)
    for path in filter(None, (previous.checkpoint, previous.state)):
        copy(path, record.folder / CHECKPOINTS / path.name, record)


def _checkpoint(path: Path) -> keras.Model:
    return loaded(path, "the complete checkpoint of an epoch", f"set {Trainer.key('keep')}=last")
