"""Pairs of configs that differ in few values, chosen at random."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

from etlrun.review.difference import compare_configs

INTERLEAVE = {"name": "interleave", "cycle_length": 4, "block_length": 1, "deterministic": True}

AXES: dict[str, list[Any]] = {
    "dataset.split": ["train", "train[:50%]"],
    "dataset.eval_split": [None, "train[80%:]"],
    "dataset.on_corrupt": ["raise", "skip"],
    "extract": [
        {"name": "sequential"},
        {"name": "tfds", "decode": False},
        {"name": "tfds", "decode": True},
        {"name": "interleave", "cycle_length": 4, "block_length": 1, "num_parallel_calls": 2, "deterministic": True},
        {
            "name": "interleave",
            "cycle_length": 2,
            "block_length": 1,
            "num_parallel_calls": None,
            "deterministic": False,
        },
    ],
    "transform.steps": [
        ["decode", "resize", "scale_minus_one_one"],
        ["decode", "resize", "random_flip", "scale_minus_one_one"],
        ["decode", "center_crop", "resize", "scale_zero_one"],
        ["resize", "scale_minus_one_one"],
        ["resize", "center_crop", "scale_minus_one_one"],
        ["decode", "resize", "center_crop"],
    ],
    "transform.num_parallel_calls": ["autotune", None, 3],
    "transform.deterministic": [True, True, False],
    "transform.decode.library": ["tensorflow", "turbo"],
    "transform.resize.dtype": ["uint8", "float32"],
    "transform.resize.antialias": [True, False],
    "cache.name": ["none", "memory", "disk"],
    "cache.at": ["source", "decoded", "resize", "transformed"],
    "cache.codec": ["raw", "raw", "jpeg90"],
    "load.shuffle_buffer": [0, 16],
    "load.shuffle_at": ["auto", "before_batch"],
    "load.batch_size": [8, 7],
    "load.drop_remainder": [False, True],
    "load.prefetch": [0, 1, "autotune"],
    "trainer.seed": [0, 1],
    "measure.digest": [False, True],
}


SPEEDS = (
    "transform.num_parallel_calls", "cache.name", "cache.at", "load.shuffle_at", "load.prefetch", "measure.digest"
)  # fmt: skip
"""Those that should change only the speed, unless a cache holds JPEGs."""


def changed(base: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A config with other values, by dotted key."""
    config = copy.deepcopy(base)
    for key, value in values.items():
        *path, name = key.split(".")
        block: Any = config
        for part in path:
            block = block[part]
        block[name] = value
    return config


def random_pairs(
    base: dict[str, Any],
    seed: int,
    count: int,
    axes: Mapping[str, Sequence[Any]] = AXES,
    speeds: Sequence[str] = SPEEDS,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Configs that are right, each with one that differs from it in one to three values, of `speeds` in every third.

    The second of a pair is the first of the next one.
    """
    rng = random.Random(seed)  # noqa: S311 - a choice, not a secret
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    one = base
    while len(pairs) < count:
        keys = rng.sample(speeds if len(pairs) % 3 == 0 else sorted(axes), rng.choice([1, 1, 2, 3]))
        other = changed(one, {key: rng.choice(axes[key]) for key in keys})
        if one != other and _is_right(other):
            pairs.append((one, other))
            one = other
    return pairs


def _is_right(config: dict[str, Any]) -> bool:
    return compare_configs(lambda: config, lambda: config) is not None
