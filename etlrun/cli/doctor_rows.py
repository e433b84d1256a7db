"""The diagnosis of a dataset of rows and the figures of its columns, as text; and what all diagnoses have."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.planning.plan import Plan
from etlrun.stages.rows import Rows
from etlrun.system.files import appearing, as_unicode
from etlrun.system.machine import rounded
from etlrun.system.progress import progress
from etlrun.system.terminal import print_table, say, say_whole

if TYPE_CHECKING:
    from etlrun.datasets.examine.finding import Diagnosis
    from etlrun.datasets.examine.row_figures import ColumnFigures

_NAMED = 5
"""Places of a finding in the text."""
_QUANTILES = ("least", "5 %", "25 %", "median", "75 %", "95 %", "largest")
_LONGEST = 30


def of_rows(plan: Plan, known: argparse.Namespace, made_by: str) -> None:
    """Print the diagnosis of the rows of `plan`, and write its page, which says what it was `made_by`.

    Raises:
        EtlrunError: The rows can't be read.
    """
    from etlrun.datasets.examine.row_doctor import diagnosed

    dataset = plan.spec.dataset
    assert isinstance(dataset, Rows)  # noqa: S101 - the caller has seen to it
    with progress() as begin:
        found = diagnosed(plan, begin, is_whole=known.all)
    if known.html is not None:
        _write(known.html, found, made_by)
    if known.format == "json":
        splits = [
            {"name": of.name, "examples": of.examples, "columns": [*map(_as_dict, of.figures)]}
            | ({"texts": [*map(dataclasses.asdict, of.texts)]} if of.texts else {})
            for of in found.splits
        ]
        say_whole(json.dumps({**plain(found), "splits": splits}, indent=2) + "\n")
        return
    print_findings(found)
    _print_tables(found, dataset)
    print_page(known.html)


def _print_tables(found: Diagnosis, dataset: Rows) -> None:
    rows = [
        (split.name, of.name, of.type, f"{of.missing:,}", f"{of.missing / max(of.rows, 1):.1%}", *_values(of))
        for split in found.splits
        for of in split.figures
    ]
    print_table(("dataset", "column", "type", "missing", "share", "different", "least", "median", "largest"), rows)
    texts = [
        (split.name, of.name, *(f"{count:,}" for count in (*of.words, *of.characters, of.empty)), of.listed)
        for split in found.splits
        for of in split.texts
    ]
    print_table(("dataset", "text", "words", "most", "characters", "most", "empty", "scripts"), texts)
    classes = [
        (split.name, *row)
        for split in found.splits
        for of in split.figures
        if of.name in dataset.target and of.type not in ("number", "timestamp")
        for row in _top(of)
    ]
    print_table(("dataset", "column", "value", "rows", "share"), classes)


def _values(of: ColumnFigures) -> tuple[str, ...]:
    ends = [shown(of.quantiles[place]) for place in (0, 3, -1)] if of.quantiles else [""] * 3
    return ("more" if of.distinct is None else f"{of.distinct:,}", *ends)


def shown(value: object) -> str:
    """Return a value in few characters."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split()) if text.strip() == text else repr(text)
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


def _as_dict(of: ColumnFigures) -> dict[str, Any]:
    found = dataclasses.asdict(of)
    del found["counts"]
    return {**found, "top": {as_unicode(name): count for name, count in of.top.items()}}


def _write(path: Path, found: Diagnosis, made_by: str) -> None:
    from etlrun.system import pages

    html = pages.rendered(
        "etlrun.datasets.examine",
        "row_doctor.html.j2",
        diagnosis=found,
        made_by=made_by,
        findings=[(finding, []) for finding in found.findings],
        shown=shown,
        top=lambda of: ", ".join(f"{shown(value)} {count:,}" for value, count in of.top.items()),
    )
    with appearing(path, "--html") as file:
        file.write(html)


def plain(found: Diagnosis) -> dict[str, Any]:
    """Return name, findings and notes of a diagnosis as plain values."""
    return {
        "dataset": as_unicode(found.dataset),
        "findings": [
            {
                "text": as_unicode(finding.text),
                "remedy": as_unicode(finding.remedy),
                "places": [*map(as_unicode, finding.places)],
            }
            for finding in found.findings
        ],
        "notes": [*map(as_unicode, found.notes)],
    }


def print_findings(found: Diagnosis) -> None:
    """Print the findings and the notes of a diagnosis."""
    for finding in found.findings:
        say(f"finding   {finding.text}")
        say(f"          -> {finding.remedy}")
        for place in finding.places[:_NAMED]:
            say(f"          {place}")
        if finding.places[_NAMED:]:
            say("          … (--format json names more)")
    if not found.findings:
        say("finding   none")
    for note in found.notes:
        say(f"note      {note}")


def print_page(path: Path | None) -> None:
    """Print where the page is, if there is one."""
    if path is not None:
        say(f"page      {path}, {rounded(path.stat().st_size)}")


def print_stats(plan: Plan) -> None:
    """Print the figures of the columns of the training split of `plan`.

    Raises:
        EtlrunError: The rows can't be read.
    """
    from etlrun.datasets.examine.row_doctor import examined

    with progress() as begin:
        train = examined(plan, begin)[0]
    say(f"# Of {len(train.reader.rows):,} rows of {train.name}.")
    rows = [
        (
            of.name,
            of.type,
            f"{of.missing:,}",
            "more" if of.distinct is None else f"{of.distinct:,}",
            "" if of.mean is None else shown(of.mean),
            *(map(shown, of.quantiles) if of.quantiles else [""] * len(_QUANTILES)),
        )
        for of in train.figures
    ]
    print_table(("column", "type", "missing", "different", "mean", *_QUANTILES), rows)
    print_table(("column", "value", "rows", "share"), [row for of in train.figures for row in _top(of)])


def _top(of: ColumnFigures) -> list[tuple[str, ...]]:
    return [(of.name, shown(value), f"{n:,}", f"{n / max(of.rows, 1):.1%}") for value, n in of.top.items()]
