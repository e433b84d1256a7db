"""Files that patterns name, here and at URLs; and shards of URLs, of which copies are fetched while they are read.

The content of objects is known by their versions. Of datasets of TFDS there are folders on this machine that look like
those of one:

DIR/mirrors/KEY/NAME/VERSION/   copies of the metadata, and links to the copies of the shards, which are fetched later
"""

import glob
import json
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from fnmatch import fnmatch, fnmatchcase
from pathlib import Path, PurePosixPath
from typing import cast

from etlrun.remote.copies import Copies, copies_of
from etlrun.remote.objects import Object, Storage, UnreachableError, file_system, list_objects
from etlrun.remote.room import unwritable
from etlrun.sources.base import versions_in
from etlrun.sources.content import known, stamp_of
from etlrun.sources.framing import AROUND, foreign, framing
from etlrun.sources.listing import listed_names
from etlrun.stages.dataset import Declared, TfdsDataset, TFRecords
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, likeliest, printable, refuse, unreadable_path
from etlrun.system.files import write_atomically
from etlrun.system.hidden import is_closed
from etlrun.system.machine import rounded
from etlrun.system.values import frozen, sha256_of

_SHARD = re.compile(r"(?P<head>.*?)(?P<number>\d+)-of-(?P<total>\d+)(?P<tail>.*)", re.DOTALL)


def tfrecord_files(dataset: TFRecords) -> tuple[dict[str, list[str]], dict[str, Object]]:
    """Return the paths of the files that the patterns of `dataset` name, by split, and the objects of those at URLs.

    Paths of objects are those of their copies, which may be fetched later.

    Raises:
        EtlrunError: A pattern names no file or not all shards.
    """
    faults, objects = list[Fault](), dict[str, Object]()
    files = named_by_split(dataset, "a pattern of TFRecord files", objects, faults)
    refuse(faults, EtlrunError)
    paths = {url: copies_of(dataset).path(of) for url, of in objects.items()}
    files = {split: [paths.get(path, path) for path in of] for split, of in files.items()}
    return files, {paths[url]: of for url, of in objects.items()}


def matched(pattern: str) -> list[str]:
    """Return the files that a pattern names, sorted; `**` stands for any folders."""
    return sorted(path for path in glob.glob(str(Path(pattern).expanduser()), recursive=True) if Path(path).is_file())  # noqa: PTH207 - patterns may be absolute


def unmatched(pattern: str) -> str:
    """Return what to do with a pattern that names no file; empty if nothing that is there explains it."""
    folder = Path(pattern)
    return f"it is a folder: name the files in it, as {folder / '*'}" if folder.expanduser().is_dir() else ""


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
        every = (f"{number:0{len(total)}}" for number in range(first, int(total) + first))
        absent = (f"{head}{number}-of-{total}{tail}" for number in every if number not in numbers)
        whole = pattern if is_remote(pattern) else str(Path(pattern).expanduser())
        if missing := [path for path in absent if fnmatchcase(path, whole)]:
            yield Fault(
                printable(pattern),
                f"{len(numbers)} of {int(total)} shards, without {listed_names(missing)}",
                "all shards that their names promise",
                "restore them, or name the others by a pattern that leaves these out, as with [0-3] for a digit",
            )


def named(
    patterns: Iterable[str], storage: Storage | None, missing: Fault, objects: dict[str, Object], faults: list[Fault]
) -> list[str]:
    """Return the paths or URLs that patterns name, each once.

    Args:
        patterns: Patterns of files, or of URLs.
        storage: How the store of URLs is reached.
        missing: The fault of a pattern that names no file, with `{}` in its place.
        objects: To which the objects of URLs are added.
        faults: To which what is wrong is added.
    """
    every = dict[str, None]()
    for pattern in patterns:
        if is_remote(pattern):
            try:
                found = {of.url: of for of in list_objects(pattern, storage or {})}
            except UnreachableError as error:
                faults += [of for of in error.faults if of not in faults]
                continue
            objects |= found
            paths = [*found]
        else:
            paths = matched(pattern)
        faults += incomplete(pattern, paths)
        if not paths:
            near = _near(pattern)
            remedy = unmatched(pattern) or (f"did you mean {near}?" if near else _CHECK)
            ends = tuple((of.replace("{}", near),) for (of,) in missing.overrides if near)
            found_now = missing.found.replace("{}", pattern, 1)
            faults.append(replace(missing, found=found_now, remedy=remedy, overrides=ends, decide=bool(near)))
        every |= dict.fromkeys(paths)
    return [*every]


def named_by_split(
    dataset: TFRecords | Table, expected: str, objects: dict[str, Object], faults: list[Fault]
) -> dict[str, list[str]]:
    """Return what the patterns of each split name, as `named` does; `expected` is a pattern of files of the dataset."""
    where = dataset.key("files")
    ends = ((f'{where}="{{}}"',),) if len(dataset.patterns) == 1 else ()
    return {
        split: named(
            patterns,
            dataset.storage,
            Fault(where, f"no file {{}} for {split}", expected, overrides=ends),
            objects,
            faults,
        )
        for split, patterns in dataset.patterns.items()
    }


_CHECK = "check the pattern; relative ones start in the folder of the command"


def _near(pattern: str) -> str:
    """Return the file on this machine whose name is closest to that of a pattern; empty if none is close."""
    folder = Path(pattern).parent
    with suppress(OSError):
        close = likeliest(Path(pattern).name, [of.name for of in folder.iterdir() if of.is_file()], cutoff=0.8)
        return (folder / close).as_posix() if close else ""
    return ""


def counts_of(paths: Sequence[str], faults: list[Fault]) -> dict[str, int]:
    """Return the number of records of each file; those of files that were read before are looked up at once."""
    with suppress(OSError):  # of which file, `_count` finds out
        known({path: stamp_of(path) for path in paths}, framing)
    return {path: _count(path, faults) for path in paths}


def _count(path: str, faults: list[Fault]) -> int:
    try:
        held = known({path: stamp_of(path)}, framing)[path]
    except OSError as error:
        faults.append(unreadable_path(path, error, "a TFRecord file"))
        return 0
    if held is None:
        name, remedy = Path(path).name, "write or copy it again"
        found, expected = "a TFRecord file that is truncated or damaged", "complete records"
        if ".tfrec" not in name:
            found, expected = "TFRecords in a file of another name", "a file named *.tfrecord*"
            remedy = f"rename it, as to {name}.tfrecord"
        faults.append(foreign(path) or Fault(path, found, expected, remedy))
    return len(held or b"") // AROUND


def known_counts(objects: Mapping[str, Object], copies: Copies) -> dict[str, int]:
    """Return the number of records of those objects whose records were counted before, by the keys of `objects`."""
    found = {}
    for key, of in objects.items():
        with suppress(OSError, ValueError):
            found[key] = int(_place(of, copies).read_text())
    return found


def counts_of_objects(objects: Mapping[str, Object], copies: Copies, faults: list[Fault]) -> dict[str, int]:
    """Return the records of each object by the keys of `objects`, fetched if unknown; `EtlrunError` if that fails."""
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
    with closing(copies.ahead(objects)) as ahead:
        for of in objects:
            yield of, ahead.take(of)
            ahead.leave(of)


def _place(of: Object, copies: Copies) -> Path:
    return copies.folder.parent / "counted" / of.key


_INFO = "dataset_info.json"


@frozen
class Mirror:
    """A version of a dataset at a URL.

    Attributes:
        url: URL of the version.
        folder: The folder on this machine.
        objects: Its files by name.
    """

    url: str
    folder: Path
    objects: Mapping[str, Object]


def mirror_of(dataset: TfdsDataset) -> Mirror:
    """Return the newest version that matches, as it was when it was first asked for; its metadata are fetched.

    Raises:
        EtlrunError: There is none, or its files can't be listed or read.
    """
    copies = copies_of(dataset)
    url, objects = _found(dataset.urls[0], dataset.name, dataset.version, dataset.storage or {})
    parts = [objects[name].key for name in sorted(objects)]
    key = sha256_of(json.dumps(parts), 20)
    folder = copies.folder.absolute().parent / "mirrors" / key / dataset.name / PurePosixPath(url).name
    if not (folder / _INFO).is_file():
        try:
            described = _described(objects)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with closing(copies.ahead(described)) as ahead, tempfile.TemporaryDirectory(dir=folder.parent) as made:
                staged = Path(made) / folder.name
                staged.mkdir()
                for name, of in objects.items():
                    if of in described:
                        shutil.copyfile(ahead.take(of), staged / name)
                        ahead.leave(of)
                    else:
                        (staged / name).symlink_to(Path(copies.path(of)).absolute())
                try:
                    staged.rename(folder)
                except OSError:
                    if not (folder / _INFO).is_file():  # that another process has made
                        raise
        except OSError as error:
            raise unwritable(error, folder, sum(of.bytes for of in _described(objects)), url) from error
    return Mirror(url=url, folder=folder, objects=objects)


def _found(home: str, name: str, version: str | None, store: Storage) -> tuple[str, dict[str, Object]]:
    family = f"{home.rstrip('/')}/{name}"
    known = versions_in(of.url.rpartition("/")[0] for of in list_objects(f"{family}/*/{_INFO}", store))
    fitting = [url for name, url in known.items() if fnmatch(name, version or "*")]
    if not fitting:
        if known:
            found, remedy = f"{version}, which is not in {family}", f"set dataset.version={[*known][-1]}, or null for"
            expected = f"a version that is there: {', '.join(known)}"
            raise WorldError(TfdsDataset.key("version"), found, expected, f"{remedy} the newest")
        try:
            file_system(family, store).ls(family, detail=False)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise UnreachableError.of(family, error) from error
        raise WorldError(
            TfdsDataset.key("data_dir"),
            f"no {family}/VERSION/{_INFO}",
            f"the folder above that of {name}, as TFDS and etlrun data prepare write it",
            "check dataset.data_dir and dataset.name",
        )
    url = fitting[-1]
    return url, {of.name: of for of in list_objects(f"{url}/*", store)}


def _described(objects: Mapping[str, Object]) -> list[Object]:
    return [of for name, of in objects.items() if name.endswith((".json", ".txt"))]


def note_of_fetching(dataset: Declared) -> str | None:
    """Return the note on the bytes that a run has to fetch from URLs, and those that are here, or why it is not known.

    None if what the store says of the dataset is not what it holds, which the run says.
    """
    if is_closed(dataset.storage):
        return "to fetch: unknown, since only a run reads the variables of dataset.storage"
    try:
        objects = (
            [*dict.fromkeys(tfrecord_files(dataset)[1].values())]
            if isinstance(dataset, TFRecords)
            else [of for name, of in mirror_of(cast("TfdsDataset", dataset)).objects.items() if ".tfrecord" in name]
        )
    except EtlrunError as error:
        fault = error.faults[0]
        return f"to fetch: unknown, since a run would fail: {fault.where}: found {fault.found}"
    except (OSError, ValueError):
        return None
    missing = copies_of(dataset).missing(objects)
    whole, left = sum(of.bytes for of in objects), sum(of.bytes for of in missing)
    return (
        f"to fetch: at most {rounded(left)} of {rounded(whole)}, in {len(missing):,} of {len(objects):,} shards"
        if missing
        else f"to fetch: nothing, all of {rounded(whole)} is here"
    )
