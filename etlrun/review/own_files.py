"""Faults of config files as such: those that no config uses, values that never count, a missing comment."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from etlrun.config.composer import MISSING
from etlrun.config.files import config_files, unloadable
from etlrun.review.folders import Entry, Folders, entries
from etlrun.review.sides import DEFAULT, Variant, hidden
from etlrun.system.errors import Fault, of_file


def broken(path: Path, name: str) -> Fault | None:
    """Return the fault of a file that cannot be loaded; None if it can."""
    if path.as_posix().isprintable():
        return unloadable(path, name)
    return of_file(name, "a name with unprintable characters", "a printable name", "rename it")


def unreached(
    configs: Mapping[tuple[str, ...], Variant], folders: Folders, own: list[str], unloadable: Collection[str]
) -> Iterator[Fault]:
    """Yield the faults of files that no config uses; those that are `unloadable` may use what they name."""
    reached = {name for variant in configs.values() for name in variant.files}
    shown = Path(folders.shown[folders.own or folders.base])
    names = {name: Path(name).relative_to(shown) for name in own} if folders.own is not None else {}
    concealed = [name for name, inner in names.items() if (folders.base / inner).is_file()]
    yield from map(hidden, concealed)
    reached |= {*concealed, (shown / "experiment" / f"{DEFAULT}.yaml").as_posix()}
    reached |= {name for name, inner in names.items() if inner.parts[0] == "hydra"}
    options = [word.removeprefix("--config-name=").replace("=", "/") for words in configs for word in words]
    reached |= {f"{(shown / option).as_posix()}.yaml" for option in options}
    named = b"\n".join(folders.files[name] for name in unloadable)
    for name in own:
        if name not in reached and name not in unloadable and os.fsencode(Path(name).stem) not in named:
            remedy = "move it to the folder of its group, or delete it"
            yield of_file(name, "a file that no config uses", "an option of a group in a defaults list", remedy)


def other_suffixes(folders: Folders) -> Iterator[Fault]:
    """Yield the faults of files that look like configs but have another suffix."""
    for path in config_files(folders.own or folders.base, ".yml"):
        yield of_file(folders.name(path), "the suffix .yml", ".yaml, the only suffix that Hydra reads")


def never_counting(configs: Iterable[Variant], folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of values that a later file overrides in every config."""
    known: dict[tuple[str, str], list[Entry]] = {}
    counting: set[Entry] = set()
    beaten: dict[Entry, Entry] = {}
    for variant in configs:
        last: dict[str, Entry] = {}
        for layer in variant.layers:
            name = folders.name(layer.path)
            if (name, layer.package) not in known:
                known[name, layer.package] = _values(folders.files, name, layer.package)
            for entry in known[name, layer.package]:
                if entry.key in last:
                    beaten[last[entry.key]] = entry
                last[entry.key] = entry
        counting |= set(last.values())
    for entry, by in beaten.items():
        if entry not in counting and entry.file in own:
            found, remedy = "a value that has no effect", "remove it, or put `_self_` last in its defaults list"
            expected = f"a value that {by.file}:{by.line} does not override in every config"
            yield of_file(entry.file, found, expected, remedy, line=entry.line, key=entry.key)


def _values(files: Mapping[str, bytes], name: str, package: str) -> list[Entry]:
    """Return the innermost keys of a file, without mandatory values (`???`)."""
    found = entries(files.get(name, b""), package, name)
    lines = files.get(name, b"").decode(errors="replace").splitlines()
    outer = {entry.key.rpartition(".")[0] for entry in found}
    return [entry for entry in found if entry.key not in outer and MISSING not in lines[entry.line - 1]]


def without_header(folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of experiments that do not begin with a comment."""
    for name in own:
        if Path(name).parent.name != "experiment":
            continue
        head = []
        for line in folders.files[name].decode(errors="replace").splitlines():
            if not line.startswith("#"):
                break
            head.append(line)
        if not [line for line in head if line.strip("# ") and not line.startswith("# @package")]:
            expected = "a comment with the purpose, the command and the cost of the experiment"
            yield of_file(name, "no comment at the top", expected, "add it below `# @package _global_`", line=1)
