"""Check of all configs in a folder: all that is wrong, in several formats."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, pairwise, product
from pathlib import Path

from etlrun.config import request as requests
from etlrun.config.composer import MISSING, NOT_OF_A_RUN
from etlrun.config.files import Layer, config_files, unloadable
from etlrun.config.grid import mended
from etlrun.config.overrides import quoted
from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.report.doc import Doc, Lines
from etlrun.review.folders import Folders, KeyEntry, entries, located, of_whole, policy_of, without_configs
from etlrun.review.sides import DEFAULT, Options, Variant, Words, composed, hidden, named_default
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError, Fault, counted, of_file, printable
from etlrun.system.git import top_of
from etlrun.system.values import grouped

_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


@dataclass(kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        folders: The folders.
        configs: All composed configs, by their overrides or the name of their primary config.
        plans: Plans of the valid experiments and of the default run, by name.
        experiments: Names of all experiments, including invalid ones.
        faults: Faults by their text.
    """

    folders: Folders
    configs: dict[Words, Variant] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    experiments: list[str] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults, each once."""
        self.faults |= {str(fault): fault for fault in faults}


def compare_plans(checked: Checked, folder: Path, *, update: bool) -> Iterator[str]:
    """Compare the plans of a check with the golden ones in a folder, or write these; yield which are written.

    That of an experiment that no longer exists is removed; one that exists and is invalid keeps its own.
    """
    texts: dict[Path, str | None] = {folder / f"{name}.txt": render.text(plan) for name, plan in checked.plans.items()}
    lost = (path for path in sorted(folder.glob("*.txt")) if path.stem not in checked.experiments)
    texts |= dict.fromkeys(path for path in lost if _LAST_LINE.search(path.read_bytes()))
    if update:
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        kept = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if kept == text:
            continue
        found, expected, line = "a different plan", "the current plan", None
        if update:
            path.unlink() if text is None else path.write_text(text, encoding="utf-8")
            yield f"updated {path}"
            continue
        if text is None:
            found, expected = "a golden plan", "an experiment of that name"
        elif kept is None:
            found = "no golden plan"
        else:
            lines = kept.splitlines(), text.splitlines()
            differ = (number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now)
            line = next(differ, max(1, len(lines[0])))
        remedy = "repeat the command with --update, and review the diff"
        checked.add([of_file(str(path), found, expected, remedy, line=line)])


def check(folders: Folders) -> Checked:
    """Check the configs of `folders`: the user's own if given, else the project's."""
    checked = Checked(folders=folders)
    own = [name for name in folders.files if Path(name).is_relative_to(folders.title)]
    broken = {name: fault for name in own if (fault := _unfit(folders.paths[name], name))}
    checked.add(broken.values())
    try:
        _compose_all(checked, Options(folders))
        for file, path in folders.paths.items():
            if path.parent == folders.own:  # a primary config
                primary = composed([], requests.composer(folders.request([], path.stem)), folders)
                faults = (of_whole(of, file, folders) if of.place == "config" else of for of in primary.faults)
                checked.configs[(f"--config-name={path.stem}",)] = replace(primary, faults=tuple(faults))
    except ConfigError as error:  # in a file that every config needs
        checked.add(located(fault, (), folders, ()) for fault in error.faults)
    _judge(checked)
    for path in config_files(folders.reviewed, ".yml"):
        checked.add([of_file(folders.name(path), "the suffix .yml", ".yaml, the only suffix that Hydra reads")])
    policy = policy_of(folders)
    checked.add(() if policy is None else policy.faults)
    if checked.configs:
        checked.add(_unreached(checked, own, broken))
    elif not checked.faults:
        checked.add([without_configs(f"in {folders.own}")])
    if not broken:  # which values count is unknown
        checked.add(_never_counting(checked, own))
    _mend(checked)
    return checked


def _mend(checked: Checked) -> None:
    """Find what ends the faults of configs, each in the first config that has it."""
    told = {text: of for text, of in checked.faults.items() if of.configs and not of.configs[0].startswith("--")}
    if told:
        files = requests.composer(checked.folders.request([]))
    for text, fault in told.items():
        words = [quoted(word) for word in fault.configs[0].split() if "=" in word]
        (checked.faults[text],) = mended([fault], words, files, STAGES)


def _unfit(path: Path, name: str) -> Fault | None:
    if not path.as_posix().isprintable():
        return of_file(name, "a name with unprintable characters", "a printable name", "rename it")
    return unloadable(path, name)


def fits(options: Options, word: str) -> bool:
    """Return whether an option fits the defaults of the other groups, or with another option of one or two."""
    variant = options.variant
    if not variant(word).is_unfit:
        return True
    bases = {*variant(word).files} - {*variant().files}
    experiments = (f"experiment={name}" for name in options.files.options("experiment"))
    in_place = ((each, word) for each in experiments if bases & {*variant(each).files})
    groups = options.by_group.keys() - NOT_OF_A_RUN - {_group(word)}
    others = [other for group, words in options.by_group.items() if group in groups for other in words]
    firsts = (other for other in others if _reasons(variant(word, other)) != _reasons(variant(word)))  # that matter
    two = ((word, first, other) for first in firsts for other in others if _group(first) != _group(other))
    return any(variant(*of).plan is not None for of in chain(in_place, ((word, other) for other in others), two))


def _group(word: str) -> str:
    return word.partition("=")[0]


def _compose_all(checked: Checked, options: Options) -> None:
    """Compose experiments, options to check, and these with those of adjacent groups; what fits nowhere is a fault."""
    checked.experiments = options.experiments[:]
    if DEFAULT in checked.experiments:
        checked.experiments.remove(DEFAULT)
        checked.add([named_default(options.folders)])
    words: list[Words] = [(f"experiment={name}",) for name in checked.experiments]
    words += [(word,) for word in options.own]
    for one, other in pairwise(options.by_group.values()):
        words += [pair for pair in product(one, other) if any(map(options.folders.is_own, pair))]
    if options.folders.own is None:
        checked.experiments.insert(0, DEFAULT)
        words.insert(0, ())
    checked.configs |= {of: options.variant(*of) for of in words}
    used = {name for variant in checked.configs.values() if variant.plan is not None for name in variant.files}
    for word in options.own:
        if options.folders.file_of(word) not in used and not fits(options, word):
            checked.add(replace(fault, configs=(word,)) for fault in options.variant(word).faults)


def _reasons(variant: Variant) -> list[tuple[str, str]]:
    return [(fault.found, fault.expected) for fault in variant.faults]


def _judge(checked: Checked) -> None:
    """Collect faults of whole runs, and of options that are invalid by themselves."""
    met = list[tuple[Fault, str]]()
    broken = {words for words, variant in checked.configs.items() if variant.config is None}
    for words, variant in checked.configs.items():
        if words[1:] and any((word,) in broken for word in words):
            continue  # an option that fails alone fails with every other one, and is reported once
        name = words[0].removeprefix("experiment=") if words else DEFAULT
        if variant.plan is not None and name in checked.experiments:
            checked.plans[name] = variant.plan
        is_run = not words or words[0].startswith(("experiment=", "--config-name="))
        config = " ".join(words) or "the default run"
        if is_run or not variant.is_unfit:  # faults of files are there
            met += [(fault, config) for fault in variant.faults if str(fault) not in checked.faults]
    checked.add(replace(fault, configs=tuple(configs)) for fault, configs in grouped(met).items())


def _unreached(checked: Checked, own: list[str], unloadable: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of files that no config uses; those that are `unloadable` may use what they name."""
    configs, folders = checked.configs, checked.folders
    names = {name: Path(name).relative_to(folders.title) for name in own} if folders.own is not None else {}
    concealed = [name for name, inner in names.items() if (folders.base / inner).is_file()]
    yield from map(hidden, concealed)
    reached = {name for variant in configs.values() for name in variant.files}
    reached |= {*concealed, *unloadable, folders.file_of(f"experiment={DEFAULT}")}
    reached |= {name for name, inner in names.items() if inner.parts[0] == "hydra"}
    reached |= {folders.file_of(word.removeprefix("--config-name=")) for words in configs for word in words}
    named = b"\n".join(folders.files[name] for name in unloadable)
    for name in own:
        if name not in reached and os.fsencode(Path(name).stem) not in named:
            remedy = "move it to the folder of its group, or delete it"
            yield of_file(name, "a file that no config uses", "an option of a group in a defaults list", remedy)


def _never_counting(checked: Checked, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of values that a later file overrides in every config."""
    innermost = cache(partial(_innermost, checked.folders))
    counting: set[KeyEntry] = set()
    beaten: dict[KeyEntry, KeyEntry] = {}
    for variant in checked.configs.values():
        last: dict[str, KeyEntry] = {}
        for layer in variant.layers:
            for entry in innermost(layer):
                if entry.key in last:
                    beaten[last[entry.key]] = entry
                last[entry.key] = entry
        counting |= {*last.values()}
    for entry, by in beaten.items():
        if entry not in counting and entry.file in own:
            what, remedy = "a value that has no effect", "remove it, or put `_self_` last in its defaults list"
            expected = f"a value that {by.file}:{by.line} does not override in every config"
            yield of_file(entry.file, what, expected, remedy, line=entry.line, key=entry.key)


def _innermost(folders: Folders, layer: Layer) -> list[KeyEntry]:
    """Return the innermost keys of a file, without mandatory values."""
    name = folders.name(layer.path)
    content = folders.files.get(name, b"")
    found, lines = entries(content, layer.package, name), content.decode(errors="replace").splitlines()
    outer = {of.key.rpartition(".")[0] for of in found}
    return [of for of in found if of.key not in outer and MISSING not in lines[of.line - 1]]


def of_check(checked: Checked, updated: Iterable[str], wall_s: float) -> Doc:
    """Return what a check found beside faults, with the golden plans that it has updated, and the seconds it took."""
    counts = f"{counted(len(checked.configs), 'config')} of {counted(len(checked.experiments), 'experiment')}"
    faults = counted(len(checked.faults), "fault") if checked.faults else "no fault"
    told = f"checked {counts} and of options in {wall_s:.1f} s: {faults}"
    return Doc(told, [Lines([("", line) for line in (*updated, told)])])


def named_from_root(checked: Checked) -> list[Fault]:
    """Return the faults of a check, with files relative to the root of the repository, or absolute outside it."""
    root, found = top_of(Path.cwd()).resolve(), list[Fault]()
    for fault in checked.faults.values():
        path = Path(os.path.normpath(Path.cwd() / fault.file))
        file = (path.relative_to(root) if path.is_relative_to(root) else path).as_posix() if fault.file else ""
        found.append(replace(fault, file=file))
    return found


def _github(checked: Checked) -> str:
    """Return commands of GitHub Actions, which shows them at their lines."""

    def escaped(text: str, more: str = "") -> str:
        return "".join(f"%{ord(mark):02X}" if mark in f"%\r\n{more}" else mark for mark in text)

    lines = []
    for fault in named_from_root(checked):
        about = {"file": fault.file, "line": str(fault.line or ""), "title": printable(fault.where) or "etlrun"}
        given = ",".join(f"{name}={escaped(value, ':,')}" for name, value in about.items() if value)
        text = str(replace(fault, file="", line=None)).removeprefix(": ")
        lines.append(f"::error {given}::{escaped(text)}\n")
    return "".join(lines)


def _document(checked: Checked) -> str:
    faults = [
        {
            "rule": "conflict" if fault.is_rule else "value" if fault.where else "file",
            "key": fault.where or None,
            **fault.values,
        }
        for fault in named_from_root(checked)
    ]
    about = {"format": 1, "configs": len(checked.configs), "experiments": checked.experiments, "faults": faults}
    return json.dumps(about, indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Checked], str]] = {"json": _document, "github": _github}
"""Functions that return the faults of a check as a whole text, by the names of the formats."""
