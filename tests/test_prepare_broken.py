"""`etlrun data prepare`: images that can't be used."""

import io
import os
import struct
import zlib
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from etlrun.cli import main as cli
from etlrun.datasets.prepare import check
from etlrun.sources.listing import CONVERSION
from tests import encoded
from tests.golden import Says
from tests.own import examples, labelled, prepared, refused, write_photos
from tests.pictures import jpeg

IMAGE = "expected an image: JPEG, PNG or BMP"
OF_FRAMES = "a {}, whose first frame is not taken: TFDS decodes it to a stack of frames, even a single one"
UNDECODED = "an image that can't be decoded"
CONVERT = f"    -> {CONVERSION}"


def repaired(path: Path, other: Path) -> None:
    """The same file with the content of another, of the same size and time."""
    before = path.stat()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


def test_what_was_broken_is_checked_again_although_no_time_tells_that_it_was_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = (write_photos(tmp_path / state / "photos", 10) for state in ("whole", "broken"))
    image = Path("cross/7.jpg")
    (broken / image).write_bytes(bytes((broken / image).stat().st_size))
    lines = refused(capsys, broken, tmp_path / "data")
    assert lines[-2] == "  SOURCE: found 1 broken image of 10; expected images that can be decoded"
    repaired(broken / image, whole / image)
    folder = prepared(broken, tmp_path / "data", "--on-corrupt", "skip")
    assert {*examples(folder)} == labelled(whole)


def png_of(width: int, height: int, bits: int = 8, colours: int = 2, rows: bytes = b"") -> bytes:
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0), b"IDAT" + rows, b"IEND")
    framed = (struct.pack(">I", len(of) - 4) + of + struct.pack(">I", zlib.crc32(of)) for of in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def of_format(name: str, frames: int = 1) -> bytes:
    file, images = io.BytesIO(), [Image.new("RGB", (8, 8), (9 * number, 0, 0)) for number in range(frames)]
    images[0].save(file, name, **({"save_all": True, "append_images": images[1:]} if images[1:] else {}))
    return file.getvalue()


def break_images(source: Path) -> dict[str, str]:
    """Break images, each in its way; the reasons that are given, by name."""
    whole = jpeg(0)
    broken = {
        "cut.jpg": (
            whole[: len(whole) // 2],
            f"{UNDECODED}: it is cut off",
        ),
        "empty.jpg": (b"", "an empty file"),
        "frames.jpg": (of_format("GIF"), OF_FRAMES.format("GIF")),
        "huge.png": (png_of(20_000, 10_000), "an image of 20,000 x 10,000 pixels, more than 178,956,970 in all"),
        "text.jpg": (b"text", f"{UNDECODED}: Unknown image file format. One of JPEG, "),
    }
    for name, (data, _) in broken.items():
        (source / "disc" / name).write_bytes(data)
    (source / "disc" / "link.jpg").symlink_to("nowhere")
    os.mkfifo(source / "disc" / "pipe.jpg")
    no_files = {"link.jpg": "a link to a file that is gone: nowhere", "pipe.jpg": "not a regular file"}
    reasons = {name: reason for name, (_, reason) in broken.items()} | no_files
    return dict(sorted(reasons.items()))


def test_broken_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos", 4)
    reasons = break_images(source)
    first, *found, last, remedy = refused(capsys, source, tmp_path / "data")
    found.remove(CONVERT)
    assert first == "etlrun: 7 faults"
    for line, (name, reason) in zip(sorted(found), reasons.items(), strict=True):
        assert line.startswith(f"  SOURCE/disc/{name}: found {reason}")
        assert line.endswith(IMAGE)
    says([last, remedy])
    assert not (tmp_path / "data" / "own" / "1.0.0").exists()


@pytest.mark.parametrize(
    ("name", "kind", "frames"), [("GIF", "GIF", 1), ("GIF", "GIF", 3), ("WEBP", "WebP", 1), ("WEBP", "WebP", 3)]
)
def test_images_of_frames_are_refused(
    name: str, kind: str, frames: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "a.jpg").write_bytes(of_format(name, frames))
    found = refused(capsys, source, tmp_path / "data")
    assert found[1:3] == [f"  SOURCE/disc/a.jpg: found {OF_FRAMES.format(kind)}; {IMAGE}", CONVERT]
    feature = tfds.features.Image(shape=(None, None, 3))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        feature.decode_example(tf.constant(of_format(name, frames)))


def test_broken_images_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    sound = labelled(source)
    reasons = break_images(source)
    folder = prepared(source, tmp_path / "data", "--on-corrupt", "skip")
    assert {*examples(folder)} == sound
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("skipped   broken images: 7")
    for line, (name, reason) in zip(sorted(lines[place + 1 : place + 8]), reasons.items(), strict=True):
        assert line.startswith(f"          disc/{name}: {reason}")


def test_twenty_broken_images_are_listed_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    for number in range(100, 130):
        (source / "disc" / f"{number}.jpg").write_bytes(b"text")
    found = refused(capsys, source, tmp_path / "data")
    assert sum(".jpg: found" in line for line in found) == 20
    listed = "found 30 broken images of 34, of which 20 are listed"
    assert found[-2] == f"  SOURCE: {listed}; expected images that can be decoded"


def test_a_class_of_broken_images_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    for path in (source / "disc").iterdir():
        path.write_bytes(b"text")
    says(refused(capsys, source, tmp_path / "data", "--on-corrupt", "skip"))


def test_decoding_goes_by_content(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    pixels = tf.io.decode_jpeg(jpeg(8))
    encoded = tf.io.encode_png(pixels).numpy()
    (source / "disc" / "8.jpg").write_bytes(encoded)
    assert (encoded, 1) in examples(prepared(source, tmp_path / "data"))


def test_a_file_larger_than_a_record_may_be_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_photos(tmp_path / "photos", 4)
    largest = max(path.stat().st_size for path in source.rglob("*.jpg"))
    monkeypatch.setattr(check, "LARGEST_BYTES", largest)
    (source / "disc" / "8.jpg").write_bytes(jpeg(8) + bytes(largest))
    assert len(examples(prepared(source, tmp_path / "data", "--on-corrupt", "skip"))) == 4


def phone(folder: Path) -> Path:
    """Two JPEGs, and a class of files of other formats."""
    write_photos(folder, 4)
    for name, style in (("a.avif", "AVIF"), ("b.WEBP", "WEBP"), ("c.tif", "TIFF"), ("d.jfif", "JPEG")):
        path = folder / "phone" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded.saved(encoded.RGB, style))
    return folder


def test_a_class_of_other_formats_is_refused_with_the_command_that_converts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "my photos", 4)
    (source / "phone").mkdir()
    (source / "phone" / "a.heic").write_bytes(b"")
    says(refused(capsys, source, tmp_path / "data"))


def test_files_of_other_formats_are_named_with_the_command_that_converts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = phone(tmp_path / "photos")
    found = "2 files of formats that TensorFlow doesn't decode: phone/a.avif, phone/c.tif"
    note = f"note      Left out: {found}; {CONVERSION}."
    words = [
        "dataset=folder", f"dataset.dir={source}", "dataset.split=train", "dataset.eval_split=null", "model=emulated",
    ]  # fmt: skip
    for command in ("doctor", "show"):
        cli.main([command, *words])
        assert note in capsys.readouterr().out.splitlines()
    (source / "phone" / "b.WEBP").unlink()
    prepared(source, tmp_path / "data")
    assert note in capsys.readouterr().out.splitlines()
