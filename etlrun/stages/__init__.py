"""Stages: their names, their parameters, and the flow between them.

`STAGES` is the only registry: a config selects a stage by its key.
Steps of other installed packages are found through entry points in the group `etlrun.stages`, which name classes
with a `path` such as `transform.grey`. A dataset-level stage declares a method call (`Stage.call`), or has
functions in `etlrun.graph` and `etlrun.eject`.
"""

from __future__ import annotations

from collections.abc import Mapping

from etlrun.stages.augment import (
    Cutout,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomFlipUpDown,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslation,
    RandomZoom,
)
from etlrun.stages.base import Stage
from etlrun.stages.cache import CACHES
from etlrun.stages.colour import (
    Normalize,
    RandAugment,
    RandomBrightness,
    RandomContrast,
    RandomGrey,
    RandomHue,
    RandomSaturation,
    ZeroCenterBgr,
)
from etlrun.stages.dataset import SOURCES, TFRecords
from etlrun.stages.extract import Interleave, Sequential, Tfds
from etlrun.stages.image import CenterCrop, Decode, RandomFlip, Rescale, Resize, ScaleMinusOneOne, ScaleZeroOne
from etlrun.stages.installed import with_installed
from etlrun.stages.measure import LOGGERS, NoProfile, Trace
from etlrun.stages.model import Emulated, KerasApplication, MobileNetV2
from etlrun.stages.network import Tabular, TextModel, TwoTowers
from etlrun.stages.rows import Arrays, Python, Table, TextFolder
from etlrun.stages.trainer import Drain, Trainer

Stages = Mapping[str, Mapping[str, type[Stage]]]

_STAGES: tuple[type[Stage], ...] = (
    Tfds, Sequential, Interleave, Decode, CenterCrop, Resize, Pad, RandomCrop, RandomResizedCrop, RandomFlip,
    RandomFlipUpDown, RandomRotation, RandomTranslation, RandomZoom, RandomBrightness, RandomContrast,
    RandomSaturation, RandomHue, RandomGrey, RandAugment, Cutout, RandomErasing, Normalize, Rescale, ScaleZeroOne,
    ScaleMinusOneOne, ZeroCenterBgr, *CACHES.values(), MobileNetV2, KerasApplication, Tabular, TextModel, TwoTowers,
    Emulated,
    Trainer, Drain, NoProfile, Trace, *LOGGERS.values(),
)  # fmt: skip
"""Stages of etlrun, which configs select by the group and the name in their `path`."""
_OWN: dict[str, dict[str, type[Stage]]] = {}
for _stage in _STAGES:
    _group, _, _name = _stage.path.partition(".")
    _OWN.setdefault(_group, {})[_name] = _stage
SOURCES |= {"tfrecord": TFRecords, "table": Table, "arrays": Arrays, "python": Python, "text_folder": TextFolder}
STAGES, UNUSABLE = with_installed(_OWN)
"""The registry, and the faults of installed packages whose stages can't be used, which make every config invalid."""
