"""Datasets of a plan for a program's own loop: the batches of a run, in its order, without the run."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NoReturn, Self

import tensorflow as tf

from etlrun.cache.keeper import Keeper
from etlrun.cache.store import folder_of
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Backbone
from etlrun.graph.forecast import fits
from etlrun.graph.keeping import keep_sequences
from etlrun.planning.plan import Plan, reads_features
from etlrun.run.keepers import keepers_of
from etlrun.run.session import contexts_of, require_enough
from etlrun.sources.base import Source, open_source, source_type
from etlrun.sources.corrupt import raise_cause
from etlrun.system.terminal import tell


class Datasets(Mapping[str, tf.data.Dataset]):
    """Datasets of a plan by name, `train` and, if it has validation, `validation`.

    An element is what the model gets: (inputs, targets), and a weight behind them where the plan has weights. Each
    iteration over a dataset, also over one that is derived from it, is the next pass, with the order and the
    augmentation of the epoch of that number. Its length is unknown to tf.data, so that Keras reads it to its end.

    A cache in memory belongs to these datasets alone. One on disk is read if a run has filled it, until `close`, at the
    latest until nothing refers to the datasets any more; else passes run without it. In a `with` statement they are
    closed at its end, and a record that can't be read is an `EtlrunError` with its place.
    """

    def __init__(self, plan: Plan, pipelines: Mapping[str, Pipeline], keepers: Mapping[str, Keeper]) -> None:
        self._plan, self._pipelines, self._keepers = plan, pipelines, keepers
        self._datasets = {name: pipeline.each_pass() for name, pipeline in pipelines.items()}
        held = _Held()
        self.close = weakref.finalize(held, _close, tuple(pipelines.values()), tuple(keepers.values()))
        for dataset in self._datasets.values():  # which what is derived from them refers to
            dataset._etlrun = held  # noqa: SLF001 - see `_Held`

    def __getitem__(self, name: str) -> tf.data.Dataset:
        return self._datasets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)

    def __repr__(self) -> str:
        return f"<etlrun datasets {', '.join(self)} of {self._plan.spec.dataset.title}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("datasets of TensorFlow can't be pickled: pickle what etlrun.plan returns")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if isinstance(error, tf.errors.OpError):
                self._raise_cause(error)
        finally:
            self.close()

    def _raise_cause(self, error: tf.errors.OpError) -> None:
        for keeper in self._keepers.values():
            if keeper.failure is not None:
                raise keeper.failure from error
        read = [(pipeline.split, pipeline.context.losses) for pipeline in self._pipelines.values()]
        raise_cause(error, self._pipelines["train"].context.source, read, self._plan.spec.load.to_skip)


class _Held:
    """What datasets refer to: when it is gone, their caches are closed."""


def datasets_of(plan: Plan) -> Datasets:
    """Return the datasets of a plan, after TensorFlow has been prepared for it.

    Raises:
        EtlrunError: Data is missing, too small or can't be read, or there is no space for a cache.
    """
    dataset = plan.spec.dataset
    source_type(dataset).begin(dataset)
    source = open_source(dataset)
    backbone = _backbone(plan, source) if reads_features(plan) else None
    contexts = contexts_of(plan, source, with_validation=bool(plan.evaluation), backbone=backbone)
    require_enough(plan, contexts)
    keep_sequences(plan, contexts)
    keepers = keepers_of(plan, contexts, {"folder": "", "overrides": []}, tell)
    pipelines = {name: Pipeline(plan.pipelines[name], of, keepers.get(name)) for name, of in contexts.items()}
    try:
        for keeper in keepers.values():
            keeper.read_only()
        if plan.spec.cache.keeps and not keepers:
            fits(plan, pipelines, folder_of(None))
        return Datasets(plan, pipelines, keepers)
    except BaseException:
        _close(tuple(pipelines.values()), tuple(keepers.values()))
        raise


def _backbone(plan: Plan, source: Source) -> Backbone:
    """Return the base of the model, whose features a cache holds."""
    from etlrun.run import model as models  # import Keras, which only the features of a base need
    from etlrun.run.backend import seed_all
    from etlrun.run.whole import whole_model

    trainer = plan.spec.fit
    assert trainer is not None  # noqa: S101 - for mypy
    seed_all(trainer.seed)  # for a base without pretrained weights
    return models.backbone(whole_model(plan, source, None, trainer))


def _close(pipelines: tuple[Pipeline, ...], keepers: tuple[Keeper, ...]) -> None:
    for pipeline in pipelines:
        pipeline.close()
    for keeper in keepers:
        keeper.close()
