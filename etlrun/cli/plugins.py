"""`etlrun plugins`: list what installed packages add by their entry points."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from etlrun.cli import parsers
from etlrun.stages import UNUSABLE
from etlrun.stages.dataset import Dataset
from etlrun.stages.installed import fault_of, place_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, MODELS, PLUGINS, ROWS, STEPS, Plugin
from etlrun.system.errors import DOCS, ConfigError, Fault
from etlrun.system.terminal import print_table, say, say_whole

_KINDS = {STEPS: "step", MODELS: "model", LOSSES: "loss", METRICS: "metric", CALLBACKS: "callback", ROWS: "rows"}
_HEADER = ("kind", "name", "package", "version", "where", "loads", "fields")
_REQUIRED = dataclasses.MISSING


def main(arguments: list[str]) -> None:
    """Print all of them; `ConfigError` with the faults of those that can't be used."""
    known = parser().parse_args(arguments)
    found = [_listed(entry, group) for group in _KINDS for entry in entry_points(group=group)]
    if known.format == "json":
        say_whole(json.dumps([_as_dict(plugin, fault) for plugin, fault in found], indent=2, default=str) + "\n")
    elif found:
        print_table(_HEADER, [_row(plugin, fault) for plugin, fault in found])
    else:
        say(f"no installed package adds anything: see {DOCS}/extending.md")
    if faults := [fault for _, fault in found if fault is not None]:
        raise ConfigError(faults)


def _listed(entry: EntryPoint, group: str) -> tuple[Plugin, Fault | None]:
    """Return what an entry point adds, and why it can't be used; None if it can."""
    if group == ROWS:
        return _rows(entry)
    same = (plugin for plugin in PLUGINS.values() if (plugin.group, plugin.where) == (group, entry.value))
    fault = next((fault for fault in UNUSABLE if fault.where == place_of(entry)), None)
    return (Plugin.of(entry, entry.name), fault) if fault else (next(same), None)


def _rows(entry: EntryPoint) -> tuple[Plugin, Fault | None]:
    expected = "a function without arguments"
    try:
        made = entry.load()
    except Exception as error:  # noqa: BLE001 - importing another package may raise anything
        return Plugin.of(entry, entry.name), fault_of(entry, f"{type(error).__name__}: {error}", expected)
    is_fit = inspect.isfunction(made)
    return Plugin.of(entry, entry.name, made), None if is_fit else fault_of(entry, repr(made), expected)


def _kind(plugin: Plugin) -> str:
    is_dataset = isinstance(plugin.made, type) and issubclass(plugin.made, Dataset)
    return "dataset" if is_dataset else _KINDS[plugin.group]


def _fields(plugin: Plugin) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a class, or the arguments of a function, with their defaults, or `_REQUIRED`."""
    if dataclasses.is_dataclass(plugin.made):
        for field in dataclasses.fields(plugin.made):
            yield field.name, field.default
    elif plugin.made is not None and plugin.group != ROWS:
        yield from plugin.arguments.items()


def _as_dict(plugin: Plugin, fault: Fault | None) -> dict[str, Any]:
    fields = [
        {"name": name, **({} if default is _REQUIRED else {"default": default})} for name, default in _fields(plugin)
    ]
    values = {"kind": _kind(plugin), "name": plugin.name, "package": plugin.package, "version": plugin.version}
    return {**values, "where": plugin.where, "fault": None if fault is None else fault.found, "fields": fields}


def _row(plugin: Plugin, fault: Fault | None) -> list[str]:
    fields = ", ".join(name if default is _REQUIRED else f"{name}={default}" for name, default in _fields(plugin))
    loads = "yes" if fault is None else "no"
    return [_kind(plugin), plugin.name, plugin.package, plugin.version, plugin.where, loads, fields]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    says = "List what installed packages add by their entry points: models, losses, metrics, callbacks, steps and rows."
    parser = parsers.of_command("plugins", says)
    parsers.add_format(parser)
    return parser
