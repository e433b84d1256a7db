"""What the pipelines of a plan read, also the frozen base of its model, and the keepers of its disk caches."""

import dataclasses
from contextlib import nullcontext

from etlrun.cache.keeper import Keeper
from etlrun.graph.context import FrozenBase, Reading
from etlrun.graph.disk import keepers_of
from etlrun.planning.plan import Plan
from etlrun.run.backend import prepare, seed_all
from etlrun.sources.base import Source, open_source, splits_of


def readings_of(
    plan: Plan, source: Source, *, with_validation: bool = True, backbone: FrozenBase | None = None
) -> dict[str, Reading]:
    """Return what each pipeline reads: `train` and, with validation, `validation` and the named validation sets.

    Raises `WorldError` if a split is missing or empty, or if other files have other classes.
    """
    seed = plan.spec.trainer.seed
    return {
        name: Reading(split=split, seed=seed, backbone=backbone)
        for name, split in splits_of(source, with_validation=with_validation).items()
    }


def keepers_for(plan: Plan) -> dict[str, Keeper]:
    """Return the keepers of the disk caches that a run of `plan` would use; creates no cache, and the sample alone.

    Raises `WorldError` if the dataset or the weights of a frozen base are not available.
    """
    fit, dataset = plan.spec.fit, plan.spec.dataset.without_download()
    plan = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dataset=dataset))
    with nullcontext() if fit is None or not plan.spec.cache.keeps_features else prepare(fit):
        source = open_source(dataset)
        readings = readings_of(plan, source, with_validation=fit is not None, backbone=base_of(plan, source))
        return keepers_of(plan, readings, {}, lambda _: None)


def base_of(plan: Plan, source: Source) -> FrozenBase | None:
    """Return the frozen base of the model whose features a plan caches; None, without Keras, for any other plan."""
    if plan.spec.fit is None or not plan.spec.cache.keeps_features:
        return None
    from etlrun.run.model import backbone, training_data, whole_model

    seed_all(plan.spec.fit.seed)  # for a base without pretrained weights
    reading = readings_of(plan, source, with_validation=False)["train"]
    return backbone(whole_model(plan, training_data(plan, reading)))
