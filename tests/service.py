"""Pipelines that are read from servers, in processes of their own, and without a run around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from etlrun.run.keepers import keepers_of
from etlrun.run.service.pipeline import ServedPipeline
from etlrun.run.service.servers import Servers
from etlrun.run.session import contexts_of
from etlrun.sources.open import open_source
from etlrun.stages.service import Service
from tests.configs import plan_of
from tests.runs import small

BATCHES = 38
"""Batches of a pass over the tiny dataset, each of one example."""


def planned(data_dir: Path, *overrides: str) -> Any:
    """Plan of a run that reads from servers, which hold little in advance."""
    given = {word.split("=")[0] for word in overrides}
    words = ("load=service", "cache=none", "load.batch_size=1", "load.prefetch=1")
    return plan_of(*small(data_dir, *(word for word in words if word.split("=")[0] not in given), *overrides))


@contextmanager
def servers(heard: list[str] | None = None, **values: Any) -> Iterator[Servers]:
    """Servers of a stage with these values; what happens to them is added to `heard`."""
    found = Servers(Service(**values), (heard if heard is not None else []).append)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def served(plan: Any, of: Servers, heard: list[str] | None = None) -> Iterator[ServedPipeline]:
    """The training pipeline of a plan, read from these servers, which stay; `heard` is told of its cache."""
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    keeper = keepers_of(plan, contexts, {}, (heard if heard is not None else []).append).get("train")
    pipeline = ServedPipeline("train", plan.train, contexts["train"], of, keeper)
    close, of.close = of.close, lambda: None  # type: ignore[method-assign]
    try:
        if keeper is not None:
            keeper.prepare()
        yield pipeline
    finally:
        pipeline.close()
        if keeper is not None:
            keeper.close()
        of.close = close  # type: ignore[method-assign]


def as_bytes(batches: Iterable[Any]) -> list[tuple[bytes, ...]]:
    """Each batch in its order, as bytes."""
    return [tuple(part.numpy().tobytes() for part in tf.nest.flatten(batch)) for batch in batches]
