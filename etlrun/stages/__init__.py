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
from etlrun.stages.network import Tabular, TextModel
from etlrun.stages.rows import Arrays, Python, Table, TextFolder
from etlrun.stages.trainer import Drain, Trainer

Stages = Mapping[str, Mapping[str, type[Stage]]]

_OWN: Stages = {
    "extract": {"tfds": Tfds, "sequential": Sequential, "interleave": Interleave},
    "transform": {
        "decode": Decode,
        "center_crop": CenterCrop,
        "resize": Resize,
        "pad": Pad,
        "random_crop": RandomCrop,
        "random_resized_crop": RandomResizedCrop,
        "random_flip": RandomFlip,
        "random_flip_up_down": RandomFlipUpDown,
        "random_rotation": RandomRotation,
        "random_translation": RandomTranslation,
        "random_zoom": RandomZoom,
        "random_brightness": RandomBrightness,
        "random_contrast": RandomContrast,
        "random_saturation": RandomSaturation,
        "random_hue": RandomHue,
        "random_grey": RandomGrey,
        "rand_augment": RandAugment,
        "cutout": Cutout,
        "random_erasing": RandomErasing,
        "normalize": Normalize,
        "rescale": Rescale,
        "scale_zero_one": ScaleZeroOne,
        "scale_minus_one_one": ScaleMinusOneOne,
        "zero_center_bgr": ZeroCenterBgr,
    },
    "cache": CACHES,
    "model": {
        "mobilenet_v2": MobileNetV2,
        "keras_application": KerasApplication,
        "tabular": Tabular,
        "text": TextModel,
        "emulated": Emulated,
    },
    "trainer": {"fit": Trainer, "drain": Drain},
    "profile": {"none": NoProfile, "trace": Trace},
    "logger": LOGGERS,
}
SOURCES |= {"tfrecord": TFRecords, "table": Table, "arrays": Arrays, "python": Python, "text_folder": TextFolder}
STAGES, UNUSABLE = with_installed(_OWN)
"""The registry, and the faults of installed packages whose stages can't be used, which make every config invalid."""
