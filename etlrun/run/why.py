"""Keepers of the disk caches of a plan, before any run: neither TensorFlow nor Keras, except for features of a base."""

from __future__ import annotations

import dataclasses

from etlrun.cache.keeper import Keeper
from etlrun.planning.plan import Plan, reads_features
from etlrun.run.keepers import keepers_of, readings_of
from etlrun.sources.base import open_source


def keepers_for(plan: Plan) -> dict[str, Keeper]:
    """Return the keepers of the disk caches that a run of `plan` would use; creates no cache, and the sample alone.

    Raises:
        WorldError: The dataset or the weights of a frozen base are not available.
    """
    spec = plan.spec
    plan = dataclasses.replace(plan, spec=dataclasses.replace(spec, dataset=spec.dataset.without_download()))
    if not reads_features(plan) or spec.fit is None:
        readings = readings_of(plan, open_source(plan.spec.dataset), with_validation=spec.fit is not None)
        return keepers_of(plan, readings, {}, lambda _: None)
    from etlrun.run.backend import prepare  # imports Keras, which only the features of a base need

    with prepare(spec.fit):
        from etlrun.run.model import backbone
        from etlrun.run.session import opened
        from etlrun.run.whole import whole_model

        source = opened(plan)
        base = backbone(whole_model(plan, source, None, spec.fit))
        return keepers_of(plan, readings_of(plan, source, backbone=base), {}, lambda _: None)
