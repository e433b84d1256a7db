"""TFDS dataset on disk: its shards and features, and errors if it is missing."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from etlrun.sources.base import Example, Source, Split, all_there, parser_of
from etlrun.sources.on_disk import CLASSES, OnDisk
from etlrun.sources.slices import slices
from etlrun.stages.dataset import LABEL, SAMPLE_NAME, TfdsDataset
from etlrun.stages.lazy import tf, tfds
from etlrun.stages.paths import is_remote
from etlrun.system.errors import EtlrunError, WorldError, did_you_mean, headline

_INFO = "dataset_info.json"
_PREPARED = f"*/*/{_INFO}"
"""Files of datasets that are prepared, in a data folder of TFDS."""


class TfdsSource(Source):
    """A dataset prepared by TFDS.

    Attributes:
        builder: TFDS's builder.
    """

    dataset: TfdsDataset

    def __init__(self, dataset: TfdsDataset) -> None:
        """Find the dataset, and prepare it if that is allowed; raise `WorldError` if it isn't available."""
        from etlrun.sources.features import checked
        from etlrun.sources.prepare import is_prepared, prepare

        self.dataset = dataset
        if dataset.urls:
            from etlrun.sources.remote import copies_of

            self.copies = copies_of(dataset)
        self.builder = open_builder(dataset)
        if not is_prepared(self.builder):
            prepare(dataset, open_builder)
            self.builder = open_builder(dataset)  # this builder doesn't know what another process has prepared
        _require_tfrecords(self.builder)
        self.full_name = self.identity = self.builder.info.full_name
        self.num_classes = checked(self.builder.info, dataset)
        target = self.builder.info.features[dataset.keys[dataset.examples.target]]
        names = getattr(target, "names", dataset.examples.features[dataset.examples.target].classes)
        self.class_names = tuple(names) if self.num_classes is not None else None

    def names_of(self, target: str) -> tuple[str, ...]:
        feature = self.builder.info.features[self.dataset.keys[target]]
        return tuple(getattr(feature, "names", None) or super().names_of(target))

    @classmethod
    def on_disk(cls, dataset: TfdsDataset) -> OnDisk:
        home = home_of(dataset)
        if home is None:
            return OnDisk()
        splits = _read(home / _INFO).get("splits", [])
        sizes = {of["name"]: (sum(map(int, of.get("shardLengths", []))), int(of.get("numBytes", 0))) for of in splits}
        return OnDisk(full_name=f"{dataset.name}/{home.name}", sizes=sizes)

    @classmethod
    def begin(cls, dataset: TfdsDataset) -> None:
        if dataset.name == SAMPLE_NAME and dataset.download and home_of(dataset) is None:
            from etlrun.sources.sample.ahead import begin

            begin()

    @classmethod
    def by_class(cls, dataset: TfdsDataset, split: str) -> dict[str, int] | None:
        home = home_of(dataset)
        if home is None or dataset.keys[dataset.examples.target] != LABEL:
            return None
        known, counts = _read(home / "metadata.json").get(CLASSES, {}), cls.on_disk(dataset).counts
        parts = slices(split, counts)
        if not parts or any(name not in known or (start, end) != (0, counts[name]) for name, start, end in parts):
            return None
        return {label: sum(known[name].get(label, 0) for name, _, _ in parts) for label in known[parts[0][0]]}

    @property
    def counts(self) -> dict[str, int]:
        return {name: split.num_examples for name, split in self.builder.info.splits.items()}

    def split(self, name: str, where: str) -> Split:
        from etlrun.sources.content import Shard

        try:
            instructions = self.builder.info.splits[name].file_instructions
        except (KeyError, ValueError, AssertionError) as error:
            raise self.unknown_split(name, where) from error
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
            raise self.empty_split(name, where)
        if self.dataset.urls:
            return self._remote(split)
        all_there(self, split)
        return split

    def _remote(self, split: Split) -> Split:
        """Return a split of copies of the objects at the URL; raise `WorldError` if one is missing there."""
        from etlrun.sources.mirror import mirror_of
        from etlrun.sources.remote import copies_of, remote

        mirror, copies = mirror_of(self.dataset), self.copies or copies_of(self.dataset)
        names = [Path(shard.path).name for shard in split.shards]
        for name in names:
            if name not in mirror.objects:
                raise self.unreadable(f"{mirror.url}/{name}", os.strerror(errno.ENOENT))
        paths = [copies.path(mirror.objects[name]) for name in names]
        shards = tuple(replace(shard, path=path) for shard, path in zip(split.shards, paths, strict=True))
        objects = {path: mirror.objects[name] for path, name in zip(paths, names, strict=True)}
        return remote(replace(split, shards=shards), objects, copies)

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parser_of(self.dataset)

    def file_of(self, path: str) -> str:
        return f"a shard of {self.full_name}"

    def remedy_of(self, path: str) -> str:
        if self.dataset.urls:
            return "write all shards there"
        return f"remove {Path(path).parent} and run again, so that the dataset is prepared again"


def home_of(dataset: TfdsDataset) -> Path | None:
    """Return the folder of the newest version that matches; None if there is none."""
    found = [path for path in homes_of(dataset) if fnmatch(path.name, dataset.version or "*")]
    return found[-1] if found else None


def homes_of(dataset: TfdsDataset) -> list[Path]:
    """Return the folders of all versions that are prepared, the newest last."""
    if dataset.urls:
        from etlrun.sources.mirror import mirror_of

        try:
            return [mirror_of(dataset).folder]
        except EtlrunError:
            return []
    home = dataset.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    folder = Path(home).expanduser() / dataset.name
    try:
        found = [path.parent for path in folder.glob(f"*/{_INFO}")]
    except OSError:
        return []
    versions = [path for path in found if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return sorted(versions, key=lambda path: [int(number) for number in path.name.split(".")])


def _read(path: Path) -> Mapping[str, Any]:
    """Return what a JSON file of metadata holds; nothing if it can't be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _require_metadata(dataset: TfdsDataset) -> None:
    """Raise `WorldError` if the metadata of a prepared dataset are damaged, which TFDS fails to parse."""
    home = home_of(dataset)
    if home is None or _read(home / _INFO):
        return
    raise WorldError(
        str(home / _INFO),
        "metadata that are damaged, or can't be read",
        "the JSON that TFDS writes of a prepared dataset",
        f"copy the file again from where the dataset was prepared, or remove {home}, to prepare it again",
    )


def _require_tfrecords(builder: Any) -> None:
    """Raise `WorldError` if TFDS has prepared the dataset in another format, such as array_record."""
    kind = builder.info.file_format
    if kind not in (None, tfds.core.FileFormat.TFRECORD):
        raise WorldError(
            str(builder.data_dir),
            f"files of {kind.value}",
            f"files of {tfds.core.FileFormat.TFRECORD.value}",
            "prepare it with file_format='tfrecord' into another data_dir, by the program that prepared it; or "
            "write a copy: tfds.dataset_builders.store_as_tfds_dataset",
        )


def open_builder(dataset: TfdsDataset) -> Any:
    """Return TFDS's builder of `dataset`; raise `WorldError` if there is none."""
    if dataset.urls:
        from etlrun.sources.mirror import mirror_of

        return tfds.builder_from_directory(mirror_of(dataset).folder)
    name = f"{dataset.name}:{dataset.version}" if dataset.version else dataset.name
    data_dir = str(Path(dataset.data_dir).expanduser()) if dataset.data_dir else None
    if data_dir is None and is_remote(str(tfds.core.constants.DATA_DIR)):
        raise WorldError(
            "TFDS_DATA_DIR",
            str(tfds.core.constants.DATA_DIR),
            "a folder on this machine",
            f"set dataset.data_dir={tfds.core.constants.DATA_DIR}, which fetches what is prepared there",
        )
    _require_metadata(dataset)
    try:
        return _found(dataset, name, data_dir)
    except ImportError as error:
        from etlrun.sources.prepare import needs_package

        raise needs_package(dataset, error) from error
    except (tfds.core.DatasetNotFoundError, AssertionError, ValueError) as error:
        if dataset.version is not None and (homes := homes_of(dataset)):
            versions = ", ".join(path.name for path in homes)
            raise WorldError(
                dataset.key("version"),
                f"{dataset.version}, which is not in {homes[0].parent}",
                f"a version that is prepared: {versions}",
                f"set dataset.version={homes[-1].name}, or null for the newest",
            ) from error
        own = {path.parent.parent.name for path in Path(data_dir or tfds.core.constants.DATA_DIR).glob(_PREPARED)}
        known = [*sorted(own), *tfds.list_builders(with_community_datasets=False)]
        check = "dataset.name, dataset.version and dataset.data_dir"
        raise WorldError(
            dataset.key("name"),
            f"{name} in {data_dir or tfds.core.constants.DATA_DIR}: {headline(error)}",
            "a dataset known to TFDS, or its files in dataset.data_dir",
            did_you_mean(dataset.name, known, "{}", otherwise=f"check {check}"),
        ) from error


def _found(dataset: TfdsDataset, name: str, data_dir: str | None) -> Any:
    """Return what `tfds.builder` returns, without importing the code of all datasets where it isn't needed.

    If a config names a version, TFDS prefers files to code, too: those of the newest version that matches.
    """
    home = home_of(dataset) if dataset.version not in (None, "experimental_latest") else None
    if home is not None and (home / "features.json").is_file():
        return tfds.builder_from_directory(home)
    if dataset.name == SAMPLE_NAME:
        from etlrun.sources.sample.builder import EtlrunSample  # derived from a class of TFDS

        return EtlrunSample(data_dir=data_dir, version=dataset.version)
    return tfds.builder(name, data_dir=data_dir)
