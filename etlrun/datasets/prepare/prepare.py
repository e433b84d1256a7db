"""Preparation of a source: its check, its splits, its shards and its metadata, here or in a store."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare import check
from etlrun.datasets.prepare.check import Image, digest_of, in_order
from etlrun.datasets.prepare.options import LARGEST_SHARD_BYTES, Options
from etlrun.remote.objects import (
    LISTING,
    Object,
    UnreachableError,
    answered,
    changed,
    file_system,
    looked_up,
    scheme_of,
    status_of,
)
from etlrun.remote.transfers import md5_of
from etlrun.sources.framing import AROUND, framed
from etlrun.sources.listing import Listing, class_faults
from etlrun.stages.dataset import IMAGE, LABEL
from etlrun.stages.lazy import tf, tfds
from etlrun.system.errors import EtlrunError, WorldError, counted, fault, one_line, refuse
from etlrun.system.files import alone, sync
from etlrun.system.terminal import progress
from etlrun.system.values import frozen

INFO = "dataset_info.json"
"""The file without which TFDS reads no version."""
_IS_THERE = 412
"""Status of HTTP of an object that is not to be overwritten."""


def publish(version: Path, target: Path) -> None:
    """Make a version appear at `target`, complete and on disk."""
    for path in version.iterdir():
        sync(path)
    sync(version)
    version.rename(target)
    sync(target.parent)


@contextmanager
def working(options: Options) -> Iterator[Path]:
    """Yield an empty folder in which this process alone prepares a version: `NAME/preparing.VERSION`.

    What one that was killed left there is removed. TFDS ignores its name, and what removes TFDS's leftovers leaves it.
    For a store it is in the user's cache folder.

    Raises:
        WorldError: The version exists, or its folder can't be written to.
    """
    folder = options.family / f"preparing.{options.version}"
    try:
        options.family.mkdir(parents=True, exist_ok=True)
        told = f"another command is preparing {options.name}; waiting for it"
        with alone(options.family / ".etlrun.lock", longest_s=math.inf, waiting=told):
            require_new(options)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT} or options.url is not None
        raise WorldError(
            str(error.filename or options.family),
            error.strerror or str(error),
            "a folder that can be written to, with space for the images",
            "free disk space, and run the same command again" if is_full else "choose another --data-dir",
        ) from error


def require_new(options: Options) -> None:
    """Raise `WorldError` if the version exists."""
    if f"{options.place}/{INFO}" in stored(options) if options.url else os.path.lexists(options.target):
        major, minor, patch = options.version.split(".")
        raise WorldError(
            options.place,
            f"version {options.version} of {options.name}, which is never overwritten",
            "a version that doesn't exist",
            f"choose another version, such as --version {major}.{minor}.{int(patch) + 1}",
        )


@frozen
class WrittenShard:
    """A shard.

    Attributes:
        split: Split that it belongs to.
        file: Name of the file, as TFDS expects it.
        images: Its examples, in order.
    """

    split: str
    file: str
    images: Sequence[Image]


def planned(name: str, splits: Mapping[str, Sequence[Image]], count: int | None) -> list[WrittenShard]:
    """Return the shards of a dataset, `count` of each split if given, none without examples."""
    shards = []
    for split, images in splits.items():
        total = sum(image.size for image in images)
        number_of = min(count or -(-total // LARGEST_SHARD_BYTES) or 1, len(images))
        for number in range(number_of):
            start, end = (len(images) * place // number_of for place in (number, number + 1))
            file = f"{name}-{split}.tfrecord-{number:05d}-of-{number_of:05d}"
            shards.append(WrittenShard(split=split, file=file, images=images[start:end]))
    return shards


def write(
    source: Path,
    shards: Sequence[WrittenShard],
    folder: Path,
    done: Callable[[int], None],
    store: VersionStore | None = None,
) -> dict[str, int]:
    """Write shards of images in `source` to `folder`, or by way of it to a store; return the bytes of each by name.

    `done` is told how many further examples it has.

    Raises:
        WorldError: An image has changed since it was checked; the store refuses a shard.
        OSError: A file can't be written.
    """

    def written(shard: WrittenShard) -> int:
        path = folder / shard.file
        with path.open("wb") as file:
            for image in shard.images:
                features = {
                    IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[_read(source / image.path, image)])),
                    LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[image.label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                file.writelines(framed(example.SerializeToString(deterministic=True)))
                done(1)
        size = path.stat().st_size
        if store is not None:
            store.put_shard(path)
        return size

    return {shard.file: size for shard, size in zip(shards, in_order(written, shards), strict=True)}


def _read(path: Path, image: Image) -> bytes:
    try:
        data = path.read_bytes()
        found = "" if digest_of(data).hex() == image.digest else "other content than a moment ago"
    except OSError as error:
        found = error.strerror or one_line(error)
    if found:
        remedy = "run the command again, while nothing else writes to the source"
        raise WorldError(str(path), found, "the file that was checked", remedy)
    return data


def stored(options: Options) -> list[str]:
    """Return the URLs of what a store has of a version; raise `UnreachableError` if it is none to write to."""
    url, scheme = options.place, scheme_of(options.place)
    if scheme not in LISTING:
        expected = "s3:// or gs://, whose objects appear whole"
        raise UnreachableError(url, f"the scheme {scheme}", expected, "write here, and copy it there")
    files = file_system(url, {})

    def asked() -> Any:
        files.invalidate_cache()
        return files.find(url)

    return [f"{scheme}://{path}" for path in answered(url, asked)]


class VersionStore:
    """The place of a version in a store, in which what a command that was killed has left there is replaced."""

    def __init__(self, options: Options) -> None:
        self._options, self._left = options, stored(options)
        self._shards: list[Object] = []

    def _put(self, path: Path) -> Object:
        url = f"{self._options.place}/{path.name}"
        files, mode = file_system(url, {}), "overwrite" if url in self._left else "create"
        try:
            answered(url, lambda: files.put_file(str(path), url, mode=mode))
        except UnreachableError as error:
            if error.__cause__ is None or status_of(error.__cause__) != _IS_THERE:
                raise
            with path.open("rb") as file:
                md5 = md5_of(file)
            if looked_up(url, {}).md5 != md5:  # else it is of a try whose answer was lost
                expected, remedy = "no object there", "run it again, while nothing else writes there"
                raise UnreachableError(url, "another object", expected, remedy) from error
        return looked_up(url, {})

    def put_shard(self, path: Path) -> None:
        """Put a complete shard there, and empty its file; raise `UnreachableError` if that can't be."""
        self._shards.append(self._put(path))
        path.write_bytes(b"")  # the name of which TFDS wants to find

    def publish(self, folder: Path) -> None:
        """Put the metadata in `folder` there, of which a reader needs the last one; shards of others go before.

        Raises:
            WorldError: The version exists by now, or another command has changed its shards.
        """
        require_new(self._options)
        if errors := [*changed(self._shards, {})]:
            raise UnreachableError.together(errors)
        own, beginning = {of.url: of.name for of in self._shards}, f"{self._options.place}/{self._options.name}-"
        for url in self._left:
            if url not in own and url.startswith(beginning) and ".tfrecord-" in url:
                answered(url, partial(file_system(url, {}).rm_file, url))
        metadata = [path for path in folder.iterdir() if path.name not in own.values()]
        for path in sorted(metadata, key=lambda path: (path.name == INFO, path.name)):
            self._put(path)


def require_unknown(options: Options) -> None:
    """Refuse the name of a dataset that TFDS would download instead of reading this one."""
    if options.name in tfds.list_builders(with_community_datasets=False):
        raise WorldError(
            "--name",
            f"{options.name}, which is a dataset of TFDS",
            "a name of its own",
            f"choose another name, such as --name my_{options.name}",
        )


def write_metadata(
    options: Options, folder: Path, shards: Sequence[WrittenShard], sizes: Mapping[str, int], classes: Sequence[str]
) -> None:
    """Write features, classes, and splits of shards to `folder`; `sizes` are the bytes of their files, by name."""
    features = tfds.features.FeaturesDict(
        {IMAGE: tfds.features.Image(shape=(None, None, 3)), LABEL: tfds.features.ClassLabel(names=list(classes))}
    )
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}", dataset_name=options.name,
        filetype_suffix="tfrecord",
    )  # fmt: skip
    splits = []
    for name in dict.fromkeys(shard.split for shard in shards):
        own = [shard for shard in shards if shard.split == name]
        splits.append(
            tfds.core.SplitInfo(
                name=name,
                shard_lengths=[len(shard.images) for shard in own],
                num_bytes=sum((sizes[shard.file] - AROUND * len(shard.images)) for shard in own),
                filename_template=template.replace(split=name),
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=splits,
        version=options.version,
        check_data=False,
        description="Labelled images, prepared by etlrun.",
        supervised_keys=(IMAGE, LABEL),
    )


def prepare(options: Options, listing: Listing) -> tuple[list[WrittenShard], dict[str, int], list[Image]]:
    """Write a folder of images as a dataset of TFDS, which appears when it is complete.

    Its shards, the bytes of their files by name, and the images that are left out are returned. What a run that was
    killed left is removed. The source is only read.

    Raises:
        EtlrunError: All broken images, unless they are skipped; a version that exists; a full disk.
    """
    require_unknown(options)
    with working(options) as folder, progress() as task:
        version = folder / "version"
        version.mkdir()
        every = check.check(listing, task("checked", sum(map(len, listing.splits.values()))))
        refuse(() if options.skips_corrupt else check.faults_of(listing, every), EtlrunError)
        images, classes, labels = [of for of in every if not of.reason], listing.classes, dict[str, set[str]]()
        for of in images:
            labels.setdefault(of.split, set()).add(classes[of.label])
        lost = [f"the class {name}" for name in classes if not any(name in of for of in labels.values())]
        lost += [f"the split {name}" for name in sorted(listing.splits) if name not in labels]
        what, expected = "all of whose images are broken", "images that can be decoded"
        faults = [fault(listing.folder, f"{of}, {what}", expected, "repair them") for of in lost]
        refuse(faults or class_faults(listing.folder, classes, labels), EtlrunError)
        if options.percents is not None:
            images = check.assigned(images, options.percents, options.seed)
            if empty := [name for name in options.percents if name not in {image.split for image in images}]:
                what = f"no examples for {', '.join(empty)} among {counted(len(images), 'image')}"
                remedy = "choose other percents or more images"
                raise EtlrunError([fault("--split", what, "examples for each split", remedy)])
        splits = sorted(check.ordered(images, options.seed).items(), key=lambda of: (not is_training(of[0]), of[0]))
        shards = planned(options.name, dict(splits), options.shards)
        store = None if options.url is None else VersionStore(options)
        sizes = write(listing.folder, shards, version, task("written", len(images)), store)
        write_metadata(options, version, shards, sizes, classes)
        publish(version, options.target) if store is None else store.publish(version)
    return shards, sizes, [of for of in every if of.reason]


def is_training(split: str) -> bool:
    """Return whether a split is that of training, by its name."""
    return split.lower().startswith("train")
