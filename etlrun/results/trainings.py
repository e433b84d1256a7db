"""Recommendation of a config where configs train differently: by a measure of validation, and not by speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.measure.gains import BETTER, FEWEST_ROUNDS, TIED, WORSE
from etlrun.results.decision import NOTHING, Compared, same_data
from etlrun.results.results import BASELINE, ConfigResult, Decision
from etlrun.system.terminal import number


def ranked(configs: Sequence[ConfigResult], name: str) -> list[ConfigResult]:
    """Return the configs, the best first by the measure `name` of their quality; those without one come last."""
    sign = 1.0 if name.endswith("loss") else -1.0
    return sorted(configs, key=lambda config: (_mean(config, name) is None, sign * (_mean(config, name) or 0.0)))


def decide(
    configs: Sequence[ConfigResult], tied: Sequence[int], name: str, compared: Compared, *, has_seeds: bool
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
        eligible = list(_eligible(measured, tied, name))
        chosen = max(eligible, key=lambda config: config.overall_examples_per_s or 0.0)
        if baseline in eligible and chosen.gain.call != BETTER:
            chosen = baseline
        words = _sentences(chosen, baseline, len(eligible), name)
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


def _eligible(configs: Sequence[ConfigResult], tied: Sequence[int], name: str) -> Iterator[ConfigResult]:
    better = [config for config in configs if _call(config, name) == BETTER]
    if better:
        yield from [config for config in better if config.number in tied] or better[:1]
    else:
        yield from (config for config in configs if _call(config, name) != WORSE)


def _of_one_seed(measured: Sequence[ConfigResult], name: str) -> str:
    best = measured[0]
    which = f"{'Lowest' if name.endswith('loss') else 'Highest'} {_words(name)}"
    more = f"sweep.repeats={FEWEST_ROUNDS} or more with sweep.vary_seed=true"
    return (
        f"{which}: {best.name}, {_figure(best, name)}, at {number(best.examples_per_s, 1)} examples/s. Runs of one "
        f"seed can't separate a difference from chance; use {more}."
    )


def _sentences(chosen: ConfigResult, baseline: ConfigResult, eligible: int, name: str) -> str:
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
    return "-" if of is None else of.words


def _words(name: str) -> str:
    return name.replace("val_", "validation ")
