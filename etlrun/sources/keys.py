"""Features of serialised examples of other programs: their values, and which of them may be meant by a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etlrun.stages.lazy import pa
from etlrun.system.errors import did_you_mean, likeliest

_IMAGES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF")
"""First bytes of encoded images."""
KINDS = {"bytes_list": "a string", "int64_list": "int64", "float_list": "float32"}


def kind_of(feature: Any) -> str:
    """Return the type of the values of a feature."""
    return KINDS.get(feature.WhichOneof("kind") or "", "nothing")


def count_of(feature: Any) -> int:
    """Return the number of values of a feature."""
    kind = feature.WhichOneof("kind")
    return len(getattr(feature, kind).value) if kind else 0


def array_of(features: Sequence[Any]) -> pa.Array:
    """Return the only value of each feature, a text as it is stored; null for a feature without a value."""
    kinds = [of.WhichOneof("kind") for of in features]
    lists = [getattr(of, kind).value if kind else () for of, kind in zip(features, kinds, strict=True)]
    found = pa.array([values[0] if values else None for values in lists])
    return found.cast(pa.large_binary()).view(pa.large_string()) if pa.types.is_binary(found.type) else found


def meant(key: str, held: Mapping[str, Any], *, is_image: bool, shown: str, otherwise: str = "") -> str:
    """Return the remedy that suggests the feature that is an image, or a class, formatted with `shown`.

    Of several it is the one whose name ends with `key`, or is the closest; `otherwise` if none is close.
    """
    fit = [name for name, feature in held.items() if (_is_image(feature) if is_image else _is_class(feature))]
    ends = [name for name in fit if name.rpartition("/")[2] == key]
    one = (ends or fit if len(ends or fit) == 1 and is_image else ends)[:1]
    if not one and (close := likeliest(key, fit)):
        one = [close]
    return f"did you mean {shown.format(one[0])}?" if one else did_you_mean(key, held, shown, otherwise)


def _is_image(feature: Any) -> bool:
    return kind_of(feature) == "a string" and any(value.startswith(_IMAGES) for value in feature.bytes_list.value[:1])


def _is_class(feature: Any) -> bool:
    return kind_of(feature) == "int64" and count_of(feature) == 1
