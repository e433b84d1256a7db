"""Images of a folder that a run does not read as they are: those of too many pixels, and those of frames."""

import struct
import zlib
from pathlib import Path

import pytest

from etlrun.datasets.examine.scan import look_at
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.content import sha256_of_all
from etlrun.sources.corrupt import corrupt_records, pillow_as_header_reader
from etlrun.sources.folder import sha256_and_refusal
from etlrun.sources.listing import SUFFIXES
from etlrun.trained.predict import ImageFiles
from tests.configs import plan_of
from tests.own import write_photos
from tests.pictures import jpeg
from tests.test_prepare_broken import of_format

SIDES = 16_000, 12_000
LARGE = b"an image of 16,384 x 11,000 pixels, more than 178,956,970 in all\0a smaller image"
REASON = "an image of 16,000 x 12,000 pixels, more than 178,956,970 in all"


def bomb(width: int = SIDES[0], height: int = SIDES[1]) -> bytes:
    """A PNG of black pixels of one bit."""
    rows = zlib.compress(bytes((width // 8 + 1) * height), 9)
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0), b"IDAT" + rows, b"IEND")
    framed = (struct.pack(">I", len(of) - 4) + of + struct.pack(">I", zlib.crc32(of)) for of in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve photos and a bomb of 24 kB."""
    photos = write_photos(tmp_path_factory.mktemp("of") / "photos")
    (photos / "disc" / "bomb.png").write_bytes(bomb())
    return photos


def plan_of_folder(folder: Path, *words: str) -> Plan:
    small = ("transform.resize.size=[8,8]", "load.batch_size=1", "model=emulated", "cache=none", "dataset.split=train")
    own = ("dataset=folder", f"dataset.dir='{folder}'", "dataset.eval_split=null", *small)
    return plan_of(*own, *words)


@pytest.mark.parametrize("words", [(), ("transform.decode.library=tensorflow",)])
def test_a_run_skips_and_names_an_image_of_too_many_pixels(words: tuple[str, ...], folder: Path) -> None:
    plan = plan_of_folder(folder, "dataset.on_corrupt=skip", *words)
    source = open_source(plan.spec.dataset)
    context = contexts_of(plan, source)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == 12
    (corrupt,) = corrupt_records(source, context.split)
    assert context.losses.records == [corrupt]
    assert str(corrupt.error()) == (
        f"{folder}/disc/bomb.png: found {REASON}; expected a smaller image\n"
        "    -> restore or remove the file, or set dataset.on_corrupt=skip to skip and count such records"
    )


def test_no_record_of_a_run_names_the_file_of_such_an_image(folder: Path) -> None:
    source = open_source(plan_of_folder(folder).spec.dataset)
    split = source.split("train", "dataset.split")
    records = [record.numpy() for shard in split.shards for record in split.read(shard.path, shard.skip, shard.take)]
    assert len(records) == 13
    assert [record for record in records if b"bomb.png" in record] == []
    assert len({record[8:] for record in records}) == 13


def test_images_of_a_part_and_of_predictions_are_refused_before_they_are_read(folder: Path) -> None:
    plan = plan_of_folder(folder)
    split = open_source(plan.spec.dataset).split("train", "dataset.split")
    paths = [str(folder / "disc" / "bomb.png"), str(next((folder / "disc").glob("*.jpg")))]
    files = ImageFiles(plan.spec.dataset).files(paths, {})
    parts = [split.part(number, number + 1) for number in range(split.num_examples)]
    for of in (files, *parts):
        records = [record.numpy() for shard in of.shards for record in of.read(shard.path, shard.skip, shard.take)]
        assert not any(b"bomb.png" in record for record in records)
    assert files.refused(0) == (REASON, "a smaller image")
    assert files.refused(1) is None
    assert sum(part.refused(0) is not None for part in parts) == 1


def test_a_file_that_cannot_be_read_is_left_to_the_reading(folder: Path) -> None:
    files = ImageFiles(plan_of_folder(folder).spec.dataset).files([str(folder / "disc")], {})
    assert files.refused(0) is None
    assert files.images.records.tolist() == [b"00000000" + bytes(folder / "disc")]


def test_the_hash_of_a_file_does_not_depend_on_its_pixels(folder: Path) -> None:
    found = {path.name: sha256_and_refusal(str(path)) for path in folder.rglob("*.*")}
    assert {name: of[:8] for name, of in found.items()} == {
        path.name: sha256_of_all(str(path)) for path in folder.rglob("*.*")
    }
    assert {name: of[8:] for name, of in found.items() if of[8:]} == {"bomb.png": f"{REASON}\0a smaller image".encode()}


def test_the_doctor_says_the_same() -> None:
    with pillow_as_header_reader():
        assert look_at(bomb()).reason == REASON


@pytest.mark.parametrize(("size", "is_read"), [(100_000, False), (400_000, True)])
def test_the_header_of_a_jpeg_is_read_where_that_many_pixels_fit(size: int, is_read: bool, tmp_path: Path) -> None:  # noqa: FBT001
    data = bytearray(jpeg(0))
    place = data.index(b"\xff\xc0") + 5  # of the height, in the start of the frame
    data[place : place + 4] = struct.pack(">HH", 11_000, 16_384)
    path = tmp_path / "a.jpg"
    path.write_bytes(data + bytes(size - len(data)))
    assert sha256_and_refusal(str(path))[8:] == (LARGE if is_read else b"")


def test_of_a_gif_the_first_frame_is_read_and_of_an_animated_webp_none(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    (photos / "disc" / "a.gif").write_bytes(of_format("GIF", 3))
    (photos / "disc" / "b.jpg").write_bytes(of_format("WEBP", 3))
    (photos / "disc" / "c.avif").write_bytes(b"")
    (photos / "disc" / "d.txt").write_bytes(b"")
    (photos / "disc" / "e.webp").write_bytes(of_format("WEBP"))
    (photos / "disc" / "f.JFIF").write_bytes(jpeg(99))
    source = open_source(plan_of_folder(photos).spec.dataset)
    command = f"Convert it: python -m etlrun prepare {photos} --name NAME --convert"
    assert source.notes == (
        f"1 image of a format that TensorFlow doesn't decode is left out: disc/c.avif. {command}",
        f"1 file of the folder has no suffix of an image ({', '.join(SUFFIXES)}) and is left out: disc/d.txt.",
        "Of GIFs the first frame is read: disc/a.gif.",
    )
    split = source.split("train", "dataset.split")
    assert split.num_examples == 16
    (corrupt,) = corrupt_records(source, split)
    assert str(corrupt.error()).splitlines()[0] == (
        f"{photos}/disc/b.jpg: found an animated WebP, of which TensorFlow decodes no frame; expected an image: "
        "convert it, as to PNG"
    )
