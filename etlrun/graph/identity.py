"""Identity of the examples at a point of a pipeline: all that determines them.

Two pipelines with the same identity give the same examples in the same order. Parameters of speed are not part of it.
The seed is a part if the shards are shuffled: nothing else that is random may come before a cache.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from packaging.version import Version

from etlrun import __version__
from etlrun.cache.store import Identity
from etlrun.graph.context import Reading
from etlrun.plan.plan import PlannedStage, values_of
from etlrun.stages.base import Stage
from etlrun.stages.code import source

_FORMAT = 3
"""Version of the file format of caches, and of the code that reads and parses examples."""
_FRAMEWORKS = {"tensorflow": "tensorflow", "tensorflow-datasets": "tensorflow_datasets"}
"""Modules of the packages that a run imports, but a key does not need to."""


def identity(before: Sequence[PlannedStage], reading: Reading) -> Identity:
    """Return the identity of the output of the stages `before`: pairs of a name and a value.

    They describe dataset, files, stages, code and versions.
    """
    source, dataset = reading.source, reading.source.dataset
    declared = dataset.examples.features
    pairs: Identity = [
        ["format", _FORMAT],
        ["dataset", source.identity],
        *([f"dataset.features.{name}", [key, str(declared[name])]] for name, key in dataset.keys.items()),
        ["dataset.classes", source.num_classes],
    ]
    values = values_of(before, shards=len(reading.split.shards))
    pairs += [[name, _plain(value)] for name, value in values.items()]
    if _is_shuffled(before, reading):
        pairs.append(["seed", reading.seed])
    # A damaged record is skipped, although its checksum doesn't show the damage.
    whole = any(planned.stage.leaves_out for planned in before)
    pairs += [[f"file {name}", held] for name, held in reading.split.content.files(whole=whole)]
    if reading.backbone is not None:
        pairs += reading.backbone.identity
    return [
        *pairs,
        ["kept", str(before[-1].gives)],
        *_code(before, is_random=_is_shuffled(before, reading)),
    ]


def _is_shuffled(before: Sequence[PlannedStage], reading: Reading) -> bool:
    return len(reading.split.shards) > 1 and any(planned.is_random for planned in before)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _code(before: Sequence[PlannedStage], *, is_random: bool) -> Identity:
    """Return the code that makes the examples. TensorFlow is included only if it decodes, computes or shuffles."""
    stages = [inner.stage for outer in before for inner in (outer, *outer.steps)]
    code = [[f"code {stage.path}", code_of(stage)] for stage in stages if stage.makers]
    packages = {package for stage in stages for package in stage.rests_on} | ({"tensorflow"} if is_random else set())
    return [["etlrun", __version__], *code, *([package, _version(package)] for package in sorted(packages))]


def code_of(stage: Stage) -> str:
    """Return the first 16 hex digits of a SHA-256 over the functions of a stage, which refer to nothing else."""
    texts = [[source(made), repr(made.__defaults__), repr(made.__kwdefaults__)] for made in stage.makers]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _version(package: str) -> str:
    """Return the version of a package; of an imported framework its own, since it may have been updated on disk."""
    name = _FRAMEWORKS.get(package)
    if name is None:
        return metadata.version(package)
    try:
        found = sys.modules[name].__version__ if name in sys.modules else metadata.version(package)
    except metadata.PackageNotFoundError:  # installed under another name, such as tensorflow-cpu
        found = importlib.import_module(name).__version__
    return Version(found).public  # as both spell it: 2.21.0-rc1 is 2.21.0rc1, and a vendor's 2.21.0+nv is 2.21.0
