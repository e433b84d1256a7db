"""Predictions without a network: a constant, and a linear model of columns, by NumPy and SciPy.

With scikit-learn installed Keras would import it, too, in each run: 0.4 CPU seconds and 59 MB, also of images.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.measure.sample import Array
from etlrun.stages.flow import Flow
from etlrun.stages.objectives import Kinds, kind_of
from etlrun.system.values import frozen

FILE = "baseline.json"
CONSTANT, LINEAR = "constant", "linear"
MOST_CATEGORIES, MOST_STEPS = 256, 100
"""Categories that are one-hot, and iterations of a logistic regression."""
_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Penalties of a ridge regression, for one example."""
_STILL = 1e-6
"""Deviation of a column, in relation to its mean, below which it is none."""
Floats = npt.NDArray[np.float64]
Layout = tuple[dict[str, int], list[str], list[str]]


@frozen
class Simple:
    """A constant, and a linear model unless it has no columns, as plain values.

    Attributes:
        widths: Columns of each input of the linear model, by its name.
        categories: Names of those that are indices of categories, which are one-hot.
        mean: Mean of each column; `scale` is its deviation.
        constant: Predictions (outputs,) of each target, by its name.
        linear: Coefficients (columns + 1, outputs) of each target, the intercepts last.
    """

    widths: Mapping[str, int]
    categories: list[str]
    mean: list[float]
    scale: list[float]
    constant: Mapping[str, list[float]]
    linear: Mapping[str, list[list[float]]]

    def columns(self, inputs: Any, examples: int) -> Floats:
        """Return the columns (examples, columns) of inputs (examples, …), one or several by name."""
        found, at = np.zeros((examples, sum(self.widths.values()))), 0
        for name, width in self.widths.items():
            values = np.asarray(inputs[name] if isinstance(inputs, Mapping) else inputs)
            if name in self.categories:
                found[np.arange(examples), at + values.reshape(-1).astype(np.int64)] = 1.0
            else:
                found[:, at : at + width] = values.reshape(examples, width)
            at += width
        return found

    def predictions(self, flow: Flow, inputs: Any, examples: int) -> dict[str, dict[str, Array]]:
        """Return predictions (examples, outputs) by target of `constant` and, if there is one, of `linear`."""
        constant = {name: np.tile(np.array(of, np.float32), (examples, 1)) for name, of in self.constant.items()}
        if not self.linear:
            return {CONSTANT: constant}
        columns, found = (self.columns(inputs, examples) - self.mean) / self.scale, {}
        for name, of in self.linear.items():
            values, kind = columns @ np.array(of[:-1]) + of[-1], kind_of(flow.features[name])
            found[name] = (values if kind == "number" else _probabilities(kind, values)[0]).astype(np.float32)
        return {CONSTANT: constant, LINEAR: found}


def loaded(folder: Path) -> Simple | None:
    """Return the baseline of the run in a folder; None if it has none that can be read."""
    try:
        return Simple(**json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def layout(flow: Flow) -> Layout:
    """Return `Simple.widths` and `.categories`, and the inputs that are left out, which have too many categories.

    There are no columns unless all inputs are numbers, vectors or categories: with images or sequences.
    """
    widths, categories, left_out = dict[str, int](), list[str](), list[str]()
    for name in flow.inputs:
        of = flow.features[name]
        if of.dtype == "string" or len(of.shape) > 1 or None in of.shape:
            return {}, [], []
        width = of.categories if of.embedding and of.categories else None
        if width is not None:
            (categories if width <= MOST_CATEGORIES else left_out).append(name)
        if name not in left_out:
            widths[name] = math.prod(side or 0 for side in of.shape) if width is None else width
    return widths, categories, left_out


def standardize(columns: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Standardize columns in place; return their means and deviations, 1 of those that are all the same."""
    mean = weights @ columns / weights.sum()
    columns -= mean
    deviation = np.sqrt(np.einsum("i,ij,ij->j", weights, columns, columns) / weights.sum())
    scale = np.where(deviation > _STILL * np.abs(mean), deviation, 1.0)
    columns /= scale
    return mean, scale


def logistic(kind: Kinds, columns: Floats, wanted: Floats, weights: Floats) -> tuple[Floats, bool]:
    """Return coefficients as those of `Simple`, of standardized columns, and whether they have converged.

    They minimise the crossentropies, by weight, with half the squares of all but the intercepts, as scikit-learn's
    `LogisticRegression` does with C = 1: of `wanted` (examples, outputs), softmax of classes, else sigmoids.
    """
    from scipy.optimize import minimize  # imported here, since it takes 0.2 s

    width, count, whole = columns.shape[1], wanted.shape[1], weights.sum()
    values, vectors = np.linalg.eigh((columns.T * weights) @ columns)
    turn = np.zeros((width + 1, width + 1))  # so that all directions are about as steep, also of columns that correlate
    turn[:-1, :-1], turn[-1, -1] = vectors / np.sqrt(values.clip(0) / 4 + 1), 2 / np.sqrt(whole)

    def objective(flat: Floats) -> tuple[float, Floats]:
        of = turn @ flat.reshape(width + 1, count)
        logits = columns @ of[:-1] + of[-1]
        found, above = _probabilities(kind, logits)
        loss = weights @ (above - (wanted * logits).sum(axis=1)) + (of[:-1] ** 2).sum() / 2
        errors = weights[:, None] * (found - wanted)
        slopes = turn.T @ np.vstack([columns.T @ errors + of[:-1], errors.sum(axis=0)])
        return loss / whole, slopes.ravel() / whole

    options, begin = {"maxiter": MOST_STEPS, "gtol": 0.0, "ftol": 1e-9}, np.zeros((width + 1) * count)
    found = minimize(objective, begin, jac=True, method="L-BFGS-B", options=options)
    return turn @ found.x.reshape(width + 1, count), bool(found.success)


def ridge(columns: Floats, wanted: Floats, weights: Floats) -> Floats:
    """Return coefficients as those of `Simple`, of standardized columns, by the penalty of the smallest error.

    The error of a penalty is that of generalized cross-validation (Golub, Heath and Wahba 1979).
    """
    means, count = weights @ wanted / weights.sum(), len(columns)
    values, vectors = np.linalg.eigh((columns.T * weights) @ columns)
    turned, found = vectors.T @ ((columns.T * weights) @ (wanted - means)), list[tuple[float, Floats]]()
    for alpha in _ALPHAS:
        shrunk = 1 / (values.clip(0) + alpha * count)
        of, freedom = vectors @ (shrunk[:, None] * turned), count - 1 - float((values * shrunk).sum())
        missed = weights @ (wanted - means - columns @ of) ** 2 / (weights @ (wanted - means) ** 2).clip(1e-300)
        found.append((float(missed.sum()) / freedom**2 if freedom > 0 else math.inf, of))
    return np.vstack([min(found, key=lambda each: each[0])[1], means])


def _probabilities(kind: Kinds, logits: Floats) -> tuple[Floats, Floats]:
    """Return probabilities of classes or labels, and the logarithms (examples,) of what their products are over."""
    if kind != "class":
        above = np.logaddexp(0, logits)
        return np.exp(logits - above), above.sum(axis=1)
    most = logits.max(axis=1, keepdims=True)
    found = np.exp(logits - most)
    whole = found.sum(axis=1, keepdims=True)
    return found / whole, (most + np.log(whole))[:, 0]
