"""A table of houses in Parquet, configs that read it, and tables of any files."""

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import etlrun
from etlrun.sources.rows.kept import KeptColumns
from etlrun.sources.rows.table import kept_of
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError
from tests.configs import raised

NUM_ROWS = 200
KINDS = ("flat", "house", "loft")
INPUTS = ["area", "rooms", "kind", "garden"]

COLUMNS = (
    "transform.columns={area: {of: area, steps: [{fill: median}, standardize]}, rooms: {of: rooms, "
    "steps: [standardize]}, kind: {of: kind, steps: [lookup, one_hot]}, garden: {of: garden}}"
)
"""Columns of the houses as a config writes them."""
STEPS = (
    "area: {of: area, steps: [{fill: {value: median, indicator: true}}, {clip: [0, 180]}, log1p, standardize]}, "
    "scaled: {of: area, steps: [{fill: mean}, {standardize: {mean: 0}}]}, "
    "gone: {of: kind, steps: [missing]}, "
    "month: {of: sold, steps: [{part: month}, standardize]}, "
    "wide: {of: area, steps: [{fill: median}, {bucketize: [50, 100]}, one_hot]}, "
    "tenth: {of: area, steps: [{fill: median}, {quantiles: 10}, embed]}, "
    "place: {of: [kind, rooms], steps: [{cross: 50}, embed]}, "
    "rooms: {of: rooms, steps: [{identity: 6}, one_hot]}, "
    "kind: {of: kind, steps: [{lookup: {top: 100, oov: 2}}, embed]}, "
    "known: {of: kind, steps: [{fill: most_frequent}, {lookup: {values: [flat, house, loft], oov: error}}, one_hot]}, "
    "number: {of: rooms, steps: [{lookup: {values: [1, 2, 3]}}, one_hot]}, "
    "bin: {of: kind, steps: [{hash: 7}, embed]}, "
    "the garden: {of: garden}"
)
"""All steps on columns."""
TARGETS = "{price: {number: standardize}, band: {class: {weight: 0.5}}, garden: binary, tags: {labels: ','}}"
LABELS = ("old", "park", "sea")


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


def several() -> pa.Table:
    """The houses, with some labels of each and how often it was seen."""
    rng = np.random.default_rng(1)
    tags = [" , ".join(rng.choice(LABELS, rng.integers(0, 4), replace=False)) or None for _ in range(NUM_ROWS)]
    rows = houses().append_column("tags", pa.array(tags))
    return rows.append_column("times", pa.array(rng.integers(0, 3, NUM_ROWS)))


def write_houses(folder: Path) -> None:
    """Write the table as `houses.parquet`."""
    pyarrow.parquet.write_table(houses(), folder / "houses.parquet", row_group_size=64)


def words_of(folder: Path, *others: str, target: str = "{price: number}") -> tuple[str, ...]:
    """Arguments of a run that reads the houses in `folder`, and trains nothing unless `others` name a model."""
    model = () if any(word.startswith("model=") for word in others) else ("model=emulated", "model.step_ms=0")
    return (
        "dataset=table", f"dataset.files={folder / 'houses.parquet'}", f"dataset.dir={folder / 'kept'}",
        "dataset.inputs=[area,rooms,kind,garden]", f"dataset.target={target}", "transform=columns",
        "extract=sequential", "cache=none", "load.batch_size=7", *model, "trainer.epochs=2", *others,
    )  # fmt: skip


CSV = "rooms,kind,price\n1,flat,10.5\n,NA,20\n3,loft,30\n"
"""Three houses."""


def a_table(files: Any, kept: Path, **others: Any) -> Table:
    """A dataset of these files, whose columns are kept in the folder `kept`."""
    given = {
        "name": "table",
        "files": files,
        "split": "train",
        "eval_split": None,
        "on_corrupt": "raise",
        "target": {"price": "number"},
        "inputs": None,
        "columns": {},
        "order": "file",
        "missing": ("", "NA", "null"),
        "strip": False,
        "dir": str(kept),
    }
    return Table(**{**given, **others})


def kept_from(folder: Path, name: str, content: str | bytes, **others: Any) -> KeptColumns:
    """The kept columns of a file of that content, of which a text is compressed where the name says so."""
    data = content.encode() if isinstance(content, str) else content
    compressed = isinstance(content, str) and name.endswith(".gz")
    (folder / name).write_bytes(gzip.compress(data) if compressed else data)
    return kept_of(a_table(str(folder / name), folder / "kept", **others))


def values(kept: KeptColumns) -> dict[str, list[Any]]:
    """All values by column; what is missing is None, and text is str."""
    plain = {"text": pa.large_string(), "timestamp": pa.timestamp("us")}
    found = {name: (kept.arrow(name), column.feature.format) for name, column in kept.known.columns.items()}
    return {name: (of.cast(plain[str(kind)]) if kind else of).to_pylist() for name, (of, kind) in found.items()}


def types(kept: KeptColumns) -> dict[str, str]:
    return {name: str(column.feature).split(" in ")[0] for name, column in kept.known.columns.items()}


def message(folder: Path, call: Callable[..., Any], *given: Any, **named: Any) -> str:
    """With which a call is refused, with the names of files in `folder`."""
    return raised(EtlrunError, call, *given, **named).replace(f"{folder}/", "")


def loaded_run(folder: Path) -> etlrun.Run:
    found = etlrun.load(folder)
    assert isinstance(found, etlrun.Run)
    return found
