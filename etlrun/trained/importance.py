"""Permutation importance: how much worse predictions get while values of a column change places among examples."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from etlrun.measure.gains import interval_of_mean
from etlrun.planning.plan import Plan, given_to_model
from etlrun.sources.base import Split
from etlrun.stages.load import padded
from etlrun.stages.objectives import kind_of
from etlrun.system.errors import WorldError, headline
from etlrun.system.values import frozen
from etlrun.trained.model import by_target, tester
from etlrun.trained.predict import Reading, of_plan
from etlrun.trained.scores import HALF, SEED, Array, Floats, Ints, Outputs, Share, Tensors

REPEATS = 5
"""Permutations of each column where none are asked for."""
_LEAST_PREDICTIONS, _PREDICTIONS = 100_000, 5
"""Predictions that may be made without being asked for: so many, or so many for each example of the split."""
_SKIP_WITH = "pass --importance 0"
_ROUNDING = 1e-12
"""Differences below this share of what they are differences of are those of rounding."""


@frozen
class OfColumn:
    """What a column is worth.

    Attributes:
        name: Name of the column.
        importance: How much worse the measure gets, the mean over the repeats, with the interval of that mean.
    """

    name: str
    importance: Share


@frozen
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


def importance(planned: Plan, model: Any, split: Split, repeats: int | None) -> dict[str, Importance]:
    """Return the importance of the columns of a split for each target; none if there are none, or if it is left out.

    `repeats` are permutations of each column, of all examples; 0 leaves it out. None is for those that cost little: of
    many rows of a sample, and of examples with images none.
    """
    names = columns_of(planned)
    part = split if repeats is not None else _cheap(planned, split, len(names) * REPEATS)
    if not names or repeats == 0 or part is None:
        return {}
    repeats, flow = repeats or REPEATS, given_to_model(planned.evaluation)
    measures, examples = _measures(planned, model, of_plan(planned, part), names, repeats)
    found = {}
    for target, each in measures.items():
        is_error = kind_of(flow.features[target]) == "number"
        worse = (1 if is_error else -1) * (each[1:].reshape(len(names), -1) - each[0])
        worse[np.abs(worse) < _ROUNDING * np.abs(each).max()] = 0.0
        columns = []
        for name, of in zip(names, worse, strict=True):
            mean = float(of.mean())
            mean = 0.0 if abs(mean) < _ROUNDING * float(np.abs(of).max()) else mean
            columns.append(OfColumn(name=name, importance=Share(mean, *(interval_of_mean(of.tolist()) or ()))))
        found[target] = Importance(
            measure="mae" if is_error else "accuracy",
            value=float(each[0]),
            examples=examples,
            repeats=repeats,
            seed=SEED,
            predictions=examples * len(each),
            columns=sorted(columns, key=lambda column: -(column.importance.value or 0.0)),
        )
    return found


def _measures(
    planned: Plan, model: Any, reading: Reading, names: list[str], repeats: int
) -> tuple[dict[str, Floats], int]:
    """Return the measures of each target, as the examples are and for each repeat of each column; and their number."""
    flow, columns = given_to_model(planned.evaluation), planned.spec.columns
    test = tester(model, flow, reading.inputs_spec)
    try:
        stored = reading.stored(names)
    except tf.errors.OpError as error:
        expected = "records that can all be read, since their columns are permuted"
        raise WorldError(reading.split.name, headline(error), expected, _SKIP_WITH) from error
    made_of = {name: of if of <= {*names} else set() for name, of in _made_of(planned).items()}
    whole = columns and replace(columns, outputs=tuple(of for of in columns.outputs if made_of[of.name]))

    def made(column: str, given: Tensors) -> Any:  # what an input does not need is not computed in a graph
        outputs = given if whole is None else whole.given(given)
        return {name: outputs[name] for name in flow.inputs if column in made_of[name]}

    def taken(name: str, numbers: Ints) -> Any:
        with tf.device("CPU"):  # where the columns are
            return tf.gather(stored[name], numbers)

    changed, draws = tf.function(made, autograph=False), list[tuple[str, Any]]()
    for place, name in enumerate(names):
        for repeat in range(repeats):
            draws.append((name, np.random.default_rng((SEED, place, repeat)).permutation(reading.split.num_examples)))
    sums, weight, examples = {name: np.zeros(1 + len(draws)) for name in flow.targets}, 0.0, 0
    for batch in reading.batches(_SKIP_WITH):
        weights = batch.weights
        own = {name: taken(name, batch.numbers) for name in stored}
        targets = by_target(flow, batch.wanted[0])
        weight, examples = weight + float(weights.sum()), examples + len(weights)
        for place, (name, order) in enumerate([("", None), *draws]):
            inputs = batch.inputs
            if order is not None:
                found = padded(changed(name, {**own, name: taken(name, order[batch.numbers])}))
                inputs = {**inputs, **found} if isinstance(inputs, Mapping) else found[flow.inputs[0]]
            for target, predicted in test(inputs)[0].items():
                each = measured(kind_of(flow.features[target]), predicted, targets[target])
                sums[target][place] += float((each * weights).sum())
    return {name: of / weight for name, of in sums.items()} if weight else {}, examples


def columns_of(planned: Plan) -> list[str]:
    """Return the columns that inputs of the model are made of, but images, in the order of the data."""
    made_of = _made_of(planned)
    used = set[str]().union(*(made_of[name] for name in given_to_model(planned.evaluation).inputs))
    features = planned.spec.dataset.examples.features
    return [name for name, of in features.items() if name in used and of.format != "image"]


def _made_of(planned: Plan) -> dict[str, set[str]]:
    """Return the columns that each output, and each input of the model, is made of."""
    features, columns = planned.spec.dataset.examples.features, planned.spec.columns
    found: dict[str, set[str]] = {}
    for output in columns.outputs if columns is not None else ():  # the name of a column is that of the column
        found[output.name] = set[str]().union(*({of} if of in features else found[of] for of in output.of))
    return {name: {name} for name in given_to_model(planned.evaluation).inputs} | found


def _cheap(planned: Plan, split: Split, times: int) -> Split | None:
    """Return examples of a split of which `times` predictions each cost little: of rows a sample; None if none do."""
    most = max(_LEAST_PREDICTIONS, _PREDICTIONS * split.num_examples) // max(times, 1)
    if any(of.format == "image" for of in planned.spec.dataset.examples.features.values()):
        return None
    if most >= split.num_examples:
        return split
    if not len(split.numbers):
        return None
    some = np.sort(np.random.default_rng(SEED).choice(split.num_examples, max(most, 1), replace=False))
    return split.source.numbered(split.name, split.numbers[some])


def measured(kind: str, found: Outputs, targets: Array, threshold: float = HALF) -> Floats:
    """Return of each example whether its prediction is right, the share of its right labels, or its absolute error."""
    if kind == "class":
        return np.asarray(found.argmax(axis=-1) == targets, np.float64)
    wanted = targets.reshape(len(targets), -1).astype(np.float64)
    found = (found[:, -1] if kind == "binary" else found).reshape(wanted.shape).astype(np.float64)
    each = np.abs(found - wanted) if kind == "number" else (found > threshold) == (wanted > HALF)
    return np.asarray(each.mean(axis=1), np.float64)
