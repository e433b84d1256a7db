"""Preview of a multirun: its jobs, what is left out, what is equivalent, and the expected time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path

from pydantic_core import to_json

from etlrun.config.grid import Grid, identity_of
from etlrun.planning.plan import Plan, sections
from etlrun.record.config import read_config
from etlrun.record.summary import COMPLETED, SUMMARY, read_summary
from etlrun.stages.dataset import Dataset
from etlrun.sweep.ledger import Config, Ledger, LeftOut, configs_of, describe, left_out, own_overrides
from etlrun.system.values import frozen

FORMAT_VERSION = 1
OUTPUTS = Path("outputs")
"""Default folder of runs and sweeps."""
_MOST_LINES = 8


@frozen
class PreviewedConfig:
    """A config that would be run.

    Attributes:
        number: Number of the config, from 0; 0 is the baseline.
        overrides: Overrides that the config is composed with.
        own: Overrides that not all configs have.
        fingerprint: Fingerprint of the plan, equal for configs that differ only in speed.
        combinations: Combinations that result in this config, each by its own overrides.
        same_plan_as: First config with the same stages; None if this is the first.
        runs: Number of runs of this config.
        earlier: Number of completed earlier runs of this config.
        seconds: Expected time of one run, from earlier runs of this config or of its plan; None without any.
    """

    number: int
    overrides: tuple[str, ...]
    own: tuple[str, ...]
    fingerprint: str
    combinations: tuple[tuple[str, ...], ...]
    same_plan_as: int | None
    runs: int
    earlier: int
    seconds: float | None


@frozen
class Preview:
    """A multirun before it starts.

    Attributes:
        format: Version of the format, raised by incompatible changes.
        combinations: Number of combinations in the grid, including those left out.
        jobs: Number of runs, and of jobs that fill caches.
        fills: Configs that read the caches on disk which a job fills before the runs, for each of these jobs.
        in_flight: Number of jobs at a time.
        swept: Values of each key that has several.
        configs: Configs by number.
        unfit: Combinations that are left out.
        seconds: Expected time of the whole sweep, from earlier runs; None if some config has none.
    """

    format: int
    combinations: int
    jobs: int
    fills: Sequence[Sequence[int]]
    in_flight: int
    swept: Mapping[str, Sequence[str]]
    configs: Sequence[PreviewedConfig]
    unfit: Sequence[LeftOut]
    seconds: float | None


def preview(found: Grid) -> Preview:
    """Return the preview of a grid."""
    configs = configs_of(found.jobs)
    ledger = Ledger(Path(found.multirun.dir), found.sweep, configs, {})
    unfit = left_out(found.unfit, [job.overrides for job in found.jobs])
    own = own_overrides([*(job.overrides for job in found.jobs), *(left.overrides for left in unfit)])
    earlier, plans = _Earlier(ledger), _first_of_plan([found.jobs[places[0]].plan for places in configs.values()])
    every = ledger.runs
    runs = Counter(run.config for run in every if not run.fills)
    planned = [
        PreviewedConfig(
            number=config.number,
            overrides=config.overrides,
            own=own[places[0]],
            fingerprint=config.fingerprint,
            combinations=tuple(own[place] for place in places),
            same_plan_as=plans[config.number],
            runs=runs[config.number],
            earlier=len(earlier.of_config.get(config.identity, ())),
            seconds=earlier.seconds(config),
        )
        for config, places in configs.items()
    ]
    known_s = [config.seconds * config.runs for config in planned if config.seconds is not None]
    fill_s = [earlier.fill_s(ledger.configs[run.config]) for run in every if run.fills]
    in_flight = min(found.multirun.at_a_time(found.sweep), runs.total())
    total_s = (sum(known_s) + sum(fill_s)) / in_flight if len(known_s) == len(planned) else None
    return Preview(
        format=FORMAT_VERSION,
        combinations=len(found.jobs) + len(unfit),
        jobs=len(every),
        fills=sorted(_filled(ledger)),
        in_flight=in_flight,
        swept=found.swept,
        configs=planned,
        unfit=unfit,
        seconds=total_s,
    )


def _filled(ledger: Ledger) -> Iterator[list[int]]:
    """Yield the configs that read the caches which a job fills, of each such job."""
    found: dict[str, list[int]] = {run.fills: [] for run in ledger.runs if run.fills}
    for run in sorted(ledger.runs):
        if not run.fills and (key := ledger.caches_of(run)):
            found[key] += [run.config] if run.config not in found[key] else []
    yield from found.values()


def _first_of_plan(plans: Sequence[Plan]) -> list[int | None]:
    """Return for each plan the number of the first one with the same stages; None for that one itself."""
    datasets: list[Dataset] = []  # with mappings, which have no hash
    first: dict[str, int] = {}
    places = []
    for number, plan in enumerate(plans):
        if plan.spec.dataset not in datasets:
            datasets.append(plan.spec.dataset)
        parts = (plan.train, plan.evaluation, plan.by_model, *sections(plan.spec))
        places.append(first.setdefault(f"{datasets.index(plan.spec.dataset)} {parts}", number))
    return [place if place != number else None for number, place in enumerate(places)]


class _Earlier:
    """Durations of completed runs with the plans of a sweep.

    Attributes:
        of_config: Seconds of each run, by the identity of its config.
        of_plan: Seconds of each run, by the fingerprint of its plan.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.of_config: dict[str, list[float]] = {}
        self.of_plan: dict[str, list[float]] = {}
        self._fills_s: dict[str | None, list[float]] = {}
        wanted = {config.fingerprint for config in ledger.configs}
        known: dict[Path, list[str]] = {}
        for folder in _folders(ledger.folder):
            summary = read_summary(folder)
            if summary is None or summary.status != COMPLETED:
                continue
            fingerprint, seconds = summary.plan_fingerprint, summary.wall_s
            if seconds and summary.only_fills:
                self._fills_s.setdefault(fingerprint, []).append(seconds)
            elif seconds and fingerprint in wanted:
                self.of_plan.setdefault(fingerprint, []).append(seconds)
                self.of_config.setdefault(_identity(folder, known), []).append(seconds)

    def seconds(self, config: Config) -> float | None:
        """Return the expected seconds of a run: the median for its config, else for its plan, else for all."""
        every = list(chain.from_iterable(self.of_plan.values()))
        known = self.of_config.get(config.identity) or self.of_plan.get(config.fingerprint) or every
        return statistics.median(known) if known else None

    def fill_s(self, config: Config) -> float:
        """Return the expected seconds of the job that fills the caches of a config: of earlier ones, or of a run."""
        known = self._fills_s.get(config.fingerprint)
        return statistics.median(known) if known else self.seconds(config) or 0.0


def _folders(sweep: Path) -> Iterator[Path]:
    """Yield the folders of runs and of sweeps' runs in the default folder and beside the sweep."""
    seen = set()
    for folder, patterns in ((OUTPUTS, ("*/*", "*/*/*")), (sweep.parent, ("*", "*/*"))):
        for pattern in patterns:
            for path in folder.glob(f"{pattern}/{SUMMARY}"):
                if path.resolve() not in seen:
                    seen.add(path.resolve())
                    yield path.parent


def _identity(folder: Path, known: dict[Path, list[str]]) -> str:
    """Return the identity of a run's config, from its sweep's ledger if there is one, since that is faster."""
    try:
        if folder.parent not in known:
            known[folder.parent] = [config.identity for config in Config.all_in(folder.parent)]
        return known[folder.parent][int(folder.name.partition(".")[0])]
    except (OSError, ValueError, IndexError, KeyError):
        known.setdefault(folder.parent, [])
    try:
        return identity_of(read_config(folder))
    except (OSError, ValueError):
        return ""


def as_json(found: Preview) -> str:
    """Return the preview as JSON; the keys are the names of the attributes."""
    return to_json(found, indent=2).decode() + "\n"


def text(found: Preview) -> str:
    """Return the preview as a few lines, whatever the number of jobs."""
    width = max(map(len, found.swept), default=0)
    configs = f"{len(found.configs):,} config{'s' * (len(found.configs) != 1)}"
    jobs = f"{found.jobs:,} job{'s' * (found.jobs != 1)} of {configs}"
    lines = [f"sweep     {jobs}, of {found.combinations:,} combination{'s' * (found.combinations != 1)}"]
    lines += [f"left out  {line}" for line in describe(found.unfit)]
    if filled := len(set(chain.from_iterable(found.fills))):
        read = f"{filled:,} configs read" if filled > 1 else "1 config reads"
        lines.append(f"fill      {len(found.fills):,} before the others, of the caches on disk that {read}")
    lines += [f"swept     {key:<{width}}  {', '.join(values)}" for key, values in found.swept.items()]
    same = [
        f"{len(of.combinations)} combinations are config {of.number}: {' '.join(of.own) or 'the default config'}"
        for of in found.configs
        if of.combinations[1:]
    ]
    lines += [f"same      {line}" for line in _limited([*same, *_same_plan(found)])]
    lines += [f"plan      {line}" for line in _limited(list(_fingerprints(found)))]
    return "\n".join([*lines, f"time      {_time(found)}"]) + "\n"


def _limited(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"and {more:,} more; --format json lists all"] if more > 0 else [])]


def _same_plan(found: Preview) -> Iterator[str]:
    same: dict[int, list[int]] = {}
    for config in found.configs:
        if config.same_plan_as is not None:
            same.setdefault(config.same_plan_as, [config.same_plan_as]).append(config.number)
    for of in same.values():
        yield f"configs {_ranges(of)} have the same plan: their differences have no effect"


def _fingerprints(found: Preview) -> Iterator[str]:
    of: dict[str, list[int]] = {}
    for config in found.configs:
        of.setdefault(config.fingerprint, []).append(config.number)
    for fingerprint, numbers in of.items():
        alike = ", which differ only in speed" if numbers[1:] else ""
        yield f"{fingerprint}  config{'s' * (len(numbers) != 1)} {_ranges(numbers)}{alike}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: `0-2, 5`."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _time(found: Preview) -> str:
    runs, known = sum(config.earlier for config in found.configs), sum(bool(config.earlier) for config in found.configs)
    if found.seconds is None:
        return "unknown: no completed run of these plans was found"
    source = f"{runs:,} earlier run{'s' * (runs != 1)} of {known:,} of these configs"
    if known < len(found.configs):
        source += ", and of the same plans for the others"
    each_s = found.seconds * found.in_flight / found.jobs
    total = timedelta(seconds=round(found.seconds))
    return f"about {total}: {each_s:.1f} s per job, {found.in_flight} at a time, based on {source}"
