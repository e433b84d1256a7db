"""Commands that answer from a config: its plan, its program, its images, and the schema of all configs."""

from __future__ import annotations

import argparse
import dataclasses
import json

from etlrun.cli import parsers
from etlrun.config import grid
from etlrun.config.request import Request, requested
from etlrun.stages import STAGES
from etlrun.system.terminal import say_whole

MULTIRUN_FORMATS = ("text", "json")


def plan(arguments: list[str]) -> None:
    """Print the plan of a run, or of a multirun."""
    from etlrun.graph import figures
    from etlrun.planning import render

    parser = plan_parser()
    known, request = _parsed(parser, arguments)
    if not known.multirun:
        planned = figures.with_figures(grid.resolve(request, STAGES).plan)
        say_whole(figures.text_of(planned) if known.format == "text" else render.FORMATS[known.format](planned))
    elif known.format in MULTIRUN_FORMATS:
        from etlrun.cli import multirun
        from etlrun.sweep import preview

        formats = {"text": preview.text, "json": preview.as_json}
        say_whole(formats[known.format](multirun.planned(request)))
    else:
        parser.error(f"--format {known.format} is for one config; with -m choose from {', '.join(MULTIRUN_FORMATS)}")


def plan_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun plan`."""
    from etlrun.planning import render

    parser = parsers.of_config("plan", "Print the plan of a run, without running it.")
    parsers.add_format(parser, *sorted(render.FORMATS))
    parser.add_argument("--multirun", "-m", action="store_true", help="preview all combinations that `etlrun -m` runs")
    return parser


def eject(arguments: list[str]) -> None:
    """Print the program of a run."""
    from etlrun.eject import program

    _, request = _parsed(eject_parser(), arguments)
    planned = grid.resolve(request, STAGES).plan
    say_whole(program.ejected(planned, arguments, program.versions()))


def eject_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun eject`."""
    says = "Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras."
    return parsers.of_config("eject", says)


def stats(arguments: list[str]) -> None:
    """Print figures of the columns of rows, or of the pixels of images."""
    from etlrun.cli import doctor as command

    _, request = _parsed(stats_parser(), arguments)
    command.stats(grid.resolve(request, STAGES).plan)


def stats_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun stats`."""
    says = "Print type, missing values, mean, quantiles and most frequent values of each column of the training split; "
    says += "of images, the mean and the standard deviation for the step `normalize`."
    return parsers.of_config("stats", says)


def schema(arguments: list[str]) -> None:
    """Print the JSON schema of config files."""
    from etlrun.planning import schema as schemas

    schema_parser().parse_args(arguments)
    say_whole(json.dumps(schemas.schema(STAGES), indent=2) + "\n")


def schema_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun schema`."""
    return parsers.of_command("schema", "Print the JSON schema of config files, for the language servers of editors.")


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, Request]:
    """Parse `arguments`, and return the request for the configs that they name."""
    known, request = requested(parser, arguments)
    return known, dataclasses.replace(request.resuming(), multirun=getattr(known, "multirun", False))
