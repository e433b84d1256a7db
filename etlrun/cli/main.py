"""Commands of the command line. Each imports what it needs, and only a run TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from etlrun.config import grid
from etlrun.config.request import Request, requested
from etlrun.stages import STAGES
from etlrun.system.errors import INTERRUPTED, ConfigError, EtlrunError, Fault, describe, of_system

MULTIRUN_FORMATS = ("text", "json")
HYDRA_ANSWERS = (
    "--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i",
    "--shell-completion", "-sc", "--experimental-rerun", "--config-path", "-cp", "--package", "-p",
)  # fmt: skip
"""Options that Hydra handles alone: it answers by itself, or uses configs from elsewhere."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `etlrun` or `python -m etlrun`; exit with status 0, 1 (failed), 2 (refused), 3 (slow) or 130."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments and arguments[0] in COMMANDS:
            COMMANDS[arguments[0]](arguments[1:])
        else:
            _refuse_late_command(arguments)
            _run(arguments)
    except EtlrunError as error:
        print(describe(error), file=sys.stderr)
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        print("etlrun: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(describe(of_system(error)), file=sys.stderr)
        raise SystemExit(EtlrunError.status) from None


def _refuse_late_command(arguments: list[str]) -> None:
    """Refuse a command after other arguments, which Hydra would take for an override."""
    for before, argument in itertools.pairwise(arguments):
        if argument in COMMANDS and not before.startswith("-"):
            others = (other for other in arguments if other is not argument)
            remedy = f"write etlrun {shlex.join([argument, *others])}"
            found = "a command after other arguments"
            raise ConfigError([Fault(where=argument, found=found, expected="the command first", remedy=remedy)])


def _module(name: str) -> Callable[[list[str]], None]:
    """Return the command of the module of that name beside this one, which is imported when it is called."""

    def command(arguments: list[str]) -> None:
        importlib.import_module(f"etlrun.cli.{name}").main(arguments)

    return command


def _run(arguments: list[str]) -> None:
    from etlrun.cli import launch, multirun

    if any(argument.split("=")[0] in HYDRA_ANSWERS for argument in arguments):
        launch.launch(arguments)
        return
    request = Request.of(arguments).resuming()
    if request.multirun:
        multirun.multirun(request.arguments)
        return
    job = grid.resolve(request, STAGES)
    if request.unknown:  # options of Hydra's own, which it heeds or refuses
        launch.launch(request.arguments)
    else:
        launch.start(request, job)


def _plan(arguments: list[str]) -> None:
    from etlrun.plan import render
    from etlrun.run import run

    parser = argparse.ArgumentParser(prog="etlrun plan", description="Print the plan of a run, without running it.")
    parser.add_argument("--format", choices=sorted(render.FORMATS), default="text")
    parser.add_argument("--multirun", "-m", action="store_true", help="preview all combinations that `etlrun -m` runs")
    known, request = _parsed(parser, arguments)
    if not known.multirun:
        plan = run.with_figures(grid.resolve(request, STAGES).plan)
        sys.stdout.write(run.text_of(plan) if known.format == "text" else render.FORMATS[known.format](plan))
    elif known.format in MULTIRUN_FORMATS:
        from etlrun.cli import multirun
        from etlrun.sweep import preview

        formats = {"text": preview.text, "json": preview.as_json}
        sys.stdout.write(formats[known.format](multirun.planned(request)))
    else:
        parser.error(f"--format {known.format} is for one config; with -m choose from {', '.join(MULTIRUN_FORMATS)}")


def _eject(arguments: list[str]) -> None:
    from etlrun.eject import program

    parser = argparse.ArgumentParser(
        prog="etlrun eject",
        description="Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras.",
    )
    _, request = _parsed(parser, arguments)
    plan = grid.resolve(request, STAGES).plan
    sys.stdout.write(program.ejected(plan, arguments, program.versions()))


def _doctor(arguments: list[str]) -> None:
    from etlrun.cli import doctor

    known, request = _parsed(doctor.parser(), arguments)
    doctor.doctor(grid.resolve(request, STAGES).plan, known, arguments)


def _stats(arguments: list[str]) -> None:
    from etlrun.cli import doctor

    says = "Print the mean and the standard deviation of the training images, for the step `normalize`."
    _, request = _parsed(argparse.ArgumentParser(prog="etlrun stats", description=says), arguments)
    doctor.stats(grid.resolve(request, STAGES).plan)


def _show(arguments: list[str]) -> None:
    from etlrun.cli import show

    known, request = _parsed(show.parser(), arguments)
    show.show(grid.resolve(request, STAGES).plan, known, arguments)


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, Request]:
    """Parse `arguments`, and return the request for the configs that they name."""
    known, request = requested(parser, arguments)
    return known, dataclasses.replace(request.resuming(), multirun=getattr(known, "multirun", False))


def _report(arguments: list[str]) -> None:
    from etlrun.record import report
    from etlrun.record.summary import read_summary
    from etlrun.results import report as sweep_report

    parser = argparse.ArgumentParser(
        prog="etlrun report", description="Print the report of a run, or of a folder of runs."
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    summary = read_summary(folder)
    if summary is None:
        sweep_report.show(folder)
    else:
        report.show(folder, summary)
        _write_page(folder)


def _write_page(folder: Path) -> None:
    """Write the page of a run again, and print its path; or why not, such as for the run of another user."""
    from etlrun.record import page
    from etlrun.record import record as records

    try:
        page.write(folder)
    except OSError as error:
        print(f"etlrun: {folder / records.PAGE} is as it was: {error.strerror}", file=sys.stderr)
    else:
        print(f"report    {folder / records.PAGE}")


def _freeze(arguments: list[str]) -> None:
    from etlrun.record import autotune

    parser = argparse.ArgumentParser(
        prog="etlrun freeze", description="Print the values that AUTOTUNE chose in a run, as a YAML overlay."
    )
    parser.add_argument("folder", type=Path, metavar="RUN")
    sys.stdout.write(autotune.overlay(parser.parse_args(arguments).folder))


def _schema(arguments: list[str]) -> None:
    from etlrun.plan.schema import schema

    says = "Print the JSON schema of config files, for the language servers of editors."
    argparse.ArgumentParser(prog="etlrun schema", description=says).parse_args(arguments)
    print(json.dumps(schema(STAGES), indent=2))


COMMANDS = {
    "plan": _plan,
    "show": _show,
    "doctor": _doctor,
    "stats": _stats,
    "eject": _eject,
    "report": _report,
    "freeze": _freeze,
    "schema": _schema,
    **{
        name: _module(name)
        for name in (
            "watch",
            "cache",
            "diff",
            "check",
            "tune",
            "size",
            "prepare",
            "runs",
            "evaluate",
            "predict",
            "export",
            "service",
        )
    },
}
