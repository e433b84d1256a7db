"""What the examples at a point of a pipeline are: the content of everything before it.

Two pipelines of one identity give the same examples in the same order. What only changes the speed is no part of it,
nor is the seed, since nothing random may come before a cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
import struct
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.cache.store import Identity
from etlrun.graph.code import code_of
from etlrun.graph.context import Context
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.graph.source import Shard, Source
from etlrun.graph.steps import STEPS
from etlrun.plan import PlannedStage, changes_data, data_values
from etlrun.stages.base import Stage
from etlrun.stages.extract import Interleave, Tfds
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.transform import Parse

_FORMAT = 1
"""Rises when files of a cache are written in another way."""
_HEAD, _FOOT = 12, 4
"""Bytes around the data of a record: its length with a checksum before it, its own checksum (CRC-32C) after it."""


def identity(before: Sequence[PlannedStage], context: Context) -> Identity:
    """Pairs of a name and a value, for what the stages `before` give: data set, files, stages, code, versions."""
    builder, dataset = context.source.builder, context.source.dataset
    pairs: Identity = [
        ["format", _FORMAT],
        ["dataset", builder.info.full_name],
        ["dataset.image_key", dataset.image_key],
        ["dataset.label_key", dataset.label_key],
    ]
    flat = [inner for outer in before for inner in (outer, *outer.steps)]
    pairs.append(["stages", [planned.stage.path for planned in flat if changes_data(planned.stage)]])
    for planned in flat:
        values = data_values(_canonical(planned.stage, len(context.split.shards)), "")
        pairs += [[name, _plain(value)] for name, value in values.items()]
    # A damaged record is skipped, though its checksum says nothing of the damage.
    by_checksums = not any(isinstance(planned.stage, SkipCorrupt) for planned in before)
    pairs += [[f"file {Path(shard.path).name}", _content(shard, by_checksums)] for shard in context.split.shards]
    if context.backbone is not None:
        pairs += context.backbone.identity
    return [*pairs, ["kept", str(before[-1].gives)], *_makers(flat, context)]


def _canonical(stage: Stage, shards: int) -> Stage:
    """The same stage for all that mean the same: no more shards are open than there are."""
    if not isinstance(stage, Interleave):
        return stage
    cycle_length = min(stage.cycle_length, shards)
    return dataclasses.replace(
        stage,
        cycle_length=cycle_length,
        block_length=1 if cycle_length == 1 else stage.block_length,
        num_parallel_calls="autotune",
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _makers(flat: Sequence[PlannedStage], context: Context) -> Identity:
    """The code that makes the examples. TensorFlow is a part of it only where it decodes or computes."""
    stages = [planned.stage for planned in flat]
    roots: list[Any] = [Source.parser, *(context.backbone.makers if context.backbone is not None else ())]
    roots += [made for stage in stages for made in (type(stage), STEPS.get(type(stage)) or DATASET_STAGES[type(stage)])]
    code = [["python", "{}.{}".format(*sys.version_info)]]  # code is compiled otherwise by each
    code += [[f"code {module}", digest] for module, digest in code_of(roots).items()]
    computes = any(type(stage) in STEPS and not isinstance(stage, Parse) for stage in stages)
    computes = computes or any(getattr(stage, "decode", False) for stage in stages)
    versions = [["tensorflow", tf.__version__]] if computes else []
    if any(isinstance(stage, Tfds) for stage in stages):  # its order is that library's
        versions.append(["tensorflow-datasets", tfds.__version__])
    return [*code, *versions]


def _content(shard: Shard, by_checksums: bool) -> list[Any]:  # noqa: FBT001 - of one call
    """Size, records that are read, and a hash over all checksums that the file holds of its records.

    A record whose data has changed and whose checksum has not can't be read. Files of other kinds are hashed whole.
    """
    stat = Path(shard.path).stat()
    return [
        stat.st_size,
        shard.skip,
        shard.take,
        _digest(Path(shard.path), by_checksums, stat.st_size, stat.st_mtime_ns),
    ]


@lru_cache
def _digest(path: Path, by_checksums: bool, size: int, _mtime_ns: int) -> str:  # noqa: FBT001 - see `_content`
    """Once for the splits that share a file, as long as it is the same."""
    digest = hashlib.sha256()
    if not by_checksums or ".tfrecord" not in path.name:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    elif size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = 0
            while place + _HEAD <= len(data):
                (length,) = struct.unpack_from("<Q", data, place)
                foot = place + _HEAD + length
                digest.update(data[place : place + _HEAD] + data[foot : foot + _FOOT])
                place = foot + _FOOT
    return digest.hexdigest()[:16]
