"""What `etlrun diff --fail-on` says of two configs, for the benchmark of claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from etlrun.review.difference import Comparison
from etlrun.review.folders import KINDS
from etlrun.review.review import judged, review
from etlrun.review.sides import Side, of_runs
from etlrun.stages.base import Kind

PASSES, FAILS = ANSWERS = ("passes", "fails")
Answers = Counter[tuple[str, str, bool]]
"""How often an answer was given by kinds, and whether what was measured was equal."""


def reviewed(old: dict[str, Any], new: dict[str, Any]) -> tuple[Comparison, set[Kind]]:
    """The comparison of two configs, and the kinds of `--fail-on` that fail."""
    sides = Side(word="old", variants={"": of_runs(old)}), Side(word="new", variants={"": of_runs(new)})
    found = review(*sides, None)
    failing = {kind for kind in KINDS if (policy := judged(found, sides, [kind], ()).policy) and policy.broken}
    return found.experiments[0].comparison, failing


def answer(fails: object) -> str:
    """As a table has it."""
    return FAILS if fails else PASSES


def table(counts: Answers, kinds: Collection[str], of: str) -> str:
    """As Markdown."""
    lines = [f"| `--fail-on` | answer | times | {of} equal | {of} differ |", "|---|---|---|---|---|"]
    for kind in kinds:
        for text in ANSWERS:
            equal, differ = counts[kind, text, True], counts[kind, text, False]
            lines.append(f"| `{kind}` | {text} | {equal + differ} | {equal} | {differ} |")
    return "\n".join(lines)
