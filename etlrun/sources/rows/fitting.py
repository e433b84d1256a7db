"""Fitting of columns: what their steps learn from the training split, kept beside the columns."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_steps import ColumnStep
from etlrun.stages.columns import Output
from etlrun.stages.flow import MISSING, UnfitError
from etlrun.stages.lazy import tf
from etlrun.system.files import write_atomically


def fitted(outputs: Sequence[Output], source: RowsSource, split: RowSplit) -> tuple[Output, ...]:
    """Return outputs whose steps know what they learn from `split`; those that were fitted before are not again."""
    if all(step.is_fitted for output in outputs for step in output.steps):
        return tuple(outputs)
    described = [[output.name, output.described] for output in outputs]
    text = json.dumps([described, split.content.digest], default=str)
    path = source.kept.folder / f"fitted-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        return _with(outputs, json.loads(path.read_text()))
    found = tuple(_fitted(output, source, split) for output in outputs)
    with contextlib.suppress(OSError):  # they are learned again
        write_atomically(path, json.dumps(_learned(found)))
    return found


def _learned(outputs: Sequence[Output]) -> list[list[dict[str, Any]]]:
    return [[{name: getattr(step, name) for name in step.learned} for step in of.steps] for of in outputs]


def _with(outputs: Sequence[Output], learned: list[list[dict[str, Any]]]) -> tuple[Output, ...]:
    """Return the outputs with what their steps have learned."""

    def value(of: Any) -> Any:
        return tuple(of) if isinstance(of, list) else of

    return tuple(
        dataclasses.replace(
            output,
            steps=tuple(
                step.replace(**{name: value(of) for name, of in found.items()})
                for step, found in zip(output.steps, steps, strict=True)
            ),
        )
        for output, steps in zip(outputs, learned, strict=True)
    )


def _fitted(output: Output, source: RowsSource, split: RowSplit) -> Output:
    """Return an output whose steps have learned one after the other, each from the values behind those before it."""
    features = source.dataset.examples.features
    given: Any = [features[name] for name in output.of]
    done: list[ColumnStep] = []
    try:
        for step in output.steps:
            feature = given[0] if isinstance(given, list) and len(given) == 1 else given
            values = partial(_values, output.of, tuple(done), source, split)
            made = step if step.is_fitted else step.fitted(values, feature)
            given = made.gives(feature)
            done.append(made)
    except UnfitError:  # the plan reports it, with its place
        done += output.steps[len(done) :]
    return dataclasses.replace(output, steps=tuple(done))


def _values(of: Sequence[str], steps: Sequence[ColumnStep], source: RowsSource, split: RowSplit) -> pa.Array:
    """Return the values of columns in a split after these steps; null where they are missing."""
    if not steps and len(of) == 1:
        return source.kept.arrow(of[0]).take(pa.array(split.rows))
    found: Any = [tf.constant(source.kept.take(name, split.rows)) for name in of]
    found = found[0] if len(of) == 1 else tuple(found)
    for step in steps:
        found = step.op(found, **step.arguments)
    values = found.numpy()
    if values.dtype == object:
        return pa.array(values, pa.large_binary(), mask=values == MISSING)
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)
