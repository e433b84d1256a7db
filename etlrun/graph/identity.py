"""Identity of the examples at a point of a pipeline: all that determines them.

Two pipelines with the same identity give the same examples in the same order. Parameters of speed are not part of it.
The seed is a part if the shards are shuffled: nothing else that is random may come before a cache.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.cache.store import Identity
from etlrun.graph.code import code_of
from etlrun.graph.context import Context
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.plan.plan import PlannedStage, values_of

_FORMAT = 2
"""Version of the file format of caches."""


def identity(before: Sequence[PlannedStage], context: Context) -> Identity:
    """Return the identity of the output of the stages `before`: pairs of a name and a value.

    They describe dataset, files, stages, code and versions.
    """
    source, dataset = context.source, context.source.dataset
    declared = dataset.examples.features
    pairs: Identity = [
        ["format", _FORMAT],
        ["dataset", source.identity],
        *([f"dataset.features.{name}", [key, str(declared[name])]] for name, key in dataset.keys.items()),
        ["dataset.classes", source.num_classes],
    ]
    values = values_of(before, shards=len(context.split.shards))
    pairs += [[name, _plain(value)] for name, value in values.items()]
    if _is_shuffled(before, context):
        pairs.append(["seed", context.seed])
    # A damaged record is skipped, although its checksum doesn't show the damage.
    whole = any(planned.stage.leaves_out for planned in before)
    pairs += [[f"file {name}", held] for name, held in context.split.content.files(whole=whole)]
    if context.backbone is not None:
        pairs += context.backbone.identity
    return [
        *pairs,
        ["kept", str(before[-1].gives)],
        *_makers(before, context, is_random=_is_shuffled(before, context)),
    ]


def _is_shuffled(before: Sequence[PlannedStage], context: Context) -> bool:
    return len(context.split.shards) > 1 and any(planned.is_random for planned in before)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _makers(before: Sequence[PlannedStage], context: Context, *, is_random: bool) -> Identity:
    """Return the code that makes the examples. TensorFlow is included only if it decodes, computes or shuffles."""
    stages = [inner.stage for outer in before for inner in (outer, *outer.steps)]
    roots: list[Any] = [type(context.source).parser, *(context.backbone.makers if context.backbone is not None else ())]
    roots += [made for stage in stages for made in stage.makers]
    roots += [DATASET_STAGES[type(stage)] for stage in stages if stage.changes_data and type(stage) in DATASET_STAGES]
    code = [["python", "{}.{}".format(*sys.version_info)]]  # each compiles code differently
    code += [[f"code {module}", digest] for module, digest in code_of(roots).items()]
    packages = {package for stage in stages for package in stage.rests_on} | ({"tensorflow"} if is_random else set())
    imported = {"tensorflow": tf.__version__, "tensorflow-datasets": tfds.__version__}
    return [*code, *([package, imported.get(package) or metadata.version(package)] for package in sorted(packages))]
