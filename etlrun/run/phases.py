"""Phases of a training: which plan serves each, and how a model begins one."""

from __future__ import annotations

import math

import keras

from etlrun.measure.assessment import Work
from etlrun.planning.plan import Plan
from etlrun.record.summary import TrainedPhase
from etlrun.run.model import finish
from etlrun.run.whole import compile_phase
from etlrun.stages.applications import unfreeze
from etlrun.stages.phases import PlannedPhase
from etlrun.stages.trainer import Trainer


def plans_left(plan: Plan, trainer: Trainer, done: int) -> list[Plan]:
    """Return the plans that serve the phases after `done` epochs: two if cached features serve only the first ones."""
    if plan.unfrozen is None:
        return [plan]
    return [plan, plan.unfrozen] if done < trainer.frozen_phases[-1].end else [plan.unfrozen]


def begin(whole: keras.Model, work: Work, phase: PlannedPhase, trainer: Trainer) -> None:
    """Begin a phase, or go on with it: compile the model anew, unless it comes from a checkpoint of the phase."""
    if phase.number > 1 and len(work.record.summary.epochs) == phase.done:
        finish(whole)
        if phase.unfreeze is not None:
            unfreeze(whole.layers[-2], work.plan.spec.model.last_layers(phase.unfreeze))
        compile_phase(whole, work.plan, work.train.context.source, trainer.in_phase(phase))
        for watch in work.watches.values():
            watch.meter.compiled()
    if trainer.phases is not None:
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
