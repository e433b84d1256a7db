"""Loss and metrics of a run that its config leaves to the kinds of its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from etlrun.planning.spec import RunSpec
from etlrun.stages.objectives import KINDS, Kinds, default_metrics, kind_of
from etlrun.stages.trainer import Trainer


def with_defaults(spec: RunSpec, of_targets: Sequence[Kinds]) -> RunSpec:
    """Return a run with the loss and the metrics of targets of these kinds where a config leaves them as they are.

    Several targets have the loss of each kind.
    """
    trainer = spec.fit
    if trainer is None or not spec.model.learns:
        return spec
    is_left = trainer.loss == Trainer.loss and len(of_targets) == 1
    loss: Any = KINDS[of_targets[0]].losses[0] if is_left else trainer.loss
    metrics = default_metrics(of_targets) if trainer.metrics == Trainer.metrics else trainer.metrics
    return replace(spec, trainer=replace(trainer, loss=loss, metrics=metrics))


def of_declared(spec: RunSpec) -> RunSpec:
    """Return a run of serialised examples with these where it has several targets, or one of two classes or of labels.

    Others have what their config says.
    """
    flow = spec.dataset.examples
    kinds = [kind_of(flow.features[name]) for name in flow.targets]
    return with_defaults(spec, kinds) if len(kinds) > 1 or kinds[0] in ("binary", "labels") else spec
