"""`etlrun doctor --report`: what those who read an issue need to know, as Markdown."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.summary import FAILED, SUMMARY, Summary, read_summary
from etlrun.stages import STAGES
from etlrun.system import machine
from etlrun.system.errors import ConfigError, EtlrunError, describe, headline, one_line
from etlrun.system.hidden import hidden, in_review
from etlrun.system.loading import version_of
from etlrun.system.terminal import say_note

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
_NO_CONFIG = "no overrides were given"
_HEAD = "etlrun doctor --report: with home folders as ~, and URLs without user, password and query."
_HOME = r"/(?:home|Users)/[^/\s'\"`:,;]+"
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/'\"<>`?#]*@)?([^\s'\"<>`?#]*)(?:[?#][^\s'\"<>`]*)?")


def report(request: Request, run: Path | None) -> str:
    """Return the report for the config of `request`, and on the last run in `run` or, by default, in `outputs`."""
    words = [*request.overrides, *request.files]
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    say_note("the device is tried, which takes some seconds")
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is none of the report
        folder = last_run(run or OUTPUTS)
        parts = {
            "Versions": _told(lambda: _lines({"Python": python, **_installed(_PACKAGES)})),
            "Machine": _told(_machine),
            "Device": _told(lambda: _device(words)),
            "Config": "\n\n".join([" ".join(words), _told(lambda: _plan(request))]) if words else _NO_CONFIG,
            "Last run": f"none in {run or OUTPUTS}" if folder is None else _told(lambda: _run(folder)),
        }
        if folder is not None:
            parts |= _left(folder, with_plan=not words)
    return _public("\n".join([f"<!-- {_HEAD} -->", *(_part(title, part) for title, part in parts.items())]))


def _public(text: str) -> str:
    """Return a text with home folders as `~`, and URLs without user, password and query."""
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - Path's raises where there is none
    homes = {home, os.path.realpath(home)} if home.startswith("/") else set()
    named = "|".join([*map(re.escape, homes), _HOME])
    return re.sub(rf"(?<![\w.~/-])(?:{named})(?![\w-]|\.\w)", "~", _URL.sub(r"\1\2", hidden(text)))


def last_run(folder: Path) -> Path | None:
    """Return the folder of the run in `folder` or below it whose summary was written last; None without one."""
    found: list[tuple[float, Path]] = []
    for parent, names, files in os.walk(folder):
        names[:] = [name for name in names if not name.startswith(".")]
        if SUMMARY in files:
            with contextlib.suppress(OSError):
                found.append(((Path(parent) / SUMMARY).stat().st_mtime, Path(parent)))
    return max(found)[1] if found else None


def _part(title: str, text: str) -> str:
    """Return a part with its text as it is, whatever marks it has."""
    text = text.rstrip() or "nothing"
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out …\n{text[-half:]}"
    fence = "`" * max(3, *(len(marks) + 1 for marks in re.findall("`*", text)))
    return f"### {title}\n\n{fence}text\n{text}\n{fence}\n"


def _told(make: Callable[[], str]) -> str:
    """Return the text of a part, or what keeps it from being made: a report is for what is broken."""
    try:
        return make()
    except EtlrunError as error:
        return describe(error)
    except Exception as error:  # noqa: BLE001 - as above
        return f"unknown: {type(error).__name__}: {headline(error)}"


def _lines(values: Mapping[str, Any]) -> str:
    known = {name: value for name, value in values.items() if value}
    width = max(map(len, known), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in known.items())


def _installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = version_of(package)
    return found


def _machine() -> str:
    limit, cores = machine.memory_limit_bytes(), machine.cpu_limit()
    memory, none = machine.rounded(machine.memory_bytes()), "no limit of a control group"
    gpus = ", ".join(
        f"{gpu.name} (compute capability {'.'.join(map(str, gpu.capability))})" for gpu in machine.driver_gpus()
    )
    return _lines(
        {
            "system": platform.platform(),
            "processor": machine.processor(),
            "cores": f"{machine.cores()} of {os.cpu_count()}, {f'limit {cores:g}' if cores else none}",
            "memory": f"{memory}, {f'limit {machine.rounded(limit)}' if limit else none}",
            "disk": f"{machine.rounded(machine.free_disk_bytes(Path.cwd()))} free",
            "driver": machine.driver_version() or "none",
            "gpus": f"{gpus}; visible: {len(machine.visible_gpus())}" if gpus else "none",
        }
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
    from etlrun.results.results import entry

    try:
        summary = Summary.model_validate_json((folder / SUMMARY).read_bytes())
    except ValueError as error:
        return f"folder  {folder}\nsummary.json is damaged: {one_line(error)[:300]}"
    now = {"python": platform.python_version(), **_installed(summary.versions)}
    others = [f"{name} {version}" for name, version in summary.versions.items() if now.get(name) != version]
    host, at = summary.host, summary.created_s
    values = {
        "state": entry(folder, "run").status,
        "started": None if at is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at)),
        "overrides": " ".join(summary.overrides) or "none",
        "fingerprint": summary.plan_fingerprint,
        "device": host.cores
        and f"{host.device}, {host.precision}, {host.cores} cores, {machine.rounded(host.memory_bytes)}",
        "gpus": ", ".join(host.driver_gpus),
        "versions": f"others than now: {', '.join(others)}" if others else summary.versions and "the same as now",
    }
    told = [f"{label:<9} {text}" for label, text in lines(summary, folder) if text]
    return "\n".join([_lines(values), *told])


def _left(folder: Path, *, with_plan: bool) -> dict[str, str]:
    """Return the plan that a run has left, and its traceback if it failed, as parts."""
    from etlrun.run.run import TRACEBACK

    summary = read_summary(folder)
    files = {"Plan of the last run": "plan.txt"} if with_plan else {}
    if summary is None or summary.status == FAILED:
        files["Traceback"] = TRACEBACK
    found = {title: folder / name for title, name in files.items() if (folder / name).exists()}
    return {title: _told(partial(path.read_text, encoding="utf-8", errors="replace")) for title, path in found.items()}
