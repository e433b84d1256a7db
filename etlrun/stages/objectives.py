"""What a training minimises and measures: for each kind of target its head, its losses and its metrics.

A metric is one row of `METRICS`: configs, their schema and reference, runs, sweeps and pages take it from there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from etlrun.stages.flow import Feature
from etlrun.stages.made import Made, Named
from etlrun.stages.plugins import LOSSES, named, names
from etlrun.stages.plugins import METRICS as METRICS_OF_PACKAGES
from etlrun.system.values import frozen

Kinds = Literal["class", "binary", "labels", "number"]
_CLASS: tuple[Kinds, ...] = ("class",)
_TWO: tuple[Kinds, ...] = ("binary", "labels")
_NUMBER: tuple[Kinds, ...] = ("number",)
_TOP = "top_([1-9][0-9]{0,5})_accuracy"


@frozen
class TargetKind:
    """What a kind of target decides.

    Attributes:
        title: The kind in a message, behind the name of the target.
        losses: Values of `trainer.loss` for it, the default first.
        activation: Activation of its head in Keras; None for none.
        layer: Name of the layer that gives its predictions.
    """

    title: str
    losses: tuple[str, ...]
    activation: str | None
    layer: str


_CROSSENTROPY = ("crossentropy",)
_OF_NUMBERS = ("mean_squared_error", "mean_absolute_error", "huber")
KINDS: dict[Kinds, TargetKind] = {
    "class": TargetKind(title="a class", losses=_CROSSENTROPY, activation="softmax", layer="probabilities"),
    "binary": TargetKind(title="one of two classes", losses=_CROSSENTROPY, activation="sigmoid", layer="probability"),
    "labels": TargetKind(title="several labels", losses=_CROSSENTROPY, activation="sigmoid", layer="probabilities"),
    "number": TargetKind(title="not a class", losses=_OF_NUMBERS, activation=None, layer="value"),
}
"""Kinds of targets by their names in `dataset.target` of rows."""


@dataclass(frozen=True)
class Scale:
    """Where values of a measure may lie.

    Attributes:
        low: The smallest one; None for none. `high` is the largest one.
        falls: Whether smaller values are better.
    """

    low: float | None = None
    high: float | None = None
    falls: bool = False


SHARE, ERROR = Scale(0.0, 1.0), Scale(0.0, falls=True)


@frozen
class Metric:
    """A metric of targets of some kinds.

    Attributes:
        name: Its name in configs, with N or CLASS in the place of a number or a class.
        kinds: Kinds of its targets.
        made: Returns the metric of Keras of a name, for a target, the names of its classes, and with `mixes` for mixed
            ones.
        pattern: Regular expression of its names; empty for `name` alone.
        scale: Where its values may lie.
        is_default: Whether targets of these kinds have it where a config names no metrics.
        takes_mixed: Whether it is one of mixed images, too.
    """

    name: str
    kinds: tuple[Kinds, ...]
    made: Callable[..., Any]
    pattern: str = ""
    scale: Scale = SHARE
    is_default: bool = False
    takes_mixed: bool = False

    def is_named(self, name: str, before: str = "") -> bool:
        """Return whether a name is one of this metric, behind what the expression `before` matches."""
        return re.fullmatch(f"{before}({self.pattern or self.name})", name) is not None


def _accuracy(name: str, _target: Feature, _classes: Any, *, mixes: bool) -> Any:
    most = top_of(name)
    if mixes:
        function = Named(f"etlrun.stages.mix.mixed_{'top_' if most else ''}accuracy")
        return Made("keras.metrics.MeanMetricWrapper", (function,), {"name": name, **({"k": most} if most else {})})
    return Made("keras.metrics.SparseTopKCategoricalAccuracy", (most,), {"name": name}) if most else name


def _score(name: str, _target: Feature, _classes: Any, **_mixes: bool) -> Made:
    return Made("etlrun.run.custom_objects.ClassScore", (name,), {"name": name})


def _auc(name: str, target: Feature, _classes: Any, **_mixes: bool) -> Made:
    labels = {"multi_label": True, "num_labels": target.shape[0]} if target.is_labels else {}
    return Made("keras.metrics.AUC", (), {**labels, "name": name})


def _r2(_name: str, target: Feature, _classes: Any, **_mixes: bool) -> Made:
    return Made("etlrun.run.custom_objects.R2", (), {} if target.mean is None else {"origin": target.mean})


def _of_keras(keras_class: str) -> Callable[..., Made]:
    return lambda name, *_, **_mixes: Made(f"keras.metrics.{keras_class}", (), {"name": name})


METRICS: tuple[Metric, ...] = (
    Metric(name="accuracy", kinds=_CLASS, made=_accuracy, is_default=True, takes_mixed=True),
    Metric(name="top_N_accuracy", kinds=_CLASS, made=_accuracy, pattern=_TOP, takes_mixed=True),
    Metric(name="precision", kinds=_CLASS, made=_score),
    Metric(name="recall", kinds=_CLASS, made=_score),
    Metric(name="f1", kinds=_CLASS, made=_score),
    Metric(name="accuracy", kinds=_TWO, made=_of_keras("BinaryAccuracy"), is_default=True),
    Metric(name="auc", kinds=_TWO, made=_auc, is_default=True),
    Metric(name="precision", kinds=_TWO, made=_of_keras("Precision"), is_default=True),
    Metric(name="recall", kinds=_TWO, made=_of_keras("Recall"), is_default=True),
    Metric(name="mae", kinds=_NUMBER, made=_of_keras("MeanAbsoluteError"), is_default=True, scale=ERROR),
    Metric(name="rmse", kinds=_NUMBER, made=_of_keras("RootMeanSquaredError"), is_default=True, scale=ERROR),
    Metric(name="r2", kinds=_NUMBER, made=_r2, is_default=True, scale=Scale(high=1.0)),
)
"""Metrics of etlrun; targets have the default ones in this order, the first of which is shown first."""


def _listed(names: Sequence[str]) -> str:
    """Return different names as a list that ends with `or`."""
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} or {last}"


NAMES = _listed([metric.name for metric in METRICS])
"""Metrics in a message."""
NAMES_OF_LOSSES = f"crossentropy; of numbers {_listed(_OF_NUMBERS)}"
MONITORED = f"loss, {NAMES}, or one of them after val_, or after the name of a validation set and a dot"


def metric_of(name: str, kind: Kinds | None = None) -> Metric | None:
    """Return the metric of etlrun of that name, for targets of a kind or of any; None if there is none."""
    return next((of for of in METRICS if (kind is None or kind in of.kinds) and of.is_named(name)), None)


def is_of_kind(name: str, kind: Kinds) -> bool:
    """Return whether a metric is one of targets of that kind, as those of packages are of all."""
    return named(METRICS_OF_PACKAGES, name) is not None or metric_of(name, kind) is not None


def metrics_of(kind: Kinds) -> str:
    """Return the metrics of targets of that kind, for a message."""
    return _listed([metric.name for metric in METRICS if kind in metric.kinds])


def default_metrics(kinds: Sequence[Kinds]) -> tuple[str, ...]:
    """Return the metrics of targets of these kinds where a config names none."""
    found = (metric.name for kind in kinds for metric in METRICS if metric.is_default and kind in metric.kinds)
    return tuple(dict.fromkeys(found))


def _pattern(before: str, after: str) -> str:
    """Return the regular expression of all metrics, those of packages too, between these parts."""
    own = dict.fromkeys(metric.pattern or metric.name for metric in METRICS)
    return f"^{before}{'|'.join([*own, *names(METRICS_OF_PACKAGES)])}{after}$"


def _matching(*parts: str) -> tuple[AfterValidator, Any]:
    """Return what makes a text one that matches the pattern of these parts, and its schema."""

    def matched(name: str) -> str:
        if re.fullmatch(_pattern(*parts), name) is None:
            raise ValueError(name)
        return name

    return AfterValidator(matched), Field(json_schema_extra=lambda schema: schema.update(pattern=_pattern(*parts)))


MetricName = Annotated[str, *_matching("(", ")")]
Monitored = Annotated[str, *_matching(r"(val_|[A-Za-z0-9_-]+\.)?(.+_)?(loss|", ")")]


def scale_of(measure: str) -> Scale:
    """Return where values of a loss or a metric may lie, whose name may stand behind others.

    These are `val_` or that of a validation set and a dot, and that of a target.
    """
    before = r"(.+[_.])?"
    for name in names(METRICS_OF_PACKAGES):
        if re.fullmatch(f"{before}{name}", measure) and (plugin := named(METRICS_OF_PACKAGES, name)) is not None:
            return Scale(falls=plugin.falls)
    return next((of.scale for of in METRICS if of.is_named(measure, before)), ERROR)


def falls(measure: str) -> bool:
    """Return whether smaller values of a measure are better: of a loss, and of the errors of numbers."""
    return scale_of(measure).falls


def top_of(name: str) -> int:
    """Return the N of `top_N_accuracy`; 0 for any other metric."""
    found = re.fullmatch(_TOP, name)
    return int(found[1]) if found else 0


def kind_of(target: Feature) -> Kinds:
    """Return the kind of a target."""
    if target.is_labels:
        return "labels"
    return "binary" if target.is_binary else "class" if target.is_class else "number"


def loss_of(target: Feature, loss: str) -> str:
    """Return the loss for a target; the default of `trainer.loss` stands for that of the kind of the target."""
    losses = (*KINDS[kind_of(target)].losses, *names(LOSSES))
    return loss if loss in losses else losses[0]
