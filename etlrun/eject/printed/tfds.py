"""Datasets of TFDS in programs."""

from __future__ import annotations

import types

from etlrun.eject.printed.given import builder


def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return the files of `split`, each with the examples to skip and to take; a `take` of -1 means all."""
    return list(builder().info.splits[split].file_instructions)


def num_examples(split: str) -> int:
    """Return the number of examples of `split`."""
    return int(builder().info.splits[split].num_examples)


def paths_of(split: str) -> list[str]:
    """Return the paths of the files of `split`."""
    return [str(part.filename) for part in parts_of(split)]
