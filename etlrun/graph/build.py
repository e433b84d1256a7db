"""Graph of a planned pipeline as a `tf.data.Dataset`, and parts of it for other processes; the size of its cache."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import tensorflow as tf

from etlrun.cache.keeper import READ, Keeper
from etlrun.graph import disk
from etlrun.graph.context import Context, as_is
from etlrun.graph.datasets import chained, counted, staged
from etlrun.graph.shards import count_of_batched, in_random_order
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number
from etlrun.stages.base import Scope
from etlrun.stages.cache import cache_bytes
from etlrun.stages.flow import NUMBER, Flow
from etlrun.stages.load import Batch, FullShuffle, Service
from etlrun.stages.model import Backbone
from etlrun.stages.step import Map
from etlrun.system.errors import ConfigError, Fault, WorldError
from etlrun.system.machine import megabytes


def differs(dataset: tf.data.Dataset, flow: Flow) -> str:
    """Return what the elements of a graph are where they don't match `flow`; empty if they match."""
    specs = {name: spec for name, spec in dataset.element_spec.items() if name != NUMBER}
    if {*specs} != {*flow.features}:
        return f"the features {', '.join(sorted(specs))}"
    for name in flow.columns:
        spec, feature = specs[name], flow.features[name]
        shape = tuple(spec.shape)[flow.batch_size is not None :]
        if (spec.dtype.name, shape) != (feature.dtype, feature.shape):
            return f"{spec.dtype.name} {shape}{f' for {name}' if len(flow.inputs) > 1 else ''}"
    return ""


def wrong(build: Callable[[Sequence[PlannedStage]], tf.data.Dataset], stages: Sequence[PlannedStage]) -> str:
    """Return what the first stage or step that doesn't give what it declares gives instead; `build` builds stages."""
    for place, whole in enumerate(stages):
        for path, stage, part in _parts(whole):
            found = "" if part.gives.is_serialised else differs(build([*stages[:place], part]), part.gives)
            if found:
                where = f"{path} of {type(stage).__module__}"
                return f"{where} gives {found}, and declares {part.gives}: its `gives` or its `op` is wrong"
    return "a stage gives something else than it declares"


def _parts(whole: PlannedStage) -> Iterator[tuple[str, object, PlannedStage]]:
    """Yield a stage, or a map up to each of its steps."""
    if not isinstance(whole.stage, Map):
        yield whole.stage.path, whole.stage, whole
        return
    for count, step in enumerate(whole.steps, 1):
        stage = dataclasses.replace(whole.stage, steps=whole.stage.steps[:count])
        yield step.stage.path, step.stage, dataclasses.replace(whole, stage=stage, gives=step.gives)


class Passes(tf.data.Dataset):  # type: ignore[misc]
    """Dataset that Keras treats as `like`, and reads through the iterators of `begin`, with the same elements.

    Attributes:
        begin: Function that begins a pass.
        handed: Function from what an iterator gives to an element; None if they are the same. It is called outside of
            any graph, where it takes no node and no thread.
    """

    def __init__(
        self, like: tf.data.Dataset, begin: Callable[[], Iterator[Any]], handed: Callable[[Any], Any] | None = None
    ) -> None:
        self._like, self.begin, self.handed = like, begin, handed
        super().__init__(like._variant_tensor)  # noqa: SLF001 - as tf.data's own wrappers do

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._like]

    @property
    def element_spec(self) -> Any:
        """Element spec of `like`."""
        return self._like.element_spec

    def __iter__(self) -> Iterator[Any]:
        return self.begin() if self.handed is None else map(self.handed, self.begin())


_AT_ONCE = 64
"""Examples that a cache takes between two looks at signals."""


class Pipeline:
    """The stages of one split, as one graph.

    Each iteration over `dataset` is the next pass over the data, with its own order and augmentation, which are
    determined by the seed and the number of iterations begun before.

    Attributes:
        stages: Stages of the plan.
        context: State that the stages share.
        split: Examples that the pipeline reads.
        keeper: Keeper of the cache on disk; None without one.
        dataset: Batches of one pass as a model takes them, (inputs, targets) and perhaps a weight, which all stages
            have by name. Its length is unknown to tf.data, so that Keras reads it to its end: only then is a cache
            complete.
        filling_s: Duration of filling a cache before the first pass; 0 if the first pass fills it.
        filled_s: Duration of the first pass, if that has filled a cache; see `Held`.
    """

    def __init__(self, stages: Stages, context: Context, keeper: Keeper | None = None) -> None:
        """Build the graph; raise `TypeError` if it doesn't match the plan."""
        self.context, self.split = (context := context.numbered(stages)), context.split
        self.stages, self.keeper = tuple(stages), keeper
        self._ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
        before, cache, after = at_cache([planned for planned in stages if planned not in self._ahead])
        self._kept: Flow = (before or after)[-1].gives
        self._has_memory, self._after = cache is not None and keeper is None, after
        self._without_cache = after if cache is None else by_number([*before, *after])
        self._before, self._cache = before, cache
        if cache is not None and keeper is None:
            memory = staged(counted(self._first(before, context), self._kept, context), cache, context)
            self._in_memory = memory.with_options(as_written())  # which apply to all datasets derived from it
        self._number, self._skipped = 0, 0
        self.filling_s = self.filled_s = 0.0
        self._traced = tf.function(partial(self._of_pass, None, self._ahead), autograph=False)
        batches = self._traced(tf.constant(0, tf.int64))  # once for all passes: it takes as long as a few batches
        if differs(batches, stages[-1].gives):
            raise TypeError(wrong(self.uncached, self.stages))
        self.dataset = self._handed(batches, lambda: iter(self._next_pass()))

    @property
    def held_bytes(self) -> int:
        """Size of its cache, in memory or on disk."""
        return self.keeper.held_bytes if self.keeper else int(self.context.held_bytes)

    @property
    def fills_ahead(self) -> bool:
        """Whether a cache on disk is filled before the first pass, since examples are read by number."""
        return self.keeper is not None and bool(self._without_cache)

    def skip(self, passes: int, batches: int = 0) -> None:
        """Skip passes, and batches of the next one, as if they had been read.

        Nothing is read of whole passes. Examples of batches are skipped as soon as their order is known, which is
        mostly before they are decoded. Those that a cache is yet to hold are read.
        """
        self._number += passes
        sizes = (planned.gives.batch_size for planned in self.stages)
        self._skipped = batches * next(size for size in sizes if size is not None)

    def _next_pass(self) -> tf.data.Dataset:
        self._number += 1
        self._fill_first()
        self.context.passes_begun.assign(self._number, read_value=False)
        skipped, self._skipped = self._skipped, 0
        decided = [tf.constant(self._number, tf.int64)]
        if self.keeper is not None:
            mode = self.keeper.begin()
            if mode > READ:  # the next pass reads what this one fills, and would wait for its graph
                self._traced.get_concrete_function(*[tf.TensorSpec((), tf.int64)] * 3)
            count = [tf.constant(self.keeper.count, tf.int64)] if mode == READ else []
            decided += [tf.constant(mode), *count]
        return self._of_pass(skipped, self._ahead, *decided) if skipped else self._traced(*decided)

    def _of_pass(
        self, skipped: Any, ahead: Stages, number: tf.Tensor, mode: tf.Tensor | None = None, count: Any = None
    ) -> tf.data.Dataset:
        """Return the pass of that number (int64 scalar), with what reads ahead, but the `skipped` examples.

        With a cache on disk, it is that in its mode, or of `count` examples that are read.
        """
        # An order is the same whatever a program has seeded before; with 0, `Dataset.shuffle` takes no tensor as seed.
        tf.compat.v1.set_random_seed(self.context.seed + 1)
        context = dataclasses.replace(self.context, pass_number=number, skipped=skipped)
        if count is not None:
            return self._read([*self._after, *ahead], count, context)
        return self._build(self._unread(context, mode), ahead)

    def _unread(self, context: Context, mode: Any = None) -> tf.data.Dataset:
        """Return the batches of a pass that doesn't read a disk cache, but may fill it if it has a `mode`."""
        if self._without_cache:
            return self._continued(None, self._without_cache, context).with_options(as_written())
        dataset = self._in_memory if self.keeper is None else self._filling(self.keeper, mode)
        return self._continued(dataset, self._after, context)

    def _first(self, stages: Stages, context: Context) -> tf.data.Dataset:
        """Return what these stages, which are before the cache, give in the first pass."""
        return self._build(None, stages, dataclasses.replace(context, passes_begun=tf.constant(1, tf.int64)))

    def _filling(self, keeper: Keeper, mode: Any) -> tf.data.Dataset:
        """Return the examples before the cache on disk, which is filled with them if that is the `mode` of the pass."""
        if mode is None:
            return self._first(self._before, self.context).with_options(as_written())
        mode = tf.cast(mode, tf.int64)
        cached = None if any(planned.stage.path == Backbone.path for planned in self._before) else self._cache
        compared = partial(disk.compared, keeper, mode) if self.split.content.compared else None
        first = dataclasses.replace(self.context, numbered_to=cached, compare=compared)
        before = self._first(self._before, first).with_options(as_written())
        return disk.written(before, keeper, self._kept, mode, carries=self.context.numbered_to is not None)

    def _continued(self, dataset: tf.data.Dataset | None, stages: Stages, context: Context) -> tf.data.Dataset:
        """Return `stages` applied, without the examples that have been read: skipped where their order is known."""
        if context.skipped is None:
            return self._build(dataset, stages, context)
        place = next(place for place, planned in enumerate(stages) if planned.gives.batch_size is not None)
        skipped = context.skipped
        if dataset is None and (count := count_of_batched(stages, context)):
            place, skipped = count, skipped // stages[place].gives.batch_size
        while place > (dataset is None) and stages[place - 1].stage.maps_each:
            place -= 1
        return self._build(self._build(dataset, stages[:place], context).skip(skipped), stages[place:], context)

    def _fill_first(self) -> None:
        """Fill a cache whose examples are read by number, which are all in it before the first one is read."""
        if self.fills_ahead and self.keeper is not None and self.keeper.is_to_fill:
            self.fill()

    def fill(self) -> bool:
        """Fill the cache on disk, unless it is there or another process is filling it; return whether it was to be."""
        assert self.keeper is not None  # noqa: S101 - see above
        mode = int(self.keeper.begin())
        if mode <= READ:
            return False
        examples = iter(self._filling(self.keeper, mode).map(lambda _: 0).batch(_AT_ONCE))
        began_s = time.perf_counter()
        for _ in examples:
            pass  # signals are handled between batches
        self.filling_s = time.perf_counter() - began_s
        return True

    def endless(self) -> tf.data.Dataset:
        """Return the batches of the next pass and all later ones; prefetching continues across passes."""
        self._fill_first()
        self.context.passes_begun.assign(self._number)
        batches = self._build(self._begun().repeat(), self._ahead).with_options(as_written())
        return self._handed(batches, lambda: iter(batches))

    def each_pass(self) -> tf.data.Dataset:
        """Return a dataset of which each iteration, also of one that is derived from it, is the next pass."""
        self._fill_first()
        batches = self._build(self._begun(), self._ahead).with_options(as_written())
        return batches.map(as_is(self.stages[-1].gives.handed))

    def _handed(self, like: tf.data.Dataset, begin: Callable[[], Iterator[Any]]) -> Passes:
        """Return the passes that `begin` begins, of batches like those of a dataset, as a model takes them."""
        handed = self.stages[-1].gives.handed
        return Passes(like.map(as_is(handed)), begin, handed)

    def _begun(self) -> tf.data.Dataset:
        begun = partial(self._pass, self._number + 1, self._skipped)
        self._skipped = 0
        return tf.data.Dataset.from_tensors(0).map(as_is(self._begin)).flat_map(as_is(begun))

    def _begin(self, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        number = self.context.passes_begun.assign_add(1)
        return (number,) if self.keeper is None else (number, *disk.decided(self.keeper))

    def _pass(self, first: int, skipped: int, number: tf.Tensor, *decided: tf.Tensor) -> tf.data.Dataset:
        """Return a pass; `skipped` examples of the pass of number `first` have been read before."""
        left_out = tf.where(number == first, tf.constant(skipped, tf.int64), 0) if skipped else None
        build = partial(self._of_pass, left_out, (), number)
        if self.keeper is None:
            return build()
        mode, count = decided
        return disk.either(mode, build(mode), build(None, count))

    def _read(self, stages: Stages, count: Any, context: Context) -> tf.data.Dataset:
        """Return `stages` applied to the numbers of the examples, which are read as late as possible."""
        shuffling = [planned for planned in stages if planned.stage.only_reorders]
        others = [planned for planned in stages if planned not in shuffling]
        if self._without_cache and shuffling:
            numbers = in_random_order(count, cast("FullShuffle", shuffling[0].stage), context)
        else:
            numbers = self._build(tf.data.Dataset.range(count), shuffling, context)
        if context.skipped is not None:
            numbers = numbers.skip(context.skipped)
        numbers = numbers.with_options(as_written())
        place = int(others[0].gives.batch_size is not None)
        numbers, carries = self._build(numbers, others[:place], context), not place and context.numbered_to is not None
        read = disk.read(numbers, self.keeper, self._kept, at_once=bool(place), carries=carries)  # type: ignore[arg-type]
        return self._build(read, others[place:], context)

    def repeated_alone(self, stages: Stages, *, from_cache: bool) -> Iterator[Any]:
        """Return the batches of these stages, of any speed, without shuffling, again and again: of the cache or not."""
        before, _, after = at_cache([planned for planned in stages if not planned.stage.only_reorders])
        if from_cache and self._has_memory:
            batches = self._build(self._in_memory, after)
        elif from_cache and self.keeper is not None and self.keeper.count:
            batches = self._read(after, self.keeper.count, self.context.numbered(after))
        else:
            batches = self._build(None, [*before, *after]).with_options(as_written())
        return iter(batches.repeat())

    def close(self) -> None:
        """Release what the pipeline holds, and close its cache."""
        if self.keeper is not None:
            self.keeper.close()

    def _build(
        self, dataset: tf.data.Dataset | None, stages: Stages, context: Context | None = None
    ) -> tf.data.Dataset:
        return chained(dataset, stages, context or self.context.numbered(stages))

    def uncached(self, stages: Stages) -> tf.data.Dataset:
        """Return the output of these stages in the first pass, in the order of the data, without a cache."""
        return self._build(None, [of for of in stages if not of.stage.only_reorders and not of.stage.keeps])


def as_written() -> tf.data.Options:
    """Return options without graph rewrites, which make serial maps parallel, fuse them with batch, or add prefetch.

    The config decides about these, and measurements need separate stages. AUTOTUNE is not a rewrite. Searching for
    rewrites would also take 8 ms of each pass.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return options


_SAMPLE = 64
"""Number of examples that are sampled for the mean size if sizes differ."""


def fits(plan: Plan, pipelines: Mapping[str, Pipeline], folder: Any) -> int:
    """Return the size of the caches of `pipelines` in bytes; raise `WorldError` if there is no space for them."""
    cache, size = plan.spec.cache, sum(map(_bytes_of, pipelines.values()))
    space = cache.space(folder)
    if space.takes(size):
        return size
    share = f"{space.share:.0%}" + (" (the training needs memory, too)" if not cache.outlives_run else "")
    found = f"{megabytes(size)} to cache, with {megabytes(space.free_bytes)} free in {space.where}"
    remedy = "set cache=none" + ", or cache=disk" * (not cache.outlives_run)
    raise WorldError(f"{cache.path} at {cache.at}", found, f"at most {share} of the free space", remedy)


def _bytes_of(pipeline: Pipeline) -> int:
    """Return the size of the cache of a pipeline."""
    before, _, _ = at_cache(pipeline.stages)
    flow, count = before[-1].gives, pipeline.split.num_examples
    known = cache_bytes(flow, count)
    if known is not None:
        return known
    tries = tf.data.Dataset.range(_SAMPLE)  # a file that can't be opened raises on every read
    sample = tf.data.Dataset.zip((tries, pipeline.uncached(before))).ignore_errors().as_numpy_iterator()
    features = [tf.nest.flatten(example) for _, example in sample]
    sizes = [len(of) if isinstance(of, bytes) else int(of.nbytes) for each in features for of in each]
    return cache_bytes(flow, count, sum(sizes) / len(features) - flow.fixed_bytes if features else 0.0) or 0


_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call a function of the process that has made the graph."""
Stages = Sequence[PlannedStage]


def of_pass(context: Context, number: int) -> Context:
    """Return the context of the pass of that number, from 1, without variables, which stay in their process."""
    begun: dict[str, Any] = {"pass_number": number, "passes_begun": tf.constant(number, tf.int64)}
    return dataclasses.replace(context, **begun, calls_python=False, skipped=None, traced={})


def every_nth(stages: Stages, context: Context, *, place: int, of: int, done: int) -> tf.data.Dataset:
    """Return the batches `place`, `place + of`, … of a pass without the first `done` of them, with their numbers.

    All records are read and shuffled, in the order of the pass; those of other batches are left out before the first
    map. The elements are (number, batch); numbers are int64 scalars that count the batches of this part from 0.
    """
    inside = [planned for planned in stages if planned.stage.scope is not Scope.AROUND]
    shuffles = [planned for planned in inside if planned.stage.only_reorders]
    others = [planned for planned in inside if not planned.stage.only_reorders]
    first = next(at for at, planned in enumerate(others) if planned.stage.maps_each)
    batch = next(of.stage for of in others[first:] if isinstance(of.stage, Batch))
    records = chained(None, [*others[:1], *shuffles, *others[1:first]], context).batch(batch.batch_size)
    batches = chained(records.shard(of, place).skip(done).unbatch(), others[first:], context)
    return batches.enumerate(done).with_options(as_written())


def require_portable(dataset: tf.data.Dataset) -> None:
    """Raise `ConfigError` if a graph calls Python, or has a state that can't be written."""
    try:  # to write it as tf.data's service does
        written = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, external_state_policy=0)  # noqa: SLF001
    except tf.errors.OpError as error:
        found = f"a step with a state of its own: {error.message.splitlines()[0]}"
    else:
        graph = tf.compat.v1.GraphDef.FromString(written.numpy())
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        calls = next((node.op for node in nodes if node.op in _PYTHON), None)
        if calls is None:
            return
        found = f"a step that calls Python ({calls})"
    expected = "operations of TensorFlow, which another process can run"
    raise ConfigError([Fault(Service.path, found, expected, "leave the step out, or set load=shuffled")])
