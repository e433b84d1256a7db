"""Annotations of config files: what a check found, at its file and line, as GitHub, SARIF, JUnit and JSON have it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from etlrun.review.check import Advice, Checked, label
from etlrun.review.folders import Folders, KeyEntry, place_of
from etlrun.review.git import top_of
from etlrun.review.sides import DEFAULT
from etlrun.stages.measure import ADVICE
from etlrun.system import VERSION
from etlrun.system.errors import Fault, of_file, printable
from etlrun.system.values import frozen

ERROR, WARNING, NOTE = "error", "warning", "note"
FILE, CONFLICT, VALUE, ELSEWHERE = "file", "conflict", "value", "tuned_elsewhere"
RULES: Mapping[str, str] = {
    FILE: "a config file that cannot be used as it is",
    VALUE: "a key or a value that no config can have",
    CONFLICT: "values that conflict with each other",
    **ADVICE,
    ELSEWHERE: "a config that was tuned on another machine, so that its speed here is not known",
}
"""What annotations are about, by the names of their rules."""
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FORMAT = 1
_MARKS = "%\r\n:,"
"""What is escaped in the properties of GitHub's commands."""


@frozen
class Annotation:
    """A remark on a config file.

    Attributes:
        level: Severity: `ERROR`, `WARNING` or `NOTE`.
        rule: One of `RULES`.
        fault: What was found and where, with the configs that it is about; its file is relative to the root of the
            repository, or absolute outside it.
        text: What was found and the remedy in printable words, without the file and the line.
    """

    level: str
    rule: str
    fault: Fault
    text: str


def annotated(checked: Checked, advice: Mapping[Advice, list[str]], folders: Folders) -> list[Annotation]:
    """Return the faults of a check, and its advice that no config silences, by names of experiments, as warnings."""
    found: list[tuple[str, str, Fault, str]] = []
    for level, faults in ((ERROR, checked.faults.values()), (WARNING, checked.warnings)):
        for fault in faults:
            rule = CONFLICT if fault.is_rule else VALUE if fault.where else FILE
            found.append((level, rule, fault, str(replace(fault, file="", line=None)).removeprefix(": ")))
    for fault, item in _placed(checked, advice, folders):
        found.append((WARNING, item.name, fault, f"{', '.join(fault.configs)}: {item}"))
    for name, machine in checked.tuned.items():
        word = f"experiment={name}"
        remark = of_file(folders.file_of(word), f"tuned on another machine ({machine})", "")
        text = f"{word}: {remark.found}: its speed here is not known"
        found.append((NOTE, ELSEWHERE, replace(remark, configs=(word,)), text))
    root, annotations = top_of(Path.cwd()).resolve(), []
    for level, rule, fault, text in found:
        path = Path(os.path.normpath(Path.cwd() / fault.file))
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        of = replace(fault, file=inside.as_posix()) if fault.file else fault
        annotations.append(Annotation(level=level, rule=rule, fault=of, text=text))
    return annotations


def _placed(checked: Checked, advice: Mapping[Advice, list[str]], folders: Folders) -> Iterator[tuple[Fault, Advice]]:
    """Yield each advice as a fault of the line that sets or chooses its override, for all experiments of that line."""
    for item, names in advice.items():
        key, places = item.override.partition("=")[0], dict[tuple[str, int | None], list[str]]()
        for name in names:
            words = () if name == DEFAULT else (f"experiment={name}",)
            layers = checked.configs[words].layers
            own = [layer for layer in layers if folders.own is None or layer.path.is_relative_to(folders.own)]
            place = place_of(key, own, folders) or KeyEntry(key, 0, folders.file_of(words[0]) if words else "")
            places.setdefault((place.file, place.line or None), []).append(label(words))
        for (file, line), configs in places.items():
            of = of_file(file, item.evidence, "", f"try {item.override}", line=line, key=key)
            yield replace(of, configs=tuple(configs)), item


def _github(found: Sequence[Annotation], _checked: Checked, _folders: Folders) -> str:
    """Return commands of GitHub Actions, which shows them at their lines."""

    def escaped(text: str, marks: str = "%\r\n") -> str:
        return "".join(f"%{ord(mark):02X}" if mark in marks else mark for mark in text)

    lines = []
    for of in found:
        title = printable(of.fault.where) or "etlrun"
        about = {"file": of.fault.file, "line": str(of.fault.line or ""), "title": title}
        given = ",".join(f"{name}={escaped(value, _MARKS)}" for name, value in about.items() if value)
        lines.append(f"::{'notice' if of.level == NOTE else of.level} {given}::{escaped(of.text)}\n")
    return "".join(lines)


def _sarif(found: Sequence[Annotation], _checked: Checked, folders: Folders) -> str:
    from urllib.parse import quote

    names = [name for name in RULES if any(of.rule == name for of in found)]
    results = []
    for of in found:
        file = of.fault.file or folders.shown[folders.own or folders.base]
        place = {"uri": quote(file), "uriBaseId": "%SRCROOT%"}
        location = {"artifactLocation": {"uri": Path(file).as_uri()} if Path(file).is_absolute() else place}
        region = {"region": {"startLine": of.fault.line}} if of.fault.line else {}
        results.append(
            {
                "ruleId": of.rule,
                "ruleIndex": names.index(of.rule),
                "level": of.level,
                "message": {"text": of.text},
                "locations": [{"physicalLocation": {**location, **region}}],
            }
        )
    rules = [{"id": name, "shortDescription": {"text": RULES[name]}} for name in names]
    driver = {"name": "etlrun", "semanticVersion": VERSION, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return _as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _document(found: Sequence[Annotation], checked: Checked, _folders: Folders) -> str:
    remarks: dict[str, list[dict[str, Any]]] = {"faults": [], "warnings": []}
    for of in found:
        fault = of.fault
        texts = {"key": fault.where, "found": fault.found, "expected": fault.expected, "remedy": fault.remedy}
        values: dict[str, Any] = {"rule": of.rule, "file": fault.file or None, "line": fault.line}
        values |= {name: text or None for name, text in texts.items()} | {"configs": fault.configs}
        remarks["faults" if of.level == ERROR else "warnings"].append(values)
    about = {"format": _FORMAT, "configs": len(checked.configs), "experiments": checked.experiments}
    return _as_json({**about, **remarks})


def _as_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _junit(found: Sequence[Annotation], checked: Checked, _folders: Folders) -> str:
    """Return a test suite: a case for each config, and for each file with a fault that is of none."""
    from xml.etree import ElementTree as ET

    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name="etlrun check")
    cases: dict[tuple[str, str], list[Annotation]] = {}
    plans = {label(words): variant for words, variant in checked.configs.items()}
    for name in plans:
        group = name.partition("=")[0].lstrip("-") if "=" in name else "experiment"
        cases[group, name] = [of for of in found if name in of.fault.configs]
    for of in found:
        if of.level == ERROR and not of.fault.configs:
            cases.setdefault(("file", of.fault.file or of.fault.where), []).append(of)
    for (kind, name), about in cases.items():
        faults = [of for of in about if of.level == ERROR]
        file = name if kind == "file" else faults[0].fault.file if faults else ""
        case = ET.SubElement(suite, "testcase", {"classname": kind, "name": name} | ({"file": file} if file else {}))
        if faults:  # in one failure: readers take no more
            places = [f"{of.fault.file}:{of.fault.line}" if of.fault.line else of.fault.file for of in faults]
            texts = [": ".join(filter(None, [place, of.text])) for place, of in zip(places, faults, strict=True)]
            first = texts[0].partition("\n")[0]
            message = f"{len(texts)} faults: {first}" if texts[1:] else first
            ET.SubElement(case, "failure", message=message).text = "\n".join(texts)
        elif plans[name].plan is None:  # refused, or of a file that has a case of its own
            ET.SubElement(case, "skipped", message=str(plans[name].faults[0]))
        if slow := [of.text for of in about if of.level != ERROR]:
            ET.SubElement(case, "system-out").text = "\n".join(slow)
    counts = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.attrib |= {name: str(len([*suite.iter(tag)])) for name, tag in counts.items()}
    ET.indent(suites)
    written: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return written.decode("ascii") + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Annotation], Checked, Folders], str]] = {
    "json": _document,
    "github": _github,
    "junit": _junit,
    "sarif": _sarif,
}
"""Functions that return annotations as a whole text, by the names of the formats."""
