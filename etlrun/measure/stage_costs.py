"""Cost of each stage of a running pipeline, read from the model of the graph that tf.data keeps for AUTOTUNE.

tf.data times every node of the graph as it runs (Murray et al., "tf.data: A Machine Learning Data Processing
Framework", VLDB 2021). It does not keep the names that users set, so nodes are matched with the plan by their order.
A node with threads of its own ends a thread of control: the nodes before it run concurrently with those after it.
The slowest thread limits the pipeline; within a thread the times of the stages add up. (So do the rates of
Kuchnik et al., "Plumber: Diagnosing and Removing Performance Bottlenecks in Machine Learning Data Pipelines",
MLSys 2022.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from etlrun.record.summary import StageCost
from etlrun.stages.base import BATCHES, CUT, Nodes, Stage
from etlrun.stages.cache import outlives_run
from etlrun.stages.dataset import Fetch
from etlrun.stages.load import Batch, Shuffle
from etlrun.stages.step import Map

_WRAPPERS = ("FlatMap", "Concatenate", "FiniteTake")
"""Nodes that start a pass if they wrap batches: their time counts per pass, not per example."""


@dataclass(frozen=True)
class _Place:
    """Nodes of a stage at their place in the graph, with the number of examples per element."""

    stage: str
    per_element: int
    nodes: Nodes


def _places(stages: Sequence[Stage], batch_size: int, *, reads_disk: bool) -> list[_Place]:
    """Return the nodes of all stages from the end of the graph to its source."""
    places, is_batched, source = list[_Place](), True, list[_Place]()
    stages = [stage for stage in stages if stage.path != Fetch.path]  # whose waits are counted where they are
    if reads_disk:  # then indices are shuffled, and examples are read late
        at = next(place for place, stage in enumerate(stages) if outlives_run(stage.path))
        cache, after = stages[at], stages[at + 1 :]
        first = next(place for place, stage in enumerate(after) if not stage.only_reorders)
        first += after[first].path == Batch.path  # whole batches are read where nothing works on single examples
        stages, source = [*after[:first], cache, *after[first:]], [_Place(cache.path, 1, Nodes())]
    for stage in reversed(stages):
        per_element = batch_size if is_batched else 1
        of = stage.nodes_of_reading if reads_disk and stage.nodes_of_reading is not None else stage.nodes
        places += [_Place(stage.path, nodes.examples or per_element, nodes) for nodes in of]
        is_batched = is_batched and stage.path != Batch.path
    return places + source


class Thread(dict[str, float]):
    """A thread of control: milliseconds per example of each stage."""

    @property
    def period_ms(self) -> float:
        """Milliseconds per example of the whole thread."""
        return sum(self.values())

    @property
    def heaviest(self) -> str:
        """The stage that takes most of it."""
        return max(self, key=self.__getitem__)

    def plus(self, other: dict[str, float], times: float = 1.0) -> Thread:
        """Return this thread with so many times what `other` takes, added to its stages."""
        return Thread({key: self.get(key, 0.0) + times * other.get(key, 0.0) for key in self | other})


class Periods(NamedTuple):
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

    def plus(self, other: Periods, times: float = 1.0) -> Periods:
        """Return the sum with so many times the work that `other` does in threads of the same kinds."""
        asking, work = self.asking.plus(other.asking, times), self.work.plus(other.work, times)
        return Periods(asking, _slower(self.behind, other.behind), work)

    def of(self, stages: Collection[str]) -> Periods:
        """Return the part that these stages take."""
        return Periods(*(Thread({key: ms for key, ms in of.items() if key in stages}) for of in self))


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
        stages: Sequence[Stage],
        batch_size: int,
        threads: int,
        *,
        reads_disk: bool = False,
        pass_examples: int | None = None,
    ) -> None:
        """Read AUTOTUNE's model (a `ModelProto`) of `stages`, whose maps use at most `threads` threads.

        `reads_disk` distinguishes a pass that reads a disk cache from one that fills it. `pass_examples` is the number
        of examples in the batches of a pass; without it the last batch counts as full.
        """
        self._nodes, self._threads, self.reads_disk = proto.nodes, threads, reads_disk
        self._pass_examples, self._fetches = pass_examples, any(stage.path == Fetch.path for stage in stages)
        self._places = _places(stages, batch_size, reads_disk=reads_disk)
        self._rows: dict[str, StageCost] = {}
        self.periods = self._walk(proto.output, 0)
        work, self._paths = self.periods.work, [stage.path for stage in stages]
        paths = [path for path in self._paths if path in self._rows]
        self.rows = [replace(self._rows[path], cost_ms=work.get(path, 0.0)) for path in paths]

    def improve(self, later: StageCosts) -> None:
        """Take what a later model of the same pass says of the stages of which it has seen more examples."""
        seen = {row.stage: row.examples for row in self.rows}
        more = {row.stage: row for row in later.rows if row.examples > seen.get(row.stage, 0)}
        rows = {row.stage: row for row in self.rows} | more
        self.rows = [rows[path] for path in self._paths if path in rows]
        self.periods = self.periods.of(seen.keys() - more.keys()).plus(later.periods.of(more))

    def _place(self, name: str, position: int) -> int:
        """Return the place of a node of this name, from the end of the plan, after a node at `position`."""
        start = position + 1 if self._places[position].nodes.is_single else position
        for place in range(start, len(self._places) - 1):
            if name.startswith(self._places[place].nodes.names):
                return place
            if self._places[place].nodes.names in (BATCHES, CUT) and place > position:
                break  # it never skips a batch stage whose own node has not been seen
        is_within = start > position and self._places[start].stage == self._places[position].stage
        return start if is_within else position

    def _walk(self, identity: int, position: int) -> Periods:
        node, last = self._nodes[identity], len(self._places) - 1
        position = position if position == last else self._place(node.name, position)
        place, examples = self._places[position], self._examples(node, position)
        stage = place.stage
        self._note(node, position, stage)
        begins_pass = node.name in _WRAPPERS and place.per_element > 1
        own_ms = float(node.processing_time) / 1e6 / examples if examples and not begins_pass else 0.0
        own = Thread({stage: own_ms})
        is_first = stage == Map.path if self.reads_disk else position == last - 1  # all nodes before it read
        is_cut = place.nodes.names == CUT and node.name.startswith(CUT)
        if node.name.startswith("Rebatch") or is_cut:  # of the whole order of a pass, which is drawn as the pass begins
            for behind in self._places[position + 1 :]:
                self._note(node, position, behind.stage)
            return Periods(own, work=own)
        before = self._before(node, last if is_first else position, position)
        work = before.work.plus(own)
        readers = max(1, _setting(node, "parallelism") or 1)
        threads = min(readers, self._threads)
        if node.name.startswith(("ParallelMap", "ParallelBatch")):
            return Periods(behind=_slower(Thread({stage: own_ms / threads}), before.slowest), work=work)
        if node.name.startswith("ParallelInterleave"):
            if self._fetches:  # then the own time of this node is that of all of its threads, which wait for shards
                own, work = Thread({stage: 0.0}), before.work
            files = node.inputs[1:]
            records = sum(self._nodes[key].num_elements for key in files) or 1
            waiting = sum(self._side_ms(key, "TFRecord") for key in files) / records / (before.asking.period_ms or 1.0)
            share = waiting / readers + (1 - waiting) / threads
            reading = _slower(Thread().plus(before.asking, share), before.behind)
            return Periods(behind=_slower(own, reading), work=work)
        if node.name.startswith("Prefetch"):
            return Periods(behind=before.slowest.plus(own), work=work)
        return before.plus(Periods(own, work=own))

    def _before(self, node: Any, position: int, own: int) -> Periods:
        """Return the time per example of the inputs of a node: the mean of an interleave's files, else their sum."""
        inputs = node.inputs
        if not inputs:
            return Periods()
        if len(inputs) > 1 and ("Interleave" in node.name or node.name == "FlatMap"):
            counts = [self._nodes[key].num_elements for key in inputs[1:]]  # of records, read from each open file
            total, mean = sum(counts), Periods()
            for key, count in zip(inputs[1:], counts, strict=True):
                mean = mean.plus(self._walk(key, position), count / total if total else 1 / len(counts))
            return mean
        main = max(inputs, key=self._size)
        side_ms = sum(self._side_ms(key) for key in inputs if key != main) / max(self._examples(node, own), 1)
        side = Thread({self._places[own].stage: side_ms})
        return self._walk(main, position).plus(Periods(side, work=side))

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
        if place.stage == Shuffle.path:
            elements += int(node.buffered_elements)
        if place.per_element == 1 or not self._pass_examples:
            return elements * place.per_element
        passes, more = divmod(elements, -(-self._pass_examples // place.per_element))
        return passes * self._pass_examples + more * place.per_element

    def _note(self, node: Any, position: int, stage: str) -> None:
        """Record the settings and the buffers of a node; the outermost node of a stage counts its examples."""
        row = self._rows.get(stage) or StageCost(stage=stage, examples=self._examples(node, position), cost_ms=0.0)
        self._rows[stage] = replace(
            row,
            parallelism=row.parallelism or _setting(node, "parallelism"),
            buffer_size=row.buffer_size or _setting(node, "buffer_size"),
            buffered_bytes=row.buffered_bytes + int(node.buffered_bytes),
        )


def _slower(one: Thread, other: Thread) -> Thread:
    return max(one, other, key=lambda of: of.period_ms)


def _setting(node: Any, name: str) -> int | None:
    """Return the current value of a node's parameter; None if it has none of that name."""
    return next((int(of.state_value or of.value) for of in node.parameters if of.name == name), None)
