"""Training with Keras's `Model.fit` and its callbacks."""

from __future__ import annotations

import math
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from etlrun.measure.assessment import Assessment, Work
from etlrun.measure.watched import Watched
from etlrun.planning.plan import Plan, kept_by, monitor_of, reads_features, windows_past
from etlrun.record.record import MODEL, Record
from etlrun.record.summary import Findings, Kept, TrainedPhase, read_summary
from etlrun.run import loops
from etlrun.run import model as models
from etlrun.run.backend import note_of_shapes, peak_gpu_bytes
from etlrun.run.callbacks import Checkpoint, EarlyStopping, EpochRecorder, FiniteLoss, Profiler, copy, keep, save
from etlrun.run.checkpoint import CHECKPOINTS, PreviousRun, best_epoch, checkpoint_path, note_of_completed, note_of_last
from etlrun.run.custom_objects import own_callbacks
from etlrun.run.devices import distributed, shared_equally
from etlrun.run.keepers import readings_of
from etlrun.run.loops import ready_steps
from etlrun.run.model import finish, whole_model
from etlrun.run.session import at_work, batches_of, opened, prepared, require_same, without_cache
from etlrun.run.state import Continuation, StepCheckpoint
from etlrun.stages.model import unfreeze
from etlrun.stages.trainer import PlannedPhase, Trainer
from etlrun.system.errors import ConfigError
from etlrun.system.progress import doing


def train(plan: Plan, record: Record, previous: PreviousRun | None) -> None:
    """Train according to `plan`, or resume from `previous`, and save `model.keras` in the run's folder.

    Raises:
        ConfigError: Profile windows extend beyond the run.
        WorldError: Data or weights are missing or corrupt, or there are too few examples.
        EtlrunError: Another host has another plan or other data.
    """
    source, trainer = opened(plan), plan.spec.fit
    assert trainer is not None  # noqa: S101 - for mypy
    require_same(plan, readings_of(plan, source))
    doing("build the model")
    with distributed(trainer, plan.spec.load):
        whole, unfrozen = whole_model(plan, source, previous), plan.unfrozen
        if unfrozen is not None and previous is not None and len(previous.epochs) >= trainer.frozen_phases[-1].end:
            plan, unfrozen = unfrozen, None
        backbone = models.backbone(whole) if reads_features(plan) else None
        work = prepared(plan, record, source, backbone, previous)
        with at_work(work):
            _train(whole, work, previous, unfrozen)


def _train(whole: keras.Model, work: Work, previous: PreviousRun | None, unfrozen: Plan | None) -> None:
    """Train the phases that `work` serves, and then those of the plan `unfrozen`; save the model, and measure it."""
    record, spec, trainer = work.record, work.plan.spec, work.trainer
    windows = spec.profile.windows
    steps = batches_of(work.train) * trainer.all_epochs
    if trainer.steps_per_epoch is None and (faults := [*windows_past(windows, steps)]):
        raise ConfigError(faults)
    record.update(parameters=int(whole.count_params()))
    if previous is not None:
        _carry_over(record, previous, trainer, kept_by(spec))
    with Assessment(work, peak_gpu_bytes) as assessment:
        model = _fit_phases(whole, assessment, previous.state if previous else None)
        if unfrozen is not None:
            assessment.go_on_with(work := without_cache(work, unfrozen))
            number = len(trainer.frozen_phases) + 1
            record.remark(f"The verdict and the stages are those from phase {number} on, which reads images.")
            with at_work(work):
                model = _fit_phases(whole, assessment)
    doing("save the model")
    _save_model(whole, work)
    shapes = work.watches["train"].shapes
    if keras.backend.backend() == "jax" and model.jit_compile and spec.model.learns and len(shapes) > 1:
        record.remark(note_of_shapes(shapes))
    doing("measure the model and the pipeline alone")
    assessment.conclude(ready_steps(model, work, assessment))


def _fit_phases(whole: keras.Model, assessment: Assessment, state: Path | None = None) -> keras.Model:
    """Train the phases that are left, the first one from `state`; return the last model, `whole` or its dense layer."""
    work, trainer = assessment.work, assessment.work.trainer
    done, from_features = len(work.record.summary.epochs), reads_features(work.plan)
    classes, skipped, model = work.train.context.source.names_of_classes, done, None
    for phase in trainer.frozen_phases if from_features else trainer.planned_phases:
        if phase.end > done:
            _begin(whole, work, phase)
            model = models.head(whole, trainer, classes) if from_features else whole
            _fit(model, whole, phase, assessment, state, skipped=skipped)
            state, skipped = None, 0
    if model is None:
        finish(whole)
        model = models.head(whole, trainer, classes) if from_features else whole
    return model


def _begin(whole: keras.Model, work: Work, phase: PlannedPhase) -> None:
    """Begin a phase, or go on with it: compile the model anew, unless it comes from a checkpoint of the phase."""
    if phase.number > 1 and len(work.record.summary.epochs) == phase.done:
        finish(whole)
        if phase.unfreeze is not None:
            unfreeze(whole.layers[-2], work.plan.spec.model.last_layers(phase.unfreeze))
        models.compile_phase(whole, work.plan, work.train.context.source, work.trainer.in_phase(phase))
        for watch in work.watches.values():
            watch.meter.times_compiled += 1
    if work.trainer.phases is not None:
        begun = TrainedPhase(
            phase=phase.number,
            first_epoch=phase.done + 1,
            last_epoch=phase.end,
            unfreeze=None if phase.unfreeze is None else str(phase.unfreeze),
            learning_rate=phase.learning_rate or 0.0,
            trainable_parameters=sum(math.prod(of.shape) for of in whole.trainable_variables),
        )
        work.record.event("phase_began", **begun.written)
        work.record.update(phases=[*work.record.summary.phases[: phase.number - 1], begun])


def _fit(
    model: keras.Model,
    whole: keras.Model,
    phase: PlannedPhase,
    assessment: Assessment,
    state: Path | None,
    *,
    skipped: int,
) -> None:
    """Train `model` in one phase, from `state` on; `skipped` epochs are new to its pipeline."""
    work, trainer, stage = assessment.work, assessment.work.trainer, assessment.work.plan.spec.model
    validation = work.pipelines.get("validation")
    loops.read_from_python(model, stage, *[pipeline.dataset.element_spec for pipeline in work.pipelines.values()])
    callbacks = _callbacks(whole, assessment, phase)
    loops.build_loops(model, stage, work.plan.spec.load.batch_size, work.train.dataset.element_spec[1])
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):  # which may have ended the resumed run
            callback.set_model(model)
            callback.on_train_begin()
            if model.stop_training:
                finish(model)
                return
    if state is not None:
        continuation = Continuation(state, whole, work.watches["train"])
        continuation.pass_over(model)
        callbacks.insert(0, continuation)
    for watch in work.watches.values():
        watch.meter.compiles_each = model.jit_compile and stage.learns
    validated = Watched(shared_equally(validation.dataset), work.watches["validation"]) if validation else None
    with loops.without_end_warnings():
        model.fit(
            Watched(_batches(work, skipped), work.watches["train"]),
            initial_epoch=len(work.record.summary.epochs),
            epochs=phase.end,
            steps_per_epoch=trainer.steps_per_epoch,
            validation_data=validated,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


def _callbacks(whole: keras.Model, assessment: Assessment, phase: PlannedPhase) -> list[keras.callbacks.Callback]:
    work, trainer, record = assessment.work, assessment.work.trainer, assessment.work.record
    windows, done, learns = work.plan.spec.profile.windows, record.summary.epochs, work.plan.spec.model.learns
    recorder = EpochRecorder(assessment, phase.number if trainer.phases is not None else None)
    callbacks = [recorder, FiniteLoss(record, whole, trainer)]  # it is first, so that no other one counts as step time
    if trainer.ema_momentum is not None and learns:
        callbacks.append(keras.callbacks.SwapEMAWeights())
    if trainer.early_stopping.patience is not None and learns:
        callbacks.append(EarlyStopping(trainer.early_stopping, done))
    callbacks += own_callbacks(trainer)
    if windows:
        callbacks.append(Profiler(windows, str(record.folder / "profile"), sum(epoch.steps for epoch in done)))
    if trainer.checkpoint_every_steps is not None:
        callbacks.append(StepCheckpoint(record, whole, work.watches["train"], trainer.checkpoint_every_steps))
    return [*callbacks, Checkpoint(recorder, whole, kept_by(work.plan.spec))]


def _batches(work: Work, done: int) -> tf.data.Dataset:
    """Return the dataset for `fit` after `done` epochs: one pass per epoch, or endless if epochs count steps."""
    pipeline, watch, per_epoch = work.train, work.watches["train"], work.trainer.steps_per_epoch
    steps = watch.resumed_batches
    if per_epoch is not None:
        watch.pass_batches, watch.passed = batches_of(pipeline), done * per_epoch + steps
        done, steps = divmod(watch.passed, watch.pass_batches)
    pipeline.skip_passes(done)
    pipeline.skip_batches(steps)
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
            changed = f"{trainer.key('callbacks')} have changed the weights after the last epoch, which {MODEL} is"
            record.remark(f"{changed} without: trainer.keep=last keeps them.")
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
        record.remark(f"{trainer.key('callbacks')} begin anew, since Keras keeps no state of callbacks: {names}.")
    if (before := read_summary(previous.folder)) is not None:
        record.update(**{key: value for key, value in before.written.items() if key in Findings.model_fields})
        record.update(**({"phases": before.phases} if before.phases else {}))
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
    return models.loaded(path, "the complete checkpoint of an epoch", f"set {Trainer.key('keep')}=last")
