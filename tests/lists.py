"""A table with lists of numbers, and configs that read it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

NUM_ROWS, LONGEST = 200, 30


def signals() -> dict[str, list[Any]]:
    """200 rows: lists of 0 to 30 numbers, in which zeros occur, lists of integers, a text, a number, and a target."""
    rng = np.random.default_rng(0)
    signal, events = [], []
    for row in range(NUM_ROWS):
        steps = rng.normal(0.5 if row % 2 else -0.5, 1, int(rng.integers(0, LONGEST + 1)))
        signal.append(np.where(rng.random(len(steps)) < 0.2, 0, np.cumsum(steps)).tolist())
        events.append(rng.integers(0, 4, int(rng.integers(0, 9))).tolist())
    return {
        "signal": signal,
        "events": events,
        "note": [" ".join(["yes", "no", "so", "what"][: row % 5]) for row in range(NUM_ROWS)],
        "age": rng.uniform(20, 60, NUM_ROWS).tolist(),
        "kind": ["up" if row % 2 else "down" for row in range(NUM_ROWS)],
    }


def write_signals(folder: Path) -> None:
    """Write the table as `signals.parquet`."""
    pyarrow.parquet.write_table(pa.table(signals()), folder / "signals.parquet", row_group_size=64)


SIGNAL = "signal: {of: signal, steps: [standardize]}"
EVENTS = "events: {of: events, steps: [lookup, {embed: 3}]}"
NOTE = "note: {of: note, steps: [{tokenize: whitespace}, lookup, {embed: 4}]}"
AGE = "age: {of: age, steps: [standardize]}"


def words_of(folder: Path, *others: str, columns: str = SIGNAL, target: str = "{kind: class}") -> tuple[str, ...]:
    """Arguments of a run that reads the signals in `folder`, and trains nothing unless `others` name a model."""
    model = () if any(word.startswith("model=") for word in others) else ("model=emulated", "model.step_ms=0")
    return (
        "experiment=text", f"dataset.files={folder / 'signals.parquet'}", f"dataset.dir={folder / 'kept'}",
        f"dataset.target={target}", f"transform.columns={{{columns}}}", "load.boundaries=[8,16,32]",
        "load.batch_size=16", *model, "trainer.epochs=1", *others,
    )  # fmt: skip
