"""The commands. All of them answer without TensorFlow, but a run."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from etlrun.cli import check, diff, launch, multirun
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.eject import program
from etlrun.errors import ConfigError, EtlrunError, Fault, describe, of_system
from etlrun.plan import render
from etlrun.record import autotune, report
from etlrun.record.summary import read_summary
from etlrun.results import report as sweep_report
from etlrun.run import run
from etlrun.stages import STAGES
from etlrun.sweep import preview

MULTIRUN_FORMATS = {"text": preview.text, "json": preview.as_json}
HYDRA_ANSWERS = (
    "--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i",
    "--shell-completion", "-sc", "--experimental-rerun", "--config-path", "-cp", "--package", "-p",
)  # fmt: skip
"""Options that are Hydra's business alone: it answers by itself, or from configs of another place."""


def main(arguments: Sequence[str] | None = None) -> None:
    """`etlrun` and `python -m etlrun`; ends the process with status 0, 1 (failed), 2 (refused), 3 (slow) or 130."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words and words[0] in COMMANDS:
            COMMANDS[words[0]](words[1:])
        else:
            _refuse_late_command(words)
            _run(words)
    except EtlrunError as error:
        print(describe(error), file=sys.stderr)
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        print("etlrun: interrupted", file=sys.stderr)
        raise SystemExit(run.INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(describe(of_system(error)), file=sys.stderr)
        raise SystemExit(EtlrunError.status) from None


def _refuse_late_command(words: list[str]) -> None:
    """Refuse a command that stands behind options, which Hydra would take for an override."""
    for before, word in itertools.pairwise(words):
        if word in COMMANDS and not before.startswith("-"):
            others = (other for other in words if other is not word)
            remedy = f"write etlrun {shlex.join([word, *others])}"
            fault = Fault(where=word, found="a command behind options", expected="the command first", remedy=remedy)
            raise ConfigError([fault])


def _cache(words: list[str]) -> None:
    from etlrun.cli import cache as caches  # imports NumPy, which the other commands do without

    caches.main(words)


def _run(words: list[str]) -> None:
    if any(word.split("=")[0] in HYDRA_ANSWERS for word in words):
        launch.launch(words)
        return
    request = Request.of(words).resuming()
    if request.multirun:
        multirun.multirun(request.arguments)
        return
    job = grid.resolve(request, STAGES)
    if request.unknown:  # options of Hydra's own, which it heeds or refuses
        launch.launch(request.arguments)
    launch.start(request, job)


def _plan(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="etlrun plan", description="Print what a run would do, without doing it.")
    parser.add_argument("--format", choices=sorted(render.FORMATS), default="text")
    parser.add_argument("--multirun", "-m", action="store_true", help="of all combinations, as `etlrun -m` runs them")
    known, request = _asked(parser, words)
    if not known.multirun:
        sys.stdout.write(render.FORMATS[known.format](grid.resolve(request, STAGES).plan))
    elif known.format in MULTIRUN_FORMATS:
        sys.stdout.write(MULTIRUN_FORMATS[known.format](multirun.planned(request)))
    else:
        parser.error(f"--format {known.format} is for one config; with -m choose from {', '.join(MULTIRUN_FORMATS)}")


def _eject(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="etlrun eject",
        description="Print a Python program that does what a run would do, on tf.data, TFDS and Keras alone.",
    )
    _, request = _asked(parser, words)
    plan = grid.resolve(request, STAGES).plan
    sys.stdout.write(program.ejected(plan, words, program.versions()))


def _asked(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, Request]:
    """What `parser` finds in `words`, and the configs that they ask for."""
    parser.allow_abbrev = False
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument("--config-dir", "-cd", metavar="DIR")
    parser.add_argument("--config-name", "-cn", metavar="NAME")
    known = parser.parse_intermixed_args(words)
    request = Request(overrides=known.overrides, config_dir=known.config_dir, config_name=known.config_name)
    return known, dataclasses.replace(request.resuming(), multirun=getattr(known, "multirun", False))


def _report(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="etlrun report", description="Print the table of a run, or of a folder of runs."
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(words).folder
    summary = read_summary(folder)
    if summary is None:
        sweep_report.show(folder)
    else:
        report.show(folder, summary)


def _freeze(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="etlrun freeze", description="Print what AUTOTUNE settled on in a run, as a YAML overlay."
    )
    parser.add_argument("folder", type=Path, metavar="RUN")
    sys.stdout.write(autotune.overlay(parser.parse_args(words).folder))


COMMANDS = {
    "plan": _plan,
    "eject": _eject,
    "report": _report,
    "freeze": _freeze,
    "cache": _cache,
    "diff": diff.main,
    "check": check.main,
}
