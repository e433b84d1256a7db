"""`etlrun doctor` and `etlrun stats`: examination of a dataset, and figures to normalize its images by."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.plan.plan import Plan
from etlrun.system.files import as_unicode, refuse_unwritable
from etlrun.system.machine import rounded
from etlrun.system.terminal import print_table

if TYPE_CHECKING:
    from etlrun.datasets.examine.doctor import Diagnosis

_SPLITS = ("dataset", "examples", "files", "broken", "bytes each", "width", "height", "aspect", "formats", "colours")

_NAMED = 5
"""Places of a finding in the text."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the doctor's own options."""
    parser = argparse.ArgumentParser(
        prog="etlrun doctor",
        description="Examine the images of a dataset: broken, duplicate and nearly duplicate ones, classes, sizes, "
        "formats, and what caches would take. Nothing is written but the page.",
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="page with samples to write")
    parser.add_argument("--all", action="store_true", help="all splits of the dataset, and not those of the config")
    return parser


def doctor(plan: Plan, known: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Print the diagnosis of the dataset of `plan`, and write its page.

    Raises:
        WorldError: Data is missing or can't be read, or the page can't be written.
    """
    if known.html is not None:
        refuse_unwritable(known.html.parent, "--html")
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.doctor import diagnosed
        from etlrun.datasets.examine.doctor_page import write
        from etlrun.system.progress import progress

        with progress() as begin:
            found = diagnosed(plan, begin, is_whole=known.all)
            if known.html is not None:
                write(known.html, found, shlex.join(["etlrun", "doctor", *arguments]), begin)
    if known.format == "json":
        print(json.dumps(as_dict(found), indent=2))
    else:
        _print(found)
        if known.html is not None:
            print(f"page      {known.html}, {rounded(known.html.stat().st_size)}")


def as_dict(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as plain values."""
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
        "splits": [dataclasses.asdict(split) for split in found.splits],
    }


def _print(found: Diagnosis) -> None:
    for finding in found.findings:
        print(f"finding   {finding.text}\n          -> {finding.remedy}")
        for place in finding.places[:_NAMED]:
            print(f"          {place}")
        if finding.places[_NAMED:]:
            print("          … (--format json names more)")
    if not found.findings:
        print("finding   none")
    for note in found.notes:
        print(f"note      {note}")
    rows = []
    for split in found.splits:
        sizes = [f"{of[0]:g} to {of[-1]:g}" if of else "" for of in (split.widths, split.heights, split.aspect_ratios)]
        counts = [", ".join(f"{name} {count:,}" for name, count in of.items()) for of in (split.formats, split.colours)]
        figures = (f"{split.examples:,}", f"{split.files:,}", str(split.broken), f"{split.bytes_per_example:,.0f}")
        rows.append((split.name, *figures, *sizes, *counts))
    print_table(_SPLITS, rows)
    classes = [
        (split.name, name, f"{count:,}", f"{count / max(sum(split.classes.values()), 1):.1%}")
        for split in found.splits
        for name, count in split.classes.items()
    ]
    print_table(("dataset", "class", "examples", "share"), classes)
    for split in found.splits:
        sizes = [f"{point} {rounded(size)}" for point, size in split.cache_bytes.items()]
        print(f"caches    {split.name}: {', '.join(sizes)}")


def stats(plan: Plan) -> None:
    """Print the mean and the standard deviation of the training images of `plan`, as YAML for the step `normalize`.

    Raises:
        EtlrunError: The config decodes no image, or data is missing or corrupt.
    """
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.stats import measured

        mean, deviation, count = measured(plan)
    print(f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:")
    for name, values in (("mean", mean), ("std", deviation)):
        print(f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]")
