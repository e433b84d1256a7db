"""Baseline of a training: the loss and the metrics of a constant and of a linear model, beside those of the network.

Both are fitted on the examples that the network read in its first whole epoch, as it read them, by their weights, and
judged on those of its validation; without one on the same.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace

import keras
import numpy as np

from etlrun.cluster.hosts import here
from etlrun.measure.gains import call_of_shares
from etlrun.measure.sample import Array, Sample, Taken
from etlrun.planning.plan import given_to_model
from etlrun.record.summary import Baseline
from etlrun.run.callbacks import Training, saving
from etlrun.run.linear import (
    CONSTANT,
    FILE,
    LINEAR,
    MOST_CATEGORIES,
    MOST_STEPS,
    Floats,
    Simple,
    layout,
    logistic,
    ridge,
    standardize,
)
from etlrun.stages.keras_models import compile_model
from etlrun.stages.objectives import kind_of
from etlrun.system.errors import headline
from etlrun.system.terminal import doing

Measured = Mapping[str, Mapping[str, float]]
_MOST_EXAMPLES, _MOST_BYTES, _MOST_VALUES = 100_000, 2**26, 2 * 10**7
"""Examples to fit on, their bytes, and examples times columns times outputs, with which a fit takes seconds."""
_FEWEST_EXAMPLES, _MOST_COLUMNS, _LEAST_COLUMNS = 1_000, 2_048, 10
"""Examples with which a fit is worth its time, columns at most, and those that count at least, beside outputs."""
_AT_ONCE = 2**22
"""Predictions that are judged at a time."""


class BaselineFit:
    """What a training keeps of its examples for a baseline, which is fitted when it has ended."""

    def __init__(self, training: Training) -> None:
        """Let the passes of a training keep examples, if its model learns and no other host reads a part of them."""
        self._training, self._note, work = training, "", training.work
        if not work.plan.spec.model.learns or here().count > 1:
            return
        self._flow, output = given_to_model(work.plan.train), training.whole.output
        by_name = output if isinstance(output, Mapping) else {self._flow.target: output}
        self._outputs = {name: int(by_name[name].shape[-1] or 1) for name in self._flow.targets}
        self._kinds = {name: kind_of(self._flow.features[name]) for name in self._outputs}
        if training.data.mixes:
            self._kinds = dict.fromkeys(self._outputs, "class")
        self._widths, self._categories, left_out = layout(self._flow)
        most, bytes_of_one = _MOST_EXAMPLES, sum(self._flow.features[name].bytes or 8 for name in self._outputs)
        if width := sum(self._widths.values()):
            outputs = max(self._outputs.values())
            most = min(most, _MOST_VALUES // (max(width, _LEAST_COLUMNS) * outputs))
            if width > _MOST_COLUMNS or most < _FEWEST_EXAMPLES:
                self._note = f"{width:,} columns by {outputs:,} outputs are too many for a linear model."
                self._widths, width, most = {}, 0, _MOST_EXAMPLES
            elif left_out:
                self._note = f"The linear model is without {', '.join(left_out)}: over {MOST_CATEGORIES} categories."
        at_most = _MOST_BYTES // (4 * width + bytes_of_one)
        for of in work.inputs.values():
            count = min(at_most, most) if of.name == "train" else at_most
            of.watch.sample = Sample([*self._widths], self._flow.targets, of.batches, count)

    def conclude(self) -> None:
        """Fit and judge it, and keep it in the folder of the run; why it can't be is recorded, and no error."""
        began_s, record, inputs = time.perf_counter(), self._training.work.record, self._training.work.inputs
        samples = {name: of.watch.sample for name, of in inputs.items() if of.watch.sample}
        parts = {name: part for name, sample in samples.items() if (part := sample.taken())}
        if len(parts) < len(samples) or not parts:  # nothing was trained: a resumed run may have its own
            return
        doing("fit the baseline")
        train, validated = parts["train"], {name: part for name, part in parts.items() if name != "train"}
        for name in (name for name, part in validated.items() if len(part[2]) == samples[name].most):
            self._note = f"{self._note} It is judged on the first {samples[name].most:,} of {name}.".strip()
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
        simple = Simple(
            widths=self._widths, categories=self._categories, mean=[], scale=[], constant=constant, linear={}
        )
        if not self._widths:
            return simple
        columns = simple.columns(inputs, len(weights))
        with np.errstate(all="ignore"):  # what is not finite is told
            mean, scale = standardize(columns, weights)
            is_finite = bool(np.isfinite([mean, scale]).all())
            linear = {name: self._coefficients(name, columns, targets[name], weights) for name in constant if is_finite}
        if not is_finite or not all(np.isfinite(of).all() for of in linear.values()):
            self._note = "There is no linear model, since its inputs or its coefficients are not finite."
            return simple
        plain = {name: of.tolist() for name, of in linear.items()}
        return replace(simple, mean=mean.tolist(), scale=scale.tolist(), linear=plain)

    def _coefficients(self, name: str, columns: Floats, targets: Array, weights: Floats) -> Floats:
        kind, wanted = self._kinds[name], targets.reshape(len(weights), -1).astype(np.float64)
        if kind == "number":
            return ridge(columns, wanted, weights)
        wanted = np.eye(self._outputs[name])[targets.astype(np.int64)] if kind == "class" else wanted
        found, has_converged = logistic(kind, columns, wanted, weights)
        if not has_converged:
            self._note = f"{self._note} The linear model has not converged in {MOST_STEPS} iterations.".strip()
        return found

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
        model.run_eagerly = keras.backend.backend() == "tensorflow"  # where that takes less than to trace it
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
