"""Checks that a dataset has the features that a config declares."""

from __future__ import annotations

from typing import Any

from etlrun.stages.dataset import IMAGE, LABEL, TfdsDataset
from etlrun.stages.flow import ITEM_BYTES, Feature
from etlrun.stages.lazy import np, tfds
from etlrun.system.errors import WorldError, did_you_mean

_TWO = 2
_KEYS = {IMAGE: TfdsDataset.key("image_key"), LABEL: TfdsDataset.key("label_key")}
"""Config keys of the features with default names."""


def checked(info: Any, dataset: TfdsDataset) -> int | None:
    """Return the number of classes of the only target, None if it is no class, or if there are several.

    Raises:
        WorldError: The dataset, which TFDS describes by `info`, has other features.
    """
    flow = dataset.examples
    for name, key in dataset.keys.items():
        feature = flow.features[name]
        if feature.format == "image":
            _image(info, key, _where(dataset, name))
        elif feature.is_labels or (feature.is_binary and not _is_label(info, key)):
            _zeros_and_ones(info, key, feature, _where(dataset, name))
        elif feature.is_class:
            _typed(info, key, tfds.features.ClassLabel, _where(dataset, name))
            _counted(info, key, feature, _where(dataset, name))
        else:
            _plain(info, key, feature, _where(dataset, name))
    is_class = flow.features[flow.target].is_class and len(flow.targets) == 1
    if is_class and not _is_label(info, dataset.keys[flow.target]):
        return _TWO  # of a binary target of numbers
    return int(info.features[dataset.keys[flow.target]].num_classes) if is_class else None


def _where(dataset: TfdsDataset, name: str) -> str:
    """Return the key of a config that declares a feature."""
    if name in (dataset.target or {}):
        return TfdsDataset.key("target")
    if name in (dataset.features or {}):
        return TfdsDataset.key("features")
    if name == dataset.weight:
        return TfdsDataset.key("weight")
    return _KEYS[name]


def _is_label(info: Any, key: str) -> bool:
    return key in info.features and isinstance(info.features[key], tfds.features.ClassLabel)


def _counted(info: Any, key: str, feature: Feature, where: str) -> None:
    """Check the number of classes that a config has of a target."""
    count = info.features[key].num_classes
    if feature.classes and count != len(feature.classes):
        raise WorldError(
            where,
            f"{len(feature.classes)} classes, and '{key}' has {count} in {info.full_name}",
            "the number of the dataset",
            f"write {key}: class {count}",
        )


def _zeros_and_ones(info: Any, key: str, feature: Feature, where: str) -> None:
    """Check a target of integers or truth values, of which 0 and 1 are meant."""
    stored: Any = info.features[key].get_serialized_info() if key in info.features else None
    is_plain = hasattr(stored, "np_dtype") and np.dtype(stored.np_dtype).kind in "biu"
    if not is_plain or tuple(stored.shape) != feature.shape:
        found = f"no feature '{key}'" if stored is None else f"'{key}', which is {info.features[key]},"
        remedy = f"name another feature of {', '.join(sorted(info.features))}"
        if is_plain and feature.is_labels and len(stored.shape) == 1 and stored.shape[0]:
            remedy = f"write {key}: labels {stored.shape[0]}"
        raise WorldError(
            where,
            f"{found} in {info.full_name}",
            f"{f'{feature.shape[0]} numbers' if feature.is_labels else 'a number'} of 0 or 1 in each example",
            remedy,
        )


def _image(info: Any, key: str, where: str) -> None:
    _typed(info, key, tfds.features.Image, where)
    if info.features[key].np_dtype == np.float32:  # TFDS stores their bytes as four channels
        raise WorldError(
            where,
            f"'{key}', which is {info.features[key]}, in {info.full_name}",
            "images of uint8 or uint16",
            "choose a dataset whose images are not float32",
        )


def _typed(info: Any, key: str, kind: type, where: str) -> None:
    if key not in info.features or not isinstance(info.features[key], kind):
        known = [name for name, feature in info.features.items() if isinstance(feature, kind)]
        found = f"no feature '{key}'" if key not in info.features else f"'{key}', which is {info.features[key]}"
        is_key = where in _KEYS.values()
        write = f"set {where}={{}}" if is_key else f"write {{}}: {'image' if kind is tfds.features.Image else 'class'}"
        raise WorldError(
            where,
            f"{found} in {info.full_name}",
            f"a feature of type {kind.__name__}: {', '.join(known) or 'there is none'}",
            write.format(known[0]) if known else "choose a dataset of labelled images",
        )


def _plain(info: Any, key: str, feature: Feature, where: str) -> None:
    """Check a feature of numbers or text, which a serialised example stores as TFDS returns it."""
    if key not in info.features:
        known = sorted(info.features)
        raise WorldError(
            where,
            f"no feature '{key}' in {info.full_name}",
            f"one of {', '.join(known)}",
            did_you_mean(key, known, otherwise="name features of the dataset"),
        )
    has = info.features[key]
    if where == TfdsDataset.key("weight"):
        where = f"{where}={key}"
    stored = has.get_serialized_info()
    dtype, shape = (_name_of(stored.np_dtype), tuple(stored.shape)) if hasattr(stored, "np_dtype") else ("", ())
    if (dtype, shape) != (feature.dtype, feature.shape):
        found = {tfds.features.Image: "image", tfds.features.Text: "text"}.get(type(has), _type_of(dtype, shape))
        raise WorldError(
            where,
            f"{key}: {feature}, and '{key}' is {has} in {info.full_name}",
            "the dtype and shape of the dataset",
            f"write {key}: {found}" if found else "choose another feature",
        )


def _name_of(dtype: Any) -> str:
    found = np.dtype(dtype)
    return "string" if found == np.dtype(object) or found.kind in "SU" else found.name


def _type_of(dtype: str, shape: tuple[int | None, ...]) -> str:
    """Return how a config writes the type of numbers; empty for what no config can declare."""
    sides = [str(side) for side in shape if side]
    if dtype not in ITEM_BYTES or len(sides) < len(shape):
        return ""
    return f"{dtype} {'x'.join(sides)}" if sides else dtype
