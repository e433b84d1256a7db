"""Recommendation of a config, and how certain that is.

It is the cheapest of those tied with the best; where configs train differently, the fastest of those tied with the best
by a measure of validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from etlrun.measure.gains import BETTER, FEWEST_ROUNDS, TIED, UNTOLD, WORSE, Noise, Rates, gains
from etlrun.results.results import BASELINE, ConfigResult, Decision, are_others
from etlrun.review.difference import Comparison
from etlrun.stages.objectives import falls
from etlrun.system.terminal import number

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
    eligible = _eligible(configs, tied, lambda config: config.gain.call)
    if not any(config.gain.call == BETTER for config in eligible):
        eligible = [
            config
            for config in eligible
            if config.number in tied or (config.number == BASELINE and config.gain.call == TIED)
        ]
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
        words=_sentences(chosen, baseline, len(eligible), is_only=len(known) == 1) + _quality_change(chosen),
        is_certain=chosen.gain.call != UNTOLD and baseline.examples_per_s is not None,
    )


def _eligible(
    configs: Sequence[ConfigResult], tied: Sequence[int], call_of: Callable[[ConfigResult], str]
) -> list[ConfigResult]:
    """Return the configs, best first, whose recommendation is consistent with the table."""
    better = [config for config in configs if call_of(config) == BETTER]
    if better:
        return [config for config in better if config.number in tied] or better[:1]
    return [config for config in configs if call_of(config) != WORSE]


def _sentences(chosen: ConfigResult, baseline: ConfigResult, eligible: int, *, is_only: bool) -> str:
    name, call = chosen.name, chosen.gain.call
    if baseline.examples_per_s is None:
        return f"Fastest: {name}. No comparable run of the baseline, {baseline.name}, has completed."
    if call == UNTOLD and is_only:
        return f"Fastest: {name}."
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


def ranked(configs: Sequence[ConfigResult], name: str) -> list[ConfigResult]:
    """Return the configs, the best first by the measure `name` of their quality; those without one come last."""
    sign = 1.0 if falls(name) else -1.0
    return sorted(configs, key=lambda config: (_mean(config, name) is None, sign * (_mean(config, name) or 0.0)))


def decide_by(
    name: str, configs: Sequence[ConfigResult], tied: Sequence[int], compared: Compared, *, has_seeds: bool
) -> Decision:
    """Choose the fastest of the configs `tied` with the best by the measure `name`, of those that are `ranked`.

    It is consistent with the table: if some are better than the baseline, one of these, else one that is not worse.
    With runs of one seed alone the best is named, and nothing is certain.
    """
    measured = [config for config in configs if _mean(config, name) is not None]
    if not measured:
        return NOTHING
    first = next(config for config in configs if config.number == BASELINE)
    baseline = first if first in measured else None
    column, seeds = name.replace("_", " "), "; each round has its own seed" if has_seeds else ""
    if not has_seeds or baseline is None:
        chosen, words = measured[0], _of_one_seed(measured, name)
    else:
        eligible = _eligible(measured, tied, lambda config: _call(config, name))
        chosen = max(eligible, key=lambda config: config.overall_examples_per_s or 0.0)
        if baseline in eligible and chosen.gain.call != BETTER:
            chosen = baseline
        words = _sentences_by(chosen, baseline, len(eligible), name)
    return Decision(
        config=chosen.number,
        overrides=chosen.overrides,
        gain=chosen.gain,
        tied=tuple(tied) if has_seeds else (chosen.number,),
        same_data=same_data(chosen, first, compared) + (seeds if chosen.number != BASELINE else ""),
        words=words,
        is_certain=has_seeds and baseline is not None,
        by=column,
    )


def _of_one_seed(measured: Sequence[ConfigResult], name: str) -> str:
    best = measured[0]
    which = f"{'Lowest' if falls(name) else 'Highest'} {_words(name)}"
    more = f"sweep.repeats={FEWEST_ROUNDS} or more with sweep.vary_seed=true"
    return (
        f"{which}: {best.name}, {_figure(best, name)}, at {number(best.examples_per_s, 1)} examples/s. Runs of one "
        f"seed can't separate a difference from chance; use {more}."
    )


def _sentences_by(chosen: ConfigResult, baseline: ConfigResult, eligible: int, name: str) -> str:
    first = f" It is the fastest of {eligible} configs tied with the best." if eligible > 1 else ""
    if chosen.number == BASELINE:
        return f"Keep the baseline, {chosen.name}: no {_words(name)} is better, nor any tied with it faster."
    speed = f"{chosen.gain.words} times as fast" if chosen.gain.ratio is not None else "at an unknown speed"
    if _call(chosen, name) == BETTER:
        return (
            f"Use {chosen.name}: {_words(name)} {_figure(chosen, name)}, better than the baseline's "
            f"{_figure(baseline, name)}; {speed}.{first}"
        )
    return (
        f"No {_words(name)} is better than the baseline's; {chosen.name} is tied with it, at "
        f"{_figure(chosen, name)}, and {speed}.{first}"
    )


def _mean(config: ConfigResult, name: str) -> float | None:
    of = config.quality.get(name)
    return None if of is None else of.mean


def _call(config: ConfigResult, name: str) -> str:
    of = config.quality.get(name)
    return TIED if of is None or of.lead is None else of.lead.call


def _figure(config: ConfigResult, name: str) -> str:
    of = config.quality.get(name)
    return "-" if of is None else of.words_of(name)


def _words(name: str) -> str:
    return name.replace("val_", "validation ")
