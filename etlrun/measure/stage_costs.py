"""What each stage of a running pipeline costs, read from the model of the graph that tf.data keeps for AUTOTUNE.

tf.data times every node of the graph as it runs (Murray et al., "tf.data: A Machine Learning Data Processing
Framework", VLDB 2021). It forgets the names that users give, so nodes are matched with the plan by their order.
A node that works in threads of its own ends a thread of control: what lies before it runs beside what lies after it.
The pipeline is as slow as the slowest thread; within a thread the times of the stages add up. (So do the rates of
Kuchnik et al., "Plumber: Diagnosing and Removing Performance Bottlenecks in Machine Learning Data Pipelines",
MLSys 2022.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_NODES: Mapping[str, tuple[str, ...]] = {
    "load.prefetch": ("Prefetch",),
    "load.batch": ("Batch", "ParallelBatch"),
    "load.shuffle": ("Shuffle",),
    "cache.": ("MemoryCache", "FileCache"),
    "dataset.skip_corrupt": ("IgnoreErrors",),
    "transform.map": ("Map", "ParallelMap"),
}
"""How the names of a stage's own nodes begin. All nodes behind the last of them belong to the extraction."""

Shares = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What one stage did in one pass.

    Attributes:
        stage: As the plan names it.
        examples: That left it.
        cost_ms: Per example, of all threads together, waiting for storage included.
        parallelism: Threads as AUTOTUNE or the config set them; None for a stage without threads of its own.
        buffer_size: Elements that it may hold ready, in the same way.
        buffered_bytes: What it held when it was last looked at.
    """

    stage: str
    examples: int
    cost_ms: float
    parallelism: int | None = None
    buffer_size: int | None = None
    buffered_bytes: int = 0


@dataclass(frozen=True)
class Thread:
    """A thread of control.

    Attributes:
        shares: Milliseconds per example, by stage.
    """

    shares: Shares = field(default_factory=dict)

    @property
    def period_ms(self) -> float:
        """Per example."""
        return sum(self.shares.values())

    def plus(self, stage: str, ms: float) -> Thread:
        """This thread with `ms` more for `stage`."""
        return Thread({**self.shares, stage: self.shares.get(stage, 0.0) + ms})

    def and_then(self, other: Thread) -> Thread:
        """Both in one."""
        return Thread(
            {key: self.shares.get(key, 0.0) + other.shares.get(key, 0.0) for key in self.shares | other.shares}
        )

    def scaled(self, factor: float) -> Thread:
        """With every share multiplied."""
        return Thread({key: factor * value for key, value in self.shares.items()})


@dataclass(frozen=True)
class Periods:
    """How long a pipeline takes for an example.

    Attributes:
        asking: What runs in the thread that asks for batches; the training's own where there is no prefetch.
        behind: The slowest of the threads that run beside it.
        work: Of all threads together, as if there were one.
    """

    asking: Thread = Thread()
    behind: Thread = Thread()
    work: Thread = Thread()

    @property
    def slowest(self) -> Thread:
        """The thread that sets the pace when nothing waits for the pipeline's end."""
        return _slower(self.asking, self.behind)


class StageCosts:
    """The costs of one pass.

    Attributes:
        rows: By stage, in the order of the plan.
        periods: Of the whole pipeline.
    """

    def __init__(self, proto: Any, paths: Sequence[str], batch_size: int, threads: int) -> None:
        """Read AUTOTUNE's model (a `ModelProto`) of the stages `paths`, whose maps have `threads` threads at most."""
        self._nodes, self._batch_size, self._threads = proto.nodes, batch_size, threads
        self._paths = tuple(reversed(paths))
        self._rows: dict[str, StageCost] = {}
        self.periods = self._walk(proto.output, 0)
        work = self.periods.work.shares
        self.rows = [replace(self._rows[path], cost_ms=work.get(path, 0.0)) for path in paths if path in self._rows]

    def _place(self, name: str, position: int) -> int:
        """Where in the plan, from its end, a node of this name stands, if the one before it stood at `position`."""
        for place in range(position, len(self._paths) - 1):
            prefix = next(key for key in _NODES if self._paths[place].startswith(key))
            if name.startswith(_NODES[prefix]):
                return place
        return position

    def _walk(self, identity: int, position: int) -> Periods:
        node, last = self._nodes[identity], len(self._paths) - 1
        position = position if position == last else self._place(node.name, position)
        stage = self._paths[position]
        self._note(node, stage)
        examples = self._examples(node, stage)
        own_ms = float(node.processing_time) / 1e6 / examples if examples else 0.0
        before = self._before(node, last if stage == "transform.map" else position, stage)
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

    def _before(self, node: Any, position: int, stage: str) -> Periods:
        """What all inputs of a node take for one example: the files of an interleave in turn, all others together."""
        inputs = list(node.inputs)
        if not inputs:
            return Periods()
        if len(inputs) > 1 and ("Interleave" in node.name or node.name == "FlatMap"):
            return self._files(inputs[1:], position)
        main = max(inputs, key=self._size)
        side_ms = sum(self._side_ms(key) for key in inputs if key != main) / max(self._examples(node, stage), 1)
        before = self._walk(main, position)
        return Periods(before.asking.plus(stage, side_ms), before.behind, before.work.plus(stage, side_ms))

    def _files(self, keys: Sequence[int], position: int) -> Periods:
        """The mean of the files that are open, by the records that each has given."""
        counts = [self._nodes[key].num_elements for key in keys]
        total, mean = sum(counts), Periods()
        for key, count in zip(keys, counts, strict=True):
            one, share = self._walk(key, position), count / total if total else 0.0
            mean = Periods(
                mean.asking.and_then(one.asking.scaled(share)),
                _slower(mean.behind, one.behind),
                mean.work.and_then(one.work.scaled(share)),
            )
        return mean

    def _files_share(self, node: Any, asking: Thread) -> float:
        """What several readers leave of the time of one: all of them wait for storage, as many as threads compute."""
        readers = max(1, _setting(node, "parallelism") or 1)
        files = list(node.inputs)[1:]
        records = sum(self._nodes[key].num_elements for key in files) or 1
        waiting = sum(self._side_ms(key, "TFRecord") for key in files) / records / (asking.period_ms or 1.0)
        return waiting / readers + (1 - waiting) / min(readers, self._threads)

    def _size(self, identity: int) -> int:
        return 1 + sum(self._size(key) for key in self._nodes[identity].inputs)

    def _side_ms(self, identity: int, only: str = "") -> float:
        """Of a node and all before it; `only` those whose name begins so."""
        node = self._nodes[identity]
        own_ms = float(node.processing_time) / 1e6 if node.name.startswith(only) else 0.0
        return own_ms + sum(self._side_ms(key, only) for key in node.inputs)

    def _examples(self, node: Any, stage: str) -> int:
        """That a node has let through; a shuffle buffer that fills has taken more than it gave."""
        is_batched = stage in {"load.prefetch", "load.batch"} or node.name in {"Root", "ForeverRepeat"}
        count = int(node.num_elements) + (int(node.buffered_elements) if stage == "load.shuffle" else 0)
        return count * self._batch_size if is_batched else count

    def _note(self, node: Any, stage: str) -> None:
        """Keep what a node is set to and holds; the outermost node of a stage counts its examples."""
        row = self._rows.get(stage) or StageCost(stage=stage, examples=self._examples(node, stage), cost_ms=0.0)
        self._rows[stage] = replace(
            row,
            parallelism=row.parallelism or _setting(node, "parallelism"),
            buffer_size=row.buffer_size or _setting(node, "buffer_size"),
            buffered_bytes=row.buffered_bytes + int(node.buffered_bytes),
        )


def _slower(one: Thread, other: Thread) -> Thread:
    return one if one.period_ms >= other.period_ms else other


def _setting(node: Any, name: str) -> int | None:
    """A node's parameter as it is set now."""
    for parameter in node.parameters:
        if parameter.name == name:
            return int(parameter.state_value or parameter.value)
    return None
