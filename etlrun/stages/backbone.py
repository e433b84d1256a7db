"""The frozen base of a model as a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from etlrun.stages.base import BATCHES, Nodes, Stage
from etlrun.stages.flow import Feature, Flow


@dataclass(frozen=True, kw_only=True)
class Backbone(Stage):
    """The frozen base of a model, applied to each example; a plan puts it before a cache of features.

    Attributes:
        features: Features per example.
    """

    path = "model.backbone"
    pictures_at_once: ClassVar[int] = 64
    nodes = (
        Nodes(("Unbatch",), is_single=True),
        Nodes(examples=pictures_at_once),
        Nodes(BATCHES, examples=pictures_at_once),
    )

    features: int

    def flow(self, incoming: Flow) -> Flow:
        return incoming.with_feature(incoming.inputs[0], Feature(dtype="float32", shape=(self.features,)))
