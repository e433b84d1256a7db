"""What a parameter changes in a given run, of all that it can change."""

from __future__ import annotations

from etlrun.planning.decoding import resizes
from etlrun.planning.spec import RunSpec
from etlrun.stages.applications import APPLICATIONS
from etlrun.stages.base import ORDER, SPEED, TRAINING, Kind, Parameter, Stage
from etlrun.stages.image import Decode
from etlrun.stages.load import Load, Shuffle
from etlrun.stages.model import ImageModel

_MIXED = {Load.key("shuffle_buffer"), Load.key("shuffle"), Shuffle.key("buffer_size")}
"""Keys of how far apart the examples of a batch stand in the dataset, which the statistics of batch norms rest on."""


def kinds_in(spec: RunSpec, stage: Stage, parameter: Parameter) -> tuple[Kind, ...]:
    """Return the kinds of a parameter of `stage` in a run, the strongest first.

    Batches are part of a training; the order of examples only where it trains batch norms: elsewhere another order is
    as another seed. The library that decodes images changes them only where it resizes them, too.
    """
    if stage.key(parameter.name) == Decode.key("library") and not resizes(spec, "turbo"):
        return (SPEED,)
    if ORDER not in parameter.kinds or _trains(spec, has_batch_norms=stage.key(parameter.name) in _MIXED):
        return parameter.kinds
    return tuple(kind for kind in parameter.kinds if kind != TRAINING)


def _trains(spec: RunSpec, *, has_batch_norms: bool) -> bool:
    """Return whether a run trains a model; with `has_batch_norms`, whether it trains such layers."""
    model = spec.model
    if spec.fit is None or not model.learns:
        return False
    if not has_batch_norms or not isinstance(model, ImageModel):
        return True
    return model.trainable and APPLICATIONS[model.application].has_batch_norms
