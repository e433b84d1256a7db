"""Preview of a multirun: its jobs, what is left out, and what is equivalent."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from etlrun.config.grid import Grid
from etlrun.config.rounds import own_of, told
from etlrun.planning.plan import sections
from etlrun.report.doc import Doc, Lines
from etlrun.sweep.ledger import Config, Ledger, configs_of, describe, left_out, own_overrides
from etlrun.system.errors import counted
from etlrun.system.values import Block, grouped

FORMAT_VERSION = 1
_MOST_LINES = 8


def preview(found: Grid) -> Doc:
    """Return the preview of a grid as a few lines, whatever the number of jobs.

    Its JSON has the number of `combinations` in the grid, that of `jobs`, which are runs and what fills caches, and how
    many are `in_flight` at a time; for each job of `fills` the configs that read its caches on disk; the values of
    each key that is `swept`; the `configs` by number; and the combinations that are `unfit`. Of a config it has the
    overrides that are its `own`, the `combinations` that result in it by theirs, the first config with the same stages
    (`same_plan_as`), and its number of `runs`, beside what a sweep notes of it. Of `rounds` with splits or seeds of
    their own it has these, for each config.
    """
    configs = configs_of(found.jobs)
    ledger = Ledger(Path(found.multirun.dir), found.sweep, [*configs], {})
    unfit = left_out(found.unfit, [job.overrides for job in found.jobs])
    own = own_overrides([*(job.overrides for job in found.jobs), *(left.overrides for left in unfit)])
    every = ledger.runs
    readers = grouped((key, run.config) for run in every if not run.fills and (key := ledger.caches_of(run)))
    runs = Counter(run.config for run in every if not run.fills)
    planned = [*_planned(found, configs, own, runs)]
    known = {
        "format": FORMAT_VERSION,
        "combinations": len(found.jobs) + len(unfit),
        "jobs": len(every),
        "fills": sorted(sorted(set(of)) for of in readers.values()),
        "in_flight": min(found.multirun.at_a_time(found.sweep), runs.total()),
        "swept": found.swept,
        "configs": planned,
        "unfit": unfit,
    }
    jobs = f"{counted(len(every), 'job')} of {counted(len(planned), 'config')}"
    lines = [("sweep", f"{jobs}, of {counted(len(found.jobs) + len(unfit), 'combination')}")]
    lines += [("left out", line) for line in describe(unfit)]
    if filled := len(set(chain.from_iterable(readers.values()))):
        jobs = f"{counted(len(readers), 'job')} first, which fill{'s' * (len(readers) == 1)} caches on disk"
        lines.append(("fill", f"{jobs} of {counted(filled, 'config')}"))
    first = found.jobs[0].config
    lines += [("rounds", line) for line in told(found.sweep, first)]
    width = max(map(len, found.swept), default=0)
    lines += [("swept", f"{key:<{width}}  {', '.join(values)}") for key, values in found.swept.items()]
    return Doc("", [Lines([*lines, *_equal(planned)])], json=lambda: known)


def _planned(
    found: Grid, configs: Mapping[Config, Sequence[int]], own: Sequence[Sequence[str]], runs: Mapping[int, int]
) -> Iterator[Block]:
    first: dict[str, int] = {}  # by texts, since datasets have mappings, which have no hash
    for config, places in configs.items():
        plan, number, sweep = found.jobs[places[0]].plan, config.number, found.sweep
        parts = (plan.spec.dataset, plan.train, plan.evaluation, plan.by_model, *sections(plan.spec))
        same = first.setdefault(str(parts), number)
        yield {
            "number": number,
            "overrides": config.overrides,
            "own": own[places[0]],
            "fingerprint": config.fingerprint,
            "combinations": [own[place] for place in places],
            "same_plan_as": None if same == number else same,
            "runs": runs[number],
            "rounds": [
                *filter(None, (own_of(sweep, found.jobs[places[0]].config, turn, 0) for turn in range(sweep.rounds)))
            ],
        }


def _equal(configs: Sequence[Block]) -> Iterator[tuple[str, str]]:
    """Yield what is the same: combinations of a config, configs of a plan, and plans but for their speed."""
    same = [
        f"{many} combinations give config {of['number']}: {' '.join(of['own']) or 'the default config'}"
        for of in configs
        if (many := len(of["combinations"])) > 1
    ]
    alike = grouped((of["same_plan_as"], of["number"]) for of in configs if of["same_plan_as"] is not None)
    same += [
        f"configs {_ranges([first, *others])} have the same plan: their differences have no effect"
        for first, others in alike.items()
    ]
    plans = [
        f"{plan}  config{'s' * (len(of) != 1)} {_ranges(of)}{', which differ only in speed' if of[1:] else ''}"
        for plan, of in grouped((of["fingerprint"], of["number"]) for of in configs).items()
    ]
    for label, each in (("same", same), ("plan", plans)):
        more = len(each) - _MOST_LINES
        yield from ((label, line) for line in each[:_MOST_LINES])
        if more > 0:
            yield label, f"and {more:,} more; --format json lists all"


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: `0-2, 5`."""
    parts = grouped((number - place, number) for place, number in enumerate(numbers)).values()
    return ", ".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)
