"""The training loop: Keras's own, with its callbacks; the one module that knows it.

plan --Pipeline--> batches --Model.fit--> epochs --Record--> events.jsonl, summary.json
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from etlrun import model as models
from etlrun.callbacks import Checkpoint, EarlyStopping, EpochRecorder
from etlrun.errors import WorldError
from etlrun.graph.build import Pipeline
from etlrun.graph.corrupt import corrupt_records
from etlrun.graph.source import Source
from etlrun.plan import Plan
from etlrun.record import Record
from etlrun.resume import PreviousRun, checkpoint_path

MOST_CORRUPT_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Work:
    """The parts of a training.

    Attributes:
        plan: Of the run.
        record: Of the run.
        source: The data set.
        train: Its training pipeline.
        evaluation: Its validation pipeline; None for no validation.
    """

    plan: Plan
    record: Record
    source: Source
    train: Pipeline
    evaluation: Pipeline | None


def train(plan: Plan, record: Record, previous: PreviousRun | None) -> None:
    """Train as `plan` says, or go on from `previous`, and leave `model.keras` in the run's folder.

    Raises:
        WorldError: Data or weights are missing or broken, or there are too few examples.
    """
    work = _prepared(plan, record)
    try:
        model = _fitted(work, previous)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        _explain(work, error)
        raise
    finally:
        shutil.rmtree(record.folder / "cache", ignore_errors=True)
    model.save(record.folder / "model.keras")
    _report_skipped(work)


def _prepared(plan: Plan, record: Record) -> Work:
    spec = plan.spec
    source = Source(spec.dataset)
    split = source.split(spec.dataset.split, "dataset.split")
    _enough(plan, split.num_examples)
    seed, folder = spec.trainer.seed, record.folder / "cache"
    pipelines = {"train": Pipeline(plan.train, source=source, split=split, seed=seed, folder=folder / "train")}
    sizes = {"train": split.num_examples}
    if spec.dataset.eval_split is not None:
        held_out = source.split(spec.dataset.eval_split, "dataset.eval_split")
        sizes["validation"] = held_out.num_examples
        pipelines["validation"] = Pipeline(
            plan.evaluation, source=source, split=held_out, seed=seed, folder=folder / "validation"
        )
    record.event("dataset", name=source.builder.info.full_name, examples=sizes)
    record.update(dataset={"name": source.builder.info.full_name, "examples": sizes})
    return Work(
        plan=plan, record=record, source=source, train=pipelines["train"], evaluation=pipelines.get("validation")
    )


def _enough(plan: Plan, num_examples: int) -> None:
    load = plan.spec.load
    if load.drop_remainder and num_examples < load.batch_size:
        raise WorldError(
            where="load.batch_size",
            found=f"{load.batch_size}, with {num_examples} examples in the training split",
            expected=f"at most {num_examples} while load.drop_remainder=true, which leaves no batch otherwise",
            remedy=f"set load.batch_size={num_examples} or smaller, or load.drop_remainder=false",
        )


def _fitted(work: Work, previous: PreviousRun | None) -> keras.Model:
    trainer, record = work.plan.spec.trainer, work.record
    model = _model(work, previous)
    record.update(parameters=int(model.count_params()))
    done = previous.epochs if previous else []
    if previous is not None:
        _carry_over(record, previous)
    recorder = EpochRecorder(record, trainer, partial(_examples_in, work))
    callbacks = _callbacks(work, recorder, done)
    if len(done) >= trainer.epochs or _has_stopped(model, callbacks):
        return model
    with recorder, _ends_are_expected():
        model.fit(
            _batches(work, len(done)),
            initial_epoch=len(done),
            epochs=trainer.epochs,
            steps_per_epoch=trainer.steps_per_epoch,
            validation_data=work.evaluation.dataset if work.evaluation else None,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
    return model


@contextmanager
def _ends_are_expected() -> Iterator[None]:
    """Keras warns at the end of every dataset of undeclared length, as if it had run short."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data", category=UserWarning)
        yield


def _model(work: Work, previous: PreviousRun | None) -> keras.Model:
    if previous is not None:
        return keras.models.load_model(previous.checkpoint)
    model = models.build(work.plan.spec.model, work.plan.train[-1].gives, work.source.num_classes)
    models.compile_for(model, work.plan.spec.trainer)
    return model


def _carry_over(record: Record, previous: PreviousRun) -> None:
    """Make the new folder complete in itself: its checkpoint and the epochs so far."""
    target = checkpoint_path(record.folder, len(previous.epochs))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(previous.checkpoint, target)
    record.update(resumed_from=str(previous.folder))
    for epoch in previous.epochs:
        record.epoch(epoch)


def _batches(work: Work, done: int) -> tf.data.Dataset:
    """What `fit` reads after `done` epochs: a pass each time, or the passes without end where epochs count steps."""
    trainer, load, pipeline = work.plan.spec.trainer, work.plan.spec.load, work.train
    if trainer.steps_per_epoch is None:
        pipeline.skip_passes(done)
        return pipeline.dataset
    in_pass = batches_in_pass(pipeline.split.num_examples, load.batch_size, load.drop_remainder)
    passes, batches = divmod(done * trainer.steps_per_epoch, in_pass)
    pipeline.skip_passes(passes)
    return pipeline.endless().skip(batches)


def batches_in_pass(num_examples: int, batch_size: int, drop_remainder: bool) -> int:  # noqa: FBT001 - tf.data's name and kind
    """Batches that `num_examples` give."""
    return num_examples // batch_size if drop_remainder else -(-num_examples // batch_size)


def _examples_in(work: Work, steps: int) -> int:
    """How many examples the first `steps` batches of the training hold, over all passes so far."""
    load, pipeline = work.plan.spec.load, work.train
    in_pass = pipeline.split.num_examples
    if work.plan.spec.dataset.on_corrupt == "skip":
        in_pass = min(in_pass, max(int(pipeline.context.examples_left.numpy()), 1))
    batches = max(batches_in_pass(in_pass, load.batch_size, load.drop_remainder), 1)
    used = min(in_pass, batches * load.batch_size)
    passes, rest = divmod(steps, batches)
    return passes * used + min(rest * load.batch_size, used)


def _callbacks(work: Work, recorder: EpochRecorder, done: list[dict[str, Any]]) -> list[keras.callbacks.Callback]:
    trainer, record = work.plan.spec.trainer, work.record
    callbacks: list[keras.callbacks.Callback] = []
    if trainer.early_stopping.patience is not None:
        callbacks.append(EarlyStopping(trainer.early_stopping, done))
    if trainer.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(record.folder / "tensorboard", write_graph=False))
    return [*callbacks, recorder, Checkpoint(record)]


def _has_stopped(model: keras.Model, callbacks: list[keras.callbacks.Callback]) -> bool:
    """Whether early stopping had ended the run that this one goes on with."""
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            callback.set_model(model)
            callback.on_train_begin()
            return bool(model.stop_training)
    return False


def _explain(work: Work, error: Exception) -> None:
    """After a failure, look for a broken record and tell of it; return where it has another cause."""
    if work.plan.spec.dataset.on_corrupt == "skip":
        return
    for pipeline in (work.train, work.evaluation):
        if pipeline is not None:
            for corrupt in corrupt_records(work.source, pipeline.split):
                raise corrupt.error() from error


def _report_skipped(work: Work) -> None:
    """With `on_corrupt: skip`, say how many records were left out, and which."""
    if work.plan.spec.dataset.on_corrupt != "skip":
        return
    skipped: dict[str, Any] = {}
    for name, pipeline in (("train", work.train), ("validation", work.evaluation)):
        if pipeline is not None:
            found = list(corrupt_records(work.source, pipeline.split))
            skipped[name] = sum(corrupt.lost for corrupt in found)
            for corrupt in found[:MOST_CORRUPT_NAMED]:
                work.record.event("skipped", where=f"{corrupt.path}, record {corrupt.record}", reason=corrupt.reason)
    total = sum(skipped.values())
    work.record.update(skipped=skipped)
    if total:
        remark = f"{total} corrupt records were left out; events.jsonl names them."
        work.record.update(remarks=[*work.record.summary["remarks"], remark])
