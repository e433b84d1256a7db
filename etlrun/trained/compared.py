"""Comparison of an export with `predict`, on examples of the split that the validation of its run reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.sources.base import Source, Split
from etlrun.sources.content import cut
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError
from etlrun.trained.load import Trained
from etlrun.trained.model import predictor
from etlrun.trained.numbered import Pass, opened
from etlrun.trained.predict import SKIP_WITH

_BLOCKS, _OF_BLOCK = 4, 16
"""Parts of a split from which so many examples are compared: those of one class may stand together."""
Outputs = npt.NDArray[np.float32]


def seen(run: Trained, model: Any, serving: Any, compute: Callable[[Any], Outputs]) -> dict[str, Any] | str:
    """Return how far `compute`, which is an export, is from the pipeline and the model of its run.

    It is in relation to values above 1; beside it are the number of examples, and the split that has them.

    What the export leaves to its user is done by TensorFlow. If the split can't be read as it is on this machine, why.
    """
    if run.plan.spec.dataset.urls:
        return "its dataset is at a URL"
    plan = dataclasses.replace(
        run.plan, spec=dataclasses.replace(run.plan.spec, dataset=run.plan.spec.dataset.as_it_is())
    )
    try:
        source, whole = opened(plan, run.split_key)
        known = plan.spec.dataset.found if isinstance(plan.spec.dataset, Rows) else None
        if known is not None and isinstance(source, RowsSource) and source.kept.known.identity != known.identity:
            return "its dataset has changed"
        split = _some(whole)
        reading, examples = Pass(plan, source, split), _examples(source, split)
        predict, found = predictor(model, run.flow, reading.inputs_spec), list[tuple[int, Outputs]]()
        for batch in reading.batches(SKIP_WITH):
            found += zip(batch.numbers.tolist(), serving.joined(predict(batch.inputs)), strict=True)
    except (EtlrunError, tf.errors.OpError) as error:
        return f"its dataset can't be read here: {error.faults[0].found if isinstance(error, EtlrunError) else error}"
    expected = np.stack([of for _, of in found])
    served = compute(serving.taken([examples[number] for number, _ in found]))
    difference = float(np.max(np.abs(served - expected) / np.maximum(1, np.abs(expected))))
    return {"split": whole.name, "examples": len(found), "largest_difference": difference}


def _some(split: Split) -> Split:
    """Return some examples of a split."""
    count = min(split.num_examples, _BLOCKS * _OF_BLOCK)
    bounds = [(split.num_examples * block // _BLOCKS, count * block // _BLOCKS) for block in range(_BLOCKS + 1)]
    blocks = [(start, start + then - now) for (start, now), (_, then) in pairwise(bounds)]
    shards = tuple(shard for block in blocks for shard in cut(split.shards, *block))
    return dataclasses.replace(split, shards=shards, num_examples=count)


def _examples(source: Source, split: Split) -> list[dict[str, Any]]:
    """Return the examples of a split as they are stored, in the order of their numbers."""
    parser = source.parser()
    read = (split.read(shard.path, shard.skip, shard.take).map(parser) for shard in split.shards)
    return [example for dataset in read for example in dataset]
