"""Training with Keras's `Model.fit` and its callbacks.

plan --pipelines--> batches --Model.fit--> epochs --Assessment--> events.jsonl, summary.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from etlrun.graph.context import Backbone
from etlrun.measure.assessment import Assessment
from etlrun.measure.watched import Watched
from etlrun.measure.work import Work
from etlrun.plan.plan import Plan, given_to_model, reads_features
from etlrun.plan.training import past_classes, warmup_past, windows_past
from etlrun.record.findings import Findings
from etlrun.record.record import MODEL, Record
from etlrun.record.summary import Epoch, read_summary
from etlrun.run import model as models
from etlrun.run.backend import peak_gpu_bytes
from etlrun.run.callbacks import Checkpoint, EarlyStopping, EpochRecorder, Profiler, copy, save
from etlrun.run.checkpoint import BEST, CHECKPOINTS, PreviousRun
from etlrun.run.floor import floor, without_end_warnings
from etlrun.run.objective import objective
from etlrun.run.optimizer import finish
from etlrun.run.session import at_work, batches_in_pass, opened, prepared, steps_of_run
from etlrun.run.state import State
from etlrun.run.steps import Continuation, StepCheckpoint
from etlrun.sources.base import Source
from etlrun.sources.labels import counts_of
from etlrun.stages.balance import balanced
from etlrun.stages.model import Emulated, ImageModel
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError


def train(plan: Plan, record: Record, previous: PreviousRun | None, trainer: Trainer) -> None:
    """Train according to `plan`, or resume from `previous`, and save `model.keras` in the run's folder.

    Raises:
        ConfigError: Profile windows extend beyond the run.
        WorldError: Data or weights are missing or corrupt, or there are too few examples.
    """
    source = opened(plan)
    whole = whole_model(plan, source, previous, trainer)
    from_features = reads_features(plan)
    backbone = models.backbone(whole) if from_features else None
    work = prepared(plan, record, source, backbone=backbone, previous=previous)
    with at_work(work):
        _profile_fits(work, trainer)
        record.update(parameters=int(whole.count_params()))
        assessment = Assessment(work, peak_gpu_bytes)
        model = models.head(whole, trainer) if from_features else whole
        _fit(model, whole, work, previous, trainer, assessment)
        save(whole, record.folder / MODEL, record)
        assessment.conclude(floor(model, work, assessment))


def opened_with_base(plan: Plan, trainer: Trainer) -> tuple[Source, Backbone]:
    """Open the dataset, and return it with the frozen base of the model that a run of `plan` would start with."""
    source = opened(plan)
    return source, models.backbone(whole_model(plan, source, None, trainer))


def _profile_fits(work: Work, trainer: Trainer) -> None:
    windows = work.plan.spec.profile.windows
    if windows and trainer.steps_per_epoch is None:
        faults = list(windows_past(windows, batches_in_pass(work) * trainer.epochs))
        if faults:
            raise ConfigError(faults)


def whole_model(plan: Plan, source: Source, previous: PreviousRun | None, trainer: Trainer) -> keras.Model:
    """Return the compiled model from the inputs of the pipeline to the prediction of the target."""
    if previous is not None and previous.checkpoint is not None:
        return _resumed(previous.checkpoint, plan, source)
    stage = plan.spec.model
    if previous is not None and isinstance(stage, ImageModel):
        stage = stage.restored
    steps = _steps_fit(plan, source, trainer)
    model = _built(stage, plan, source)
    loss_and_metrics = objective(
        trainer,
        is_class=source.num_classes is not None,
        class_weights=class_weights(plan, source),
        mixes=plan.spec.load.mixes,
    )
    models.compile_for(model, stage, trainer, loss_and_metrics=loss_and_metrics, steps=steps)
    return model


def _steps_fit(plan: Plan, source: Source, trainer: Trainer) -> int | None:
    """Return the steps of the run if its schedule needs them; raise `ConfigError` where the data don't fit a value."""
    steps = steps_of_run(plan, source, trainer) if trainer.schedule.needs_run else None
    faults = [] if steps is None else [*warmup_past(trainer, steps)]
    faults += [] if source.num_classes is None else [*past_classes(trainer, source.num_classes)]
    if faults:
        raise ConfigError(faults)
    return steps


def _built(stage: ImageModel | Emulated, plan: Plan, source: Source) -> keras.Model:
    scaling = [planned.stage.factors for planned in plan.by_model if planned.stage.factors is not None]
    return models.build(stage, given_to_model(plan.train), scaling, source.num_classes)


def _resumed(checkpoint: Path, plan: Plan, source: Source) -> keras.Model:
    """Return the model of a checkpoint, whose dropout goes on.

    A file has no seeds: they are those of a new model, and each step has drawn from each of them once.
    """
    stage = plan.spec.model
    if not (isinstance(stage, ImageModel) and stage.has_dropout and stage.trainable):
        return _loaded(checkpoint)
    seeds = _seeds(_built(stage.restored, plan, source))
    model = _loaded(checkpoint)
    for state, seed in zip(_seeds(model), seeds, strict=True):
        steps = model.optimizer._iterations  # noqa: SLF001 - the public ones are divided by accumulated steps
        state.assign([int(seed[0]), int(steps)])
    return model


def _seeds(model: keras.Model) -> list[Any]:
    """Return the states of the random numbers of a model: (2,), a seed and the number of draws."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def class_weights(plan: Plan, source: Source) -> list[float] | None:
    """Return the weights of the classes in the loss; None if all are equal."""
    if plan.spec.load.class_weights == "none":
        return None
    dataset = plan.spec.dataset
    split = source.split(dataset.split, dataset.key_of("train"))
    return balanced([*counts_of(source, split, by_number=plan.spec.load.is_by_number).values()])


def _loaded(checkpoint: Path) -> keras.Model:
    expected = "the complete model that a run saves after an epoch"
    remedy = "start a new run without trainer.resume, or resume another folder"
    return models.loaded(checkpoint, expected, remedy)


def _fit(
    model: keras.Model,
    whole: keras.Model,
    work: Work,
    previous: PreviousRun | None,
    trainer: Trainer,
    assessment: Assessment,
) -> None:
    """Train `model`, which is `whole` or, on cached features, its dense layer."""
    done = previous.epochs if previous else []
    if previous is not None:
        _carry_over(work.record, previous)
    state = State.load(previous.state) if previous and previous.state else None
    validation = work.validation
    specs = [pipeline.dataset.element_spec for pipeline in (work.train, validation) if pipeline is not None]
    models.read_from_python(model, work.plan.spec.model, *specs)
    models.build_loops(model, work.plan.spec.model, work.plan.spec.load.batch_size)
    recorder = EpochRecorder(assessment, trainer)
    callbacks = _callbacks(work, recorder, done, trainer, whole)
    if len(done) >= trainer.epochs or _has_stopped(model, callbacks):
        finish(model)
        return
    if state is not None:
        continuation = Continuation(state, whole, work.watches["train"])
        continuation.pass_over(model)
        callbacks.insert(0, continuation)
    with assessment, recorder, without_end_warnings():
        model.fit(
            Watched(_batches(work, len(done), state.steps if state else 0, trainer), work.watches["train"]),
            initial_epoch=len(done),
            epochs=trainer.epochs,
            steps_per_epoch=trainer.steps_per_epoch,
            validation_data=Watched(validation.dataset, work.watches["validation"]) if validation else None,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


def _carry_over(record: Record, previous: PreviousRun) -> None:
    """Copy the completed epochs to the new folder, and then their checkpoint, so that it is self-contained."""
    before = read_summary(previous.folder)
    if before is not None:
        record.update(**{key: value for key, value in before.written.items() if key in Findings.model_fields})
    for epoch in previous.epochs:
        record.epoch(epoch)
    best = previous.folder / CHECKPOINTS / BEST
    for path in (best if best.exists() else None, previous.checkpoint, previous.state):
        if path is not None:
            copy(path, record.folder / CHECKPOINTS / path.name, record)


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
    if trainer.ema_momentum is not None and work.plan.spec.model.learns:
        callbacks.append(keras.callbacks.SwapEMAWeights())
    if trainer.early_stopping.patience is not None:
        callbacks.append(EarlyStopping(trainer.early_stopping, done))
    if windows:
        callbacks.append(Profiler(windows, str(record.folder / "profile"), sum(epoch.steps for epoch in done)))
    if trainer.checkpoint_every_steps is not None:
        callbacks.append(StepCheckpoint(record, whole, work.watches["train"], trainer.checkpoint_every_steps))
    return [*callbacks, Checkpoint(record, whole, trainer)]


def _has_stopped(model: keras.Model, callbacks: list[keras.callbacks.Callback]) -> bool:
    """Return whether early stopping had ended the resumed run."""
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            callback.set_model(model)
            callback.on_train_begin()
            return bool(model.stop_training)
    return False
