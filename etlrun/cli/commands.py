"""Commands of etlrun and their arguments; none of their modules is imported before it is called.

A command is a function of its arguments, and returns an `Answer`: what it says, drawn as `--format` asks, and its end.
"""

from __future__ import annotations

import gc
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from etlrun.system.errors import ConfigError, EtlrunError, Fault, did_you_mean

if TYPE_CHECKING:
    from etlrun.report.doc import Doc


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


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        takes: Its arguments, in short; alternatives are separated by `|`.
        summary: What it does, in a few words.
        group: Heading under which `etlrun --help` lists it.
        example: Command line that its help ends in; RUN is the folder of a run.
        function: Function that it calls, behind its module.
        formats: Values of its `--format`, the first one by default; empty for a command without it.
    """

    takes: str
    summary: str
    group: str
    example: str
    function: str
    formats: tuple[str, ...] = ()

    @property
    def selects_config(self) -> bool:
        """Whether it takes overrides, and the options that name config files."""
        return self.takes.endswith(CONFIG) and not self.takes.startswith("RUN")


CONFIG = "[OVERRIDE ...]"
GROUPS = TRAIN, CONFIGS, DATA, MODELS, REVIEWS, UPKEEP = (
    "train and compare",
    "look at a config",
    "make and examine data",
    "use a trained model",
    "review changes",
    "set up and maintain",
)
"""Headings of `etlrun --help`, in its order."""
_TEXT = ("text", "json")
COMMANDS = {
    "plan": Command(
        CONFIG,
        "print the plan of a run; with -m the jobs of a sweep",
        CONFIGS,
        "etlrun plan experiment=parallel cache=disk",
        "configs.plan",
        ("text", "json", "mermaid"),
    ),
    "show": Command(
        CONFIG,
        "show examples after each step of a plan, as a page",
        CONFIGS,
        "etlrun show transform=augmented_224 cache=none --examples 4",
        "configs.show",
    ),
    "eject": Command(
        CONFIG,
        "print an equivalent Python program without etlrun",
        CONFIGS,
        "etlrun eject experiment=parallel > train.py",
        "configs.eject",
    ),
    "tune": Command(
        CONFIG,
        "find the fastest config, and prove that it is",
        TRAIN,
        "etlrun tune experiment=naive --write conf/experiment/fast.yaml",
        "tune.tune",
    ),
    "report": Command(
        "FOLDER", "print the report of a run, or of a folder of runs", TRAIN, "etlrun report RUN", "runs.report"
    ),
    "runs": Command("ls", "list runs and sweeps", TRAIN, "etlrun runs ls outputs", "runs.listing"),
    "freeze": Command(
        "RUN",
        "print the values that AUTOTUNE chose, as YAML",
        TRAIN,
        "etlrun freeze RUN > conf/experiment/frozen.yaml",
        "runs.freeze",
    ),
    "doctor": Command(
        CONFIG,
        "examine a dataset or the device; --report for issues",
        DATA,
        "etlrun doctor experiment=own dataset.dir=photos --html doctor.html",
        "doctor.doctor",
        _TEXT,
    ),
    "stats": Command(
        CONFIG,
        "print figures of columns, or of images for `normalize`",
        DATA,
        "etlrun stats dataset=sample",
        "doctor.stats",
    ),
    "prepare": Command(
        "SOURCE --name NAME",
        "write your images as a TFDS dataset",
        DATA,
        "etlrun prepare photos --name pets --split train=80,validation=20",
        "prepare.prepare",
    ),
    "vocabulary": Command(
        f"--size N {CONFIG}",
        "train a WordPiece vocabulary on the texts of a table, or on files",
        DATA,
        "etlrun vocabulary --size 8000 --out vocabulary.txt texts.txt",
        "prepare.vocabulary",
    ),
    "check": Command(
        "",
        "check all config files",
        REVIEWS,
        "etlrun check --config-dir conf",
        "reviews.check",
        ("text", "json", "github", "junit", "sarif"),
    ),
    "diff": Command(
        "OLD [NEW]",
        "report the effect of a change of overrides, files or runs",
        REVIEWS,
        "etlrun diff experiment=naive experiment=parallel",
        "reviews.diff",
        ("text", "markdown", "json"),
    ),
    "verify": Command(
        "OLD [NEW]",
        "confirm a diff by reading some examples of both sides",
        REVIEWS,
        "etlrun verify experiment=naive experiment=parallel --examples 100",
        "reviews.verify",
        ("text", "markdown", "json"),
    ),
    "evaluate": Command(
        "RUN [OVERRIDE ...]",
        "evaluate the model of a run on a split",
        MODELS,
        "etlrun evaluate RUN --format json",
        "models.evaluate",
        _TEXT,
    ),
    "predict": Command(
        "RUN PATH ...",
        "predict images or rows with the model of a run",
        MODELS,
        "etlrun predict RUN photos --output predictions.csv",
        "models.predict",
    ),
    "export": Command(
        "RUN --format FORMAT",
        "export the model of a run to SavedModel, ONNX, LiteRT, torch",
        MODELS,
        "etlrun export RUN --format onnx",
        "models.export",
    ),
    "init": Command(
        "DIR",
        "begin a project: configs, a step, a model, tests, reviews",
        UPKEEP,
        "etlrun init my_project",
        "upkeep.init",
    ),
    "cache": Command(
        "ls|why|gc|rm",
        "list, explain and remove the caches on disk",
        UPKEEP,
        "etlrun cache why cache=disk load.batch_size=64",
        "cache.cache",
    ),
    "service": Command(
        "dispatcher|worker",
        "serve the input pipeline from this machine",
        UPKEEP,
        "etlrun service dispatcher --trusted-network",
        "upkeep.service",
    ),
    "plugins": Command(
        "",
        "list what installed packages add: models, losses, steps",
        UPKEEP,
        "etlrun plugins --format json",
        "upkeep.plugins",
        _TEXT,
    ),
    "schema": Command(
        "",
        "print the JSON schema of config files, for editors",
        UPKEEP,
        "etlrun schema > schema.json",
        "configs.schema",
    ),
    "help": Command(
        "[TOPIC]",
        "describe a command, an option, a key or a concept",
        UPKEEP,
        "etlrun help load.prefetch",
        "help.help_on",
    ),
}
REVIEWING = frozenset({"plan", "check", "diff", "verify"})
"""Commands that open no store that a variable of the environment names."""
_INSTEAD = {
    **dict.fromkeys(("train", "run", "fit", "start"), "leave it out: etlrun trains without a command"),
    **dict.fromkeys(("sweep", "multirun"), "write etlrun -m KEY=A,B"),
    "resume": "write etlrun trainer.resume=RUN",
    "version": "write etlrun --version",
    "list": "write etlrun runs ls",
}
"""What is written for words that other programs have as commands."""


def collect_again() -> None:
    """Turn garbage collections on again, which need not look at modules."""
    gc.freeze()
    gc.enable()


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Refuse a first word that is neither a command nor an override, unless it is the name of a key.

    Raises:
        ConfigError: It is an unknown command.
    """
    word = arguments[0] if arguments else ""
    if not word or word.startswith(("-", "~")) or "=" in word or (word not in _INSTEAD and _is_key(word)):
        return
    remedy = _INSTEAD.get(word) or _of_path(Path(word))
    remedy = remedy or did_you_mean(word, COMMANDS, "etlrun {}", "etlrun --help lists the commands", cutoff=0.65)
    expected = "a command, or overrides KEY=VALUE"
    raise ConfigError([Fault(where=word, found="an unknown command", expected=expected, remedy=remedy)])


def _is_key(word: str) -> bool:
    from etlrun.planning.hints import is_key
    from etlrun.stages import STAGES

    return is_key(word, STAGES)


def _of_path(path: Path) -> str:
    """Return the remedy for a path in the place of a command; empty if there is none."""
    if path.suffix in (".yaml", ".yml"):
        folder, name = shlex.quote(str(path.parent)), shlex.quote(path.stem)
        return f"for a whole config write etlrun --config-dir {folder} --config-name {name}"
    if any(next(path.glob(f"{above}summary.json"), None) for above in ("", "*/", "*/*/")):
        return f"write etlrun report {shlex.quote(str(path))}"
    if path.is_dir():
        return f"for a folder of images write etlrun experiment=own dataset.dir={shlex.quote(str(path))}"
    return ""
