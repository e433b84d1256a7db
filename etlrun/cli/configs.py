"""Commands that answer from a config: its plan, its program, its images, and the schema of all configs."""

from __future__ import annotations

import argparse
import dataclasses
import json

from etlrun.config import grid
from etlrun.config.request import Request, requested
from etlrun.stages import STAGES
from etlrun.system.terminal import say_whole

MULTIRUN_FORMATS = ("text", "json")


def plan(arguments: list[str]) -> None:
    """Print the plan of a run, or of a multirun."""
    from etlrun.graph import here
    from etlrun.planning import render

    parser = argparse.ArgumentParser(prog="etlrun plan", description="Print the plan of a run, without running it.")
    parser.add_argument("--format", choices=sorted(render.FORMATS), default="text")
    parser.add_argument("--multirun", "-m", action="store_true", help="preview all combinations that `etlrun -m` runs")
    known, request = _parsed(parser, arguments)
    if not known.multirun:
        planned = here.with_figures(grid.resolve(request, STAGES).plan)
        say_whole(here.text_of(planned) if known.format == "text" else render.FORMATS[known.format](planned))
    elif known.format in MULTIRUN_FORMATS:
        from etlrun.cli import multirun
        from etlrun.sweep import preview

        formats = {"text": preview.text, "json": preview.as_json}
        say_whole(formats[known.format](multirun.planned(request)))
    else:
        parser.error(f"--format {known.format} is for one config; with -m choose from {', '.join(MULTIRUN_FORMATS)}")


def eject(arguments: list[str]) -> None:
    """Print the program of a run."""
    from etlrun.eject import program

    parser = argparse.ArgumentParser(
        prog="etlrun eject",
        description="Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras.",
    )
    _, request = _parsed(parser, arguments)
    planned = grid.resolve(request, STAGES).plan
    say_whole(program.ejected(planned, arguments, program.versions()))


def doctor(arguments: list[str]) -> None:
    """Examine the images or the rows of a dataset."""
    from etlrun.cli import doctor as command

    known, request = _parsed(command.parser(), arguments)
    command.doctor(grid.resolve(request, STAGES).plan, known, arguments)


def stats(arguments: list[str]) -> None:
    """Print figures of the columns of rows, or of the pixels of images."""
    from etlrun.cli import doctor as command

    says = "Print type, missing values, mean, quantiles and most frequent values of each column of the training split; "
    says += "of images, the mean and the standard deviation for the step `normalize`."
    _, request = _parsed(argparse.ArgumentParser(prog="etlrun stats", description=says), arguments)
    command.stats(grid.resolve(request, STAGES).plan)


def show(arguments: list[str]) -> None:
    """Show examples after each step of a plan."""
    from etlrun.cli import show as command

    known, request = _parsed(command.parser(), arguments)
    command.show(grid.resolve(request, STAGES).plan, known, arguments)


def schema(arguments: list[str]) -> None:
    """Print the JSON schema of config files."""
    from etlrun.planning import schema as schemas

    says = "Print the JSON schema of config files, for the language servers of editors."
    argparse.ArgumentParser(prog="etlrun schema", description=says).parse_args(arguments)
    say_whole(json.dumps(schemas.schema(STAGES), indent=2) + "\n")


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, Request]:
    """Parse `arguments`, and return the request for the configs that they name."""
    known, request = requested(parser, arguments)
    return known, dataclasses.replace(request.resuming(), multirun=getattr(known, "multirun", False))
