"""What a parameter changes in a given run, of all that it can change, and what differs in the results of two runs."""

from __future__ import annotations

from etlrun.planning.decoding import resizes
from etlrun.planning.plan import CODE_OF, STAGES, Plan
from etlrun.planning.spec import RunSpec
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Parameter, Stage, parameters
from etlrun.stages.cache import NoCache
from etlrun.stages.image import Decode
from etlrun.stages.load import Batch, Load, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.model import APPLICATIONS, ImageModel
from etlrun.stages.trainer import Trainer

_REPORTED = f"{Trainer.path}.metrics"
"""Path of what is only reported of a training."""
_MIXED = {Load.key("shuffle_buffer"), Load.key("shuffle"), Shuffle.key("buffer_size")}
"""Keys of how far apart the examples of a batch stand in the dataset, which the statistics of batch norms rest on."""


def kinds_in(spec: RunSpec, stage: Stage, parameter: Parameter) -> tuple[Kind, ...]:
    """Return the kinds of a parameter of `stage` in a run, the strongest first.

    Batches are part of a training; the order of examples only where it trains batch norms: elsewhere another order is
    as another seed. The library that decodes images changes them only where it resizes them, too; the place of a cache
    only where it holds JPEGs; the seed where the training draws from it what its examples are.
    """
    key = stage.key(parameter.name)
    if key == Decode.key("library") and not resizes(spec, "turbo"):
        return (SPEED,)
    if (key == NoCache.key("at") and spec.cache.quality is not None) or (key == Trainer.key("seed") and drawn(spec)):
        return (DATA, *(kind for kind in parameter.kinds if kind != SPEED))
    if ORDER not in parameter.kinds or _trains(spec, has_batch_norms=key in _MIXED):
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


def drawn(spec: RunSpec) -> list[str]:
    """Return what draws by the seed which examples a training has, and what becomes of them, in the order of stages."""
    steps = [step.path for step in spec.transform.steps if step.random]
    return [*[Load.key("sample")] * (spec.load.sample != "all"), *steps, *[Mix.path] * spec.load.mixes]


def differing(old: Plan, new: Plan) -> dict[str, set[Kind]]:
    """Return the paths of all that differs in the fingerprints of two plans, with what it changes.

    Left out are metrics, which change nothing but what is reported, the code of packages, and the parameters of a stage
    that one side alone has, which is among what differs itself.
    """
    kinds: dict[str, set[Kind]] = {}
    for plan in (old, new):
        for prefix, stage in plan.deciding:
            for parameter in parameters(stage):
                path = f"{prefix}{stage.path}.{parameter.name}"
                kinds.setdefault(path, set()).update(kinds_in(plan.spec, stage, parameter))
    owners = [{f"{prefix}{stage.path}" for prefix, stage in plan.deciding} for plan in (old, new)]
    alone = {path for path in owners[0] ^ owners[1] if "/" in path and not _reorders(path.partition("/")[2])}
    found: dict[str, set[Kind]] = {}
    for path in sorted(old.decisive.keys() | new.decisive.keys()):
        values = [plan.decisive.get(path) for plan in (old, new)]
        if path.endswith(f"/{STAGES}"):
            values = [[stage for stage in of or () if not _reorders(stage)] for of in values]
        is_told_elsewhere = path.startswith(CODE_OF) or path == _REPORTED or path.rpartition(".")[0] in alone
        if values[0] != values[1] and not is_told_elsewhere:
            found[path] = kinds.get(path, {DATA if "/" in path else TRAINING})
    return found


def _reorders(path: str) -> bool:
    """Return whether a stage changes no example, so that its parameters alone tell what it changes."""
    return path.startswith(("extract.", Shuffle.path, Batch.path))
