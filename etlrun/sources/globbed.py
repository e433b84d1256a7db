"""TFRecord files that a pattern names, with the number of records in each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from etlrun.sources.foreign import foreign
from etlrun.sources.framing import AROUND, framing
from etlrun.sources.records import known, stamp_of
from etlrun.sources.shards import incomplete, matched, unmatched
from etlrun.stages.dataset import TFRecords
from etlrun.system.errors import EtlrunError, Fault, unreadable_path


def files_of(dataset: TFRecords) -> dict[str, dict[str, int]]:
    """Return the number of records of each file that the patterns of `dataset` name, by split.

    Raises:
        EtlrunError: A pattern names no file or not all shards; or a file can't be read, or is no complete TFRecord
            file.
    """
    faults: list[Fault] = []
    found: dict[str, dict[str, int]] = {}
    for split, pattern in dataset.patterns.items():
        paths = matched(pattern)
        faults += incomplete(pattern, paths)
        if not paths:
            faults.append(
                Fault(
                    where=dataset.key("files"),
                    found=f"no file {pattern} for {split}",
                    expected="a pattern of TFRecord files",
                    remedy=unmatched(pattern) or "check the pattern; relative ones start in the folder of the command",
                )
            )
            continue
        found[split] = _counts(paths, faults)
    if faults:
        raise EtlrunError(faults)
    return found


def _counts(paths: Sequence[str], faults: list[Fault]) -> dict[str, int]:
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
        return Fault(where=path, found=found, expected=expected, remedy=f"rename it, as to {name}.tfrecord")
    found, expected = "a TFRecord file that is truncated or damaged", "complete records"
    return Fault(where=path, found=found, expected=expected, remedy="write or copy it again")
