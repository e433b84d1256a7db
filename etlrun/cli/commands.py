"""Commands of etlrun, each declared once with its arguments; none of their modules is imported before it is called.

A command is a function of its arguments, and returns an `Answer`: what it says, drawn as `--format` asks, and its end.
Completion and help read the declarations, too, so that this imports neither Hydra nor the stages.
"""

from __future__ import annotations

import gc
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
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


class Argument:
    """An argument or an option.

    Attributes:
        form: Its name and value as in a usage: `--config-dir, -cd DIR`, `folder DIR`, or `--all`, which is a flag. Of
            `{A,B}` it takes one, the first by default; `[WORD]` may be left out, and `[WORD ...]` be several.
        says: What it is, with its default.
        names: Its names for argparse.
        is_option: Whether it has a name on a command line.
        is_required: Whether it is an option that can't be left out.
        options: What argparse is told of it.
    """

    def __init__(self, form: str, says: str) -> None:
        """Read a form with a default behind it, or with `!` for a required option."""
        names, value, default = re.findall(r"([^\s,]+(?:, \S+)*) ?(\[.*\]|\S*) ?(\S*)", form)[0]
        self.form, self.names, self.is_option = f"{names} {value}".strip(), names.split(", "), form[0] == "-"
        self.is_required, is_free = default == "!", value[:1] == "["
        self.says = says if default in ("", "!") else f"{says}; default: {default}"
        options = self.options = dict[str, Any](help=self.says)
        if value[:1] == "{":
            choices = value.strip("{}").split(",")
            options |= {"choices": choices, "default": choices[0]}
        elif value:
            word = value.strip("[ .]") if is_free else value
            options |= {"metavar": word, "type": _TYPES.get(form) or _TYPES.get(word, str)}
            options |= {"required": True} if self.is_required else {"default": default or None}
            options |= {"nargs": "*" if value.endswith(" ...]") else "?"} if is_free else {}
        else:
            options |= {"action": "store_true"} if self.is_option else {}
        options |= _OTHERS.get(form, {})


@dataclass(frozen=True)
class Command:
    """A command, or a part of one such as `why` of `cache`.

    Attributes:
        summary: What it does, in a few words.
        example: Command line that its help ends in; RUN is the folder of a run.
        says: What it does, where that takes more words.
        arguments: What its arguments are, by their forms; behind `OVERRIDES` those of `CONFIG_FILES` are left out.
        function: Function that it calls, behind its module; empty for a part.
        parts: Parts by their names.
    """

    summary: str
    example: str
    says: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    function: str = ""
    parts: Mapping[str, Command] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """What it does, as its help begins."""
        return self.says or f"{self.summary[0].upper()}{self.summary[1:]}."

    @property
    def takes_overrides(self) -> bool:
        """Whether it selects a config by overrides."""
        return OVERRIDES.items() <= self.arguments.items()

    @property
    def whole(self) -> list[Argument]:
        """All of its arguments."""
        return [Argument(*of) for of in {**self.arguments, **(CONFIG_FILES if self.takes_overrides else {})}.items()]

    @property
    def usage(self) -> str:
        """The words behind its name: required options, that there are others, and arguments."""
        options = [of for of in self.whole if of.is_option]
        needed = [of.form for of in options if of.is_required]
        others = ["[OPTION ...]"] * (len(options) > len(needed))
        return " ".join([*needed, *others, *(of.form.partition(" ")[2] for of in self.whole if not of.is_option)])

    @property
    def module(self) -> str:
        """Module of its function."""
        return self.function.partition(".")[0]


def _reading(fits: Callable[[str], object], expected: str, convert: Callable[[str], Any] = str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not fits(text):
            raise ArgumentTypeError(f"found {text or 'nothing'}; expected {expected}")
        return convert(text)

    return read


def _integer(low: int, high: float = float("inf"), expected: str = "a positive integer") -> Callable[[str], int]:
    return _reading(lambda text: text.isascii() and text.isdecimal() and low <= int(text) <= high, expected, int)


def _bytes(text: str) -> int:
    """Return a number of bytes from an argument such as `2000000` or `50MB`."""
    number, unit = re.findall(r"([\d.]+) ?(\D*)", text.lower())[0]
    return int(float(number) * _UNITS[unit or "b"])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


_SIZE = re.compile(r"\d+(\.\d+)? ?([kmgt]?b)?", re.IGNORECASE)
_TYPES: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("RUN", "FILE", "FILE.html", "FOLDER", "--golden DIR"), Path),
    **dict.fromkeys(("--output FILE", "--output FOLDER", "--shards N", "--seed N"), str),
    **dict.fromkeys(("--importance N", "--top K"), int),
    "N": _integer(1),
    "X": float,
    "--show DIR": _reading(
        lambda text: "=" not in text or Path(text).exists(), "a folder, after the two sides: OLD NEW --show DIR", Path
    ),
    "--max-bytes N !": _reading(_SIZE.fullmatch, "a number of bytes, or one with a unit such as 50MB", _bytes),
    "--port PORT 5050": _integer(1, _LAST_PORT, f"an integer from 1 to {_LAST_PORT}"),
    "--port PORT": _integer(0, _LAST_PORT, f"an integer from 0 to {_LAST_PORT}"),
    "--dispatcher HOST:PORT !": _reading(re.compile(r"\S+:[0-9]+").fullmatch, "HOST:PORT"),
    "--host NAME localhost": _reading(re.compile(r"\S+").fullmatch, "a name of this machine"),
}
"""Functions that read values, by forms of arguments or by words for values; others are texts."""
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "--fail-on KIND[,KIND]": {
        "type": _reading(lambda text: {*_names(text)} <= {*FORBIDDEN}, f"some of {', '.join(FORBIDDEN)}", _names),
        "action": "extend",
        "default": [],
    },
    "--label NAME": {"type": _names, "action": "extend", "default": []},
    "--convert": {"action": "store_const", "const": "yes"},
}
"""What else argparse is told, by forms of arguments."""
GROUPS = {
    "train and compare": ("tune", "runs"),
    "look at a config": ("configs",),
    "make and examine data": ("doctor", "prepare"),
    "use a trained model": ("models",),
    "review changes": ("reviews",),
    "set up and maintain": ("upkeep", "parsers"),
}
"""Headings of `etlrun --help`, in its order, with the modules of the commands below them."""
_FORMAT = "output format; default: text"
_RUN = {"run RUN": "folder of a completed run"}
OVERRIDES = {"overrides [OVERRIDE ...]": "KEY=VALUE or GROUP=OPTION, as for a run: etlrun help overrides"}
"""Overrides of a command that selects a config."""
CONFIG_FILES = {
    "--config-dir, -cd DIR": "folder of your configs, beside etlrun's",
    "--config-name, -cn NAME": "primary config; default: config",
}
"""Options of such a command."""
_EPOCH = {"--epoch last|N": "model of the last epoch, or of epoch N with a checkpoint; default: the one kept"}
_CACHES = {"--dir DIR": "cache.dir of the runs; default: the user's cache folder"}
_TRUSTED = {"--trusted-network": "who reaches a port can run operations here: there is no authentication"}
_COMPARES = (
    "Compare two configs, and report whether the difference changes the data, the order, the training, or only the "
    "speed.{} OLD and NEW are quoted overrides, a config file, the folder of a run or of a sweep, or a git revision."
)
_COMPARED = {
    "old OLD": "quoted overrides, a config file, the folder of a run or of a sweep, or a git revision",
    "new [NEW]": "the same; default: the configs of the working tree; of a run, what its overrides compose now",
    "--experiment NAME": "compare only this experiment of the revisions; default beside a run: its own",
    "--config-dir, -cd DIR": "folder of your configs, compared instead of the project's",
    "--exit-code": "exit with status 1 if a plan differs",
    "--fail-on KIND[,KIND]": "exit with status 4 for changes of these kinds, or for such experiments: "
    f"{','.join(FORBIDDEN)}",
    "--label NAME": "label of the change, which may waive rules of a policy",
    "--show DIR": "folder for images of examples whose data differ",
}
COMMANDS = {
    "plan": Command(
        "print the plan of a run; with -m the jobs of a sweep",
        "etlrun plan experiment=parallel cache=disk",
        "Print the plan of a run, without running it.",
        {
            **OVERRIDES,
            "--multirun, -m": "preview all combinations that `etlrun -m` runs",
            "--format {text,json}": _FORMAT,
        },
        "configs.plan",
    ),
    "show": Command(
        "show examples after each step of a plan, as a page",
        "etlrun show transform=augmented_224 cache=none --examples 4",
        "Show the examples that training sees, after each step of the plan: one row per example, one column per step. "
        "No cache is read or filled.",
        {
            **OVERRIDES,
            "--output FILE.html show.html": "the page to write",
            "--split {train,validation}": "pipeline to show",
            "--examples N 8": "number of examples",
            "--passes N": "passes in which random steps are shown; default: 3",
        },
        "configs.show",
    ),
    "eject": Command(
        "print an equivalent Python program without etlrun",
        "etlrun eject experiment=parallel > train.py",
        "Print a Python program equivalent to a run, which needs only tf.data, TFDS and Keras.",
        OVERRIDES,
        "configs.eject",
    ),
    "tune": Command(
        "find the fastest config, and prove that it is",
        "etlrun tune experiment=naive --write conf/experiment/fast.yaml",
        "Find the fastest config that sees the same data, prove that it is faster, and write it down for a review. Its "
        "settings are keys of the group `tune`: tune.budget_s, tune.allow, tune.seed, tune.resume.",
        {**OVERRIDES, "--write FILE": "file for the result: conf/experiment/NAME.yaml"},
        "tune.tune",
    ),
    "report": Command(
        "print the report of a run, or of a folder of runs",
        "etlrun report RUN",
        "Print the report of a run, of a sweep, or of a folder of runs.",
        {"folder FOLDER": "folder of a run, of a sweep, or of runs"},
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
                arguments={
                    "--format {text,json}": _FORMAT,
                    "folder [FOLDER] outputs": "folder of runs",
                },
            )
        },
    ),
    "freeze": Command(
        "print the values that AUTOTUNE chose, as YAML",
        "etlrun freeze RUN > conf/experiment/frozen.yaml",
        "Print the values that AUTOTUNE chose in a run, as a YAML overlay.",
        _RUN,
        "runs.freeze",
    ),
    "doctor": Command(
        "examine a dataset; --report for issues",
        "etlrun doctor experiment=own dataset.dir=photos",
        "Examine a dataset. Of images: broken, duplicate and nearly duplicate ones, classes, sizes and formats. "
        "Of rows: what is missing, equal or far from all others, columns that give the target away, "
        "and splits that differ. Nothing is written.",
        {
            **OVERRIDES,
            "--report": "print versions, machine, plan and last run as Markdown for an issue, without secrets",
            "--format {text,json}": _FORMAT,
        },
        "doctor.doctor",
    ),
    "stats": Command(
        "print the mean and deviation of images for `normalize`",
        "etlrun stats dataset=sample",
        "Print the mean and the standard deviation of the images of the training split for the step `normalize`.",
        OVERRIDES,
        "doctor.stats",
    ),
    "prepare": Command(
        "write your images as a TFDS dataset",
        "etlrun prepare photos --name pets --split train=80,validation=20",
        "Write your images as a TFDS dataset. SOURCE is a folder of classes, which may stand in folders of splits; or "
        "a list (.csv) with the columns path, label and optionally split.",
        {
            "source SOURCE": "folder or list",
            "--name NAME !": "name of the dataset",
            "--version X.Y.Z 1.0.0": "version of the dataset",
            "--data-dir DIR": "data folder of TFDS, or its URL; default: TFDS's own",
            "--split NAME=PERCENT,...": "splits of each class; default: those of the source",
            "--shards N": "shards of each split; default: shards of 100 to 200 MB",
            "--seed N": "seed of the order and of the splits; default: 0",
            "--on-corrupt {raise,skip}": "end at the first broken image (default), or leave such images out",
            "--convert": "make upright JPEGs or PNGs of HEIC, AVIF, WebP, TIFF, GIF and BMP, and of photos that EXIF "
            "turns",
        },
        "prepare.prepare",
    ),
    "vocabulary": Command(
        "train a WordPiece vocabulary on the texts of a config",
        "etlrun vocabulary --size 8000 experiment=text dataset.files=reviews.csv",
        "Train the vocabulary of a config's `tokenize: {by: wordpiece}` on the texts of its training split, as the "
        "steps before it leave them, and write it.",
        {
            **OVERRIDES,
            "--size N !": "maximum number of pieces",
            "--out FILE": "file to write; default: the one that the config names",
        },
        "prepare.vocabulary",
    ),
    "check": Command(
        "check all config files",
        "etlrun check --config-dir conf",
        "Compose every experiment, and every option with those of the neighbouring groups; report all faults with file "
        "and line.",
        {
            "--config-dir, -cd DIR": "folder of your configs, checked instead of the project's",
            "--golden DIR": "folder of the golden plans of your experiments",
            "--update": "write the golden plans instead of comparing them",
            "--format {text,json,github}": _FORMAT,
        },
        "reviews.check",
    ),
    "diff": Command(
        "report the effect of a change of overrides, files or runs",
        "etlrun diff experiment=naive experiment=parallel",
        _COMPARES.format(""),
        {**_COMPARED, "--format {text,markdown,json}": _FORMAT},
        "reviews.compare",
    ),
    "verify": Command(
        "confirm a diff by reading some examples of both sides",
        "etlrun verify experiment=naive experiment=parallel --examples 100",
        _COMPARES.format(" Then read some examples of both sides, without a training."),
        {
            **_COMPARED,
            "--examples N 2000": "examples of each split",
            "--format {text,markdown,json}": _FORMAT,
        },
        "reviews.compare",
    ),
    "evaluate": Command(
        "evaluate the model of a run on a split",
        "etlrun evaluate RUN --format json",
        "Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, "
        "recall, F1 and calibration, or the errors of numbers, and the worst mistakes. Writes "
        "RUN/evaluations/NAME.json and .html.",
        {
            **_RUN,
            "overrides [OVERRIDE ...]": "dataset.split=SPLIT for another split; data and speed may differ",
            "--threshold X": "probability above which the second class is predicted; default: 0.5",
            "--importance N": "permute each column N times in all examples, to see what it is worth; 0 leaves this "
            "out; "
            "default: 5 times, in as many rows as cost little",
            **_EPOCH,
            "--format {text,json}": _FORMAT,
        },
        "models.evaluate",
    ),
    "predict": Command(
        "predict images or rows with the model of a run",
        "etlrun predict RUN photos --output predictions.csv",
        "Predict images, texts, or rows of tables or arrays, with a run's model and validation pipeline.",
        {
            **_RUN,
            "given [PATH|OVERRIDE ...]": "image files and their folders; tables or their URLs, arrays of NumPy, "
            "or .txt with a text in each line; or dataset.split=SPLIT for those of a dataset",
            "--format {csv,jsonl,parquet}": "CSV (default), JSON lines, or Parquet, which --output is for",
            "--output FILE": "new file to write; default: standard output",
            **_EPOCH,
            "--top K": "only the K likeliest classes; default: all",
            "--on-corrupt {raise,skip}": "end at the first broken image (default), or list all on standard error",
        },
        "models.predict",
    ),
    "export": Command(
        "export the model of a run to SavedModel, ONNX, LiteRT, torch",
        "etlrun export RUN --format onnx",
        "Export the model of a run for another runtime, with the steps of the run's validation inside that the format "
        "can hold, a description (export.json) and a model card.",
        {
            **_RUN,
            "--format FORMAT !": f"one of {', '.join(EXPORTS)}",
            **_EPOCH,
            "--output FOLDER": "new folder; default: RUN/exports/FORMAT",
        },
        "models.export",
    ),
    "init": Command(
        "begin a project: configs, a step, a model, tests, reviews",
        "etlrun init my_project",
        "Write a new project: configs, a step and a model of its own, tests, a workflow that reviews configs, and a "
        "README. No file is overwritten.",
        {
            "folder DIR": "the folder of the project: a new one, or an empty one",
            "--name NAME": "name of its package; default: that of the folder",
        },
        "upkeep.init",
    ),
    "cache": Command(
        "list, explain and remove the caches on disk",
        "etlrun cache why cache=disk load.batch_size=64",
        "List caches, kept columns and fetched files on disk, explain hits and misses, and remove caches.",
        function="upkeep.cache",
        parts={
            "ls": Command("list all caches", "etlrun cache ls", arguments=_CACHES),
            "why": Command(
                "explain why a config hits or misses its caches",
                "etlrun cache why cache=disk load.batch_size=64",
                arguments=OVERRIDES,
            ),
            "gc": Command(
                "show the least recently used caches, and remove them with --yes",
                "etlrun cache gc --max-bytes 50GB",
                arguments={
                    **_CACHES,
                    "--max-bytes N !": "total size to keep: bytes, or such as 50MB",
                    "--yes": "remove what is shown",
                },
            ),
            "rm": Command(
                "remove a cache",
                "etlrun cache rm 4bc028587e6d",
                arguments={**_CACHES, "key KEY": "key of the cache, or a prefix of it"},
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
                arguments={"--port PORT 5050": "port to listen on", **_TRUSTED},
            ),
            "worker": Command(
                "compute batches",
                "etlrun service worker --dispatcher trainer-1:5050 --trusted-network",
                arguments={
                    "--dispatcher HOST:PORT !": "address of the dispatcher",
                    "--host NAME localhost": "name under which runs reach this machine",
                    "--port PORT": "port to listen on; default: any that is free",
                    **_TRUSTED,
                },
            ),
        },
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
        {
            "topic [TOPIC ...]": "such as plan, cache.disk, load.prefetch or resume; default: what topics there are",
        },
        "parsers.help_on",
    ),
}
"""The commands, by their names."""
REVIEWING = frozenset({"plan", "check", "diff", "verify"})
"""Commands that open no store that a variable of the environment names."""


def collect_again() -> None:
    """Turn garbage collections on again, which need not look at modules."""
    gc.freeze()
    gc.enable()
