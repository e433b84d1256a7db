"""What the examples at a point of a pipeline are: the content of everything before it.

Two pipelines of one identity give the same examples in the same order. What only changes the speed is no part of it.
The seed is one where the shards are shuffled: nothing else that is random may come before a cache.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.cache.store import Identity
from etlrun.graph.code import code_of
from etlrun.graph.context import Context
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.plan.plan import PlannedStage, changes_data, data_values
from etlrun.sources.tfds import Source
from etlrun.stages.base import Stage
from etlrun.stages.extract import Interleave, Shards, Tfds
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.step import Parse, Step

_FORMAT = 1
"""Rises when files of a cache are written in another way."""


def identity(before: Sequence[PlannedStage], context: Context) -> Identity:
    """Pairs of a name and a value, for what the stages `before` give: data set, files, stages, code, versions."""
    builder, dataset = context.source.builder, context.source.dataset
    pairs: Identity = [
        ["format", _FORMAT],
        ["dataset", builder.info.full_name],
        ["dataset.image_key", dataset.image_key],
        ["dataset.label_key", dataset.label_key],
        ["dataset.classes", context.source.num_classes],
    ]
    flat = [inner for outer in before for inner in (outer, *outer.steps)]
    pairs.append(["stages", [planned.stage.path for planned in flat if changes_data(planned.stage)]])
    for planned in flat:
        values = data_values(_canonical(planned.stage, len(context.split.shards)), "")
        pairs += [[name, _plain(value)] for name, value in values.items()]
    if _is_shuffled(before, context):
        pairs.append(["seed", context.seed])
    # A damaged record is skipped, though its checksum says nothing of the damage.
    whole = any(isinstance(planned.stage, SkipCorrupt) for planned in before)
    pairs += [[f"file {name}", held] for name, held in context.split.content.files(whole=whole)]
    if context.backbone is not None:
        pairs += context.backbone.identity
    return [
        *pairs,
        ["kept", str(before[-1].gives)],
        *_makers(flat, context, is_random=_is_shuffled(before, context)),
    ]


def _canonical(stage: Stage, shards: int) -> Stage:
    """The same stage for all that mean the same: no more shards are open than there are, and one has one order."""
    if isinstance(stage, Shards) and shards == 1:
        stage = dataclasses.replace(stage, shuffle_files=False)
    if not isinstance(stage, Interleave):
        return stage
    cycle_length = stage.at_once(shards)
    return dataclasses.replace(
        stage,
        cycle_length=cycle_length,
        block_length=1 if cycle_length == 1 else stage.block_length,
        num_parallel_calls="autotune",
    )


def _is_shuffled(before: Sequence[PlannedStage], context: Context) -> bool:
    return len(context.split.shards) > 1 and any(planned.is_random for planned in before)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _makers(flat: Sequence[PlannedStage], context: Context, *, is_random: bool) -> Identity:
    """The code that makes the examples. TensorFlow is a part of it only where it decodes, computes or shuffles."""
    stages = [planned.stage for planned in flat]
    roots: list[Any] = [Source.parser, *(context.backbone.makers if context.backbone is not None else ())]
    steps = [stage for stage in stages if isinstance(stage, Step) and not isinstance(stage, Parse)]
    others = [type(stage) for stage in stages if not isinstance(stage, Step)]
    roots += [*(step.op for step in steps), *others, *(DATASET_STAGES[of] for of in others if of in DATASET_STAGES)]
    code = [["python", "{}.{}".format(*sys.version_info)]]  # code is compiled otherwise by each
    code += [[f"code {module}", digest] for module, digest in code_of(roots).items()]
    computes = is_random or bool(steps) or any(getattr(stage, "decode", False) for stage in stages)
    versions = [["tensorflow", tf.__version__]] if computes else []
    if any(isinstance(stage, Tfds) for stage in stages):  # its order is that library's
        versions.append(["tensorflow-datasets", tfds.__version__])
    return [*code, *versions]
