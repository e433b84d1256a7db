"""Commands of etlrun, each declared once with its arguments; none of their modules is imported before it is called.

A command is a function of its arguments, and returns an `Answer`: what it says, drawn as `--format` asks, and its end.
Completion and help read the declarations, too, so that this imports neither Hydra nor the stages.
"""

from __future__ import annotations

import gc
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from etlrun.report.doc import Doc
    from etlrun.system.errors import EtlrunError

EXPORTS = ("saved_model", "onnx", "litert", "keras", "torch")
"""Formats of `etlrun export`, whose module is slow to import."""
FORBIDDEN = ("data", "training", "order", "new", "removed")
"""What `--fail-on` takes, the same."""
_LAST_PORT = 65_535
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


class Answer(NamedTuple):
    """What a command answers.

    Attributes:
        says: A document, or a text that is printed as it is; None for nothing.
        status: Exit status.
        error: What is wrong behind it; None if nothing is.
    """

    says: Doc | str | None = None
    status: int = 0
    error: EtlrunError | None = None


class Argument(NamedTuple):
    """An argument or an option.

    Attributes:
        form: Its name and value as in a usage: `--config-dir, -cd DIR`, `folder DIR`, or `--all`, which is a flag. Of
            `{A,B}` it takes one, the first by default; `[WORD]` may be left out, and `[WORD ...]` be several.
        says: What it is.
        options: What else argparse is told of it.
    """

    form: str
    says: str
    options: Mapping[str, Any]

    @property
    def is_option(self) -> bool:
        """Whether it has a name on a command line."""
        return self.form.startswith("-")


@dataclass(frozen=True)
class Command:
    """A command, or a part of one such as `why` of `cache`.

    Attributes:
        summary: What it does, in a few words.
        example: Command line that its help ends in; RUN is the folder of a run.
        says: What it does, where that takes more words.
        arguments: Its arguments; behind `OVERRIDES` the options that name config files are left out.
        function: Function that it calls, behind its module; empty for a part.
        parts: Parts by their names.
    """

    summary: str
    example: str
    says: str = ""
    arguments: Sequence[Argument] = ()
    function: str = ""
    parts: Mapping[str, Command] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """What it does, as its help begins."""
        return self.says or f"{self.summary[0].upper()}{self.summary[1:]}."

    @property
    def whole(self) -> list[Argument]:
        """All of its arguments."""
        return [*self.arguments, *(CONFIG_FILES if OVERRIDES in self.arguments else ())]

    @property
    def module(self) -> str:
        """Module of its function."""
        return self.function.partition(".")[0]


def argument(form: str, says: str, **options: Any) -> Argument:
    """Return an argument."""
    return Argument(form, says, options)


def _number(low: int, high: float = float("inf"), name: str = "a positive integer") -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
            raise ArgumentTypeError(f"found {text}; expected {name}")
        return int(text)

    return number


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
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
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in FORBIDDEN]:
        raise ArgumentTypeError(f"found {unknown[0]!r}; expected some of {', '.join(FORBIDDEN)}")
    return names


def _folder(text: str) -> Path:
    """Return a path; refuse what is rather a side of the comparison."""
    if "=" in text and not Path(text).exists():
        raise ArgumentTypeError(f"found {text!r}; expected a folder, after the two sides: OLD NEW --show DIR")
    return Path(text)


def _port(low: int, default: int) -> Argument:
    says = f"port to listen on; default: {default or 'any that is free'}"
    kind = _number(low, _LAST_PORT, f"an integer from {low} to {_LAST_PORT}")
    return argument("--port PORT", says, type=kind, default=default)


GROUPS = {
    "train and compare": ("tune", "runs"),
    "look at a config": ("configs",),
    "make and examine data": ("doctor", "prepare"),
    "use a trained model": ("models",),
    "review changes": ("reviews",),
    "set up and maintain": ("upkeep", "cache", "help"),
}
"""Headings of `etlrun --help`, in its order, with the modules of the commands below them."""
_FORMAT = "output format; default: text"
_AS_JSON = argument("--format {text,json}", _FORMAT)
_AS_MARKDOWN = argument("--format {text,markdown,json}", _FORMAT)
_POSITIVE = _number(1)
_RUN = argument("run RUN", "folder of a completed run", type=Path)
OVERRIDES = argument("overrides [OVERRIDE ...]", "KEY=VALUE or GROUP=OPTION, as for a run: etlrun help overrides")
"""Overrides of a command that selects a config."""
CONFIG_FILES = (
    argument("--config-dir, -cd DIR", "folder of your configs, beside etlrun's"),
    argument("--config-name, -cn NAME", "primary config; default: config"),
)
"""Options of such a command."""
_EPOCH = argument("--epoch last|N", "model of the last epoch, or of epoch N with a checkpoint; default: the one kept")
_CACHES = argument("--dir DIR", "cache.dir of the runs; default: the user's cache folder")
_TRUSTED = argument("--trusted-network", "who reaches a port can run operations here: there is no authentication")
_COMPARES = (
    "Compare two configs, and report whether the difference changes the data, the order, the training, or only the "
    "speed.{} OLD and NEW are quoted overrides, a config file, the folder of a run or of a sweep, or a git revision."
)
_COMPARED = (
    argument("old OLD", "quoted overrides, a config file, the folder of a run or of a sweep, or a git revision"),
    argument(
        "new [NEW]",
        "the same; default: the configs of the working tree; of a run or a sweep, those that its overrides compose now",
    ),
    argument("--experiment NAME", "compare only this experiment of the revisions; default beside a run: its own"),
    argument("--config-dir, -cd DIR", "folder of your configs, compared instead of the project's"),
    argument("--stat", "print a line for each experiment that changes, and sums"),
    argument("--exit-code", "exit with status 1 if a plan differs"),
    argument(
        "--fail-on KIND[,KIND]",
        f"exit with status 4 for changes of these kinds, or for such experiments: {','.join(FORBIDDEN)}",
        action="extend",
        type=_forbidden,
        default=[],
    ),
    argument("--label NAME", "label of the change, which may waive rules of a policy", action="append", default=[]),
    argument("--show DIR", "folder for images of examples whose data differ", type=_folder),
)
COMMANDS = {
    "plan": Command(
        "print the plan of a run; with -m the jobs of a sweep",
        "etlrun plan experiment=parallel cache=disk",
        "Print the plan of a run, without running it.",
        [
            OVERRIDES,
            argument("--multirun, -m", "preview all combinations that `etlrun -m` runs"),
            argument("--format {text,json,mermaid}", _FORMAT),
        ],
        "configs.plan",
    ),
    "show": Command(
        "show examples after each step of a plan, as a page",
        "etlrun show transform=augmented_224 cache=none --examples 4",
        "Show the examples that training sees, after each step of the plan: one row per example, one column per step. "
        "No cache is read or filled.",
        [
            OVERRIDES,
            argument("--output FILE.html", "the page to write", type=Path, default=Path("show.html")),
            argument("--png FILE.png", "an image of the same to write", type=Path),
            argument("--split {train,validation}", "pipeline to show"),
            argument("--batches N", "number of batches; default: 1", type=_POSITIVE, default=1),
            argument("--examples N", "examples of each; default: 8", type=_POSITIVE, default=8),
            argument("--passes N", "passes in which random steps are shown; default: 3", type=_POSITIVE),
        ],
        "configs.show",
    ),
    "eject": Command(
        "print an equivalent Python program without etlrun",
        "etlrun eject experiment=parallel > train.py",
        "Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras.",
        [OVERRIDES],
        "configs.eject",
    ),
    "tune": Command(
        "find the fastest config, and prove that it is",
        "etlrun tune experiment=naive --write conf/experiment/fast.yaml",
        "Find the fastest config that sees the same data, prove that it is faster, and write it down for a review. Its "
        "settings are keys of the group `tune`: tune.budget_s, tune.allow, tune.seed, tune.resume.",
        [OVERRIDES, argument("--write FILE", "file for the result: conf/experiment/NAME.yaml", type=Path)],
        "tune.tune",
    ),
    "report": Command(
        "print the report of a run, or of a folder of runs",
        "etlrun report RUN",
        "Print the report of a run, of a sweep, or of a folder of runs.",
        [argument("folder FOLDER", "folder of a run, of a sweep, or of runs", type=Path)],
        "runs.report",
    ),
    "runs": Command(
        "list runs and sweeps",
        "etlrun runs ls outputs",
        function="runs.listing",
        parts={
            "ls": Command(
                "list runs and sweeps, the newest first",
                "etlrun runs ls outputs",
                arguments=[
                    argument("--format {text,json,paths}", f"{_FORMAT}; paths: folders of ended ones, one per line"),
                    argument("folder [FOLDER]", "folder of runs; default: outputs", type=Path, default=Path("outputs")),
                ],
            )
        },
    ),
    "freeze": Command(
        "print the values that AUTOTUNE chose, as YAML",
        "etlrun freeze RUN > conf/experiment/frozen.yaml",
        "Print the values that AUTOTUNE chose in a run, as a YAML overlay.",
        [_RUN],
        "runs.freeze",
    ),
    "doctor": Command(
        "examine a dataset or the device; --report for issues",
        "etlrun doctor experiment=own dataset.dir=photos --html doctor.html",
        "Examine a dataset. Of images: broken, duplicate and nearly duplicate ones, classes, sizes, formats, and what "
        "caches would take. Of rows: what is missing, equal or far from all others, columns that give the target away, "
        "and splits that differ. Of a device: what a convolution, a product in mixed precision and a copy of a batch "
        "take. Nothing is written but the page.",
        [
            OVERRIDES,
            argument("--html FILE", "page with samples to write", type=Path),
            argument("--device", "test the device and its driver, not the dataset"),
            argument("--all", "all splits of the dataset, not only those of the config"),
            argument("--report", "print versions, device, plan and last run as Markdown for an issue, without secrets"),
            argument("--run RUN", "folder of the run in the report; default: the last", type=Path),
            _AS_JSON,
        ],
        "doctor.doctor",
    ),
    "stats": Command(
        "print figures of columns, or of images for `normalize`",
        "etlrun stats dataset=sample",
        "Print type, missing values, mean, quantiles and most frequent values of each column of the training split; "
        "of images, the mean and the standard deviation for the step `normalize`.",
        [OVERRIDES],
        "doctor.stats",
    ),
    "prepare": Command(
        "write your images as a TFDS dataset",
        "etlrun prepare photos --name pets --split train=80,validation=20",
        "Write your images as a TFDS dataset. SOURCE is a folder of classes, which may stand in folders of splits; a "
        "list (.csv or .jsonl) with the columns path, label and optionally split; a zip or tar archive of such a "
        "folder; or a pattern of TFRecords, with --features.",
        [
            argument("source SOURCE", "folder, list, archive, or pattern of TFRecords"),
            argument("--name NAME", "name of the dataset", required=True),
            argument("--version X.Y.Z", "version of the dataset; default: 1.0.0", default="1.0.0"),
            argument("--data-dir DIR", "data folder of TFDS, or its URL; default: TFDS's own"),
            argument("--split NAME=PERCENT,...", "splits of each class; default: those of the source"),
            argument("--shards N", "shards of each split; default: shards of 100 to 200 MB"),
            argument("--seed N", "seed of the order and of the splits; default: 0"),
            argument("--on-corrupt {raise,skip}", "end at the first broken image (default), or leave such images out"),
            argument(
                "--convert",
                "make upright JPEGs or PNGs of HEIC, AVIF, WebP, TIFF, GIF and BMP, and of photos that EXIF turns",
                action="store_const",
                const="yes",
            ),
            argument("--features image=KEY,label=KEY", "keys of the examples of TFRecords"),
        ],
        "prepare.prepare",
    ),
    "vocabulary": Command(
        "train a WordPiece vocabulary on the texts of a table, or on files",
        "etlrun vocabulary --size 8000 --out vocabulary.txt texts.txt",
        "Train the vocabulary of a config's `tokenize: {by: wordpiece}` on the texts of its training split, as the "
        "steps before it leave them, and write it; or on files with a text in each line, as they are: etlrun "
        "vocabulary --size 8000 --out vocab.txt FILE ...",
        [
            OVERRIDES,
            argument("--size N", "maximum number of pieces", type=_POSITIVE, required=True),
            argument("--out FILE", "file to write; default: the one that the config names", type=Path),
        ],
        "prepare.vocabulary",
    ),
    "check": Command(
        "check all config files",
        "etlrun check --config-dir conf",
        "Compose every experiment, and every option with those of the neighbouring groups; report all faults with file "
        "and line, and what makes a config slow.",
        [
            argument("--config-dir, -cd DIR", "folder of your configs, checked instead of the project's"),
            argument("--strict", "experiments without a comment at the top are faults, too"),
            argument("--golden DIR", "folder of the golden plans of your experiments", type=Path),
            argument("--update", "write the golden plans instead of comparing them"),
            argument("--format {text,json,github,junit,sarif}", _FORMAT),
        ],
        "reviews.check",
    ),
    "diff": Command(
        "report the effect of a change of overrides, files or runs",
        "etlrun diff experiment=naive experiment=parallel",
        _COMPARES.format(""),
        [*_COMPARED, _AS_MARKDOWN],
        "reviews.compare",
    ),
    "verify": Command(
        "confirm a diff by reading some examples of both sides",
        "etlrun verify experiment=naive experiment=parallel --examples 100",
        _COMPARES.format(" Then read some examples of both sides, without a training."),
        [
            *_COMPARED,
            argument("--examples N", "examples of each split; default: 2000", type=_POSITIVE, default=2000),
            _AS_MARKDOWN,
        ],
        "reviews.compare",
    ),
    "evaluate": Command(
        "evaluate the model of a run on a split",
        "etlrun evaluate RUN --format json",
        "Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, "
        "recall, F1 and calibration, or the errors of numbers, and the worst mistakes. Writes "
        "RUN/evaluations/NAME.json and .html.",
        [
            _RUN,
            argument("overrides [OVERRIDE ...]", "dataset.split=SPLIT for another split; data and speed may differ"),
            argument(
                "--threshold X", "probability above which the second class is predicted; default: 0.5", type=float
            ),
            argument(
                "--importance N",
                "permute each column N times in all examples, to see what it is worth; 0 leaves this out; "
                "default: 5 times, in as many rows as cost little",
                type=int,
            ),
            _EPOCH,
            _AS_JSON,
        ],
        "models.evaluate",
    ),
    "predict": Command(
        "predict images or rows with the model of a run",
        "etlrun predict RUN photos --output predictions.csv",
        "Predict images, or rows of tables or arrays, with a run's model and validation pipeline.",
        [
            _RUN,
            argument(
                "given [PATH|OVERRIDE ...]",
                "image files and their folders; tables, or arrays of NumPy; URLs of such files; or "
                "dataset.split=SPLIT for those of a dataset",
            ),
            argument("--format {csv,jsonl,parquet}", "CSV (default), JSON lines, or Parquet, which --output is for"),
            argument("--output FILE", "new file to write, or a URL of S3 or GCS; default: standard output"),
            _EPOCH,
            argument("--top K", "only the K likeliest classes; default: all", type=int),
            argument(
                "--on-corrupt {raise,skip}", "end at the first broken image (default), or list all on standard error"
            ),
        ],
        "models.predict",
    ),
    "export": Command(
        "export the model of a run to SavedModel, ONNX, LiteRT, torch",
        "etlrun export RUN --format onnx",
        "Export the model of a run for another runtime, with the steps of the run's validation inside that the format "
        "can hold, a description (export.json) and a model card.",
        [
            _RUN,
            argument("--format FORMAT", f"one of {', '.join(EXPORTS)}", required=True),
            _EPOCH,
            argument("--output FOLDER", "new folder, or a URL of S3 or GCS; default: RUN/exports/FORMAT"),
        ],
        "models.export",
    ),
    "init": Command(
        "begin a project: configs, a step, a model, tests, reviews",
        "etlrun init my_project",
        "Write a new project: configs, a step and a model of its own, tests, a workflow that reviews configs, and a "
        "README. No file is overwritten.",
        [
            argument("folder DIR", "the folder of the project: a new one, or an empty one"),
            argument("--name NAME", "name of its package; default: that of the folder"),
        ],
        "upkeep.init",
    ),
    "cache": Command(
        "list, explain and remove the caches on disk",
        "etlrun cache why cache=disk load.batch_size=64",
        "List caches, kept columns and fetched files on disk, explain hits and misses, and remove caches.",
        function="cache.cache",
        parts={
            "ls": Command("list all caches", "etlrun cache ls", arguments=[_CACHES]),
            "why": Command(
                "explain why a config hits or misses its caches",
                "etlrun cache why cache=disk load.batch_size=64",
                arguments=[OVERRIDES],
            ),
            "gc": Command(
                "show the least recently used caches, and remove them with --yes",
                "etlrun cache gc --max-bytes 50GB",
                arguments=[
                    _CACHES,
                    argument("--max-bytes N", "total size to keep: bytes, or such as 50MB", type=_bytes, required=True),
                    argument("--yes", "remove what is shown"),
                ],
            ),
            "rm": Command(
                "remove a cache",
                "etlrun cache rm 4bc028587e6d",
                arguments=[_CACHES, argument("key KEY", "key of the cache, or a prefix of it")],
            ),
        },
    ),
    "service": Command(
        "serve the input pipeline from this machine",
        "etlrun service dispatcher --trusted-network",
        "Serve the input of runs with load.service.address: a dispatcher and its one worker.",
        function="upkeep.service",
        parts={
            "dispatcher": Command(
                "hand out the work to the worker",
                "etlrun service dispatcher --trusted-network",
                arguments=[_port(1, 5050), _TRUSTED],
            ),
            "worker": Command(
                "compute batches",
                "etlrun service worker --dispatcher trainer-1:5050 --trusted-network",
                arguments=[
                    argument(
                        "--dispatcher HOST:PORT",
                        "address of the dispatcher",
                        type=_matching(r"\S+:[0-9]+", "HOST:PORT"),
                        required=True,
                    ),
                    argument(
                        "--host NAME",
                        "name under which runs reach this machine; default: localhost",
                        type=_matching(r"\S+", "a name of this machine"),
                        default="localhost",
                    ),
                    _port(0, 0),
                    _TRUSTED,
                ],
            ),
        },
    ),
    "plugins": Command(
        "list what installed packages add: models, losses, steps",
        "etlrun plugins --format json",
        "List what installed packages add by their entry points: models, losses, metrics, callbacks, steps and rows.",
        [_AS_JSON],
        "upkeep.plugins",
    ),
    "schema": Command(
        "print the JSON schema of config files, for editors",
        "etlrun schema > schema.json",
        "Print the JSON schema of config files, for the language servers of editors.",
        function="configs.schema",
    ),
    "help": Command(
        "describe a command, an option, a key or a concept",
        "etlrun help load.prefetch",
        "Describe a command, a group of configs, an option, a key or a concept.",
        [
            argument(
                "topic [TOPIC ...]", "such as plan, cache.disk, load.prefetch or resume; default: what topics there are"
            ),
            CONFIG_FILES[0],
        ],
        "help.help_on",
    ),
}
"""The commands, by their names."""
REVIEWING = frozenset({"plan", "check", "diff", "verify"})
"""Commands that open no store that a variable of the environment names."""


def collect_again() -> None:
    """Turn garbage collections on again, which need not look at modules."""
    gc.freeze()
    gc.enable()
