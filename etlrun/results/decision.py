"""Recommendation of a config: the cheapest of those tied with the best, and how certain that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from etlrun.measure.gains import BETTER, FEWEST_ROUNDS, TIED, UNTOLD, WORSE, Noise, Rates, gains
from etlrun.results.results import BASELINE, ConfigResult, Decision, are_others
from etlrun.review.difference import Comparison

_ALIKE = 1.02
"""Ratio below which memory counts as equal; cores are compared in tenths. Equal costs are no reason for a change."""


def tied_with_best(configs: Sequence[ConfigResult], rates: Mapping[int, Rates], noise: Noise) -> list[int]:
    """Return the numbers of the configs that are not shown to be slower than the best, the best first.

    `configs` are sorted, the best first. The best is a config that was compared with the baseline, if there is one.
    With too few rounds for a comparison the best is alone.
    """
    measured = [config for config in configs if config.examples_per_s is not None]
    if not measured:
        return []
    best = next((config for config in measured if config.gain.call != UNTOLD), measured[0]).number
    over_best = gains({number: of for number, of in rates.items() if number != best}, rates[best], noise)
    return [best, *(number for number, gain in over_best.items() if gain.call in {BETTER, TIED})]


NOTHING = Decision(
    config=None, overrides=(), gain=None, tied=(), same_data="", words="No comparable run has completed."
)

Compared = Callable[[int], Comparison | None]
"""Function that compares the plan of a config, by its number, with the baseline's; None if they can't be planned."""


def decide(
    configs: Sequence[ConfigResult], tied: Sequence[int], compared: Compared, *, has_seeds: bool = False
) -> Decision:
    """Choose the cheapest of the configs numbered `tied` that is consistent with the table.

    If some configs are better than the baseline, one of these is chosen, else one that is not worse. Among those with
    the least memory it is the one that changes the fewest values of the baseline, then the one with the fewest cores.
    With `has_seeds` each round has its own seed: statements on data are about runs of one round.
    """
    known = {config.number: config for config in configs}
    if not tied:
        return NOTHING
    baseline = known[BASELINE]
    eligible = _eligible(configs, tied)
    least = min(config.peak_rss_bytes or 0.0 for config in eligible)
    seeds = "; each round has its own seed" if has_seeds else ""
    chosen = min(
        (config for config in eligible if (config.peak_rss_bytes or 0.0) <= least * _ALIKE),
        key=lambda config: (
            len(set(config.own).difference(baseline.own)),
            round(config.cores_used or 0.0, 1),
            -(config.overall_examples_per_s or 0.0),
        ),
    )
    return Decision(
        config=chosen.number,
        overrides=chosen.overrides,
        gain=chosen.gain,
        tied=tuple(tied),
        same_data=same_data(chosen, baseline, compared) + (seeds if chosen.number != BASELINE else ""),
        words=_sentences(chosen, baseline, len(eligible)) + _quality_change(chosen),
        is_certain=chosen.gain.call != UNTOLD and baseline.examples_per_s is not None,
    )


def _eligible(configs: Sequence[ConfigResult], tied: Sequence[int]) -> list[ConfigResult]:
    """Return the configs, best first, whose recommendation is consistent with the table."""
    better = [config for config in configs if config.gain.call == BETTER]
    if better:
        return [config for config in better if config.number in tied] or better[:1]
    return [
        config
        for config in configs
        if config.gain.call != WORSE
        and (config.number in tied or (config.number == BASELINE and config.gain.call == TIED))
    ]


def _sentences(chosen: ConfigResult, baseline: ConfigResult, eligible: int) -> str:
    name, call = chosen.name, chosen.gain.call
    if baseline.examples_per_s is None:
        return f"Fastest: {name}. No comparable run of the baseline, {baseline.name}, has completed."
    if call == UNTOLD:
        return (
            f"Fastest: {name}. Too few runs to separate a difference from noise ({chosen.gain.rounds} of at least "
            f"{FEWEST_ROUNDS} rounds with the baseline); use sweep.repeats={FEWEST_ROUNDS} or more."
        )
    first = ""
    if eligible > 1:
        first = (
            f" It is the cheapest of {eligible} configs tied with the best: by memory (within {_ALIKE - 1:.0%}), then "
            "by the number of changed values, then by cores."
        )
    if chosen.number == BASELINE:
        return f"Keep the baseline, {name}: nothing is better.{first}"
    if call == BETTER:
        return f"Use {name}: {chosen.gain.words} times as fast as the baseline.{first}"
    return (
        f"Nothing is better than the baseline; {name} is tied with it, at {chosen.gain.words}, and uses less "
        f"memory.{first}"
    )


def _quality_change(chosen: ConfigResult) -> str:
    """Describe the gain or loss in accuracy; the choice is by speed alone."""
    found = [
        f"{name.replace('_', ' ')} is {of.lead.call}"
        for name, of in chosen.quality.items()
        if of.lead is not None and of.lead.call != UNTOLD
    ]
    return f" Compared with the baseline its {', its '.join(found)}." if found else ""


def same_data(chosen: ConfigResult, baseline: ConfigResult, compared: Compared) -> str:
    """Describe whether the chosen config and the baseline train on the same examples, and how that is known."""
    if chosen.number == baseline.number:
        return "it is the baseline"
    found, have_digests = compared(chosen.number), bool(chosen.data and baseline.data)
    if have_digests and chosen.data != baseline.data:
        return "NOT the same data as the baseline"
    if not have_digests and are_others(chosen.records, baseline.records):
        return "NOT the same data as the baseline: its splits hold other records"
    doubt = "" if have_digests else _doubt(found, is_read=bool(chosen.records and baseline.records))
    if doubt:
        return f"not known to be the same data: {doubt}"
    source = "the digests of their common epochs" if have_digests else "its plan and the records read"
    is_reordered = found is not None and found.is_reordered
    same = "same examples as the baseline in another order" if is_reordered else "same data as the baseline"
    if found is not None and found.changes_training:
        return f"{same}, by {source}; the training differs"
    is_only_faster = not have_digests and not is_reordered and chosen.fingerprint == baseline.fingerprint
    return f"{same}, by {source}" + ("; only the speed differs" if is_only_faster else "")


def _doubt(found: Comparison | None, *, is_read: bool) -> str:
    """Return why plans and records don't prove that two runs see the same examples; empty if they do.

    `is_read` is whether the records of both runs are known.
    """
    if found is None:
        return "their configs can no longer be planned, and measure.digest was not set"
    if found.changes_data:
        return f"its plan changes the data from {found.since} on, and measure.digest was not set"
    if found.doubts:
        return f"{found.doubts[0][:1].lower()}{found.doubts[0][1:].rstrip('.')}; measure.digest was not set"
    return "" if is_read else "the plans agree, but the records read may differ"
