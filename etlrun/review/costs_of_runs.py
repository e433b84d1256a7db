"""Costs that completed runs have measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from etlrun.planning.code import as_recorded
from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import PLAN, read_config, require_folder
from etlrun.record.outcome import UNCACHED, WARM, Outcome, outcome
from etlrun.record.summary import COMPLETED, SUMMARY, Summary, read_summary
from etlrun.review.measured_costs import MOST_RUNS, Entry, Read, cache_key, plan_key, split_key
from etlrun.stages import STAGES
from etlrun.system.errors import EtlrunError

_ATTEMPTS = "attempts"
"""Folder of a sweep with jobs that were repeated."""
_DIGITS = 4
"""Significant digits of a measurement."""
_UNKNOWN = "an unknown machine"


Given = frozenset[str]
"""Keys that a plan leaves to the command line."""


def costs_of_runs(folder: Path, given: Iterable[Given] = (Given(),)) -> tuple[list[Entry], list[str]]:
    """Return the costs of the plans of all completed runs below `folder`, and the folders of those that don't count.

    There is an entry for a plan that leaves each set of the keys in `given` to the command line. A run doesn't count
    that ran beside others, or whose config this version can't plan.

    Raises:
        WorldError: It is no folder.
    """
    require_folder(folder)
    alike: dict[tuple[str, str, Given], list[tuple[Outcome, Summary, Plan]]] = {}
    left_out = []
    for run, summary in sorted(_completed(folder), key=lambda run: -(run[1].created_s or 0.0)):
        known, planned = outcome(summary), _planned(run)
        if planned is None or known.in_flight > 1:
            left_out.append(str(run))
            continue
        for keys in given:
            of = alike.setdefault((plan_key(planned, keys), known.machine or _UNKNOWN, keys), [])
            of.append((known, summary, planned))
    found = [_entry(*key, runs[:MOST_RUNS]) for key, runs in alike.items()]
    return found, sorted(left_out)


def _completed(folder: Path) -> Iterator[tuple[Path, Summary]]:
    for path in folder.rglob(SUMMARY):
        summary = read_summary(path.parent)
        if summary is not None and summary.status == COMPLETED and _ATTEMPTS not in path.relative_to(folder).parts:
            yield path.parent, summary


def _planned(run: Path) -> Plan | None:
    """Return the plan of a run; None if it can't be planned, as one of another version."""
    try:
        spec = recalled(parse(read_config(run) or {}, STAGES), run)
        return as_recorded(plan(spec), run / PLAN)
    except (EtlrunError, OSError, ValueError, yaml.YAMLError):
        return None


def _entry(key: str, machine: str, given: Given, runs: Sequence[tuple[Outcome, Summary, Plan]]) -> Entry:
    planned = runs[0][2]
    trained = [(known, summary) for known, summary, _ in runs if _counts(known, planned)]
    peaks = [known.peak_rss_bytes for known, _ in trained]
    rates = [known.examples_per_s for known, _ in trained]
    return Entry(
        experiment="",
        plan=key,
        machine=machine,
        examples_per_s=tuple(_rounded(rate) for rate in rates if rate is not None),
        au=tuple(_rounded(known.au) for known, _ in trained if known.au is not None),
        memory_bytes=tuple(round(_rounded(peak)) for peak in peaks if peak is not None),
        reads={name: _read(runs, name, given) for name in planned.pipelines if planned.pipelines[name]},
    )


def _counts(known: Outcome, planned: Plan) -> bool:
    """Return whether a run has trained as later ones do: with a filled cache, if the plan has one."""
    is_alike = known.state == WARM if planned.spec.cache.keeps else known.state != UNCACHED
    return is_alike and not known.only_fills


def _read(runs: Sequence[tuple[Outcome, Summary, Plan]], name: str, given: Given) -> Read:
    planned = runs[0][2]
    examples = next((of for _, summary, _ in runs if (of := summary.dataset.examples.get(name))), 0)
    held = [
        summary.cache.pipelines[name] for _, summary, _ in runs if summary.cache and name in summary.cache.pipelines
    ]
    filled = [of.filled_s for of in held] if name != "train" else [known.fill_s for known, _, _ in runs]
    return Read(
        split=split_key(planned, name, given),
        examples=examples,
        cache=cache_key(planned, name, given),
        held_bytes=next((of.held_bytes for of in held if of.held_bytes), None),
        fill_s=tuple(_rounded(seconds) for seconds in filled if seconds is not None),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
