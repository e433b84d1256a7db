"""Tables: batches of rows, fitting, memory and models, beside what TensorFlow and Keras have for the same.

python -m benchmarks.tables [--tables DIR] [--rows 100000] [--turns 5] [--large 10000000]
    [--output benchmarks/results/tables.md]

Batches: shuffled ones of 256 of a generated table with numbers, of which some are missing, and texts. By etlrun from
Parquet; by `make_csv_dataset` with the same steps in a parallel map; by `FeatureSpace` in a parallel map behind
`from_tensor_slices`, `shuffle` of all rows and `batch`. A turn reads a pass of each, in random order. Fitting: 20
columns by etlrun, whose columns are kept, and by `FeatureSpace.adapt` with batches of 1,024.

A ratio of rates is that of the same turn, and above 1 where etlrun is faster. CPU time is that of all threads; on a
machine that others use, it varies less than a rate. The models are those of `experiment=table` with `columns: auto`,
after five seeds each; intervals are Student's.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import tensorflow as tf

from benchmarks.decoding import Measured, in_turns, read
from benchmarks.rows import TARGET, by_etlrun, plan_of, sections
from benchmarks.tables_large import large
from benchmarks.tables_models import models
from etlrun.sources.base import open_source
from etlrun.sources.rows.fitting import fitted
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.columns import Columns
from etlrun.system.machine import cores

BATCH_SIZE = 256
CUTS = ("Fair", "Good", "Ideal")
COLUMNS = (
    "{carat: {of: carat, steps: [{fill: median}, log1p, standardize]}, depth: {of: depth, steps: [standardize]}, "
    "cut: {of: cut, steps: [{lookup: [Fair, Good, Ideal]}, one_hot]}, "
    "clarity: {of: clarity, steps: [{lookup: {top: 1000, min_count: 2}}, embed]}, "
    "zip: {of: zip, steps: [{lookup: {top: 1000}}, embed]}}"
)
FITTED_OF_EACH = 10
"""Columns of numbers, and of texts, in the comparison of fitting."""
FITTED_ROWS, FITTED_TURNS = 20_000, 2


def diamonds(rows: int) -> pa.Table:
    """A table with the columns of `COLUMNS`."""
    random = np.random.default_rng(0)
    return pa.table(
        {
            "carat": pa.array(random.lognormal(size=rows), mask=random.random(rows) < 0.05),
            "depth": random.normal(size=rows),
            "cut": random.choice(CUTS, rows),
            "clarity": random.choice([f"c{number}" for number in range(500)], rows),
            "zip": random.choice([f"{number:05d}" for number in range(3_000)], rows),
            TARGET: random.lognormal(size=rows),
        }
    )


def to_fit(rows: int) -> pa.Table:
    """A table of ten columns of numbers and ten of texts."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"n{number}": random.normal(size=rows) for number in range(FITTED_OF_EACH)}
    words = np.array([f"word{number}" for number in range(200)])
    columns |= {f"t{number}": random.choice(words, rows) for number in range(FITTED_OF_EACH)}
    return pa.table({**columns, TARGET: random.normal(size=rows)})


def by_csv(path: Path, columns: Columns, rows: int) -> tf.data.Dataset:
    """The same batches of a csv file: its reader, and the same steps."""
    numbers = ("carat", "depth", TARGET)
    names = ("carat", "depth", "cut", "clarity", "zip", TARGET)
    missing = [tf.constant([np.nan], tf.float64) if name in numbers else tf.constant([""]) for name in names]
    batches = tf.data.experimental.make_csv_dataset(
        str(path), BATCH_SIZE, column_defaults=missing, num_epochs=1, shuffle_buffer_size=rows, shuffle_seed=0
    )

    def apply(example: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        given = columns.given(example)
        return given, given.pop(TARGET)

    as_is = tf.autograph.experimental.do_not_convert(apply)
    return batches.map(as_is, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def in_memory(table: pa.Table) -> dict[str, Any]:
    """The inputs of a table as arrays, without what is missing, which FeatureSpace has no step for."""
    columns = {name: table[name] for name in table.column_names if name != TARGET}
    return {
        name: np.nan_to_num(values.to_numpy())
        if pa.types.is_floating(values.type)
        else values.to_numpy().astype(object)
        for name, values in columns.items()
    }


def space_of(inputs: Mapping[str, Any]) -> keras.utils.FeatureSpace:
    """Keras's preprocessing of these columns."""
    of = keras.utils.FeatureSpace
    features: dict[str, Any] = {}
    for name, values in inputs.items():
        many = values.dtype == object and len({*values}) > len(CUTS)
        text = of.string_categorical(max_tokens=1_001, output_mode="int" if many else "one_hot")
        features[name] = text if values.dtype == object else of.float_normalized()
    return of(features=features, output_mode="dict")


def by_space(table: pa.Table) -> tf.data.Dataset:
    """The same batches of arrays: FeatureSpace in a map, as its documentation has it."""
    inputs = in_memory(table)
    rows = tf.data.Dataset.from_tensor_slices((inputs, table[TARGET].to_numpy()))
    space = space_of(inputs)
    space.adapt(rows.map(lambda example, _target: example).batch(1_024))
    batches = rows.shuffle(table.num_rows, seed=0).batch(BATCH_SIZE)
    return batches.map(lambda example, target: (space(example), target), tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def batches(folder: Path, rows: int, turns: int) -> str:
    """The table of passes."""
    table = diamonds(rows)
    pyarrow.parquet.write_table(table, folder / "diamonds.parquet")
    pyarrow.csv.write_csv(table, folder / "diamonds.csv")
    plan = plan_of(folder / "diamonds.parquet", f"transform.columns={COLUMNS}")
    columns = next(step for step in plan.spec.transform.steps if isinstance(step, Columns))
    sides = {
        "etlrun": by_etlrun(plan),
        "FeatureSpace": by_space(table),
        "make_csv_dataset": by_csv(folder / "diamonds.csv", columns, rows),
    }
    found = in_turns({name: partial(read, dataset) for name, dataset in sides.items()}, turns)
    return compared(found, rows, {"FeatureSpace": "at least 2", "make_csv_dataset": "at least 8"})


def fitting(folder: Path, rows: int, turns: int) -> str:
    """The table of fitting."""
    table = to_fit(rows)
    path = folder / "to_fit.parquet"
    pyarrow.parquet.write_table(table, path)
    names = [name for name in table.column_names if name != TARGET]
    steps = {name: "[standardize]" if name.startswith("n") else "[{lookup: {top: 1000}}, embed]" for name in names}
    text = ", ".join(f"{name}: {{of: {name}, steps: {of}}}" for name, of in steps.items())
    plan = plan_of(path, f"transform.columns={{{text}}}")
    columns = next(step for step in plan.spec.transform.steps if isinstance(step, Columns))
    source = cast("RowsSource", open_source(plan.spec.dataset))
    split = source.split("train", "dataset.split")
    unfitted = [
        dataclasses.replace(output, steps=tuple(step.replace(**dict.fromkeys(step.learned)) for step in output.steps))
        for output in columns.outputs
    ]
    inputs = in_memory(table)
    space = tf.data.Dataset.from_tensor_slices(inputs).batch(1_024)

    def fit() -> None:
        for kept in source.kept.folder.glob("fitted-*.json"):
            kept.unlink()
        fitted(unfitted, source, [split])

    found = in_turns({"etlrun": fit, "FeatureSpace.adapt": lambda: space_of(inputs).adapt(space)}, turns)
    return compared(found, rows, {"FeatureSpace.adapt": "at least 3.3"})


def compared(found: Mapping[str, list[Measured]], count: int, bars: Mapping[str, str], of_what: str = "row") -> str:
    """Rates, CPU time of each of `count` rows or others, and ratios to etlrun's, as Markdown."""
    lines = [
        f"| | {of_what}s/s | etlrun's rate to it | bar | CPU us a {of_what} | its CPU time to etlrun's |",
        "|---|---|---|---|---|---|",
    ]
    base = found["etlrun"]
    for name, of in found.items():
        rate, cpu = (count / statistics.median(one[0] for one in of)), statistics.median(one[1] for one in of)
        of_rates, of_cpu = (
            statistics.median(its[part] / ours[part] for its, ours in zip(of, base, strict=True)) for part in (0, 1)
        )
        bar = bars.get(name, "")
        lines.append(f"| {name} | {rate:,.0f} | {of_rates:.1f} | {bar} | {cpu / count * 1e6:.2f} | {of_cpu:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, help="folder with diamonds.parquet and titanic.csv")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    tf.config.set_visible_devices([], "GPU")
    made: dict[str, Callable[[Path], str]] = {
        f"Shuffled batches of {BATCH_SIZE}, of {known.rows:,} rows": partial(
            batches, rows=known.rows, turns=known.turns
        ),
        f"Fitting of {2 * FITTED_OF_EACH} columns of {FITTED_ROWS:,} rows": partial(
            fitting, rows=FITTED_ROWS, turns=FITTED_TURNS
        ),
        f"{known.large:,} rows of 20 columns": partial(large, rows=known.large),
    }
    if known.tables is not None:
        made["Models of `experiment=table`"] = partial(models, known.tables)
    text = sections(made)
    if known.output:
        load = os.getloadavg()[2]
        head = (
            f"`python -m benchmarks.tables --tables DIR --rows {known.rows} --turns {known.turns}` on {cores()} cores"
        )
        head += f", whose load was {load:.1f} in the mean of 15 minutes; TensorFlow {tf.__version__}"
        known.output.write_text(f"{head}\n\n{text.rstrip()}\n")


if __name__ == "__main__":
    main()
