"""TFDS dataset on disk: its shards and features, and errors if it is missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.errors import WorldError, did_you_mean, headline
from etlrun.sources.content import Content, Shard
from etlrun.sources.features import checked
from etlrun.sources.numbered import Numbered
from etlrun.sources.prepare import is_prepared, prepare
from etlrun.stages.base import is_remote
from etlrun.stages.dataset import SAMPLE_NAME, Dataset

Example = dict[str, tf.Tensor]


@dataclass(frozen=True, kw_only=True)
class Split:
    """A subset of the examples of a dataset.

    Attributes:
        name: Name in TFDS's slicing language.
        shards: Shards in the order of their names.
        num_examples: Number of examples in all shards.
    """

    name: str
    shards: tuple[Shard, ...]
    num_examples: int

    @cached_property
    def content(self) -> Content:
        """Content of the shards at the time of the first access."""
        return Content(self.shards)

    @cached_property
    def numbered(self) -> Numbered:
        """The records by number; see `Numbered` for what it raises."""
        return Numbered(self.shards)


class Source:
    """A prepared dataset.

    Attributes:
        builder: TFDS's builder.
        num_classes: Number of classes of a class target, an integer in [0, num_classes); None for other targets.
    """

    def __init__(self, dataset: Dataset) -> None:
        """Find the dataset, and prepare it if that is allowed; raise `WorldError` if it isn't available."""
        self.dataset = dataset
        self.builder = open_builder(dataset)
        if not is_prepared(self.builder):
            prepare(self.builder, dataset)
            self.builder = open_builder(dataset)  # this builder doesn't know what another process has prepared
        self.num_classes = checked(self.builder.info, dataset)

    def split(self, name: str, where: str) -> Split:
        """Return the examples of the split `name`; `where` is the config key for messages."""
        known = self.builder.info.splits
        try:
            instructions = known[name].file_instructions
        except (KeyError, ValueError, AssertionError) as error:
            whole = name.split("[", maxsplit=1)[0]
            raise WorldError(
                where=where,
                found=f"'{name}', which {self.builder.info.full_name} does not have",
                expected=f"a part of one of its splits: {', '.join(known)}",
                remedy=did_you_mean(whole, known, name.replace(whole, "{}", 1), otherwise="see TFDS's slicing"),
            ) from error
        shards = tuple(
            Shard(
                path=str(item.filename),
                skip=item.skip,
                take=item.examples_in_shard - item.skip if item.take == -1 else item.take,
            )
            for item in instructions
        )
        split = Split(name=name, shards=shards, num_examples=sum(shard.take for shard in shards))
        if not split.num_examples:
            raise WorldError(
                where=where,
                found=f"no examples in '{name}' of {self.builder.info.full_name}",
                expected="at least one",
                remedy="choose a larger part of the split",
            )
        self._all_there(split)
        return split

    def _all_there(self, split: Split) -> None:
        for path in (Path(shard.path) for shard in split.shards):
            try:
                if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
                    raise self.unreadable(str(path), "not a regular file")
                with path.open("rb") as file:
                    file.read(1)
            except OSError as error:
                raise self.unreadable(str(path), error.strerror or str(error)) from error

    def unreadable(self, path: str, reason: str) -> WorldError:
        """Return the error for a shard that can't be opened or read, with the system's reason."""
        shard, is_gone = f"a shard of {self.builder.info.full_name}", reason == os.strerror(errno.ENOENT)
        return WorldError(
            where=path,
            found="no such file" if is_gone else reason,
            expected=shard if is_gone else f"{shard} that can be read",
            remedy=f"remove {Path(path).parent} and run again, so that the dataset is prepared again"
            if is_gone
            else "check the file's permissions and its storage",
        )

    def parser(self) -> Callable[[tf.Tensor], Example]:
        """Return a function from a serialised example (string scalar), or a batch of them, to its features by name."""
        keys, features = self.dataset.keys, self.dataset.examples.features
        specs = {
            key: tf.io.FixedLenFeature(features[name].shape, tf.as_dtype(features[name].stored))
            for name, key in keys.items()
        }
        casts = {name: of.dtype for name, of in features.items() if of.dtype != of.stored}

        def parse(record: tf.Tensor) -> Example:
            read = tf.io.parse_example if record.shape.rank else tf.io.parse_single_example
            found = read(record, specs)
            example = {name: found[key] for name, key in keys.items()}
            return {name: tf.cast(of, casts[name]) if name in casts else of for name, of in example.items()}

        return parse


def open_builder(dataset: Dataset) -> Any:
    """Return TFDS's builder of `dataset`; raise `WorldError` if there is none."""
    if dataset.name == SAMPLE_NAME:
        import etlrun.sources.sample.builder  # noqa: F401 - registers the dataset with TFDS
    name = f"{dataset.name}:{dataset.version}" if dataset.version else dataset.name
    data_dir = str(Path(dataset.data_dir).expanduser()) if dataset.data_dir else None
    if data_dir is None and is_remote(str(tfds.core.constants.DATA_DIR)):
        raise WorldError(
            where="TFDS_DATA_DIR",
            found=str(tfds.core.constants.DATA_DIR),
            expected="a folder on this machine",
            remedy="mount it or copy it here, and set dataset.data_dir to the folder",
        )
    try:
        return tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, AssertionError, ValueError) as error:
        known, check = (
            tfds.list_builders(with_community_datasets=False),
            "dataset.name, dataset.version and dataset.data_dir",
        )
        raise WorldError(
            where=dataset.key("name"),
            found=f"{name} in {data_dir or tfds.core.constants.DATA_DIR}: {headline(error)}",
            expected="a dataset known to TFDS, or its files in dataset.data_dir",
            remedy=did_you_mean(dataset.name, known, "{}", otherwise=f"check {check}"),
        ) from error
