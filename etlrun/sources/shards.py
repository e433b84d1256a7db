"""Files that a pattern names: shards that are missing among them, and patterns that mean something else."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from etlrun.stages.paths import is_remote
from etlrun.system.errors import Fault, printable

_SHARD = re.compile(r"(?P<head>.*?)(?P<number>\d+)-of-(?P<total>\d+)(?P<tail>.*)", re.DOTALL)
_OF_SHARD = re.compile(r"-\d+-of-\d+$")
_NAMED = 5


def matched(pattern: str) -> list[str]:
    """Return the files that a pattern names, sorted; `**` stands for any folders."""
    return sorted(path for path in glob(str(Path(pattern).expanduser()), recursive=True) if Path(path).is_file())  # noqa: PTH207 - patterns may be absolute


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
