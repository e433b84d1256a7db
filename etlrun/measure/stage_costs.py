"""Cost of each stage of a running pipeline, read from the model of the graph that tf.data keeps for AUTOTUNE.

tf.data times every node of the graph as it runs (Murray et al., "tf.data: A Machine Learning Data Processing
Framework", VLDB 2021). It does not keep the names that users set, so nodes are matched with the plan by their order.
A node with threads of its own ends a thread of control: the nodes before it run concurrently with those after it.
The slowest thread limits the pipeline; within a thread the times of the stages add up. (So do the rates of
Kuchnik et al., "Plumber: Diagnosing and Removing Performance Bottlenecks in Machine Learning Data Pipelines",
MLSys 2022.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etlrun.record.findings import StageCost
from etlrun.stages.model import Backbone

_NODES: Mapping[str, tuple[str, ...]] = {
    "load.prefetch": ("Prefetch",),
    "load.batch": ("Batch", "ParallelBatch"),
    "load.shuffle": ("Shuffle",),
    "cache.memory": ("MemoryCache",),
    "cache.disk": ("Concatenate", "Map", "ParallelMap"),
    "model.backbone": ("Unbatch",),
    "dataset.skip_corrupt": ("Filter", "Concatenate", "IgnoreErrors"),
    "transform.": ("Map", "ParallelMap"),
}
"""Prefixes of the names of the nodes of each stage. All nodes after the last of them belong to the extraction."""
_BATCHES = ("Batch", "ParallelBatch")
_WRAPPERS = ("FlatMap", "Concatenate", "FiniteTake")
"""Nodes that start a pass if they wrap batches: their time counts per pass, not per example."""

Shares = dict[str, float]


@dataclass(frozen=True)
class _Place:
    """Position of nodes in the plan: a stage, the examples per element, and the prefixes of matching node names.

    After a place with `takes_one`, the next matching node moves on to the next place.
    """

    stage: str
    per_element: int
    names: tuple[str, ...] = ()
    takes_one: bool = False


def _places(paths: Sequence[str], batch_size: int, *, reads_disk: bool) -> list[_Place]:
    """Return the places from the end of the graph to its source.

    A pass that reads a disk cache has a different order: indices are shuffled, and examples are read late.
    """
    order = list(paths)
    if reads_disk:
        place = order.index("cache.disk")
        after, ahead = order[place + 1 :], [path for path in order if path == "load.prefetch"]
        order = [path for path in after if path not in ahead]
        order.insert(
            order.index("transform.after_cache") if "transform.after_cache" in order else len(order), "cache.disk"
        )
        order += ahead
    places, is_batched = [], True
    for path in reversed(order):
        names = next((names for key, names in _NODES.items() if path.startswith(key)), ())
        if path == "cache.disk" and not reads_disk:
            names = ("Concatenate",)
        if path == "dataset.skip_corrupt":  # a map removes the indices
            places.append(_Place(path, 1, ("Map",), takes_one=True))
        is_once = path in {"transform.after_cache", "model.backbone"}
        places.append(_Place(path, batch_size if is_batched else 1, names, takes_one=is_once))
        if path.startswith("cache.") and not reads_disk:  # a map counts or writes the cached examples
            places.append(_Place(path, 1, ("Map",), takes_one=True))
        if path == "model.backbone":
            places += [_Place(path, Backbone.pictures_at_once, names) for names in ((), _BATCHES)]
        is_batched = is_batched and path != "load.batch"
    return [*places, _Place("cache.disk", 1)] if reads_disk else places


@dataclass(frozen=True)
class Thread:
    """A thread of control.

    Attributes:
        shares: Milliseconds per example of each stage.
    """

    shares: Shares = field(default_factory=dict)

    @property
    def period_ms(self) -> float:
        """Milliseconds per example of the whole thread."""
        return sum(self.shares.values())

    def plus(self, stage: str, ms: float) -> Thread:
        """Return this thread with `ms` added to `stage`."""
        return Thread({**self.shares, stage: self.shares.get(stage, 0.0) + ms})

    def and_then(self, other: Thread) -> Thread:
        """Return the sum of both threads."""
        return Thread(
            {key: self.shares.get(key, 0.0) + other.shares.get(key, 0.0) for key in self.shares | other.shares}
        )

    def scaled(self, factor: float) -> Thread:
        """Return this thread with every share multiplied by `factor`."""
        return Thread({key: factor * value for key, value in self.shares.items()})


@dataclass(frozen=True)
class Periods:
    """Time per example of a pipeline.

    Attributes:
        asking: Stages that run in the thread that requests batches, which is the training's own without prefetching.
        behind: Slowest of the threads that run concurrently with it.
        work: Total work of all threads.
    """

    asking: Thread = Thread()
    behind: Thread = Thread()
    work: Thread = Thread()

    @property
    def slowest(self) -> Thread:
        """The thread that limits the throughput of the pipeline alone."""
        return _slower(self.asking, self.behind)


class StageCosts:
    """Stage costs of one pass.

    Attributes:
        rows: Cost of each stage, in the order of the plan.
        periods: Times per example of the whole pipeline.
        reads_disk: Whether the pass read a disk cache.
    """

    def __init__(
        self,
        proto: Any,
        paths: Sequence[str],
        batch_size: int,
        threads: int,
        *,
        reads_disk: bool = False,
        pass_examples: int | None = None,
    ) -> None:
        """Read AUTOTUNE's model (a `ModelProto`) of the stages `paths`, whose maps use at most `threads` threads.

        `reads_disk` distinguishes a pass that reads a disk cache from one that fills it. `pass_examples` is the number
        of examples in the batches of a pass; without it the last batch counts as full.
        """
        self._nodes, self._threads, self.reads_disk = proto.nodes, threads, reads_disk
        self._pass_examples = pass_examples
        self._places = _places(paths, batch_size, reads_disk=reads_disk)
        self._rows: dict[str, StageCost] = {}
        self.periods = self._walk(proto.output, 0)
        work = self.periods.work.shares
        self.rows = [replace(self._rows[path], cost_ms=work.get(path, 0.0)) for path in paths if path in self._rows]

    def _place(self, name: str, position: int) -> int:
        """Return the place of a node of this name, from the end of the plan, after a node at `position`.

        A node never skips a batch stage whose own node has not been seen.
        """
        start = position + 1 if self._places[position].takes_one else position
        for place in range(start, len(self._places) - 1):
            if name.startswith(self._places[place].names):
                return place
            if self._places[place].names == _BATCHES and place > position:
                break
        is_within = start > position and self._places[start].stage == self._places[position].stage
        return start if is_within else position

    def _walk(self, identity: int, position: int) -> Periods:
        node, last = self._nodes[identity], len(self._places) - 1
        position = position if position == last else self._place(node.name, position)
        stage = self._places[position].stage
        self._note(node, position)
        examples = self._examples(node, position)
        begins_pass = node.name in _WRAPPERS and self._places[position].per_element > 1
        own_ms = float(node.processing_time) / 1e6 / examples if examples and not begins_pass else 0.0
        before = self._before(node, last if stage == "transform.map" else position, position)
        work = before.work.plus(stage, own_ms)
        parallelism = max(1, min(_setting(node, "parallelism") or 1, self._threads))
        if node.name.startswith(("ParallelMap", "ParallelBatch")):
            return Periods(Thread(), _slower(Thread({stage: own_ms / parallelism}), before.slowest), work)
        if node.name.startswith("ParallelInterleave"):
            reading = _slower(before.asking.scaled(self._files_share(node, before.asking)), before.behind)
            return Periods(Thread(), _slower(Thread({stage: own_ms}), reading), work)
        if node.name.startswith("Prefetch"):
            return Periods(Thread(), before.slowest.plus(stage, own_ms), work)
        return Periods(before.asking.plus(stage, own_ms), before.behind, work)

    def _before(self, node: Any, position: int, own: int) -> Periods:
        """Return the time per example of the inputs of a node: the mean of an interleave's files, else their sum."""
        inputs, stage = list(node.inputs), self._places[own].stage
        if not inputs:
            return Periods()
        if len(inputs) > 1 and ("Interleave" in node.name or node.name == "FlatMap"):
            return self._files(inputs[1:], position)
        main = max(inputs, key=self._size)
        side_ms = sum(self._side_ms(key) for key in inputs if key != main) / max(self._examples(node, own), 1)
        before = self._walk(main, position)
        return Periods(before.asking.plus(stage, side_ms), before.behind, before.work.plus(stage, side_ms))

    def _files(self, keys: Sequence[int], position: int) -> Periods:
        """Return the mean over the open files, weighted by the number of records read from each."""
        counts = [self._nodes[key].num_elements for key in keys]
        total, mean = sum(counts), Periods()
        for key, count in zip(keys, counts, strict=True):
            one, share = self._walk(key, position), count / total if total else 1 / len(counts)
            mean = Periods(
                mean.asking.and_then(one.asking.scaled(share)),
                _slower(mean.behind, one.behind),
                mean.work.and_then(one.work.scaled(share)),
            )
        return mean

    def _files_share(self, node: Any, asking: Thread) -> float:
        """Return the fraction of one reader's time that concurrent readers take: all wait for storage at once."""
        readers = max(1, _setting(node, "parallelism") or 1)
        files = list(node.inputs)[1:]
        records = sum(self._nodes[key].num_elements for key in files) or 1
        waiting = sum(self._side_ms(key, "TFRecord") for key in files) / records / (asking.period_ms or 1.0)
        return waiting / readers + (1 - waiting) / min(readers, self._threads)

    def _size(self, identity: int) -> int:
        return 1 + sum(self._size(key) for key in self._nodes[identity].inputs)

    def _side_ms(self, identity: int, only: str = "") -> float:
        """Return the time of a node and its inputs; `only` limits it to nodes with this name prefix."""
        node = self._nodes[identity]
        own_ms = float(node.processing_time) / 1e6 if node.name.startswith(only) else 0.0
        return own_ms + sum(self._side_ms(key, only) for key in node.inputs)

    def _examples(self, node: Any, position: int) -> int:
        """Return the number of examples that passed a node, including those in a shuffle buffer."""
        place, elements = self._places[position], int(node.num_elements)
        if place.stage == "load.shuffle":
            elements += int(node.buffered_elements)
        if place.per_element == 1 or not self._pass_examples:
            return elements * place.per_element
        passes, more = divmod(elements, -(-self._pass_examples // place.per_element))
        return passes * self._pass_examples + more * place.per_element

    def _note(self, node: Any, position: int) -> None:
        """Record the settings and the buffers of a node; the outermost node of a stage counts its examples."""
        stage = self._places[position].stage
        row = self._rows.get(stage) or StageCost(stage=stage, examples=self._examples(node, position), cost_ms=0.0)
        self._rows[stage] = replace(
            row,
            parallelism=row.parallelism or _setting(node, "parallelism"),
            buffer_size=row.buffer_size or _setting(node, "buffer_size"),
            buffered_bytes=row.buffered_bytes + int(node.buffered_bytes),
        )


def _slower(one: Thread, other: Thread) -> Thread:
    return one if one.period_ms >= other.period_ms else other


def _setting(node: Any, name: str) -> int | None:
    """Return the current value of a node's parameter; None if it has none of that name."""
    for parameter in node.parameters:
        if parameter.name == name:
            return int(parameter.state_value or parameter.value)
    return None
