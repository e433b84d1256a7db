"""Compilation by JAX: a cache of executables for all runs of a user, and the shapes for which a step was compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

from etlrun.system.machine import processor

_MOST_BYTES = 2 * 1024**3


def keep_executables() -> None:
    """Let JAX keep what it compiles in the user's caches, for later runs and other jobs; a folder of the user's stays.

    It compiles anew what it can't read, and warns of what it can't write. Executables for another CPU are elsewhere.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    kind = hashlib.sha256(processor().encode()).hexdigest()[:8]
    folder = platformdirs.user_cache_path("etlrun") / "jax" / kind
    with suppress(OSError):  # it is only a cache
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        remove_oldest(folder, _MOST_BYTES)


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the files of `folder` that were written first, until the rest has at most `most_bytes`."""
    held = 0
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        held += path.stat().st_size
        if held > most_bytes:
            path.unlink(missing_ok=True)


def note_of_shapes(shapes: Mapping[tuple[int, ...], int]) -> str | None:
    """Return the note on a step that was compiled for several shapes, each with its first batch; None for one."""
    if len(shapes) < 2:  # noqa: PLR2004 - several
        return None
    found = [f"{shape} in batch {batch:,}" for shape, batch in shapes.items()]
    shown = ", ".join([*found[:3], *([f"and {len(found) - 3} more"] if len(found) > 3 else [])])  # noqa: PLR2004 - a line
    return f"JAX compiled the training step for {len(shapes)} shapes of its input: {shown}."
