"""Hashes of the examples of a plan, as a short pass without a training reads them; nothing is prepared or written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from etlrun.datasets.examine.show import explained
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.measure.digest import hashes
from etlrun.planning import planner
from etlrun.planning.plan import Plan, PlannedStage, by_number, reads_features
from etlrun.sources.base import Source, Split, on_disk, open_source
from etlrun.stages.load import Service
from etlrun.system.errors import WorldError
from etlrun.system.values import frozen

_PARTS = 16
"""Parts of a sample at most, which are spread evenly over a split, so that it has examples of several files."""


@frozen
class Sample:
    """Examples of a split, as a pass reads them.

    Attributes:
        hashes: Hash of each example, in the order of the pass.
        split_examples: Number of examples of the whole split.
    """

    hashes: tuple[bytes, ...]
    split_examples: int


def read(plan: Plan, pipeline: str, examples: int) -> Sample:
    """Read the first pass of the pipeline `train` or `validation` over at most so many examples of its split.

    Caches are left out, but not what they do to examples; of a model whose base is cached, its input is read.

    Raises:
        EtlrunError: Data is missing or corrupt, or elsewhere.
    """
    if reads_features(plan):
        plan = planner.plan(replace(plan.spec, cache=planner.NO_CACHE))
    dataset = plan.spec.dataset
    if dataset.urls:
        raise _elsewhere(dataset.key(dataset.given_by), f"{dataset.urls[0]}, from which nothing is fetched")
    if plan.spec.load.service is not None:
        raise _elsewhere(Service.path, "a service, which no one starts")
    if dataset.as_it_is() != dataset and not on_disk(dataset).sizes:
        raise _elsewhere(dataset.key("name"), f"{dataset.title}, which is not prepared here")
    source = open_source(plan.spec.dataset.as_it_is())
    whole, some = _splits(source, pipeline, examples)
    context = Context(source=source, split=some, seed=plan.spec.trainer.seed)
    planned = plan.pipelines[pipeline]
    stages = by_number(planned) or [stage for stage in planned if not stage.stage.keeps]
    with explained(context, stages[-1].stage.path):
        found = tuple(_hashes(stages, context))
    if not found:
        raise WorldError(
            "--examples",
            f"a sample of {some.num_examples:,} without a whole batch",
            "a batch, since load.drop_remainder=true",
            "",
        )
    return Sample(hashes=found, split_examples=whole.num_examples)


def _elsewhere(where: str, found: str) -> WorldError:
    return WorldError(where, found, "examples in files of this machine", "")


def _splits(source: Source, pipeline: str, examples: int) -> tuple[Split, Split]:
    """Return the split of a pipeline, and a sample of it."""
    name, key = source.dataset.split_of(pipeline) or "", source.dataset.key_of(pipeline)
    whole = source.split(name, key)
    parts = min(_PARTS, len(whole.shards))
    some = source.split(on_disk(source.dataset).thinned(name, examples, parts), key)
    return whole, some.part(0, examples) if some.num_examples > examples else some


def _hashes(stages: Sequence[PlannedStage], context: Context) -> Iterator[bytes]:
    pipeline = Pipeline(stages, context)
    try:
        for batch in pipeline.dataset:
            yield from hashes(stages[-1].gives.sequences, *batch)
    finally:
        pipeline.close()
