"""A table of houses in Parquet, and configs that read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

NUM_ROWS = 200
KINDS = ("flat", "house", "loft")


def houses() -> pa.Table:
    """200 rows: numbers, of which some are missing; texts, times, truth values, and two targets."""
    rng = np.random.default_rng(0)
    area, rooms = rng.uniform(20, 200, NUM_ROWS), rng.integers(1, 6, NUM_ROWS)
    kinds = rng.choice(KINDS, NUM_ROWS, p=[0.6, 0.3, 0.1])
    price = area * 3_000 + rooms * 10_000 + (kinds == "loft") * 50_000
    days = [datetime(2020, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 1_000, NUM_ROWS)]  # noqa: DTZ001
    return pa.table(
        {
            "area": pa.array(area, mask=rng.random(NUM_ROWS) < 0.1),
            "rooms": pa.array(rooms),
            "kind": pa.array(kinds, mask=rng.random(NUM_ROWS) < 0.05),
            "sold": pa.array(days, pa.timestamp("us")),
            "garden": pa.array(rng.random(NUM_ROWS) < 0.5),
            "price": pa.array(price),
            "band": pa.array(np.where(price > 350_000, "dear", "cheap")),
        }
    )


def write_houses(folder: Path) -> None:
    """Write the table as `houses.parquet`."""
    pyarrow.parquet.write_table(houses(), folder / "houses.parquet", row_group_size=64)


def words_of(folder: Path, *others: str, target: str = "{price: number}") -> tuple[str, ...]:
    """Arguments of a run that reads the houses in `folder` and trains nothing."""
    return (
        "dataset=table",
        f"dataset.files={folder / 'houses.parquet'}",
        f"dataset.dir={folder / 'kept'}",
        "dataset.inputs=[area,rooms,kind,garden]",
        f"dataset.target={target}",
        "transform=columns",
        "extract=sequential",
        "cache=none",
        "load.batch_size=7",
        "model=emulated",
        "model.step_ms=0",
        "trainer.epochs=2",
        *others,
    )
