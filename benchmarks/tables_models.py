"""Models of tables by `experiment=table`, beside boosted trees and linear models; of two tables for tables.py, too.

python -m benchmarks.tables_models [--choosing] [--splits 3] [--output benchmarks/results/tables_models.md]

Of each public table a quarter of the rows is held out, three times. `experiment=table` is run as it is, and keeps a
fifth of the other rows for its own validation; the other models take all of them. The error is the mean absolute error
of numbers, and the log loss of classes. HistGradientBoosting is the better of two settings, and the linear model
(ridge, logistic regression) has the penalty that is best, each by cross-validation in the rows that are not held out;
LightGBM is as it is when nothing is set. What held-out rows lack in a column of numbers that is complete in the
others, which `predict` refuses, is their median for etlrun. The tables are those of `benchmarks/public_tables.py`, with
the packages that it names: --choosing has those by which the experiment was chosen, in the place of those that are
reported. The planted table has a rule that is known: `the rule` are its own probabilities.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

import etlrun
from benchmarks.public_tables import CHOOSING, REPORTED, planted
from benchmarks.tables_peers import boosted, error, lightgbm, linear
from etlrun.system.machine import cores

if TYPE_CHECKING:
    import pandas as pd

SEEDS = 5
DIAMONDS = ("diamonds.parquet", "{price: {number: standardize}}", "null")
TITANIC = ("titanic.csv", "{survived: class}", "[sex,age,passengerClass]")
BARS = {"titanic, accuracy": "at least 0.78", "diamonds, R2": "at least 0.975", "diamonds, MAE": "at most 330"}


HELD_OUT = 0.25
PEERS = {"boosting": boosted, "linear": linear, "LightGBM": lightgbm}
Model = Callable[..., np.ndarray]


def models(tables: Path, folder: Path) -> str:
    """The table of the figures on the validation split, a fifth of the rows."""
    figures: dict[str, list[float]] = {name: [] for name in BARS}
    seconds: dict[str, list[float]] = {"titanic": [], "diamonds": []}
    for seed in range(SEEDS):
        for (file, target, inputs), name in ((TITANIC, "titanic"), (DIAMONDS, "diamonds")):
            words = ["experiment=table", f"dataset.files={tables / file}", f"dataset.target={target}"]
            words += [f"dataset.inputs={inputs}", f"dataset.dir={folder / 'kept'}", f"trainer.seed={seed}"]
            run, began_s = folder / f"{name}-{seed}", time.perf_counter()
            command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={run}"]
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - began_s)
            last = json.loads((run / "summary.json").read_text())["epochs"][-1]
            last |= last.get("metrics", {})
            for title, of in figures.items():
                if title.startswith(name):
                    of.append(last[f"val_{title.rpartition(' ')[2].lower()}"])
    lines = ["| table, figure | mean of 5 seeds | 95% interval | bar | s a run |", "|---|---|---|---|---|"]
    for title, bar in BARS.items():
        mean, half = of_seeds(figures[title])
        digits = 0 if "MAE" in title else 4
        taken_s = statistics.median(seconds[title.partition(",")[0]])
        interval = f"{mean - half:.{digits}f} to {mean + half:.{digits}f}"
        lines.append(f"| {title} | {mean:.{digits}f} | {interval} | {bar} | {taken_s:.0f} |")
    return "\n".join(lines) + "\n"


def of_seeds(figures: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval."""
    half = stats.t.ppf(0.975, len(figures) - 1) * statistics.stdev(figures) / math.sqrt(len(figures))
    return statistics.mean(figures), float(half)


def by_etlrun(folder: Path, kind: str, given: pd.DataFrame, target: pd.Series, asked: pd.DataFrame) -> np.ndarray:
    """Predictions of `experiment=table`: numbers, or the probabilities of all classes in order."""
    place = Path(tempfile.mkdtemp(dir=folder))
    unseen = [name for name in given.select_dtypes("number") if not given[name].isna().any()]
    asked = asked.fillna(given[unseen].median())
    given.assign(**{str(target.name): target}).to_csv(place / "given.csv", index=False)
    asked.to_csv(place / "asked.csv", index=False)
    of = "{number: standardize}" if kind == "number" else kind
    words = f"dataset.files={place / 'given.csv'}", f"dataset.dir={place}", f"dataset.target={{{target.name}: {of}}}"
    run = etlrun.plan("experiment=table", *words).fit(place / "run")
    found = run.predict(str(place / "asked.csv"))
    if kind == "number":
        return np.array([of.value for of in found])
    return np.array([[of.probabilities[str(name)] for name in sorted(target.unique())] for of in found])


def public(splits: int, folder: Path, *, choosing: bool) -> str:
    """The table of the errors on held-out rows, means of some splits."""
    sides: Mapping[str, Model] = {"etlrun": partial(by_etlrun, folder), **PEERS}
    lines = [
        f"| table | predicted | rows | {' | '.join(sides)} | etlrun to the better of boosting and linear | s a run |"
    ]
    lines.append("|---" * (len(sides) + 5) + "|")
    ratios = []
    for table in CHOOSING if choosing else REPORTED:
        frame, errors, seconds = table.frame, {name: list[float]() for name in sides}, list[float]()
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(len(frame))
            cut = int(HELD_OUT * len(frame))
            inputs, target = frame.drop(columns=[table.target]), frame[table.target]
            given, asked = order[cut:], order[:cut]
            for name, model in sides.items():
                began_s = time.perf_counter()
                found = model(table.kind, inputs.iloc[given], target.iloc[given], inputs.iloc[asked])
                seconds += [time.perf_counter() - began_s] * (name == "etlrun")
                errors[name].append(error(table.kind, found, target.iloc[asked]))
        means = {name: statistics.mean(of) for name, of in errors.items()}
        ratios.append(means["etlrun"] / min(means["boosting"], means["linear"]))
        shown = " | ".join(f"{of:,.0f}" if of > 100 else f"{of:.4f}" for of in means.values())
        kind = f"{table.target}, a {table.kind}" if table.kind != "binary" else f"{table.target}, one of two classes"
        row = f"| {table.package}::{table.name} | {kind} | {len(frame):,} | {shown}"
        lines.append(f"{row} | {ratios[-1]:.3f} | {statistics.median(seconds):.0f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    lines.append(f"| geometric mean | | | | | | | {mean:.3f} (bar: at most 1.03, of each table 1.3) | |")
    return "\n".join(lines) + "\n"


def of_rule(folder: Path) -> str:
    """The table of the figures on 5,000 of 20,000 rows whose rule is known."""
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    frame, chance = planted()
    given, asked, inputs = frame.index[5_000:], frame.index[:5_000], frame.drop(columns=["answer"])
    lines = ["| | accuracy | AUC | log loss |", "|---|---|---|---|"]
    found = {"the rule": np.stack([1 - chance[asked], chance[asked]], 1)}
    sides: Mapping[str, Model] = {"etlrun": partial(by_etlrun, folder), **PEERS}
    found |= {
        name: model("binary", inputs.loc[given], frame["answer"].loc[given], inputs.loc[asked])
        for name, model in sides.items()
    }
    wanted = frame["answer"].loc[asked] == "yes"
    for name, of in found.items():
        figures = accuracy_score(wanted, of[:, 1] > 0.5), roc_auc_score(wanted, of[:, 1]), log_loss(wanted, of)
        lines.append(f"| {name} | {' | '.join(f'{figure:.4f}' for figure in figures)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train all models, print the tables, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choosing", action="store_true", help="the tables by which the experiment was chosen")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = public(known.splits, Path(folder), choosing=known.choosing)
        text += f"\nA planted table of 20,000 rows, of which 5,000 are held out\n\n{of_rule(Path(folder))}"
    which = " --choosing" * known.choosing
    head = f"`python -m benchmarks.tables_models{which} --splits {known.splits}` on {cores()} cores, whose load was"
    text = f"{head} {os.getloadavg()[2]:.1f} in the mean of 15 minutes\n\n{text}"
    print(text)
    if known.output:
        known.output.write_text(text)


if __name__ == "__main__":
    main()
