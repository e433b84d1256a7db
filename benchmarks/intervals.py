"""How often the 95 % intervals that etlrun prints hold the truth, in simulations.

python -m benchmarks.intervals [--samples 4000] [--output benchmarks/results/intervals.md]

Accuracy, precision, recall and F1 are those of counts drawn for classifiers whose figures are known, some of them near
0 and 1. Means of accuracies and losses, and rates of runs, are normal; a round of a sweep has a drift and a reference
that its configs share. Rounds with splits of their own are those of a sweep: linear fits, and a cut of one column, of
data that are drawn anew. Top-N accuracies, macro averages and utilizations have no interval.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.resampled import PAIRS, measured, settings
from etlrun.measure.gains import OF_FOLDS, OF_WINDOWS, Noise, gains, interval_of_mean, interval_of_ratio, leads
from etlrun.stages.sweep import Sweep
from etlrun.trained.scores import Share, f1, wilson

EXAMPLES = (10, 30, 100, 1000)
CLASSIFIERS = tuple(itertools.product((0.1, 0.5), (0.05, 0.5, 0.9, 0.99), (0.01, 0.1, 0.5)))
"""Share of the examples that are of a class, and shares of these and of the others that are predicted to be of it."""
ROUNDS, CONFIGS = (3, 5, 10), (1, 5, 20)
SPREAD = 0.05


@dataclass(frozen=True, kw_only=True)
class Held:
    """How often an interval held the truth in one case.

    Attributes:
        case: The case.
        held: Share of the samples.
    """

    case: str
    held: float


_WILSON, _F1 = cache(wilson), cache(f1)
_OF_COUNTS: Mapping[str, Callable[[int, int, int, int], Share]] = {
    "accuracy": lambda hits, wrongly, missed, others: _WILSON(hits + others, hits + wrongly + missed + others),
    "precision": lambda hits, wrongly, _missed, _others: _WILSON(hits, hits + wrongly),
    "recall": lambda hits, _wrongly, missed, _others: _WILSON(hits, hits + missed),
    "F1": lambda hits, wrongly, missed, _others: _F1(hits, wrongly, missed),
}


def _true(name: str, shares: tuple[float, ...]) -> float:
    hits, wrongly, missed, others = shares
    of = {"accuracy": hits + others, "precision": hits / (hits + wrongly), "recall": hits / (hits + missed)}
    return of[name] if name in of else 2 * hits / (2 * hits + wrongly + missed)


def of_counts(name: str, random: np.random.Generator, samples: int) -> Iterator[Held]:
    """Yield how often the interval of a figure of counts holds it; samples in which it is not defined are left out."""
    for count, (share, found, wrong) in itertools.product(EXAMPLES, CLASSIFIERS):
        shares = (share * found, (1 - share) * wrong, share * (1 - found), (1 - share) * (1 - wrong))
        drawn = [_OF_COUNTS[name](*row) for row in random.multinomial(count, shares, samples).tolist()]
        true = _true(name, shares)
        held = [of.low <= true <= of.high for of in drawn if of.low is not None and of.high is not None]
        if held:
            yield Held(case=f"{count} examples, {true:.3f}", held=statistics.fmean(held))


def of_means(random: np.random.Generator, samples: int) -> Iterator[Held]:
    """Yield how often the interval of the mean of some runs holds it."""
    for runs in (2, *ROUNDS):
        found = [interval_of_mean(values) or (0, 0) for values in random.normal(0.9, SPREAD, (samples, runs)).tolist()]
        yield Held(case=f"{runs} runs", held=statistics.fmean(low <= 0.9 <= high for low, high in found))


def of_ratios(random: np.random.Generator, samples: int) -> Iterator[Held]:
    """Yield how often the interval of the ratio of two medians, of runs that are no pairs, holds it."""
    for (old, new), other in itertools.product(((2, 2), (3, 3), (2, 5), (5, 10)), (SPREAD, SPREAD / 4)):
        logs = random.normal(0, SPREAD, (samples, old)), random.normal(0.2, other, (samples, new))
        sides = zip(*(np.exp(of).tolist() for of in logs), strict=True)
        ends = (interval_of_ratio(*side) for side in sides)
        held = statistics.fmean(low <= np.exp(0.2) <= high for low, high in ends)
        yield Held(case=f"{old} and {new} runs, spreads of {SPREAD} and {other}", held=held)


def of_gains(random: np.random.Generator, samples: int) -> Iterator[Held]:
    """Yield how often the intervals of the gains of a sweep hold them."""
    for rounds, configs in itertools.product(ROUNDS, CONFIGS):
        held = list[bool]()
        for _ in range(max(samples // (2 * configs), 1)):
            drift = random.normal(0, 1, rounds)
            reference = dict(enumerate(np.exp(drift + random.normal(0, SPREAD, rounds)).tolist()))
            rates = {
                number: dict(enumerate(np.exp(drift + 0.1 + random.normal(0, SPREAD, rounds)).tolist()))
                for number in range(1, configs + 1)
            }
            found = gains(rates, reference, Noise(median=None, largest=None, pairs=0)).values()
            held += [bool((of.low or 0) <= np.exp(0.1) <= (of.high or 0)) for of in found]
        yield Held(case=f"{rounds} rounds of {configs} configs", held=statistics.fmean(held))


def of_leads(random: np.random.Generator, samples: int) -> Iterator[Held]:
    """Yield how often the intervals of differences of accuracies hold them."""
    for rounds, configs in itertools.product(ROUNDS, CONFIGS):
        held = list[bool]()
        for _ in range(max(samples // (2 * configs), 1)):
            apart = {number: random.normal(0.01, SPREAD, rounds) for number in range(configs)}
            held += [bool((of.low or 0) <= 0.01 <= (of.high or 0)) for of in leads(apart, 0.0).values()]
        yield Held(case=f"{rounds} rounds of {configs} configs", held=statistics.fmean(held))


def of_rounds(
    sweep: Sweep, excess: float, random: np.random.Generator, samples: int, *, of_leads: bool
) -> Iterator[Held]:
    """Yield how often intervals over rounds with splits of their own hold what is true of linear fits of such data.

    It is the mean over data drawn anew, for which that of all samples is taken.
    """
    for (title, pair), rows, has_classes in itertools.product(PAIRS.items(), (100, 500), (False, True)):
        count = max(samples // 5, 1)
        found = [*measured(pair, sweep, rows=rows, has_classes=has_classes, samples=count, random=random)]
        true = [statistics.fmean(map(statistics.fmean, of)) for of in zip(*found, strict=True)]
        held = list[bool]()
        for one, other in found:
            lead = leads({1: np.subtract(one, other)}, 0.0, excess=excess)[1]
            low, high = (lead.low or 0.0, lead.high or 0.0) if of_leads else interval_of_mean(one, excess) or (0, 0)
            held.append(low <= (true[0] - true[1] if of_leads else true[0]) <= high)
        what = "classes" if has_classes else "numbers"
        yield Held(case=f"{title}, {rows} rows, {what}", held=statistics.fmean(held))


_SWEEPS = {
    "folds of 5": (settings(folds=5), OF_FOLDS / 4),
    "folds of 10": (settings(folds=10), OF_FOLDS / 9),
    "5 windows of 20 %": (settings(repeats=5, vary=("split",)), OF_WINDOWS / 4),
    "10 windows of 20 %": (settings(repeats=10, vary=("split",)), OF_WINDOWS / 4),
}
KINDS: Mapping[str, Callable[[np.random.Generator, int], Iterator[Held]]] = {
    **{name: lambda random, samples, name=name: of_counts(name, random, samples) for name in _OF_COUNTS},  # type: ignore[misc]
    "mean of runs": of_means,
    "ratio of two plans": of_ratios,
    "gain of a sweep": of_gains,
    "lead in accuracy": of_leads,
    **{
        f"{what}, {name}": partial(of_rounds, *of, of_leads=is_lead)
        for name, of in _SWEEPS.items()
        for what, is_lead in (("mean", False), ("lead", True))
    },
}


def main() -> None:
    """Simulate, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    lines = [f"`python -m benchmarks.intervals --samples {arguments.samples}`", ""]
    lines += ["| interval | cases | holds the truth, mean | least | in the case |", "|---|---|---|---|---|"]
    for name, simulated in KINDS.items():
        found = list(simulated(np.random.default_rng(0), arguments.samples))
        least = min(found, key=lambda of: of.held)
        mean = statistics.fmean(of.held for of in found)
        lines.append(f"| {name} | {len(found)} | {mean:.1%} | {least.held:.1%} | {least.case} |")
        print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
