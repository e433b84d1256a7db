"""Arguments of all commands, and their parsers, of one look: each help ends in an example, in at most 80 columns.

They are values that completion reads, too, so that this imports neither Hydra nor the stages.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from etlrun.cli.commands import COMMANDS, REVIEWING, Answer, collect_again
from etlrun.system.errors import ConfigError, Failure, Fault, describe, did_you_mean, fault
from etlrun.system.hidden import in_review

EXPORTS = ("saved_model", "onnx", "litert", "keras", "torch")
"""Formats of `etlrun export`, whose module is slow to import."""
FORBIDDEN = ("data", "training", "order", "new", "removed")
"""What `--fail-on` takes, the same."""
_MOST_COLUMNS, _LAST_PORT = 80, 65_535
_EXAMPLE = "example:\n"
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_FORBIDDEN = ", ".join(FORBIDDEN)


class Argument(NamedTuple):
    """An argument or an option: its names, and what argparse is told of it."""

    names: tuple[str, ...]
    options: dict[str, Any]


class Arguments(NamedTuple):
    """What a command, or a part of it, is told: what it does, and its arguments; or the parts of it, each with both.

    Attributes:
        says: What it does.
        arguments: Its arguments, beside `--format` and those that select a config.
        parts: Parts by their names.
        example: Command line in the help of a part.
    """

    says: str
    arguments: Sequence[Argument] = ()
    parts: dict[str, Arguments] = {}  # noqa: RUF012 - never changed
    example: str = ""


def _argument(form: str, says: str, **options: Any) -> Argument:
    """Return an argument of a form such as `--config-dir, -cd DIR`, `folder DIR`, or `--all`, which is a flag."""
    *names, last = form.split(", ")
    name, _, value = last.partition(" ")
    if value:
        options["metavar"] = value
    elif name.startswith("-") and not options:
        options["action"] = "store_true"
    return Argument((*names, name), {"help": says, **options})


def _number(low: int, high: float = float("inf"), name: str = "a positive integer") -> Callable[[str], int]:
    """Return what reads an integer from `low` to `high`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
            raise ArgumentTypeError(f"found {text}; expected {name}")
        return int(text)

    return number


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return what reads a text of some form."""

    def text_of(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ArgumentTypeError(f"found {text or 'nothing'}; expected {expected}")
        return text

    return text_of


def _bytes(text: str) -> int:
    """Return a number of bytes from an argument such as `2000000` or `50MB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?b)?", text.lower())
    if found is None:
        raise ArgumentTypeError(f"found {text}; expected a number of bytes, or one with a unit such as 50MB")
    return int(float(found[1]) * _UNITS[found[2] or "b"])


def _forbidden(text: str) -> list[str]:
    """Return what a change must not do, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in FORBIDDEN]:
        raise ArgumentTypeError(f"found {unknown[0]!r}; expected some of {_FORBIDDEN}")
    return names


def _folder(text: str) -> Path:
    """Return a path; refuse what is rather a side of the comparison."""
    if "=" in text and not Path(text).exists():
        raise ArgumentTypeError(f"found {text!r}; expected a folder, after the two sides: OLD NEW --show DIR")
    return Path(text)


_POSITIVE = _number(1)
_RUN = _argument("run RUN", "folder of a completed run", type=Path)
_OVERRIDES = _argument(
    "overrides OVERRIDE", "KEY=VALUE or GROUP=OPTION, as for a run: etlrun help overrides", nargs="*"
)
_EPOCH = _argument(
    "--epoch last|N",
    "take the model of the last epoch, or of epoch N, of which there is a checkpoint; default: the one kept",
)
_CACHES = _argument("--dir DIR", "cache.dir of the runs; default: the user's cache folder")
_TRUSTED = _argument(
    "--trusted-network", "there is neither encryption nor authentication: who reaches a port can run operations here"
)
_CORRUPT = {"choices": ["raise", "skip"], "default": "raise"}


def _config_dir(says: str = "folder of your configs, beside etlrun's") -> Argument:
    return _argument("--config-dir, -cd DIR", says)


def _port(low: int, default: int) -> Argument:
    says = f"port to listen on; default: {default or 'any that is free'}"
    kind = _number(low, _LAST_PORT, f"an integer from {low} to {_LAST_PORT}")
    return _argument("--port PORT", says, type=kind, default=default)


_COMPARED = (
    _argument("old OLD", "quoted overrides, a config file, the folder of a run or of a sweep, or a git revision"),
    _argument(
        "new NEW",
        (
            "the same; default: the configs of the working tree; of a run or a sweep, those that its overrides "
            "compose now"
        ),
        nargs="?",
    ),
    _argument("--experiment NAME", "compare only this experiment of the revisions; default beside a run: its own"),
    _config_dir("folder of your configs, compared instead of the project's"),
    _argument("--stat", "print a line for each experiment that changes, and sums"),
    _argument("--exit-code", "exit with status 1 if a plan differs"),
    _argument(
        "--fail-on KIND[,KIND]",
        f"exit with status 4 for changes of these kinds, or for such experiments: {','.join(FORBIDDEN)}",
        action="extend",
        type=_forbidden,
        default=[],
    ),
    _argument(
        "--label NAME", "label of the change, which may waive rules of etlrun-policy.yaml", action="append", default=[]
    ),
    _argument("--show DIR", "folder for images of examples whose data differ", type=_folder),
)
_COMPARES = (
    "Compare two configs, and report whether the difference changes the data, the order, the training, or only the "
    "speed.{} OLD and NEW are quoted overrides, a config file, the folder of a run or of a sweep, or a git revision."
)
ARGUMENTS = {
    "plan": Arguments(
        "Print the plan of a run, without running it.",
        [_argument("--multirun, -m", "preview all combinations that `etlrun -m` runs")],
    ),
    "show": Arguments(
        "Show the examples that training sees, after each step of the plan: one row per example, one column per step. "
        "No cache is read or filled.",
        [
            _argument("--output FILE.html", "the page to write", type=Path, default=Path("show.html")),
            _argument("--png FILE.png", "an image of the same to write", type=Path),
            _argument("--split", "pipeline to show", choices=["train", "validation"], default="train"),
            _argument("--batches N", "number of batches; default: 1", type=_POSITIVE, default=1),
            _argument("--examples N", "examples of each; default: 8", type=_POSITIVE, default=8),
            _argument("--passes N", "passes in which random steps are shown; default: 3", type=_POSITIVE),
        ],
    ),
    "eject": Arguments("Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras."),
    "tune": Arguments(
        "Find the fastest config that sees the same data, prove that it is faster, and write it down for a review. Its "
        "settings are keys of the group `tune`: tune.budget_s, tune.allow, tune.seed, tune.resume.",
        [_argument("--write FILE", "file for the result: conf/experiment/NAME.yaml", type=Path)],
    ),
    "report": Arguments(
        "Print the report of a run, of a sweep, or of a folder of runs.",
        [_argument("folder FOLDER", "folder of a run, of a sweep, or of runs", type=Path)],
    ),
    "runs": Arguments(
        "List runs and sweeps.",
        parts={
            "ls": Arguments(
                "list runs and sweeps, the newest first",
                [
                    _argument(
                        "--format",
                        "output format; default: text; paths: folders of those that have ended, one per line",
                        choices=("text", "json", "paths"),
                        default="text",
                    ),
                    _argument(
                        "folder FOLDER",
                        "folder of runs; default: outputs",
                        nargs="?",
                        default=Path("outputs"),
                        type=Path,
                    ),
                ],
                example=COMMANDS["runs"].example,
            )
        },
    ),
    "freeze": Arguments("Print the values that AUTOTUNE chose in a run, as a YAML overlay.", [_RUN]),
    "doctor": Arguments(
        "Examine a dataset. Of images: broken, duplicate and nearly duplicate ones, classes, sizes, formats, and what "
        "caches would take. Of rows: what is missing, equal or far from all others, columns that give the target away, "
        "and splits that differ. Of a device: what a convolution, a product in mixed precision and a copy of a batch "
        "take. Nothing is written but the page.",
        [
            _argument("--html FILE", "page with samples to write", type=Path),
            _argument("--device", "test the device and its driver, not the dataset"),
            _argument("--all", "all splits of the dataset, not only those of the config"),
            _argument(
                "--report", "print versions, device, plan and last run as Markdown for an issue, without secrets"
            ),
            _argument("--run RUN", "folder of the run in the report; default: the last", type=Path),
        ],
    ),
    "stats": Arguments(
        "Print type, missing values, mean, quantiles and most frequent values of each column of the training split; "
        "of images, the mean and the standard deviation for the step `normalize`."
    ),
    "prepare": Arguments(
        "Write your images as a TFDS dataset. SOURCE is a folder of classes, which may stand in folders of splits; a "
        "list (.csv or .jsonl) with the columns path, label and optionally split; a zip or tar archive of such a "
        "folder; or a pattern of TFRecords, with --features.",
        [
            _argument("source SOURCE", "folder, list, archive, or pattern of TFRecords"),
            _argument("--name NAME", "name of the dataset", required=True),
            _argument("--version X.Y.Z", "version of the dataset; default: 1.0.0", default="1.0.0"),
            _argument("--data-dir DIR", "data folder of TFDS, or its URL; default: TFDS's own"),
            _argument("--split NAME=PERCENT,...", "splits of each class; default: those of the source"),
            _argument("--shards N", "shards of each split; default: shards of 100 to 200 MB"),
            _argument("--seed N", "seed of the order and of the splits; default: 0"),
            _argument(
                "--on-corrupt",
                "end at the first image that can't be used (default), or leave such images out",
                **_CORRUPT,
            ),
            _argument(
                "--convert",
                "make upright JPEGs or PNGs of HEIC, AVIF, WebP, TIFF, GIF and BMP, and of photos that EXIF turns",
                action="store_const",
                const="yes",
            ),
            _argument("--features image=KEY,label=KEY", "keys of the examples of TFRecords"),
        ],
    ),
    "vocabulary": Arguments(
        "Train the vocabulary of a config's `tokenize: {by: wordpiece}` on the texts of its training split, as the "
        "steps before it leave them, and write it; or on files with a text in each line, as they are: etlrun "
        "vocabulary --size 8000 --out vocab.txt FILE ...",
        [
            _argument("--size N", "maximum number of pieces", type=_POSITIVE, required=True),
            _argument("--out FILE", "file to write; default: the one that the config names", type=Path),
        ],
    ),
    "check": Arguments(
        "Compose every experiment, and every option with those of the neighbouring groups; report all faults with file "
        "and line, and what makes a config slow.",
        [
            _config_dir("folder of your configs, checked instead of the project's"),
            _argument("--strict", "experiments without a comment at the top are faults, too"),
            _argument("--golden DIR", "folder of the golden plans of your experiments", type=Path),
            _argument("--update", "write the golden plans instead of comparing them"),
        ],
    ),
    "diff": Arguments(_COMPARES.format(""), _COMPARED),
    "verify": Arguments(
        _COMPARES.format(" Then read some examples of both sides, without a training."),
        [
            *_COMPARED,
            _argument("--examples N", "examples of each split; default: 2000", type=_POSITIVE, default=2000),
        ],
    ),
    "evaluate": Arguments(
        "Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, "
        "recall, F1 and calibration, or the errors of numbers, and the worst mistakes. Writes "
        "RUN/evaluations/NAME.json and .html.",
        [
            _RUN,
            _argument(
                "overrides OVERRIDE",
                "dataset.split=SPLIT for another split than the run's validation; data and speed may differ",
                nargs="*",
            ),
            _argument(
                "--threshold X",
                "probability above which the second of two classes is predicted; default: 0.5",
                type=float,
            ),
            _argument(
                "--importance N",
                (
                    "permute each column N times in all examples, to see what it is worth; 0 leaves this out; "
                    "default: 5 times, in as many rows as cost little"
                ),
                type=int,
            ),
            _EPOCH,
        ],
    ),
    "predict": Arguments(
        "Predict images, or rows of tables or arrays, with a run's model and validation pipeline.",
        [
            _RUN,
            _argument(
                "given PATH|OVERRIDE",
                (
                    "image files and their folders; tables, or arrays of NumPy; URLs of such files; or "
                    "dataset.split=SPLIT for those of a dataset"
                ),
                nargs="*",
            ),
            _argument(
                "--format",
                "CSV (default), JSON lines, or Parquet, which --output is for",
                choices=["csv", "jsonl", "parquet"],
                default="csv",
            ),
            _argument("--output FILE", "new file to write, or a URL of S3 or GCS; default: standard output"),
            _EPOCH,
            _argument("--top K", "only the K likeliest classes; default: all", type=int),
            _argument(
                "--on-corrupt",
                "end at the first image that can't be used (default), or list all of them on standard error",
                **_CORRUPT,
            ),
        ],
    ),
    "export": Arguments(
        "Export the model of a run for another runtime, with the steps of the run's validation inside that the format "
        "can hold, a description (export.json) and a model card.",
        [
            _RUN,
            _argument("--format FORMAT", f"one of {', '.join(EXPORTS)}", required=True),
            _EPOCH,
            _argument("--output FOLDER", "new folder, or a URL of S3 or GCS; default: RUN/exports/FORMAT"),
        ],
    ),
    "init": Arguments(
        "Write a new project: configs, a step and a model of its own, tests, a workflow that reviews configs, and a "
        "README. No file is overwritten.",
        [
            _argument("folder DIR", "the folder of the project: a new one, or an empty one"),
            _argument("--name NAME", "name of its package; default: that of the folder"),
        ],
    ),
    "cache": Arguments(
        "List caches, kept columns and fetched files on disk, explain hits and misses, and remove caches.",
        parts={
            "ls": Arguments("list all caches", [_CACHES], example="etlrun cache ls"),
            "why": Arguments(
                "explain why a config hits or misses its caches",
                [_OVERRIDES, _config_dir()],
                example=COMMANDS["cache"].example,
            ),
            "gc": Arguments(
                "show the least recently used caches, and remove them with --yes",
                [
                    _CACHES,
                    _argument(
                        "--max-bytes N", "total size to keep: bytes, or such as 50MB", type=_bytes, required=True
                    ),
                    _argument("--yes", "remove what is shown"),
                ],
                example="etlrun cache gc --max-bytes 50GB",
            ),
            "rm": Arguments(
                "remove a cache",
                [_CACHES, _argument("key KEY", "key of the cache, or a prefix of it")],
                example="etlrun cache rm 4bc028587e6d",
            ),
        },
    ),
    "service": Arguments(
        "Serve the input of runs with load.service.address: a dispatcher and its one worker.",
        parts={
            "dispatcher": Arguments(
                "hand out the work to the worker", [_port(1, 5050), _TRUSTED], example=COMMANDS["service"].example
            ),
            "worker": Arguments(
                "compute batches",
                [
                    _argument(
                        "--dispatcher HOST:PORT",
                        "address of the dispatcher",
                        type=_matching(r"\S+:[0-9]+", "HOST:PORT"),
                        required=True,
                    ),
                    _argument(
                        "--host NAME",
                        "name under which runs reach this machine; default: localhost",
                        type=_matching(r"\S+", "a name of this machine"),
                        default="localhost",
                    ),
                    _port(0, 0),
                    _TRUSTED,
                ],
                example="etlrun service worker --dispatcher trainer-1:5050 --trusted-network",
            ),
        },
    ),
    "plugins": Arguments(
        "List what installed packages add by their entry points: models, losses, metrics, callbacks, steps and rows."
    ),
    "schema": Arguments("Print the JSON schema of config files, for the language servers of editors."),
    "help": Arguments(
        "Describe a command, a group of configs, an option, a key or a concept.",
        [
            _argument(
                "topic TOPIC",
                "such as plan, cache, cache.disk, load.prefetch or resume; without one, what the topics are",
                nargs="*",
            ),
            _config_dir(),
        ],
    ),
}
"""What each command takes."""


class Parser(argparse.ArgumentParser):
    """Parser of a command or of a part of it, which takes no abbreviations of options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **options})

    @property
    def arguments(self) -> list[argparse.Action]:
        """Arguments and options, in order."""
        return self._actions

    @property
    def parts(self) -> dict[str, Parser]:
        """Parsers of the parts of a command, such as `why` of `cache`."""
        return next((dict(of.choices) for of in self._actions if isinstance(of.choices, dict)), {})

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with a command line as all errors are printed, and exit with status 2."""
        self.exit(ConfigError.status, f"{describe(ConfigError(list(self._faults(message))))}\n")

    def _faults(self, message: str) -> Iterator[Fault]:
        """Yield the faults in a message of argparse."""
        title, _, rest = message.partition(": ")
        see, where = f"see {self.prog} --help", title.removeprefix("argument ").partition("/")[0]
        choice = re.fullmatch(r"invalid choice: (.*?) \(choose from .*\)", rest)
        if title == "unrecognized arguments":
            yield self._unknown(rest, see)
        elif title == "the following arguments are required":
            named = (name for name in rest.split(", ") if self._argument(name).nargs not in ("*", "?"))
            yield from (fault(name, "nothing", self._expected(name), see) for name in named)
        elif choice is not None:
            remedy = did_you_mean(choice[1].strip("'"), map(str, self._argument(where).choices or ()))
            yield fault(where, choice[1], self._expected(where), remedy)
        elif rest == "expected one argument":
            yield fault(where, "no value", self._expected(where), see)
        elif rest.startswith("not allowed with argument "):
            yield fault(where, f"{rest.rpartition(' ')[2]}, too", "one of them", see)
        elif rest.startswith("ignored explicit argument "):
            yield fault(where, f"the value {rest.rpartition(' ')[2]}", "no value", see)
        else:
            yield Failure(found=f"{where}: {rest}" if title.startswith("argument ") else message, remedy="")

    def _unknown(self, words: str, see: str) -> Fault:
        if not words.startswith("-"):
            return fault(words, "an argument too many", f"those of {self.prog}", see)
        known = [
            option for of in (self, *self.parts.values()) for each in of.arguments for option in each.option_strings
        ]
        remedy = did_you_mean(words.split(maxsplit=1)[0].partition("=")[0], known, otherwise=see, cutoff=0.7)
        return fault(words, "an unknown option", f"an option of {self.prog}", remedy)

    def _argument(self, name: str) -> argparse.Action:
        return next(of for of in self._actions if name in (*of.option_strings, of.metavar, of.dest))

    def _expected(self, name: str) -> str:
        of = self._argument(name)
        return f"one of {', '.join(map(str, of.choices))}" if of.choices else str(of.help)


class _Help(argparse.HelpFormatter):
    """Help that is wrapped, but for the example at its end."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, _MOST_COLUMNS) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLE) else super()._fill_text(text, width, indent)


def call(name: str, arguments: list[str]) -> None:
    """Call a command with these arguments, and print what it answers as its `--format` says.

    Raises:
        EtlrunError: The arguments are wrong, or the command fails.
        SystemExit: With its exit status, if that is not 0.
    """
    known = parsed(name, arguments)
    module, function = COMMANDS[name].function.split(".")
    command: Callable[[Namespace], Answer | None] = getattr(importlib.import_module(f"etlrun.cli.{module}"), function)
    collect_again()
    with in_review() if name in REVIEWING else nullcontext():
        answer = command(known) or Answer()
    if answer.says is not None:
        from etlrun.report.render import RENDER, show
        from etlrun.system.terminal import say_whole

        form = getattr(known, "format", "text")
        if isinstance(answer.says, str):
            say_whole(answer.says)
        elif form in RENDER and form != "text":
            say_whole(RENDER[form](answer.says))
        else:
            show(answer.says)
    if answer.error is not None:
        raise answer.error
    if answer.status:
        raise SystemExit(answer.status)


def parsed(name: str, words: list[str]) -> Namespace:
    """Return the arguments of a command, also as they were written, `words`, and the `request` for the config.

    It ends the process with status 2 if one of them is wrong.
    """
    parser = parser_of(name)
    if COMMANDS[name].selects_config:
        from etlrun.config.request import requested  # which imports Hydra

        known, request = requested(parser, words)
        return Namespace(**vars(known), request=request, words=words)
    is_mixed = any(of.nargs in ("*", "?") and not of.option_strings for of in parser.arguments)
    known = parser.parse_intermixed_args(words) if is_mixed else parser.parse_args(words)
    return Namespace(**vars(known), words=words)


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    command, found = COMMANDS[name], ARGUMENTS[name]
    parser = Parser(prog=f"etlrun {name}", description=found.says, epilog=f"{_EXAMPLE}  {command.example}")
    if found.parts:
        parts = parser.add_subparsers(dest="command", required=True)
        for part, of in found.parts.items():
            says = f"{of.says[0].upper()}{of.says[1:]}."
            inner = parts.add_parser(part, help=of.says, description=says, epilog=f"{_EXAMPLE}  {of.example}")
            _add(inner, of.arguments)
    if command.selects_config:
        _add(parser, [_OVERRIDES])
        name_of = _argument("--config-name, -cn NAME", "primary config; default: config")
        _add(parser.add_argument_group("options of configs"), [_config_dir(), name_of])
    forms = parser.add_mutually_exclusive_group() if command.formats else parser
    for each in found.arguments:
        _add(forms if each.names == ("--stat",) else parser, [each])
    if command.formats:
        forms.add_argument("--format", choices=command.formats, default="text", help="output format; default: text")
    return parser


def _add(to: argparse._ActionsContainer, arguments: Sequence[Argument]) -> None:
    for each in arguments:
        to.add_argument(*each.names, **each.options)
