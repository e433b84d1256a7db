"""The whole model of a run, compiled: built from its plan, or loaded from a checkpoint."""

from __future__ import annotations

import keras

from etlrun.planning.learned import columns_of
from etlrun.planning.plan import Plan, given_to_model, reads_features
from etlrun.planning.training import past_classes, warmup_past
from etlrun.run import devices
from etlrun.run import model as models
from etlrun.run.checkpoint import PreviousRun
from etlrun.run.session import steps_of_run
from etlrun.run.state import restore_seeds
from etlrun.sources.base import Source
from etlrun.sources.corrupt import counts_of
from etlrun.stages.balance import balanced
from etlrun.stages.keras_objects import objectives
from etlrun.stages.pretrained import set_vectors
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError


def whole_model(plan: Plan, source: Source, previous: PreviousRun | None, trainer: Trainer) -> keras.Model:
    """Return the compiled model from the inputs of the pipeline to the prediction of the target."""
    with devices.scope():
        return devices.without_strategy(_whole_model(plan, source, previous, trainer))


def _whole_model(plan: Plan, source: Source, previous: PreviousRun | None, trainer: Trainer) -> keras.Model:
    if previous is not None and previous.checkpoint is not None:
        remedy = "start a new run without trainer.resume, or resume another folder"
        model = models.loaded(previous.checkpoint, "the complete model that a run saves after an epoch", remedy)
        restore_seeds(model, previous.checkpoint)
        return model
    stage = plan.spec.model
    if previous is not None and not reads_features(plan):  # of its own weights
        stage = stage.restored
    _fits(plan, source, trainer)
    scaling = [planned.stage.factors for planned in plan.by_model if planned.stage.factors is not None]
    model = models.build(stage, given_to_model(plan.train), scaling, source.num_classes, trainer.loss)
    _set_vectors(model, plan)
    compile_phase(model, plan, source, trainer.in_phase(trainer.planned_phases[0]))
    return model


def _set_vectors(model: keras.Model, plan: Plan) -> None:
    """Give the embeddings of a new model the vectors of files; raise `ConfigError` if a file can't be read any more."""
    columns = columns_of(plan.spec)
    outputs = () if columns is None else [of for of in columns.outputs if of.weights is not None]
    if outputs:
        from etlrun.sources.rows.weights import require_unchanged, vectors_of  # which import Arrow

        require_unchanged(outputs)
        for output in outputs:
            set_vectors(model, **vectors_of(output))


def compile_phase(model: keras.Model, plan: Plan, source: Source, trainer: Trainer) -> None:
    """Compile `model` for a training in one phase."""
    flow = given_to_model(plan.train)
    loss_and_metrics = objectives(
        trainer,
        flow,
        source.names_of_classes,
        plan.spec.dataset.loss_weights,
        class_weights=class_weights(plan, source),
        mixes=plan.spec.load.mixes,
    )
    steps = steps_of_run(plan, source, trainer) if trainer.schedule.needs_run else None
    with devices.scope():
        models.compile_for(model, plan.spec.model, trainer, loss_and_metrics=loss_and_metrics, steps=steps)


def _fits(plan: Plan, source: Source, trainer: Trainer) -> None:
    """Raise `ConfigError` where the data don't fit a value."""
    faults = [] if source.names_of_classes is None else [*past_classes(trainer, source.names_of_classes)]
    if trainer.schedule.needs_run:
        for one in map(trainer.in_phase, trainer.planned_phases):
            faults += [fault for fault in warmup_past(one, steps_of_run(plan, source, one)) if fault not in faults]
    if faults:
        raise ConfigError(faults)


def class_weights(plan: Plan, source: Source) -> list[float] | None:
    """Return the weights of the classes in the loss; None if all are equal."""
    if plan.spec.load.class_weights == "none":
        return None
    dataset = plan.spec.dataset
    split = source.split(dataset.split, dataset.key_of("train"))
    return balanced([*counts_of(source, split, by_number=plan.spec.load.is_by_number).values()])
