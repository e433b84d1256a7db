"""Shards of URLs, of which copies are fetched while they are read; their content is known by the objects' versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, name_copies
from etlrun.remote.objects import Object, UnreachableError, looked_up
from etlrun.sources.base import Identified, Records, Source, Split
from etlrun.sources.content import Shard
from etlrun.stages.dataset import Declared
from etlrun.stages.lazy import tf
from etlrun.stages.paths import bytes_kept

_LOOKED_UP_AT_ONCE = 16


def copies_of(dataset: Declared) -> Copies:
    """Return the copies of the objects of a dataset."""
    return Copies(folder_of(dataset.copies), dataset.storage or {}, bytes_kept(dataset.keep))


def fetched(of: Object, copies: Copies) -> str:
    """Return the path of the copy of an object, fetched if it is missing; it may soon be removed again."""
    with closing(copies.ahead([of])) as ahead:
        return ahead.take(of)


def remote(split: Split, objects: Mapping[str, Object], copies: Copies) -> RemoteSplit:
    """Return a split of shards of which `objects` are fetched, by the paths of their copies."""
    name_copies(objects.values(), copies)
    return RemoteSplit(**vars(split), objects=objects, copies=copies)


@dataclass(frozen=True, kw_only=True)
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
        return hashlib.sha256(json.dumps(self.files(whole=False)).encode()).hexdigest()[:16]

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


class NothingCompared:
    """A comparison of nothing."""

    def add(self, place: Any, data: Any) -> None:
        """Do nothing."""
