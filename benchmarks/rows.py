"""Batches of rows of a file, as a run reads them. Used by tables.py and tables_large.py."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import tensorflow as tf

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

TARGET = "price"


def plan_of(path: Path, *overrides: str) -> Plan:
    """The plan of a run that reads all rows of a file and trains nothing."""
    words = ["experiment=table", f"dataset.files={path}", f"dataset.target={{{TARGET}: number}}"]
    words += ["dataset.split=train", "dataset.eval_split=null", f"dataset.dir={path.parent / 'kept'}"]
    return resolve(Request(overrides=[*words, "trainer=drain", *overrides]), STAGES).plan


def by_etlrun(plan: Plan) -> tf.data.Dataset:
    """The batches of a plan."""
    source = open_source(plan.spec.dataset)
    return Pipeline(plan.train, contexts_of(plan, source, with_validation=False)["train"]).dataset


def sections(made: Mapping[str, Callable[[Path], str]]) -> str:
    """What each of these makes in a folder of its own, under its title; each is printed as soon as it is there."""
    found = []
    for title, work in made.items():
        with tempfile.TemporaryDirectory() as folder:
            found.append(f"{title}:\n\n{work(Path(folder))}\n")
        print(found[-1].removeprefix(f"{title}:"), flush=True)
    return "".join(found)
