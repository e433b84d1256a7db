"""What etlrun promises not to break, a fact a line of a golden file; docs/compatibility.md says what is promised."""

import argparse
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import etlrun
from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.config import reference
from etlrun.config.folders import config_dir, options_of
from etlrun.planning.hints import RENAMED
from etlrun.review.folders import PolicyError
from etlrun.run import run
from etlrun.stages import STAGES, plugins
from etlrun.system.errors import INTERRUPTED, ConfigError, EtlrunError

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "public.txt"
COMPATIBILITY = ROOT / "docs" / "compatibility.md"
SUMMARY = ROOT / "docs" / "summary.schema.json"
REMEDY = """\
A key with another name needs an entry in RENAMED of etlrun/planning/hints.py. Any other break needs a new major
version, and its lines removed from tests/golden/public.txt by hand."""
_KEY = "config key "
_GROUPS = ("STEPS", "MODELS", "LOSSES", "METRICS", "CALLBACKS", "ROWS")
Facts = dict[str, str]


def facts() -> Facts:
    """Return all promises: what each is about, and what holds of it."""
    found = [*_python(), *_plugins(), *_commands(), *_statuses(), *_options(), *_keys(), *_summary()]
    assert len(dict(found)) == len(found), "two facts of one name"
    return dict(found)


def as_text(found: Facts) -> str:
    return "".join(f"{name}: {value}".rstrip() + "\n" for name, value in found.items())


def golden() -> Facts:
    """Return the promises of the golden file."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else []
    return dict(line.removesuffix(":").partition(": ")[::2] for line in lines)


def broken(before: Facts, now: Facts) -> list[str]:
    """Return what would break somebody: promises that are gone or narrower, but for keys that have another name now."""
    return [f"{name}: {why}" for name, was in before.items() if (why := _break(name, was, now))]


def _break(name: str, was: str, now: Facts) -> str:
    """Return why a promise is broken; empty if it isn't."""
    key, kind = name.partition(" of ")[0], name.partition(" ")[0]
    if name not in now:
        if not name.startswith(_KEY):
            return "is gone"
        renamed = key.removeprefix(_KEY) in RENAMED
        return "" if renamed or key in now else "is gone, and is not in RENAMED of etlrun/planning/hints.py"
    if now[name] == was:
        return ""
    choices = [{*re.split(r"[| ]", text)} - {"required"} for text in (was, now[name])]
    is_narrower = kind == "command" and (choices[0] - choices[1] or ("required" in now[name]) > ("required" in was))
    return f"{was} -> {now[name]}" if is_narrower or kind in ("exit", "summary.json") else ""


def _python() -> Iterator[tuple[str, str]]:
    for name in etlrun.__all__:
        yield from _described(f"python etlrun.{name}", getattr(etlrun, name), lambda _: True)


def plugin_names() -> dict[str, list[str]]:
    """Return the names that plugins import, by docs/compatibility.md, with what is promised of each."""
    rows = re.findall(r"^\| (`etlrun\.\w.*) \|(.*)\|$", COMPATIBILITY.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", of) for names, of in rows for name in re.findall(r"`(etlrun[\w.]+)`", names)}


def _plugins() -> Iterator[tuple[str, str]]:
    for path, members in plugin_names().items():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        yield from _described(f"plugin {path}", found, members.__contains__)
    yield from ((f"entry point {getattr(plugins, name)}", "") for name in _GROUPS)


def _described(name: str, found: Any, is_promised: Any) -> Iterator[tuple[str, str]]:
    """Yield what is promised of a function, of a class and its public members, or of another object."""
    if not inspect.isclass(found):
        yield name, _signature(found) if inspect.isfunction(found) else ""
        return
    fields = {key for base in found.__mro__ for key in vars(base).get("__annotations__", {})}
    is_ours = found.__module__.startswith("etlrun.")
    own = {key for base in found.__mro__ if base.__module__.startswith("etlrun.") for key in vars(base)}
    yield name, f"class{_signature(found.__init__) if '__init__' in vars(found) and is_ours else ''}"
    for key in sorted(key for key in own | fields if not key.startswith("_") and is_promised(key)):
        member = inspect.getattr_static(found, key, None)
        member = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        function = getattr(member, "fget", None) or getattr(member, "func", None)
        if function is not None:
            yield f"{name}.{key}", f"-> {inspect.get_annotations(function).get('return', 'Any')}"
        else:
            yield f"{name}.{key}", _signature(member) if inspect.isfunction(member) else "attribute"


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def _commands() -> Iterator[tuple[str, str]]:
    for name in COMMANDS:
        yield from _of_parser(parsers.parser_of(name))


def _of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    yield f"command {parser.prog}", ""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from _of_parser(part)
        elif action.dest != "help":
            words = "/".join(action.option_strings) or str(action.metavar)
            choices = f" {'|'.join(map(str, action.choices))}" if action.choices else ""
            needed = " required" if action.required and action.option_strings else ""
            yield f"command {parser.prog} {words}", f"{action.nargs or ''}{choices}{needed}".strip()


def _statuses() -> Iterator[tuple[str, str]]:
    statuses: Mapping[str, int] = {
        "completed": run.OK,
        "failed": EtlrunError.status,
        "refused": ConfigError.status,
        "below measure.au_min": run.TOO_SLOW,
        "against a policy": PolicyError.status,
        "interrupted": INTERRUPTED,
    }
    yield from ((f"exit status {name}", str(status)) for name, status in statuses.items())


def _options() -> Iterator[tuple[str, str]]:
    for group, names in options_of(config_dir()).items():
        yield from ((f"config option {group}={name}", "") for name in names)


def _keys() -> Iterator[tuple[str, str]]:
    for key in reference.keys(STAGES):
        of = f" of {key.option}" if key.option else ""
        default = f"; default {key.default}" if key.default else "; required"
        yield f"{_KEY}{key.path}{of}", f"{key.values}; {', '.join(key.kinds) or 'no run'}{default}"


def _summary() -> Iterator[tuple[str, str]]:
    schema = json.loads(SUMMARY.read_text(encoding="utf-8"))
    yield from _fields("summary.json", schema, schema["$defs"])


def _fields(path: str, node: Mapping[str, Any], blocks: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a JSON schema with their types, and those of its blocks."""
    for name, inner in node.get("properties", {}).items():
        yield f"{path} {name}", _type(inner)
    if path == "summary.json":
        for name, block in blocks.items():
            yield from _fields(f"{path} {name}", block, blocks)


def _type(node: Mapping[str, Any]) -> str:
    """Return the types of a value in short."""
    if "$ref" in node:
        return str(node["$ref"].rpartition("/")[2])
    if "anyOf" in node:
        return " or ".join(_type(choice) for choice in node["anyOf"])
    inner = node.get("items") or node.get("additionalProperties")
    inside = f" of {_type(inner)}" if isinstance(inner, dict) else ""
    return f"{node.get('type', '|'.join(map(str, node.get('enum', ['any']))))}{inside}"
