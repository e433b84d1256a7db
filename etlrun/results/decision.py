"""Recommendation of a config, and how certain that is.

It is the cheapest of those tied with the best; where configs train differently, the fastest of those tied with the best
by a measure of validation.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, median

import numpy as np

from etlrun.measure.gains import (
    BETTER,
    FEWEST_ROUNDS,
    TIED,
    UNTOLD,
    WORSE,
    Gain,
    Lead,
    Noise,
    Rates,
    gains,
    interval_of_mean,
    leads,
)
from etlrun.record.summary import metric_of, sets_in
from etlrun.results.results import (
    BASELINE,
    ConfigResult,
    Configs,
    Decision,
    Quality,
    Rounds,
    Run,
    are_others,
    shown_as,
)  # fmt: skip
from etlrun.review.difference import Comparison
from etlrun.stages.objectives import falls, scale_of
from etlrun.system.errors import counted
from etlrun.system.values import grouped
from etlrun.trained.scores import wilson

Completed = Mapping[int, Sequence[Run]]
"""Completed runs of each config that has some, by its number."""
Digests = Sequence[tuple[str, str]]
"""Training and validation digest of each epoch; empty strings for those not taken."""
SEEDS = Rounds()
"""Rounds with seeds of their own, in which the baseline runs twice."""
_ALIKE = 1.02
"""Ratio below which memory counts as equal; cores are compared in tenths. Equal costs are no reason for a change."""
_OPEN = 1.1
"""Upper end of an interval above which a tie leaves it open whether a config is faster."""
Compared = Callable[[int], Comparison | None]
"""Function that compares the plan of a config, by its number, with the baseline's; None if they can't be planned."""


def data_of_first(completed: Completed) -> dict[int, Digests]:
    """Return the digests of each config's first run, without configs whose runs have seen different data."""
    return {number: runs[0].result.digests for number, runs in completed.items() if not _differ(runs)}


def labels_of_rounds(completed: Completed, how: Rounds) -> dict[int, str]:
    """Return `labels` of the round with the most digests: in a round all configs have the same seed and splits.

    If rounds have their own splits, a config differs that does so in any of them.
    """
    rounds = defaultdict[int, dict[int, Digests]](dict)
    for run in chain.from_iterable(completed.values()):
        turn, is_twin = how.place_of(run)
        if run.result.digests and not is_twin:
            rounds[turn][run.config] = run.result.digests
    if how.excess is None:
        return labels(max((rounds[turn] for turn in sorted(rounds)), key=len, default={}))
    found = grouped(pair for of in rounds.values() for pair in labels(of).items())
    return {number: min(words) for number, words in found.items()}  # `differs` is before `same`


def notes_on_data(completed: Completed, rounds: Rounds) -> Iterator[str]:
    """Yield notes on configs whose runs have not seen the same data, unless rounds have their own splits."""
    if rounds.excess is not None:
        return
    if differing := [str(number) for number, runs in completed.items() if _differ(runs)]:
        seeds = "; their seeds differ" * bool(rounds.varied)
        which = f"config{'s' * bool(differing[1:])} {', '.join(differing)}"
        yield f"runs of the same config have seen different data: {which}{seeds}"
    if others := [
        str(number)
        for number, runs in completed.items()
        if any(are_others(run.result.records, runs[0].result.records) for run in runs)
    ]:
        yield f"runs of the same config have read different records: config{'s' * bool(others[1:])} {', '.join(others)}"


def _differ(several: Sequence[Run]) -> bool:
    """Return whether runs of one config have seen different data."""
    longest = max((run.result.digests for run in several), key=len)
    return not all(_agree(run.result.digests, longest) for run in several)


def _agree(one: Digests, other: Digests) -> bool:
    """Return whether two runs have seen the same data in the epochs, and the validations, that both have."""
    pairs = zip(chain.from_iterable(one), chain.from_iterable(other), strict=False)
    return all(mine == its for mine, its in pairs if mine and its)


def labels(digests: Mapping[int, Digests]) -> dict[int, str]:
    """Return `same` or `differs` for each config with digests, by the baseline's; nothing without others."""
    known = {number: of for number, of in digests.items() if of}
    if BASELINE not in known or len(known) == 1:
        return {}
    return {number: "same" if _agree(of, known[BASELINE]) else "differs" for number, of in known.items()}


def comparisons_of(configs: int, comparisons: int) -> int:
    """Return the number of comparisons by which a sweep that is decided by a measure may recommend another config.

    Each of so many `configs` beside the baseline may be better by the measure, or tied and faster; the same holds for
    the `comparisons` that a person expects.
    """
    return 2 * max(configs, comparisons)


def qualities(completed: Completed, how: Rounds = SEEDS) -> dict[int, dict[str, Quality]]:
    """Return metric and loss of each config, by its number: those of validation, or of training without validation.

    A config with a value that is not finite has no mean, and is not compared.
    """
    known, metric = _measures(completed)
    found = defaultdict[int, dict[str, Quality]](dict)
    sets = [f"{of}.{measure}" for of in sets_in(known) for measure in (metric, "loss")]
    own = [f"val_{metric}", "val_loss"] if "val_loss" in known else [] if sets else [metric, "loss"]
    for name in [*own, *sets]:
        rounds = _rounds(completed, name, how)
        values = {number: [*chain.from_iterable(of.values())] for number, of in rounds.items()}
        sound = {number: of for number, of in rounds.items() if all(map(math.isfinite, values[number]))}
        apart = [abs(pair[0] - pair[1]) for pair in sound.get(BASELINE, {}).values() if pair[1:]]
        over_baseline = _over(sound, BASELINE, name, how, median(apart) if apart else 0.0)
        scale = scale_of(name)
        for number, every in values.items():
            low, high = (interval_of_mean(every, how.excess or 0.0) if number in sound else None) or (None, None)
            if low is not None and high is not None:
                low = low if scale.low is None else max(low, scale.low)
                high = high if scale.high is None else min(high, scale.high)
            mean = fmean(every) if number in sound else None
            found[number][name] = Quality(mean, low, high, len(every), over_baseline.get(number))
    return found


def deciding(completed: Completed) -> str | None:
    """Return the key of the measure of validation, or of the first named set, that decides about trainings."""
    known, metric = _measures(completed)
    of_sets = (f"{of}.{measure}" for of in sets_in(known) for measure in (metric, "loss"))
    return next((name for name in (f"val_{metric}", "val_loss", *of_sets) if name in known), None)


def _measures(completed: Completed) -> tuple[dict[str, None], str]:
    """Return the names of all measures, and the metric beside the loss: the accuracy, or what runs without it have."""
    ran = chain.from_iterable(completed.values())
    known = dict.fromkeys(chain.from_iterable(run.result.measures for run in ran))
    return known, metric_of(known)


def quality_of_one_seed(completed: Completed, name: str) -> dict[int, dict[str, Quality]]:
    """Return that measure of each config whose runs all have one seed, an accuracy with Wilson's interval."""
    found = {}
    for number, runs in completed.items():
        if sound := [of for run in runs if name in (of := run.result).measures and not of.diverged]:
            middle, examples = median(of.measures[name] for of in sound), sound[0].validated
            share = wilson(round(middle * examples), examples) if name.endswith("accuracy") and examples else None
            found[number] = {name: Quality(middle, *((share.low, share.high) if share else (None, None)), len(sound))}
    return found


def tied_by(completed: Completed, name: str, how: Rounds = SEEDS) -> list[int]:
    """Return the configs that are not shown to be worse than the best by that measure, the best first, by rounds."""
    sound = {number: runs for number, runs in completed.items() if not any(run.result.diverged for run in runs)}
    if not (rounds := _rounds(sound, name, how)):
        return []
    pick = min if falls(name) else max
    best = pick(rounds, key=lambda number: fmean(map(fmean, rounds[number].values())))
    return [best, *_not_worse(_over(rounds, best, name, replace(how, comparisons=1)))]


def _not_worse(over_best: Mapping[int, Gain | Lead]) -> list[int]:
    return [number for number, found in over_best.items() if found.call in {BETTER, TIED}]


def _rounds(completed: Completed, name: str, how: Rounds) -> dict[int, dict[int, list[float]]]:
    """Return the measure by config and round: of the baseline maybe of two runs in each, of one of other configs."""
    rounds = {
        number: grouped((how.place_of(run)[0], of[name]) for run in runs if name in (of := run.result.measures))
        for number, runs in completed.items()
    }
    return {number: of for number, of in rounds.items() if of}


def _over(
    rounds: Mapping[int, Mapping[int, Sequence[float]]], reference: int, name: str, how: Rounds, margin: float = 0.0
) -> dict[int, Lead]:
    """Return the improvement of each config over another one in their common rounds, if it is beyond `margin`."""
    sign = -1.0 if falls(name) else 1.0
    means = {number: {turn: fmean(of) for turn, of in turns.items()} for number, turns in rounds.items()}
    base = means.pop(reference, {})
    apart = {of: [sign * (mean[turn] - base[turn]) for turn in mean if turn in base] for of, mean in means.items()}
    values = {number: np.array(of) for number, of in apart.items()}
    return leads(values, margin, excess=how.excess, comparisons=how.comparisons)


def notes_on_quality(completed: Sequence[Run], how: Rounds) -> Iterator[str]:
    """Yield notes on how accuracies and losses are compared, and on those that can't be."""
    if any(run.result.measures for run in completed):
        share = "" if how.excess is None else ", which allow for the examples that rounds share"
        yield f"each round has its own {how.varied}; accuracies and losses are means with 95 % intervals{share}"
        yield "better, tied and worse are by the differences from the baseline in each round"
    unsound = [run.name for run in completed if not all(map(math.isfinite, run.result.measures.values()))]
    if unsound:
        yield f"not compared: accuracies and losses that are not finite, of {', '.join(unsound)}"


def tied_with_best(configs: Configs, rates: Mapping[int, Rates], noise: Noise) -> list[int]:
    """Return the numbers of the configs that are not shown to be slower than the best, the best first.

    It is one that was compared with the baseline, if there is one; with too few rounds for a comparison it is alone.
    """
    measured = [config for config in configs if config.examples_per_s is not None]
    if not measured:
        return []
    best = next((config for config in measured if config.gain.call != UNTOLD), measured[0]).number
    over_best = gains({number: of for number, of in rates.items() if number != best}, rates[best], noise)
    return [best, *_not_worse(over_best)]


def decide(
    configs: Configs, tied: Sequence[int], compared: Compared, *, by: str | None = None, varied: str = ""
) -> Decision:
    """Choose one of the configs numbered `tied`, of those that are sorted, that is consistent with the table.

    If some configs are better than the baseline, one of these is chosen, else one that is not worse. Among those with
    the least memory it is the one that changes the fewest values of the baseline, then the one with the fewest cores.
    With `by`, the measure that they are `ranked` by, it is the fastest; with runs of one seed alone the best is named,
    and nothing is certain. If something is `varied`, each round has its own: what is said of data is about one round.
    """
    first = next((config for config in configs if config.number == BASELINE), None)
    measured = [config for config in configs if by is None or _mean(config, by) is not None]
    if not first or not (tied if by is None else measured):
        return Decision(words="No comparable run has completed.", decide=True)
    repeats = FEWEST_ROUNDS
    if by is None:
        chosen, words = _cheapest(configs, tied, first)
        is_certain, decide = chosen.gain.call != UNTOLD and first.examples_per_s is not None, False
        may_be = max((of.gain for of in configs if of is not first), key=lambda gain: gain.high or 0.0, default=None)
        if chosen is first and may_be and may_be.call == TIED and (may_be.high or 0.0) > _OPEN:
            is_certain, repeats = False, 2 * may_be.rounds
            words += f" Another one may be up to {may_be.high:.2f} times as fast, which more repeats tell."
    else:
        chosen, words, is_certain, decide = _by_measure(measured, tied, first, by, varied)
    decide |= not is_certain and len(configs) > 1
    own = f"; each round has its own {varied}" if varied and chosen is not first else ""
    return Decision(
        config=chosen.number,
        overrides=chosen.overrides,
        gain=chosen.gain,
        tied=tuple(tied) if by is None or varied else (chosen.number,),
        same_data=same_data(chosen, first, compared) + own,
        words=words + " A person decides which is used." * decide,
        is_certain=is_certain,
        decide=decide,
        again=() if is_certain else (f"sweep.repeats={repeats}", *["sweep.vary=[seed]"] * (by is not None)),
        by=(by or "with fill").replace("_", " "),
    )


def _worse_on(config: ConfigResult, by: str) -> list[str]:
    """Return the measures of named validation sets by which a config is worse than the baseline.

    Of each set it is the one that decides of the validation. A config is recommended if it is better by the measure
    that decides, and worse on no set.
    """
    names = [f"{of}.{by.removeprefix('val_').rpartition('.')[2]}" for of in sets_in([*config.quality])]
    leads = {name: config.quality[name].lead for name in names if name in config.quality}
    return [name for name, lead in leads.items() if lead is not None and lead.call == WORSE]


def _left_out(config: ConfigResult, by: str, baseline: ConfigResult, worse: Sequence[str]) -> str:
    """Return the sentence on a config that is better by the measure that decides, and worse on named sets."""
    lead = config.quality[by].lead
    if lead is None or lead.call != BETTER:
        return ""
    told = (f"{of} {config.quality[of].words_of(of)}, the baseline {baseline.quality[of].words_of(of)}" for of in worse)
    return f" {config.name} is better by {by.replace('_', ' ')}, and worse on a set: {'; '.join(told)}."


def _by_measure(
    measured: Configs, tied: Sequence[int], first: ConfigResult, by: str, varied: str
) -> tuple[ConfigResult, str, bool, bool]:
    """Return the config that the measure `by` recommends, the sentences on it, and two answers.

    These are whether there are enough rounds, and whether a person decides: among tied ones, or of better and worse.
    """
    leads_of = {of.number: lead for of in measured if (lead := of.quality[by].lead)}
    alone = first.quality[by].runs if first in measured else 0
    rounds = max((lead.rounds for lead in leads_of.values()), default=alone)
    if not varied or rounds < FEWEST_ROUNDS:
        return measured[0], _unsure(measured[0], by, rounds if varied else None), False, False
    calls = {of.number: lead.call if (lead := leads_of.get(of.number)) else TIED for of in measured}
    worse = {of.number: found for of in measured if (found := _worse_on(of, by))}
    but = " without being worse on a set" * any(calls[number] == BETTER for number in worse)
    eligible = _eligible([of for of in measured if of.number not in worse], tied, calls)
    chosen = max(eligible, key=lambda config: config.overall_examples_per_s or 0.0)
    if chosen is first or (first in eligible and chosen.gain.call != BETTER):
        chosen, words = first, f"Keep the baseline, {first.name}: no {_named(by)} is better{but}, "
        words += "and none that is as good is faster."
    else:
        words = _chosen(chosen, first, by, but, "by" if "splits" in varied else "by a median of")
        words += f" It is the fastest of {len(eligible)} configs tied with the best." * (len(eligible) > 1)
    left_out = "".join(_left_out(of, by, first, worse[of.number]) for of in measured if of.number in worse)
    is_tied = chosen is not first and (bool(eligible[1:]) or calls[chosen.number] != BETTER)
    return chosen, words + left_out, True, is_tied or bool(left_out)


def _chosen(chosen: ConfigResult, first: ConfigResult, by: str, but: str, better_by: str) -> str:
    """Return the sentence on a config that is recommended in the place of the baseline."""
    speed = f"{chosen.gain.words} times as fast" if chosen.gain.ratio is not None else "at an unknown speed"
    own, measure = chosen.quality[by], _named(by)
    if (lead := own.lead) is None or lead.call != BETTER:
        tied = f"{chosen.name} is tied with it, at {own.words_of(by)}, and {speed}"
        return f"No {measure} is better than the baseline's{but}; {tied}."
    means = (own.mean, first.quality[by].mean, lead.middle, lead.low, lead.high)
    mean, other, more, low, high = (shown_as(by, value) for value in means)
    better = f"{measure} {mean}, better than the baseline's {other} {better_by} {more} ({low} to {high})"
    return f"Use {chosen.name}: {better}; {speed}."


def _unsure(best: ConfigResult, by: str, rounds: int | None) -> str:
    """Return the sentences on the best config after too few rounds; None for runs of one seed."""
    why = "A difference can't be told from chance with one seed: "
    why += f"use sweep.repeats={FEWEST_ROUNDS} sweep.vary=[seed], or sweep.folds."
    if rounds is not None:
        why = (
            f"A difference can't be told from chance: {counted(rounds, 'repeat')}; at least {FEWEST_ROUNDS} are needed."
        )
    found = f"{best.name}, {best.quality[by].words_of(by)}, at {best.examples_per_s or 0.0:.1f} examples/s"
    return f"{'Lowest' if falls(by) else 'Highest'} {_named(by)}: {found}. {why}"


def _named(measure: str) -> str:
    return measure.replace("val_", "validation ")


def _eligible(configs: Configs, tied: Sequence[int], calls: Mapping[int, str]) -> list[ConfigResult]:
    """Return the configs, best first, whose recommendation is consistent with the table: what each is called."""
    if better := [config for config in configs if calls[config.number] == BETTER]:
        return [config for config in better if config.number in tied] or better[:1]
    return [config for config in configs if calls[config.number] != WORSE]


def _cheapest(configs: Configs, tied: Sequence[int], baseline: ConfigResult) -> tuple[ConfigResult, str]:
    """Return the cheapest of the fastest configs, and the sentences on it."""
    eligible = _eligible(configs, tied, {config.number: config.gain.call for config in configs})
    if eligible[0].gain.call != BETTER:
        kept = {*tied, *[BASELINE] * (baseline.gain.call == TIED)}
        eligible = [config for config in eligible if config.number in kept]
    least = min(config.peak_rss_bytes or 0.0 for config in eligible)
    chosen = min(
        (config for config in eligible if (config.peak_rss_bytes or 0.0) <= least * _ALIKE),
        key=lambda config: (
            len({*config.own} - {*baseline.own}),
            round(config.cores_used or 0.0, 1),
            -(config.overall_examples_per_s or 0.0),
        ),
    )
    name, call = chosen.name, chosen.gain.call
    cheapest = (
        f" Of {len(eligible)} configs tied with the best it has the least memory (within {_ALIKE - 1:.0%}), then the "
        "fewest changed values, then the fewest cores."
    ) * (len(eligible) > 1)
    if baseline.examples_per_s is None:
        words = f"Fastest: {name}. No run of the baseline, {baseline.name}, can be compared with it."
    elif call == UNTOLD:
        few = (
            f" A difference can't be told from noise: {counted(chosen.gain.rounds, 'repeat')}; at least "
            f"{FEWEST_ROUNDS} are needed (sweep.repeats={FEWEST_ROUNDS})."
        )
        words = f"Fastest: {name}.{few if len(configs) > 1 else ''}"
    elif chosen.number == BASELINE:
        words = f"Keep the baseline, {name}: nothing is shown to be faster.{cheapest}"
    elif call == BETTER:
        words = f"Use {name}: {chosen.gain.words} times as fast as the baseline.{cheapest}"
    else:
        words = f"Nothing is shown to be faster than the baseline; {name} is as fast ({chosen.gain.words} times) and "
        words += f"uses less memory.{cheapest}"
    found = {name.replace("_", " "): of.lead for name, of in chosen.quality.items()}
    changes = [f"its {name} is {lead.call}" for name, lead in found.items() if lead and lead.call != UNTOLD]
    return chosen, f"{words} Compared with the baseline {', '.join(changes)}." if changes else words


def same_data(chosen: ConfigResult, baseline: ConfigResult, compared: Compared) -> str:
    """Describe whether the chosen config and the baseline train on the same examples, and how that is known."""
    if chosen.number == baseline.number:
        return "it is the baseline"
    found, have_digests = compared(chosen.number), bool(chosen.data and baseline.data)
    if have_digests and chosen.data != baseline.data:
        return "NOT the same data as the baseline"
    if not have_digests and are_others(chosen.records, baseline.records):
        return "NOT the same data as the baseline: its splits hold other records"
    if not have_digests:
        doubt = "" if chosen.records and baseline.records else "the plans agree, but the records read may differ"
        if not found:
            doubt = "their configs can no longer be planned, and measure.digest was not set"
        elif found.changes_data:
            doubt = f"its plan changes the data from {found.since} on, and measure.digest was not set"
        elif found.doubts:
            first = found.doubts[0]
            doubt = f"{first[:1].lower()}{first[1:].rstrip('.')}; measure.digest was not set"
        if doubt:
            return f"not known to be the same data: {doubt}"
    source = "the digests of their common epochs" if have_digests else "its plan and the records read"
    is_reordered = found and found.is_reordered
    same = "same examples as the baseline in another order" if is_reordered else "same data as the baseline"
    if found and found.changes_training:
        return f"{same}, by {source}; the training differs"
    is_only_faster = not have_digests and not is_reordered and chosen.fingerprint == baseline.fingerprint
    return f"{same}, by {source}{'; only the speed differs' * is_only_faster}"


def ranked(configs: Configs, name: str) -> list[ConfigResult]:
    """Return the configs, the best first by the measure `name` of their quality; those without one come last."""
    sign = 1.0 if falls(name) else -1.0
    return sorted(configs, key=lambda config: (_mean(config, name) is None, sign * (_mean(config, name) or 0.0)))


def _mean(config: ConfigResult, name: str) -> float | None:
    of = config.quality.get(name)
    return of.mean if of else None
