"""`etlrun doctor` and `etlrun stats`: a dataset, a device, figures of the training split, and a report for an issue."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
import shlex
import signal
import subprocess
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
from etlrun.record.summary import FAILED, SUMMARY, Summary, read_summary
from etlrun.report.doc import Code, Doc, Lines
from etlrun.report.render import RENDER, blocks, pieces
from etlrun.stages import STAGES
from etlrun.stages.rows import Rows
from etlrun.system import machine
from etlrun.system.errors import ConfigError, EtlrunError, Fault, describe, headline, one_line, refuse
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.hidden import hidden, in_review
from etlrun.system.loading import version_of
from etlrun.system.terminal import progress, say_note

OUTPUTS = Path("outputs")
"""Folder in which runs write their folders by default."""
_PACKAGES = (
    "etlrun", "tensorflow", "keras", "jax", "numpy", "tensorflow-datasets", "hydra-core", "omegaconf", "pyarrow",
    "simplejpeg", "opencv-python-headless", "pillow", "tensorflow-text", "nvidia-cudnn-cu12", "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)  # fmt: skip
_DEVICE_S = 180.0
"""Seconds that the device has to answer."""
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


def report(request: Request, run: Path | None) -> str:
    """Return the report for the config of `request`, and on the last run in `run` or, by default, in `outputs`."""
    words = [*request.overrides, *request.files]
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    say_note("the device is looked for, which takes some seconds")
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is none of the report
        folder = last_run(run or OUTPUTS)
        texts = {
            "Versions": _told(lambda: _lines([("Python", python), *_installed(_PACKAGES)])),
            "Machine": _told(_machine),
            "Device": _told(lambda: _device(words)),
            "Config": f"{' '.join(words)}\n\n{_told(lambda: _plan(request))}" if words else "no overrides were given",
            "Last run": f"none in {run or OUTPUTS}" if folder is None else _told(lambda: _run(folder)),
        }
        if folder is not None:
            texts |= _left(folder, with_plan=not words)
    parts = [Code(_cut(text.rstrip() or "nothing"), title=title, language="text") for title, text in texts.items()]
    return _public("\n\n".join([f"<!-- {_HEAD} -->", *blocks(parts, 3)]) + "\n")


def _public(text: str) -> str:
    """Return a text with home folders as `~`, and URLs without user, password and query."""
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - Path's raises where there is none
    homes = {home, os.path.realpath(home)} if home.startswith("/") else set()
    named = "|".join([*map(re.escape, homes), _HOME])
    return re.sub(rf"(?<![\w.~/-])(?:{named})(?![\w-]|\.\w)", "~", _URL.sub(r"\1\2", hidden(text)))


def last_run(folder: Path) -> Path | None:
    """Return the folder of the run in `folder` or below it whose summary was written last; None without one."""
    found: list[tuple[float, Path]] = []
    for parent, names, files in os.walk(folder):  # which passes over what it can't read, or is gone by now
        names[:] = [name for name in names if not name.startswith(".")]
        if SUMMARY in files:
            with contextlib.suppress(OSError):
                found.append(((Path(parent) / SUMMARY).stat().st_mtime, Path(parent)))
    return max(found)[1] if found else None


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
    limit, cores = machine.memory_limit_bytes(), machine.cpu_limit()
    memory, none = machine.rounded(machine.memory_bytes()), "no limit of a control group"
    gpus = ", ".join(
        f"{gpu.name} (compute capability {'.'.join(map(str, gpu.capability))})" for gpu in machine.driver_gpus()
    )
    return _lines(
        [
            ("system", platform.platform()),
            ("processor", machine.processor()),
            ("cores", f"{machine.cores()} of {os.cpu_count()}, {f'limit {cores:g}' if cores else none}"),
            ("memory", f"{memory}, {f'limit {machine.rounded(limit)}' if limit else none}"),
            ("disk", f"{machine.rounded(machine.free_disk_bytes(Path.cwd()))} free"),
            ("driver", machine.driver_version() or "none"),
            ("gpus", f"{gpus}; visible: {len(machine.visible_gpus())}" if gpus else "none"),
        ]
    )


def _device(words: list[str]) -> str:
    """Return what `doctor --device` prints, in a process that may crash; without overrides if these are wrong."""
    code = f"{Path(__file__).parents[2]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    command = [sys.executable, "-P", "-m", "etlrun", "doctor", "--device", *words]
    environment = {**os.environ, "PYTHONPATH": code}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            timeout=_DEVICE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        status, out, err = 1, "", f"no answer within {_DEVICE_S:g} s"
    else:
        status, out, err = done.returncode, done.stdout, done.stderr
    if not status or (status == ConfigError.status and words):
        return out if not status else _device([])
    ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    return "\n".join([*out.splitlines(), f"etlrun doctor --device ended with {ended}:", *err.splitlines()[-25:]])


def _plan(request: Request) -> str:
    from etlrun.graph import figures

    with in_review():  # which opens no store that a variable names
        return figures.text_of(figures.with_figures(grid.resolve(request.resuming(), STAGES).plan))


def _run(folder: Path) -> str:
    from etlrun.record.report import lines

    try:
        summary = Summary.model_validate_json((folder / SUMMARY).read_bytes())
    except ValueError as error:
        return f"folder  {folder}\nsummary.json is damaged: {one_line(error)[:300]}"
    return _lines(lines(summary, folder)) + summary.model_dump_json(include=_SHOWN, indent=2)


def _left(folder: Path, *, with_plan: bool) -> dict[str, str]:
    """Return the plan that a run has left, and its traceback if it failed, as parts."""
    from etlrun.run.run import TRACEBACK

    summary = read_summary(folder)
    files = {"Plan of the last run": "plan.txt"} if with_plan else {}
    if summary is None or summary.status == FAILED:
        files["Traceback"] = TRACEBACK
    found = {title: folder / name for title, name in files.items() if (folder / name).exists()}
    return {title: _told(partial(path.read_text, encoding="utf-8", errors="replace")) for title, path in found.items()}


_ALONE = {
    "report": ("Markdown of all, with the device", ("device", "all", "html", "format")),
    "device": ("the device alone", ("html", "all")),
}
"""Options that leave no place for others, with what they print."""


def doctor(known: Namespace) -> Answer:
    """Examine the dataset of a config, its device, or all for an issue; `EtlrunError` if options or data are unfit."""
    given = {**vars(known), "format": known.format != "text"}
    faults = [
        Fault(f"--{other}", f"it, beside --{option}", f"nothing: --{option} prints {prints}", "leave it out")
        for option, (prints, others) in _ALONE.items()
        for other in others
        if given[option] and given[other]
    ]
    if known.run is not None and not known.report:
        faults.append(Fault("--run", str(known.run), "it beside --report", "add --report"))
    refuse(faults)
    if known.report:
        return Answer(report(known.request, known.run))
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if known.device:
        return of_device(plan)
    if known.html is not None:
        refuse_unwritable(known.html.parent, "--html")
    with _prepared(plan), progress() as begin:
        from etlrun.datasets.examine.doctor import diagnosed, of_doctor

        made_by = shlex.join(["etlrun", "doctor", *known.words])
        doc = of_doctor(diagnosed(plan, begin, is_whole=known.all), made_by)
        if known.html is not None:
            with appearing(known.html, "--html") as file:
                file.writelines(pieces(doc))
            page = Lines([("page", f"{known.html}, {machine.rounded(known.html.stat().st_size)}")])
            doc = dataclasses.replace(doc, parts=[*doc.parts, page])
    return Answer(doc)


@contextlib.contextmanager
def _prepared(plan: Plan) -> Iterator[None]:
    """Prepare TensorFlow for a dataset of images, so only after the config has been validated; rows need none."""
    if isinstance(plan.spec.dataset, Rows):
        yield
        return
    from etlrun.run.backend import prepare
    from etlrun.sources.corrupt import pillow_as_header_reader

    with prepare(None), pillow_as_header_reader():
        yield


def of_device(plan: Plan) -> Answer:
    """Say what a run would compute on; `WorldError` if there is no such device, or if it does not suit the backend."""
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(plan.spec.fit) as backend:
        from etlrun.run.backend import built_for

        host, listed, built = backend.host, machine.driver_gpus(), built_for(backend.name)
        told: dict[str, Any] = {
            "device": f"{host.device}, {host.cores} core{'s' * (host.cores > 1)}, {machine.rounded(host.memory_bytes)}",
            "driver": machine.driver_version() or "none",
            "gpus": [f"{gpu.name}, compute capability {'.'.join(map(str, gpu.capability))}" for gpu in listed],
            "backend": f"Keras's {backend.name} backend",
            "versions": {
                name: version for name, version in backend.versions.items() if name in ("tensorflow", "jax", "keras")
            },
            "built_for": None if built is None else str(built),
        }
    if backend.unseen:
        say_note(backend.unseen)
    texts = {**told, "gpus": "", "versions": ", ".join(map(" ".join, told["versions"].items()))}
    lines = [(name.replace("_", " "), text or "") for name, text in texts.items()]
    lines += [("gpus", gpu) for gpu in told["gpus"]]
    return Answer(Doc("Device", [Lines(lines)], json=lambda: told))


def stats(known: Namespace) -> Answer:
    """Print figures of the training split, of each column or of all pixels; `EtlrunError` if there are none."""
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if isinstance(plan.spec.dataset, Rows):
        from etlrun.datasets.examine.rows import of_stats

        with progress() as begin:
            return Answer(of_stats(plan, begin))
    with _prepared(plan):
        from etlrun.datasets.examine.images import measured

        means, deviations, count = measured(plan)
    text = f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:\n"
    for name, values in (("mean", means), ("std", deviations)):
        text += f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]\n"
    return Answer(text)
