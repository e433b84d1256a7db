"""Formats of annotations: GitHub's commands, SARIF, JUnit, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etlrun.review.annotations import ERROR, NOTE, RULES, WARNING, Annotation
from etlrun.review.check import Checked, label
from etlrun.review.folders import Folders
from etlrun.system import VERSION
from etlrun.system.errors import printable

Format = Callable[[Sequence[Annotation], Checked, Folders], str]
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FORMAT = 1
_COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def _github(found: Sequence[Annotation], _checked: Checked, _folders: Folders) -> str:
    """Return commands of GitHub Actions, which shows them at their lines."""
    lines = []
    for of in found:
        title = printable(of.fault.where) or "etlrun"
        about = {"file": of.fault.file, "line": str(of.fault.line or ""), "title": title}
        given = ",".join(f"{name}={_of_property(value)}" for name, value in about.items() if value)
        lines.append(f"::{_COMMANDS[of.level]} {given}::{_of_command(of.text)}\n")
    return "".join(lines)


def _of_command(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _of_property(text: str) -> str:
    return _of_command(text).replace(":", "%3A").replace(",", "%2C")


def _sarif(found: Sequence[Annotation], _checked: Checked, folders: Folders) -> str:
    names = [name for name in RULES if any(of.rule == name for of in found)]
    rules = [{"id": name, "shortDescription": {"text": RULES[name]}} for name in names]
    driver = {"name": "etlrun", "semanticVersion": VERSION, "rules": rules}
    results = [
        {
            "ruleId": of.rule,
            "ruleIndex": names.index(of.rule),
            "level": of.level,
            "message": {"text": of.text},
            "locations": [{"physicalLocation": _location(of, folders)}],
        }
        for of in found
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return _as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _location(of: Annotation, folders: Folders) -> dict[str, Any]:
    from urllib.parse import quote

    file = of.fault.file or folders.shown[folders.own or folders.base]
    if Path(file).is_absolute():
        location = {"uri": Path(file).as_uri()}
    else:
        location = {"uri": quote(file), "uriBaseId": "%SRCROOT%"}
    return {"artifactLocation": location, **({"region": {"startLine": of.fault.line}} if of.fault.line else {})}


def _document(found: Sequence[Annotation], checked: Checked, _folders: Folders) -> str:
    remarks: dict[str, list[dict[str, Any]]] = {"faults": [], "warnings": []}
    for of in found:
        remarks["faults" if of.level == ERROR else "warnings"].append(
            {
                "rule": of.rule,
                "file": of.fault.file or None,
                "line": of.fault.line,
                "key": of.fault.where or None,
                "found": of.fault.found,
                "expected": of.fault.expected or None,
                "remedy": of.fault.remedy or None,
                "configs": list(of.fault.configs),
            }
        )
    about = {"format": _FORMAT, "configs": len(checked.configs), "experiments": checked.experiments}
    return _as_json({**about, **remarks})


def _as_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _junit(found: Sequence[Annotation], checked: Checked, _folders: Folders) -> str:
    """Return a test suite: a case for each config, and for each fault that is of none."""
    from xml.etree import ElementTree as ET

    cases = [*_cases_of_configs(found, checked), *_cases_of_files(found)]
    count = {"tests": len(cases), "failures": 0, "errors": 0, "skipped": 0}
    suite = ET.Element("testsuite", name="etlrun check")
    for attributes, results in cases:
        case = ET.SubElement(suite, "testcase", attributes)
        for name, message, text in results:
            count["failures"] += name == "failure"
            count["skipped"] += name == "skipped"
            ET.SubElement(case, name, {"message": message} if message else {}).text = text
    suite.attrib |= {name: str(number) for name, number in count.items()}
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    written: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return written.decode("ascii") + "\n"


_Case = tuple[dict[str, str], list[tuple[str, str, str]]]
"""The attributes of a test case; its results, each with its name, its message and its text."""


def _cases_of_configs(found: Sequence[Annotation], checked: Checked) -> Iterator[_Case]:
    for words, variant in checked.configs.items():
        name = label(words)
        of_it = [of for of in found if of.level == ERROR and name in of.fault.configs]
        slow = [of.text for of in found if of.level != ERROR and name in of.fault.configs]
        results = _failures(of_it)
        if not of_it and variant.plan is None:  # refused, or of a file that has a case of its own
            results = [("skipped", str(variant.faults[0]), "")]
        group = words[0].partition("=")[0].lstrip("-") if words else "experiment"
        file = {"file": of_it[0].fault.file} if of_it and of_it[0].fault.file else {}
        yield (
            {"classname": group, "name": name, **file},
            [*results, *([("system-out", "", "\n".join(slow))] if slow else [])],
        )


def _cases_of_files(found: Sequence[Annotation]) -> Iterator[_Case]:
    by_file: dict[str, list[Annotation]] = {}
    for of in found:
        if of.level == ERROR and not of.fault.configs:
            by_file.setdefault(of.fault.file or of.fault.where, []).append(of)
    for name, faults in by_file.items():
        yield {"classname": "file", "name": name, "file": faults[0].fault.file or name}, _failures(faults)


def _failures(faults: Sequence[Annotation]) -> list[tuple[str, str, str]]:
    """Return the failure of a case, with all of its faults: readers take no more than one."""
    if not faults:
        return []
    texts = [f"{_file_and_line(of)}{of.text}" for of in faults]
    first = texts[0].partition("\n")[0]
    return [("failure", first if len(texts) == 1 else f"{len(texts)} faults: {first}", "\n".join(texts))]


def _file_and_line(of: Annotation) -> str:
    line = f":{of.fault.line}" if of.fault.line else ""
    return f"{of.fault.file}{line}: " if of.fault.file else ""


FORMATS: Mapping[str, Format] = {"json": _document, "github": _github, "junit": _junit, "sarif": _sarif}
"""Functions that return annotations as a whole text, by the names of the formats."""
