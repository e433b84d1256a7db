"""Preview of a multirun: its jobs, what is left out, what is equivalent, and the expected time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from statistics import median

from etlrun.config.grid import Grid, identity_of
from etlrun.planning.plan import sections
from etlrun.record.config import read_config
from etlrun.record.summary import COMPLETED, SUMMARY, read_summary
from etlrun.report.doc import Doc, Lines
from etlrun.sweep.ledger import Config, Ledger, LeftOut, configs_of, describe, left_out, own_overrides
from etlrun.system.errors import counted
from etlrun.system.values import frozen, grouped

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
    overrides: Sequence[str]
    own: Sequence[str]
    fingerprint: str
    combinations: Sequence[Sequence[str]]
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
    ledger = Ledger(Path(found.multirun.dir), found.sweep, [*configs], {})
    unfit = left_out(found.unfit, [job.overrides for job in found.jobs])
    own = own_overrides([*(job.overrides for job in found.jobs), *(left.overrides for left in unfit)])
    earlier, every, planned = _Earlier(ledger), ledger.runs, list[PreviewedConfig]()
    readers = grouped((key, run.config) for run in every if not run.fills and (key := ledger.caches_of(run)))
    runs = Counter(run.config for run in every if not run.fills)
    first: dict[str, int] = {}  # by texts, since datasets have mappings, which have no hash
    for config, places in configs.items():
        plan, number = found.jobs[places[0]].plan, config.number
        parts = (plan.spec.dataset, plan.train, plan.evaluation, plan.by_model, *sections(plan.spec))
        same = first.setdefault(str(parts), number)
        planned.append(
            PreviewedConfig(
                number=number,
                overrides=config.overrides,
                own=own[places[0]],
                fingerprint=config.fingerprint,
                combinations=tuple(own[place] for place in places),
                same_plan_as=None if same == number else same,
                runs=runs[number],
                earlier=len(earlier.of_config.get(config.identity, ())),
                seconds=earlier.seconds(config),
            )
        )
    known_s = [config.seconds * config.runs for config in planned if config.seconds is not None]
    fill_s = [earlier.fill_s(ledger.configs[run.config]) for run in every if run.fills]
    in_flight = min(found.multirun.at_a_time(found.sweep), runs.total())
    return Preview(
        format=FORMAT_VERSION,
        combinations=len(found.jobs) + len(unfit),
        jobs=len(every),
        fills=sorted(sorted(set(of)) for of in readers.values()),
        in_flight=in_flight,
        swept=found.swept,
        configs=planned,
        unfit=unfit,
        seconds=((sum(known_s) + sum(fill_s)) / in_flight if len(known_s) == len(planned) else None),
    )


class _Earlier:
    """Seconds of completed runs with the plans of a sweep, by identities of configs and by fingerprints of plans."""

    def __init__(self, ledger: Ledger) -> None:
        wanted = {config.fingerprint for config in ledger.configs}
        places = (OUTPUTS, "*/*"), (OUTPUTS, "*/*/*"), (ledger.folder.parent, "*"), (ledger.folder.parent, "*/*")
        found = (path for folder, pattern in places for path in folder.glob(f"{pattern}/{SUMMARY}"))
        known: dict[Path, list[str]] = {}
        fills, plans, configs = [], [], []
        for folder in {path.resolve(): path.parent for path in found}.values():
            of = read_summary(folder)
            if of and of.status == COMPLETED and of.wall_s:
                if of.only_fills:
                    fills.append((of.plan_fingerprint, of.wall_s))
                elif of.plan_fingerprint in wanted:
                    plans.append((of.plan_fingerprint, of.wall_s))
                    configs.append((_identity(folder, known), of.wall_s))
        self._fills_s, self.of_plan, self.of_config = grouped(fills), grouped(plans), grouped(configs)

    def seconds(self, config: Config) -> float | None:
        """Return the expected seconds of a run: the median for its config, else for its plan, else for all."""
        known = self.of_config.get(config.identity) or self.of_plan.get(config.fingerprint)
        known = known or [*chain.from_iterable(self.of_plan.values())]
        return median(known) if known else None

    def fill_s(self, config: Config) -> float:
        """Return the expected seconds of the job that fills the caches of a config: of earlier ones, or of a run."""
        known = self._fills_s.get(config.fingerprint)
        return median(known) if known else self.seconds(config) or 0.0


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


def of_preview(found: Preview) -> Doc:
    """Return the preview as a few lines, whatever the number of jobs; the keys of its JSON are its attributes."""
    width = max(map(len, found.swept), default=0)
    jobs = f"{counted(found.jobs, 'job')} of {counted(len(found.configs), 'config')}"
    lines = [("sweep", f"{jobs}, of {counted(found.combinations, 'combination')}")]
    lines += [("left out", line) for line in describe(found.unfit)]
    if filled := len(set(chain.from_iterable(found.fills))):
        who = f"{counted(filled, 'config')} read{'s' * (filled == 1)}"
        lines.append(("fill", f"{len(found.fills):,} before the others, of the caches on disk that {who}"))
    lines += [("swept", f"{key:<{width}}  {', '.join(values)}") for key, values in found.swept.items()]
    same = [
        f"{len(of.combinations)} combinations are config {of.number}: {' '.join(of.own) or 'the default config'}"
        for of in found.configs
        if of.combinations[1:]
    ]
    alike = grouped((of.same_plan_as, of.number) for of in found.configs if of.same_plan_as is not None)
    same += [
        f"configs {_ranges([first, *others])} have the same plan: their differences have no effect"
        for first, others in alike.items()
    ]
    plans = [
        f"{plan}  config{'s' * (len(of) != 1)} {_ranges(of)}{', which differ only in speed' if of[1:] else ''}"
        for plan, of in grouped((config.fingerprint, config.number) for config in found.configs).items()
    ]
    for label, each in (("same", same), ("plan", plans)):
        more = len(each) - _MOST_LINES
        lines += [(label, line) for line in each[:_MOST_LINES]]
        lines += [(label, f"and {more:,} more; --format json lists all")] * (more > 0)
    runs, known = sum(config.earlier for config in found.configs), sum(bool(config.earlier) for config in found.configs)
    time = "unknown: no completed run of these plans was found"
    if found.seconds is not None:
        pace = f"{found.seconds * found.in_flight / found.jobs:.1f} s per job, {found.in_flight} at a time"
        time = f"about {timedelta(seconds=round(found.seconds))}: {pace}, based on {counted(runs, 'earlier run')} "
        time += f"of {known:,} of these configs"
        time += ", and of the same plans for the others" * (known < len(found.configs))
    return Doc("", [Lines([*lines, ("time", time)])], json=lambda: found)


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: `0-2, 5`."""
    parts = grouped((number - place, number) for place, number in enumerate(numbers)).values()
    return ", ".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)
