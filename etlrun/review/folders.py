"""Config folders on one side of a review, of the working tree or a revision, their files, and the policy in them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from etlrun.config import request as requests
from etlrun.config.composer import in_file
from etlrun.config.files import Layer, config_files, file_of, loaded, node_of
from etlrun.config.folders import POLICY, config_dir, found_folder, own_folder
from etlrun.planning.spec import show
from etlrun.review.revisions import Tree
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING
from etlrun.system.errors import (
    ConfigError,
    EtlrunError,
    Fault,
    counted,
    did_you_mean,
    fault,
    of_file,
    printable,
    refuse,
)
from etlrun.system.git import git, top_of
from etlrun.system.values import frozen

KINDS = (DATA, TRAINING, ORDER)
"""Kinds of change that a rule may forbid: `speed` never needs anything."""
STATES = {"new": "added", "removed": "removed"}
"""Experiments that a rule may forbid, with their state in a review: their data is compared with nothing."""
MEASURED = "worse"
"""Rule on what runs have measured."""
FORBIDDEN = (*map(str, KINDS), *STATES, MEASURED)


@frozen
class Folders:
    """Config folders of one side.

    Attributes:
        base: Folder of the project's configs.
        own: Folder of the user's own configs, searched after `base`; None for none.
        shown: Name of each folder in messages.
        revision: Git revision of the folders; empty for the working tree.
        given: The user's own folder as it was named, without following links; None for none.
    """

    base: Path
    own: Path | None
    shown: dict[Path, str]
    revision: str = ""
    given: Path | None = None

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The YAML files by their names in messages."""
        folders = [folder for folder in (self.base, self.own) if folder is not None]
        return {self.name(path): path for folder in folders for path in config_files(folder)}

    @property
    def reviewed(self) -> Path:
        """The folder to review: the user's own, or without one the project's."""
        return self.own or self.base

    @property
    def title(self) -> str:
        """The name of the folder to review in messages."""
        return self.shown[self.reviewed]

    def file_of(self, option: str) -> str:
        """Return the name of the file of an option to review, such as `dataset=pets`, whether there is one or not."""
        return Path(self.title, f"{option.replace('=', '/')}.yaml").as_posix()

    def is_own(self, option: str) -> bool:
        """Return whether an option is to be reviewed: one of the user's, or, without own configs, of the project's."""
        return self.file_of(option) in self.paths

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The content of each file; empty if it cannot be read."""
        found = dict.fromkeys(self.paths, b"")
        for name, path in self.paths.items():
            with suppress(OSError):
                found[name] = path.read_bytes()
        return found

    def name(self, path: Path) -> str:
        """Return the name of a file in messages: the same in each revision, without unprintable characters."""
        return _name(path, tuple(self.shown.items()))

    @property
    def prefix(self) -> str:
        """The prefix of the names of files in messages; empty for the working tree."""
        return f"{self.revision}:" * bool(self.revision)

    def request(self, overrides: list[str], config_name: str | None = None) -> requests.Request:
        """Return the request for a config of these folders."""
        own = None if self.own is None else str(self.own)
        return requests.Request(overrides=overrides, base_dir=str(self.base), config_dir=own, config_name=config_name)


@cache  # each file is part of many configs
def _name(path: Path, shown: tuple[tuple[Path, str], ...]) -> str:
    inside = (Path(name, path.relative_to(folder)) for folder, name in shown if path.is_relative_to(folder))
    return printable(next(inside, path).as_posix())


def without_configs(where: str) -> Fault:
    """Return the fault of a folder of the user's own configs in which nothing is to be reviewed."""
    return Fault(
        "--config-dir",
        f"no experiment and no option of a group {where}",
        "a folder of configs, such as experiment/NAME.yaml in it",
        "name the folder that holds the folders of groups",
    )


def working_tree(own: str | None) -> Folders:
    """Return the folders of the working tree: the user's own is named, or that of the current folder.

    Raises:
        ConfigError: The user's own does not exist, or has links that leave its repository, or, without one, the folder
            in which it is: a review, which others may ask for, shows nothing of what these lead to.
    """
    own = found_folder() if own is None else own
    base, folder = config_dir(), None if own is None else own_folder(own)
    if folder is not None:
        top = top_of(folder)
        inside, faults = top.resolve() if top.is_absolute() else folder.parent, []
        for path in (*config_files(folder), *config_files(folder, ".yml"), folder / POLICY):
            if not (end := Path(os.path.realpath(path))).is_relative_to(inside):
                found, remedy = f"a link to {end}, which leaves {inside}", "copy the file to which it leads"
                faults.append(of_file(_relative(path), printable(found), "a link within that folder", remedy))
        refuse(faults)
    shown = {path: _relative(path) for path in (folder, base) if path is not None}
    given = None if own is None else Path(os.path.abspath(own))  # noqa: PTH100 - follows no link
    return Folders(base=base, own=folder, shown=shown, given=given)


def _relative(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def is_revision(word: str) -> bool:
    """Return whether `word` names a commit of the repository in the current folder."""
    is_word = bool(word) and not word.startswith("-")
    return is_word and git(Path.cwd(), "rev-parse", "--verify", f"{word}^{{commit}}") is not None


def no_side(word: str) -> Fault:
    """Return the fault of a word that names nothing to compare."""
    expected = "overrides in one argument, a config file, a git revision, or a run or a sweep"
    found = "no file, folder, git revision or run of that name"
    remedy = "git fetch --deepen 1 fetches more of a shallow clone"
    if Path(word).is_dir():
        found = "a folder that is neither of a run nor of a sweep"
        remedy = "name a run in it; etlrun runs ls lists them"
    elif ".." in word and "/" not in word:
        found, remedy = "a range of git revisions", "give two revisions as two arguments"
    elif git(Path.cwd(), "rev-parse") is None:
        found, remedy = "no file, folder or run of that name, and git reads no repository here", "git status says why"
    else:
        remedy = f'quote overrides as one argument: "experiment=parallel load.prefetch=1"; {remedy}'
    return fault(word, found, expected, remedy)


def at_revision(revision: str, now: Folders, scratch: Path) -> Folders:
    """Check out the folders of `revision` to a `scratch` folder; `ConfigError` if the revision has none.

    If this repository does not contain the project's configs, those of the installation are used.
    """
    tree = Tree(top_of(Path.cwd()), revision)
    tree.write(tree.links, scratch)
    tracked = {folder: _tracked(tree, folder, scratch) for folder in now.shown}
    if now.own is not None and now.given is not None:  # a link now may have been a folder, and the reverse
        tracked[now.own] = _tracked(tree, now.given, scratch) or tracked[now.own]
    names = [name for name in tracked.values() if name]
    top = tree.top.resolve()
    here = now.own.relative_to(top).as_posix() if now.own is not None and now.own.is_relative_to(top) else ""
    if not names and not (here and git(tree.top, "rev-list", "-n", "1", "--all", "HEAD", "--", here)):
        found = "no configs" if now.own is None else f"no folder {now.shown[now.own]}"
        remedy = f"set --config-dir to {'another' if here else 'the'} config folder of this repository"
        remedy = f"{'commit it first, or ' * bool(here)}{remedy}"
        raise ConfigError([fault(revision, f"{found} in that revision", "a revision that holds configs", remedy)])
    for name in names:
        tree.write_configs(name, scratch)
    place = {folder: scratch / name for folder, name in tracked.items() if name}
    base, own = place.get(now.base, now.base), None
    shown = {base: now.shown[now.base]}
    if now.own is not None:
        own = place.get(now.own, scratch / "none")  # an empty folder: the revision has no own configs
        own.mkdir(exist_ok=True)
        shown[own] = now.shown[now.own]
    return Folders(base=base, own=own, revision=revision, shown=shown)


def _tracked(tree: Tree, folder: Path, scratch: Path) -> str | None:
    """Return the path of `folder` in the repository, links of the revision followed; None if it has no files there."""
    above = next((above for above in (folder, *folder.parents) if above.resolve() == tree.top.resolve()), None)
    end = None if above is None else Path(os.path.realpath(scratch / folder.relative_to(above)))
    if end is None or not end.is_relative_to(scratch):
        return None
    name = end.relative_to(scratch).as_posix()
    return name if name == "." or any(of.startswith(f"{name}/") for of in tree.entries) else None


@dataclass(frozen=True)
class KeyEntry:
    """A key in a file.

    Attributes:
        key: Dotted key in the composed config.
        line: Line number, from 1.
        file: Name of the file in messages.
    """

    key: str
    line: int
    file: str


@cache
def entries(text: bytes, package: str, file: str) -> tuple[KeyEntry, ...]:
    """Return the keys that a file sets, outer before inner ones; empty if it is not a mapping."""
    node = node_of(text)
    return tuple(
        KeyEntry(key, line, file)
        for key, line in _keys(node, f"{package}." if package else "")
        if not key.startswith((f"{package}.defaults".lstrip("."), "hydra"))
    )


def _keys(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted keys below a node with their lines, of lists those of a defaults list alone."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _keys(value, f"{prefix}{key.value}.")
    elif isinstance(node, yaml.SequenceNode) and prefix == "defaults.":
        for item in node.value:
            yield from _keys(item, prefix)


def located(fault: Fault, layers: Sequence[Layer], folders: Folders, words: Sequence[str]) -> Fault:
    """Return the fault with the location of its key: the last file and line that set it, or its parent.

    With configs of a user it is in one of these: no other can be mended.
    """
    found = _in_working_tree(fault, layers, folders, words)
    if found.file:
        return replace(found, file=f"{folders.prefix}{found.file}")
    return replace(found, where=f"{folders.prefix}{found.where}")


def _in_working_tree(fault: Fault, layers: Sequence[Layer], folders: Folders, words: Sequence[str]) -> Fault:
    if fault.where == "config":
        paths = folders.paths.items()
        names = [name for name, path in paths if path.is_relative_to(folders.reviewed)]
        fault = in_file(fault, {name: folders.files[name].decode(errors="replace") for name in names}, words)
        option = next(filter(folders.is_own, words), None)
        if option is not None and not fault.file:
            return of_whole(fault, folders.file_of(option), folders)
        return fault if fault.file or not words else replace(fault, where=" ".join(words))
    if fault.file:  # one that can't be loaded
        return replace(fault, file=folders.name(Path(fault.file)))
    if fault.where.startswith("/"):  # a path; keys are dotted
        return replace(fault, where=folders.name(Path(fault.where)))
    own = [layer for layer in layers if folders.own is not None and layer.path.is_relative_to(folders.own)]
    if place := place_of(fault.where, own or layers, folders):
        return replace(fault, file=place.file, line=place.line)
    return replace(fault, file=folders.name(own[-1].path)) if own else fault


def of_whole(fault: Fault, file: str, folders: Folders) -> Fault:
    """Return a fault without a key as that of a whole file, at its defaults list if it is about one."""
    lines = folders.files[file].decode(errors="replace").splitlines()
    found = (number for number, line in enumerate(lines, 1) if line.startswith("defaults"))
    return replace(fault, where="", file=file, line=next(found, None) if "defaults list" in fault.found else None)


def place_of(key: str, layers: Sequence[Layer], folders: Folders) -> KeyEntry | None:
    """Return the last entry of these files that sets a key, or its parent, or that chooses the option of its group.

    A group itself is rather chosen than set. None if none of the files has such an entry.
    """
    files = [(folders.name(layer.path), layer.package) for layer in layers]
    texts = {name: folders.files.get(name, b"") for name, _ in files}
    found = [entry for name, package in files for entry in entries(texts[name], package, name)]
    group = rf"defaults\.(override\s+)?/?{re.escape(key.partition('.')[0])}(@.*)?"
    keys = ((of, line, name) for name, _ in files for of, line in _keys(node_of(texts[name]), ""))
    chosen = [KeyEntry(key, line, name) for of, line, name in keys if re.fullmatch(group, of)]
    places = [] if "." in key else chosen
    key = re.sub(r"\[.*", "", key)
    while key and not places:
        places = [entry for entry in found if entry.key == key]
        places = places or [KeyEntry(key, 1, name) for name, package in files if package == key]
        key = key.rpartition(".")[0]
    return next(reversed(places or chosen), None)


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
        note: That a change is also one of the policy, and which one judges it; empty if it is not.
    """

    file: str = ""
    text: bytes = b""
    rules: tuple[Rule, ...] = ()
    faults: tuple[Fault, ...] = ()
    note: str = ""


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
    path = folders.reviewed / POLICY
    if not os.path.lexists(path):  # one that can't be read is there
        return None
    file = f"{folders.prefix}{folders.name(path)}"
    text = path.read_bytes() if path.is_file() else b""
    try:
        names = [str(name) for name in loaded(path, file)]
    except ConfigError as error:
        return Policy(file=file, text=text, faults=error.faults)
    lines, content = {entry.key: entry.line for entry in entries(text, "", file)}, file_of(path)
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
