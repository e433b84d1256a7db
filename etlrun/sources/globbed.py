"""TFRecord files that a pattern names, with the number of records in each."""

from __future__ import annotations

from glob import glob
from pathlib import Path

from etlrun.errors import EtlrunError, Fault, unreadable_path
from etlrun.sources.content import FOOT, HEAD, framing
from etlrun.sources.records import known, stamp_of
from etlrun.stages.dataset import TFRecords


def files_of(dataset: TFRecords) -> dict[str, dict[str, int]]:
    """Return the number of records of each file that the patterns of `dataset` name, by split.

    Raises:
        EtlrunError: A pattern names no file, or a file can't be read or isn't a complete TFRecord file.
    """
    faults: list[Fault] = []
    found: dict[str, dict[str, int]] = {}
    for split, pattern in dataset.patterns.items():
        paths = sorted(path for path in glob(str(Path(pattern).expanduser()), recursive=True) if Path(path).is_file())  # noqa: PTH207 - patterns may be absolute
        if not paths:
            faults.append(
                Fault(
                    where=dataset.key("files"),
                    found=f"no file {pattern} for {split}",
                    expected="a pattern of TFRecord files",
                    remedy="check the pattern; relative ones start in the folder of the command",
                )
            )
            continue
        found[split] = {}
        for path in paths:
            count = _count(path, faults)
            found[split][path] = count
    if faults:
        raise EtlrunError(faults)
    return found


def _count(path: str, faults: list[Fault]) -> int:
    try:
        held = known({path: stamp_of(path)}, framing)[path]
    except OSError as error:
        faults.append(unreadable_path(path, error, "a TFRecord file"))
        return 0
    if held is None:
        found, expected = (
            "a file that is truncated, damaged or no TFRecord file",
            "complete records without compression, in a file named *.tfrecord*",
        )
        faults.append(Fault(where=path, found=found, expected=expected, remedy="write it again"))
        return 0
    return len(held) // (HEAD + FOOT)
