"""Permutation importance: how much worse predictions get while values of a column change places among examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.measure.gains import interval_of_mean
from etlrun.planning import learned
from etlrun.planning.plan import Plan, given_to_model
from etlrun.sources.base import Source, Split
from etlrun.sources.rows.source import RowSplit, RowsSource, as_tensor
from etlrun.stages.columns import Columns
from etlrun.stages.objectives import kind_of
from etlrun.stages.sequences import padded
from etlrun.system.errors import WorldError, headline
from etlrun.trained.model import tester
from etlrun.trained.numbered import Batch, Pass
from etlrun.trained.ranking import HALF
from etlrun.trained.scores import SEED, Share

REPEATS = 5
"""Permutations of each column where none are asked for."""
_LEAST_PREDICTIONS, _PREDICTIONS = 100_000, 5
"""Predictions that may be made without being asked for: so many, or so many for each example of the split."""
_SKIP_WITH = "leave --importance out"
Sums = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class OfColumn:
    """What a column is worth.

    Attributes:
        name: Name of the column.
        importance: How much worse the measure gets, the mean over the repeats, with the interval of that mean.
    """

    name: str
    importance: Share


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Permutation importance of columns (Breiman 2001; Fisher, Rudin and Dominici 2019).

    Attributes:
        measure: `accuracy`, or `mae` of numbers.
        value: The measure of these examples as they are.
        examples: Number of examples, a sample of the split if it has more.
        repeats: Permutations of each column. `seed` is the seed that they are drawn with.
        predictions: Predictions that were made.
        columns: All columns that the model's inputs are made of, the most important one first.
    """

    measure: str
    value: float
    examples: int
    repeats: int
    seed: int
    predictions: int
    columns: list[OfColumn]


def importance(planned: Plan, model: Any, source: Source, split: Split, repeats: int | None) -> dict[str, Importance]:
    """Return the importance of the columns of a split for each target; none if there are none, or if it is left out.

    Args:
        planned: Plan whose validation pipeline makes the inputs of the model.
        model: The model.
        source: The dataset.
        split: Its examples.
        repeats: Permutations of each column, of all examples; 0 leaves it out. None for those that cost little: of many
            rows of a sample, and of examples with images none.
    """
    names = columns_of(planned)
    part = split if repeats is not None else _cheap(planned, split, len(names) * REPEATS)
    if not names or repeats == 0 or part is None:
        return {}
    reading = _Reading(planned, source, part, names)
    measures = reading.measures(model, repeats or REPEATS)
    found = {}
    for target, each in measures.items():
        is_error = kind_of(reading.flow.features[target]) == "number"
        worse = (1 if is_error else -1) * (each[1:].reshape(len(names), -1) - each[0])
        columns = [OfColumn(name=name, importance=_mean(of)) for name, of in zip(names, worse, strict=True)]
        found[target] = Importance(
            measure="mae" if is_error else "accuracy",
            value=float(each[0]),
            examples=reading.count,
            repeats=repeats or REPEATS,
            seed=SEED,
            predictions=reading.count * len(each),
            columns=sorted(columns, key=lambda column: -(column.importance.value or 0.0)),
        )
    return found


def columns_of(planned: Plan) -> list[str]:
    """Return the columns that inputs of the model are made of, but images, in the order of the data."""
    flow, columns = planned.spec.dataset.examples, learned.columns_of(planned.spec)
    made = {output.name: output.of for output in columns.outputs} if columns else {}
    outputs = set(given_to_model(planned.evaluation).inputs)
    used = outputs - made.keys()
    for name in reversed(made):
        for of in made[name] if name in outputs else ():
            (used if of in flow.features else outputs).add(of)  # the name of a column is that of the column
    return [name for name, of in flow.features.items() if name in used and of.format != "image"]


def how_to_ask(planned: Plan, examples: int) -> str:
    """Return how to ask for the importance of columns, and what it costs; empty for a model of images alone."""
    names = columns_of(planned)
    cost = examples * (len(names) * REPEATS + 1)
    asked = f"pass --importance {REPEATS} for what each of {len(names)} is worth, in {cost:,} predictions"
    return asked if names else ""


def _cheap(planned: Plan, split: Split, times: int) -> Split | None:
    """Return examples of a split of which `times` predictions each cost little: of rows a sample; None if none do."""
    most = max(_LEAST_PREDICTIONS, _PREDICTIONS * split.num_examples) // max(times, 1)
    if any(of.format == "image" for of in planned.spec.dataset.examples.features.values()):
        return None
    if most >= split.num_examples:
        return split
    if not isinstance(split, RowSplit):
        return None
    some = np.sort(np.random.default_rng(SEED).choice(split.num_examples, max(most, 1), replace=False))
    shard = replace(split.shards[0], take=len(some))
    return replace(split, rows=split.rows[some], num_examples=len(some), shards=(shard,))


def _mean(values: Sums) -> Share:
    return Share(float(values.mean()), *(interval_of_mean(values.tolist()) or ()))


class _Reading:
    """A pass over examples whose columns change places among them.

    Attributes:
        flow: What is given to the model, and its targets.
        count: Number of examples that were read.
    """

    def __init__(self, planned: Plan, source: Source, split: Split, names: list[str]) -> None:
        self.flow, self.count = given_to_model(planned.evaluation), 0
        self._pass, self._names, columns = Pass(planned, source, split), names, learned.columns_of(planned.spec)
        self._stored, self._made = _stored(self._pass, names), dict[str, Any]
        self._made_of = {name: {name} for name in names}
        if columns is not None:
            made_of = _made_of(columns, names)
            self._made_of |= made_of
            outputs = tuple(output for output in columns.outputs if made_of[output.name])
            self._made = tf.function(replace(columns, outputs=outputs).given, autograph=False)
        whole = self._made({name: as_tensor(values) for name, values in self._stored.items()})
        self._alone = {name: whole[name] for name in self.flow.inputs if len(self._made_of.get(name, ())) == 1}

    def measures(self, model: Any, repeats: int) -> dict[str, Sums]:
        """Return the measure of each target: of the examples as they are, then of each repeat of each column."""
        test = tester(model, self._pass.inputs_spec)
        draws = [
            (name, np.random.default_rng((SEED, place, repeat)).permutation(len(self._stored[name])).astype(np.int32))
            for place, name in enumerate(self._names)
            for repeat in range(repeats)
        ]
        sums, whole = {name: np.zeros(1 + len(draws)) for name in self.flow.targets}, 0.0
        for batch in self._pass.batches(_SKIP_WITH):
            self._add(sums, 0, test(batch.inputs)[0], batch)
            for place, (name, order) in enumerate(draws, 1):
                self._add(sums, place, test(self._with(batch, name, order[batch.numbers]))[0], batch)
            whole += len(batch.numbers) if batch.weights is None else float(batch.weights.sum())
            self.count += len(batch.numbers)
        return {name: of / whole for name, of in sums.items()} if whole else {}

    def _with(self, batch: Batch, column: str, numbers: npt.NDArray[np.int32]) -> Any:
        """Return the inputs of a batch with the values that the column has in the examples of these numbers."""
        changed = {name for name in self.flow.inputs if column in self._made_of.get(name, ())}
        made = {name: tf.gather(self._alone[name], numbers) for name in changed if name in self._alone}
        if changed - made.keys():  # an output of several columns
            own = {name: as_tensor(values[batch.numbers]) for name, values in self._stored.items()}
            found = self._made({**own, column: as_tensor(self._stored[column][numbers])})
            made |= {name: found[name] for name in changed - made.keys()}
        made = padded(made)
        if not isinstance(batch.inputs, Mapping):
            return made[self.flow.inputs[0]]
        return {name: made.get(name, of) for name, of in batch.inputs.items()}

    def _add(self, sums: dict[str, Sums], place: int, found: Any, batch: Batch) -> None:
        """Add the measure of each target of a batch: right predictions, or mean absolute errors, by weight."""
        for name, of in sums.items():
            predicted = found[name] if isinstance(found, dict) else found
            targets = batch.targets[name] if isinstance(batch.targets, dict) else batch.targets
            each = _measured(kind_of(self.flow.features[name]), predicted, targets)
            of[place] += float((each if batch.weights is None else each * batch.weights.reshape(-1)).sum())


def _measured(kind: str, found: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> Sums:
    """Return of each example whether its prediction is right, the share of its right labels, or its absolute error."""
    if kind in ("class", "binary") and found.shape[-1] > 1:
        return np.asarray(found.argmax(axis=-1) == targets, np.float64)
    wanted = targets.reshape(len(targets), -1).astype(np.float64)
    found = found.reshape(wanted.shape)
    each = np.abs(found - wanted) if kind == "number" else (found > HALF) == (wanted > HALF)
    return np.asarray(each.mean(axis=1), np.float64)


def _made_of(columns: Columns, names: list[str]) -> dict[str, set[str]]:
    """Return the columns, of those with these names, that each output is made of; none if it is also made of others."""
    found: dict[str, set[str]] = {}
    for output in columns.outputs:
        each = [{of} if of in names else found.get(of, set()) for of in output.of]
        found[output.name] = set[str]().union(*each) if all(each) else set()
    return found


def _stored(reading: Pass, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    """Return columns of the examples of a pass, as they are stored, by the numbers of the examples."""
    source, split = reading.source, reading.split
    if isinstance(source, RowsSource) and isinstance(split, RowSplit):
        return {name: source.kept.take(name, split.rows) for name in names}
    found: dict[str, list[Any]] = {name: [] for name in names}
    parse, features = source.parser(), source.dataset.examples.features
    try:
        for shard in split.shards:
            for record in split.read(shard.path, shard.skip, shard.take):
                example = parse(record)
                for name, values in found.items():
                    values.append(example[name].numpy())
    except tf.errors.OpError as error:
        expected = "records that can all be read, whose columns change places"
        where, reason = split.name, headline(error)
        raise WorldError(where=where, found=reason, expected=expected, remedy=_SKIP_WITH) from error
    kinds = {name: object if features[name].dtype == "string" else None for name in names}
    return {name: np.array(values, kinds[name]) for name, values in found.items()}
