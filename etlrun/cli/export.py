"""`etlrun export`: the model of a run for other runtimes, with its steps and a model card."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from etlrun.cli import parsers
from etlrun.record.record import EXPORTS
from etlrun.system.errors import ConfigError, EtlrunError
from etlrun.system.terminal import say
from etlrun.trained.files import OUTPUT


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    from etlrun.trained.formats import FORMATS

    parser = parsers.of_command(
        "export",
        "Export the model of a run for another runtime, with the steps of the run's validation inside that "
        "the format can hold, a description (export.json) and a model card.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument("--format", required=True, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
    parsers.add_epoch(parser)
    parser.add_argument(
        OUTPUT, metavar="FOLDER", help=f"new folder, or a URL of S3 or GCS; default: RUN/{EXPORTS}/FORMAT"
    )
    return parser


def main(arguments: Sequence[str]) -> None:
    """Export the model of a run into a new folder.

    Raises:
        EtlrunError: The run, the format or the folder is unfit, or predictions of the export differ from the model's.
    """
    from etlrun.trained import export as exports
    from etlrun.trained import files
    from etlrun.trained.documents import DESCRIPTION, compared
    from etlrun.trained.formats import FORMATS, named, unfit
    from etlrun.trained.load import trained

    known = parser().parse_args(arguments)
    name, output = known.format, known.output or str(known.run / EXPORTS / known.format)
    faults, run, is_config = list(named(name)), None, name not in FORMATS
    try:
        run = trained(known.run, reads_split=False, epoch=known.epoch)
        faults += unfit(run, name) if name in FORMATS else ()
    except EtlrunError as error:
        faults += error.faults
        is_config = False
    if name in FORMATS:
        faults += files.faults_of(output, files.NEW_FOLDER)
    if faults or run is None:
        raise ConfigError(faults) if is_config else EtlrunError(faults)
    with files.placed(output, DESCRIPTION) as folder:
        described = exports.export(run, name, folder)
    check = described["check"]
    noun, drawn = next(iter(check.items()))
    say(f"format    {name}: {exports.taken_by(run, name)} to predictions")
    differs = f"{check['largest_difference']:.1e}, of {check['tolerance']:g} allowed"
    say(f"check     {drawn} {noun}, predictions differ from the model's by up to {differs}")
    say(f"examples  {compared(check['validation'])}")
    if "pixels" in described:
        say(f"pixels    {described['pixels']}")
    say(f"folder    {output}")
    say(f"card      {output.rstrip('/')}/{exports.CARD}, whose licences are to be filled in")
