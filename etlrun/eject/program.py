"""A whole program: its functions in the order in which they are called, and what these need above them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata

from etlrun import __version__
from etlrun.eject.parts import PART_TEXTS, model
from etlrun.eject.pipeline import pipeline
from etlrun.eject.text import COLUMNS, constant, literal, path, quoted
from etlrun.plan.plan import Plan, reads_features

PACKAGES = ("tensorflow", "keras", "tensorflow-datasets")

_IMPORTS = {
    "atexit": "import atexit",
    "functools": "import functools",
    "itertools": "import itertools",
    "math": "import math",
    "os": "import os",
    "pathlib": "import pathlib",
    "shutil": "import shutil",
    "tempfile": "import tempfile",
    "time": "import time",
    "warnings": "import warnings",
    "": "",
    "keras": "import keras",
    "tf": "import tensorflow as tf",
    "tfds": "import tensorflow_datasets as tfds",
}
_AS_WRITTEN = """\
AS_WRITTEN = tf.data.Options()  # tf.data would make serial stages parallel and add others
AS_WRITTEN.experimental_optimization.apply_default_optimizations = False"""


def versions() -> dict[str, str]:
    """Of the packages that a program needs, as they are installed here."""
    return {package: metadata.version(package) for package in PACKAGES}


def ejected(plan: Plan, words: Sequence[str], packages: Mapping[str, str]) -> str:
    """The program that does what a run of `plan` does; `words` is the command line that made the plan."""
    entry = "train" if plan.spec.fit is not None else "drain"
    functions = dict.fromkeys(_functions(plan))  # each one once
    text = "\n\n\n".join([*functions, f'if __name__ == "__main__":\n    {entry}()'])
    constants = [constant(name, value) for name, value in _constants(plan).items() if re.search(rf"\b{name}\b", text)]
    top = "\n".join([*constants, "", _AS_WRITTEN])
    return "\n\n".join([_header(plan, words, packages), _imports(f"{top}\n{text}"), f"{top}\n\n\n{text}\n"])


def _header(plan: Plan, words: Sequence[str], packages: Mapping[str, str]) -> str:
    made_for = ", ".join(f"{package} {version}" for package, version in packages.items())
    lines = [
        f"{_title(plan)}: a run of etlrun {__version__} as a program of its own.",
        "",
        "It was written by",
        "",
        *_command([_quoted_for_shell(word) for word in words]),
        "",
        f"from the plan {plan.fingerprint}, for {made_for}.",
        _promise(plan),
        "It does not measure, profile, keep checkpoints, resume, or explain broken data: etlrun does.",
    ]
    return "\n".join(['"""' + _escaped(lines[0]), *(_escaped(line) for line in lines[1:]), '"""'])


def _command(words: Sequence[str]) -> Sequence[str]:
    """In one line, or with a line for each word where that gets too long."""
    command = "    python -m etlrun eject"
    line = " ".join([command, *words])
    return [line] if len(line) <= COLUMNS else [command, *(f"        {word}" for word in words)]


def _quoted_for_shell(word: str) -> str:
    is_plain_in_double_quotes = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if is_plain_in_double_quotes else shlex.quote(word)


def _escaped(line: str) -> str:
    """As a docstring can hold it."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    return shown.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _title(plan: Plan) -> str:
    dataset = plan.spec.dataset.name
    if plan.spec.fit is None:
        return f"The input pipeline of {dataset} alone"
    if not plan.spec.model.learns:
        return f"The input pipeline of {dataset} for an emulated accelerator"
    return f"{type(plan.spec.model).__name__} on {dataset}"


def _promise(plan: Plan) -> str:
    is_loose = any("deterministic" in remark for remark in plan.remarks)
    if is_loose:
        return "The order of its examples, and so every number, differs from run to run, as it does in etlrun."
    if plan.spec.fit is None or not plan.spec.model.learns:
        return "It reads the examples of the run, in the same order."
    if reads_features(plan):
        return "It trains on the examples of the run in the same order, and comes to its losses within float tolerance."
    return "It trains on the examples of the run in the same order, and comes to its losses: on a CPU, to the bit."


def _imports(text: str) -> str:
    """Of the modules that `text` names."""
    used = (line for name, line in _IMPORTS.items() if not name or re.search(rf"(?<![\w.]){name}\.", text))
    return "\n".join(used)


def _constants(plan: Plan) -> dict[str, str]:
    """All that there may be."""
    spec = plan.spec
    return {
        "SEED": str(spec.trainer.seed),
        "EPOCHS": str(spec.trainer.epochs),
        "CORES": "os.cpu_count() or 1",
        **_of_calls(plan),
        "TRAIN_SPLIT": quoted(spec.dataset.split),
        "VALIDATION_SPLIT": quoted(spec.dataset.eval_split or ""),
        "DATA_DIR": path(spec.dataset.data_dir or ""),
        "CACHE_DIR": path(spec.cache.dir or ""),
    }


def _of_calls(plan: Plan) -> dict[str, str]:
    """Return the constants that stages name in their calls."""
    called = (planned.stage.call() for stages in plan.pipelines.values() for planned in stages)
    return {name: literal(value) for call in called if call for name, value in call.constants.items()}


def _functions(plan: Plan) -> Iterator[str]:
    spec = plan.spec
    yield from PART_TEXTS[type(spec.dataset)](spec.dataset, plan)
    for name, stages in plan.pipelines.items():
        if stages and (name == "train" or spec.fit is not None):
            yield from pipeline(plan, name)
    parts = (spec.trainer, spec.profile) if spec.fit is not None else (spec.trainer,)
    yield from model(spec.model, plan) if spec.fit is not None else ()
    for part in parts:
        yield from PART_TEXTS[type(part)](part, plan)
