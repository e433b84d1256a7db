"""A dataset in a store: shards are published as they are finished, and the metadata when all of them are there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from threading import Event

from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.shards import Shard
from etlrun.datasets.prepare.work import INFO, require_new
from etlrun.remote.failures import UnreachableError
from etlrun.remote.objects import Object, looked_up
from etlrun.remote.put import put, remove, there
from etlrun.system.errors import WorldError


class Store:
    """The place of a version in a store.

    Shards that are published are noted in a file on this machine, so that a command after one that was killed neither
    writes nor uploads them again. A shard is known by the content of its images, their labels and their order.

    Attributes:
        stop: Ends tries to publish shards when it is set.
    """

    def __init__(self, options: Options) -> None:
        """List what a command that was killed has left there; raise `UnreachableError` if the store does not tell."""
        self.stop = Event()
        self._options, self._notes = options, options.family / f"published.{options.version}.jsonl"
        self._left = {*there(options.place, {})}
        self._known: dict[tuple[str, str], Object] = {}
        self._shards: list[Object] = []
        with suppress(FileNotFoundError):
            for line in self._notes.read_text().splitlines():
                with suppress(ValueError):  # of a line that a kill has cut
                    file, key, of = json.loads(line)
                    self._known[file, key] = Object(**of)

    def published(self, shard: Shard) -> int | None:
        """Return the size of a shard that was published before; None if it was not, or is another object now."""
        of = self._known.get((shard.file, _key(shard)))
        with suppress(UnreachableError):
            if of is not None and looked_up(of.url, {}) == of:
                self._shards.append(of)
                return of.bytes
        return None

    def publish_shard(self, shard: Shard, path: Path) -> None:
        """Publish a shard that is complete, and empty its file; raise `UnreachableError` if that can't be."""
        url = f"{self._options.place}/{shard.file}"
        of = put(path, url, {}, self.stop, replaces=url in self._left)
        self._shards.append(of)
        with self._notes.open("a") as file:
            file.write(json.dumps([shard.file, _key(shard), dataclasses.asdict(of)]) + "\n")
        path.write_bytes(b"")  # the name of which TFDS wants to find

    def publish(self, folder: Path) -> None:
        """Publish the metadata in `folder`, of which a reader needs the last one; shards of others are removed before.

        Raises:
            WorldError: The version exists by now, or another command has changed its shards.
        """
        require_new(self._options)
        for of in self._shards:
            if looked_up(of.url, {}) != of:
                found, remedy = "another content than was written", "run it again, while nothing else writes there"
                raise WorldError(where=of.url, found=found, expected="what this command has written", remedy=remedy)
        own = {of.url: of.name for of in self._shards}
        for url in self._left - {*own}:
            if url.startswith(f"{self._options.place}/{self._options.name}-") and ".tfrecord-" in url:
                remove(url, {})
        metadata = [path for path in folder.iterdir() if path.name not in own.values()]
        for path in sorted(metadata, key=lambda path: (path.name == INFO, path.name)):
            put(path, f"{self._options.place}/{path.name}", {}, replaces=path.name != INFO)
        self._notes.unlink(missing_ok=True)


def _key(shard: Shard) -> str:
    digest = hashlib.sha256()
    for image in shard.images:
        digest.update(f"{image.digest} {image.label}\n".encode())
    return digest.hexdigest()
