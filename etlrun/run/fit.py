"""Training with Keras's `Model.fit` and its callbacks.

plan --pipelines--> batches --Model.fit--> epochs --Assessment--> events.jsonl, summary.json
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from etlrun.measure.assessment import Assessment, Work
from etlrun.measure.watched import Watched
from etlrun.planning.plan import Plan, reads_features
from etlrun.planning.training import kept_by, monitor_of, windows_past
from etlrun.record.findings import Findings
from etlrun.record.record import MODEL, Record
from etlrun.record.summary import Epoch, Kept, read_summary
from etlrun.run import loops
from etlrun.run import model as models
from etlrun.run.backend import peak_gpu_bytes
from etlrun.run.callbacks import Checkpoint, EarlyStopping, EpochRecorder, Profiler, copy, keep, save
from etlrun.run.checkpoint import CHECKPOINTS, PreviousRun, best_epoch, checkpoint_path, note_of_completed, note_of_last
from etlrun.run.compilation import note_of_shapes
from etlrun.run.devices import distributed, shared_equally
from etlrun.run.divergence import FiniteLoss
from etlrun.run.floor import ready_steps, without_end_warnings
from etlrun.run.hosts.same import require_same
from etlrun.run.keepers import readings_of
from etlrun.run.model import finish
from etlrun.run.own import own_callbacks
from etlrun.run.phases import begin, plans_left
from etlrun.run.session import at_work, batches_in_pass, opened, prepared, without_cache
from etlrun.run.state import State
from etlrun.run.steps import Continuation, StepCheckpoint
from etlrun.run.whole import whole_model
from etlrun.sources.base import Source
from etlrun.stages.phases import PlannedPhase
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError
from etlrun.system.progress import doing


def train(plan: Plan, record: Record, previous: PreviousRun | None, trainer: Trainer) -> None:
    """Train according to `plan`, or resume from `previous`, and save `model.keras` in the run's folder.

    Raises:
        ConfigError: Profile windows extend beyond the run.
        WorldError: Data or weights are missing or corrupt, or there are too few examples.
        EtlrunError: Another host has another plan or other data.
    """
    source = opened(plan)
    require_same(plan, readings_of(plan, source))
    doing("build the model")
    with distributed(trainer, plan.spec.load):
        _train(plan, record, source, previous, trainer)


def _train(plan: Plan, record: Record, source: Source, previous: PreviousRun | None, trainer: Trainer) -> None:
    whole = whole_model(plan, source, previous, trainer)
    first, *others = plans_left(plan, trainer, len(previous.epochs) if previous else 0)
    backbone = models.backbone(whole) if reads_features(first) else None
    work = prepared(first, record, source, backbone=backbone, previous=previous)
    with at_work(work):
        _profile_fits(work, trainer)
        record.update(parameters=int(whole.count_params()))
        if previous is not None:
            _carry_over(record, previous, trainer, kept_by(plan.spec))
        state = State.load(previous.state) if previous and previous.state else None
        assessment = Assessment(work, peak_gpu_bytes)
        with assessment:
            model = _fit_phases(whole, work, trainer, assessment, state)
            for other in others:
                work = without_cache(work, other)
                assessment.go_on_with(work)
                number = len(trainer.frozen_phases) + 1
                record.remark(f"The verdict and the stages are those from phase {number} on, which reads images.")
                with at_work(work):
                    model = _fit_phases(whole, work, trainer, assessment)
        doing("save the model")
        _save_model(whole, record, trainer, monitor_of(plan.spec), learns=plan.spec.model.learns)
        if keras.backend.backend() == "jax" and model.jit_compile and plan.spec.model.learns:
            for note in filter(None, (note_of_shapes(work.watches["train"].shapes),)):
                record.remark(note)
        doing("measure the model and the pipeline alone")
        assessment.conclude(ready_steps(model, work, assessment))


def _save_model(whole: keras.Model, record: Record, trainer: Trainer, monitor: str | None, *, learns: bool) -> None:
    """Save the last model, unless the best is kept: a copy of its checkpoint if nothing may have changed it since."""
    done, kept = len(record.summary.epochs), record.summary.kept
    last = checkpoint_path(record.folder, done)
    best = kept.epoch if kept is not None and kept.monitor is not None else None
    of_callbacks = _note_of_callbacks(whole, last, trainer) if best else None
    for note in filter(None, (of_callbacks, note_of_last(record.summary.epochs, monitor, best))):
        record.remark(note)
    if best:
        return
    if trainer.ema_momentum is None and not trainer.callbacks and last.exists():
        copy(last, record.folder / MODEL, record)
    else:
        save(whole, record.folder / MODEL, record)
    if learns:
        record.update(kept=Kept(epoch=done))


def _note_of_callbacks(whole: keras.Model, last: Path, trainer: Trainer) -> str | None:
    """Return the note that callbacks have changed the model after its last epoch, as an averaging one does."""
    if not trainer.callbacks:
        return None
    before = _checkpoint(last)
    finish(before)
    if all(map(np.array_equal, whole.get_weights(), before.get_weights())):
        return None
    key = trainer.key("callbacks")
    return (
        f"{key} have changed the weights after the last epoch, which {MODEL} is without: trainer.keep=last keeps them."
    )


def _profile_fits(work: Work, trainer: Trainer) -> None:
    windows = work.plan.spec.profile.windows
    if windows and trainer.steps_per_epoch is None:
        faults = list(windows_past(windows, batches_in_pass(work) * trainer.all_epochs))
        if faults:
            raise ConfigError(faults)


def _fit_phases(
    whole: keras.Model, work: Work, trainer: Trainer, assessment: Assessment, state: State | None = None
) -> keras.Model:
    """Train the phases that are left and that `work` serves, the first one from `state`; return the last model.

    A model is `whole` or, on cached features, its dense layer.
    """
    done, from_features = len(work.record.summary.epochs), reads_features(work.plan)
    classes = work.train.context.source.names_of_classes
    phases = trainer.frozen_phases if from_features else trainer.planned_phases
    left = [phase for phase in phases if phase.end > done]
    if not left:
        finish(whole)
        return models.head(whole, trainer, classes) if from_features else whole
    for phase in left:
        begin(whole, work, phase, trainer)
        model = models.head(whole, trainer, classes) if from_features else whole
        recorder = EpochRecorder(assessment, trainer, phase.number if trainer.phases is not None else None)
        _fit(model, whole, phase, recorder, state, skipped=done if phase is left[0] else 0)
        state = None
    return model


def _fit(
    model: keras.Model,
    whole: keras.Model,
    phase: PlannedPhase,
    recorder: EpochRecorder,
    state: State | None,
    *,
    skipped: int,
) -> None:
    """Train `model` in one phase, from `state` on; `skipped` epochs are new to its pipeline."""
    work, trainer = recorder.assessment.work, recorder.trainer
    validation, done = work.validation, work.record.summary.epochs
    specs = [pipeline.dataset.element_spec for pipeline in (work.train, validation) if pipeline is not None]
    loops.read_from_python(model, work.plan.spec.model, *specs)
    callbacks = _callbacks(work, recorder, done, trainer, whole)
    loops.build_loops(model, work.plan.spec.model, work.plan.spec.load.batch_size, specs[0][1])
    if _has_stopped(model, callbacks):
        finish(model)
        return
    if state is not None:
        continuation = Continuation(state, whole, work.watches["train"])
        continuation.pass_over(model)
        callbacks.insert(0, continuation)
    for watch in work.watches.values():
        watch.meter.compiles_each = model.jit_compile and work.plan.spec.model.learns
    validated = Watched(shared_equally(validation.dataset), work.watches["validation"]) if validation else None
    with without_end_warnings():
        model.fit(
            Watched(_batches(work, skipped, state.steps if state else 0, trainer), work.watches["train"]),
            initial_epoch=len(done),
            epochs=phase.end,
            steps_per_epoch=trainer.steps_per_epoch,
            validation_data=validated,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


def _carry_over(record: Record, previous: PreviousRun, trainer: Trainer, monitor: str | None) -> None:
    """Copy the completed epochs to the new folder, and then their checkpoint, so that it is self-contained."""
    if note := note_of_completed(previous, trainer):
        record.remark(note)
    if trainer.callbacks:
        names = ", ".join(trainer.callbacks)
        record.remark(f"{trainer.key('callbacks')} begin anew, since Keras keeps no state of callbacks: {names}.")
    before = read_summary(previous.folder)
    if before is not None:
        record.update(**{key: value for key, value in before.written.items() if key in Findings.model_fields})
        record.update(**({"phases": before.phases} if before.phases else {}))
    for epoch in previous.epochs:
        record.epoch(epoch)
    _carry_over_best(record, previous, trainer, monitor)  # first: what has a checkpoint can be resumed itself
    for path in (previous.checkpoint, previous.state):
        if path is not None:
            copy(path, record.folder / CHECKPOINTS / path.name, record)


def _carry_over_best(record: Record, previous: PreviousRun, trainer: Trainer, monitor: str | None) -> None:
    """Keep the best model of the completed epochs; a checkpoint has no averages of its weights yet."""
    there = [of for of in previous.epochs if of.epoch in previous.kept]
    if (best := best_epoch(there, monitor)) is None:
        return
    if best != (of_all := best_epoch(previous.epochs, monitor)):
        record.remark(
            f"The model of epoch {of_all}, the best by {monitor}, is not in {previous.folder}: it can't be kept."
        )
    path = previous.kept[best]
    keep(path, record, best, monitor, _checkpoint(path) if trainer.ema_momentum and path.name != MODEL else None)


def _checkpoint(path: Path) -> keras.Model:
    return models.loaded(path, "the complete checkpoint of an epoch", f"set {Trainer.key('keep')}=last")


def _batches(work: Work, done: int, steps: int, trainer: Trainer) -> tf.data.Dataset:
    """Return the dataset for `fit` after `done` epochs and `steps` steps.

    It is one pass per epoch, or endless if epochs count steps.
    """
    pipeline = work.train
    if trainer.steps_per_epoch is None:
        pipeline.skip_passes(done)
        pipeline.skip_batches(steps)
        return pipeline.dataset
    watch = work.watches["train"]
    watch.pass_batches, watch.passed = batches_in_pass(work), done * trainer.steps_per_epoch + steps
    passes, batches = divmod(watch.passed, watch.pass_batches)
    pipeline.skip_passes(passes)
    pipeline.skip_batches(batches)
    return pipeline.endless()


def _callbacks(
    work: Work, recorder: EpochRecorder, done: list[Epoch], trainer: Trainer, whole: keras.Model
) -> list[keras.callbacks.Callback]:
    record, windows = work.record, work.plan.spec.profile.windows
    callbacks: list[keras.callbacks.Callback] = [recorder]  # first, so that no other callback counts as step time
    callbacks.append(FiniteLoss(record, whole, trainer))
    if trainer.ema_momentum is not None and work.plan.spec.model.learns:
        callbacks.append(keras.callbacks.SwapEMAWeights())
    if trainer.early_stopping.patience is not None and work.plan.spec.model.learns:
        callbacks.append(EarlyStopping(trainer.early_stopping, done))
    callbacks += own_callbacks(trainer)
    if windows:
        callbacks.append(Profiler(windows, str(record.folder / "profile"), sum(epoch.steps for epoch in done)))
    if trainer.checkpoint_every_steps is not None:
        callbacks.append(StepCheckpoint(record, whole, work.watches["train"], trainer.checkpoint_every_steps))
    callbacks.append(Checkpoint(record, whole, trainer, kept_by(work.plan.spec)))
    return [*callbacks, keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: recorder.say())]


def _has_stopped(model: keras.Model, callbacks: list[keras.callbacks.Callback]) -> bool:
    """Return whether early stopping had ended the resumed run."""
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            callback.set_model(model)
            callback.on_train_begin()
            return bool(model.stop_training)
    return False
