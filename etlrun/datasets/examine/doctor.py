"""Diagnosis of a dataset: what is in it, and what is wrong with it."""

from dataclasses import replace
from typing import Any, cast

from etlrun.datasets.examine.finding import Diagnosis, Finding
from etlrun.planning.plan import Plan
from etlrun.report.doc import Doc, Lines
from etlrun.sources.base import notes_on, open_source, splits_of
from etlrun.stages.load import too_few
from etlrun.stages.rows import Rows
from etlrun.system.errors import DECIDES
from etlrun.system.files import as_unicode
from etlrun.system.terminal import Begin

_NAMED, _MORE = 5, ("… (--format json names more)",)
"""Places of a finding on terminals."""


def diagnosed(plan: Plan, begin: Begin) -> Diagnosis:
    """Examine the splits of a plan, also the named validation sets; `begin` is told of each task with its size.

    Raises:
        EtlrunError: The dataset is missing, has no images with a class, or can't be read.
    """
    dataset, kind = plan.spec.dataset, cast("Any", None)
    if isinstance(dataset, Rows):
        from etlrun.datasets.examine import rows  # imports Arrow, and no TensorFlow

        kind = rows
    else:
        from etlrun.datasets.examine import images

        kind = images
        images.require(dataset.examples)
        dataset = replace(dataset.without_download(), on_corrupt="skip")  # what can't be used is a finding
    source = open_source(dataset)
    splits = splits_of(source)
    names = {name: f"{name} ({split.name})" if name in dataset.sets else split.name for name, split in splits.items()}
    each = [replace(split, name=names[name]) for name, split in splits.items()]
    found: Diagnosis = kind.examined(plan, source, each, begin)
    load, findings = plan.spec.load, [*found.findings]
    if error := too_few(load, plan.spec.hosts, splits["train"].num_examples):
        findings.insert(0, Finding(f"{error.faults[0].where}: {error.faults[0].found}", error.faults[0].remedy))
    kept = dataset.found.folder if isinstance(dataset, Rows) else ""  # of which a plan speaks, but is none of the data
    remarks = (of for of in plan.remarks if not kept or kept not in of)
    notes = dict.fromkeys((*remarks, *source.notes, *notes_on(splits), *found.notes))
    return replace(found, dataset=source.full_name, findings=findings, notes=tuple(notes))


def of_doctor(found: Diagnosis) -> Doc:
    """Return a diagnosis as a document."""
    told = [
        (
            "finding",
            "\n".join(
                [
                    of.text,
                    f"-> {DECIDES}{of.remedy}",
                    *of.places[:_NAMED],
                    *(_MORE if of.places[_NAMED:] else ()),
                ]
            ),
        )
        for of in found.findings
    ]
    notes = [("note", note) for note in found.notes]
    return Doc(
        found.dataset, [Lines([*(told or [("finding", "none")]), *notes]), *found.parts], json=lambda: _values(found)
    )


def _values(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as plain values."""
    findings = [
        {
            "text": as_unicode(of.text),
            "remedy": as_unicode(of.remedy),
            "places": [*map(as_unicode, of.places)],
            "decide": True,  # since each remedy changes the data
        }
        for of in found.findings
    ]
    notes = [*map(as_unicode, found.notes)]
    return {"dataset": as_unicode(found.dataset), "findings": findings, "notes": notes, "splits": found.splits}
