"""Which config to take: of those tied with the best the cheapest, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etlrun.sweep.compare import BETTER, TIED, UNTOLD, Gain, Noise, Rates, gains
from etlrun.sweep.results import BASELINE, ConfigResult, Decision

_ALIKE = 1.02
"""Memory that differs by less counts as the same; cores do in tenths. What is the same is no reason to change."""


def tied_with_best(configs: Sequence[ConfigResult], rates: Mapping[int, Rates], noise: Noise) -> list[int]:
    """The numbers of the configs that nothing shows to be slower than the best, itself first.

    Of `configs`, best first. Where nothing is told for want of rounds, the best stands alone.
    """
    best = next((config.number for config in configs if config.examples_per_s is not None), None)
    if best is None:
        return []
    over_best = gains({number: of for number, of in rates.items() if number != best}, rates[best], noise)
    return [best, *(number for number, gain in over_best.items() if gain.call in {BETTER, TIED})]


def decide(configs: Sequence[ConfigResult], tied: Sequence[int]) -> Decision:
    """The cheapest of the configs numbered `tied`: the least memory, the baseline, the fewest cores, the fastest."""
    known = {config.number: config for config in configs}
    if not tied:
        return Decision(config=None, overrides=(), gain=None, tied=(), same_data="", words="No run has completed.")
    least = min(known[number].peak_rss_bytes or 0.0 for number in tied)
    lean = [known[number] for number in tied if (known[number].peak_rss_bytes or 0.0) <= least * _ALIKE]
    by_cores = sorted(lean, key=lambda config: (round(config.cores_used or 0.0, 1), -(config.examples_per_s or 0.0)))
    chosen = next((config for config in lean if config.number == BASELINE), by_cores[0])
    return Decision(
        config=chosen.number,
        overrides=chosen.overrides,
        gain=chosen.gain,
        tied=tuple(tied),
        same_data=_same_data(chosen, known[BASELINE]),
        words=_words(chosen, len(tied) - 1),
    )


def times(gain: Gain) -> str:
    """`1.30 times (1.25 to 1.36)`, or what there is of it."""
    if gain.ratio is None:
        return "-"
    interval = f" ({gain.low:.2f} to {gain.high:.2f})" if gain.low is not None else ""
    return f"{gain.ratio:.2f}{interval}"


def _words(chosen: ConfigResult, others: int) -> str:
    name = " ".join(chosen.own) or "the only config"
    call = chosen.gain.call
    if call == UNTOLD:
        return f"Fastest: {name}. So few runs tell no difference from noise; a grid with sweep.repeats=3 or more does."
    tied = ""
    if others:
        tied = f" It is the cheapest of {others + 1} that are tied with the best."
    if chosen.number == BASELINE:
        return f"Keep the baseline, {name}: nothing is better.{tied}"
    if call == BETTER:
        return f"Take {name}: {times(chosen.gain)} times as fast as the baseline.{tied}"
    return f"Nothing is better than the baseline; {name} is {call} with it, at {times(chosen.gain)}, and cheaper.{tied}"


def _same_data(chosen: ConfigResult, baseline: ConfigResult) -> str:
    """Whether the chosen config and the baseline train on the same examples, and how that is known."""
    if chosen.number == baseline.number:
        return "it is the baseline"
    if chosen.data and baseline.data:
        same = chosen.data == baseline.data
        return "same data as the baseline, by the digests of all epochs" if same else "NOT the data of the baseline"
    if chosen.fingerprint == baseline.fingerprint:
        return "same data as the baseline, by its plan: nothing but the speed differs"
    return "not known to be the same data: the plans differ in more than speed, and measure.digest was not set"
