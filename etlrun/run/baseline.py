"""Baseline of a training: the loss and the metrics of a constant and of a linear model, beside those of the network.

Both are fitted on the examples that the network read in its first whole epoch, as it read them, by their weights, and
judged on those of its validation; without one on the same. With scikit-learn installed Keras would import it, too, in
each run: 0.4 CPU seconds and 59 MB, also of images. So NumPy and SciPy fit.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from etlrun.cluster.hosts import here
from etlrun.measure.assessment import Input
from etlrun.measure.gains import call_of_shares
from etlrun.planning.plan import given_to_model
from etlrun.record.summary import Baseline
from etlrun.run.callbacks import Training, saving
from etlrun.stages.flow import Flow
from etlrun.stages.keras_models import compile_model
from etlrun.stages.objectives import Kinds, kind_of
from etlrun.system.errors import counted, headline
from etlrun.system.terminal import doing
from etlrun.system.values import frozen

FILE = "baseline.json"
CONSTANT, LINEAR = "constant", "linear"
_MOST_EXAMPLES, _FEWEST_EXAMPLES, _MOST_VALUES = 100_000, 2_000, 10**7
"""Examples to fit on, those for which a linear model is worth its time, and examples times columns times outputs."""
_MOST_CATEGORIES, _MOST_STEPS = 256, 100
"""Categories that are one-hot, and iterations of a logistic regression."""
_AT_ONCE = 2**22
"""Predictions that are judged at a time."""
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Taken = tuple[dict[str, Array], dict[str, Array], Array]
Measured = Mapping[str, Mapping[str, float]]


@frozen
class Simple:
    """A constant, and a linear model unless it has no columns, as plain values.

    Attributes:
        widths: Columns of each input of the linear model, by its name.
        categories: Names of those that are indices of categories, which are one-hot.
        constant: Predictions (outputs,) of each target, by its name.
        linear: Coefficients (columns + 1, outputs) of each target, the intercepts last.
    """

    widths: Mapping[str, int]
    categories: list[str]
    constant: Mapping[str, list[float]]
    linear: Mapping[str, list[list[float]]]

    def columns(self, inputs: Any, examples: int) -> Floats:
        """Return the columns (examples, columns) of inputs (examples, …), one or several by name."""
        found = [np.zeros((examples, 0))]
        for name, width in self.widths.items():
            values = np.asarray(inputs[name] if isinstance(inputs, Mapping) else inputs)
            one_hot = name in self.categories
            found.append(np.eye(width)[values.reshape(-1)] if one_hot else values.reshape(examples, width))
        return np.concatenate(found, axis=1, dtype=np.float64)

    def predictions(self, flow: Flow, inputs: Any, examples: int) -> dict[str, dict[str, Array]]:
        """Return predictions (examples, outputs) by target of `constant` and, if there is one, of `linear`."""
        constant = {name: np.tile(np.array(of, np.float32), (examples, 1)) for name, of in self.constant.items()}
        if not self.linear:
            return {CONSTANT: constant}
        columns, found = self.columns(inputs, examples), {}
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


def _layout(flow: Flow) -> tuple[dict[str, int], list[str], list[str]]:
    """Return `Simple.widths` and `.categories`, and the inputs that are left out, which have too many categories.

    There are no columns unless all inputs are numbers, vectors or categories: with images or sequences.
    """
    features = {name: flow.features[name] for name in flow.inputs}
    if any(of.dtype == "string" or len(of.shape) > 1 or None in of.shape for of in features.values()):
        return {}, [], []
    embedded = {name: of.categories for name, of in features.items() if of.embedding and of.categories}
    left_out = [name for name, count in embedded.items() if count > _MOST_CATEGORIES]
    widths = {name: embedded.get(name) or math.prod(side or 0 for side in of.shape) for name, of in features.items()}
    return {name: width for name, width in widths.items() if name not in left_out}, [*embedded], left_out


def coefficients(kind: Kinds, columns: Floats, wanted: Floats, weights: Floats) -> tuple[Floats, bool]:
    """Return coefficients as those of `Simple`, and whether they have converged.

    They are those that scikit-learn's `Ridge` and `LogisticRegression` find of standardized columns by their defaults:
    they minimise the squared errors, or the crossentropies, with the squares, or half of these, of all coefficients but
    the intercepts. `wanted` are (examples, outputs): numbers, 1 for the class, or 1 for each of the labels.
    """
    whole, width, count, is_done = weights.sum(), columns.shape[1], wanted.shape[1], True
    mean = weights @ columns / whole
    columns = columns - mean
    scale = np.sqrt(np.einsum("i,ij,ij->j", weights, columns, columns) / whole)
    scale = np.where(scale > 1e-6 * np.abs(mean), scale, 1.0)  # else all are the same
    columns /= scale
    squares = (columns.T * weights) @ columns
    if kind == "number":
        means = weights @ wanted / whole
        products = (columns.T * weights) @ (wanted - means)
        found = np.vstack([np.linalg.solve(squares + np.eye(width), products), means])
    else:
        from scipy.optimize import minimize  # imported here, since it takes 0.2 s

        values, vectors = np.linalg.eigh(squares)
        turn = np.zeros((width + 1, width + 1))  # makes all directions about as steep, also of columns that correlate
        turn[:-1, :-1], turn[-1, -1] = vectors / np.sqrt(values.clip(0) / 4 + 1), 2 / np.sqrt(whole)

        def objective(flat: Floats) -> tuple[float, Floats]:
            of = turn @ flat.reshape(width + 1, count)
            logits = columns @ of[:-1] + of[-1]
            probabilities, above = _probabilities(kind, logits)
            loss = weights @ (above - (wanted * logits).sum(axis=1)) + (of[:-1] ** 2).sum() / 2
            errors = weights[:, None] * (probabilities - wanted)
            slopes = turn.T @ np.vstack([columns.T @ errors + of[:-1], errors.sum(axis=0)])
            return loss / whole, slopes.ravel() / whole

        options, begin = {"maxiter": _MOST_STEPS, "gtol": 0.0, "ftol": 1e-9}, np.zeros((width + 1) * count)
        best = minimize(objective, begin, jac=True, method="L-BFGS-B", options=options)
        found, is_done = turn @ best.x.reshape(width + 1, count), bool(best.success)
    of_columns = found[:-1] / scale[:, None]
    return np.vstack([of_columns, found[-1] - mean @ of_columns]), is_done


def _probabilities(kind: Kinds, logits: Floats) -> tuple[Floats, Floats]:
    """Return probabilities of classes or labels, and the logarithms (examples,) of what their products are over."""
    if kind != "class":
        above = np.logaddexp(0, logits)
        return np.exp(logits - above), above.sum(axis=1)
    most = logits.max(axis=1, keepdims=True)
    found = np.exp(logits - most)
    whole = found.sum(axis=1, keepdims=True)
    return found / whole, (most + np.log(whole))[:, 0]


class Sample:
    """First examples of a whole pass as a model is given them: references to their batches, which nothing copies.

    Attributes:
        most: Number of examples that are kept at most.
    """

    def __init__(self, of: Input, flow: Flow, inputs: Sequence[str], most: int) -> None:
        """Begin without one; of inputs these are kept."""
        self._watch, self._batches, self._names, self.most = of.watch, of.batches, (inputs, flow.targets), most
        self._parts, self._examples, self._is_part = list[list[dict[str, Any]]](), 0, False

    def add(self, *batch: Any) -> None:
        """Add inputs, targets and perhaps weights of a batch, unless there are enough."""
        if self._is_part and not self._watch.resumed_batches:  # a pass that another process has begun is over
            self._parts, self._examples = [], 0
        self._is_part = self._watch.resumed_batches > 0
        if len(self._parts) < self._batches and self._examples < self.most:
            part = [_named(values, names) for values, names in zip(batch, (*self._names, ("",)), strict=False)]
            self._parts.append(part)
            self._examples += int(part[1][self._names[1][0]].shape[0])

    def taken(self) -> Taken | None:
        """Return inputs and targets by name (examples, …) and weights (examples,), and forget them; None without."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        inputs, targets, *weights = (
            {name: np.concatenate([np.asarray(each[name]) for each in of])[: self.most] for name in of[0]}
            for of in zip(*parts, strict=True)
        )
        equal = np.ones(len(targets[self._names[1][0]]))
        return inputs, targets, weights[0][""].reshape(-1).astype(np.float64) if weights else equal


def _named(values: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] if isinstance(values, Mapping) else values for name in names}


class BaselineFit:
    """What a training keeps of its examples for a baseline, which is fitted when it has ended."""

    def __init__(self, training: Training) -> None:
        """Let the passes of a training keep examples, if its model learns and no other host reads a part of them."""
        self._training, self._note, work = training, "", training.work
        self._samples = dict[str, Sample]()
        if not work.plan.spec.model.learns or here().count > 1:
            return
        self._flow, output = given_to_model(work.plan.train), training.whole.output
        by_name = output if isinstance(output, Mapping) else {self._flow.target: output}
        self._outputs = {name: int(by_name[name].shape[-1] or 1) for name in self._flow.targets}
        self._kinds = {name: kind_of(self._flow.features[name]) for name in self._outputs}
        if training.data.mixes:
            self._kinds = dict.fromkeys(self._outputs, "class")
        (self._widths, self._categories, left_out), most = _layout(self._flow), _MOST_EXAMPLES
        if left_out:
            what = "the linear model leaves out" if self._widths else "no linear model, which would leave out"
            self._note = f"{what} {', '.join(left_out)} (over {_MOST_CATEGORIES} categories)."
        if width := sum(self._widths.values()):
            outputs = max(self._outputs.values())
            most = min(most, _MOST_VALUES // (max(width, 10) * outputs))
            if most < _FEWEST_EXAMPLES:
                self._note = (
                    f"{counted(width, 'column')} by {counted(outputs, 'output')} are too many for a linear model."
                )
                self._widths, width, most = {}, 0, _MOST_EXAMPLES
        size = width + sum(math.prod(side or 0 for side in self._flow.features[name].shape) for name in self._outputs)
        for of in work.inputs.values():
            count = min(2 * _MOST_VALUES // size, most if of.name == "train" else 2 * _MOST_VALUES)
            self._samples[of.name] = Sample(of, self._flow, [*self._widths], count)
            of.watch.keep = self._samples[of.name].add

    def conclude(self) -> None:
        """Fit and judge it, and keep it in the folder of the run; why it can't be is recorded, and no error."""
        began_s, record, samples = time.perf_counter(), self._training.work.record, self._samples
        parts = {name: part for name, sample in samples.items() if (part := sample.taken())}
        if len(parts) < len(samples) or not parts:  # nothing was trained: a resumed run may have its own
            return
        doing("fit the baseline")
        train, validated = parts["train"], {name: part for name, part in parts.items() if name != "train"}
        for name in (name for name, part in validated.items() if len(part[2]) == samples[name].most):
            self._note = f"{self._note} It is measured on the first {samples[name].most:,} of {name}.".strip()
        try:
            simple, results = self._fitted(train), dict[str, str | None]()
            found: dict[str, dict[str, float]] = {CONSTANT: {}, LINEAR: {}}
            for name, part in validated.items() or [("", train)]:
                before = "val_" if name == "validation" else f"{name}." * bool(name)
                for kind, measured in self._judged(simple, part).items():
                    found[kind] |= {f"{before}{measure}": value for measure, value in measured.items()}
                results |= self._results(found, part[2], before)
        except Exception as error:  # noqa: BLE001 - losses and metrics of packages may raise anything
            baseline = Baseline(note=f"It could not be fitted: {type(error).__name__}: {headline(error)}")
        else:
            with saving(record.folder / FILE, record) as path:
                path.write_text(json.dumps(vars(simple)) + "\n", encoding="utf-8")
            baseline = Baseline(examples=len(train[2]), **found, results=results, note=self._note)
        record.update(baseline=baseline.with_values(fit_s=time.perf_counter() - began_s))

    def _fitted(self, train: Taken) -> Simple:
        inputs, targets, weights = train
        weights = weights * (len(weights) / weights.sum())
        constant = {name: self._constant(name, targets[name], weights).tolist() for name in self._outputs}
        simple = Simple(widths=self._widths, categories=self._categories, constant=constant, linear={})
        columns, linear = simple.columns(inputs, len(weights)), dict[str, list[list[float]]]()
        for name, kind in self._kinds.items() if self._widths else ():
            wanted = targets[name].reshape(len(weights), -1).astype(np.float64)
            wanted = np.eye(self._outputs[name])[targets[name]] if kind == "class" else wanted
            found, is_done = coefficients(kind, columns, wanted, weights)
            linear[name] = found.tolist()
            if not is_done:
                self._note = f"{self._note} The linear model has not converged in {_MOST_STEPS} iterations.".strip()
        return replace(simple, linear=linear)

    def _constant(self, name: str, targets: Array, weights: Array) -> Array:
        """Return the shares of the classes, of the second one or of the labels, or the means of numbers."""
        if self._kinds[name] != "class":
            return np.asarray(np.average(targets.reshape(len(targets), -1), axis=0, weights=weights))
        labels = targets.reshape(len(targets), -1)[:, 0].astype(np.int64)  # of mixed images the own ones
        return np.asarray(np.bincount(labels, weights, self._outputs[name]) / weights.sum())

    def _judged(self, simple: Simple, judged: Taken) -> Measured:
        """Return the loss and the metrics of the training by `constant` and, if there is one, by `linear`."""
        (inputs, targets, weights), training, plan = judged, self._training, self._training.work.plan
        given = [keras.Input((count,), dtype="float32") for count in self._outputs.values()]
        outputs = dict(zip(self._outputs, map(keras.layers.Identity(dtype="float32"), given), strict=True))
        several, measured = len(outputs) > 1, dict[str, Mapping[str, float]]()
        model = keras.Model(given, outputs if several else outputs[self._flow.target])
        compile_model(model, plan.spec.model, training.work.trainer, training.data)
        is_traced = keras.backend.backend() != "tensorflow" or "labels" in self._kinds.values()  # whose AUC always is
        model.run_eagerly = not is_traced  # which takes less
        at_once = max(1, _AT_ONCE // sum(self._outputs.values()))
        for kind in (CONSTANT, *([LINEAR] if simple.linear else [])):
            model.reset_metrics()
            for at in range(0, len(weights), at_once):
                part = slice(at, at + at_once)
                some, wanted = ({name: of[part] for name, of in each.items()} for each in (inputs, targets))
                predicted = simple.predictions(self._flow, some, len(weights[part]))[kind]
                of_model = [predicted[name] for name in self._outputs], wanted if several else wanted[self._flow.target]
                counts = {"sample_weight": weights[part].astype(np.float32)} if self._flow.weight else {}
                found = model.test_on_batch(*of_model, **counts, return_dict=True)
            measured[kind] = {name: float(value) for name, value in found.items()}
        return measured

    def _results(self, found: Measured, weights: Array, before: str) -> dict[str, str | None]:
        """Return the first measure of each target, with whether the kept network is better by more than noise."""
        results, epoch = dict[str, str | None](), self._training.work.record.summary.kept_epoch
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        for target in self._flow.targets:
            prefix = f"{before}{target}_" if len(self._outputs) > 1 else before
            names = [f"{prefix}{name}" for name in (*self._training.work.trainer.metrics, "loss")]
            name = next(name for name in names if name in found[CONSTANT])
            own, simple = epoch.measure(name) if epoch else None, max(of.get(name, 0.0) for of in found.values())
            is_told = own is not None and before and name.endswith("accuracy")
            results[name] = call_of_shares(own or 0.0, simple, effective) if is_told else None
        return results
