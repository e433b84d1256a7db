"""Linear fits of a known rule in the rounds of sweeps with splits of their own; used by intervals.py and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.config.rounds import own_of
from etlrun.sources.base import slices
from etlrun.stages.sweep import Sweep

Floats = npt.NDArray[np.float64]
Fit = Callable[[Floats, Floats, Floats], Floats]
"""Function from inputs and targets of the training, and inputs of the validation, to what is predicted of these."""
COLUMNS = 10
SETTINGS: Mapping[str, Any] = {
    "repeats": 1, "seed": 0, "resume": None, "on_error": "continue", "timeout_s": None, "max_jobs_in_flight": 1,
    "unfit": "skip", "exclude": (), "zip": (), "objectives": ("throughput",),
}  # fmt: skip


def ridge(penalty: float, *columns: int) -> Fit:
    """A linear fit with a penalty, of some columns, or of all."""
    own = list(columns or range(COLUMNS))

    def fit(inputs: Floats, targets: Floats, others: Floats) -> Floats:
        used, mean = inputs[:, own], targets.mean()
        weights = np.linalg.solve(used.T @ used + penalty * np.eye(len(own)), used.T @ (targets - mean))
        found: Floats = others[:, own] @ weights + mean
        return found

    return fit


def stump(inputs: Floats, targets: Floats, others: Floats) -> Floats:
    """A cut of one column, which other rows may change as a whole."""
    best, found = np.inf, np.zeros(len(others))
    for own, other in zip(inputs.T, others.T, strict=True):
        for share in (0.2, 0.4, 0.6, 0.8):
            cut = np.quantile(own, share)
            is_low = own < cut
            low, high = targets[is_low].mean(), targets[~is_low].mean()
            error = float(((targets - np.where(is_low, low, high)) ** 2).sum())
            if error < best:
                best, found = error, np.where(other < cut, low, high)
    return found


PAIRS: Mapping[str, tuple[Fit, Fit]] = {
    "penalties of 1 and 100": (ridge(1), ridge(100)),
    "ten columns and three": (ridge(1), ridge(1, 0, 1, 2)),
    "three columns and four others": (ridge(1, 0, 1, 2), ridge(1, 3, 4, 5, 6)),
    "a line and a cut": (ridge(1), stump),
}


def splits(rows: int, sweep: Sweep) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Training and validation rows of each round of a sweep."""
    config = {"dataset": {"split": "train[:80%]", "eval_split": "train[80%:]"}, "trainer": {"seed": 0}}
    found = []
    for turn in range(sweep.rounds):
        own = own_of(sweep, config, turn, 0)
        parts = (slices(own[f"dataset.{key}"], {"train": rows}) for key in ("split", "eval_split"))
        train, validation = (np.concatenate([np.arange(start, end) for _, start, end in of]) for of in parts)
        found.append((train, validation))
    return found


def settings(**given: Any) -> Sweep:
    """A sweep with these settings."""
    return Sweep(**{**SETTINGS, **given})


def measured(
    pair: tuple[Fit, Fit], sweep: Sweep, *, rows: int, has_classes: bool, samples: int, random: np.random.Generator
) -> Iterator[tuple[list[float], list[float]]]:
    """Yield of data drawn anew the error of both fits in each round: the share of wrong classes, or the mean error."""
    rounds = splits(rows, sweep)
    for _ in range(samples):
        inputs = random.normal(size=(rows, COLUMNS))
        line = inputs[:, :3] @ (0.5, -0.4, 0.3) + 0.3 * inputs[:, 0] * inputs[:, 1]
        targets = line + random.standard_t(4, rows)
        if has_classes:
            targets = (random.random(rows) < 1 / (1 + np.exp(-2 * line))).astype(float)
        each = list[list[float]]()
        for fit in pair:
            errors = []
            for train, validation in rounds:
                found, true = fit(inputs[train], targets[train], inputs[validation]), targets[validation]
                errors.append(
                    float(((found > 0.5) != (true > 0.5)).mean() if has_classes else np.abs(found - true).mean())
                )
            each.append(errors)
        yield each[0], each[1]
