"""Readers of what is prepared: folders, lists, archives, which are unpacked beside the dataset, or TFRecords."""

from __future__ import annotations

import importlib.util
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from google.protobuf.message import DecodeError
from PIL import ExifTags, Image, ImageOps

from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.source import (
    LISTS,
    ImageEntry,
    ImageSource,
    classes_of,
    first,
    of_classes,
    of_folder,
    of_list,
)
from etlrun.sources.corrupt import too_large
from etlrun.sources.framing import DamagedError, foreign, meant, records
from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS, SUFFIXES, WHOLE
from etlrun.sources.shards import incomplete, matched, unmatched
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted, fault, one_line, unreadable_path
from etlrun.system.machine import free_disk_bytes, rounded

_OF_ARCHIVES = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Return whether a file begins like a zip or tar archive, compressed or not."""
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except (EOFError, zlib.error):  # of one that is cut within its first header
        return True


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive into an empty folder; return the folder of classes or splits in it, below single folders.

    Nothing is written outside of it, see `zipfile.ZipFile.extract` and `tarfile.data_filter`, nor if it does not fit.

    Raises:
        EtlrunError: The archive is damaged, encrypted or too large, or has paths, links or devices out of the folder.
    """
    try:
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path) as file:
            if isinstance(file, zipfile.ZipFile):
                members = file.infolist()
                _require_space(path, folder, sum(member.file_size for member in members))
                for member in members:
                    if member.flag_bits & 1:
                        raise zipfile.BadZipFile(f"an encrypted member, {member.filename}")
                    file.extract(member, folder)
            else:
                _unpack_tar(path, folder, file)
    except _OF_ARCHIVES as error:
        expected = "a complete zip or tar archive, whose members are files and folders within it"
        raise EtlrunError([fault(path, one_line(error), expected, "pack it again, or unpack it yourself")]) from error
    while True:
        names = [of for of in folder.iterdir() if not of.name.startswith(".")]
        inside = [of for of in names if of.name.lower() not in LEFT_BY_SYSTEMS]
        if len(inside) != 1 or inside[0].name.lower() in SPLITS or not any(of.is_dir() for of in inside[0].glob("*")):
            return folder
        folder = inside[0]


def _unpack_tar(path: Path, folder: Path, file: tarfile.TarFile) -> None:
    unpacked = 0
    for member in file:
        unpacked += member.size
        _require_space(path, folder, member.size, unpacked)
        file.extract(member, folder, filter="data")
    end = cast("IO[bytes]", file.fileobj)
    end.seek(file.offset)
    if end.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # what is damaged is an end for `tarfile`
        raise tarfile.ReadError(f"neither a member nor the end of the archive at byte {file.offset:,}")


def _require_space(path: Path, folder: Path, needed: int, unpacked: int = 0) -> None:
    """Raise `WorldError` unless there is space for these bytes, of `unpacked` ones in all."""
    if needed > free_disk_bytes(folder):
        found, expected = f"{rounded(max(needed, unpacked))} or more, unpacked", "less than the free disk space"
        raise WorldError(str(path), found, expected, "free disk space, or choose another --data-dir")


_TYPES = (("bytes_list",), ("bytes_list", "int64_list"))
"""What an image and a label may be."""
_LEFT_OUT = "write the file again, or add --on-corrupt skip to leave such records out"


class RecordImages(ImageSource):
    """Examples in TFRecord files, each with an image and its label."""

    def __init__(self, pattern: str, keys: tuple[str, str], *, skips_corrupt: bool = False) -> None:
        """Read all labels; raise `EtlrunError` with all faults of the files, and of records that are not skipped."""
        where, faults = Path(pattern), list[Fault]()
        self._image_key = keys[0]
        self._places: dict[str, tuple[str, int, int]] = {}
        paths = matched(pattern)
        faults += incomplete(pattern, paths)
        if not paths:
            remedy = unmatched(pattern) or "check the path"
            faults.append(fault(pattern, "no such file", "a pattern that matches TFRecord files", remedy))
        entries: list[ImageEntry] = []
        corrupt: list[Fault] = []
        lost: set[str] = set()
        for path in paths:
            try:
                unfit: list[tuple[Fault, str]] = []
                of_file = list(self._entries(path, keys, faults, unfit))
            except OSError as error:
                faults.append(unreadable_path(path, error, "a TFRecord file"))
                continue
            entries += of_file
            lost.update(label for _, label in unfit if label)
            corrupt += [of if not of_file else replace(of, remedy=_LEFT_OUT) for of, _ in unfit]
        if not (entries or faults or corrupt):
            found = f"no records in {counted(len(paths), 'file')}"
            faults.append(fault(pattern, found, "at least one record", "write the files again, or choose others"))
        if not (skips_corrupt and entries):
            of_files = {of.where.rpartition(", record ")[0]: of for of in reversed(corrupt)}
            faults += corrupt if entries else reversed(of_files.values())  # if no record can be used, all have the same
        classes = classes_of((*(entry.label for entry in entries), *lost))
        faults = first(faults, pattern, "faults") or list(of_classes(where, entries, classes))
        if faults:
            raise EtlrunError(faults)
        super().__init__(where, entries, classes, ())
        self.broken = {of.where: of.found for of in corrupt}

    def _entries(
        self, path: str, keys: tuple[str, str], faults: list[Fault], unfit: list[tuple[Fault, str]]
    ) -> Iterator[ImageEntry]:
        """Yield the examples of a file; note each other record as `unfit`, with its label if it has one."""
        for number, (place, record) in enumerate(_records(path, faults)):
            name, features = f"{path}, record {number}", None
            with suppress(DecodeError):
                features = tf.train.Example.FromString(record).features.feature if record else None
            if features is None:
                what = "no tf.train.Example" if record else "a record of zero bytes"
                unfit.append((fault(name, what, "serialised examples", "choose other TFRecords"), ""))
                continue
            wrong = [_wrong(features, key, kinds) for key, kinds in zip(keys, _TYPES, strict=True)]
            if any(wrong):
                is_image = keys[0] not in features
                remedy = meant(keys[0] if is_image else keys[1], features, is_image=is_image, shown="`{}`")
                expected = f"an image as bytes and a label among its features: {', '.join(sorted(features))}"
                of = fault(name, " and ".join(filter(None, wrong)), expected, remedy)
                unfit.append((of, "" if wrong[1] else _label(features[keys[1]])))
                continue
            self._places[name] = (path, place, len(record))
            label, size = _label(features[keys[1]]), len(features[keys[0]].bytes_list.value[0])
            yield ImageEntry(path=name, label=label, split=WHOLE, size=size)

    def read(self, entry: ImageEntry) -> bytes:
        path, place, size = self._places[entry.path]
        with Path(path).open("rb", buffering=0) as file:
            record = os.pread(file.fileno(), size, place)
        image: bytes = tf.train.Example.FromString(record).features.feature[self._image_key].bytes_list.value[0]
        return image

    def name_of(self, entry: ImageEntry) -> str:
        return entry.path


def _wrong(features: Any, key: str, kinds: Sequence[str]) -> str:
    """Return what is wrong with a feature that has to be one value of these kinds; empty if nothing is."""
    if key not in features:
        return f"no feature '{key}'"
    kind = features[key].WhichOneof("kind")
    count = len(getattr(features[key], kind).value) if kind else 0
    return "" if kind in kinds and count == 1 else f"'{key}' with {count} values in its {kind}"


def _label(feature: Any) -> str:
    (value,) = getattr(feature, feature.WhichOneof("kind")).value
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _records(path: str, faults: list[Fault]) -> Iterator[tuple[int, bytes]]:
    """Yield the place and the data of each record; a fault ends them."""
    if of := foreign(path):
        faults.append(of)
        return
    try:
        yield from records(path)
    except DamagedError as error:
        where, remedy = f"{path}, record {error.number}", "write the file again"
        faults.append(fault(where, "a damaged record", "complete records", remedy))


CONVERTED = (".heic", ".heif", ".avif", ".tif", ".tiff", ".jp2")
"""Suffixes of images that are taken, too, if images are converted."""
_HEIC = (".heic", ".heif")
_KEPT = ("JPEG", "MPO", "PNG")
"""Formats of images that are kept as they are, if they are upright."""
_LOSSY = ("JPEG", "MPO", "HEIF", "AVIF", "WEBP", "JPEG2000")
_QUALITY = 95
_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"hevc")
_DAMAGED = (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, Image.DecompressionBombError)
"""What Pillow raises for damaged files, or for what it doesn't read."""


def require_heic(names: Sequence[str]) -> None:
    """Raise `WorldError` if one of these files is a HEIC, and what reads them is not installed."""
    count = sum(name.lower().endswith(_HEIC) for name in names)
    if count and importlib.util.find_spec("pillow_heif") is None:
        raise WorldError(
            "--convert",
            f"{counted(count, 'file')} of {' or '.join(_HEIC)}, and no package pillow-heif",
            "the package that reads them",
            "pip install 'etlrun[phone]'",
        )


def converted(data: bytes) -> bytes:
    """Return an encoded image upright, as a JPEG or PNG, with white where it is transparent.

    Upright JPEGs and PNGs without transparency stay as they are, and what can't be read. Of several frames it is the
    first. Formats with loss become JPEGs of quality 95 without subsampling, others PNGs; grey of 16 bits stays so.
    """
    try:
        if data[4:8] == b"ftyp" and data[8:12] in _BRANDS and importlib.util.find_spec("pillow_heif") is not None:
            import pillow_heif  # of an extra

            pillow_heif.register_heif_opener()
        image = Image.open(io.BytesIO(data))
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        is_kept = image.format in _KEPT and orientation == 1 and not image.has_transparency_data
        if is_kept or too_large(*image.size):
            return data
        style = "JPEG" if image.format in _LOSSY else "PNG"
        file = io.BytesIO()
        options = {"quality": _QUALITY, "subsampling": 0} if style == "JPEG" else {}
        _flat(ImageOps.exif_transpose(image)).save(file, style, **options)
    except _DAMAGED:  # the check says what it is
        return data
    return file.getvalue()


def _flat(image: Image.Image) -> Image.Image:
    """Return an image of red, green and blue, or of 16 bits of grey, without transparency."""
    if image.mode.startswith("I;16"):
        return image
    if image.mode in {"I", "F"}:
        raise ValueError(image.mode)
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")


_KINDS = f"a folder of classes, a list ({' or '.join(LISTS)}), an archive (.zip, .tar, .tar.gz), or TFRecords"


def path_of(options: Options) -> Path:
    """Return the absolute path of the source."""
    return Path(options.source).expanduser().absolute()


def opened(options: Options) -> ImageSource | None:
    """Return the images of the source; None of an archive, which is to be unpacked.

    Raises:
        EtlrunError: All faults of the source.
    """
    path = path_of(options)
    if options.features is not None:
        return _converting(options, RecordImages(str(path), options.features, skips_corrupt=options.skips_corrupt))
    if path.is_dir():
        if options.url is None and options.family.resolve().is_relative_to(path.resolve()):
            found, remedy = f"{options.data_dir}, in the source", "choose another --data-dir"
            raise EtlrunError([fault("--data-dir", found, "a folder outside of it", remedy)])
        return in_folder(options, path)
    found, remedy = "a file of another kind", "add --features image=KEY,label=KEY if these are TFRecords"
    if not path.is_file():
        found = "neither a file nor a folder" if path.exists() else "no such file or folder"
        remedy = "add --features image=KEY,label=KEY for a pattern of TFRecords, or check the path"
    elif path.suffix.lower() in LISTS:
        return _converting(options, of_list(path))
    elif is_archive(path):
        return None
    raise EtlrunError([fault(path, found, _KINDS, remedy)])


def in_folder(options: Options, folder: Path) -> ImageSource:
    """Return the images in a folder of classes or splits; raise `EtlrunError` with all of its faults."""
    return _converting(options, of_folder(folder, (*SUFFIXES, *CONVERTED) if options.converts else SUFFIXES))


def _converting(options: Options, source: ImageSource) -> ImageSource:
    """Return a source that converts its images, if they are to be."""
    if options.converts:
        require_heic([entry.path for entry in source.entries])
        source.convert = converted
    return source
