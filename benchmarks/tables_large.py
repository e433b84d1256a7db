"""A table of many rows: the memory of reading and of passes, and the first batch. Used by tables.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.rows import TARGET, by_etlrun, plan_of

NUMBERS, TEXTS, AT_ONCE = 15, 4, 200_000
BAR_BYTES = 1.5e9
_APART_S = 0.05
LIMITED_ROWS = 2_000_000
"""Rows of a pass in random order that are read."""


def write(path: Path, rows: int) -> None:
    """Write a table of 15 numbers, 4 texts, and a target, in parts that fit into memory."""
    random = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(2_000)])
    writer: pyarrow.parquet.ParquetWriter | None = None
    for first in range(0, rows, AT_ONCE):
        count = min(AT_ONCE, rows - first)
        columns: dict[str, Any] = {f"n{number}": random.normal(size=count) for number in range(NUMBERS)}
        columns |= {f"t{number}": random.choice(words, count) for number in range(TEXTS)}
        part = pa.table({**columns, TARGET: random.normal(size=count)})
        writer = writer or pyarrow.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


class Memory:
    """Peaks of the memory of this process, sampled in a thread: with mapped files, and without them."""

    def __init__(self) -> None:
        """Begin to sample."""
        self._peak_bytes, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(_APART_S):
            self._peak_bytes = max(self._peak_bytes, _status("RssAnon"))

    def peaks(self) -> dict[str, int]:
        """End, and return both in bytes."""
        self._ended.set()
        self._thread.join()
        return {"whole": _status("VmHWM"), "own": self._peak_bytes}


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def large(folder: Path, rows: int) -> str:
    """The table of both processes."""
    path = folder / "large.parquet"
    write(path, rows)
    lines = [
        "| process | s | peak memory | bar | with pages of mapped files, which the system takes back |",
        "|---|---|---|---|---|",
    ]
    for name in ("reading", "pass"):
        command = [sys.executable, "-m", "benchmarks.tables_large", name, str(path)]
        of = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        own, whole, bar = (f"{size / 1e6:,.0f} MB" for size in (of["own"], of["whole"], BAR_BYTES))
        lines.append(f"| {of['name']} | {of['s']:.1f} | {own} | at most {bar} | {whole} |")
        lines += [f"| its first batch | {of['first_s']:.2f} | | at most 1 s | |"] if "first_s" in of else []
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the table, or a pass over its kept columns; print seconds and sizes as JSON."""
    name, path = sys.argv[1], Path(sys.argv[2])
    memory, began_s = Memory(), time.perf_counter()
    plan = plan_of(path, "transform.columns=auto")
    if name == "reading":
        print(json.dumps({"name": "reading and fitting", "s": time.perf_counter() - began_s, **memory.peaks()}))
        return
    batches = by_etlrun(plan)
    began_s, first_s, rows = time.perf_counter(), 0.0, 0
    for _inputs, target in batches:
        first_s, rows = first_s or time.perf_counter() - began_s, rows + len(target)
        if rows >= LIMITED_ROWS:
            break
    found = {
        "name": f"{rows:,} rows of a pass",
        "s": time.perf_counter() - began_s,
        "first_s": first_s,
        **memory.peaks(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
