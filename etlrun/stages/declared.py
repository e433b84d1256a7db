"""Types of the features of serialised examples, as a config declares them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field

from etlrun.stages.base import Text
from etlrun.stages.flow import ITEM_BYTES, Faults, Feature, Flow
from etlrun.stages.targets import Weight

STRINGS: dict[str, Feature] = {
    "class": Feature(dtype="int64", is_class=True),
    "image": Feature(dtype="string", format="image"),
    "text": Feature(dtype="string", format="text"),
}
_NUMBERS = rf"(?P<dtype>{'|'.join(ITEM_BYTES)})( (?P<shape>[1-9]\d*(x[1-9]\d*)*))?"
_UNNAMED = re.sub(r"\?P<\w+>", "", _NUMBERS)
_OF_TARGETS = r"number|binary|(class|labels) [1-9]\d{0,5}"
_TYPES = "types such as float32, uint8 28x28, class, image or text"
_Type = Annotated[str, Field(pattern=rf"^({'|'.join(STRINGS)}|{_UNNAMED})$")]
_TargetType = Annotated[str, Field(pattern=rf"^({'|'.join(STRINGS)}|{_OF_TARGETS}|{_UNNAMED})$")]
_Weighted = Annotated[dict[_TargetType, dict[Literal["weight"], Weight]], Field(min_length=1, max_length=1)]

Features = Annotated[dict[Text, _Type], Field(min_length=1)]
"""Names of features with their types; for an array also its shape: `float32 28x28`."""
Targets = Annotated[dict[Text, _TargetType | _Weighted], Field(min_length=1)]
"""Names of features to predict with their types, or with these and the weight of their loss."""
FEATURES = f"a mapping from names of features to {_TYPES}, or null"
TARGETS = (
    f"a mapping from names of features to {_TYPES}, to number, binary, class 3 or labels 5, or to one of them with its "
    "options, such as {class 3: {weight: 0.5}}; or null"
)


def feature_of(declared: str) -> Feature:
    """Return the feature of a declared type."""
    found = re.fullmatch(_NUMBERS, declared)
    if found is None:
        return STRINGS[declared]
    return Feature(dtype=found["dtype"], shape=tuple(int(side) for side in (found["shape"] or "").split("x") if side))


def described(declared: Any) -> tuple[str, dict[str, Any]]:
    """Return the type of a declared target, and its options."""
    return (declared, {}) if isinstance(declared, str) else next(iter(declared.items()))


def target_of(declared: Any) -> Feature:
    """Return the feature of a declared target."""
    text, _ = described(declared)
    kind, _, count = text.partition(" ")
    names = tuple(map(str, range(int(count) if kind in ("class", "labels") and count else 2)))
    if kind == "number":
        return feature_of("float32")
    if kind == "binary":
        return STRINGS["class"].replace(is_binary=True, classes=names)
    if kind == "labels":
        return Feature(dtype="int64", shape=(len(names),), low=0, high=1, is_labels=True, classes=names)
    return STRINGS["class"].replace(classes=names) if kind == "class" and count else feature_of(text)


def unfit(flow: Flow, declared: Collection[str], weight_key: str) -> Faults:
    """Yield the faults of targets, and of a weight, beside the `declared` inputs: key, found, expected and remedy."""
    is_one = "which is the target" if len(flow.targets) == 1 else "which is a target"
    for name in flow.targets:
        if name in declared:
            remedy = "leave it out of dataset.features, or set dataset.target"
            yield "features", f"{name}, {is_one}", "features to predict it from", remedy
        of = flow.features[name]
        if len(flow.targets) > 1 and of.is_class and not of.classes:
            expected = "a class with the number of its classes, since there are several targets"
            yield f"target.{name}", "class", expected, "write it behind the word, such as `class 3`"
    if not flow.weight:
        return
    feature, remedy = flow.features[flow.weight], f"name a numeric feature, or set {weight_key}=null"
    if flow.weight in flow.targets:
        yield "weight", f"{flow.weight}, {is_one}", "another feature", remedy
    elif feature.dtype == "string" or feature.shape or feature.is_class:
        yield "weight", f"{flow.weight}, which is {feature}", "a feature with a number in each example", remedy
    elif {*declared} == {flow.weight}:
        yield "weight", f"{flow.weight}, which is the only feature", "other features to predict from", remedy
