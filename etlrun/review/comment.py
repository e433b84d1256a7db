"""A review as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from urllib.parse import quote

from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.review.difference import Difference
from etlrun.review.policy import Judgement
from etlrun.review.review import Images, Review, Reviewed
from etlrun.review.shown import file_line, groups, points, unchanged, what
from etlrun.stages.load import Batch, Prefetch, Shuffle
from etlrun.system.errors import printable
from etlrun.system.terminal import as_markdown
from etlrun.system.terminal import plain as _plain

_FILLS = {"data": "#f8c8c8", "order": "#f8ecc0", "training": "#e8d0f0", "speed": "#cdebd0"}
_MOST_DIAGRAMS = 5
"""Maximum number of diagrams in one comment."""
_MOST_CHARACTERS = 60_000
"""Maximum length of a comment; GitHub allows 65,536, and the diagram of a plan takes some thousand."""
_HEADER = ("what", "from", "to", "changes")


def markdown(review: Review) -> str:
    """Return the review as a comment: a line and a table for each experiment, and a diagram of its new plan."""
    parts = [f"### etlrun: {_code(review.old)} → {_code(review.new)}\n"]
    parts += _policy(review.policy) if review.policy is not None else []
    for number, (names, reviewed) in enumerate(groups(review)):
        parts += _section(names, reviewed, with_diagram=number < _MOST_DIAGRAMS)
    rest = unchanged(review)
    if rest:
        parts.append(f"No difference in {_plain(', '.join(rest))}.\n" if rest != [""] else "No difference.\n")
    parts += [_list(file_line(file, review) for file in review.files)] if review.files else []
    lengths = list(accumulate(len(part) + 1 for part in parts))
    held = sum(length <= _MOST_CHARACTERS for length in lengths)
    left_out = f"Too long for a comment: {lengths[-1] - lengths[held - 1]:,} characters are omitted.\n"
    return "\n".join([*parts[:held], *([left_out] if held < len(parts) else [])])


def _list(lines: Iterable[str]) -> str:
    return "".join(f"- {_plain(line)}\n" for line in lines)


def _policy(policy: Judgement) -> list[str]:
    file = f" ({_code(policy.file)})" if policy.file else ""
    return [f"**Policy: {policy.headline}**{file}\n", *([_list(policy.lines)] if policy.lines else [])]


def _section(names: list[str], reviewed: Reviewed, *, with_diagram: bool) -> list[str]:
    """Return the section of experiments with equal changes."""
    title = f"**{_plain(', '.join(names))}** " if names != [""] else "This "
    parts = [f"{title}{reviewed.headline}.\n"]
    rows = [
        [_code(item.path), *("" if side is None else _code(side) for side in (item.old, item.new)), _plain(what(item))]
        for item in reviewed.comparison.differences
    ]
    parts += [as_markdown(_HEADER, rows)] if rows else []
    listed = [*reviewed.comparison.notes, *points(reviewed), *map(str, reviewed.faults)]
    parts += [_list(listed)] if listed else []
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
    line = printable(" ".join(text.split()))
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
