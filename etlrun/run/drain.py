"""Pipelines without a training: passes over the training examples, and filling caches on disk for other runs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Self

import numpy as np

from etlrun.measure.assessment import Assessment
from etlrun.measure.watched import Watched
from etlrun.planning.plan import Plan, reads_features
from etlrun.record.record import Record
from etlrun.record.summary import Epoch
from etlrun.run.backend import peak_gpu_bytes
from etlrun.run.devices import distributed
from etlrun.run.epochs import Steps, record_epoch
from etlrun.run.session import at_work, batches_of, opened, prepared
from etlrun.system.files import sync
from etlrun.system.progress import doing
from etlrun.system.signals import raise_if_interrupted
from etlrun.system.terminal import tell

_CHUNK = 20_000
"""Numbers that a thread computes without looking at its clock: a fraction of a millisecond without Python's lock."""


def drain(plan: Plan, record: Record) -> None:
    """Read the pipeline for the trainer's epochs or seconds; `WorldError` if data is missing or corrupt."""
    work = prepared(plan, record, opened(plan), with_validation=False)
    assessment = Assessment(work, peak_gpu_bytes)
    with at_work(work):
        trainer = plan.spec.trainer
        with assessment, Hold(trainer.step_ms, trainer.step_cores) as hold:
            until_s = None if trainer.seconds is None else time.perf_counter() + trainer.seconds
            watch, epoch, is_late = work.watches["train"], 0, False
            reading, batches = Watched(work.train.dataset, watch), batches_of(work.train)
            while not is_late and (trainer.epochs is None or epoch < trainer.epochs):
                epoch += 1
                assessment.begin("train")
                doing(Steps(f"pass {epoch}", batches, watch))
                for _batch in reading:
                    raise_if_interrupted()
                    hold.step()
                    watch.meter.stepped()
                    is_late = until_s is not None and time.perf_counter() > until_s
                    if is_late:
                        break
                loop = assessment.end("train")
                digest = {"digest": watch.digest.taken()} if watch.digest is not None else {}
                described = loop.described()
                record_epoch(assessment, Epoch(epoch=epoch, **described, **digest))
                rate = f"{described['examples_per_s']:7.1f} examples/s"
                tell(f"pass {epoch}  {loop.wall_s:6.1f} s  {rate}")
                is_late = until_s is not None and time.perf_counter() > until_s
        assessment.conclude(())


def fill(plan: Plan, record: Record) -> None:
    """Fill the caches that a run of `plan` reads, unless they are there; `WorldError` if data is missing or corrupt."""
    source, trainer, backbone = opened(plan), plan.spec.fit, None
    with nullcontext() if trainer is None else distributed(trainer, plan.spec.load):
        if trainer is not None and reads_features(plan):
            from etlrun.run import model as models  # imports Keras, which only the features of a base need

            backbone = models.backbone(models.whole_model(plan, source))
        work = prepared(plan, record, source, with_validation=trainer is not None, backbone=backbone)
        with at_work(work):
            for pipeline in work.pipelines.values():
                pipeline.fill()
                for path, _ in pipeline.keeper.parts if pipeline.keeper is not None else ():
                    sync(path)  # the next job would be measured beside the writing


class Hold:
    """Context manager that holds each batch for the time of a step.

    Steps of an accelerator wait. Those of a CPU compute: each thread works until its own clock has advanced by the time
    of the step, so that a pipeline that takes its core makes the step longer.
    """

    def __init__(self, step_ms: float, cores: float) -> None:
        """Hold each batch for `step_ms` milliseconds, in which `cores` cores compute; 0 for none."""
        whole, part = divmod(cores, 1)
        self._computed_s = [step_ms / 1000 * share for share in (*[1.0] * int(whole), part) if share * step_ms]
        self._waited_s = step_ms / 1000 * max(0.0, 1 - cores)
        self._pool = ThreadPoolExecutor(len(self._computed_s)) if self._computed_s else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def step(self) -> None:
        """Return after the time of a step."""
        if self._pool is not None:
            list(self._pool.map(_compute, self._computed_s))
        if self._waited_s:
            time.sleep(self._waited_s)


def _compute(seconds: float) -> None:
    """Compute until this thread has used so many seconds of a core."""
    numbers, until_s = np.linspace(0.0, 1.0, _CHUNK), time.thread_time() + seconds
    while time.thread_time() < until_s:
        np.sin(numbers, out=numbers)
