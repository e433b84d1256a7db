"""Review of two sides: the comparison of each experiment and of each file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.planning.plan import Plan
from etlrun.review.caches import Kept, caches, held_on_disk, with_fills
from etlrun.review.data_files import differing_files
from etlrun.review.difference import Comparison, Difference, compare, of_code
from etlrun.review.facts import CONTRADICTION, Facts
from etlrun.review.fills import Fills
from etlrun.review.folders import without_configs
from etlrun.review.git import asked, differing, top_of
from etlrun.review.jobs import matched
from etlrun.review.policy import Judgement
from etlrun.review.renames import renames
from etlrun.review.sides import DEFAULT, Side, Variant
from etlrun.stages.base import DATA, ORDER, TRAINING, Kind
from etlrun.system.errors import ConfigError, Fault, fault

if TYPE_CHECKING:
    from etlrun.review.runs_compared import Ran

NOTHING = Comparison(differences=(), kinds=(), since="", is_reordered=False, doubts=(), notes=())


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of examples before and after a change.

    Attributes:
        text: What they show, or why there are none.
        page: Path of the page; empty if there is none.
        image: Path of an image of the same; empty if there is none.
    """

    text: str
    page: str = ""
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """One experiment on both sides.

    Attributes:
        name: Name of the experiment; empty if the sides are single configs.
        old: Old plan; None if it is missing or invalid.
        new: New plan; None if it is missing or invalid.
        state: `compared`, `added`, `removed` or `faulty`.
        comparison: Comparison of the two plans; empty unless there are two.
        caches: State of the caches; empty if nothing changes.
        faults: Faults of both sides.
        images: Images of the examples; None unless requested.
        facts: What was read of both sides; None unless requested.
        missing: Keys that the config of either side leaves to the command line.
        ran: Comparison of the runs of both sides; None unless both are runs.
        only_in: The one of two sweeps that has it, if that is a job of one alone; else empty.
        was: Its name before; empty if it has kept its name.
        is_mended: Whether its old config alone has faults, so that what the change does is unknown.
    """

    name: str
    old: Plan | None
    new: Plan | None
    state: str
    comparison: Comparison = NOTHING
    caches: tuple[Kept, ...] = ()
    faults: tuple[Fault, ...] = ()
    images: Images | None = None
    facts: Facts | None = None
    missing: tuple[str, ...] = ()
    ran: Ran | None = None
    only_in: str = ""
    was: str = ""
    is_mended: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All that the change changes or may change, the strongest first: by both plans, and by what was read."""
        found, read = {*self.comparison.kinds}, self.facts
        if read is not None and False in (read.is_same, read.is_ordered):
            found.add(ORDER if read.is_same else DATA)
        return tuple(kind for kind in Kind if kind in found)

    @property
    def headline(self) -> str:
        """Summary of the change in one line."""
        if self.only_in:
            return f"is in {self.only_in} alone"
        if self.was:
            changes = f", and {self.comparison.headline}" if self.comparison.kinds else ""
            return f"is {self.was} under another name{changes}"
        return {"added": "is new", "removed": "is removed", "faulty": "cannot be compared"}.get(
            self.state, self.comparison.headline
        )

    @property
    def is_experiment(self) -> bool:
        """Whether this is an experiment of a revision, and neither a single config nor an option without experiment."""
        return bool(self.name) and "=" not in self.name

    @property
    def changes(self) -> bool:
        """Whether the plan differs."""
        return self.state != "compared" or bool(self.kinds)


@dataclass(frozen=True, kw_only=True)
class File:
    """Config file that differs.

    Attributes:
        name: Name in messages.
        state: `changed`, `added` or `removed`.
        reaches: Experiments that use it, on either side.
    """

    name: str
    state: str
    reaches: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Review:
    """Review of a change.

    Attributes:
        old: Argument that names the old side.
        new: Argument that names the new side.
        experiments: Compared experiments.
        files: Files that differ, if both sides are revisions.
        policy: What a policy says of the change; None without one.
        is_of_runs: Whether the old side is a run, or a sweep.
        experiment: The only experiment that is compared; None for all.
    """

    old: str
    new: str
    experiments: tuple[Reviewed, ...]
    files: tuple[File, ...]
    policy: Judgement | None = None
    is_of_runs: bool = False
    experiment: str | None = None

    @property
    def changes(self) -> bool:
        """Whether any plan differs."""
        return any(reviewed.changes for reviewed in self.experiments)

    @property
    def is_faulty(self) -> bool:
        """Whether an experiment could not be compared."""
        return any(reviewed.state == "faulty" for reviewed in self.experiments)


def review(old: Side, new: Side, experiment: str | None) -> Review:
    """Compare two sides; a single config is compared with the `experiment` of the other side."""
    before: dict[str, str] = {}
    if old.jobs:
        pairs = matched(old.jobs, new.jobs)
    elif old.is_revision and new.is_revision:
        names = _listed(old, new)
        if experiment is not None and not names:
            raise ConfigError([_no_experiment(experiment, old, new)])
        if not (old.listed or new.listed):
            raise ConfigError([without_configs(f"in {old.word} or {new.word}")])
        before = renames(old, new, names)
        kept = [name for name in names if name not in before.values()]
        pairs = [(name, old.variants.get(before.get(name, name)), new.variants.get(name)) for name in kept]
    else:
        pairs = [("", _single(old, experiment), _single(new, experiment))]
    between = [] if old.is_of_runs or new.is_of_runs else [side.revision for side in (old, new) if side.revision]
    paths = {path for _, *sides in pairs for of in sides if of is not None for _, path in of.data_files}
    files = differing_files(paths, *between) if between else set()
    top = top_of(Path.cwd())
    changed = {path: asked(top, path, *between) for path in differing(top, *between)} if between else {}
    differ = files, changed, f"differs between {old.word} and {new.word}"
    experiments = tuple(replace(_reviewed(*pair, *differ), was=before.get(pair[0], "")) for pair in pairs)
    if old.jobs:
        only = {"added": new.word, "removed": old.word}
        experiments = tuple(replace(of, only_in=only.get(of.state, "")) for of in experiments)
    listed = {name: plan for name in old.listed if "=" not in name and (plan := old.variants[name].plan) is not None}
    others, fills = held_on_disk(listed), Fills(Path("outputs"))
    found = tuple(_with_fills(reviewed, others, fills) for reviewed in experiments)
    made = Review(old=old.word, new=new.word, experiments=found, files=tuple(_files(old, new)))
    return replace(made, is_of_runs=old.is_of_runs, experiment=experiment)


def _with_fills(reviewed: Reviewed, others: Mapping[str, str], fills: Fills) -> Reviewed:
    """Return an experiment that changes with the caches that it fills; what was run on both sides fills none."""
    if reviewed.new is None or reviewed.ran is not None or reviewed.only_in:
        return reviewed
    kept = reviewed.caches
    if reviewed.state == "added" or reviewed.is_mended:
        kept = tuple(of for of in caches(None, reviewed.new) if of.is_filled)
    return replace(reviewed, caches=with_fills(kept, reviewed.new, others, fills))


def _listed(old: Side, new: Side) -> list[str]:
    """Return what a review of two revisions has; an option that fits the defaults on one side alone has no plans."""
    unfit = {name for side in (old, new) for name, variant in side.variants.items() if "=" in name and variant.is_unfit}
    return [name for name in dict.fromkeys([*old.listed, *new.listed]) if name not in unfit]


def _single(side: Side, experiment: str | None) -> Variant:
    name = (experiment or DEFAULT) if side.is_revision else ""
    if name not in side.variants:
        raise ConfigError([_no_experiment(name, side)])
    return side.variants[name]


def _no_experiment(name: str, *sides: Side) -> Fault:
    words = " or ".join(side.word for side in sides)
    return Fault(where="--experiment", found=f"{name}, which is not in {words}", expected="an existing experiment")


def _reviewed(
    name: str,
    old: Variant | None,
    new: Variant | None,
    files: Collection[str],
    changed: Mapping[str, str],
    what: str,
) -> Reviewed:
    before, after = (None if variant is None else variant.plan for variant in (old, new))
    faults = tuple(dict.fromkeys(fault for variant in (old, new) if variant is not None for fault in variant.faults))
    state = "faulty" if faults else "removed" if new is None else "added" if old is None else "compared"
    missing = tuple(dict.fromkeys(key for variant in (old, new) if variant is not None for key in variant.missing))
    reviewed = Reviewed(name=name, old=before, new=after, state=state, faults=faults, missing=missing)
    if faults and new is not None and not new.faults:
        return replace(reviewed, is_mended=True)
    if old is None or new is None or before is None or after is None or faults:
        return reviewed
    beside = [*_of_files(old, new, files, what), *_of_code(new, changed, what)]
    if old is new and not beside:
        return reviewed
    is_known = old.sources is not None or new.sources is not None
    sources = (old.code, new.code) if is_known else ({}, {})
    comparison = compare(before, after, (old.config or {}, new.config or {}), sources, beside)
    if old.runs is not None and new.runs is not None:
        from etlrun.review.runs_compared import compare_runs  # whose models take a tenth of a second to define

        reviewed = replace(reviewed, ran=compare_runs(old.runs, new.runs))
    if not comparison.kinds:
        return replace(reviewed, comparison=comparison)
    return replace(reviewed, comparison=comparison, caches=caches(before, after))


def _of_code(new: Variant, changed: Mapping[str, str], what: str) -> Iterator[Difference]:
    """Yield the files of another state on the other side that code of packages may read, or that may ask for others."""
    for name, source in new.code.items():
        if read := [path for path in changed if source.may_read(path)]:
            yield of_code(
                name, source.package, source.package, f"{source.title} may read {', '.join(read)}, which {what}"
            )
        if asking := [path for path, text in changed.items() if source.is_named(text)]:
            note = f"{', '.join(asking)} asks otherwise for it, and {what}; both sides have what is installed"
            yield of_code(name, source.package, source.package, note)


def _of_files(old: Variant, new: Variant, files: Collection[str], what: str) -> Iterator[Difference]:
    """Yield the data files that both configs name and that git has in another state on the other side."""
    for key, path in new.data_files:
        if path in files and (key, path) in old.data_files:
            group, stage = key.partition(".")[0], ".".join(key.split(".")[:2])
            where = (
                "both sides read that of the working tree" if Path(path).is_absolute() else "each side reads its own"
            )
            kind, since = (TRAINING, "") if group == "model" else (DATA, "the dataset" if group == "dataset" else stage)
            yield Difference(path=key, old=path, new=path, kind=kind, since=since, note=f"{what}; {where}")


def _files(old: Side, new: Side) -> Iterator[File]:
    if not (old.is_revision and new.is_revision):
        return
    for name in sorted(old.files.keys() | new.files.keys()):
        if old.files.get(name) != new.files.get(name):
            state = "added" if name not in old.files else "removed" if name not in new.files else "changed"
            reaches = [
                experiment
                for experiment in _listed(old, new)
                if any(name in side.variants[experiment].files for side in (old, new) if experiment in side.variants)
            ]
            yield File(name=name, state=state, reaches=tuple(reaches))


def contradictions(found: Review) -> list[Fault]:
    """Return the faults of comparisons that what was read denies."""
    return [
        fault(
            reviewed.name or "verify",
            line.removeprefix(CONTRADICTION),
            "what the comparison says",
            "report it to etlrun, with both configs and the output of this command with --format json",
        )
        for reviewed in found.experiments
        for line in (reviewed.facts.lines if reviewed.facts is not None else ())
        if line.startswith(CONTRADICTION)
    ]
