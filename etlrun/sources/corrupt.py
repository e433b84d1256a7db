"""Whether a run can use an image: the one answer for reading, skipping, `prepare` and `doctor`; and corrupt records.

A run decodes what TensorFlow does, with either library of `transform.decode`. It also refuses images that TensorFlow
would decode to other pixels than a viewer shows, or to more of them than memory may hold.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from PIL import Image, UnidentifiedImageError

from etlrun.remote.copies import named_by_url
from etlrun.sources.base import Problem, Source, Split
from etlrun.sources.content import Shard
from etlrun.stages.dataset import Dataset
from etlrun.stages.image import Decode
from etlrun.stages.lazy import np, npt, simplejpeg, tf
from etlrun.stages.load import TO_SKIP
from etlrun.system.errors import EtlrunError, WorldError, headline, printable
from etlrun.system.values import frozen

MOST_PIXELS = 178_956_970
"""Pixels of an image, from which on Pillow takes it for a decompression bomb."""
JPEG = b"\xff\xd8"
"""First bytes of a JPEG."""
_LAST = b"\xff\xd9"
"""Last bytes of a JPEG."""
SMALL_JPEG_BYTES = MOST_PIXELS // (8 * 64)
"""Bytes of a JPEG that hold no more pixels: a block of 64 has a bit at least."""
_HEAD, _14_BITS = 30, 0x3FFF
_SIDES = (b"\x89PNG", 16, ">II"), (b"GIF8", 6, "<HH"), (b"BM", 18, "<ii")
"""First bytes of images, and where their width and height are."""
_OS2 = struct.pack("<I", 12)
"""Length of the header of a BMP of OS/2, which TensorFlow doesn't decode."""
_MARKER, _SCAN, _OF_FRAMES = 0xFF, b"\xda", {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Of JPEGs: the first byte of each marker, and the second ones of a scan and of frames."""


def too_large(width: int, height: int) -> str:
    """Return that an image has too many pixels; empty if it hasn't."""
    is_large = width * height > MOST_PIXELS
    return f"an image of {width:,} x {height:,} pixels, more than {MOST_PIXELS:,} in all" if is_large else ""


def size_of(file: IO[bytes]) -> tuple[int, int] | None:
    """Return the width and height in the header of an image; None if TensorFlow doesn't decode it, or it is damaged."""
    file.seek(0)
    head = file.read(_HEAD)
    with suppress(struct.error):  # decoding reports it
        if head.startswith(JPEG):
            return _size_of_jpeg(file)
        for start, place, layout in _SIDES if head[14:18] != _OS2 or not head.startswith(b"BM") else ():
            if head.startswith(start):
                width, height = struct.unpack_from(layout, head, place)
                return abs(width), abs(height)
        if head[12:16] == b"VP8X":
            width, height = struct.unpack("<II", b"%b\0%b\0" % (head[24:27], head[27:30]))
            return width + 1, height + 1
        if head[12:16] == b"VP8L":
            (bits,) = struct.unpack_from("<I", head, 21)
            return (bits & _14_BITS) + 1, (bits >> 14 & _14_BITS) + 1
        if head[12:16] == b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & _14_BITS, height & _14_BITS
    return None


def _size_of_jpeg(file: IO[bytes]) -> tuple[int, int] | None:
    """Return the width and height in the first frame of a JPEG; raise `struct.error` if it is cut off."""
    place, head = len(JPEG), b""
    while head[1:2] != _SCAN:
        file.seek(place)
        head = file.read(9)
        marker, length, height, width = struct.unpack(">xBHxHH", head)
        if head[0] != _MARKER:
            return None
        if marker in _OF_FRAMES:
            return width, height
        place += 1 if marker == _MARKER else 2 + length  # a fill byte
    return None


@contextmanager
def pillow_as_header_reader() -> Iterator[None]:
    """Have Pillow return the size of any image, however large, and not warn of what it alone would decode."""
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


CONVERT = "an image: convert it, as to PNG"
"""What is expected in place of an image that another program can read."""
_COMPLETE, _SMALLER = "a complete image file", "a smaller image"
_LARGE_FRAME = f"a GIF whose first frame has more than {MOST_PIXELS:,} pixels"
_GREYS = bytes(value for grey in range(256) for value in (grey, grey, grey))
_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_BMP_BYTES = 14 + 124 + 4 * 256
"""Headers and palette of a BMP, at most."""
_HEADER, _BITS, _MASKED = 40, (8, 24, 32), (3, 6)
"""Of BMPs: bytes of Windows' header at least, bits of a pixel that TensorFlow reads, and compressions by masks."""
_FOREIGN = {b"heic": "a HEIC", b"heix": "a HEIC", b"mif1": "a HEIC", b"avif": "an AVIF", b"avis": "an AVIF"}
_STARTS = {b"II*\0": "a TIFF", b"MM\0*": "a TIFF", b"\0\0\x01\0": "an icon"}
_ODD_BMP = "a BMP with a palette, masks or compression, of 1, 4 or 16 bits a pixel, or cut off"
_DAMAGED = (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, struct.error)
"""What Pillow raises for damaged files."""


def problem(data: bytes) -> Problem | None:
    """Return why an encoded image is not to be used; None if nothing is wrong with it."""
    found = refused(io.BytesIO(data), len(data)) or decoded(data)
    return found if isinstance(found, Problem) else None


def decoded(data: bytes) -> npt.NDArray[np.uint8] | Problem:
    """Return the pixels of an image, uint8 (height, width, 3), as a run decodes it; or why it can't be decoded."""
    if data.startswith(b"<"):
        return Problem("a web page or other text", _COMPLETE)
    if name := _name(data):
        return Problem(name, CONVERT)
    if _is_cut_off(data):
        return Problem(f"{_UNDECODED}: it is cut off", _COMPLETE)
    try:
        pixels: npt.NDArray[np.uint8] = Decode.op(tf.constant(data)).numpy()
    except tf.errors.OpError as error:
        return Problem(f"{_UNDECODED}: {headline(error)}", _COMPLETE)
    return pixels


_UNDECODED = "an image that can't be decoded"


def _is_cut_off(data: bytes) -> bool:
    """Return whether Pillow finds a JPEG cut off, which TensorFlow then refuses, too: it needs not be imported."""
    if data.endswith(_LAST) or too_large(*(size_of(io.BytesIO(data)) or (0, 0))):
        return False
    try:
        Image.open(io.BytesIO(data), formats=("JPEG",)).load()
    except _DAMAGED as error:
        return "truncated" in str(error).lower()
    return False


def warning_of(data: bytes) -> str:
    """Return what libjpeg warns of when it decodes a JPEG, at an eighth of its size; empty if nothing."""
    if not data.startswith(JPEG):
        return ""
    try:
        if simplejpeg.decode_jpeg_header(data)[2] in ("YCbCr", "Gray"):
            simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return ""


def without_refused(data: bytes) -> bytes:
    """Return an encoded image; in place of one that is refused no bytes, which no library decodes."""
    return b"" if refused(io.BytesIO(data), len(data)) else data


def refused(file: IO[bytes], size_bytes: int) -> Problem | None:
    """Return why an image file is not to be decoded, of what TensorFlow would decode otherwise than a viewer.

    Of most files a header is read, of GIFs the first frame; of most JPEGs none.
    """
    file.seek(0)
    head = file.read(_BMP_BYTES)
    if head.startswith(JPEG) and size_bytes <= SMALL_JPEG_BYTES:
        return None
    if (size := size_of(file)) and (large := too_large(*size)):
        return Problem(large, _SMALLER)
    try:
        odd = _of_gif(file) if head.startswith(b"GIF8") else _of_header(head, size_bytes)
    except _DAMAGED:  # decoding reports it
        return None
    return Problem(odd, (_SMALLER if odd == _LARGE_FRAME else CONVERT)) if odd else None


def _of_header(head: bytes, size_bytes: int) -> str:
    if head.startswith(b"BM"):
        return _of_bmp(head, size_bytes)
    kind, flags = head[12:16], head[20] if head.startswith(b"RIFF") else 0
    if kind == b"VP8X" and flags & 0x02:
        return "an animated WebP, which TensorFlow doesn't decode"
    has_alpha = flags & 0x10 if kind == b"VP8X" else kind == b"VP8L" and head[24] & 0x10
    return "a WebP with transparency, which TensorFlow doesn't decode" if has_alpha else ""


def _of_bmp(head: bytes, size_bytes: int) -> str:
    """Return what is odd about a BMP, whose palettes and masks TensorFlow ignores."""
    start, length = struct.unpack_from("<II", head, 10)
    if length >= _HEADER:
        width, height, _, bits, packing = struct.unpack_from("<iiHHI", head, 18)
        palette = head[14 + length : start]
        colours = b"".join(palette[place : place + 3] for place in range(0, len(palette) - 3, 4))
        has_colours = bits == min(_BITS) and colours != _GREYS[: len(colours)]
        is_packed = packing and (packing not in _MASKED or head[54:66] != _MASKS)
        needed = start + (width * bits + 31) // 32 * 4 * abs(height)
        if bits in _BITS and not has_colours and not is_packed and size_bytes == needed:
            return ""
    return _ODD_BMP


def _of_gif(file: IO[bytes]) -> str:
    """Return what is odd about the first frame of a GIF, of which TensorFlow drops the page and what is transparent."""
    file.seek(0)
    try:
        image = Image.open(file, formats=("GIF",))
    except Image.DecompressionBombError:
        return _LARGE_FRAME
    if too_large(*image.size):
        return _LARGE_FRAME
    if image.tile and image.tile[0][1] != (0, 0, *image.size):
        return "a GIF whose first frame is smaller than its canvas, which TensorFlow ignores"
    if "transparency" not in image.info:
        return ""
    pixels = np.asarray(image.convert("RGBA"))
    is_changed = pixels[pixels[..., 3] == 0, :3].any()
    return "a GIF with transparent pixels, which TensorFlow decodes to black" if is_changed else ""


def _name(data: bytes) -> str:
    """Return what an image is that TensorFlow doesn't decode; empty if it may be damaged."""
    if data[4:8] == b"ftyp":
        return f"{_FOREIGN.get(data[8:12], 'a HEIC or AVIF')} image, which TensorFlow doesn't decode"
    found = next((name for start, name in _STARTS.items() if data.startswith(start)), "")
    return found and f"{found}, which TensorFlow doesn't decode"


@frozen
class CorruptRecord:
    """A record that can't be used.

    Attributes:
        where: Path of its file, and its number there if the file has several.
        reason: Description of the fault.
        expected: What would be valid.
        remedy: What to do to keep it.
        lost: Number of records that can't be read because of it, including itself.
    """

    where: str
    reason: str
    expected: str
    remedy: str
    lost: int = 1

    def error(self, also: str = "", finds_all: str = "") -> WorldError:
        """Return the error that ends a run; `also` is to be set to skip records, and `finds_all` ends the remedy."""
        also = also and f" and {also}"
        skip = f"set dataset.on_corrupt=skip{also} to skip and count such records"
        return WorldError(self.where, self.reason, self.expected, f"{self.remedy}, or {skip}{finds_all}", SKIPPING)


SKIPPING = (("dataset.on_corrupt=skip",),)
"""Overrides that leave out what is corrupt."""


@dataclass
class Losses:
    """Examples that passes lose to corrupt records. All passes lose the same: any other missing example is an error.

    Attributes:
        records: The corrupt records; None until a pass has missing examples.
        failure: Error of a pass that has lost more than these, or of a shard that can't be fetched; None without one.
    """

    records: list[CorruptRecord] | None = None
    failure: EtlrunError | None = None

    def explain(self, split: Split, kept: int) -> None:
        """Check a pass that ended with `kept` examples; raise `EtlrunError` if more than corrupt ones are missing."""
        if self.failure is not None:
            raise self.failure
        if kept + self._lost == split.num_examples:
            return
        try:
            self.records = list(corrupt_records(split))
            if kept + self._lost != split.num_examples:
                whole, lost = split.num_examples, self._lost
                self.failure = WorldError(
                    Dataset.key("on_corrupt"),
                    f"{kept} examples in a pass over '{split.name}', which has {whole}, {lost} of them corrupt",
                    f"{whole - lost}: only corrupt records may be missing",
                    "check the storage for errors; dataset.on_corrupt=raise reports examples that a step can't process",
                )
                raise self.failure
        except WorldError as error:
            self.failure = error
            raise

    @property
    def _lost(self) -> int:
        return sum(record.lost for record in self.records or ())


def reason_of(error: Exception, path: str) -> str:
    """Return the system's reason why TensorFlow could not open or read that file; empty for any other error."""
    found = re.search(re.escape(path) + r"; ([^\[\n]+)", str(error))
    return found[1].strip() if found else ""


@named_by_url()
def raise_cause(error: Exception, read: Sequence[tuple[Split, Losses]], also: str = "") -> None:
    """Raise the `WorldError` of an unreadable file or a corrupt record; return if `error` has another cause.

    `read` are the splits that were being read, and `also` is what the run has to set to skip records.
    """
    for split, losses in read:
        if losses.failure is not None:
            raise losses.failure from error
        for path in (path for path in split.paths if path in str(error)):
            if reason := reason_of(error, path):
                raise split.source.unreadable(path, reason) from error
    if not isinstance(error, tf.errors.DataLossError | tf.errors.InvalidArgumentError):
        return
    for split in (of for of, _ in read if of.source.dataset.on_corrupt == "raise"):
        raise_first(error, split, also)


def raise_first(error: Exception | None, split: Split, also: str) -> None:
    """Raise the `WorldError` of the first corrupt record, if any, because of `error`; `also` is set to skip those."""
    finds_all = "; etlrun doctor finds all" if getattr(split.source.dataset, "features", None) is None else ""
    for corrupt in corrupt_records(split):
        raise corrupt.error(also, finds_all) from error


def corrupt_records(split: Split, shards: Sequence[Shard] | None = None) -> Iterator[CorruptRecord]:
    """Yield the corrupt records of `split`, or of some shards or parts of them. Reads and decodes all records.

    Raises:
        WorldError: A file can't be opened or read.
    """
    source = split.source
    parse = source.parser()
    for shard in split.shards if shards is None else shards:
        for number, record in records_of(split, shard):
            if isinstance(record, CorruptRecord):
                yield record
                break
            try:
                found = split.refused(number) or _problem(source, parse, record)
            except tf.errors.OpError as error:
                path, _ = split.place(shard, number)
                raise source.unreadable(path, reason_of(error, path) or headline(error)) from error
            if found is not None:
                place = split.where(shard, number)
                remedy = source.conversion(place) if found.expected == CONVERT else source.repair
                yield CorruptRecord(where=printable(place), **found._asdict(), remedy=remedy)


def records_of(split: Split, shard: Shard) -> Iterator[tuple[int, tf.Tensor | CorruptRecord]]:
    """Yield the records of a shard (string scalars) with their numbers; where it is damaged, that in place of the rest.

    Raises:
        WorldError: The file can't be opened or read.
    """
    records = iter(split.read(shard.path, shard.skip, shard.take))
    for number in range(shard.skip, shard.skip + shard.take):
        try:
            record = next(records)
        except (tf.errors.DataLossError, StopIteration) as error:
            reason = "the end of the file" if isinstance(error, StopIteration) else headline(error)
            damage = CorruptRecord(
                where=printable(split.where(shard, number)),
                reason=reason,
                expected=f"{shard.skip + shard.take} complete records: the shard is truncated or damaged",
                remedy=split.source.repair,
                lost=shard.skip + shard.take - number,
            )
            yield number, damage
            return
        except tf.errors.OpError as error:
            raise split.source.unreadable(shard.path, reason_of(error, shard.path) or headline(error)) from error
        yield number, record


def _problem(source: Source, parse: object, record: tf.Tensor) -> Problem | None:
    try:
        example = parse(record)  # type: ignore[operator]
    except tf.errors.InvalidArgumentError as error:
        return Problem(
            headline(error) if record.numpy() else "a record of zero bytes",
            f"an example with the features {' and '.join(source.dataset.keys.values())}",
        )
    flow = source.dataset.examples
    for name, count in source.limits.items():
        values = np.atleast_1d(example[name].numpy())
        for value in values[(values < 0) | (values >= count)]:
            return Problem(f"{name} {value}", f"{name} from 0 to {count - 1}")
    if flow.weight and not 0 <= (weight := float(example[flow.weight])) < np.inf:
        return Problem(f"{flow.weight} {weight:g}", "a weight of at least 0")
    for name in (name for name, feature in flow.features.items() if feature.format == "image"):
        if found := problem(example[name].numpy()):
            return found
    return None


def labels_of(split: Split, *, by_number: bool) -> npt.NDArray[np.int64]:
    """Return the class of each example in the order of the data, in [0, num_classes); images are not decoded.

    With `dataset.on_corrupt=skip`, records without such a class are left out. `by_number` says whether examples are
    read by number, which can't skip any.

    Raises:
        WorldError: A record is corrupt, or a file can't be read.
    """
    source, also = split.source, TO_SKIP if by_number else ""
    try:
        found = source.labels_of(split)
    except tf.errors.OpError as error:
        raise_first(error, split, also)
        raise
    kept = found[(found >= 0) & (found < (source.num_classes or 0))]
    if len(kept) < len(found) and source.dataset.on_corrupt != "skip":
        raise_first(None, split, also)
    return kept


def counts_of(split: Split, *, by_number: bool) -> dict[str, int]:
    """Return the number of examples of each class by its name, in the order of the classes; see `labels_of`."""
    source = split.source
    classes = source.num_classes or 0
    counts = np.bincount(labels_of(split, by_number=by_number), minlength=classes)
    return dict(zip(source.names_of_classes or (), map(int, counts), strict=True))
