"""Compilation by JAX: a cache of executables for all runs of a user, and the shapes for which a step was compiled."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

from etlrun.system.machine import processor

_MOST_BYTES = 2 * 1024**3
_CHECKED = "checked"
"""File whose time is that of the last check for broken executables."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
"""First bytes of an executable that is compressed by the package zstandard, which JAX prefers if it is installed."""


def keep_executables() -> None:
    """Let JAX keep what it compiles in the user's caches, for later runs and other jobs; a folder of the user's stays.

    Nothing is kept where that folder can't be written to. JAX compiles anew what it can't read, but never replaces it,
    so what is broken goes first; it warns of what it can't write later. Executables for another CPU are elsewhere.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    kind = hashlib.sha256(processor().encode()).hexdigest()[:8]
    with suppress(OSError, RuntimeError):  # it is only a cache, and a user without a home has none
        folder = platformdirs.user_cache_path("etlrun") / "jax" / kind
        folder.mkdir(parents=True, exist_ok=True)
        remove_broken(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        remove_oldest(folder, _MOST_BYTES)


def remove_broken(folder: Path) -> None:
    """Remove the executables written since the last call that a kill or a full disk has cut off.

    One that another job is writing goes, too, and is compiled once more.
    """
    checked = folder / _CHECKED
    since_ns = checked.stat().st_mtime_ns if checked.exists() else 0
    checked.touch()
    for path in folder.glob("*-cache"):
        with suppress(FileNotFoundError):  # another job has removed it
            if path.stat().st_mtime_ns >= since_ns and not _is_whole(path.read_bytes()):
                path.unlink()


def _is_whole(executable: bytes) -> bool:
    """Return whether all of an executable is there; of one by zstandard this isn't known."""
    try:
        zlib.decompress(executable)
    except zlib.error:
        return executable.startswith(_ZSTANDARD)
    return True


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the files of `folder` that were written first, until the rest has at most `most_bytes`."""
    held = 0
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        held += path.stat().st_size
        if held > most_bytes:
            path.unlink(missing_ok=True)


def note_of_shapes(shapes: Mapping[tuple[tuple[int, ...], ...], int]) -> str | None:
    """Return the note on a step that was compiled for several shapes; None for one.

    Each has the shapes of all tensors of a batch, of which the largest is named, and the number of the first batch.
    """
    if len(shapes) < 2:  # noqa: PLR2004 - several
        return None
    found = [f"{max(of, key=math.prod)} in batch {batch:,}" for of, batch in shapes.items()]
    shown = ", ".join([*found[:3], *([f"and {len(found) - 3} more"] if len(found) > 3 else [])])  # noqa: PLR2004 - a line
    return f"JAX compiled the training step for {len(shapes)} shapes of its input: {shown}."
