"""`etlrun doctor` and `etlrun data stats`: a dataset, figures of pixels, and a report for an issue."""

import contextlib
import os
import platform
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from etlrun.cli.commands import Answer
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.planning.plan import Plan
from etlrun.record.summary import FAILED, SUMMARY, read_summary, written_summary
from etlrun.report.doc import Code, Doc, Lines
from etlrun.report.render import RENDER, blocks
from etlrun.stages import STAGES
from etlrun.stages.dataset import Folder
from etlrun.stages.rows import Rows
from etlrun.system import machine
from etlrun.system.errors import ConfigError, EtlrunError, Fault, describe, headline, one_line
from etlrun.system.hidden import hidden, in_review
from etlrun.system.loading import leave_gpus, version_of
from etlrun.system.terminal import progress

OUTPUTS = Path("outputs")
"""Folder in which runs write their folders by default."""
_PACKAGES = (
    "etlrun", "tensorflow", "keras", "jax", "numpy", "tensorflow-datasets", "hydra-core", "omegaconf", "pyarrow",
    "simplejpeg", "opencv-python-headless", "pillow", "tensorflow-text", "nvidia-cudnn-cu12", "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)  # fmt: skip
_MOST_CHARACTERS = 12_000
"""Longest part: an issue has room for five such."""
_HEAD = "etlrun doctor --report: with home folders as ~, and URLs without user, password and query."
_SHOWN: Any = {
    **dict.fromkeys(("created_s", "overrides", "plan_fingerprint", "versions"), True),
    "host": {"device", "precision", "cores", "memory_bytes", "driver_gpus"},
}
"""What is shown of the summary of the last run, beside what its report says."""
_HOME = r"/(?:home|Users)/[^/\s'\"`:,;]+"
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/'\"<>`?#]*@)?([^\s'\"<>`?#]*)(?:[?#][^\s'\"<>`]*)?")


def report(request: Request) -> str:
    """Return the report for the config of `request`, and on the last run in `outputs`."""
    words = [*request.overrides, *request.files]
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is none of the report
        texts = {
            "Versions": _told(lambda: _lines([("Python", python), *_installed(_PACKAGES)])),
            "Machine": _told(_machine),
            "Config": f"{' '.join(words)}\n\n{_told(lambda: _plan(request))}" if words else "no overrides were given",
            **dict(_last_run()),
        }
    parts = [Code(_cut(text.rstrip() or "nothing"), title=title, language="text") for title, text in texts.items()]
    return _public("\n\n".join([f"<!-- {_HEAD} -->", *blocks(parts, 3)]) + "\n")


def _public(text: str) -> str:
    """Return a text with home folders as `~`, and URLs without user, password and query."""
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - Path's raises where there is none
    homes = {home, os.path.realpath(home)} if home.startswith("/") else set()
    named = "|".join([*map(re.escape, homes), _HOME])
    return re.sub(rf"(?<![\w.~/-])(?:{named})(?![\w-]|\.\w)", "~", _URL.sub(r"\1\2", hidden(text)))


def _cut(text: str) -> str:
    half, more = _MOST_CHARACTERS // 2, len(text) - _MOST_CHARACTERS
    return f"{text[:half]}\n… {more:,} characters are left out …\n{text[-half:]}" if more > 0 else text


def _told(make: Callable[[], str]) -> str:
    """Return the text of a part, or what keeps it from being made: a report is for what is broken."""
    try:
        return make()
    except EtlrunError as error:
        return describe(error)
    except Exception as error:  # noqa: BLE001 - as above
        return f"unknown: {type(error).__name__}: {headline(error)}"


def _lines(values: Iterable[tuple[str, str]]) -> str:
    return RENDER["text"](Doc("", [Lines([*values])]))


def _installed(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, version_of(package)


def _machine() -> str:
    gpus = ", ".join(
        f"{gpu.name} (compute capability {'.'.join(map(str, gpu.capability))})" for gpu in machine.driver_gpus()
    )
    return _lines(
        [
            ("system", platform.platform()),
            ("processor", machine.processor()),
            ("cores", f"{machine.cores()} of {os.cpu_count()}"),
            (
                "memory",
                f"{machine.rounded(machine.memory_bytes())}, {machine.rounded(machine.free_memory_bytes())} free",
            ),
            ("disk", f"{machine.rounded(machine.free_disk_bytes(Path.cwd()))} free"),
            ("driver", machine.driver_version() or "none"),
            ("gpus", f"{gpus}; visible: {len(machine.gpu_ids())}" if gpus else "none"),
        ]
    )


def _plan(request: Request) -> str:
    from etlrun.graph import figures

    with in_review():  # which opens no store that a variable names
        return figures.text_of(figures.with_figures(grid.resolve(request.resuming(), STAGES).plan))


def _run(folder: Path) -> str:
    from etlrun.record.report import lines

    try:
        summary = written_summary(folder)
    except ValueError as error:
        return f"folder  {folder}\nsummary.json is damaged: {one_line(error)[:300]}"
    return _lines(lines(summary, folder)) + summary.model_dump_json(include=_SHOWN, indent=2)


def _last_run() -> Iterator[tuple[str, str]]:
    """Yield what the run whose summary was written last says, its plan, its traceback, and what can't be read."""
    from etlrun.run.run import TRACEBACK

    found, unreadable = list[tuple[float, Path]](), list[OSError]()
    for of, _, files in os.walk(OUTPUTS, onerror=unreadable.append if OUTPUTS.exists() else None):
        try:
            if SUMMARY in files:
                found.append((Path(of, SUMMARY).stat().st_mtime, Path(of)))
        except OSError as error:
            unreadable.append(error)
    if unreadable:
        yield "Runs that can't be read", "\n".join(f"{error.filename}: {error.strerror}" for error in unreadable)
    if not found:
        yield "Last run", f"none in {OUTPUTS}"
        return
    folder = max(found)[1]
    yield "Last run", _told(lambda: _run(folder))
    summary, paths = read_summary(folder), {"Plan of the last run": folder / "plan.txt"}
    if summary is None or summary.status == FAILED:
        paths["Traceback"] = folder / TRACEBACK
    for title, path in paths.items():
        if path.exists():
            yield title, _told(partial(path.read_text, encoding="utf-8", errors="replace"))


def doctor(known: Namespace) -> Answer:
    """Examine the dataset of a config, or print all for an issue; `EtlrunError` if options or data are unfit."""
    if known.report:
        if known.format != "text":
            remedy = "leave --format and --json out"
            raise ConfigError([Fault("--report", "another format", "none, since it prints Markdown", remedy)])
        return Answer(report(known.request))
    from etlrun.graph import figures

    plan = figures.with_figures(grid.resolve(known.request.resuming(), STAGES).plan)
    with _prepared(plan), progress() as begin:
        from etlrun.datasets.examine.doctor import diagnosed, of_doctor

        return Answer(of_doctor(diagnosed(plan, begin)))


@contextlib.contextmanager
def _prepared(plan: Plan) -> Iterator[None]:
    """Prepare TensorFlow for records; rows need none, and of image files only those that Pillow can't decode."""
    if isinstance(plan.spec.dataset, Rows | Folder):
        leave_gpus()
        yield
        return
    from etlrun.run.backend import prepare
    from etlrun.sources.corrupt import pillow_as_header_reader

    with prepare(None), pillow_as_header_reader():
        yield


def stats(known: Namespace) -> Answer:
    """Print figures of all pixels of the training split; `EtlrunError` if there are none."""
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if isinstance(plan.spec.dataset, Rows):
        found, remedy = "rows", "etlrun doctor prints the figures of each column"
        raise ConfigError([Fault("dataset", found, "images, whose pixels are measured", remedy)])
    with _prepared(plan):
        from etlrun.datasets.examine.show import measured

        means, deviations, count = measured(plan)
    text = f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:\n"
    for name, values in (("mean", means), ("std", deviations)):
        text += f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]\n"
    return Answer(text)
