"""Review of two sides: the comparison of each experiment and of each file, judged by a policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.planning.plan import Plan
from etlrun.review.data import DataChange
from etlrun.review.difference import Comparison, Difference, compare
from etlrun.review.effects import CONTRADICTION, SHARED, CacheChange, Facts, caches, held_by
from etlrun.review.folders import FORBIDDEN, MEASURED, STATES, Judgement, Policy, Rule, without_configs
from etlrun.review.revisions import Changes
from etlrun.review.sides import DEFAULT, Side, Variant
from etlrun.stages.base import DATA, ORDER, TRAINING, Kind
from etlrun.stages.objectives import falls
from etlrun.system.errors import ConfigError, Fault, counted, fault, first_few, of_file
from etlrun.system.values import frozen

if TYPE_CHECKING:
    from etlrun.review.runs import Ran

NOTHING = Comparison()
_LEAST = 0.5
"""Least share of equal lines of a file that is taken for another one under another name, as in git."""
_OF_ALL = (b"# @package", b"defaults:", b"- _self_")
"""What lines of any experiment begin with."""
_MOST_NAMES = 5
"""Maximum number of names in a sentence of a policy."""
_UNKNOWN = "its old config cannot be composed with the code that is installed here"
_KEEP = "keep the code that the old configs need, or remove these configs in a separate change"


@frozen
class ChangedImages:
    """Images of examples before and after a change.

    Attributes:
        text: What they show, or why there are none.
        page: Path of the page; empty if there is none.
    """

    text: str
    page: str = ""


@frozen
class Reviewed:
    """One experiment on both sides.

    Attributes:
        name: Name of the experiment; empty if the sides are single configs.
        sides: Its old and its new config; None on a side that lacks it.
        comparison: Comparison of the two plans; empty unless there are two.
        caches: State of the caches; empty if nothing changes.
        images: Images of the examples; None unless requested.
        facts: What was read of both sides; None unless requested.
        data: Figures of the data that differ; None unless requested.
        unread: Why these are unknown; empty if they are not.
        ran: Comparison of the runs of both sides; None unless both are runs.
        only_in: The one of two sweeps that has it, if that is a job of one alone; else empty.
        was: Its name before; empty if it has kept its name.
    """

    name: str
    sides: tuple[Variant | None, Variant | None]
    comparison: Comparison = NOTHING
    caches: tuple[CacheChange, ...] = ()
    images: ChangedImages | None = None
    facts: Facts | None = None
    data: tuple[DataChange, ...] | None = None
    unread: str = ""
    ran: Ran | None = None
    only_in: str = ""
    was: str = ""

    @property
    def plans(self) -> tuple[Plan | None, Plan | None]:
        """The old and the new plan; None for one that is missing or invalid."""
        old, new = self.sides
        return None if old is None else old.plan, None if new is None else new.plan

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults of both sides."""
        return tuple(dict.fromkeys(fault for side in self.sides if side is not None for fault in side.faults))

    @property
    def state(self) -> str:
        """State: `compared`, `added`, `removed` or `faulty`."""
        old, new = self.sides
        return "faulty" if self.faults else "removed" if new is None else "added" if old is None else "compared"

    @property
    def is_mended(self) -> bool:
        """Whether its old config alone has faults, so that what the change does is unknown."""
        new = self.sides[1]
        return bool(self.faults) and new is not None and not new.faults

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
        states = {"added": "is new", "removed": "is removed", "faulty": "cannot be compared"}
        if self.only_in and not self.faults:
            return f"only in {self.only_in}"
        if self.was:
            changes = f", and {self.comparison.headline}" if self.comparison.kinds else ""
            return f"is {self.was} under another name{changes}"
        if self.unread and self.state == "compared" and not self.kinds:
            return "changes nothing in the plan; what differs in the data is unknown"
        return states.get(self.state, self.comparison.headline)

    @property
    def is_experiment(self) -> bool:
        """Whether this is an experiment of a revision, and neither a single config nor an option without experiment."""
        return bool(self.name) and "=" not in self.name

    @property
    def changes(self) -> bool:
        """Whether the plan differs."""
        return self.state != "compared" or bool(self.kinds)


@frozen
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


@frozen
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
        notes: What is known of the commits of runs beside revisions, a sentence each.
    """

    old: str
    new: str
    experiments: tuple[Reviewed, ...]
    files: tuple[File, ...]
    policy: Judgement | None = None
    is_of_runs: bool = False
    experiment: str | None = None
    notes: tuple[str, ...] = ()

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
    names: list[str] = []
    if old.jobs:
        pairs = matched(old.jobs, new.jobs)
    elif old.is_revision and new.is_revision:
        # An option that fits the defaults on one side alone has no plans.
        unfit = {name for side in (old, new) for name, of in side.variants.items() if "=" in name and of.is_unfit}
        names = [name for name in dict.fromkeys([*old.listed, *new.listed]) if name not in unfit]
        if experiment is not None and not names:
            raise _no_experiment(experiment, old, new)
        if not (old.listed or new.listed):
            raise ConfigError([without_configs(f"in {old.word} or {new.word}")])
        before = _renames(old, new, names)
        kept = [name for name in names if name not in before.values()]
        pairs = [(name, old.variants.get(before.get(name, name)), new.variants.get(name)) for name in kept]
    else:
        pairs = [("", _single(old, experiment), _single(new, experiment))]
    between = [side.revision for side in (old, new) if side.revision]
    between = [] if any(side.is_of_runs and not side.revision for side in (old, new)) else between
    variants = [of for _, *both in pairs for of in both if of is not None]
    files = Changes(*between).files(path for of in variants for _, path in of.data_files) if between else set[str]()
    what = f"differs between {old.word} and {new.word}"
    found, held = list[Reviewed](), _held(old)
    for name, was, now in pairs:
        only_in = "" if not old.jobs else old.word if now is None else new.word if was is None else ""
        reviewed = Reviewed(name=name, sides=(was, now), was=before.get(name, ""), only_in=only_in)
        if was is not None and now is not None:
            reviewed = _compared(reviewed, was, now, [*_of_data(was, now, files, what)])
        if (plan := reviewed.plans[1]) is not None and reviewed.ran is None and not only_in:  # what was run fills none
            is_new = reviewed.state == "added" or reviewed.is_mended
            filled = [of for of in caches(None, plan) if of.is_filled] if is_new else reviewed.caches
            reviewed = replace(
                reviewed, caches=tuple(_shared(of, held.get(held_by(plan, of.pipeline))) for of in filled)
            )
        found.append(reviewed)
    return Review(
        old=old.word,
        new=new.word,
        experiments=tuple(found),
        files=tuple(_files(old, new, names)),
        is_of_runs=old.is_of_runs,
        experiment=experiment,
        notes=(*filter(None, (old.note, new.note)),),
    )


def _held(side: Side) -> dict[str, str]:
    """Return the caches on disk of a side's experiments, each with the name of one."""
    plans = [(name, side.variants[name].plan) for name in side.listed if "=" not in name]
    return {held_by(plan, of): name for name, plan in plans if plan is not None for of in plan.pipelines}


def _shared(kept: CacheChange, name: str | None) -> CacheChange:
    """Return a cache with the experiment that has it already; as it is if none has, or it is not filled."""
    if not name or not kept.is_filled:
        return kept
    return replace(kept, state=SHARED, because=(), provided=(f"with {name}, and is not filled again",), size="")


def matched(old: Sequence[Variant], new: Sequence[Variant]) -> list[tuple[str, Variant | None, Variant | None]]:
    """Return the jobs of two sweeps by their overrides, those of one sweep alone with None for the other.

    Counted are the keys that one of the two sweeps: what all jobs of a sweep share may differ from the other's.
    """
    sides = [
        [{word.partition("=")[0].lstrip("+~"): word.lstrip("+") for word in job.overrides} for job in jobs]
        for jobs in (old, new)
    ]
    swept = [
        key
        for key in dict.fromkeys(key for side in sides for words in side for key in words)
        if any(len({words.get(key) for words in side}) > 1 for side in sides)
    ]
    named = [
        {" ".join(words[key] for key in swept if key in words): job for words, job in zip(side, jobs, strict=True)}
        for side, jobs in zip(sides, (old, new), strict=True)
    ]
    return [(name, named[0].get(name), named[1].get(name)) for name in dict.fromkeys([*named[0], *named[1]])]


def _single(side: Side, experiment: str | None) -> Variant:
    name = (experiment or DEFAULT) if side.is_revision else ""
    if name not in side.variants:
        raise _no_experiment(name, side)
    return side.variants[name]


def _no_experiment(name: str, *sides: Side) -> ConfigError:
    found = f"{name}, which is not in {' or '.join(side.word for side in sides)}"
    return ConfigError([fault("--experiment", found, "an existing experiment")])


def _compared(reviewed: Reviewed, old: Variant, new: Variant, beside: Sequence[Difference]) -> Reviewed:
    """Return an experiment that both sides have with their comparison; as it is if one of them has faults."""
    if old.plan is None or new.plan is None or reviewed.faults or (old is new and not beside):
        return reviewed
    is_known = old.sources is not None or new.sources is not None
    sources = (old.code, new.code) if is_known else ({}, {})
    comparison = compare(old.plan, new.plan, (old.config or {}, new.config or {}), sources, beside)
    kept = caches(old.plan, new.plan) if comparison.kinds else ()
    ran = None
    if old.runs is not None and new.runs is not None:
        from etlrun.review.runs import compare_runs  # whose models take a tenth of a second to define

        cuts = [side.sweep for side in (old, new) if side.sweep is not None and side.sweep.cuts]
        ran = compare_runs(old.runs, new.runs, cuts)
    return replace(reviewed, comparison=comparison, caches=kept, ran=ran)


def _of_data(old: Variant, new: Variant, files: Collection[str], what: str) -> Iterator[Difference]:
    """Yield the data files that both configs name, and that git has in another state on the other side."""
    for key, path in new.data_files:
        if path in files and (key, path) in old.data_files:
            group, stage = key.partition(".")[0], ".".join(key.split(".")[:2])
            of_tree, of_each = "both sides read that of the working tree", "each side reads its own"
            note = what if new.runs or old.runs else f"{what}; {of_tree if Path(path).is_absolute() else of_each}"
            kind, since = (TRAINING, "") if group == "model" else (DATA, "the dataset" if group == "dataset" else stage)
            yield Difference(key, path, path, kind, since, note=note)


def _files(old: Side, new: Side, names: Sequence[str]) -> Iterator[File]:
    differing = {name for name, _ in old.files.items() ^ new.files.items()} if old.files and new.files else ()
    for name in sorted(differing):
        state = "added" if name not in old.files else "removed" if name not in new.files else "changed"
        used = {of for side in (old, new) for of, variant in side.variants.items() if name in variant.files}
        yield File(name=name, state=state, reaches=tuple(of for of in names if of in used))


def contradictions(found: Review) -> list[Fault]:
    """Return the faults of comparisons that what was read denies."""
    remedy = "report it to etlrun, with both configs and the output of this command with --format json"
    return [
        fault(of.name or "verify", line.removeprefix(CONTRADICTION), "what the comparison says", remedy)
        for of in found.experiments
        for line in (of.facts.lines if of.facts is not None else ())
        if line.startswith(CONTRADICTION)
    ]


def unconfirmed(found: Review) -> list[Fault]:
    """Return the faults of data that are there and can't be read, of which nothing is confirmed."""
    remedy = "restore the data, or compare the plans alone: etlrun diff"
    return [
        fault(of.name or "verify", f"data that can't be read: {of.facts.unread}", "examples of both sides", remedy)
        for of in found.experiments
        if of.facts is not None and of.facts.is_unreadable
    ]


def _renames(old: Side, new: Side, names: Sequence[str]) -> dict[str, str]:
    """Return the old names of those with the plan of one that is gone, or half of the lines of its file."""
    gone = [name for name in names if name not in new.variants]
    come = [name for name in names if name not in old.variants and new.variants[name].plan is not None]
    found: dict[str, str] = {}
    for name in come:
        group = name.rpartition("=")[0]
        left = [was for was in gone if was not in found.values() and was.rpartition("=")[0] == group]
        shares = {was: _share(old, was, new, name) for was in left}
        best = max(left, key=lambda was: shares[was], default="")
        if best and shares[best] >= _LEAST:
            found[name] = best
    return found


def _share(old: Side, was: str, new: Side, name: str) -> float:
    """Return the share of equal lines in two files; 1 if both have the same plan."""
    one, other = old.variants[was].plan, new.variants[name].plan
    if one and other and one.fingerprint == other.fingerprint and not compare(one, other).differences:
        return 1.0
    lines = ({line.strip() for line in text.splitlines()} for text in (_text(old, was), _text(new, name)))
    before, after = ({line for line in of if line and not line.startswith(_OF_ALL)} for of in lines)
    return 2 * len(before & after) / max(1, len(before) + len(after))


def _text(side: Side, name: str) -> bytes:
    end = f"/{name.replace('=', '/') if '=' in name else f'experiment/{name}'}.yaml"
    return next((side.files[file] for file in side.variants[name].files if f"/{file}".endswith(end)), b"")


def judged(review: Review, sides: tuple[Side, Side], fail_on: Collection[str], labels: Collection[str]) -> Review:
    """Return the review with what the policy of its sides says, and with what `fail_on` forbids, which none waives."""
    policy = _chosen(*sides)
    if policy == Policy() and not fail_on:
        return review
    rules = [Rule(name=name, where="--fail-on") for name in FORBIDDEN if name in fail_on]
    broken, waived = [], []
    for rule in (*rules, *policy.rules):
        fault = _broken(rule, review.experiments)
        if fault is not None and rule.label and rule.label in labels:
            waived.append(f"{fault.place}: found {fault.found}, which the label {rule.label} waives")
        elif fault is not None:
            broken.append(fault)
    found = Judgement(
        broken=tuple(broken),
        waived=tuple(waived),
        file=policy.file,
        note=policy.note,
        faults=policy.faults,
        unjudged=first_few([of.name for of in review.experiments if of.state == "faulty"], _MOST_NAMES),
    )
    return replace(review, policy=found)


def _chosen(old: Side, new: Side) -> Policy:
    """Return the old policy, so that no change loosens what judges it; the new one if there is no sound old one."""
    before, after = old.policy, new.policy
    judging = next((policy for policy in (before, after) if policy is not None and not policy.faults), None)
    changed = after or before
    if judging is None or changed is None:
        return Policy() if changed is None else Policy(faults=changed.faults)
    note = ""
    if old.is_revision and new.is_revision and (before and before.text) != (after and after.text):
        state = "added" if before is None else "removed" if after is None else "changed"
        note = f"{changed.file}: {state}{', and has faults' * bool(changed.faults)}"
        note += f"; {old.word} has one with faults" if judging is after and before is not None else ""
        note += f"; this change is judged by the one of {(old if judging is before else new).word}"
    return replace(judging, note=note)


def _broken(rule: Rule, experiments: Sequence[Reviewed]) -> Fault | None:
    keep, expected = "", "none"
    if rule.name == MEASURED:
        expected = "runs that are better by a measure of a validation, and worse by none"
        found = "; ".join(filter(None, (_not_better(of) for of in experiments if of.changes or of.ran is not None)))
        leads = [item.lead for of in experiments if of.ran is not None for item in of.ran.measured]
        keep = "" if any(of and of.low is not None for of in leads) else "compare runs of three seeds or more each"
    elif rule.name in STATES:
        names = [of.name for of in experiments if of.state == STATES[rule.name] and of.is_experiment]
        what = counted(len(names), f"{rule.name} experiment")
        found = f"{what}: {first_few(names, _MOST_NAMES)}" if names else ""
    else:
        changed = [of for of in experiments if of.is_mended or rule.name in of.kinds or _is_unconfirmed(of, rule)]
        found, keep = _changes(Kind(rule.name), changed), _KEEP * any(of.is_mended for of in changed)
    if not found:
        return None
    waive, without = (f"{words} the label {rule.label}" * bool(rule.label) for words in ("give it", " without"))
    remedy = ", or ".join(filter(None, [keep, waive]))
    broken = of_file(rule.file, found, f"{expected}{without}", remedy, line=rule.line, key=rule.where)
    return replace(broken, decide=bool(waive) or rule.name != MEASURED)


def _is_unconfirmed(of: Reviewed, rule: Rule) -> bool:
    """Return whether data that can't be read, or, to --fail-on, that are not here, may break a rule."""
    facts = of.facts
    return rule.name == Kind.DATA and bool(
        facts and (facts.unread if rule.where == "--fail-on" else facts.is_unreadable)
    )


def _not_better(reviewed: Reviewed) -> str:
    """Return why runs are not better than before by a measure of a validation, and worse by none; empty if they are.

    Measures are those of the validation and of named sets that both sides have; better and worse are what the 95 %
    interval of the differences of equal seeds says.
    """
    name = f" in {reviewed.name}" * bool(reviewed.name)
    if reviewed.ran is None:
        return f"configs alone, without runs that measure them{name}"
    ends = dict[str, list[float]]()
    for of in reviewed.ran.measured:
        if of.lead is not None and of.lead.low is not None and of.lead.high is not None:
            ends[of.measure] = sorted((-1 if falls(of.measure) else 1) * end for end in (of.lead.low, of.lead.high))
    if worse := [measure for measure, (_, high) in ends.items() if high < 0]:
        return f"runs that are worse by {first_few(worse, _MOST_NAMES)}{name}"
    if not ends:
        return f"runs without three seeds on both sides, which have no intervals{name}"
    return (
        "" if any(low > 0 for low, _ in ends.values()) else f"runs that are better by none of {', '.join(ends)}{name}"
    )


def _changes(kind: Kind, changed: Iterable[Reviewed]) -> str:
    """Return a sentence on changes of a kind, with the values that make them; empty without a change."""
    found: dict[tuple[str, str], list[str]] = {}
    for of in changed:
        paths = [item.path for item in of.comparison.differences if item.kind == kind or kind in item.also]
        read = "nothing is confirmed" if of.facts and of.facts.unread else "examples that were read differ"
        doubts = _UNKNOWN if of.is_mended else " ".join(of.comparison.doubts) or read
        by = (f"a change of the {kind}", f" by {first_few(paths, _MOST_NAMES)}")
        unsure = (f"perhaps a change of the {kind}", f" ({doubts.rstrip('.')})")
        found.setdefault(by if paths else unsure, []).append(of.name)
    return ", and ".join(
        f"{what}{f' in {first_few(names, _MOST_NAMES)}' * any(names)}{by}"
        for (what, by), names in sorted(found.items(), key=lambda item: item[0][0])
    )
