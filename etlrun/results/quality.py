"""Metrics and losses of a sweep with a seed per round (`sweep.vary_seed`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from etlrun.measure.gains import BETTER, TIED, Lead, interval_of_mean, leads
from etlrun.record.outcome import Outcome
from etlrun.record.summary import MEASURES
from etlrun.results.data import Completed
from etlrun.results.results import BASELINE, Quality, Run
from etlrun.stages.objectives import falls, scale_of
from etlrun.trained.scores import wilson


def qualities(completed: Completed) -> dict[int, dict[str, Quality]]:
    """Return metric and loss of each config, by its number: those of validation, or of training without validation.

    A config with a value that is not finite has no mean, and is not compared.
    """
    known, metric = _known(completed), metric_of(completed)
    names = (f"val_{metric}", "val_loss") if "val_loss" in known else (metric, "loss")
    found: dict[int, dict[str, Quality]] = {number: {} for number in completed}
    for name in names:
        values = {number: _by_repeat(several, name) for number, several in completed.items()}
        sound = {number: of for number, of in values.items() if of and all(map(math.isfinite, of.values()))}
        over_baseline = _over_baseline(sound, is_lower_better=falls(name))
        for number, of in values.items():
            if of:
                found[number][name] = _quality(list(of.values()), over_baseline.get(number), name)
    return found


def deciding(completed: Completed) -> str | None:
    """Return the key of the measure of validation that decides about trainings; None if there is none."""
    known = _known(completed)
    return next((name for name in (f"val_{metric_of(completed)}", "val_loss") if name in known), None)


def metric_of(completed: Completed) -> str:
    """Return the metric that is shown beside the loss: the accuracy, or the one that runs without it have."""
    others = [name for name in _known(completed) if not name.startswith("val_") and name not in MEASURES]
    return others[0] if others else "accuracy"


def _known(completed: Completed) -> dict[str, None]:
    """Return the names of all measures."""
    return {name: None for several in completed.values() for _, of in several for name in of.measures}


def of_one_seed(completed: Completed, name: str) -> dict[int, dict[str, Quality]]:
    """Return that measure of each config whose runs all have one seed, an accuracy with Wilson's interval."""
    found: dict[int, dict[str, Quality]] = {number: {} for number in completed}
    for number, several in completed.items():
        values = [of.measures[name] for _, of in several if name in of.measures and not of.diverged]
        if values:
            middle, examples = statistics.median(values), several[0][1].validated
            share = wilson(round(middle * examples), examples) if name.endswith("accuracy") and examples else None
            ends = (share.low, share.high) if share else (None, None)
            found[number][name] = Quality(mean=middle, low=ends[0], high=ends[1], runs=len(values), lead=None)
    return found


def tied_with_best(completed: Completed, name: str) -> list[int]:
    """Return the configs that are not shown to be worse than the best by that measure, the best first, by rounds."""
    sign = -1.0 if falls(name) else 1.0
    values = {
        number: _by_repeat(several, name)
        for number, several in completed.items()
        if not any(of.diverged for _, of in several)
    }
    means = {number: _means(of, number) for number, of in values.items() if of}
    if not means:
        return []
    best = max(means, key=lambda number: sign * statistics.fmean(means[number].values()))
    return [best, *(number for number, lead in _over(means, best, sign).items() if lead.call in {BETTER, TIED})]


def _means(values: Mapping[int, float], number: int) -> dict[int, float]:
    """Return the mean of each round of a config: of two runs of the baseline, of one of the others."""
    return {turn: statistics.fmean(of) for turn, of in _rounds(values, number).items()}


def _rounds(values: Mapping[int, float], number: int) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for repeat, value in values.items():
        found.setdefault(repeat if number != BASELINE else repeat // 2, []).append(value)
    return found


def _over(
    means: Mapping[int, Mapping[int, float]], reference: int, sign: float, margin: float = 0.0
) -> dict[int, Lead]:
    """Return the improvement of each config over another one in their common rounds; below 0 it is worse."""
    base = means.get(reference, {})
    rounds = {
        number: np.array([sign * (of[turn] - base[turn]) for turn in of if turn in base])
        for number, of in means.items()
        if number != reference
    }
    return leads(rounds, margin)


def notes(completed: Completed) -> Iterator[str]:
    """Yield notes on how accuracies and losses are compared, and on those that can't be."""
    every = [(run.name, of.measures) for several in completed.values() for run, of in several]
    if any(measures for _, measures in every):
        yield (
            "each round has its own seed (sweep.vary_seed): accuracies and losses are means with their 95 % intervals; "
            "better, tied or worse than the baseline by their differences in each round"
        )
    unsound = [name for name, measures in every if not all(map(math.isfinite, measures.values()))]
    if unsound:
        yield (
            f"runs {', '.join(unsound)} ended with an accuracy or a loss that is not finite: their configs have no "
            "mean of it, and it is not compared"
        )


def _by_repeat(several: Iterable[tuple[Run, Outcome]], name: str) -> dict[int, float]:
    return {run.repeat: of.measures[name] for run, of in several if name in of.measures}


def _over_baseline(values: Mapping[int, Mapping[int, float]], *, is_lower_better: bool) -> dict[int, Lead]:
    """Return the improvement of each config over the baseline, beyond the difference of its own two runs."""
    pairs = _rounds(values.get(BASELINE, {}), BASELINE).values()
    apart = [abs(pair[0] - pair[1]) for pair in pairs if len(pair) > 1]
    means = {number: _means(of, number) for number, of in values.items()}
    return _over(means, BASELINE, -1.0 if is_lower_better else 1.0, statistics.median(apart) if apart else 0.0)


def _quality(values: Sequence[float], lead: Lead | None, name: str) -> Quality:
    if not all(map(math.isfinite, values)):
        return Quality(mean=None, low=None, high=None, runs=len(values), lead=None)
    low, high = interval_of_mean(values) or (None, None)
    if low is not None and high is not None:
        scale = scale_of(name)
        low, high = (
            low if scale.low is None else max(low, scale.low),
            high if scale.high is None else min(high, scale.high),
        )
    return Quality(mean=statistics.fmean(values), low=low, high=high, runs=len(values), lead=lead)
