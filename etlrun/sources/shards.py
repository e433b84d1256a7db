"""Files that patterns name, on this machine and at URLs: those of a split, missing shards, and numbers of records."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from etlrun.remote.copies import Copies, copies_of
from etlrun.remote.objects import Object, Storage, UnreachableError, list_objects
from etlrun.sources.content import known, stamp_of
from etlrun.sources.framing import AROUND, foreign, framing
from etlrun.stages.dataset import TFRecords
from etlrun.stages.paths import is_remote
from etlrun.system.errors import EtlrunError, Fault, printable, unreadable_path
from etlrun.system.files import write_atomically

_SHARD = re.compile(r"(?P<head>.*?)(?P<number>\d+)-of-(?P<total>\d+)(?P<tail>.*)", re.DOTALL)
_OF_SHARD = re.compile(r"-\d+-of-\d+$")
_NAMED = 5


def tfrecord_files(dataset: TFRecords) -> tuple[dict[str, list[str]], dict[str, Object]]:
    """Return the paths of the files that the patterns of `dataset` name, by split, and the objects of those at URLs.

    Paths of objects are those of their copies, which may be fetched later.

    Raises:
        EtlrunError: A pattern names no file or not all shards.
    """
    faults: list[Fault] = []
    objects: dict[str, Object] = {}
    files: dict[str, list[str]] = {}
    for split, patterns in dataset.patterns.items():
        where, found = dataset.key("files"), f"no file {{}} for {split}"
        missing = Fault(where, found, "a pattern of TFRecord files")
        files[split] = named(patterns, dataset.storage, missing, objects, faults)
    if faults:
        raise EtlrunError(faults)
    paths = {url: copies_of(dataset).path(of) for url, of in objects.items()}
    files = {split: [paths.get(path, path) for path in of] for split, of in files.items()}
    return files, {paths[url]: of for url, of in objects.items()}


def matched(pattern: str) -> list[str]:
    """Return the files that a pattern names, sorted; `**` stands for any folders."""
    return sorted(path for path in glob.glob(str(Path(pattern).expanduser()), recursive=True) if Path(path).is_file())  # noqa: PTH207 - patterns may be absolute


def unmatched(pattern: str) -> str:
    """Return what to do with a pattern that names no file; empty if neither a folder nor brackets explain that."""
    escaped = re.sub(r"\[", "[[]", pattern)
    if "[" in pattern and matched(escaped):
        return f"brackets in a pattern are a set of characters: write [[] for a [, as in {escaped}"
    if Path(pattern).expanduser().is_dir():
        ends = [_OF_SHARD.sub("*", Path(path).suffix) for path in matched(str(Path(pattern) / "**"))]
        end = max(ends, key=ends.count, default="")
        return f"it is a folder: name the files in it, as {Path(pattern) / '**' / f'*{end}'}"
    return ""


def incomplete(pattern: str, paths: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of files that are named as some `of` a number of shards, as `train-00001-of-00005`.

    Shards that the pattern leaves out are none.
    """
    found: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in paths:
        folder, name = os.path.split(path)
        if shard := _SHARD.fullmatch(name):
            found[os.path.join(folder, shard["head"]), shard["tail"]][shard["total"]].add(shard["number"])  # noqa: PTH118
    for (head, tail), totals in found.items():
        if len(totals) > 1:
            named = " and ".join(f"{len(numbers)} of {total}" for total, numbers in sorted(totals.items()))
            yield Fault(
                printable(f"{head}*{tail}"),
                f"shards of several sets: {named}",
                "shards of one set, with each example once",
                f"name one of them, as {head}*-of-{max(totals)}{tail}",
            )
            continue
        ((total, numbers),) = totals.items()
        first = 1 if total in numbers else 0  # some programs begin with 1
        every = [f"{number:0{len(total)}}" for number in range(first, int(total) + first)]
        missing = [f"{head}{number}-of-{total}{tail}" for number in every if number not in numbers]
        missing = [
            path
            for path in missing
            if fnmatchcase(path, pattern if is_remote(pattern) else str(Path(pattern).expanduser()))
        ]
        if missing:
            named = ", ".join(map(printable, missing[:_NAMED])) + (", …" if missing[_NAMED:] else "")
            yield Fault(
                printable(pattern),
                f"{len(numbers)} of {int(total)} shards, without {named}",
                "all shards that their names promise",
                "restore them, or name the others by a pattern that leaves these out, as with [0-3] for a digit",
            )


def named(
    patterns: Iterable[str],
    storage: Storage | None,
    missing: Fault,
    objects: dict[str, Object],
    faults: list[Fault],
) -> list[str]:
    """Return the paths or URLs that patterns name, each once.

    Args:
        patterns: Patterns of files, or of URLs.
        storage: How the store of URLs is reached.
        missing: The fault of a pattern that names no file, with `{}` in its place.
        objects: To which the objects of URLs are added.
        faults: To which what is wrong is added.
    """
    return [*dict.fromkeys(path for of in patterns for path in _named(of, storage, missing, objects, faults))]


def _named(
    pattern: str, storage: Storage | None, missing: Fault, objects: dict[str, Object], faults: list[Fault]
) -> list[str]:
    if is_remote(pattern):
        try:
            found = {of.url: of for of in list_objects(pattern, storage or {})}
        except UnreachableError as error:
            faults += [of for of in error.faults if of not in faults]
            return []
        objects |= found
        paths = [*found]
    else:
        paths = matched(pattern)
    faults += incomplete(pattern, paths)
    if not paths:
        faults.append(
            Fault(
                missing.where,
                missing.found.replace("{}", pattern, 1),
                missing.expected,
                unmatched(pattern) or "check the pattern; relative ones start in the folder of the command",
            )
        )
    return paths


def counts_of(paths: Sequence[str], faults: list[Fault]) -> dict[str, int]:
    """Return the number of records of each file; those of files that were read before are looked up at once."""
    with contextlib.suppress(OSError):  # of which file, `_count` finds out
        known({path: stamp_of(path) for path in paths}, framing)
    return {path: _count(path, faults) for path in paths}


def _count(path: str, faults: list[Fault]) -> int:
    try:
        held = known({path: stamp_of(path)}, framing)[path]
    except OSError as error:
        faults.append(unreadable_path(path, error, "a TFRecord file"))
        return 0
    if held is None:
        faults.append(foreign(path) or _unfit(path))
        return 0
    return len(held) // AROUND


def _unfit(path: str) -> Fault:
    """Return the fault of a file that begins like TFRecords."""
    name = Path(path).name
    if ".tfrec" not in name:
        found, expected = "TFRecords in a file of another name", "a file named *.tfrecord*"
        return Fault(path, found, expected, f"rename it, as to {name}.tfrecord")
    found, expected = "a TFRecord file that is truncated or damaged", "complete records"
    return Fault(path, found, expected, "write or copy it again")


def known_counts(objects: Mapping[str, Object], copies: Copies) -> dict[str, int]:
    """Return the number of records of those objects whose records were counted before, by the keys of `objects`."""
    found = {}
    for key, of in objects.items():
        with contextlib.suppress(OSError, ValueError):
            found[key] = int(_place(of, copies).read_text())
    return found


def counts_of_objects(objects: Mapping[str, Object], copies: Copies, faults: list[Fault]) -> dict[str, int]:
    """Return the number of records of each object, by the keys of `objects`; those of unknown ones are fetched.

    Raises:
        EtlrunError: One can't be fetched.
    """
    found = known_counts(objects, copies)
    unknown = {key: of for key, of in objects.items() if key not in found}
    for of, path in _fetched([*dict.fromkeys(unknown.values())], copies):
        own: list[Fault] = []
        count = _count(path, own)
        faults += (replace(fault, where=of.url) for fault in own)
        found |= dict.fromkeys((key for key, other in unknown.items() if other == of), count)
        if not own:
            place = _place(of, copies)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, str(count))
    return found


def _fetched(objects: Sequence[Object], copies: Copies) -> Iterator[tuple[Object, str]]:
    """Yield objects and the paths of their copies, which stay if all are kept."""
    if copies.keep_bytes is None:
        yield from zip(objects, copies.all(objects), strict=True)
        return
    with contextlib.closing(copies.ahead(objects)) as ahead:
        for of in objects:
            yield of, ahead.take(of)
            ahead.leave(of)


def _place(of: Object, copies: Copies) -> Path:
    """Return the path of the file with the number of records of an object."""
    return copies.folder.parent / "counted" / of.key
