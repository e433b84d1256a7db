"""What a run reads: the data set and its pipelines, each watched while it is read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from etlrun.backend import seed_all
from etlrun.errors import WorldError
from etlrun.graph.build import Pipeline
from etlrun.graph.corrupt import corrupt_records
from etlrun.graph.source import Source
from etlrun.measure.watched import Watch
from etlrun.plan import Plan
from etlrun.record import Record

MOST_CORRUPT_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Work:
    """The parts of a run.

    Attributes:
        plan: Of the run.
        record: Of the run.
        source: The data set.
        pipelines: `train` and, where there is validation, `validation`.
        watches: Of each pipeline.
    """

    plan: Plan
    record: Record
    source: Source
    pipelines: dict[str, Pipeline]
    watches: dict[str, Watch]

    @property
    def train(self) -> Pipeline:
        """The training pipeline."""
        return self.pipelines["train"]

    @property
    def validation(self) -> Pipeline | None:
        """The validation pipeline; None for no validation."""
        return self.pipelines.get("validation")


def prepared(plan: Plan, record: Record, *, with_validation: bool = True) -> Work:
    """Find the data set and build the pipelines; `WorldError` where data is missing, or too little.

    All that is random from here on follows from the trainer's seed.
    """
    spec = plan.spec
    source = Source(spec.dataset)
    seed_all(spec.trainer.seed)  # not before: TFDS draws numbers when it prepares a data set
    splits = {"train": source.split(spec.dataset.split, "dataset.split")}
    _enough(plan, splits["train"].num_examples)
    if with_validation and spec.dataset.eval_split is not None:
        splits["validation"] = source.split(spec.dataset.eval_split, "dataset.eval_split")
    stages = {"train": plan.train, "validation": plan.evaluation}
    folder, seed = record.folder / "cache", spec.trainer.seed
    pipelines = {
        name: Pipeline(stages[name], source=source, split=split, seed=seed, folder=folder / name)
        for name, split in splits.items()
    }
    sizes = {name: split.num_examples for name, split in splits.items()}
    record.event("dataset", name=source.builder.info.full_name, examples=sizes)
    record.update(dataset={"name": source.builder.info.full_name, "examples": sizes})
    watches = {name: Watch(with_digest=spec.measure.digest) for name in pipelines}
    return Work(plan=plan, record=record, source=source, pipelines=pipelines, watches=watches)


def _enough(plan: Plan, num_examples: int) -> None:
    load = plan.spec.load
    if load.drop_remainder and num_examples < load.batch_size:
        raise WorldError(
            where="load.batch_size",
            found=f"{load.batch_size}, with {num_examples} examples in the training split",
            expected=f"at most {num_examples} while load.drop_remainder=true, which leaves no batch otherwise",
            remedy=f"set load.batch_size={num_examples} or smaller, or load.drop_remainder=false",
        )


def batches_in_pass(work: Work) -> int:
    """Of the training split, where no record is skipped."""
    load, num_examples = work.plan.spec.load, work.train.split.num_examples
    return num_examples // load.batch_size if load.drop_remainder else -(-num_examples // load.batch_size)


@contextmanager
def at_work(work: Work) -> Iterator[None]:
    """Around the reading of the pipelines: broken records are told of, and the caches go in any case."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        _explain(work, error)
        raise
    finally:
        shutil.rmtree(work.record.folder / "cache", ignore_errors=True)
    _report_skipped(work)


def _explain(work: Work, error: Exception) -> None:
    """Look for a broken record and tell of it; return where the error has another cause."""
    if work.plan.spec.dataset.on_corrupt == "skip":
        return
    for pipeline in work.pipelines.values():
        for corrupt in corrupt_records(work.source, pipeline.split):
            raise corrupt.error() from error


def _report_skipped(work: Work) -> None:
    """With `on_corrupt: skip`, say how many records were left out, and which."""
    if work.plan.spec.dataset.on_corrupt != "skip":
        return
    skipped: dict[str, Any] = {}
    for name, pipeline in work.pipelines.items():
        found = list(corrupt_records(work.source, pipeline.split))
        skipped[name] = sum(corrupt.lost for corrupt in found)
        for corrupt in found[:MOST_CORRUPT_NAMED]:
            work.record.event("skipped", where=f"{corrupt.path}, record {corrupt.record}", reason=corrupt.reason)
    total = sum(skipped.values())
    work.record.update(skipped=skipped)
    if total:
        remark = f"{total} corrupt records were left out; events.jsonl names them."
        work.record.update(remarks=[*work.record.summary["remarks"], remark])
