"""Names of what a training measures."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from etlrun.stages.plugins import METRICS as METRICS_OF_PACKAGES
from etlrun.stages.plugins import named, names

_OF = "_of_"
_NAME = f"accuracy|top_[1-9][0-9]{{0,5}}_accuracy|(precision|recall|f1)({_OF}.+)?|auc|mae|rmse|r2"
METRICS = (
    "accuracy, top_N_accuracy, precision, recall, f1 and one of the last three of a class, such as recall_of_CLASS, "
    "auc of two classes, and mae, rmse and r2 of numbers"
)
MONITORED = (
    "loss, accuracy, top_N_accuracy, precision, recall, f1, recall_of_CLASS, auc, mae, rmse or r2, or one of them "
    "after val_"
)
_OF_KIND = {
    "binary": "accuracy|auc|precision|recall",
    "labels": "accuracy|auc|precision|recall",
    "number": "mae|rmse|r2",
    "class": f"(?!auc|mae|rmse|r2)({_NAME})",
}


def is_metric(name: str) -> bool:
    """Return whether a name is that of a metric of etlrun."""
    return re.fullmatch(_NAME, name) is not None


def _is_known(name: str) -> str:
    if not is_metric(name) and named(METRICS_OF_PACKAGES, name) is None:
        raise ValueError(name)
    return name


def _is_monitored(name: str) -> str:
    if re.fullmatch(f"(val_)?(.+_)?(loss|{_NAME}|{'|'.join(names(METRICS_OF_PACKAGES)) or 'loss'})", name) is None:
        raise ValueError(name)
    return name


def _patterned(before: str, *also: str) -> Any:
    """Return what the schema of a metric has: its pattern, with the metrics of packages."""

    def add(schema: dict[str, Any]) -> None:
        schema["pattern"] = f"^{before}({'|'.join([*also, _NAME, *names(METRICS_OF_PACKAGES)])})$"

    return Field(json_schema_extra=add)


Metric = Annotated[str, AfterValidator(_is_known), _patterned("")]
Monitored = Annotated[str, AfterValidator(_is_monitored), _patterned("(val_)?(.+_)?", "loss")]


def is_loss(name: str) -> bool:
    """Return whether a measure is the loss of the training or of the validation, of which smaller values are better."""
    return not _is_of_class(name) and re.fullmatch("(.+_)?loss", name) is not None


def _is_of_class(name: str) -> bool:
    """Return whether a measure is a score of one class, whose name may be that of any measure."""
    return re.fullmatch(f"(.+_)?(precision|recall|f1){_OF}.+", name) is not None


def falls(name: str) -> bool:
    """Return whether smaller values of a measure are better: of a loss, and of the errors of numbers."""
    own = (plugin for name in names(METRICS_OF_PACKAGES) if (plugin := named(METRICS_OF_PACKAGES, name)) is not None)
    falling = "|".join(["loss", "mae", "rmse", *(plugin.name for plugin in own if plugin.falls)])
    return not _is_of_class(name) and re.fullmatch(f"(.+_)?({falling})", name) is not None


def is_of_kind(name: str, kind: str) -> bool:
    """Return whether a metric is one of targets of that kind, as those of packages are of all."""
    return named(METRICS_OF_PACKAGES, name) is not None or re.fullmatch(_OF_KIND[kind], name) is not None


def is_score(name: str) -> bool:
    """Return whether a metric is the precision, the recall or the F1 of a class, or their mean over classes."""
    return is_metric(name) and name.startswith(("precision", "recall", "f1"))


def score_and_class(name: str) -> tuple[str, str | None]:
    """Return which of the three scores a metric is, and the class that it is of; None for the mean over classes."""
    score, _, of = name.partition(_OF)
    return score, of or None


def classes_of(names: tuple[str, ...]) -> list[str]:
    """Return the classes that metrics are named by."""
    return [of for name in names if is_score(name) and (of := score_and_class(name)[1]) is not None]
