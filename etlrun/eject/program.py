"""Text of a whole program: imports, constants, and functions in the order in which they are called."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etlrun.eject.parts import parts
from etlrun.eject.pipeline import pipeline
from etlrun.eject.printed.loops import num_classes
from etlrun.eject.text import COLUMNS, constant, constants, literal, missing, sources
from etlrun.planning.plan import Plan, conflict, reads_features, require_one_host
from etlrun.planning.spec import RunSpec
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import NUMBER, NUMBERS_APART
from etlrun.stages.load import Service, sizes_of
from etlrun.stages.made import Text, user_path
from etlrun.stages.rows import Rows
from etlrun.system import VERSION
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.loading import version_of

PACKAGES = ("tensorflow", "keras", "tensorflow-datasets")

_STANDARD = (
    "atexit", "functools", "glob", "gzip", "hashlib", "itertools", "math", "os", "pathlib", "pkgutil", "re", "shutil",
    "struct", "tempfile", "time", "types", "urllib.parse", "warnings",
)  # fmt: skip
_IMPORTS = {
    **{name: f"import {name}" for name in _STANDARD},
    "Callable Iterator Mapping Sequence": "from collections.abc import {}",
    "Path": "from pathlib import Path",
    "Any": "from typing import Any",
    "": "",
    **{name: f"import {name}" for name in ("cv2", "google_crc32c", "keras")},
    "np": "import numpy as np",
    "pa": "import pyarrow as pa",
    "pc": "import pyarrow.compute as pc",
    **{name: f"import {name}" for name in ("pyarrow.csv", "pyarrow.dataset", "pyarrow.json", "pyarrow.parquet")},
    "simplejpeg": "import simplejpeg",
    "tf": "import tensorflow as tf",
    "tfds": "import tensorflow_datasets as tfds",
}
_AS_WRITTEN = """\
AS_WRITTEN = tf.data.Options()  # tf.data would make serial stages parallel and add others
AS_WRITTEN.experimental_optimization.apply_default_optimizations = False"""


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that a program needs."""
    return {package: version_of(package) for package in PACKAGES}


def ejected(plan: Plan, arguments: Sequence[str], packages: Mapping[str, str]) -> str:
    """Return the program that does what a run of `plan` does; `arguments` are those of the command that is shown.

    Raises:
        ConfigError: Its input comes from a service, or from a source without functions for programs, or the run trains
            on several devices.
    """
    if faults := [*_refused(plan.spec)]:
        raise ConfigError(faults)
    require_one_host(plan.spec, "a program trains on one host")
    entry = "train" if plan.spec.fit is not None else "drain"
    functions = dict.fromkeys(_functions(plan))  # without duplicates
    text = "\n\n\n".join([*functions, f'if __name__ == "__main__":\n    {entry}()'])
    constants = [
        constant(name, literal(value)) for name, value in _constants(plan).items() if re.search(rf"\b{name}\b", text)
    ]
    top = "\n".join([*constants, "", _AS_WRITTEN])
    return "\n\n".join([_header(plan, arguments, packages), _imports(f"{top}\n{text}"), f"{top}\n\n\n{text}\n"])


def _refused(spec: RunSpec) -> Iterator[Fault]:
    """Yield why a run has no program."""
    dataset, fit = spec.dataset, spec.fit
    if not dataset.printed:
        found, remedy = "whose class has no `printed`", "write its program by hand, from that of another dataset"
        yield Fault(Dataset.key("name"), f"{dataset.name}, {found}", "a dataset that programs can read", remedy)
    elif lacks := missing(dataset):
        found, remedy = f"{dataset.printed} without {', '.join(lacks)}", f"add {'them' if lacks[1:] else 'it'} to"
        expected = "all functions that programs need"
        yield Fault(Dataset.key("name"), found, expected, f"{remedy} {dataset.printed}")
    if isinstance(dataset, Rows) and not dataset.found.rows:
        others = f"run the command where they are, or {dataset.restore.partition(', or ')[2]}".removesuffix(", or ")
        expected = "rows, since a program has the fitted values of their columns"
        yield Fault(dataset.key(dataset.given_by), "no rows on this machine", expected, others)
    if dataset.urls:
        expected = "files on this machine in a standalone program"
        yield Fault(dataset.key(dataset.given_by), "URLs, whose files etlrun fetches", expected, "copy them here")
    if spec.load.service is not None:
        found, expected = "a service, whose servers a program would have to find", "null in a standalone program"
        remedy = "set load=shuffled, which reads the same examples in the same order"
        yield Fault(Service.path, found, expected, remedy, is_rule=True)
    if fit is not None and fit.devices != 1:
        expected = "1, since a program trains on one device, to the same losses within rounding"
        yield conflict(fit, "devices", expected, f"add {fit.key('devices')}=1")
    if fit is not None and fit.mixed_precision == "auto":
        expected, key = "mixed_bfloat16, mixed_float16 or null in a program", fit.key("mixed_precision")
        yield conflict(fit, "mixed_precision", expected, f"add {key}=null, or the one that its runs note")


def _header(plan: Plan, arguments: Sequence[str], packages: Mapping[str, str]) -> str:
    spec, dataset = plan.spec, plan.spec.dataset.title
    learns, promise = spec.fit is not None and spec.model.learns, "It reads the examples of the run, in the same order."
    kind = "alone" if spec.fit is None else "for an emulated accelerator"
    title = f"{spec.model.title} on {dataset}" if learns else f"The input pipeline of {dataset} {kind}"
    if any("deterministic" in remark for remark in plan.remarks):
        promise = "The order of its examples, and so every result, differs from run to run, as in etlrun."
    elif learns:
        reached = "within float tolerance" if reads_features(plan) else "on a CPU, bit for bit"
        mark = " " if reads_features(plan) else ": "
        promise = f"It trains on the examples of the run in the same order, and reaches its losses{mark}{reached}."
    made_for = ", ".join(f"{package} {version}" for package, version in packages.items())
    lines = [
        f"{title}: a run of etlrun {VERSION} as a standalone program.",
        "",
        "Generated by",
        "",
        *_command(arguments),
        "",
        f"from the plan {plan.fingerprint}, for {made_for}.",
        promise,
        "It does not measure, profile, keep checkpoints, resume, or explain broken data: etlrun does.",
    ]
    return "\n".join(['"""' + _escaped(lines[0]), *(_escaped(line) for line in lines[1:]), '"""'])


def _command(arguments: Sequence[str]) -> Sequence[str]:
    """Return the command in one line, or with a line for each argument if it is too long."""
    quoted_for_shell = []
    for argument in arguments:
        is_plain_in_double_quotes = "'" in argument and not set(argument) & set('"$`\\!')
        quoted_for_shell.append(f'"{argument}"' if is_plain_in_double_quotes else shlex.quote(argument))
    command = "    python -m etlrun eject"
    line = " ".join([command, *quoted_for_shell])
    return [line] if len(line) <= COLUMNS else [command, *(f"        {argument}" for argument in quoted_for_shell)]


def _escaped(line: str) -> str:
    """Return the line escaped for a docstring."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    return shown.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _imports(text: str) -> str:
    """Return the imports of the modules that `text` uses."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name | ast.Attribute)]
    used = {ast.unparse(node) for node in nodes}
    lines = []
    for names, line in _IMPORTS.items():
        found = [name for name in names.split() if name in used]
        lines += [line.format(", ".join(found))] if found or not names else []
    return "\n".join(lines)


def _constants(plan: Plan) -> dict[str, Any]:
    """Return all constants that a program may need."""
    spec, plans = plan.spec, [plan, *([plan.unfrozen] if plan.unfrozen else [])]
    called = [planned.stage.call() for one in plans for stages in one.pipelines.values() for planned in stages]
    return {
        "SEED": spec.trainer.seed,
        "EPOCHS": spec.trainer.all_epochs,
        "CORES": Text("os.cpu_count() or 1"),
        **{name: value for call in called if call for name, value in call.constants.items()},
        "TRAIN_SPLIT": spec.dataset.split,
        "VALIDATION_SPLIT": spec.dataset.eval_split or "",
        **constants(spec.dataset),
        "BOUNDARIES": [*(spec.load.boundaries or ())],
        "BATCH_SIZES": [*sizes_of(spec.load)],
        "NUMBER": NUMBER,
        "NUMBERS_APART": Text(f"{NUMBERS_APART:_}"),
        "CACHE_DIR": user_path(spec.cache.dir or ""),
    }


def _functions(plan: Plan) -> Iterator[str]:
    spec = plan.spec
    flow = spec.dataset.examples
    target = flow.features[flow.target]
    if target.is_class and not target.classes and len(flow.targets) == 1:
        yield from sources(spec.dataset, num_classes)
    for name, stages in plan.pipelines.items():
        if stages and (name == "train" or spec.fit is not None):
            yield from pipeline(plan, name)
            yield from pipeline(plan.unfrozen, name, plan) if plan.unfrozen is not None else ()
    yield from parts(plan)
