"""`etlrun costs`: what experiments cost, as runs have measured it, for the reviews of later changes."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from etlrun.cli import parsers
from etlrun.config.folders import COSTS
from etlrun.review.costs_file import as_text, read
from etlrun.review.costs_of_runs import Given, costs_of_runs
from etlrun.review.folders import Folders, working_tree
from etlrun.review.measured_costs import Costs, Entry, plan_key
from etlrun.review.sides import of_folders
from etlrun.system.errors import ConfigError, Fault, WorldError, fault, printable
from etlrun.system.files import write_atomically
from etlrun.system.terminal import number, print_table, say, significant

_OUTPUTS = Path("outputs")
_HEADER = ("experiments", "machine", "runs", "examples/s", "AU", "fill s per 1,000", "peak MB", "cache MB")


def main(arguments: list[str]) -> None:
    """Run `etlrun costs [FOLDER ...] [--write]`."""
    known = parser().parse_args(arguments)
    now = working_tree(known.config_dir)
    if known.write and now.own is None and not Path.cwd().is_relative_to(now.base.parent):
        raise ConfigError([_elsewhere(now.base)])
    experiments, given = _experiments(now)
    found, left_out = [], list[str]()
    for folder in known.folders or [_OUTPUTS]:
        entries, others = costs_of_runs(folder, given)
        found.append(entries)
        left_out += others
    measured = [_named(of, experiments) for of in Costs(*found).entries.values() if of.plan in experiments]
    measured.sort(key=lambda of: (of.experiment, of.machine))
    print_table(_HEADER, [_row(of, experiments[of.plan]) for of in measured])
    have = {of.plan for of in measured}
    missing = [name for plan, names in experiments.items() if plan not in have for name in names]
    for title, names in (("not measured", missing), ("left out", left_out)):
        if names:
            say(f"{title}: {', '.join(names)}")
    if known.write:
        if not measured:
            raise _nothing(known.folders or [_OUTPUTS])
        _write(now, measured, experiments)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "costs",
        "Show what the plans of the experiments cost, as completed runs have measured it: with any seed, "
        "epochs and learning rate. Runs that ran beside others, or that this version can't plan, are left out.",
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help=f"folder of runs; default: {_OUTPUTS}")
    parser.add_argument("--write", action="store_true", help=f"write {COSTS} in the config folder, for `etlrun diff`")
    parsers.add_config_dir(parser)
    return parser


def _experiments(now: Folders) -> tuple[dict[str, list[str]], set[Given]]:
    """Return the names of the experiments by the key of their plan, and the keys that they leave to the command line.

    Raises:
        ConfigError: One can't be planned.
    """
    side = of_folders("the working tree", now, None)
    variants = {name: side.variants[name] for name in side.listed if "=" not in name}
    faults = [fault for variant in variants.values() for fault in variant.faults]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    found: dict[str, list[str]] = {}
    for name, variant in variants.items():
        if variant.plan is not None:
            found.setdefault(plan_key(variant.plan, variant.missing), []).append(name)
    return found, {Given(variant.missing) for variant in variants.values()}


def _named(entry: Entry, experiments: Mapping[str, Sequence[str]]) -> Entry:
    return dataclasses.replace(entry, experiment=experiments[entry.plan][0])


def _row(of: Entry, names: Sequence[str]) -> Sequence[str]:
    fills = [seconds / read.examples for read in of.reads.values() if read.examples for seconds in read.fill_s]
    held = [read.held_bytes for read in of.reads.values() if read.held_bytes is not None]
    return [
        ", ".join(names),
        of.machine,
        str(of.runs),
        significant(_median(of.examples_per_s)),
        number(_median(of.au), 2),
        "" if not fills else significant(1000 * statistics.median(fills)),
        "-" if not of.memory_bytes else f"{statistics.median(of.memory_bytes) / 1e6:,.0f}",
        "" if not held else f"{sum(held) / 1e6:,.1f}",
    ]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _nothing(folders: Sequence[Path]) -> WorldError:
    return WorldError(
        where=printable(" ".join(map(str, folders))),
        found="no completed run of an experiment as it is now",
        expected="measured costs to write",
        remedy="run an experiment alone, such as etlrun experiment=NAME, and repeat the command",
    )


def _elsewhere(folder: Path) -> Fault:
    found, expected = f"none, and etlrun's own is {folder}", "the folder of your configs, which keeps their costs"
    return fault("--config-dir", found, expected, "name it, as in etlrun costs --write --config-dir conf")


def _write(now: Folders, measured: Sequence[Entry], experiments: Mapping[str, Sequence[str]]) -> None:
    """Write the file of costs: of other machines and plans those that it has stay, if an experiment has the plan."""
    path, file = (now.own or now.base) / COSTS, now.costs
    before = [] if file is None else read(file[1], file[0])
    kept = [_named(of, experiments) for of in before if of.plan in experiments]
    entries = [*Costs(kept, measured).entries.values()]
    write_atomically(path.resolve(), as_text(entries))  # where it is a link, what it leads to
    gone = len(before) - len(kept)
    ends = f", and {gone} of plans that no experiment has now {'is' if gone == 1 else 'are'} gone" if gone else ""
    say(f"wrote {now.name(path)}: {len(entries)} entr{'y' if len(entries) == 1 else 'ies'}{ends}")
