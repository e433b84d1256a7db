"""Config folders on one side of a review, of the working tree or of a git revision, and the lines of their files."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import yaml

from etlrun.config import request as requests
from etlrun.config.composer import in_file
from etlrun.config.files import Layer, config_files, node_of
from etlrun.config.folders import POLICY, config_dir, own_folder
from etlrun.review.git import Scratch, Tree, git, top_of
from etlrun.system.errors import ConfigError, Fault, fault, of_file, printable
from etlrun.system.values import frozen


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

    def file_of(self, option: str) -> str:
        """Return the name of the file of an option to review, such as `dataset=pets`, whether there is one or not."""
        return Path(self.shown[self.own or self.base], f"{option.replace('=', '/')}.yaml").as_posix()

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

    @property
    def policy(self) -> Path | None:
        """The policy's file; None if there is none. One that can't be read is there."""
        path = (self.own or self.base) / POLICY
        return path if os.path.lexists(path) else None

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
        where="--config-dir",
        found=f"no experiment and no option of a group {where}",
        expected="a folder of configs, such as experiment/NAME.yaml in it",
        remedy="name the folder that holds the folders of groups",
    )


def working_tree(own: str | None) -> Folders:
    """Return the folders of the working tree.

    Raises:
        ConfigError: The user's own does not exist, or has links that leave its repository, or, without one, the folder
            in which it is: a review, which others may ask for, shows nothing of what these lead to.
    """
    base, folder = config_dir(), None if own is None else own_folder(own)
    if folder is not None and (faults := [*_leaving(folder)]):
        raise ConfigError(faults)
    shown = {path: _relative(path) for path in (folder, base) if path is not None}
    given = None if own is None else Path(os.path.abspath(own))  # noqa: PTH100 - follows no link
    return Folders(base=base, own=folder, shown=shown, given=given)


def _leaving(folder: Path) -> Iterator[Fault]:
    top = top_of(folder)
    inside = top.resolve() if top.is_absolute() else folder.parent
    for path in (*config_files(folder), *config_files(folder, ".yml"), folder / POLICY):
        if not (end := Path(os.path.realpath(path))).is_relative_to(inside):
            found = printable(f"a link to {end}, which leaves {inside}")
            yield of_file(_relative(path), found, "a link within that folder", "copy the file to which it leads")


def _relative(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def is_revision(word: str) -> bool:
    """Return whether `word` names a commit of the repository in the current folder."""
    return (
        bool(word)
        and not word.startswith("-")
        and git(Path.cwd(), "rev-parse", "--verify", f"{word}^{{commit}}") is not None
    )


def _ends(word: str) -> str:
    """Return both revisions of a range `A..B` or `A...B` as a shell takes them; empty if it is none."""
    first, dots, last = (of or "HEAD" for of in re.split(r"(\.{2,3})|$", word, maxsplit=1)[:3])
    if not dots.startswith("..") or not (is_revision(first) and is_revision(last)):
        return ""
    return f"{first} {last}" if dots == ".." else f"$(git merge-base {first} {last}) {last}"


def _is_cut_off(word: str) -> bool:
    """Return whether `word` names an ancestor of a commit that this clone has, and the clone is a shallow one."""
    above = re.split(r"[~^]", word, maxsplit=1)[0]
    is_shallow = (git(Path.cwd(), "rev-parse", "--is-shallow-repository") or b"").strip() == b"true"
    return is_shallow and above != word and is_revision(above)


def no_side(word: str) -> Fault:
    """Return the fault of a word that names nothing to compare; it says why git knows no revision at all."""
    here, found = Path.cwd(), "neither overrides, nor a file, a folder or a git revision of that name"
    remedy = 'quote overrides as one argument: "experiment=parallel load.prefetch=1"'
    if Path(word).is_dir():
        found = "a folder that is neither of a run nor of a sweep"
        remedy = "name a run in it; etlrun runs ls lists them"
    elif shutil.which("git") is None:
        found, remedy = f"{found}, since git is not installed", f"install git; {remedy}"
    elif git(here, "rev-parse", "--git-dir") is None:
        found = f"{found}, since git reads no repository here"
        remedy = f"run it in a repository (`git status` says why this is none); {remedy}"
    elif git(here, "rev-parse", "--verify", "HEAD") is None:
        found, remedy = f"{found}, since the repository has no commit", f"commit the configs first; {remedy}"
    elif both := _ends(word):
        found, remedy = "a range of revisions", f"give both revisions: {both}"
    elif _is_cut_off(word):
        found = f"{found}, since the clone is shallow"
        remedy = "fetch more commits, such as with git fetch --deepen 1"
    expected = "overrides in one argument, a config file, the folder of a run or of a sweep, or a git revision"
    return fault(word, found, expected, remedy)


@contextmanager
def at_revision(revision: str, now: Folders) -> Iterator[Folders]:
    """Check out the folders of `revision` to a temporary folder; `ConfigError` if the revision has none.

    If this repository does not contain the project's configs, those of the installation are used.
    """
    tree = Tree(top_of(Path.cwd()), revision)
    tracked = {folder: _tracked(tree, folder) for folder in now.shown}
    if now.own is not None and now.given is not None:  # a link now may have been a folder, and the reverse
        tracked[now.own] = _tracked(tree, now.given) or tracked[now.own]
    names = [name for name in tracked.values() if name]
    if not names and not _ever_tracked(tree.top, now.own):
        found = "no configs" if now.own is None else f"no folder {now.shown[now.own]}"
        is_here = now.own is not None and now.own.is_relative_to(tree.top.resolve())
        remedy = f"set --config-dir to {'another' if is_here else 'the'} config folder of this repository"
        remedy = f"{'commit it first, or ' * is_here}{remedy}"
        raise ConfigError([fault(revision, f"{found} in that revision", "a revision that holds configs", remedy)])
    scratch = Scratch()
    try:
        for name in names:
            tree.write_configs(name, scratch.path)
        place = {folder: scratch.path / name for folder, name in tracked.items() if name}
        base, own = place.get(now.base, now.base), None
        shown = {base: now.shown[now.base]}
        if now.own is not None:
            own = place.get(now.own, scratch.path / "none")  # an empty folder: the revision has no own configs
            own.mkdir(exist_ok=True)
            shown[own] = now.shown[now.own]
        yield Folders(base=base, own=own, revision=revision, shown=shown)
    finally:
        scratch.remove()


def _ever_tracked(top: Path, folder: Path | None) -> bool:
    """Return whether any revision has files in `folder`."""
    if folder is None or not folder.is_relative_to(top.resolve()):
        return False
    return bool(git(top, "rev-list", "-n", "1", "--all", "HEAD", "--", folder.relative_to(top.resolve()).as_posix()))


def _tracked(tree: Tree, folder: Path) -> str | None:
    """Return the path of `folder` in the repository; None if the revision has no files there."""
    above = next((above for above in (folder, *folder.parents) if above.resolve() == tree.top.resolve()), None)
    return None if above is None else tree.folder(folder.relative_to(above).as_posix())


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
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _keys(value, f"{prefix}{key.value}.")


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
        return _without_key(fault, folders, words)
    if fault.file:  # one that can't be loaded
        return replace(fault, file=folders.name(Path(fault.file)))
    if fault.where.startswith("/"):  # a path; keys are dotted
        return replace(fault, where=folders.name(Path(fault.where)))
    own = [layer for layer in layers if folders.own is not None and layer.path.is_relative_to(folders.own)]
    place = place_of(fault.where, own or layers, folders) or chosen_in(own, fault.where.partition(".")[0], folders)
    if place is not None:
        return replace(fault, file=place.file, line=place.line)
    return replace(fault, file=folders.name(own[-1].path)) if own else fault


def _without_key(fault: Fault, folders: Folders, words: Sequence[str]) -> Fault:
    names = [name for name, path in folders.paths.items() if folders.own is None or path.is_relative_to(folders.own)]
    fault = in_file(fault, {name: folders.files[name].decode(errors="replace") for name in names}, words)
    option = next(filter(folders.is_own, words), None)
    if option is not None and not fault.file:
        return of_whole(fault, folders.file_of(option), folders)
    return fault if fault.file or not words else replace(fault, where=" ".join(words))


def of_whole(fault: Fault, file: str, folders: Folders) -> Fault:
    """Return a fault without a key as that of a whole file, at its defaults list if it is about one."""
    lines = folders.files[file].decode(errors="replace").splitlines()
    found = (number for number, line in enumerate(lines, 1) if line.startswith("defaults"))
    return replace(fault, where="", file=file, line=next(found, None) if "defaults list" in fault.found else None)


def place_of(key: str, layers: Sequence[Layer], folders: Folders) -> KeyEntry | None:
    """Return the last entry of these files that sets a key, or its parent; None if none of them does."""
    found = [
        entry
        for layer in layers
        for entry in entries(folders.files.get(folders.name(layer.path), b""), layer.package, folders.name(layer.path))
    ]
    key = re.sub(r"\[.*", "", key)
    while key:
        places = [entry for entry in found if entry.key == key]
        places = places or [KeyEntry(key, 1, folders.name(layer.path)) for layer in layers if layer.package == key]
        if places:
            return places[-1]
        key = key.rpartition(".")[0]
    return None


def chosen_in(layers: Sequence[Layer], group: str, folders: Folders) -> KeyEntry | None:
    """Return the last entry of the defaults lists of these files that chooses an option of a group."""
    found = None
    for layer in layers:
        name = folders.name(layer.path)
        node = node_of(folders.files.get(name, b""))
        top = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
        items = top["defaults"].value if isinstance(top.get("defaults"), yaml.SequenceNode) else []
        for key, _ in (pair for item in items if isinstance(item, yaml.MappingNode) for pair in item.value):
            if re.fullmatch(rf"(override\s+)?/?{re.escape(group)}(@.*)?", str(key.value)):
                found = KeyEntry(group, key.start_mark.line + 1, name)
    return found
