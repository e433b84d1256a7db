"""Filling of the caches on disk of a plan, by a job that trains nothing."""

from __future__ import annotations

from contextlib import nullcontext

from etlrun.plan.plan import Plan, reads_features
from etlrun.record.record import Record
from etlrun.run.devices import distributed
from etlrun.run.session import at_work, opened, prepared
from etlrun.sources.base import Source
from etlrun.system.files import sync


def fill(plan: Plan, record: Record) -> None:
    """Fill the caches that a run of `plan` reads, unless they are there; `WorldError` if data is missing or corrupt."""
    source, trainer = opened(plan), plan.spec.fit
    with nullcontext() if trainer is None else distributed(trainer, plan.spec.load):
        _fill(plan, record, source)


def _fill(plan: Plan, record: Record, source: Source) -> None:
    trainer, backbone = plan.spec.fit, None
    if trainer is not None and reads_features(plan):
        from etlrun.run import model as models  # import Keras, which only the features of a base need
        from etlrun.run.whole import whole_model

        backbone = models.backbone(whole_model(plan, source, None, trainer))
    work = prepared(plan, record, source, with_validation=trainer is not None, backbone=backbone)
    with at_work(work):
        for pipeline in work.pipelines.values():
            pipeline.fill()
            for path, _ in pipeline.keeper.parts if pipeline.keeper is not None else ():
                sync(path)  # the next job would be measured beside the writing
