"""Caches on disk without runs: filled, published, and left behind."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from etlrun.cache.keeper import Keeper
from etlrun.cache.parts import CachedColumn, Manifest, PartWriter
from etlrun.cache.store import CacheStore, Identity, key_of
from tests.present import present

IDENTITY: Identity = [["dataset", "pictures/1.0.0"], ["size", [4, 5]]]
KEY = key_of(IDENTITY)
LABEL = CachedColumn("label", "int64", [])
PICTURES = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)


class AsIs:
    """Content of files that nobody changes."""

    digest = compared = None

    def changed(self) -> str | None:
        """Return no file."""
        return None

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return none."""
        return []


def published(store: CacheStore, identity: Identity = IDENTITY, pictures: Any = PICTURES) -> str:
    """The key of a cache of these images, each labelled with its place."""
    key = key_of(identity)
    claim = present(store.claim(key))
    writer = PartWriter(claim.folder)
    for label, picture in enumerate(pictures):
        writer.add(picture, label)
    is_encoded = isinstance(pictures[0], bytes)
    dtype, shape = ("bytes", None) if is_encoded else (pictures[0].dtype.name, list(pictures[0].shape))
    columns = [CachedColumn("image", dtype, shape), LABEL]
    kept = Manifest(identity=identity, columns=columns, made_by={"made_s": 0.0})
    opened = present(store.publish(key, claim, writer.close(kept)))
    assert not store.remove(key), "it is in use from the moment on in which it is there"
    opened.close()
    return key


def keeper_of(store: CacheStore, say: Callable[[str], None]) -> Keeper:
    """Of a cache of PICTURES."""
    kept = Manifest(identity=IDENTITY, columns=[CachedColumn("image", "uint8", [4, 5, 3]), LABEL], made_by={})
    return Keeper(store, kept, count=None, content=AsIs(), say=say)


def begun(keeper: Keeper) -> np.int64:
    """Fill a cache with its first image; return the pass that does."""
    keeper.prepare()
    fill = keeper.begin()
    keeper.add(fill, PICTURES[0], fill)
    return fill


def started(code: str) -> subprocess.Popen[str]:
    """A process that runs `code` and then waits, to be killed."""
    lines = f"from etlrun.cache.store import CacheStore; {code}; print('there', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert present(process.stdout).readline() == "there\n"
    return process


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """All below a folder but locks, by its path: a file's bytes, where a link leads, None for a folder."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
        if path.name != "lock" and path.suffix != ".claim"
    }
