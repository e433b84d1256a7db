"""Many texts: the time and the memory of their first plan, which reads, keeps and fits them. Used by text.py.

python -m benchmarks.text_many FILE KEPT
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.rows import by_etlrun
from benchmarks.tables_large import Memory
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.planning.plan import Plan
from etlrun.stages import STAGES

KINDS, AT_ONCE = ("parquet", "jsonl"), 20_000


def write(folder: Path, reviews: Path, texts: int) -> None:
    """Write so many reviews in both forms: those of a file, again and again, with their words in random order."""
    rows = [json.loads(line) for line in reviews.read_text().splitlines()]
    words, random = [np.array(row["review"].split(), object) for row in rows], np.random.default_rng(0)
    schema = pa.schema([("review", pa.string()), ("score", pa.string())])
    with (
        pyarrow.parquet.ParquetWriter(folder / f"{texts}.parquet", schema) as writer,
        (folder / f"{texts}.jsonl").open("w") as lines,
    ):
        for first in range(0, texts, AT_ONCE):
            places = [number % len(rows) for number in range(first, min(first + AT_ONCE, texts))]
            part = {
                "review": [" ".join(random.permutation(words[place]).tolist()) for place in places],
                "score": [rows[place]["score"] for place in places],
            }
            writer.write_table(pa.table(part, schema))
            pairs = zip(*part.values(), strict=True)
            lines.writelines(json.dumps({"review": text, "score": score}) + "\n" for text, score in pairs)


def plan_of(path: Path, kept: Path, *overrides: str) -> Plan:
    """The plan of `experiment=text` that reads all texts of a file and trains nothing."""
    words = ["experiment=text", f"dataset.files={path}", "dataset.target={score: class}", "dataset.split=train"]
    words += ["dataset.eval_split=null", f"dataset.dir={kept}", "trainer=drain"]
    return resolve(Request(overrides=[*words, *overrides]), STAGES).plan


def many(folder: Path, reviews: Path, texts: int) -> str:
    """The table of a tenth of the texts and of all."""
    lines = [
        "| texts | file | first plan s | later, to a batch, s | peak memory | with mapped files | bytes a text |",
        "|---|---|---|---|---|---|---|",
    ]
    less = dict.fromkeys(KINDS, 0)
    for count in (texts // 10, texts):
        write(folder, reviews, count)
        for kind in KINDS:
            command = [
                sys.executable,
                "-m",
                "benchmarks.text_many",
                f"{folder / str(count)}.{kind}",
                f"{folder / kind}",
            ]
            first, later = (
                json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
                for _ in range(2)
            )
            more = f"{(first['own'] - less[kind]) / (count - texts // 10):.0f}" if count == texts else ""
            less[kind] = first["own"]
            own, whole = (f"{first[name] / 1e6:,.0f} MB" for name in ("own", "whole"))
            s = f"{first['plan_s']:.0f} | {later['plan_s'] + later['batch_s']:.1f}"
            lines.append(f"| {count:,} | {kind} | {s} | {own} | {whole} | {more} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Plan a file, read a batch, and print what they take; the memory is that of the plan."""
    path, kept = sys.argv[1:]
    memory, began_s = Memory(), time.perf_counter()
    plan = plan_of(Path(path), Path(kept))
    planned_s, peaks = time.perf_counter(), memory.peaks()
    next(iter(by_etlrun(plan)))
    print(json.dumps({"plan_s": planned_s - began_s, "batch_s": time.perf_counter() - planned_s, **peaks}))


if __name__ == "__main__":
    main()
