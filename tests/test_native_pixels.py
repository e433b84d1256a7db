"""The pixels of strange images and of photos that are decoded natively, beside TensorFlow's."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf

from etlrun.review.difference import compare
from etlrun.stages.turbo import Turbo
from tests.configs import TENSORFLOW, plan_of
from tests.runs import small
from tests.test_turbo import ODD, SIZE, by_tensorflow, by_turbo, encoded, noise, passes_of


def of_simplejpeg(subsampling: str, height: int, width: int) -> bytes:
    """A JPEG with a subsampling that Pillow does not write."""
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(noise(height, width)), 92, colorsubsampling=subsampling)
    return data


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06" + bytes(6)
PHOTO, PNG = encoded(noise(61, 51), "JPEG", quality=90), encoded(noise(61, 51), "PNG")
_CMYK = bytearray(ODD["CMYK"])
_CMYK[_CMYK.index(b"Adobe") + 11] = 2
STRANGE: Mapping[str, bytes] = {
    **{f"{of}, {side}": of_simplejpeg(of, side, side + 3) for of in ("440", "411", "422") for side in (1, 15, 16, 33)},
    "YCCK": bytes(_CMYK),
    "EXIF's orientation": encoded(noise(61, 51), "JPEG", exif=TURNED),
    "quality of 5": encoded(noise(61, 51), "JPEG", quality=5),
    "quality of 100, progressive, 4:2:2": encoded(noise(61, 51), "JPEG", quality=100, progressive=True, subsampling=1),
    "optimized": encoded(noise(61, 51), "JPEG", optimize=True),
    "restarts": encoded(noise(61, 51), "JPEG", restart_marker_blocks=2),
    "garbage behind": PHOTO + b"garbage" * 40,
    "garbage before its end": PHOTO[:-2] + b"garbage" * 40 + PHOTO[-2:],
    **{f"JPEG, {share:.0%}": cut(PHOTO, share) for share in (0.02, 0.3, 0.6, 0.9, 0.99)},
    "JPEG, closed": cut(PHOTO, 0.6) + b"\xff\xd9",
    **{f"PNG, {share:.0%}": cut(PNG, share) for share in (0.02, 0.3, 0.9, 0.999)},
    "PNG, closed": cut(PNG, 0.6) + PNG[-12:],
    "PNG with a bad checksum": PNG[:-1] + b"\0",
    "PNG with a bad checksum inside": PNG[:80] + bytes([PNG[80] ^ 1]) + PNG[81:],
    "PNG with garbage behind": PNG + b"garbage",
    "no image": b"no image",
    "no bytes": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_image_has_the_pixels_of_tensorflow_or_is_refused_like_there(name: str) -> None:
    data, reason = STRANGE[name], ""
    try:
        expected = by_tensorflow(data, size=None)
    except tf.errors.InvalidArgumentError as error:
        reason = error.message
    if reason:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            Turbo.op([data], center_crop=False, size=SIZE, fast=False)
        assert caught.value.message == reason
    else:
        np.testing.assert_array_equal(by_turbo(data, size=None), expected)


def test_photos_have_the_pixels_of_tensorflow(photos: Path) -> None:
    records = tf.data.TFRecordDataset([str(path) for path in sorted(photos.rglob("cats_vs_dogs-train*"))])
    for record in records.shard(10, 0).as_numpy_iterator():
        data = tf.train.Example.FromString(record).features.feature["image"].bytes_list.value[0]
        expected = by_tensorflow(data, size=None)
        np.testing.assert_array_equal(by_turbo(data, size=None), expected)
        resized = by_tensorflow(data, size=(224, 224))
        apart = np.abs(by_turbo(data, size=(224, 224)).astype(int) - resized)
        assert apart.max() <= 1
        assert apart.mean() < 0.2


@pytest.mark.parametrize("word", ["transform.resize.antialias=true", "transform.resize.dtype=float32"])
def test_where_it_resizes_nothing_the_library_changes_the_speed_alone(word: str, tiny: Path) -> None:
    plans = [plan_of(*small(tiny, "cache=none", word, *library)) for library in ((), (TENSORFLOW,))]
    assert plans[0].fingerprint == plans[1].fingerprint
    assert passes_of(plans[0]) == passes_of(plans[1])
    (difference,) = compare(plans[0], plans[1]).differences
    assert (difference.path, difference.kind) == ("transform.decode.library", "speed")
    assert compare(plan_of(), plan_of(TENSORFLOW)).headline == "changes the data, from transform.decode on"
