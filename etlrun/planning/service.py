"""Rules of a run whose input comes from a service of tf.data, and notes on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.planning.decoding import by_tensorflow, is_fast
from etlrun.planning.plan import PlannedStage, at_cache
from etlrun.planning.spec import RunSpec
from etlrun.planning.training import conflict, fault, unordered
from etlrun.stages.image import Decode
from etlrun.stages.load import Service
from etlrun.system.errors import Fault

_IN_PYTHON = "libjpeg-turbo is called by Python, which stays in its process"


def served(spec: RunSpec) -> RunSpec:
    """Return the run with images decoded by TensorFlow if it reads from a service."""
    return spec if spec.load.service is None else by_tensorflow(spec)


def decoding_notes(asked: RunSpec) -> Iterator[str]:
    """Yield the note on a library that does not decode because of a service."""
    if served(asked) != asked:
        yield f"{Decode.key('library')} = turbo: with load.service TensorFlow decodes and resizes, since {_IN_PYTHON}."


def service_rules(spec: RunSpec, train: Sequence[PlannedStage]) -> Iterator[Fault]:
    """Yield the faults of what can't be done in other processes, or not in the order that the service promises.

    `train` are the stages of the training; empty if they have faults of their own.
    """
    load = spec.load
    if spec.cache.keeps:
        yield from _cache(spec, train)
    if spec.dataset.on_corrupt == "skip":
        expected = "raise with load.service, since the records that a worker skips could not be counted"
        remedy = "repair the data and set dataset.on_corrupt=raise, or set load=shuffled"
        yield conflict(spec.dataset, "on_corrupt", expected, remedy)
    if load.is_by_number:
        expected = "buffer with load.service, since reading by number is Python, which stays in its process"
        yield conflict(load, "shuffle", expected, "set load.shuffle=buffer, or load=shuffled")
    if is_fast(spec.transform) or is_fast(spec.eval_transform):
        expected = f"false with load.service, since {_IN_PYTHON}"
        yield fault(Decode.key("fast"), "true", expected, f"set {Decode.key('fast')}=false, or load=shuffled")
    if spec.extract.parses:
        expected = "sequential or interleave with load.service, whose records are dealt to the workers as they are read"
        yield fault("extract.name", spec.extract.path.removeprefix("extract."), expected, "set extract=interleave")
    yield from _order(spec)


def _cache(spec: RunSpec, train: Sequence[PlannedStage]) -> Iterator[Fault]:
    """Yield the faults of a cache whose examples the workers don't find by their numbers."""
    cache = spec.cache
    if not cache.outlives_run:
        expected = "disk or none with load.service, whose workers do not share the memory of the run"
        yield fault("cache.name", cache.path.removeprefix("cache."), expected, "set cache=disk, or load=shuffled")
    if cache.keeps_features:
        expected = "images with load.service, since features leave its workers nothing to transform"
        yield conflict(cache, "at", expected, "set load=shuffled, or cache.at=transformed")
    elif cache.quality is not None:
        expected = "raw with load.service, whose workers find an example by the size that all of them have"
        yield conflict(cache, "codec", expected, "set cache.codec=raw, or load=shuffled")
    before = at_cache(train)[0]
    if before and before[-1].gives.example_bytes is None and cache.quality is None:
        steps = [step for planned in train for step in planned.steps if step.gives.example_bytes is not None]
        expected = "examples of one size with load.service, whose workers find them by it"
        remedy = f"set cache.at={steps[0].stage.points[0]}, or load=shuffled" if steps else "set load=shuffled"
        yield fault(cache.key("at"), f"{cache.at}, with {before[-1].gives}", expected, remedy)


def _order(spec: RunSpec) -> Iterator[Fault]:
    """Yield the faults of values with which the workers would not see the same order."""
    for key in unordered(spec):
        expected = "true with load.service, since all workers count on one order"
        yield fault(key, "false", expected, f"set {key}=true, or load=shuffled")
    late = spec.load.shuffle_at == "before_batch" and not spec.cache.keeps
    if spec.load.shuffles and not spec.load.is_by_number and late:
        expected = "auto with load.service, since each worker would transform all examples to shuffle them"
        yield conflict(spec.load, "shuffle_at", expected, "set load.shuffle_at=auto")


def service_notes(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a run with a service, one sentence each."""
    if spec.cache.keeps:
        yield (
            f"{spec.cache.path}: the run fills the cache, or compares it with its checksums, before the first pass; "
            "workers read it at the same path."
        )
    yield f"{Service.path}: tf.data's service listens on all interfaces of its machines: let a firewall limit it."
