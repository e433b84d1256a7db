"""Commands that answer from a config: its plan, its program, its examples, and the schema of all configs."""

from __future__ import annotations

import dataclasses
import json
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli.commands import Answer
from etlrun.config import grid
from etlrun.config.request import changed_from_defaults
from etlrun.report.doc import Doc, Lines
from etlrun.stages import STAGES
from etlrun.stages.dataset import Dataset
from etlrun.system.errors import ConfigError, Fault, did_you_mean, printable
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.machine import rounded

if TYPE_CHECKING:
    from etlrun.datasets.examine.show import Sheet


def plan(known: Namespace) -> Answer:
    """Print the plan of a run, or of a multirun."""
    from etlrun.graph import figures
    from etlrun.planning import outline, render

    request = dataclasses.replace(known.request.resuming(), multirun=known.multirun)
    own = request.own_dir
    if known.multirun:
        if known.all:
            raise ConfigError([Fault("--all", "--multirun", "the plan of one run", "leave out one of them")])
        from etlrun.cli import launch

        doc = launch.planned(request)
        read = [] if own is None else [Lines([("configs", own)])]
        return Answer(dataclasses.replace(doc, parts=[*doc.parts, *read]))
    job = grid.resolve(request, STAGES)
    planned = figures.with_figures(job.plan)
    if known.format == "json":
        return Answer(render.as_json(planned))
    changed = {} if known.all else changed_from_defaults(request, job.config)
    text = figures.text_of(planned) if known.all else outline.outline(planned, changed)
    return Answer(text + ("" if own is None else f"configs {printable(own)}\n"))


def eject(known: Namespace) -> Answer:
    """Print the program of a run."""
    from etlrun.eject import program

    planned = grid.resolve(known.request.resuming(), STAGES).plan
    return Answer(program.ejected(planned, known.words, program.versions()))


def schema(_: Namespace) -> Answer:
    """Print the JSON schema of config files."""
    from etlrun.planning import schema as schemas

    return Answer(json.dumps(schemas.schema(STAGES), indent=2) + "\n")


def show(known: Namespace) -> Answer:
    """Write a page of examples after each step of a plan; `EtlrunError` if there is none, or it can't."""
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    there = [name for name, stages in plan.pipelines.items() if stages]
    if known.split not in there:
        remedy = did_you_mean(known.split, there, otherwise=f"set {Dataset.key_of(known.split)}, or leave --split out")
        raise ConfigError([Fault("--split", known.split, f"one of the pipelines {', '.join(there)}", remedy)])
    refuse_unwritable(known.output.parent, "--output")
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.show import collect

        sheet = collect(plan, known.split, known.examples, known.passes)
        doc = write(sheet, known.output, shlex.join(["etlrun", "show", *known.words]), "--output")
    page = Lines([("page", f"{known.output}, {rounded(known.output.stat().st_size)}")])
    values = {"page": str(known.output), "examples": len(sheet.targets), "notes": [*sheet.notes]}
    return Answer(dataclasses.replace(doc, parts=[*doc.parts, page], json=lambda: values))


def write(sheet: Sheet, page: Path, made_by: str, key: str) -> Doc:
    """Write a sheet as a page `made_by` a command; `WorldError`, at an option, if it can't be written."""
    from etlrun.datasets.examine.compare import of_sheet
    from etlrun.report.render import pieces

    doc = of_sheet(sheet, made_by)
    with appearing(page, key) as file:
        file.writelines(pieces(doc))
    return doc
