"""Passes whose batches come from the workers of a service, in the order of the plan."""

from __future__ import annotations

import queue
import time
from typing import Any, Protocol

import tensorflow as tf

from etlrun.service import servers
from etlrun.service.lanes import Lane
from etlrun.stages.service import Service
from etlrun.system.errors import WorldError

_LOOK_S = 0.1
"""Interval at which a pass that waits for a batch looks at the time."""


class Served(Protocol):
    """What a pass needs of its pipeline: see `ServedPipeline`."""

    name: str
    service: Service
    fingerprint: bytes

    @property
    def batches_in_pass(self) -> int:
        """Number of batches of a pass."""

    def lane(self, number: int, lane: int, done: int) -> Lane:
        """Start to read a lane of the pass of that number, after `done` batches."""

    def refused(self, error: tf.errors.OpError) -> Exception:
        """Return the error to raise for what a worker could not do."""


class Pass:
    """Batches of a pass in the order of the plan, by turns from each lane; those that were taken are not read again."""

    def __init__(self, pipeline: Served, number: int, done: int) -> None:
        self._pipeline, self._number, self._done = pipeline, number, done
        self._addresses = pipeline.service.addresses
        each = len(self._addresses)
        self._lanes = [pipeline.lane(number, lane, max(0, -(-(done - lane) // each))) for lane in range(each)]

    @property
    def left(self) -> int:
        """Number of batches that are yet to come."""
        return self._pipeline.batches_in_pass - self._done

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if self.left <= 0:
            self._lanes.clear()
            raise StopIteration
        own, lane = divmod(self._done, len(self._lanes))
        count, batch = self._taken(lane, own)
        while count < own:  # a worker that was started again sends some again
            count, batch = self._taken(lane, own)
        if count > own:
            raise self._incomplete(own, f"its batch {count + 1}")
        self._done += 1
        return batch

    def _taken(self, lane: int, own: int) -> tuple[int, Any]:
        """Return the next batch of a lane with its number; begin again after `own` batches if its server is gone."""
        service = self._pipeline.service
        until_s = time.monotonic() + service.timeout_s
        while time.monotonic() < until_s:
            try:
                fingerprint, (count, batch) = self._lanes[lane].take(_LOOK_S)
            except queue.Empty:
                continue
            except StopIteration:
                raise self._incomplete(own, "the end of its part") from None
            except tf.errors.OpError as error:
                if not servers.is_gone(error):
                    raise self._pipeline.refused(error) from error
                time.sleep(_LOOK_S)
                self._lanes[lane].close()
                self._lanes[lane] = self._pipeline.lane(self._number, lane, own)
                continue
            if fingerprint.numpy() != self._pipeline.fingerprint:
                raise servers.other_plan(self._addresses[lane])
            return int(count), batch
        raise servers.overdue(service, self._addresses[lane])

    def _incomplete(self, own: int, found: str) -> WorldError:
        return WorldError(
            where=Service.path,
            found=f"{found} of a worker after {own} batches",
            expected=f"{self._pipeline.batches_in_pass} batches of all workers in pass {self._number} of "
            f"{self._pipeline.name}",
            remedy="check that all workers have the same files",
        )
