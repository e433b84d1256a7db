"""What a run can use: the pixels of TensorFlow's decoder and of turbo beside Pillow's, and the names of the rest."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.datasets.examine.scan import look_at
from etlrun.datasets.prepare.check import problem as refused_by_prepare
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import accepted
from etlrun.graph.parts import of_pass
from etlrun.run.session import contexts_of
from etlrun.sources.base import Problem, open_source
from etlrun.sources.corrupt import CONVERT, corrupt_records, problem
from etlrun.stages.image import Decode
from etlrun.stages.turbo import Turbo
from tests.encoded import HEIGHT, JPEG, LOSSLESS, REFUSED, SAME, WIDTH, png
from tests.own import of_records, write_photos, write_records
from tests.runs import run_here
from tests.test_pixels import plan_of_folder


def by_turbo(data: bytes, size: tuple[int, int] = (HEIGHT, WIDTH)) -> Any:
    (image,) = Turbo.op([data], center_crop=False, size=size, fast=False)
    return image


def by_pillow(data: bytes) -> Any:
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":  # Pillow would clip instead of taking the upper bits
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., np.newaxis], 3, axis=-1)
    return np.asarray(image.convert("RGBA" if image.mode == "P" else "RGB"))[..., :3]


@pytest.mark.parametrize("name", SAME)
def test_what_is_decoded_has_the_pixels_that_a_viewer_shows(name: str) -> None:
    data = SAME[name]
    assert problem(data) is None
    found = Decode.op(data).numpy()
    inexact = 4 if name.startswith(("JPEG", "MPO")) else 0  # of two rounded transforms
    np.testing.assert_allclose(found.astype(int), by_pillow(data), atol=inexact)
    np.testing.assert_array_equal(by_turbo(data), found)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_is_refused_by_its_name_everywhere(name: str, tmp_path: Path) -> None:
    data, reason = REFUSED[name]
    expected = "a complete image file" if name in ("page", "BMP, cut") else CONVERT
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


def bomb(kind: str) -> bytes:
    """An image whose header promises 16,384 x 11,000 pixels, in 400 kB."""
    if kind == "PNG":
        return png(np.zeros((1, 1), np.uint8), 8, 0).replace(
            struct.pack(">II", 1, 1), struct.pack(">II", 16_384, 11_000)
        )
    data, place = bytearray(JPEG), JPEG.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", 11_000, 16_384)
    return bytes(data) + bytes(400_000)


LARGE = "an image of 16,384 x 11,000 pixels, more than 178,956,970 in all"
ODD = {**REFUSED} | {f"{kind} of too many pixels": (bomb(kind), LARGE) for kind in ("PNG", "JPEG")}


@pytest.mark.parametrize("library", ["tensorflow", "turbo"])
def test_of_records_the_same_images_are_skipped_with_the_same_reasons(library: str, tmp_path: Path) -> None:
    images = [*SAME.values(), *(data for data, _ in ODD.values())]
    write_records(tmp_path / "a.tfrecord", [{"image": data, "label": 0} for data in images])
    words = ("dataset.split=train", "load.batch_size=1", "load.drop_remainder=false", "dataset.on_corrupt=skip")
    plan = of_records(tmp_path, *words, f"transform.decode.library={library}")
    context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == len(SAME)
    assert context.losses.records is not None
    assert [found.reason for found in context.losses.records] == [reason for _, reason in ODD.values()]
    assert str(context.losses.records[0].error()) == (
        f"{tmp_path}/a.tfrecord, record {len(SAME)}: found a BMP of 1 bit a pixel; expected {CONVERT}\n"
        f"    -> convert it, as by: python -m etlrun prepare '{tmp_path}/*.tfrecord' --features "
        "image=image,label=label --name NAME --convert, or set dataset.on_corrupt=skip to skip and count such records"
    )


def test_where_python_cannot_be_called_jpegs_and_pngs_alone_are_decoded(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [{"image": JPEG, "label": 0}])
    plan = of_records(tmp_path)
    context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
    looked_at = tf.function(lambda data: accepted(data, of_pass(context, 1)))
    for name, data in SAME.items():
        if name.startswith(("JPEG", "MPO", "PNG", "APNG")):
            assert looked_at(data).numpy() == data
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="a service do not read: set load=shuffled"):
                looked_at(data)
    assert looked_at(bomb("JPEG")).numpy() == b""


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
