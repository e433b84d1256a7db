"""What a run can use: the pixels of TensorFlow's decoder and of turbo beside Pillow's, and the names of the rest."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.cache.store import folder_of
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.datasets.examine.images import look_at
from etlrun.datasets.prepare.check import problem as refused_by_prepare
from etlrun.graph.build import Pipeline, fits, of_pass
from etlrun.graph.datasets import accepted
from etlrun.measure.assessment import Work
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.session import at_work, contexts_of, opened, prepared
from etlrun.sources.base import Problem, open_source
from etlrun.sources.content import sha256_of_all
from etlrun.sources.corrupt import CONVERT, Losses, corrupt_records, pillow_as_header_reader, problem
from etlrun.sources.folder import sha256_and_refusal
from etlrun.stages import STAGES
from etlrun.stages.image import Decode, Turbo
from etlrun.system.errors import WorldError
from etlrun.trained.predict import ImageFiles
from tests import pictures
from tests.configs import composed, plan_of, raised
from tests.encoded import HEIGHT, JPEG, LOSSLESS, REFUSED, SAME, WIDTH, png
from tests.golden import Says
from tests.own import of_records, write_photos, write_records
from tests.pictures import jpeg
from tests.programs import of_tiny
from tests.runs import complete_here, emulated, run_here
from tests.test_prepare_broken import of_format, png_of

SIDES = 16_000, 12_000
LARGE_PIXELS = b"an image of 16,384 x 11,000 pixels, more than 178,956,970 in all\0a smaller image"
REASON = "an image of 16,000 x 12,000 pixels, more than 178,956,970 in all"


def bomb_of(width: int = SIDES[0], height: int = SIDES[1]) -> bytes:
    """A PNG of black pixels of one bit."""
    return png_of(width, height, 1, 0, zlib.compress(bytes((width // 8 + 1) * height), 9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve photos and a bomb_of of 24 kB."""
    photos = write_photos(tmp_path_factory.mktemp("of") / "photos")
    (photos / "disc" / "bomb_of.png").write_bytes(bomb_of())
    return photos


def plan_of_folder(folder: Path, *words: str) -> Plan:
    small = ("transform.resize.size=[8,8]", "load.batch_size=1", "model=emulated", "cache=none", "dataset.split=train")
    own = ("dataset=folder", f"dataset.dir='{folder}'", "dataset.eval_split=null", *small)
    return plan_of(*own, *words)


@pytest.mark.parametrize("words", [(), ("transform.decode.library=tensorflow",)])
def test_a_run_skips_and_names_an_image_of_too_many_pixels(words: tuple[str, ...], folder: Path, says: Says) -> None:
    plan = plan_of_folder(folder, "dataset.on_corrupt=skip", *words)
    source = open_source(plan.spec.dataset)
    context = contexts_of(plan, source)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == 12
    (corrupt,) = corrupt_records(context.split)
    assert context.losses.records == [corrupt]
    says(str(corrupt.error()), FOLDER=folder)


def test_no_record_of_a_run_names_the_file_of_such_an_image(folder: Path) -> None:
    source = open_source(plan_of_folder(folder).spec.dataset)
    split = source.split("train", "dataset.split")
    records = [record.numpy() for shard in split.shards for record in split.read(shard.path, shard.skip, shard.take)]
    assert len(records) == 13
    assert [record for record in records if b"bomb_of.png" in record] == []
    assert len({record[8:] for record in records}) == 13


def test_images_of_a_part_and_of_predictions_are_refused_before_they_are_read(folder: Path) -> None:
    plan = plan_of_folder(folder)
    split = open_source(plan.spec.dataset).split("train", "dataset.split")
    paths = [str(folder / "disc" / "bomb_of.png"), str(next((folder / "disc").glob("*.jpg")))]
    files = ImageFiles(plan.spec.dataset, paths, {}).whole
    parts = [split.part(number, number + 1) for number in range(split.num_examples)]
    for of in (files, *parts):
        records = [record.numpy() for shard in of.shards for record in of.read(shard.path, shard.skip, shard.take)]
        assert not any(b"bomb_of.png" in record for record in records)
    assert files.refused(0) == (REASON, "a smaller image")
    assert files.refused(1) is None
    assert sum(part.refused(0) is not None for part in parts) == 1


def test_a_file_that_cannot_be_read_is_left_to_the_reading(folder: Path) -> None:
    files = ImageFiles(plan_of_folder(folder).spec.dataset, [str(folder / "disc")], {}).whole
    assert files.refused(0) is None
    assert [*files.numbered(np.arange(1))] == [b"00000000" + bytes(folder / "disc")]


def test_the_hash_of_a_file_does_not_depend_on_its_pixels(folder: Path) -> None:
    found = {path.name: sha256_and_refusal(str(path)) for path in folder.rglob("*.*")}
    assert {name: of[:8] for name, of in found.items()} == {
        path.name: sha256_of_all(str(path)) for path in folder.rglob("*.*")
    }
    assert {name: of[8:] for name, of in found.items() if of[8:]} == {
        "bomb_of.png": f"{REASON}\0a smaller image".encode()
    }


def test_the_doctor_says_the_same() -> None:
    with pillow_as_header_reader():
        assert look_at(bomb_of()).reason == REASON


@pytest.mark.parametrize(("size", "is_read"), [(100_000, False), (400_000, True)])
def test_the_header_of_a_jpeg_is_read_where_that_many_pixels_fit(size: int, is_read: bool, tmp_path: Path) -> None:  # noqa: FBT001
    data = bytearray(jpeg(0))
    place = data.index(b"\xff\xc0") + 5  # of the height, in the start of the frame
    data[place : place + 4] = struct.pack(">HH", 11_000, 16_384)
    path = tmp_path / "a.jpg"
    path.write_bytes(data + bytes(size - len(data)))
    assert sha256_and_refusal(str(path))[8:] == (LARGE_PIXELS if is_read else b"")


def test_of_a_gif_the_first_frame_is_read_and_of_an_animated_webp_none(tmp_path: Path, says: Says) -> None:
    photos = write_photos(tmp_path / "photos")
    (photos / "disc" / "a.gif").write_bytes(of_format("GIF", 3))
    (photos / "disc" / "b.jpg").write_bytes(of_format("WEBP", 3))
    (photos / "disc" / "c.avif").write_bytes(b"")
    (photos / "disc" / "d.txt").write_bytes(b"")
    (photos / "disc" / "e.webp").write_bytes(of_format("WEBP"))
    (photos / "disc" / "f.JFIF").write_bytes(jpeg(99))
    source = open_source(plan_of_folder(photos).spec.dataset)
    says(list(source.notes))
    split = source.split("train", "dataset.split")
    assert split.num_examples == 16
    (corrupt,) = corrupt_records(split)
    says(str(corrupt.error()).splitlines()[0])


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
def test_what_is_not_is_refused_by_its_name_everywhere(name: str, tmp_path: Path, says: Says) -> None:
    data, reason = REFUSED[name]
    is_damaged = name == "page" or name.startswith("JPEG")
    expected = "a complete image file" if is_damaged else CONVERT
    assert problem(data) == Problem(reason, expected)
    assert look_at(data).reason == reason
    frames = ("GIF", "WebP")  # which TFDS reads in no form
    assert name.startswith(frames) or refused_by_prepare(data) == Problem(reason, expected)
    photos = write_photos(tmp_path / "photos")
    (photos / "disc" / "odd.jpg").write_bytes(data)
    source = open_source(plan_of_folder(photos).spec.dataset)
    (corrupt,) = corrupt_records(source.split("train", "dataset.split"))
    says(str(corrupt.error()), PHOTOS=photos)


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
def test_of_records_the_same_images_are_skipped_with_the_same_reasons(library: str, tmp_path: Path, says: Says) -> None:
    images = [*SAME.values(), *(data for data, _ in ODD.values())]
    write_records(tmp_path / "a.tfrecord", [{"image": data, "label": 0} for data in images])
    words = ("dataset.split=train", "load.batch_size=1", "load.drop_remainder=false", "dataset.on_corrupt=skip")
    plan = of_records(tmp_path, *words, f"transform.decode.library={library}")
    context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == len(SAME)
    assert context.losses.records is not None
    assert [found.reason for found in context.losses.records] == [reason for _, reason in ODD.values()]
    says(str(context.losses.records[0].error()))


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
    summary = complete_here(tmp_path / "run", [*words, *more, "load.batch_size=1", "trainer.epochs=1"])
    assert summary["skipped"]["train"] == len(wanted)
    assert summary["epochs"][0]["examples"] == part.num_examples - len(wanted)


REMEDY = "check the file's permissions and its storage"
SHARD = "a shard of tiny_pictures/1.2.0"


def to_a_folder(shard: Path) -> None:
    shard.unlink()
    shard.mkdir()


def to_a_pipe(shard: Path) -> None:
    shard.unlink()
    os.mkfifo(shard)


def to_what_can_not_be_read(shard: Path) -> None:
    """Reading its first byte is an I/O error."""
    shard.unlink()
    shard.symlink_to("/proc/self/mem")


def to_a_dead_link(shard: Path) -> None:
    shard.unlink()
    shard.symlink_to("nowhere")


def told(shard: Path, found: str) -> str:
    if found == "no such file":
        remedy = f"remove {shard.parent} and run again, so that the dataset is prepared again"
        return f"{shard}: found {found}; expected {SHARD}\n    -> {remedy}"
    return f"{shard}: found {found}; expected {SHARD} that can be read\n    -> {REMEDY}"


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (to_a_folder, "not a regular file"),
        (to_a_pipe, "not a regular file"),
        (to_a_dead_link, "no such file"),
        (to_what_can_not_be_read, "Input/output error"),
    ],
)
def test_what_can_not_be_read_is_named_at_the_start(
    damage: Callable[[Path], None], found: str, on_corrupt: str, tiny: Path, tmp_path: Path
) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", damage)
    words = emulated(tmp_path / "data", f"dataset.on_corrupt={on_corrupt}")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    assert summary["error"] == told(shard, found)
    assert "epochs" not in summary or not summary["epochs"]


READERS = {
    "sequential": ("extract=sequential",),
    "interleave, serial": ("extract.num_parallel_calls=null",),
    "interleave, one call": ("extract.num_parallel_calls=1",),
    "interleave": (),
    "tfds": ("extract=tfds",),
}


def error_of(data_dir: Path, folder: Path, damage: Callable[[], object], *overrides: str) -> str:
    """With which a run ends whose files are damaged when it has found them all, and has read nothing."""
    words = emulated(data_dir, *overrides)
    plan = resolve(Request(overrides=words), STAGES).plan
    Record.create(folder, composed(*words), words)
    work = prepared(plan, Record(folder), opened(plan))
    damage()
    return raised(WorldError, read, work)


def read(work: Work) -> None:
    with at_work(work):
        for of in work.inputs.values():
            for _ in of.pipeline.dataset:
                pass


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_goes_while_it_is_needed_is_named(reader: str, on_corrupt: str, tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = (f"dataset.on_corrupt={on_corrupt}", "cache=none", *READERS[reader])
    assert error_of(tmp_path / "data", tmp_path / "run", shard.unlink, *words) == told(shard, "no such file")


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_an_error_of_the_storage_is_named_in_every_pipeline(
    split: str, on_corrupt: str, tiny: Path, tmp_path: Path
) -> None:
    pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    shard = sorted((tmp_path / "data").rglob("*.tfrecord-*"))[0 if split == "train" else -1]
    words = (f"dataset.on_corrupt={on_corrupt}", "dataset.split='train[:24]'", "dataset.eval_split='train[-12:]'")
    found = error_of(tmp_path / "data", tmp_path / "run", lambda: to_what_can_not_be_read(shard), *words)
    assert found == told(shard, "Input/output error")


def test_a_cache_on_disk_is_not_left_without_what_could_not_be_read(tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    caches = tmp_path / "caches"
    words = ("dataset.on_corrupt=skip", "cache=disk", f"cache.dir={caches}", "dataset.eval_split=null")
    assert error_of(tmp_path / "data", tmp_path / "run", shard.unlink, *words) == told(shard, "no such file")
    assert list(caches.glob("*/cache.json")) == []


@pytest.mark.parametrize(("kept", "lost"), [(38, None), (37, 1), (30, None)])
def test_nothing_but_broken_records_is_missing(
    kept: int, lost: int | None, tiny: Path, tmp_path: Path, says: Says
) -> None:
    damage = pictures.with_feature("label", None) if lost else lambda _: None
    pictures.damaged(tiny, tmp_path / "data", damage)
    source = open_source(resolve(Request(overrides=emulated(tmp_path / "data")), STAGES).plan.spec.dataset)
    split, losses = source.split("train[:80%]", "dataset.split"), Losses()
    if kept == 30:
        with pytest.raises(WorldError) as caught:
            losses.explain(split, kept)
        says(str(caught.value))
        assert losses.failure is caught.value
    else:
        losses.explain(split, kept)
        assert losses.failure is None
        assert len(losses.records or ()) == (lost or 0)


def test_a_forecast_ends_where_a_file_can_not_be_opened(tiny: Path, tmp_path: Path) -> None:
    pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = emulated(tmp_path / "data", "extract=sequential", "cache=memory", "cache.at=decoded")
    plan = resolve(Request(overrides=words), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    pipelines = {name: Pipeline(plan.pipelines[name], context) for name, context in contexts.items()}
    whole = fits(plan, pipelines, folder_of(None))
    min((tmp_path / "data").rglob("*.tfrecord-*")).unlink()
    assert fits(plan, pipelines, folder_of(None)) < whole


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["sequential", "interleave, serial", "tfds"])
def test_a_program_ends_where_a_file_can_not_be_opened(reader: str, tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = ("dataset.on_corrupt=skip", "cache=none", *READERS[reader])
    _, module = of_tiny(tmp_path / "data", tmp_path, *words)
    dataset = module.train_dataset()
    shard.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=f"{shard}; No such file or directory"):
        for _ in dataset:
            pass
