"""Commands that review configs: a check of all of them, a comparison of two, and what both sides read."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.cli.commands import Answer
from etlrun.config import folders as configs
from etlrun.planning.plan import Plan
from etlrun.review import check as checks
from etlrun.review.data import FIGURES, NOT_KEPT, changes
from etlrun.review.difference import DATASET, Difference
from etlrun.review.document import comment, groups, of_review
from etlrun.review.effects import ABSENT, Facts, Plans, ReadExamples, Sides, facts_of, repeatable
from etlrun.review.folders import Judgement, PolicyError, working_tree
from etlrun.review.review import ChangedImages, Review, Reviewed, contradictions, judged, review, unconfirmed
from etlrun.review.sides import Side, Variant
from etlrun.sources.base import open_source
from etlrun.stages.base import DATA
from etlrun.stages.rows import Python
from etlrun.sweep.sides import sides_of
from etlrun.system.errors import ConfigError, EtlrunError, counted, headline, of_file
from etlrun.system.files import refuse_unwritable
from etlrun.system.values import Block

if TYPE_CHECKING:
    from etlrun.datasets.examine.show import Sheet


def check(known: Namespace) -> Answer:
    """Check all configs; the error has all faults."""
    began = time.perf_counter()
    folders, updated = working_tree(known.config_dir), list[str]()
    checked = checks.check(folders)
    project = configs.config_dir().parent / "tests" / "golden" / "plans"  # not of an installation
    golden = known.golden or (project if folders.own is None and project.is_dir() else None)
    if golden is not None:
        try:
            updated += checks.compare_plans(checked, golden, update=known.update)
        except OSError as unfit:
            found, expected = str(unfit.strerror), "a folder for golden plans that can be read and written"
            checked.add([of_file(str(unfit.filename or golden), found, expected)])
    error = ConfigError(list(checked.faults.values())) if checked.faults else None
    if known.format == "text":
        return Answer(checks.of_check(checked, updated, time.perf_counter() - began), error=error)
    sys.stderr.writelines(f"{line}\n" for line in updated)
    return Answer(checks.FORMATS[known.format](checked), error=error)


_EXAMPLES = 4
"""Examples of which images before and after are written."""


def compare(known: Namespace) -> Answer:
    """Compare two sides; to verify it, read some `examples` of both.

    Status 2 if a plan can't be compared, 4 if a policy is broken, and 1 for a difference with `--exit-code`. An error
    says that a policy is broken, unless the text does, that what was read contradicts the comparison, or that data
    can't be read.
    """
    old, new, experiment = sides_of(known.old, known.new, known.experiment, known.config_dir)
    found = review(old, new, experiment)
    if "examples" in known:
        found = with_facts(found, old, new, known.examples)
    if known.show is not None:
        found = _with_images(found, known.show, (old, new))
    if "examples" in known or known.show is not None:
        found = with_data(found, (old, new))
    found = judged(found, (old, new), known.fail_on, known.label)
    is_told, doc = known.format == "text", of_review(found)
    says = comment(doc) if known.format == "markdown" else doc
    policy, denied = found.policy or Judgement(), contradictions(found)
    if found.is_faulty or (policy.faults and is_told):
        return Answer(says, ConfigError.status)
    if policy.faults or denied:
        return Answer(says, error=ConfigError(policy.faults) if policy.faults else EtlrunError(denied))
    if policy.broken:
        return Answer(says, PolicyError.status, None if is_told else PolicyError(policy.broken))
    if unread := unconfirmed(found):
        return Answer(says, error=EtlrunError(unread))
    return Answer(says, int(known.exit_code and found.changes))


def _with_images(found: Review, folder: Path, sides: tuple[Side, Side]) -> Review:
    """Write the examples before and after each change of the data to `folder`, once for experiments that are alike."""
    firsts = {names[0] for names, _ in groups(found)}
    chosen = [of for of in found.experiments if of.name in firsts and of.comparison.changes_data]
    if chosen:
        refuse_unwritable(folder, "--show")
    images = {of.name: _images(of, folder, sides) for of in chosen}
    return replace(found, experiments=tuple(replace(of, images=images.get(of.name)) for of in found.experiments))


def _images(reviewed: Reviewed, folder: Path, sides: tuple[Side, Side]) -> ChangedImages:
    from etlrun.cli.configs import write
    from etlrun.datasets.examine.compare import compared

    changes = [of for of in reviewed.comparison.differences if of.kind == DATA]
    pipeline = "validation" if all(of.pipelines == ("validation",) for of in changes) else "train"
    plans = [plan for plan in reviewed.plans if plan is not None]
    try:
        sheet = compared(*(side.call(_sheet_of, plan, pipeline) for side, plan in zip(sides, plans, strict=True)))
    except EtlrunError as error:
        return ChangedImages(text=f"none, since {error.faults[0].place}: found {error.faults[0].found}")
    if not sheet.views:
        return ChangedImages(
            text=f"none, since the first {counted(len(sheet.targets), 'example')} of {pipeline} do not differ"
        )
    page = folder / f"{reviewed.name.replace('/', '-') or 'diff'}.html"
    write(sheet, page, ", ".join(f"{of.path} {of.change}" for of in changes), "--show")
    text = f"{counted(len(sheet.targets), 'example')} of {pipeline} before and after"
    return ChangedImages(text=text, page=page.as_posix())


def _sheet_of(plan: Plan, pipeline: str) -> Sheet:
    from etlrun.datasets.examine.compare import first_examples
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the configs have been validated

    with prepare(None):
        return first_examples(plan, pipeline, _EXAMPLES)


def with_data(review: Review, sides: tuple[Side, Side]) -> Review:
    """Return the review with figures of the data that differ, of experiments whose dataset may be another one."""
    firsts, is_of_runs = {names[0] for names, _ in groups(review)}, any(side.is_of_runs for side in sides)

    def may_differ(of: Reviewed) -> bool:
        others = [item for item in of.comparison.differences if item.since == DATASET and item.kind == DATA]
        is_whole = (
            None not in of.plans and not of.faults and not any(variant and variant.missing for variant in of.sides)
        )
        return is_whole and (is_of_runs or (of.name in firsts and bool(others or of.comparison.is_unsure)))

    found = (_with_data(of, sides) if may_differ(of) else of for of in review.experiments)
    return replace(review, experiments=tuple(found))


def _with_data(of: Reviewed, sides: tuple[Side, Side]) -> Reviewed:
    variants = [variant for variant in of.sides if variant is not None]
    runs = [run for variant in variants for run in variant.runs or ()]
    try:
        old, new = (_profiles(*each, runs) for each in zip(sides, variants, strict=True))
    except EtlrunError as error:
        return replace(of, unread=_reason(error))
    found, comparison = changes(old, new), of.comparison
    if DATA in comparison.kinds:
        return replace(of, data=found)
    digests = [(old[name]["digest"], new[name]["digest"]) for name in new if name in old]
    if not any(None not in both and both[0] != both[1] for both in digests):
        return replace(of, data=tuple(each for each in found if each.before != NOT_KEPT))
    was, now = (f"records {' and '.join(str(each[side])[:8] for each in digests)}" for side in (0, 1))
    other = Difference("dataset", was, now, DATA, DATASET, note="other records than were read")
    differences, kinds = (other, *comparison.differences), (DATA, *comparison.kinds)
    return replace(of, data=found, comparison=replace(comparison, differences=differences, kinds=kinds, since=DATASET))


def _reason(error: EtlrunError) -> str:
    return "; ".join(f"{fault.place}: found {fault.found}" for fault in error.faults)


def _profiles(side: Side, variant: Variant, runs: Sequence[Path]) -> Block:
    """Return the figures of the data of a side; of a run what its folder keeps, at least the number of examples."""
    if not variant.runs:
        found: Block = side.call(_read_profiles, variant.plan, runs)
        return found
    from etlrun.record.summary import Read, read_summary

    with suppress(OSError, ValueError):
        kept: Block = json.loads((variant.runs[0] / FIGURES).read_bytes())
        return kept
    summary = read_summary(variant.runs[0])
    then = Read() if summary is None else summary.dataset
    return {
        name: {"examples": count, "digest": then.digest.get(name), "columns": None}
        for name, count in then.examples.items()
    }


def _read_profiles(plan: Plan, runs: Sequence[Path]) -> Block:
    """Return the figures of the data of a plan; beside `runs`, which know them, with digests of the records."""
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the configs have been validated

    with prepare(None):
        from etlrun.datasets.examine.profile import profiled
        from etlrun.run.readings import readings_of

        readings = readings_of(plan, open_source(plan.spec.dataset.as_it_is())).items()
        splits = {name: of.split for name, of in readings}
        return {name: profiled(of.source, of, of.content.digest if runs else None) for name, of in splits.items()}


_NOT_READ = ("model.", "trainer.", "logger.", "profile.", "measure.")
"""Beginnings of keys on which no pipeline rests."""


def with_facts(review: Review, old: Side, new: Side, examples: int) -> Review:
    """Return the review with facts on each experiment that changes or is new; equal pipelines are read once."""
    readers, found = (_Reader(old, examples), _Reader(new, examples)), []
    for of in review.experiments:
        is_read = of.changes and of.plans[1] is not None and not of.faults
        found.append(replace(of, facts=_facts(of, readers) if is_read else None))
    return replace(review, experiments=tuple(found))


def _facts(reviewed: Reviewed, readers: tuple[_Reader, _Reader]) -> Facts:
    plans, missing = reviewed.plans, (key for side in reviewed.sides if side is not None for key in side.missing)
    absent = [key for key in dict.fromkeys(missing) if not key.startswith(_NOT_READ)]
    reason = f"{', '.join(absent)}: found ???, which a run is given" if absent else ""
    codes = [of for of in reviewed.comparison.differences if of.path.startswith("code of the dataset ")]
    if any(of.old == of.new for of in codes) and any(plan and isinstance(plan.spec.dataset, Python) for plan in plans):
        reason = reason or "the rows of a function are kept, and not made anew for other files"
    read = _read_both(plans, readers, reason)
    is_own = not any(reader.side.is_of_runs for reader in readers)
    found = facts_of(reviewed.comparison, plans, read, by_own_code=is_own)
    if found.contradicts:
        again = _read_both(plans, [_Reader(of.side, of.examples) for of in readers])
        return facts_of(reviewed.comparison, plans, repeatable(read, again), by_own_code=is_own)
    return found


def _read_both(plans: Plans, readers: Sequence[_Reader], reason: str = "") -> dict[str, Sides]:
    """Return what was read of both plans, by pipeline; nothing if there is a `reason` not to."""
    old, new = ({} if plan is None else of.read(plan, reason) for plan, of in zip(plans, readers, strict=True))
    return {name: (old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**new, **old}}


class _Reader:
    """Reads one side, each of its pipelines once."""

    def __init__(self, side: Side, examples: int) -> None:
        self.side, self.examples = side, examples
        self._done: list[tuple[Any, ReadExamples]] = []

    def read(self, plan: Plan, reason: str) -> dict[str, ReadExamples]:
        """Return what was read of each pipeline of a plan; nothing if there is a `reason` not to."""
        found, spec = {}, plan.spec
        for name in [name for name, stages in plan.pipelines.items() if stages]:
            key = (name, plan.pipelines[name], spec.dataset, spec.trainer.seed, spec.load.service)
            done = ReadExamples(reason=reason) if reason else next((of for each, of in self._done if each == key), None)
            if done is None:
                done = self.side.call(_read, plan, name, self.examples)
                self._done.append((key, done))
            found[name] = done
        return found


def _read(plan: Plan, name: str, examples: int) -> ReadExamples:
    from etlrun.run.backend import prepare, seed_all  # imports TensorFlow, so only after configs have been validated

    with prepare(None):
        from etlrun.datasets.examine.show import AbsentError, read

        seed_all(plan.spec.trainer.seed)
        try:
            hashes, every = read(plan, name, examples)
        except EtlrunError as error:
            is_absent = isinstance(error, AbsentError)
            return ReadExamples(reason=_reason(error), unread="absent" if is_absent else "unreadable")
        except Exception as error:  # noqa: BLE001 - code of a plugin raises anything, and the others are to be read
            return ReadExamples(reason=f"{type(error).__name__}: {headline(error)}", unread="unreadable")
    return ReadExamples(hashes=hashes, split_examples=every, is_ordered=plan.spec.has_order)
