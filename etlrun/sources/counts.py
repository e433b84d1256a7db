"""Numbers of records in TFRecord files, on this machine and at URLs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from etlrun.remote.copies import Copies
from etlrun.remote.objects import Object
from etlrun.sources.framing import AROUND, foreign, framing
from etlrun.sources.records import known, stamp_of
from etlrun.system.errors import Fault, unreadable_path
from etlrun.system.files import write_atomically


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
