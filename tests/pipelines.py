"""Pipelines without a run around them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source


def _unexpected(text: str) -> None:
    raise AssertionError(text)


@contextmanager
def training_pipeline(plan: Plan, say: Callable[[str], None] = _unexpected) -> Iterator[Pipeline]:
    """Of `plan`. A cache on disk is opened or claimed before, and closed after; `say` hears what goes wrong with it."""
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    keeper = keepers_of(plan, contexts, {}, say).get("train")
    if keeper is None:
        yield Pipeline(plan.train, contexts["train"])
        return
    keeper.prepare()
    try:
        yield Pipeline(plan.train, contexts["train"], keeper)
    finally:
        keeper.close()


def as_bytes(dataset: tf.data.Dataset) -> list[tuple[bytes, bytes, str]]:
    """Images, labels, and what they are, of each batch in order."""
    return [
        (pictures.tobytes(), labels.tobytes(), f"{pictures.dtype} {pictures.shape}")
        for pictures, labels in dataset.as_numpy_iterator()
    ]


def batches_of(batches: Iterable[Any]) -> list[tuple[bytes, ...]]:
    """Each batch in order, whatever it has, as bytes."""
    return [tuple(part.numpy().tobytes() for part in tf.nest.flatten(batch)) for batch in batches]


def passes_of(plan: Plan, passes: int = 2) -> list[list[tuple[bytes, bytes, str]]]:
    """The batches of the first passes of training, as `as_bytes` has them."""
    with training_pipeline(plan) as pipeline:
        return [as_bytes(pipeline.dataset) for _ in range(passes)]


def validation_of(plan: Plan) -> list[tuple[bytes, bytes, str]]:
    """The batches of a pass of validation, as `as_bytes` has them."""
    context = contexts_of(plan, open_source(plan.spec.dataset))["validation"]
    return as_bytes(Pipeline(plan.evaluation, context).dataset)


def digest_of(batches: Any) -> str:
    """As a run takes it of its batches."""
    digest = Digest()
    for inputs, targets in batches:
        digest.add(inputs, targets)
    return digest.taken()
