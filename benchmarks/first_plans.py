"""First plans: what reading, keeping and fitting costs beyond the start of a process, beside those that only read.

python -m benchmarks.first_plans --tables DIR [--rows 200000] [--texts 60000] [--files 10000] [--turns 5]
    [--output benchmarks/results/first_plans.md]

Each is a process of its own, in turns, and with nothing kept before. Its CPU seconds are those of all threads, less
those of the same process with a hundredth of the data, or less: imports, and the plan itself. Rows have 15 numbers, of
which 5 are integers, 4 texts, and a target; pyarrow reads the file with types that it infers. Texts are the reviews in
DIR again and again, with their words in random order; `experiment=text` counts words and pairs of them, as Keras's
layer does with `ngrams=2` and as many tokens, in batches of 1,024. Small files have 20 rows of the same table each.
Rows, whose processes are short, have three times as many turns. No texts, or files, are measured where there are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from etlrun.system.machine import cores

TRAIN, TOP = "reviews-train.jsonl", 20_000
FEW_ROWS, FEW_TEXTS, ROWS_OF_FILE = 2_000, 600, 20
PARSE = {
    "csv": "import sys, pyarrow.csv; pyarrow.csv.read_csv(sys.argv[1])",
    "jsonl": "import sys, pyarrow.json; pyarrow.json.read_json(sys.argv[1])",
}
WRITE = {
    "rows": "import sys, benchmarks.first_plans as of; of.write_rows(of.Path(sys.argv[1]), int(sys.argv[2]))",
    "files": "import sys, benchmarks.first_plans as of; of.write_files(of.Path(sys.argv[1]), int(sys.argv[2]))",
    "texts": "import sys, benchmarks.text_many as of; of.write(*map(of.Path, sys.argv[1::2]), int(sys.argv[2]))",
}
"""Each in a process of its own, since the peak of a process is at least that of the one which starts it."""
ADAPT = f"""import sys, keras, pyarrow.parquet, tensorflow as tf
texts = pyarrow.parquet.read_table(sys.argv[1])["review"].to_pylist()
layer = keras.layers.TextVectorization(max_tokens={TOP + 1}, ngrams=2)
layer.adapt(tf.data.Dataset.from_tensor_slices(texts).batch(1024))
"""


def table_of(rows: int) -> pa.Table:
    """Rows as they are often written: numbers of three decimals, integers, and texts of few words."""
    random = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(2_000)])
    columns: dict[str, Any] = {f"n{number}": np.round(random.normal(size=rows), 3) for number in range(10)}
    columns |= {f"i{number}": random.integers(0, 5_000, rows) for number in range(5)}
    columns |= {f"t{number}": random.choice(words, rows) for number in range(4)}
    return pa.table({**columns, "price": np.round(random.normal(size=rows), 3)})


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a table without quotes, which no value needs."""
    with path.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
        pyarrow.csv.write_csv(table, file, options)


def write_rows(folder: Path, rows: int) -> None:
    """Write so many rows as CSV and as JSON lines."""
    table = table_of(rows)
    write_csv(table, folder / f"{rows}.csv")
    (folder / f"{rows}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_files(folder: Path, files: int) -> None:
    """Write so many small files."""
    folder.mkdir()
    table = table_of(files * ROWS_OF_FILE)
    for number in range(files):
        write_csv(table.slice(number * ROWS_OF_FILE, ROWS_OF_FILE), folder / f"{number:05d}.csv")


def made(what: str, *given: object) -> None:
    """Write data."""
    subprocess.run([sys.executable, "-c", WRITE[what], *map(str, given)], check=True, capture_output=True)


def cost(command: Sequence[str], home: Path) -> tuple[float, float]:
    """CPU seconds of a process, and the peak of its memory in MB; nothing is kept from the one before."""
    with tempfile.TemporaryDirectory(dir=home) as caches, Path(os.devnull).open("w") as nowhere:
        environment = {**os.environ, "XDG_CACHE_HOME": caches, "TF_CPP_MIN_LOG_LEVEL": "3"}
        process = subprocess.Popen([sys.executable, *command], stdout=nowhere, stderr=nowhere, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def plan_of(experiment: str, files: Path) -> list[str]:
    """The command that plans a run on files."""
    target = "{score: class}" if experiment == "text" else "{price: number}"
    words = [f"experiment={experiment}", f"dataset.files='{files}'", f"dataset.target={target}"]
    words += ["dataset.split=train", "dataset.eval_split=null", "trainer=drain"] if experiment == "text" else []
    return ["-m", "etlrun", "plan", *words]


Sides = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Two commands by the name of a side: on all data, and on few."""


def beyond(sides: Sides, turns: int, home: Path) -> dict[str, list[float]]:
    """CPU seconds of the first command of each side beyond those of its second one, in each turn; then a peak in MB."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    peaks = dict.fromkeys(sides, 0.0)
    for _ in range(turns):
        for name, (all_of_it, few) in sides.items():
            used_s, peaks[name] = cost(all_of_it, home)
            found[name].append(used_s - cost(few, home)[0])
    return {name: [*of, peaks[name]] for name, of in found.items()}


def compared(what: str, bar: float, sides: Sides, turns: int, home: Path) -> str:
    """The row of a table: etlrun, which is the first side, beside the other one."""
    ours, theirs = beyond(sides, turns, home).values()
    one_s, other_s = (statistics.median(of[:-1]) for of in (ours, theirs))
    return f"| {what} | {one_s:.2f} | {other_s:.2f} | {one_s / other_s:.2f} | at most {bar:g} | {ours[-1]:,.0f} MB |\n"


def rows_and_texts(home: Path, reviews: Path, rows: int, texts: int, turns: int) -> str:
    """The table of first plans beside what only reads, or only counts."""
    text = "| | first plan, CPU s | other, CPU s | ratio | bar | peak memory |\n|---|---|---|---|---|---|\n"
    for count in (FEW_ROWS, rows):
        made("rows", home, count)
    for kind, bar in (("csv", 3.0), ("jsonl", 4.0)):
        paths = [home / f"{count}.{kind}" for count in (rows, FEW_ROWS)]
        ours = [plan_of("table", path) for path in paths]
        theirs = [["-c", PARSE[kind], str(path)] for path in paths]
        size = paths[0].stat().st_size / 1e6
        what = f"{rows:,} rows x 20, {kind}, {size:.0f} MB; pyarrow's parse"
        text += compared(what, bar, {"ours": (ours[0], ours[1]), "theirs": (theirs[0], theirs[1])}, 3 * turns, home)
    for count in (FEW_TEXTS, texts) if texts else ():
        made("texts", home, count, reviews)
    for kind in ("parquet", "jsonl") if texts else ():
        ours = [plan_of("text", home / f"{count}.{kind}") for count in (texts, FEW_TEXTS)]
        theirs = [["-c", ADAPT, str(home / f"{count}.parquet")] for count in (texts, FEW_TEXTS)]
        what = f"{texts:,} texts, {kind}, {(home / f'{texts}.jsonl').stat().st_size / 1e6:.0f} MB as JSON; `adapt`"
        text += compared(what, 1.0, {"ours": (ours[0], ours[1]), "theirs": (theirs[0], theirs[1])}, turns, home)
    return text


def small_files(home: Path, files: int, turns: int) -> str:
    """The table of plans of many small files: the time of each file stays, however many there are."""
    lines = ["| small files of CSV | CPU s | ms a file | peak memory |", "|---|---|---|---|"]
    (home / "one").mkdir()
    write_csv(table_of(ROWS_OF_FILE), home / "one" / "00000.csv")
    start_s = statistics.median(cost(plan_of("table", home / "one" / "*.csv"), home)[0] for _ in range(3))
    for count in (files // 10, files):
        made("files", folder := home / f"files{count}", count)
        found = [cost(plan_of("table", folder / "*.csv"), home) for _ in range(max(turns // 2, 1))]
        used_s, peak = (statistics.median(of) for of in zip(*found, strict=True))
        lines.append(f"| {count:,} | {used_s:.1f} | {(used_s - start_s) / count * 1e3:.2f} | {peak:,.0f} MB |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help=f"folder with {TRAIN}")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--texts", type=int, default=60_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = rows_and_texts(Path(folder), known.tables / TRAIN, known.rows, known.texts, known.turns)
        print(text)
        text += f"\n{small_files(Path(folder), known.files, known.turns)}" if known.files else ""
    print(text)
    if known.output:
        load = os.getloadavg()[2]
        how = f"`python -m benchmarks.first_plans --tables DIR --turns {known.turns}` on {cores()} cores"
        known.output.write_text(f"{how}, whose load was {load:.1f} in the mean of 15 minutes\n\n{text}")


if __name__ == "__main__":
    main()
