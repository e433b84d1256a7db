"""`etlrun prepare --convert`: what phones and other programs write becomes upright JPEGs and PNGs."""

import io
import zipfile
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from etlrun.cli import main as cli
from etlrun.datasets.prepare.readers import converted
from etlrun.sources.corrupt import pillow_as_header_reader, problem
from tests import encoded
from tests.own import prepared, refused, write_photos

ORIENTATION = 274


def turned(style: str, orientation: int) -> bytes:
    """A photo that EXIF turns: red on the left of what is stored, blue on the right."""
    stored = Image.new("RGB", (64, 32), "red")
    stored.paste("blue", (32, 0, 64, 32))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded.saved(stored, style, exif=exif.tobytes())


def opened(data: bytes) -> tuple[str | None, Any]:
    image = Image.open(io.BytesIO(data))
    assert image.getexif().get(ORIENTATION, 1) == 1
    return image.format, np.asarray(image.convert("RGB")).astype(int)


def heic() -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra phone is not installed")
    pillow_heif.register_heif_opener()
    return turned("HEIF", 6)


@pytest.mark.parametrize("style", ["JPEG", "WEBP", "AVIF", "HEIF"])
def test_photos_are_turned_as_exif_says(style: str) -> None:
    style_of, pixels = opened(converted(heic() if style == "HEIF" else turned(style, 6)))
    assert style_of == "JPEG"
    assert pixels.shape == (64, 32, 3)
    np.testing.assert_allclose(pixels[:28].mean((0, 1)), (255, 0, 0), atol=4)
    np.testing.assert_allclose(pixels[-28:].mean((0, 1)), (0, 0, 255), atol=4)


@pytest.mark.parametrize("name", ["JPEG RGB", "PNG RGB", "PNG P", "PNG I;16"])
def test_upright_images_stay_as_they_are(name: str) -> None:
    assert converted(encoded.SAME[name]) == encoded.SAME[name]


@pytest.mark.parametrize(
    "name", ["BMP 1", "BMP P", "BMP of 4 bits", "GIF on a larger page", "WebP of two frames", "TIFF"]
)
def test_what_a_run_refuses_can_be_used(name: str) -> None:
    data = converted(encoded.REFUSED[name][0])
    shown = np.asarray(Image.open(io.BytesIO(encoded.REFUSED[name][0])).convert("RGB")).astype(int)
    style, pixels = opened(data)
    assert style == ("JPEG" if name.startswith("WebP") else "PNG")
    np.testing.assert_allclose(pixels, shown, atol=12 if style == "JPEG" else 0)
    with pillow_as_header_reader():
        assert problem(data) is None


@pytest.mark.parametrize("name", ["PNG RGBA", "WebP RGBA without loss", "GIF with clear pixels"])
def test_what_is_transparent_becomes_white(name: str) -> None:
    data = encoded.SAME[name] if name in encoded.SAME else encoded.REFUSED[name][0]
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    expected = np.asarray(Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB"))
    np.testing.assert_allclose(opened(converted(data))[1], expected, atol=12)


@pytest.mark.parametrize("data", [b"", b"text", encoded.REFUSED["AVIF"][0], encoded.REFUSED["BMP, cut"][0]])
def test_what_is_broken_stays_so(data: bytes) -> None:
    assert converted(data) == data


def phone(folder: Path) -> Path:
    """Two JPEGs, and a class of files of other formats."""
    write_photos(folder, 4)
    for name, style in (("a.avif", "AVIF"), ("b.WEBP", "WEBP"), ("c.tif", "TIFF"), ("d.jfif", "JPEG")):
        path = folder / "phone" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded.saved(encoded.RGB, style))
    return folder


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_files_of_other_formats_are_prepared(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = phone(tmp_path / "photos")
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            for path in sorted(source.rglob("*.*")):
                archive.write(path, path.relative_to(source))
        source = tmp_path / "photos.zip"
    prepared(source, tmp_path / "data", "--convert")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["train", "8", "1", "3"] in [row[:4] for row in rows]


def test_a_class_of_other_formats_is_refused_with_the_command_that_converts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "my photos", 4)
    (source / "phone").mkdir()
    (source / "phone" / "a.heic").write_bytes(b"")
    kinds = ".jpg, .jpeg, .jfif, .png, .bmp, .gif, .webp"
    assert refused(capsys, source, tmp_path / "data") == [
        "etlrun: 1 fault",
        f"  SOURCE/phone: found a class without images, but with 1 file of .heic; expected files with {kinds}",
        "    -> convert them: python -m etlrun prepare 'SOURCE' --name NAME --convert",
    ]


def test_without_the_extra_heic_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *of: None if name == "pillow_heif" else find(name, *of))
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "a.heic").write_bytes(b"")
    assert refused(capsys, source, tmp_path / "data", "--convert") == [
        "etlrun: 1 fault",
        "  --convert: found 1 file of .heic or .heif, and no package pillow-heif; expected the package that reads them",
        "    -> pip install 'etlrun[phone]'",
    ]


def test_files_of_other_formats_are_named_with_the_command_that_converts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = phone(tmp_path / "photos")
    note = (
        "note      2 images of formats that TensorFlow doesn't decode are left out: phone/a.avif, phone/c.tif. Convert "
        f"them: python -m etlrun prepare {source} --name NAME --convert"
    )
    words = [
        "dataset=folder",
        f"dataset.dir={source}",
        "dataset.split=train",
        "dataset.eval_split=null",
        "model=emulated",
    ]
    for command in ("doctor", "show"):
        cli.main([command, *words])
        assert note in capsys.readouterr().out.splitlines()
    (source / "phone" / "b.WEBP").unlink()
    prepared(source, tmp_path / "data")
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("ignored   images of other formats, which --convert takes: 2")
    assert lines[place + 1 : place + 3] == ["          phone/a.avif", "          phone/c.tif"]
