"""Runs of a table that are killed with SIGKILL while they read, fit and train, and whether they end the same.

python -m benchmarks.table_kills [--kills N] [--rows N] [--output FILE]

A run of a table is first undisturbed. Then, in turns, a run with an empty folder for the columns is killed at random
moments: twice while it reads the table, twice while it fits the columns, and twice while it trains; each time it is
started again, or resumed in a new folder once there is a checkpoint, until it ends. After each kill the columns that
are kept, and what they have learned, have to be those of the undisturbed run, byte for byte, or not be there. The
losses, the metrics and the digests of each epoch, and the weights, have to be those of the undisturbed run, to the bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.run_kills import started, summary_of, variables

PHASES = ("reading", "fitting", "training")
SEVERAL = 2
"""Kills in each phase of a run."""
KEYS = ("loss", "val_loss", "metrics", "learning_rate", "digest", "validation_digest")


def write_table(path: Path, rows: int) -> None:
    """A csv of numbers, of which some are missing, texts, times, and a number to predict."""
    rng = np.random.default_rng(0)
    numbers = {f"n{place}": rng.lognormal(size=rows) for place in range(6)}
    texts = {f"t{place}": rng.choice([f"word {word}" for word in range(300)], rows) for place in range(3)}
    days = (np.datetime64("2020-01-01", "s") + rng.integers(0, 10**8, rows)).astype("datetime64[us]")
    price = sum(np.log(values) for values in numbers.values()) + rng.normal(size=rows)
    columns = {name: pa.array(values, mask=rng.random(rows) < 0.05) for name, values in {**numbers, **texts}.items()}
    pyarrow.csv.write_csv(pa.table({**columns, "day": pa.array(days), "price": pa.array(price)}), path)


def kept(folder: Path) -> dict[str, bytes]:
    """What a folder keeps for later runs: each file of complete columns, and what they have learned."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in sorted(folder.glob("rows-*/*"))
        if path.parent.suffix != ".filling" and path.suffix in (".bin", ".json") and ".tmp" not in path.name
    }


def phase_of(run: Path, columns: Path) -> str:
    """What a run does by what it has left so far."""
    if "epoch_began" in (events.read_text() if (events := run / "events.jsonl").exists() else ""):
        return "training"
    folders = [path for path in columns.glob("rows-*") if path.is_dir()]
    if any(path.suffix != ".filling" for path in folders):
        return "fitting" if not [*columns.glob("rows-*/fitted-*.json")] else "before the training"
    return "reading" if folders else "before reading"


def epochs(run: Path) -> list[list[object]]:
    """What a training has to reproduce of each epoch."""
    return [[epoch.get(key) for key in KEYS] for epoch in summary_of(run)["epochs"]]


@dataclass
class Kills:
    """What was found so far."""

    expected_run: Path
    expected: dict[str, bytes]
    places: list[str] = field(default_factory=list)
    ended: int = 0
    resumed: int = 0
    wrong: list[str] = field(default_factory=list)

    def check_columns(self, columns: Path, when: str) -> None:
        """Compare what is kept with that of the undisturbed run."""
        for name, content in kept(columns).items():
            if self.expected.get(name) != content:
                self.wrong.append(f"{when}: {name}")

    def check_run(self, run: Path, columns: Path, when: str) -> None:
        """Compare a training that has ended, and the columns that it leaves behind."""
        self.ended += 1
        self.resumed += any(epoch.get("resumed_steps", 0) for epoch in summary_of(run)["epochs"])
        self.check_columns(columns, when)
        if kept(columns).keys() != self.expected.keys() or [*columns.glob("*.filling")]:
            self.wrong.append(f"{when}: other files than {', '.join(self.expected)}")
        if summary_of(run)["status"] != "completed" or epochs(run) != epochs(self.expected_run):
            self.wrong.append(f"{when}: {summary_of(run)['status']}, losses, metrics or digests")
        ours, theirs = variables(run), variables(self.expected_run)
        if ours.keys() != theirs.keys() or not all(np.array_equal(ours[name], theirs[name]) for name in ours):
            self.wrong.append(f"{when}: weights")


def watched(process: subprocess.Popen[bytes], run: Path, columns: Path) -> Iterator[str]:
    """Yield what a run does, again and again, until it ends."""
    while process.poll() is None:
        yield phase_of(run, columns)
        time.sleep(0.005)


def undisturbed(run: Path, columns: Path, words: list[str]) -> dict[str, float]:
    """Seconds of each phase of a run that nobody kills."""
    seconds, last = dict.fromkeys(PHASES, 0.0), time.perf_counter()
    process = started(run, words)
    for phase in watched(process, run, columns):
        now = time.perf_counter()
        if phase in seconds:
            seconds[phase] += now - last
        last = now
    if process.returncode:
        raise SystemExit(f"the undisturbed run failed: {summary_of(run).get('error')}")
    return seconds


def killed(process: subprocess.Popen[bytes], run: Path, columns: Path, phase: str, after_s: float) -> str:
    """Kill a run so many seconds after a phase began; return where it was, empty if it had ended."""
    began: float | None = None
    for now in watched(process, run, columns):
        began = time.perf_counter() if began is None and now == phase else began
        if began is not None and time.perf_counter() - began >= after_s:
            break
    if process.poll() is not None:
        return ""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return phase_of(run, columns)


def main() -> None:
    """Kill, start again, resume and compare."""
    given = _arguments()
    where = Path(tempfile.mkdtemp(prefix="table-kills-"))
    write_table(where / "table.csv", given.rows)

    def words(columns: Path) -> list[str]:
        others = ["dataset.target={price: number}", f"dataset.dir={columns}", "trainer.epochs=4", "measure.digest=true"]
        others += ["trainer.checkpoint_every_steps=20"]
        return ["experiment=table", f"dataset.files={where / 'table.csv'}", *others]

    whole = where / "undisturbed", where / "columns"
    seconds = undisturbed(*whole, words(whole[1]))
    found = Kills(whole[0], kept(whole[1]))
    chance, number = random.Random(0), 0  # noqa: S311 - moments
    while len(found.places) < given.kills:
        number += 1
        _round(found, where / str(number), words, lambda phase: chance.uniform(0, 0.8 * seconds[phase]))
        report(found, seconds, given)


def _round(found: Kills, folder: Path, words: Callable[[Path], list[str]], moment: Callable[[str], float]) -> None:
    """Kill a run several times in each phase, and let it end."""
    columns, left = folder / "columns", None
    for number, phase in enumerate((*(phase for phase in PHASES for _ in range(SEVERAL)), None)):
        run = folder / f"run{number}"
        process = started(run, words(columns) if left is None else [f"trainer.resume={left}"])
        if phase is None:
            process.wait()
        elif place := killed(process, run, columns, phase, moment(phase)):
            found.places.append(place)
            found.check_columns(columns, f"{folder.name}, killed while {place}")
            left = run if any((run / "checkpoints").glob("epoch_*")) else left
            continue
        found.check_run(run, columns, f"{folder.name}, at the end")
        return


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def report(found: Kills, seconds: dict[str, float], given: argparse.Namespace) -> None:
    """Print the table of what was found so far, and write it to the output."""
    rows: list[tuple[str, object]] = [
        ("kills", len(found.places)),
        *((f"while {place}", found.places.count(place)) for place in dict.fromkeys([*PHASES, *found.places])),
        ("columns or learned values that were kept and wrong", sum("killed" in of for of in found.wrong)),
        ("trainings that ended", found.ended),
        ("of these, resumed inside an epoch", found.resumed),
        ("of these, otherwise than the undisturbed one", sum("at the end" in of for of in found.wrong)),
        ("files kept, and compared byte for byte", len(found.expected)),
        *((f"seconds of {phase}, undisturbed", f"{of:.1f}") for phase, of in seconds.items()),
    ]
    text = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    text = f"`python -m benchmarks.table_kills {' '.join(sys.argv[1:])}`\n\n{text}\n"
    print(text, *found.wrong, sep="\n", flush=True)
    if given.output is not None:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
