"""Diagnosis of a dataset of rows: what is in its columns, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from etlrun.datasets.examine.finding import Diagnosis, Finding
from etlrun.datasets.examine.row_drift import of_drift
from etlrun.datasets.examine.row_equal import of_equal, of_equal_texts
from etlrun.datasets.examine.row_figures import Reader, figures_of
from etlrun.datasets.examine.row_leaks import of_leaks
from etlrun.datasets.examine.row_texts import of_empty, texts_of
from etlrun.datasets.examine.row_values import Examined, of_targets, of_values
from etlrun.planning.learned import columns_of
from etlrun.planning.plan import Plan
from etlrun.sources.base import open_source
from etlrun.sources.rows.leaks import names_examined
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.slices import note_of_unused
from etlrun.system.progress import Begin


def examined(plan: Plan, begin: Begin, *, is_whole: bool = False) -> list[Examined]:
    """Return the figures of the splits of a plan, or of all of its dataset; `begin` is told of each split.

    Raises:
        EtlrunError: The rows can't be read.
    """
    dataset = plan.spec.dataset
    source = cast("RowsSource", open_source(dataset))
    names = [*source.counts] if is_whole else [dataset.split, *([dataset.eval_split] if dataset.eval_split else [])]
    readers = [Reader(source, source.split(name, dataset.key("split"))) for name in names]
    columns = len(names_examined(source))
    made = columns_of(plan.spec)
    tokenized = [name for output in (made.outputs if made else ()) if output.has_sequences for name in output.of]
    return [
        Examined(reader=of, figures=figures_of(of, begin(of.split.name, columns)), texts=texts_of(of, tokenized))
        for of in readers
    ]


def diagnosed(plan: Plan, begin: Begin, *, is_whole: bool) -> Diagnosis:
    """Examine the rows of the splits of a plan, or of all of its dataset; `begin` is told of each task.

    Raises:
        EtlrunError: The rows can't be read.
    """
    splits = examined(plan, begin, is_whole=is_whole)
    source = splits[0].source
    unused = None if is_whole else note_of_unused(plan.spec.dataset, source.counts)
    return Diagnosis(
        dataset=source.full_name,
        findings=tuple(_findings(splits, begin)),
        splits=tuple(splits),
        notes=(*source.notes, *filter(None, [unused]), *(() if is_whole else _unknown(plan))),
    )


def _unknown(plan: Plan) -> Iterator[str]:
    """Yield the shares of the tokens of each split that the vocabulary lacks, a sentence for each sequence."""
    columns = columns_of(plan.spec)
    shares = dict(columns.shares) if columns else {}
    for output in columns.outputs if columns else ():
        if output.has_sequences and (share := shares.get(output.name)):
            yield f"{output.name}: {share}."


def _findings(splits: Sequence[Examined], begin: Begin) -> Iterator[Finding]:
    yield from of_leaks(splits[0])
    yield from of_equal(splits, begin("equal rows", sum(len(split.reader.rows) for split in splits)))
    yield from of_equal_texts(splits)
    yield from of_empty([(of.name, of.texts) for of in splits])
    yield from of_drift(splits)
    yield from of_targets(splits)
    yield from of_values(splits)
