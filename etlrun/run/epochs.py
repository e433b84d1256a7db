"""Epochs: their progress and records, and pipelines without a training: passes, and filling caches for other runs."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import numpy as np

from etlrun.cluster.hosts import here
from etlrun.measure.meter import Loop
from etlrun.measure.watched import Watch, Watched
from etlrun.planning.plan import Plan
from etlrun.record import report
from etlrun.record.record import PAGE, Record
from etlrun.record.summary import Epoch
from etlrun.run.devices import distributed
from etlrun.run.readings import base_of
from etlrun.run.session import at_work, opened, prepared
from etlrun.system.files import sync
from etlrun.system.loading import raise_if_interrupted
from etlrun.system.terminal import Task, doing, left, tell

_PAGES_APART_S, _EPOCH_S = 1.0, 0.002
"""Shortest time between two pages of a run that goes on, and for each of its epochs: a page takes a fiftieth of it."""


def record_epoch(record: Record, epoch: Epoch) -> None:
    """Add an epoch to the record of a run and to its page; `OSError` if the folder can't be written to."""
    record.epoch(epoch)
    path, apart_s = record.folder / PAGE, max(_PAGES_APART_S, _EPOCH_S * len(record.summary.epochs))
    if not path.exists() or time.time() - path.stat().st_mtime > apart_s:
        report.renew(record)


class Steps(Task):
    """Steps of an epoch, or batches of its validation or of a pass."""

    def __init__(
        self, what: str, total: int | None, watch: Watch, *, epochs_left: int = 0, others_s: float = 0.0
    ) -> None:
        """Begin; `epochs_left` epochs follow, and `others_s` seconds of other work."""
        super().__init__(what, total)
        self._watch, self._epochs_left, self._others_s = watch, epochs_left, others_s
        self._begin(watch.meter.loop)

    def _begin(self, loop: Loop) -> None:
        """Begin with sums of no step: of those that don't compile their number, examples, seconds, and waits."""
        self._loop, self._counted, self._sums = loop, 0, np.zeros(4)

    def count(self) -> str:
        """Return the number of steps, or that the first one is awaited."""
        if self._loop is not self._watch.meter.loop:
            self._begin(self._watch.meter.loop)
        for step in self._loop.steps[self._counted :]:
            self._counted += 1
            self._sums += (0, 0, 0, 0) if step.starts_up else (1, step.examples, step.step_s, step.wait_s)
        self.done = self._watch.resumed_batches + self._counted
        return super().count() if self._counted else f"first step, {self.elapsed_s:.0f} s"

    def further(self) -> Iterable[str]:
        """Yield the time left for the run, the throughput, and the share of the time that was spent waiting."""
        steps, examples, steps_s, waits_s = self._sums
        busy_s, fill_s = steps_s + waits_s, self._loop.fill_s
        if not steps or not busy_s:
            return
        if self.total is not None:
            still = max(0, self.total - self.done) + self._epochs_left * self.total
            yield left(still * busy_s / steps + self._others_s)
        yield f"{here().count * examples / busy_s:,.1f} examples/s"
        yield f"wait {(waits_s + fill_s) / (busy_s + fill_s):.0%}"


_CHUNK = 20_000
"""Numbers that a thread computes without looking at its clock: a fraction of a millisecond without Python's lock."""


def drain(plan: Plan, record: Record) -> None:
    """Read the pipeline for the trainer's epochs or seconds; `WorldError` if data is missing or corrupt."""
    work, trainer = prepared(plan, record, opened(plan)), plan.spec.trainer
    with at_work(work):
        with work.measured(), held(trainer.step_ms, trainer.step_cores) as step:
            until_s = math.inf if trainer.seconds is None else time.perf_counter() + trainer.seconds
            watch, batches, epoch = work.train.watch, work.train.batches, 0
            reading = Watched(work.train.pipeline.dataset, watch)
            while not epoch or (epoch != trainer.epochs and time.perf_counter() <= until_s):
                epoch += 1
                watch.meter.begin()
                doing(Steps(f"pass {epoch}", batches, watch))
                for _batch in reading:
                    raise_if_interrupted()
                    step()
                    watch.meter.stepped()
                    if time.perf_counter() > until_s:
                        break
                described = work.end(work.train).described()
                digest = {"digest": watch.digest.taken()} if watch.digest is not None else {}
                record_epoch(record, Epoch(epoch=epoch, **described, **digest))
                tell(f"pass {epoch}  {described['wall_s']:5.1f} s  {described['examples_per_s']:6.1f} examples/s")
        work.conclude(())


def fill(plan: Plan, record: Record) -> None:
    """Fill the caches that a run of `plan` reads, unless they are there; `WorldError` if data is missing or corrupt."""
    source, trainer = opened(plan), plan.spec.fit
    with nullcontext() if trainer is None else distributed(trainer):
        work = prepared(plan, record, source, base_of(plan, source))
        with at_work(work):
            for pipeline in (of.pipeline for of in work.inputs.values()):
                pipeline.fill()
                if (keeper := pipeline.keeper) is not None:
                    for path in (keeper.store.folder / keeper.key).glob("part_*.bin"):
                        sync(path)  # the next job would be measured beside the writing


@contextmanager
def held(step_ms: float, cores: float) -> Iterator[Callable[[], None]]:
    """Give the function that holds a batch for the time of a step, in which `cores` cores compute.

    Steps of an accelerator wait. Those of a CPU compute: each thread works until its own clock has advanced by the time
    of the step, so that a pipeline that takes its core makes the step longer.
    """
    whole, part = divmod(cores, 1)
    computed_s = [step_ms / 1000 * share for share in (*[1.0] * int(whole), part) if share * step_ms]
    waited_s = step_ms / 1000 * max(0.0, 1 - cores)
    with ThreadPoolExecutor(len(computed_s) or 1) as pool:

        def step() -> None:
            list(pool.map(_compute, computed_s))
            if waited_s:
                time.sleep(waited_s)

        yield step


def _compute(seconds: float) -> None:
    """Compute until this thread has used so many seconds of a core."""
    numbers, until_s = np.linspace(0.0, 1.0, _CHUNK), time.thread_time() + seconds
    while time.thread_time() < until_s:
        np.sin(numbers, out=numbers)
