"""Passes whose batches come from servers: in the order of the plan, or as workers deliver them."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from etlrun.run.service.lanes import Lane
from etlrun.run.service.servers import Servers
from etlrun.sources.base import Split
from etlrun.stages.load import Batch
from etlrun.stages.service import Service
from etlrun.system.errors import WorldError

_LOOK_S = 0.1
"""Interval at which a pass that waits for a batch looks at its server."""
_LOOKS_APART_S = 0.5
"""Interval at which a pass that has batches does."""
_FRUITLESS = 3
"""Times that a server is started again without a batch from it."""


class Served(Protocol):
    """What a pass needs of its pipeline: see `ServedPipeline`."""

    name: str
    servers: Servers
    batch: Batch
    lost: int

    @property
    def split(self) -> Split:
        """Examples that it reads."""

    @property
    def lanes(self) -> int:
        """Number of lanes of a pass."""

    @property
    def batches_in_pass(self) -> int:
        """Number of batches of a pass."""

    def lane(self, number: int, lane: int, done: int) -> Lane:
        """Start to read a lane of the pass of that number, after `done` batches."""

    def refused(self, error: tf.errors.OpError) -> Exception:
        """Return the error to raise for what a worker could not do."""


class ExactPass:
    """Batches of a pass in the order of the plan, by turns from each lane; those that were taken are not read again."""

    def __init__(self, pipeline: Served, number: int, done: int) -> None:
        self._pipeline, self._servers, self._number, self._done = pipeline, pipeline.servers, number, done
        each = pipeline.lanes
        self._lanes = [pipeline.lane(number, lane, max(0, -(-(done - lane) // each))) for lane in range(each)]
        self._fruitless = [0] * each

    @property
    def left(self) -> int:
        """Number of batches that are yet to come."""
        return self._pipeline.batches_in_pass - self._done

    def __iter__(self) -> ExactPass:
        return self

    def __next__(self) -> Any:
        if self.left <= 0:
            self._lanes.clear()
            raise StopIteration
        own, lane = divmod(self._done, self._pipeline.lanes)
        count, batch = self._taken(lane, own)
        while count < own:  # a worker that others have started again begins with the first
            count, batch = self._taken(lane, own)
        if count > own:
            raise self._incomplete(own, f"its batch {count + 1}")
        self._done, self._fruitless[lane] = self._done + 1, 0
        return batch

    def _taken(self, lane: int, own: int) -> tuple[int, Any]:
        """Return the next batch of a lane with its number; begin again after `own` batches if its server ended."""
        until_s = time.monotonic() + self._servers.stage.timeout_s
        while time.monotonic() < until_s:
            try:
                count, batch = self._lanes[lane].take(_LOOK_S)
                return int(count), batch
            except queue.Empty:
                is_gone = self._servers.revived(lane)
            except StopIteration:
                raise self._incomplete(own, "the end of its part") from None
            except tf.errors.OpError as error:
                if not self._servers.is_gone(error, lane):
                    raise self._pipeline.refused(error) from error
                is_gone = True
                self._servers.revived(lane)
                time.sleep(_LOOK_S)
            if is_gone:
                self._begin_again(lane, own)
        raise self._servers.overdue(lane)

    def _begin_again(self, lane: int, own: int) -> None:
        self._fruitless[lane] += 1
        if self._servers.stage.workers is not None and self._fruitless[lane] > _FRUITLESS:
            raise WorldError(
                where=Service.path,
                found=f"worker {lane + 1}, which ended {self._fruitless[lane]} times without a batch between",
                expected="workers that can compute a batch",
                remedy="the kernel kills processes that exhaust the memory; check its log, or set fewer workers",
            )
        self._lanes[lane].close()
        self._lanes[lane] = self._pipeline.lane(self._number, lane, own)

    def _incomplete(self, own: int, found: str) -> WorldError:
        return WorldError(
            where=Service.path,
            found=f"{found} of a worker after {own} batches",
            expected=f"{self._pipeline.batches_in_pass} batches of all workers in pass {self._number} of "
            f"{self._pipeline.name}",
            remedy="check that all workers have the same files",
        )


class DealtPass:
    """Batches of a pass as workers deliver them; their last ones, which are smaller, are put together at the end."""

    def __init__(self, pipeline: Served, number: int, done: int) -> None:
        self._pipeline, self._servers, self._number = pipeline, pipeline.servers, number
        self._lane, self._size = pipeline.lane(number, 0, 0), pipeline.batch.batch_size
        self._got, self._given, self._looked_s = 0, 0, time.monotonic()
        self._smaller: list[Any] = []
        self._last: deque[Any] | None = None
        for _ in range(done):
            next(self)

    @property
    def left(self) -> int:
        """Number of batches that are yet to come, if none is lost."""
        return self._pipeline.batches_in_pass - self._given

    def __iter__(self) -> DealtPass:
        return self

    def __next__(self) -> Any:
        batch = self._next()
        self._given += 1
        return batch

    def _next(self) -> Any:
        while self._last is None:
            batch = self._taken()
            if batch is None:
                self._count()
                self._last = deque(self._put_together())
            elif self._rows(batch) == self._size:
                return batch
            else:
                self._smaller.append(batch)
        if not self._last:
            raise StopIteration
        return self._last.popleft()

    def _rows(self, batch: Any) -> int:
        return int(tf.nest.flatten(batch)[0].shape[0])

    def _taken(self) -> Any:
        """Return the next batch of a worker; None at the end of the pass."""
        until_s = time.monotonic() + self._servers.stage.timeout_s
        while time.monotonic() < until_s:
            if time.monotonic() - self._looked_s > _LOOKS_APART_S:
                self._servers.look()
                self._looked_s = time.monotonic()
            try:
                batch = self._lane.take(_LOOK_S)
            except queue.Empty:
                continue
            except StopIteration:
                return None
            except tf.errors.OpError as error:
                self._servers.look()
                raise self._pipeline.refused(error) from error
            self._got += self._rows(batch)
            return batch
        raise self._servers.overdue(0)

    def _count(self) -> None:
        """Report the examples that did not come.

        Raises:
            WorldError: There are some, and `on_loss` is `fail`; or some came twice.
        """
        name, expected = self._pipeline.name, int(self._pipeline.split.num_examples)
        lost = expected - self._got
        if not lost:
            return
        found = f"{self._got:,} of {expected:,} examples in pass {self._number} of {name}"
        if lost > 0 and self._servers.stage.on_loss == "report":
            self._pipeline.lost += lost
            self._servers.say(f"{found}: {lost:,} were lost with a worker that ended")
            return
        raise WorldError(
            where=Service.path,
            found=found,
            expected="each of them once: what a worker has when it ends is lost with order=dynamic",
            remedy="run again, from a checkpoint with trainer.resume; set load.service.order=exact, which loses none, "
            "or load.service.on_loss=report",
        )

    def _put_together(self) -> Iterator[Any]:
        """Yield the smaller batches as full ones, and what is left of them unless it is to be dropped."""
        if not self._smaller:
            return
        whole = tf.nest.map_structure(lambda *of: tf.concat(of, axis=0), *self._smaller)
        rows = self._rows(whole)
        least = self._size if self._pipeline.batch.drop_remainder else 1
        for begun in range(0, rows - least + 1, self._size):
            yield tf.nest.map_structure(lambda of, begun=begun: of[begun : begun + self._size], whole)
