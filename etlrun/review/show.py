"""Output of a review: text for a terminal, Markdown for a pull request, JSON for machines."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etlrun.plan import render
from etlrun.plan.plan import Plan
from etlrun.review.difference import Difference
from etlrun.review.review import File, Images, Review, Reviewed
from etlrun.stages.load import Batch, Prefetch, Shuffle
from etlrun.system.terminal import as_markdown, print_parts
from etlrun.system.terminal import plain as _plain

if TYPE_CHECKING:
    from rich.console import Console

FORMAT_VERSION = 1
_COLOURS = {"data": "bold red", "order": "yellow", "training": "magenta", "speed": "green", "nothing": "dim"}
_FILLS = {"data": "#f8c8c8", "order": "#f8ecc0", "training": "#e8d0f0", "speed": "#cdebd0"}
_MOST_DIAGRAMS = 5
"""Maximum number of diagrams in one comment."""
_MOST_CHARACTERS = 60_000
"""Maximum length of a comment; GitHub allows 65,536, and the diagram of a plan takes some thousand."""
_HEADER = ("what", "from", "to", "changes")


def groups(review: Review) -> list[tuple[list[str], Reviewed]]:
    """Return the experiments that change, grouped by equal differences."""
    found: dict[Any, tuple[list[str], Reviewed]] = {}
    for reviewed in review.experiments:
        if reviewed.changes or reviewed.comparison.differences:
            alike = (reviewed.state, reviewed.comparison, reviewed.caches, reviewed.measured, reviewed.faults)
            key = reviewed.name if reviewed.state in {"added", "removed"} else alike
            found.setdefault(key, ([], reviewed))[0].append(reviewed.name)
    return list(found.values())


def unchanged(review: Review) -> list[str]:
    """Return the experiments without any difference."""
    changed = {name for names, _ in groups(review) for name in names}
    return [reviewed.name for reviewed in review.experiments if reviewed.name not in changed]


def _what(difference: Difference) -> str:
    """Return the text of what a difference changes."""
    words = [str(difference.kind or "nothing")]
    words += [f"from {difference.since} on"] if difference.since else []
    words += [f"in {' and '.join(difference.pipelines)}"] if difference.pipelines else []
    words += [difference.note] if difference.note else []
    return ", ".join(words)


def change(difference: Difference) -> str:
    """Return the old and the new value of a difference."""
    return " -> ".join("(none)" if value is None else value for value in (difference.old, difference.new))


def text(review: Review, console: Console | None) -> None:
    """Print the review, with colours if there is a `console` that supports them."""
    for parts in _lines(review):
        print_parts(console, *parts)


def _lines(review: Review) -> Iterator[tuple[tuple[str, str], ...]]:
    found = groups(review)
    for names, reviewed in found:
        title = f"{', '.join(names)}: " if names != [""] else ""
        colour = _COLOURS[str(next(iter(reviewed.comparison.kinds), "nothing"))]
        yield (title, "bold"), (reviewed.headline, "bold red" if reviewed.faults else colour)
        yield from _body(reviewed)
        yield ()
    rest = unchanged(review)
    if rest:
        yield ((f"{', '.join(rest)}: no difference" if rest != [""] else "no difference", ""),)
    for file in review.files:
        yield ((_file(file, review), ""),)


def _body(reviewed: Reviewed) -> Iterator[tuple[tuple[str, str], ...]]:
    found = reviewed.comparison.differences
    widths = [max([0, *map(len, column)]) for column in ([item.path for item in found], map(change, found))]
    for item in found:
        head = f"  {item.path:<{widths[0]}}  {change(item):<{widths[1]}}  "
        yield (head, ""), (_what(item), _COLOURS[str(item.kind or "nothing")])
    for note in reviewed.comparison.notes:
        yield ((f"  note: {note}", ""),)
    for line in _cache_lines(reviewed):
        yield ((f"  {line}", ""),)
    for measured in reviewed.measured:
        yield ((f"  measured {measured}", ""),)
    if (images := reviewed.images) is not None:
        yield (("  " + ", ".join(filter(None, [f"images: {images.text}", images.page, images.image])), ""),)
    for fault in reviewed.faults:
        yield ((f"  {fault}", ""),)


def _cache_lines(reviewed: Reviewed) -> list[str]:
    """Return the lines on caches, with equal pipelines combined."""
    found: dict[str, list[str]] = {}
    for kept in reviewed.caches:
        found.setdefault(str(kept), []).append(kept.pipeline)
    return [f"cache of {' and '.join(pipelines)}: {text}" for text, pipelines in found.items()]


def _file(file: File, review: Review) -> str:
    reached = [reviewed for reviewed in review.experiments if reviewed.name in file.reaches]
    plans = "" if not reached or any(reviewed.changes for reviewed in reached) else ", and changes no plan"
    return f"{file.name}: {file.state}, reaches {', '.join(file.reaches) or 'no experiment'}{plans}"


def markdown(review: Review) -> str:
    """Return the review as a comment: a line and a table for each experiment, and a diagram of its new plan."""
    parts = [f"### etlrun: {_code(review.old)} → {_code(review.new)}\n"]
    for number, (names, reviewed) in enumerate(groups(review)):
        parts += _section(names, reviewed, with_diagram=number < _MOST_DIAGRAMS)
    rest = unchanged(review)
    if rest:
        parts.append(f"No difference in {_plain(', '.join(rest))}.\n" if rest != [""] else "No difference.\n")
    parts += ["".join(f"- {_plain(_file(file, review))}\n" for file in review.files)] if review.files else []
    lengths = list(accumulate(len(part) + 1 for part in parts))
    held = sum(length <= _MOST_CHARACTERS for length in lengths)
    left_out = f"Too long for a comment: {lengths[-1] - lengths[held - 1]:,} characters are omitted.\n"
    return "\n".join([*parts[:held], *([left_out] if held < len(parts) else [])])


def _section(names: list[str], reviewed: Reviewed, *, with_diagram: bool) -> list[str]:
    """Return the section of experiments with equal changes."""
    title = f"**{_plain(', '.join(names))}** " if names != [""] else "This "
    parts = [f"{title}{reviewed.headline}.\n"]
    rows = [
        [_code(item.path), *("" if side is None else _code(side) for side in (item.old, item.new)), _plain(_what(item))]
        for item in reviewed.comparison.differences
    ]
    parts += [as_markdown(_HEADER, rows)] if rows else []
    points = [*reviewed.comparison.notes, *_cache_lines(reviewed)]
    points += [f"measured {measured}" for measured in reviewed.measured]
    points += [str(fault) for fault in reviewed.faults]
    parts += ["".join(f"- {_plain(point)}\n" for point in points)] if points else []
    parts += [_images(reviewed.images)] if reviewed.images is not None else []
    if reviewed.new is not None and reviewed.changes and with_diagram:
        diagram = f"```mermaid\n{mermaid(reviewed.new, reviewed.comparison.differences)}```"
        parts.append(f"<details><summary>The new plan</summary>\n\n{diagram}\n\n</details>\n")
    return parts


def _images(images: Images) -> str:
    """Return a link to the page, and the image."""
    text = _plain(images.text)
    if not images.page:
        return f"Images: {text}.\n"
    return f"[{text}]({quote(images.page)})\n\n![{text}]({quote(images.image)})\n"


def _code(text: str) -> str:
    """Return `text` as inline code on one line, with a fence longer than any run of backticks in it."""
    line = " ".join(text.split())
    fence = "`" * (1 + max([0, *map(len, re.findall("`+", line))]))
    padding = " " * ("`" in line)
    return f"{fence}{padding}{line}{padding}{fence}"


def mermaid(plan: Plan, differences: Sequence[Difference]) -> str:
    """Return the Mermaid diagram of a plan, with colours where something differs."""
    classes: dict[str, str] = {}
    for difference in differences:
        if difference.kind is not None:
            for node in _nodes(plan, difference):
                classes.setdefault(node, str(difference.kind))  # those that change most come first
    used = [kind for kind in _FILLS if kind in classes.values()]
    lines = [f"  classDef {kind} fill:{_FILLS[kind]},color:#000" for kind in used]
    lines += [f"  class {node} {kind}" for node, kind in sorted(classes.items())]
    return render.mermaid(plan) + "".join(f"{line}\n" for line in lines)


def _nodes(plan: Plan, difference: Difference) -> Iterator[str]:
    """Yield the nodes of the diagram that a difference affects."""
    group, _, rest = difference.path.partition(".")
    if group in {"model", "trainer"}:
        yield "model"
    for name, stages in plan.pipelines.items():
        if difference.pipelines and name not in difference.pipelines:
            continue
        if group == "dataset" and stages:
            yield f"{name}_0"
        for number, planned in enumerate(stages, 1):
            steps = [step.stage.path for step in planned.steps]
            if any(difference.path == step or difference.path.startswith(f"{step}.") for step in steps) or (
                planned.stage.path.startswith(_stage(group, rest))
            ):
                yield f"{name}_{number}"


_OF_LOAD = {"shuffle": Shuffle.path, "prefetch": Prefetch.path}
"""Stages that the keys of `load` affect, by the prefix of the key; all other keys affect batches."""


def _stage(group: str, rest: str) -> str:
    """Return the path prefix of the stages that a key outside the steps affects."""
    if group == "load":
        return _OF_LOAD.get(re.split("[_.]", rest)[0], Batch.path)
    if group == "transform":
        return "transform." if rest in {"num_parallel_calls", "deterministic"} else "no stage"
    return f"{group}."


def as_json(review: Review) -> str:
    """Return the whole review as JSON; `format` is increased by incompatible changes."""
    experiments = [
        {
            "name": reviewed.name,
            "state": reviewed.state,
            "changes": [str(kind) for kind in reviewed.comparison.kinds],
            "since": reviewed.comparison.since or None,
            "headline": reviewed.headline,
            "fingerprints": [None if plan is None else plan.fingerprint for plan in (reviewed.old, reviewed.new)],
            "differences": [dataclasses.asdict(item) for item in reviewed.comparison.differences],
            "notes": list(reviewed.comparison.notes),
            "caches": [dataclasses.asdict(kept) for kept in reviewed.caches],
            "measured": [dataclasses.asdict(measured) for measured in reviewed.measured],
            "faults": [dataclasses.asdict(fault) for fault in reviewed.faults],
            "images": None if reviewed.images is None else dataclasses.asdict(reviewed.images),
        }
        for reviewed in review.experiments
    ]
    files = [dataclasses.asdict(file) for file in review.files]
    document = {"format": FORMAT_VERSION, "old": review.old, "new": review.new}
    return json.dumps({**document, "experiments": experiments, "files": files}, indent=2) + "\n"
