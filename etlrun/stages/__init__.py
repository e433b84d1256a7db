"""Stages: their names, their parameters, and the flow between them.

`STAGES` is the only registry: a config selects a stage by its key, which is the `path` of a `selectable` class.
Steps of other installed packages are found through entry points in the group `etlrun.stages`, which name classes
with a `path` such as `transform.grey`. A dataset-level stage declares a method call (`Stage.call`), or has
functions in `etlrun.graph` and `etlrun.eject`.
"""

from collections.abc import Mapping

from etlrun.stages import augment, cache, colour, extract, image, measure, model, network, trainer  # noqa: F401
from etlrun.stages.base import SELECTABLE, Stage
from etlrun.stages.dataset import SOURCES, TFRecords
from etlrun.stages.installed import with_installed
from etlrun.stages.rows import Arrays, Python, Table, TextFolder

Stages = Mapping[str, Mapping[str, type[Stage]]]

SOURCES |= {"tfrecord": TFRecords, "table": Table, "arrays": Arrays, "python": Python, "text_folder": TextFolder}
STAGES, UNUSABLE = with_installed(SELECTABLE)
"""The registry, and the faults of installed packages whose stages can't be used, which make every config invalid."""
