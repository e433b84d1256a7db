"""Hashes of the examples of a plan, as a short pass without a training reads them; nothing is prepared or written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from etlrun.datasets.examine.show import explained
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.measure.digest import hashes
from etlrun.planning import planner
from etlrun.planning.plan import Plan, by_number, reads_features
from etlrun.sources.base import on_disk, open_source
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
    name, key = source.dataset.split_of(pipeline) or "", source.dataset.key_of(pipeline)
    whole = source.split(name, key)
    some = source.split(on_disk(source.dataset).thinned(name, examples, min(_PARTS, len(whole.shards))), key)
    some = some.part(0, examples) if some.num_examples > examples else some
    context = Context(source=source, split=some, seed=plan.spec.trainer.seed)
    planned = plan.pipelines[pipeline]
    stages = by_number(planned) or [stage for stage in planned if not stage.stage.keeps]
    with explained(context, stages[-1].stage.path), closing(Pipeline(stages, context)) as reading:
        found = [of for batch in reading.dataset for of in hashes(stages[-1].gives.sequences, *batch)]
    if not found:
        sample = f"a sample of {some.num_examples:,} without a whole batch"
        raise WorldError("--examples", sample, "a batch, since load.drop_remainder=true", "")
    return Sample(hashes=tuple(found), split_examples=whole.num_examples)


def _elsewhere(where: str, found: str) -> WorldError:
    return WorldError(where, found, "examples in files of this machine", "")
