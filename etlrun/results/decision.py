"""Which config to take: of those tied with the best the cheapest, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from etlrun.measure.compare import BETTER, FEWEST_ROUNDS, TIED, UNTOLD, WORSE, Gain, Noise, Rates, gains
from etlrun.results.results import BASELINE, ConfigResult, Decision, are_others
from etlrun.review.difference import Comparison
from etlrun.stages.base import DATA, TRAINING

_ALIKE = 1.02
"""Memory that differs by less counts as the same; cores do in tenths. What is the same is no reason to change."""


def tied_with_best(configs: Sequence[ConfigResult], rates: Mapping[int, Rates], noise: Noise) -> list[int]:
    """The numbers of the configs that nothing shows to be slower than the best, itself first.

    Of `configs`, best first; the best is one that was compared with the baseline, where there is such a one. Where
    nothing is told for want of rounds, the best stands alone.
    """
    measured = [config for config in configs if config.examples_per_s is not None]
    if not measured:
        return []
    best = next((config for config in measured if config.gain.call != UNTOLD), measured[0]).number
    over_best = gains({number: of for number, of in rates.items() if number != best}, rates[best], noise)
    return [best, *(number for number, gain in over_best.items() if gain.call in {BETTER, TIED})]


Compared = Callable[[int], Comparison | None]
"""What the plan of the config of a number changes in the baseline's; None where the two can't be made any more."""


def decide(
    configs: Sequence[ConfigResult], tied: Sequence[int], compared: Compared, *, has_seeds: bool = False
) -> Decision:
    """The cheapest of the configs numbered `tied` that the table does not speak against.

    With `has_seeds` each round has a seed of its own: what is said of data is of runs of one round.

    Where some are better than the baseline, it is one of these; else it is none that is worse. Of those with the least
    memory it is the one that changes the fewest values of the baseline, then the one with the fewest cores.
    """
    known = {config.number: config for config in configs}
    if not tied:
        return Decision(
            config=None,
            overrides=(),
            gain=None,
            tied=(),
            same_data="",
            words="No run that can be compared has completed.",
        )
    baseline = known[BASELINE]
    eligible = _eligible(configs, tied)
    least = min(config.peak_rss_bytes or 0.0 for config in eligible)
    of_a_round = "; each round has a seed of its own" if has_seeds else ""
    chosen = min(
        (config for config in eligible if (config.peak_rss_bytes or 0.0) <= least * _ALIKE),
        key=lambda config: (
            len(set(config.own).difference(baseline.own)),
            round(config.cores_used or 0.0, 1),
            -(config.examples_per_s or 0.0),
        ),
    )
    return Decision(
        config=chosen.number,
        overrides=chosen.overrides,
        gain=chosen.gain,
        tied=tuple(tied),
        same_data=_same_data(chosen, baseline, compared) + (of_a_round if chosen.number != BASELINE else ""),
        words=_words(chosen, baseline, len(eligible)) + _of_quality(chosen),
    )


def _eligible(configs: Sequence[ConfigResult], tied: Sequence[int]) -> list[ConfigResult]:
    """Those of `configs`, best first, that can be recommended beside what the table says of each."""
    better = [config for config in configs if config.gain.call == BETTER]
    if better:
        return [config for config in better if config.number in tied] or better[:1]
    return [
        config
        for config in configs
        if config.gain.call != WORSE
        and (config.number in tied or (config.number == BASELINE and config.gain.call == TIED))
    ]


def times(gain: Gain) -> str:
    """`1.30 times (1.25 to 1.36)`, or what there is of it."""
    if gain.ratio is None:
        return "-"
    interval = f" ({gain.low:.2f} to {gain.high:.2f})" if gain.low is not None else ""
    return f"{gain.ratio:.2f}{interval}"


def _words(chosen: ConfigResult, baseline: ConfigResult, eligible: int) -> str:
    name, call = _name(chosen), chosen.gain.call
    if baseline.examples_per_s is None:
        return (
            f"Fastest: {name}. No run of the baseline, {_name(baseline)}, that it can be compared with has completed."
        )
    if call == UNTOLD:
        return (
            f"Fastest: {name}. Too few runs to separate a difference from noise: it takes {FEWEST_ROUNDS} beside the "
            f"baseline, and {chosen.gain.rounds} completed; use sweep.repeats={FEWEST_ROUNDS} or more."
        )
    first = ""
    if eligible > 1:
        first = (
            f" Of {eligible} that nothing shows to be slower than the best it comes first, by memory (within "
            f"{_ALIKE - 1:.0%}), then by how few values it changes, then by cores."
        )
    if chosen.number == BASELINE:
        return f"Keep the baseline, {name}: nothing is better.{first}"
    if call == BETTER:
        return f"Take {name}: {times(chosen.gain)} times as fast as the baseline.{first}"
    return (
        f"Nothing is better than the baseline; {name} is tied with it, at {times(chosen.gain)}, and takes less "
        f"memory.{first}"
    )


def _of_quality(chosen: ConfigResult) -> str:
    """What it gains or loses in accuracy: it is chosen by its speed alone."""
    calls = [
        f"{name.replace('_', ' ')} is {of.lead.call}"
        for name, of in chosen.quality.items()
        if of.lead is not None and of.lead.call != UNTOLD
    ]
    return f" Beside the baseline its {', its '.join(calls)}." if calls else ""


def _name(config: ConfigResult) -> str:
    return " ".join(config.own) or "the only config"


def _same_data(chosen: ConfigResult, baseline: ConfigResult, compared: Compared) -> str:
    """Whether the chosen config and the baseline train on the same examples, and how that is known."""
    if chosen.number == baseline.number:
        return "it is the baseline"
    found, have_digests = compared(chosen.number), bool(chosen.data and baseline.data)
    if have_digests and chosen.data != baseline.data:
        return "NOT the data of the baseline"
    if not have_digests and are_others(chosen.records, baseline.records):
        return "NOT the data of the baseline: its splits hold other records"
    doubt = "" if have_digests else _doubt(found, is_read=bool(chosen.records and baseline.records))
    if doubt:
        return f"not known to be the same data: {doubt}"
    source = "the digests of the epochs that both have" if have_digests else "its plan and the records that were read"
    is_reordered = found is not None and found.is_reordered
    same = "the same examples as the baseline, in another order" if is_reordered else "same data as the baseline"
    if found is not None and TRAINING in found.kinds:
        return f"{same}, by {source}; trained otherwise"
    is_only_faster = not have_digests and not is_reordered and chosen.fingerprint == baseline.fingerprint
    return f"{same}, by {source}" + (": nothing but the speed differs" if is_only_faster else "")


def _doubt(found: Comparison | None, *, is_read: bool) -> str:
    """Why two plans, and records of which both are known where `is_read`, don't show that runs see the same examples.

    Empty where they do.
    """
    if found is None:
        return "their configs can't be planned any more, and measure.digest was not set"
    if DATA in found.kinds and not found.is_unsure:
        return f"by its plan it changes the data, from {found.since} on, and measure.digest was not set"
    if found.doubts:
        return f"{found.doubts[0][:1].lower()}{found.doubts[0][1:].rstrip('.')}; measure.digest was not set"
    return "" if is_read else "by the plans it is, the records that were read may be others"
