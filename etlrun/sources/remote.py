"""Shards of URLs, of which copies are fetched while they are read; their content is known by the objects' versions.

Of datasets of TFDS there are folders on this machine that look like those of one:

DIR/mirrors/KEY/NAME/VERSION/   copies of the metadata, and links to the copies of the shards, which are fetched later
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fnmatch import fnmatch
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.remote.copies import Copies, copies_of, name_copies
from etlrun.remote.objects import Object, Storage, UnreachableError, file_system, list_objects, looked_up
from etlrun.remote.room import unwritable
from etlrun.sources.base import Identified, Records, Source, Split
from etlrun.sources.content import NothingCompared, Shard, digest
from etlrun.sources.shards import known_counts, tfrecord_files
from etlrun.sources.slices import slices
from etlrun.stages.dataset import Declared, TfdsDataset, TFRecords
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, WorldError
from etlrun.system.hidden import is_closed
from etlrun.system.machine import rounded
from etlrun.system.values import frozen

_LOOKED_UP_AT_ONCE = 16


def fetched(of: Object, copies: Copies) -> str:
    """Return the path of the copy of an object, fetched if it is missing; it may soon be removed again."""
    with closing(copies.ahead([of])) as ahead:
        return ahead.take(of)


def remote(split: Split, objects: Mapping[str, Object], copies: Copies) -> RemoteSplit:
    """Return a split of shards of which `objects` are fetched, by the paths of their copies."""
    name_copies(objects.values(), copies)
    return RemoteSplit(**vars(split), objects=objects, copies=copies)


@frozen
class RemoteSplit(Split):
    """A split whose shards are objects of URLs. The paths of its shards are those of their copies.

    Attributes:
        objects: Objects by the paths of their copies.
        copies: The copies.
    """

    objects: Mapping[str, Object]
    copies: Copies
    is_compared: ClassVar[bool] = False

    @cached_property
    def content(self) -> Identified:
        return VersionedContent([(shard, self.objects[shard.path]) for shard in self.shards], self.copies)

    @cached_property
    def numbered(self) -> Records:
        self.fetch()
        return super().numbered

    @property
    def sizes(self) -> dict[str, int]:
        return {path: self.objects[path].bytes for path in self.paths}

    def fetch(self) -> None:
        """Fetch all shards that are missing; raise `EtlrunError` if that can't be."""
        self.copies.all([self.objects[path] for path in self.paths])

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        """Return records of a shard, which is fetched first if `path` is no tensor: a pass fetches it by itself."""
        if isinstance(path, str):
            fetched(self.objects[path], self.copies)
        return super().read(path, skip, take)

    def labels(self, source: Source) -> npt.NDArray[np.int64]:
        self.fetch()
        return super().labels(source)

    def place(self, shard: Shard, number: int) -> tuple[str, int | None]:
        return self.objects[shard.path].url, number


class VersionedContent:
    """Content of shards by the versions of their objects, which can't change without those."""

    def __init__(self, shards: Sequence[tuple[Shard, Object]], copies: Copies) -> None:
        self._shards, self._storage = shards, copies.storage

    @property
    def digest(self) -> str | None:
        """First 16 hex digits of a SHA-256 over what is read: file names, positions and versions."""
        return digest(self.files(whole=False))

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return for each shard its file name, the records that are read, and the version of the object."""
        return [[of.name, [shard.skip, shard.take, of.bytes, of.version]] for shard, of in self._shards]

    def changed(self) -> str | None:
        """Return the URL of an object that has another version now, or can't be looked up; None if there is none."""
        objects = [*dict.fromkeys(of for _, of in self._shards)]
        with ThreadPoolExecutor(_LOOKED_UP_AT_ONCE) as pool:
            are_same = [*pool.map(self._is_same, objects)]
        return next((of.url for of, is_same in zip(objects, are_same, strict=True) if not is_same), None)

    def compared(self) -> NothingCompared:
        """Return a comparison of nothing, since copies are compared with their objects when they are fetched."""
        return NothingCompared()

    def _is_same(self, of: Object) -> bool:
        try:
            return looked_up(of.url, self._storage) == of
        except UnreachableError:
            return False


_INFO = "dataset_info.json"
_METADATA = (".json", ".txt")
"""Ends of the names of files that describe the dataset, or name its classes."""


@frozen
class Mirror:
    """A version of a dataset at a URL.

    Attributes:
        url: URL of the version.
        folder: The folder on this machine.
        objects: Its files by name.
    """

    url: str
    folder: Path
    objects: Mapping[str, Object]


def mirror_of(dataset: TfdsDataset) -> Mirror:
    """Return the newest version that matches, as it was when it was first asked for; its metadata are fetched.

    Raises:
        EtlrunError: There is none, or its files can't be listed or read.
    """
    copies = copies_of(dataset)
    url, objects = _found(dataset.urls[0], dataset.name, dataset.version, dataset.storage or {})
    parts = [objects[name].key for name in sorted(objects)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
    folder = copies.folder.absolute().parent / "mirrors" / key / dataset.name / PurePosixPath(url).name
    if not (folder / _INFO).is_file():
        try:
            described = _described(objects)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with closing(copies.ahead(described)) as ahead, tempfile.TemporaryDirectory(dir=folder.parent) as made:
                staged = Path(made) / folder.name
                staged.mkdir()
                for name, of in objects.items():
                    if of in described:
                        shutil.copyfile(ahead.take(of), staged / name)
                        ahead.leave(of)
                    else:
                        (staged / name).symlink_to(Path(copies.path(of)).absolute())
                try:
                    staged.rename(folder)
                except OSError:
                    if not (folder / _INFO).is_file():  # that another process has made
                        raise
        except OSError as error:
            raise unwritable(error, folder, sum(of.bytes for of in _described(objects)), url) from error
    return Mirror(url=url, folder=folder, objects=objects)


def _found(home: str, name: str, version: str | None, store: Storage) -> tuple[str, dict[str, Object]]:
    """Return the URL of a version, and its files by name."""
    family = f"{home.rstrip('/')}/{name}"
    homes = [of.url.rpartition("/")[0] for of in list_objects(f"{family}/*/{_INFO}", store)]
    versions = {url.rpartition("/")[2]: url for url in homes}
    known = [of for of in versions if re.fullmatch(r"\d+\.\d+\.\d+", of)]
    known.sort(key=lambda of: [int(number) for number in of.split(".")])
    fitting = [of for of in known if fnmatch(of, version or "*")]
    if not fitting:
        if known:
            raise WorldError(
                TfdsDataset.key("version"),
                f"{version}, which is not in {family}",
                f"a version that is there: {', '.join(known)}",
                f"set dataset.version={known[-1]}, or null for the newest",
            )
        try:
            file_system(family, store).ls(family, detail=False)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise UnreachableError.of(family, error) from error
        raise WorldError(
            TfdsDataset.key("data_dir"),
            f"no {family}/VERSION/{_INFO}",
            f"the folder above that of {name}, as TFDS and etlrun prepare write it",
            "check dataset.data_dir and dataset.name",
        )
    url = versions[fitting[-1]]
    return url, {of.name: of for of in list_objects(f"{url}/*", store)}


def _described(objects: Mapping[str, Object]) -> list[Object]:
    return [of for name, of in objects.items() if name.endswith(_METADATA)]


_Counts = Mapping[str, Mapping[str, int]]
"""Numbers of examples by split, and in it by file."""


def note_of_fetching(dataset: Declared) -> str | None:
    """Return the note on the bytes that a run has to fetch from URLs, and those that are here, or why it is not known.

    None if what the store says of the dataset is not what it holds, which the run says.
    """
    if is_closed(dataset.storage):
        return "to fetch: unknown, since only a run reads the variables of dataset.storage"
    try:
        objects = [*_needed(dataset)]
    except EtlrunError as error:
        fault = error.faults[0]
        return f"to fetch: unknown, since a run would fail: {fault.where}: found {fault.found}"
    except (OSError, ValueError):
        return None
    missing = copies_of(dataset).missing(objects)
    whole, left = sum(of.bytes for of in objects), sum(of.bytes for of in missing)
    shards = f"{len(objects):,} shard{'s' * (len(objects) != 1)}"
    if not missing:
        return f"to fetch: nothing, {'all ' * (len(objects) > 1)}{shards} ({rounded(whole)}) are here"
    here = f"; {rounded(whole - left)} are here" if left < whole else ""
    return f"to fetch: {rounded(left)} in {f'{len(missing):,} of ' * bool(here)}{shards}{here}"


def _needed(dataset: Declared) -> Iterator[Object]:
    """Yield the objects with the examples of both splits, each once."""
    counts, objects = _of_tfds(dataset) if isinstance(dataset, TfdsDataset) else _of_files(dataset)
    if counts is None:  # all are counted first
        yield from dict.fromkeys(objects.values())
        return
    totals, found = {name: sum(of.values()) for name, of in counts.items()}, dict[Object, None]()
    for split in filter(None, (dataset.split, dataset.eval_split)):
        parts = slices(split, totals) or [(name, 0, count) for name, count in totals.items()]
        for name, start, end in parts:
            firsts = [0, *accumulate(counts[name].values())]
            for (file, count), first in zip(counts[name].items(), firsts[:-1], strict=True):
                if max(start, first) < min(end, first + count):
                    if file not in objects:
                        raise WorldError(file, "no such file", "a shard of the dataset", "write all shards there")
                    found[objects[file]] = None
    yield from found


def _of_tfds(dataset: TfdsDataset) -> tuple[_Counts, Mapping[str, Object]]:
    mirror = mirror_of(dataset)
    splits = json.loads((mirror.folder / "dataset_info.json").read_text()).get("splits", [])
    counts = {}
    for of in splits:
        lengths = [int(length) for length in of.get("shardLengths", [])]
        ends = [f"-{of['name']}.tfrecord-{number:05d}-of-{len(lengths):05d}" for number in range(len(lengths))]
        absent = f"{mirror.url}/{dataset.name}"
        files = [next((name for name in mirror.objects if name.endswith(end)), absent + end) for end in ends]
        counts[of["name"]] = dict(zip(files, lengths, strict=True))
    return counts, mirror.objects


def _of_files(dataset: Declared) -> tuple[_Counts | None, Mapping[str, Object]]:
    assert isinstance(dataset, TFRecords)  # noqa: S101 - there is no third kind
    files, objects = tfrecord_files(dataset)
    known = known_counts(objects, copies_of(dataset))
    if known.keys() != objects.keys():
        return None, objects
    return {split: {path: known[path] for path in paths if path in known} for split, paths in files.items()}, objects
