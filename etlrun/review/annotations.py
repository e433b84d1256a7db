"""Annotations of config files: what a check found, each with the file and the line that it is about."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from etlrun.review.check import Checked, label
from etlrun.review.folders import Folders, chosen_in, place_of
from etlrun.review.git import git
from etlrun.review.lint import Advice
from etlrun.review.sides import DEFAULT
from etlrun.stages.measure import ADVICE
from etlrun.system.errors import Fault, of_file

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


@dataclass(frozen=True, kw_only=True)
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
    found = [_of_fault(fault, ERROR) for fault in checked.faults.values()]
    found += [_of_fault(fault, WARNING) for fault in checked.warnings]
    for fault, item in _placed(checked, advice, folders):
        text = f"{', '.join(fault.configs)}: {item}"
        found.append(Annotation(level=WARNING, rule=item.name, fault=fault, text=text))
    for name, machine in checked.tuned.items():
        word = f"experiment={name}"
        remark = of_file(folders.file_of(word), f"tuned on another machine ({machine})", "")
        text = f"{word}: {remark.found}: its speed here is not known"
        found.append(Annotation(level=NOTE, rule=ELSEWHERE, fault=replace(remark, configs=(word,)), text=text))
    top = git(Path.cwd(), "rev-parse", "--show-toplevel")
    root = Path.cwd() if top is None else Path(os.fsdecode(top.rstrip(b"\n")))
    return [replace(of, fault=_below(root, of.fault)) for of in found]


def _of_fault(fault: Fault, level: str) -> Annotation:
    rule = CONFLICT if fault.is_rule else VALUE if fault.where else FILE
    text = str(replace(fault, file="", line=None)).removeprefix(": ")
    return Annotation(level=level, rule=rule, fault=fault, text=text)


def _placed(checked: Checked, advice: Mapping[Advice, list[str]], folders: Folders) -> Iterator[tuple[Fault, Advice]]:
    """Yield each advice as a fault of the line that sets the key of its override, for all experiments of that line."""
    for item, names in advice.items():
        key, places = item.override.partition("=")[0], dict[tuple[str, int | None], list[str]]()
        for name in names:
            words = () if name == DEFAULT else (f"experiment={name}",)
            places.setdefault(_line(key, words, checked, folders), []).append(label(words))
        for (file, line), configs in places.items():
            of = of_file(file, item.evidence, "", f"try {item.override}", line=line, key=key)
            yield replace(of, configs=tuple(configs)), item


def _line(key: str, words: tuple[str, ...], checked: Checked, folders: Folders) -> tuple[str, int | None]:
    """Return the file and line that set a key of an experiment, or choose its option; else the experiment itself."""
    layers = checked.configs[words].layers
    own = [layer for layer in layers if folders.own is None or layer.path.is_relative_to(folders.own)]
    group, dot, _ = key.partition(".")
    chosen, place = chosen_in(own, group, folders), place_of(key, own, folders)
    place = place or chosen if dot else chosen or place
    return (folders.file_of(words[0]) if words else "", None) if place is None else (place.file, place.line)


def _below(root: Path, fault: Fault) -> Fault:
    if not fault.file:
        return fault
    path = Path(os.path.normpath(Path.cwd() / fault.file))
    return replace(fault, file=(path.relative_to(root) if path.is_relative_to(root) else path).as_posix())
