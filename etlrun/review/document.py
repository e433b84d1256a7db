"""A review as a document for terminals, comments, pages and machines."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from etlrun.config.overrides import set_to
from etlrun.report.doc import Col, Doc, Line, Lines, Paragraph, Part, Section, Table
from etlrun.report.render import blocks
from etlrun.review.data import parts_of
from etlrun.review.effects import CONTRADICTION, filled_line
from etlrun.review.review import Review, Reviewed, contradictions
from etlrun.review.sides import DEFAULT
from etlrun.stages.base import Kind
from etlrun.system.errors import counted, first_few
from etlrun.system.terminal import plain
from etlrun.system.values import Block, grouped

FORMAT_VERSION = 2
_STYLES = {"data": "bad", "order": "mark", "training": "accent", "speed": "good", "nothing": "soft"}
_MOST_CHARACTERS = 60_000
"""Maximum length of a comment; GitHub allows 65,536."""
_MOST_NAMES = 20
"""Maximum number of experiments that are named beside those that change."""
_TERMINAL, _PAGES = ("text",), ("md", "html", "notebook")
_ON_TERMINALS = (
    Col("", "path"),
    Col("", "change"),
    Col("", "what", style=lambda of: _STYLES[str(of.kind or "nothing")]),
)
_ON_PAGES = (
    Col("what", "path", is_code=True),
    Col("from", "old", is_code=True),
    Col("to", "new", is_code=True),
    Col("changes", "what"),
)


def of_review(review: Review) -> Doc:
    """Return a review as a document."""
    found = groups(review)
    changed = {name for names, _ in found for name in names}
    rest = [of.name for of in review.experiments if of.name not in changed]
    told = ", ".join(rest) if len(rest) <= _MOST_NAMES else counted(len(rest), "experiment")
    same = ["no difference" if told == "" else f"{told}: no difference"] * bool(rest)
    parts: list[Part] = [Paragraph(f"{review.old} -> {review.new}", only=_TERMINAL, style="strong")] * review.is_of_runs
    parts += [Lines([("", f"note: {note}") for note in review.notes]), *_policy(review, _PAGES)]
    parts += [_section(*each) for each in found]
    for file in review.files:
        reached = [of for of in review.experiments if of.name in file.reaches]
        plans = ", and changes no plan" * (bool(reached) and not any(of.changes for of in reached))
        reaches = f"reaches {first_few(file.reaches, _MOST_NAMES) or 'no experiment'}{plans}"
        if not file.reaches and review.experiment is not None:
            reaches = f"does not reach {review.experiment}"
        same.append(f"{file.name}: {file.state}, {reaches}")
    parts += [Lines([("", line) for line in same]), *_policy(review, _TERMINAL)]
    return Doc(
        _sums(review),
        parts,
        over=f"etlrun: {review.old or '(defaults)'} → {review.new or '(defaults)'}",
        json=lambda: _json(review),
    )


def comment(doc: Doc) -> str:
    """Return a document as Markdown for a comment, which is cut off where it is too long for one."""
    found = [f"### {plain(doc.over)}", f"**{plain(doc.title)}**", *blocks(doc.parts, 4)]
    lengths = [*accumulate(len(block) + 2 for block in found)]
    held = sum(length <= _MOST_CHARACTERS for length in lengths)
    omitted = lengths[-1] - lengths[held - 1]
    found[held:] = [f"Too long for a comment: {omitted:,} characters are omitted."] * bool(omitted)
    return "\n\n".join(found) + "\n"


def groups(review: Review) -> list[tuple[list[str], Reviewed]]:
    """Return the experiments that change, grouped by equal differences."""
    found: dict[Any, tuple[list[str], Reviewed]] = {}
    for reviewed in review.experiments:
        if reviewed.changes or reviewed.comparison.differences or reviewed.ran or reviewed.was or reviewed.unread:
            alike = (reviewed.state, reviewed.was, reviewed.comparison, tuple(_points(reviewed)), reviewed.faults)
            key = reviewed.name if reviewed.state in {"added", "removed"} else alike
            found.setdefault(key, ([], reviewed))[0].append(reviewed.name)
    return list(found.values())


def _section(names: Sequence[str], reviewed: Reviewed) -> Part:
    """Return the section of experiments with equal changes."""
    title, differences = ": ".join(filter(None, [", ".join(names), reviewed.headline])), reviewed.comparison.differences
    lines = [*(f"note: {note}" for note in reviewed.comparison.notes), *_points(reviewed)]
    parts: list[Part] = []
    if differences:
        parts += [Table(differences, _ON_TERMINALS, only=_TERMINAL), Table(differences, _ON_PAGES, only=_PAGES)]
    if lines or reviewed.faults:
        told = [Line("", line, style="bad" * line.startswith(CONTRADICTION)) for line in lines]
        parts.append(Lines([*told, *(("", str(fault)) for fault in reviewed.faults)]))
    parts += parts_of(reviewed.data) if reviewed.data else []
    if (images := reviewed.images) is not None:
        parts.append(Lines([("", ", ".join(filter(None, [f"images: {images.text}", images.page])))]))
    style = "bad" if reviewed.faults else _STYLES[str(next(iter(reviewed.kinds), "nothing"))]
    return Section(title, parts, style=style) if parts else Paragraph(title, style=style)


def _policy(review: Review, only: Sequence[str]) -> list[Part]:
    if (policy := review.policy) is None:
        return []
    title = f"policy: {policy.headline}{f' ({policy.file})' * bool(policy.file)}"
    lines, style = [("", line) for line in policy.lines], "bad" if policy.is_failed else "good"
    part = Section(title, [Lines(lines)], style=style, only=only) if lines else Paragraph(title, style=style, only=only)
    return [part]


def _points(reviewed: Reviewed) -> list[str]:
    """Return the sentences on an experiment below its differences: caches, equal ones together, runs and facts."""
    kept = grouped((str(of), of.pipeline) for of in reviewed.caches)
    found = [f"cache of {' and '.join(pipelines)}: {text}" for text, pipelines in kept.items()]
    found += [filled_line(reviewed.caches)] * any(of.is_filled for of in reviewed.caches)
    found += [] if reviewed.ran is None else reviewed.ran.lines
    found += [f"data not compared: {reviewed.unread}"] * bool(reviewed.unread)
    return found + ([] if reviewed.facts is None else reviewed.facts.lines)


def _sums(review: Review) -> str:
    """Return how many experiments change, how many of them what, and how many can't be compared."""
    changed = [of for of in review.experiments if of.changes and not of.faults]
    kinds = Counter(kind for of in changed for kind in of.kinds)
    parts = [f"{kinds[kind]} the {kind}" for kind in Kind if kinds[kind]]
    states = Counter(of.headline.removeprefix("is ") for of in changed if of.state != "compared")
    parts += [f"{count} {state}" for state, count in states.items()]
    text = f"{len(changed)} of {len(review.experiments)} change" if changed else "nothing changes"
    text += f": {', '.join(parts)}" if parts else ""
    faulty = sum(bool(of.faults) for of in review.experiments)
    return f"{text}; {faulty} cannot be compared" if faulty else text


def _json(review: Review) -> Block:
    """Return the whole review, what a workflow decides by first; `format` is increased by incompatible changes."""
    policy, kinds = review.policy, {kind for reviewed in review.experiments for kind in reviewed.kinds}
    experiments = [
        {
            "name": of.name,
            "state": of.state,
            "changes": of.kinds,
            "since": of.comparison.since or None,
            "headline": of.headline,
            "fingerprints": [None if plan is None else plan.fingerprint for plan in of.plans],
            "differences": of.comparison.differences,
            "notes": of.comparison.notes,
            **{name: getattr(of, name) for name in ("caches", "ran", "facts", "faults", "images", "data", "unread")},
        }
        for of in review.experiments
    ]
    return {
        "format": FORMAT_VERSION,
        "old": review.old,
        "new": review.new,
        "kinds": [kind for kind in Kind if kind in kinds],
        "changed": review.changes,
        "failed": bool(review.is_faulty or contradictions(review) or (policy and policy.is_failed)),
        "matrix": matrix(review),
        "experiments": experiments,
        "files": review.files,
        "notes": review.notes,
        "policy": policy,
    }


def matrix(review: Review) -> dict[str, list[Block]]:
    """Return the experiments that change or are new, and can be run, as a matrix; `overrides` are one argument."""
    return {
        "include": [
            {
                "experiment": reviewed.name,
                "overrides": "" if reviewed.name == DEFAULT else set_to("experiment=", reviewed.name),
                "state": reviewed.state,
                "kinds": [str(kind) for kind in reviewed.kinds],
                "since": reviewed.comparison.since or None,
            }
            for reviewed in review.experiments
            if reviewed.changes and reviewed.state in {"compared", "added"} and reviewed.is_experiment
        ]
    }
