"""What a run can use: the pixels of TensorFlow's decoder and of turbo beside Pillow's, and the names of the rest."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.datasets.examine.doctor_image import look_at
from etlrun.datasets.prepare.check import problem as refused_by_prepare
from etlrun.sources.corrupt import corrupt_records
from etlrun.sources.open import open_source
from etlrun.sources.pixels import pillow_as_header_reader
from etlrun.sources.usable import CONVERT, Problem, problem
from etlrun.stages.image import Decode
from etlrun.stages.turbo import Turbo
from tests.encoded import LOSSLESS, REFUSED, SAME
from tests.own import write_photos
from tests.runs import run_here
from tests.test_pixels import plan_of_folder


def by_turbo(data: bytes) -> Any:
    pytest.importorskip("simplejpeg", reason="the extra turbo is not installed")
    pytest.importorskip("cv2", reason="the extra turbo is not installed")
    (image,) = Turbo.op([data], center_crop=False, size=None, scaled=False, fancy_upscaling=True)
    return image


def by_pillow(data: bytes) -> Any:
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":  # Pillow would clip instead of taking the upper bits
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., np.newaxis], 3, axis=-1)
    return np.asarray(image.convert("RGBA" if image.mode == "P" else "RGB"))[..., :3]


@pytest.mark.parametrize("name", SAME)
def test_what_is_decoded_has_the_pixels_that_a_viewer_shows(name: str) -> None:
    data = SAME[name]
    with pillow_as_header_reader():
        assert problem(data) is None
    found = Decode.op(data).numpy()
    inexact = 4 if name.startswith(("JPEG", "MPO")) else 0  # of two rounded transforms
    np.testing.assert_allclose(found.astype(int), by_pillow(data), atol=inexact)
    np.testing.assert_array_equal(by_turbo(data), found)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_is_refused_by_its_name_everywhere(name: str, tmp_path: Path) -> None:
    data, reason = REFUSED[name]
    expected = "a complete image file" if name in ("page", "BMP, cut") else CONVERT
    with pillow_as_header_reader():
        assert problem(data) == Problem(reason, expected)
        assert look_at(data).reason == reason
        frames = ("GIF", "WebP")  # which TFDS reads in no form
        assert name.startswith(frames) or refused_by_prepare(data) == Problem(reason, expected)
    photos = write_photos(tmp_path / "photos")
    (photos / "disc" / "odd.jpg").write_bytes(data)
    source = open_source(plan_of_folder(photos).spec.dataset)
    (corrupt,) = corrupt_records(source, source.split("train", "dataset.split"))
    convert = f"convert it, as by: python -m etlrun prepare {photos} --name NAME --convert"
    remedy = convert if expected == CONVERT else "restore or remove the file"
    assert str(corrupt.error()) == (
        f"{photos}/disc/odd.jpg: found {reason}; expected {expected}\n"
        f"    -> {remedy}, or set dataset.on_corrupt=skip to skip and count such records"
    )


@pytest.mark.parametrize("words", [(), ("extract=sequential", "load.shuffle=full")])
def test_skipping_is_not_offered_where_it_would_leave_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(REFUSED["BMP 1"][0])
    given = ["dataset=folder", f"dataset.dir='{tmp_path}/photos'", "dataset.split=train", "dataset.eval_split=null"]
    status, summary = run_here(tmp_path / "run", [*given, "trainer=drain", "cache=none", "load.batch_size=1", *words])
    assert status == 1
    where, remedy = summary["error"].splitlines()
    assert where.endswith(f"found a BMP of 1 bit a pixel; expected {CONVERT}")
    assert remedy == (
        f"    -> convert it, as by: python -m etlrun prepare {tmp_path}/photos --name NAME --convert; "
        "so are all 4 examples of 'train', and skipping would leave none"
    )


@pytest.mark.parametrize("name", ["JPEG without loss", "JPEG, hierarchical", "JPEG of 12 bits", "TIFF", "page"])
def test_turbo_decodes_nothing_that_tensorflow_refuses(name: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        by_turbo(REFUSED[name][0])


@pytest.mark.parametrize("library", ["tensorflow", "turbo"])
@pytest.mark.parametrize("split", ["train", "train[50%:]"])
def test_a_run_skips_what_it_says(library: str, split: str, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    odd = {
        "lossless.jpg": LOSSLESS,
        "palette.bmp": REFUSED["BMP P"][0],
        "clear.gif": REFUSED["GIF with clear pixels"][0],
    }
    for name, data in odd.items():
        (photos / "disc" / name).write_bytes(data)
    source = open_source(plan_of_folder(photos).spec.dataset)
    part = source.split(split, "dataset.split")
    wanted = {path for path in part.paths if Path(path).name in odd}
    words = ["dataset=folder", f"dataset.dir='{photos}'", f"dataset.split='{split}'", "dataset.eval_split=null"]
    more = ["trainer=drain", "cache=none", "dataset.on_corrupt=skip", f"transform.decode.library={library}"]
    status, summary = run_here(tmp_path / "run", [*words, *more, "load.batch_size=1", "trainer.epochs=1"])
    assert status == 0
    assert summary["skipped"]["train"] == len(wanted)
    assert summary["epochs"][0]["examples"] == part.num_examples - len(wanted)
