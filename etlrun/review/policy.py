"""Policy on changes: what a change of each kind needs, as a file beside the configs states it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from etlrun.config.files import file_of, loaded
from etlrun.config.folders import POLICY
from etlrun.planning.spec import show
from etlrun.review.folders import Folders, entries
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING
from etlrun.system.errors import ConfigError, EtlrunError, Fault, counted, did_you_mean, fault
from etlrun.system.values import frozen

KINDS = (DATA, TRAINING, ORDER)
"""Kinds of change that a rule may forbid: `speed` never needs anything."""
STATES = {"new": "added", "removed": "removed"}
"""Experiments that a rule may forbid, with their state in a review: their data is compared with nothing."""
FORBIDDEN = (*map(str, KINDS), *STATES)


class PolicyError(EtlrunError):
    """Change that a policy doesn't allow."""

    status = 4


@frozen
class Rule:
    """One rule of a policy.

    Attributes:
        name: What it forbids: a kind of change, or experiments of a state.
        where: Its key, or the option that sets it.
        file: File that has it, by its name in messages; empty for an option.
        line: Line of that file; None for an option.
        label: Label that waives it; empty if none does.
    """

    name: str
    where: str
    file: str = ""
    line: int | None = None
    label: str = ""


@frozen
class Policy:
    """Rules of a file.

    Attributes:
        file: Name of the file in messages, with its revision.
        text: Content of the file.
        rules: The rules; of a file with faults, those that can be read.
        faults: Faults of the file.
    """

    file: str
    text: bytes = b""
    rules: tuple[Rule, ...] = ()
    faults: tuple[Fault, ...] = ()


@frozen
class Judgement:
    """What a policy says of a change.

    Attributes:
        broken: Rules that the change breaks, a fault each.
        waived: Rules that it would break without a label, a sentence each.
        file: Name of the policy's file, with its revision; empty for `--fail-on`.
        note: That the change is also one of the policy, and which one judges it; empty if it is not.
        faults: Faults of the policy, which then judges nothing.
        unjudged: Experiments that could not be compared, as text; empty without any.
    """

    broken: tuple[Fault, ...] = ()
    waived: tuple[str, ...] = ()
    file: str = ""
    note: str = ""
    faults: tuple[Fault, ...] = ()
    unjudged: str = ""

    @property
    def is_failed(self) -> bool:
        """Whether a command ends with an error: a rule is broken, or the policy cannot be applied to all."""
        return bool(self.broken or self.faults or self.unjudged)

    @property
    def headline(self) -> str:
        """What it says, in a few words."""
        if self.faults:
            return "cannot be applied"
        if self.broken:
            return f"{counted(len(self.broken), 'rule')} broken"
        return f"cannot judge {self.unjudged}" if self.unjudged else "passed"

    @property
    def lines(self) -> list[str]:
        """What it says, a sentence each."""
        unjudged = f"cannot judge {self.unjudged}" if self.unjudged and self.broken else ""
        return [*map(str, (*self.faults, *self.broken)), *self.waived, *filter(None, [unjudged, self.note])]


def policy_of(folders: Folders) -> Policy | None:
    """Return the policy in the folders of a side, with all of its faults; None if there is none."""
    path = (folders.own or folders.base) / POLICY
    if not os.path.lexists(path):  # one that can't be read is there
        return None
    file = f"{folders.prefix}{folders.name(path)}"
    text = path.read_bytes() if path.is_file() else b""
    try:
        names = [str(name) for name in loaded(path, file)]
    except ConfigError as error:
        return Policy(file=file, text=text, faults=error.faults)
    lines = {entry.key: entry.line for entry in entries(text, "", file)}
    content = file_of(path)
    values = {} if content is None else {str(name): value for name, value in content.values.items()}
    found: dict[type, list[Any]] = {Rule: [], Fault: []}
    for item in (item for name in names for item in _rules(name, values.get(name))):
        line = lines.get(item.where) or lines.get(item.where.partition(".")[0], 1)
        found[type(item)].append(replace(item, file=file, line=line))
    return Policy(file=file, text=text, rules=tuple(found[Rule]), faults=tuple(found[Fault]))


def _rules(name: str, value: Any) -> Iterator[Rule | Fault]:
    if name not in FORBIDDEN:
        remedy = "leave it out: nothing is needed for another speed" if name == SPEED else did_you_mean(name, FORBIDDEN)
        yield fault(name, "an unknown rule", f"one of the rules {', '.join(FORBIDDEN)}", remedy)
        return
    if not isinstance(value, Mapping):
        yield fault(name, show(value), "{label: NAME}, or {} if no label waives it")
        return
    for key in value.keys() - {"label"}:
        yield fault(f"{name}.{key}", "an unknown key", "the key label", did_you_mean(str(key), ["label"]))
    label = value.get("label", "")
    if "label" in value and not (isinstance(label, str) and label.strip() and label.isprintable() and "," not in label):
        yield fault(f"{name}.label", show(label), "the name of a label, without commas")
    yield Rule(name=name, where=name, label=str(label).strip())
