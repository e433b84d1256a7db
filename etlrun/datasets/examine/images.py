"""Images of a dataset, each read once and looked at in threads: figures of each split, and findings of them."""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import itemgetter
from typing import Any, NamedTuple

import imagehash
import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from etlrun.datasets.examine.finding import NAMED, Diagnosis, Finding, apart, of_balance, of_equal
from etlrun.datasets.prepare.check import DIGEST, digest_of, identical, in_order
from etlrun.planning.plan import Plan
from etlrun.report.doc import Col, Part, Table
from etlrun.sources.base import Problem, Source, Split
from etlrun.sources.corrupt import CorruptRecord, decoded, pillow_as_header_reader, records_of, refused, warning_of
from etlrun.sources.folder import FilesSource, stored
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import tf
from etlrun.system.errors import WorldError, counted, headline
from etlrun.system.terminal import Begin
from etlrun.system.values import Block

_DRAFT = 64
"""Side in pixels above which a JPEG is decoded at a half, a quarter or an eighth: its hash needs 32."""
_HASHED = 32
_FLAT = 8
"""Least difference of the brightest and the darkest pixel of an image that has a perceptual hash."""
_END = b"\xff\xd9"
"""Last bytes of a JPEG. TensorFlow refuses one without them; Pillow does not."""
_LOSSLESS = b"\xff\xc3"
"""What a JPEG has that may be without loss, which Pillow decodes and TensorFlow does not."""
_DEPTH_AT = 24
"""Place of the bit depth in a PNG."""
_COLOURS = {"1": "grey", "L": "grey", "LA": "grey alpha", "P": "palette", "PA": "palette", "RGBA": "RGBA"}
_ORIENTATIONS = range(1, 9)
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, OverflowError)
"""What Pillow raises for damaged files."""


class Look(NamedTuple):
    """What is known of an image.

    Attributes:
        digest: See `digest_of`.
        hash: Perceptual hash of 64 bits; 0 if there is none.
        is_flat: Whether it is of one colour, so that it has no perceptual hash.
        width: In pixels; 0 if it is unknown. `height` likewise.
        size_bytes: Size of the encoded image.
        format: Such as `JPEG`.
        colours: Such as `RGB`, `grey` or `16 bit`.
        orientation: EXIF's, from 1 to 8: 1 is upright, also if there is none.
        warning: What libjpeg warns of: data that is missing or damaged; empty if it doesn't.
        reason: Why it can't be decoded; empty if it can.
    """

    digest: bytes = b""
    hash: int = 0
    is_flat: bool = False
    width: int = 0
    height: int = 0
    size_bytes: int = 0
    format: str = ""
    colours: str = ""
    orientation: int = 1
    warning: str = ""
    reason: str = ""


def look_at(data: bytes) -> Look:
    """Return what is known of an encoded image.

    Pillow decodes complete JPEGs, at a reduced size, and sound PNGs; all else is decoded as a run does it.
    """
    look, image = Look(digest=digest_of(data), size_bytes=len(data)), None
    try:
        image = Image.open(io.BytesIO(data))
        is_deep = image.mode.startswith(("I", "F")) or (image.format == "PNG" and data[_DEPTH_AT] > 8)  # noqa: PLR2004 - bits
        look = look._replace(
            width=image.width,
            height=image.height,
            format=image.format or "",
            colours="16 bit" if is_deep else _COLOURS.get(image.mode, image.mode),
            orientation=_orientation(image),
        )
    except UNREADABLE:  # TensorFlow says why, or can read it
        image = None
    if problem := refused(io.BytesIO(data), len(data)):
        return look._replace(reason=problem.reason)
    small = None
    with contextlib.suppress(*UNREADABLE):
        small = _decoded_small(image, data) if image is not None else None
    if small is None:
        pixels = decoded(data)
        if isinstance(pixels, Problem):
            return look._replace(reason=pixels.reason)
        height, width = pixels.shape[:2]
        look = look._replace(width=width, height=height)
        small = _small(Image.fromarray(pixels))
    look = look._replace(warning=warning_of(data))
    darkest, brightest = small.getextrema()
    if brightest - darkest < _FLAT:  # type: ignore[operator] # of one channel
        return look._replace(is_flat=True)
    return look._replace(hash=int(np.packbits(imagehash.phash(small).hash).view(">u8")[0]))


def _decoded_small(image: Image.Image, data: bytes) -> Image.Image | None:
    """Return a small version of what surely a run decodes, too; None of others. Raise `UNREADABLE` for damages."""
    if image.format in {"JPEG", "MPO"} and data.endswith(_END) and _LOSSLESS not in data:
        image.draft("L", (_DRAFT, _DRAFT))
        return _small(image)
    if image.format == "PNG":
        Image.open(io.BytesIO(data)).verify()  # which compares checksums, as decoding does not
        return _small(image.convert("RGB") if not image.mode.startswith(("I", "F")) else image)
    return None


def _orientation(image: Image.Image) -> int:
    """Return EXIF's orientation; 1 if the header has none, or none that EXIF defines."""
    if "exif" not in image.info:  # a PNG with EXIF behind its pixels would have to be decoded
        return 1
    try:
        found: Any = image.getexif().get(ExifTags.Base.Orientation)
    except UNREADABLE:
        return 1
    return int(found) if found in _ORIENTATIONS else 1


def _small(image: Image.Image) -> Image.Image:
    return image.convert("L").resize((_HASHED, _HASHED), Image.Resampling.LANCZOS)


LOOKED = np.dtype(
    [
        ("digest", DIGEST), ("hash", "u8"), ("is_flat", "?"),
        ("width", "u4"), ("height", "u4"), ("size_bytes", "u4"), ("format", "S8"), ("colours", "S12"),
        ("orientation", "u1"), ("is_warned", "?"), ("is_broken", "?"), ("label", "i8"), ("shard", "u4"),
        ("number", "u4"),
    ]
)  # fmt: skip
"""What is kept of an image, in the order of `Look`; `shard` and `number` are its place."""
Parse = Callable[[Any], tuple[int, bytes]]
"""Returns the class and the encoded image of a record."""


@dataclass(kw_only=True)
class Scan:
    """What is known of the images of a split.

    Attributes:
        split: The split.
        looks: A row of `LOOKED` for each image, in the order of the data.
        broken: Place and reason of the records that can't be used, damages of files before others.
        lost: Number of all of these records, with those behind a damage of a file.
        warnings: What libjpeg warns of, for the first images of which it does, by their places in `looks`.
    """

    split: Split
    looks: npt.NDArray[Any]
    broken: list[tuple[str, str]]
    lost: int
    warnings: dict[int, str] = field(default_factory=dict)

    def place(self, index: int) -> str:
        """Return the file of an image, and its record there."""
        look = self.looks[index]
        return self.split.where(self.split.shards[look["shard"]], int(look["number"]))

    def found(
        self, is_chosen: npt.NDArray[np.bool_], text: str, remedy: str, more: Callable[[int], str] = lambda _: ""
    ) -> Iterator[Finding]:
        """Yield the finding of those images that can be used and are chosen; `more` follows the place of each."""
        chosen = np.flatnonzero(~self.looks["is_broken"] & is_chosen).tolist()
        if chosen:
            yield Finding(
                f"{len(chosen):,} of {counted(len(self.looks), 'image')} of {self.split.name}: {text}",
                remedy,
                tuple(f"{self.place(index)}{more(index)}" for index in chosen[:NAMED]),
            )


_Record = tuple[int, int, Any]
"""Place of a shard in the split, the number of a record in it, and the record: bytes, or a string scalar."""


def scanned(split: Split, done: Callable[[int], None]) -> Scan:
    """Read and look at all images of a split; `done` is told how many further ones are known.

    Of an image, a row of `LOOKED` is kept; at most two encoded images for each core are in memory at once.

    Raises:
        WorldError: A file can't be opened or read.
    """
    found = Scan(split=split, looks=np.zeros(split.num_examples, LOOKED), broken=[], lost=0)
    reasons: dict[int, str] = {}
    parse = stored if isinstance(split.source, FilesSource) else _parser(split.source)
    count = 0
    for row, reason, warning in in_order(lambda record: _looked(found, parse, record), _records(found)):
        found.looks[count] = row
        if reason:
            reasons[count] = reason
        if warning and len(found.warnings) < NAMED:
            found.warnings[count] = warning
        count += 1
        done(1)
    found.looks = found.looks[:count]
    found.broken += [(found.place(index), reason) for index, reason in reasons.items()]
    found.lost += int(found.looks["is_broken"].sum())
    return found


def _records(found: Scan) -> Iterator[_Record]:
    """Yield the records of all shards; what is lost by a damage is noted."""
    split = found.split
    source = split.source
    files = source.records(split) if isinstance(source, FilesSource) else ()
    for place, shard in enumerate(split.shards):
        if len(files):
            some = range(shard.skip, shard.skip + shard.take)
            yield from ((place, number, files[number]) for number in some)
            continue
        for number, record in records_of(split, shard):
            if isinstance(record, CorruptRecord):
                found.broken.append((record.where, record.reason))
                found.lost += record.lost
            else:
                yield place, number, record


def _parser(source: Source) -> Parse:
    target = source.dataset.examples.target
    parser = tf.function(source.parser(), input_signature=[tf.TensorSpec((), tf.string)])

    def parse(record: tf.Tensor) -> tuple[int, bytes]:
        example = parser(record)
        return int(example[target]), example[IMAGE].numpy()

    return parse


def _looked(of: Scan, parse: Parse, place: _Record) -> tuple[tuple[Any, ...], str, str]:
    """Return a row of `LOOKED` for a record, why it can't be used, and what libjpeg warns of."""
    (shard, number, record), label, classes = place, -1, of.split.source.num_classes
    try:
        label, data = parse(record)
        refused = of.split.refused(number)
        look = Look(reason=refused.reason) if refused else look_at(data)
    except OSError as error:
        look = Look(reason=str(error.strerror))
    except tf.errors.OpError as error:
        look = Look(reason=headline(error))
    *known, warning, reason = look
    if not reason and classes is not None and not 0 <= label < classes:
        reason = f"label {label}, of {classes} classes"
    return (*known, bool(warning), bool(reason), label, shard, number), reason, warning


BITS = 8
"""Most bits of 64 in which the perceptual hashes of nearly identical images differ; see docs/doctor.md."""
_ROWS, _COLUMNS = 64, 8192
"""Size of a block of pairs, which fits into a core's cache."""


def near_findings(scans: Sequence[Scan], class_names: Sequence[str], begin: Begin) -> Iterator[Finding]:
    """Yield the findings of images that look alike in two splits, or in one split under two labels."""
    for first, second in combinations(scans, 2):
        done = begin(f"{second.split.name} with {first.split.name}", len(second.looks))
        pairs = near(first.looks, second.looks, done).tolist()
        remedy = "compare them: versions of one image belong into one split"
        yield from _alike(second, first, pairs, first.split.name, remedy, lambda scan, index: scan.place(index))

    def named(scan: Scan, index: int) -> str:
        label = int(scan.looks["label"][index])
        return f"{scan.place(index)} ({class_names[label] if 0 <= label < len(class_names) else label})"

    for scan in scans:
        done = begin(f"{scan.split.name} by label", len(scan.looks))
        found = near(scan.looks, scan.looks, done, of_other_labels=True).tolist()
        nearest = {row: of for row, of, _ in found}
        pairs = [(row, of, bits) for row, of, bits in found if row > of or nearest.get(of) != row]
        remedy = "compare them: correct the label of versions of one image"
        yield from _alike(scan, scan, pairs, "another class", remedy, named)


def _alike(
    scan: Scan, other: Scan, pairs: Sequence[Sequence[int]], what: str, remedy: str, named: Callable[[Scan, int], str]
) -> Iterator[Finding]:
    """Yield the finding of pairs of an image of `scan`, one of `other`, and the bits in which their hashes differ."""
    if pairs:
        look = "looks" if len(pairs) == 1 else "look"
        yield Finding(
            f"{counted(len(pairs), 'image')} of {scan.split.name} {look} like one of {what}, by perceptual hashes",
            remedy,
            tuple(f"{named(scan, row)} ~ {named(other, of)} ({bits} bits)" for row, of, bits in pairs[:NAMED]),
        )


def near(
    first: npt.NDArray[Any], second: npt.NDArray[Any], done: Callable[[int], None], *, of_other_labels: bool = False
) -> npt.NDArray[np.int64]:
    """Return a row for each image of `second` that is nearly identical to one of `first`, both of `LOOKED`.

    It holds the image's number in `second`, the number of its nearest one in `first`, and the bits that differ. Images
    of `second` with the bytes of one of `first`, and those without a hash, are left out; `of_other_labels`, for which
    both are the same, pairs of the same bytes or label instead. All pairs are compared, as bits of 64-bit integers in
    blocks; `done` is told how many further images of `second` are known.
    """
    ours = np.flatnonzero(~(first["is_broken"] | first["is_flat"]))
    is_known = np.zeros(len(second), bool) if of_other_labels else np.isin(second["digest"], first["digest"])
    theirs = np.flatnonzero(~(second["is_broken"] | second["is_flat"] | is_known))
    hashes = first["hash"][ours]
    keys = [first["label"], np.unique(first["digest"], return_inverse=True)[1]]

    def nearest(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        wanted = second["hash"][rows][:, None]
        least, at = np.full(len(rows), BITS + 1, np.uint8), np.zeros(len(rows), np.int64)
        for start in range(0, len(hashes), _COLUMNS):
            bits = np.bitwise_count(wanted ^ hashes[None, start : start + _COLUMNS])
            if of_other_labels:
                columns = ours[start : start + _COLUMNS]
                own = np.searchsorted(columns, rows)
                is_here = (own < len(columns)) & (columns[np.minimum(own, len(columns) - 1)] == rows)
                bits[np.flatnonzero(is_here), own[is_here]] = BITS + 1  # first, so that few rows are looked at
                for place in np.flatnonzero(bits.min(axis=1) <= BITS):
                    close = np.flatnonzero(bits[place] <= BITS)
                    is_shared = np.logical_or.reduce([key[rows[place]] == key[columns[close]] for key in keys])
                    bits[place, close[is_shared]] = BITS + 1
            closest = bits.min(axis=1)
            closer = np.flatnonzero(closest < least)  # of equal ones, the first stays
            at[closer] = start + bits[closer].argmin(axis=1)
            least[closer] = closest[closer]
        is_near = least <= BITS
        return np.stack([rows[is_near], ours[at[is_near]], least[is_near]], axis=1, dtype=np.int64)

    done(len(second) - len(theirs))
    found = [np.empty((0, 3), np.int64)]
    blocks = [theirs[at : at + _ROWS] for at in range(0, len(theirs), _ROWS)]
    for rows, of in zip(blocks, in_order(nearest, blocks), strict=True):
        found.append(of)
        done(len(rows))
    return np.concatenate(found)


def of_pixels(scan: Scan) -> Iterator[Finding]:
    """Yield the findings of the images of a scan."""
    looks = scan.looks
    yield from scan.found(
        looks["is_warned"],
        "libjpeg warns: what is missing or damaged is decoded to grey or other colours",
        "restore or remove them",
        lambda index: f": {scan.warnings[index]}" if index in scan.warnings else "",
    )
    flat = "one colour, or nearly so, once decoded"
    yield from scan.found(looks["is_flat"], flat, "look at them, and restore them")
    yield from scan.found(
        looks["orientation"] != 1,
        "turned or mirrored by EXIF's orientation, which TensorFlow ignores",
        "store them upright, such as by `exiftran -ai` (without loss) or Pillow's ImageOps.exif_transpose",
        lambda index: f": orientation {looks['orientation'][index]}",
    )


_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)


def require(flow: Flow) -> None:
    """Raise `WorldError` unless examples are images with a class."""
    if flow.inputs != (IMAGE,) or not flow.features[flow.target].is_class or len(flow.targets) > 1:
        found, expected = str(flow.replace(record="")), "images with a class, which a doctor can examine"
        raise WorldError("dataset", found, expected, "leave dataset.features and dataset.target out")


@pillow_as_header_reader()
def examined(plan: Plan, source: Source, splits: Sequence[Split], begin: Begin) -> Diagnosis:
    """Examine the images of splits; `begin` is told of tasks and their images; `WorldError` for unreadable files."""
    scans = [scanned(split, begin(split.name, split.num_examples)) for split in splits]
    class_names = source.class_names or tuple(map(str, range(source.num_classes or 0)))
    figures = [_figures(scan, class_names) for scan in scans]
    return Diagnosis(
        findings=[*_findings(plan, scans, figures, class_names, begin)], splits=figures, parts=[*_tables(figures)]
    )


def _figures(scan: Scan, class_names: Sequence[str]) -> Block:
    """Return the figures of a split by name: of sides the least, 5 %, median, 95 % and largest one in pixels."""
    looks = scan.looks[~scan.looks["is_broken"]]
    counts = np.bincount(looks["label"], minlength=len(class_names))
    return {
        "name": scan.split.name,
        "examples": scan.split.num_examples,
        "files": len(scan.split.paths),
        "broken": scan.lost,
        "bytes_per_example": float(looks["size_bytes"].mean()) if len(looks) else 0.0,
        "classes": dict(zip(class_names, map(int, counts), strict=True)),
        "widths": _quantiles(looks["width"]),
        "heights": _quantiles(looks["height"]),
        "formats": _frequent(looks["format"]),
        "colours": _frequent(looks["colours"]),
    }


def _quantiles(values: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 3) for value in np.quantile(values, _QUANTILES)) if len(values) else ()


def _frequent(values: Any) -> dict[str, int]:
    names, counts = np.unique(values, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {names[place].decode() or "unknown": int(counts[place]) for place in order}


def _tables(figures: Sequence[Block]) -> Iterator[Part]:
    def sides(name: str) -> Callable[[Block], str]:
        return lambda of: f"{of[name][0]:g} to {of[name][-1]:g}, median {of[name][2]:g}" if of[name] else ""

    def counts(name: str) -> Callable[[Block], str]:
        return lambda of: ", ".join(f"{kind} {count:,}" for kind, count in of[name].items())

    columns = [
        Col("dataset", itemgetter("name"), is_head=True),
        *(Col(name, itemgetter(name)) for name in ("examples", "files", "broken")),
        Col("bytes each", itemgetter("bytes_per_example"), ",.0f"),
        *(Col(name, sides(f"{name}s")) for name in ("width", "height")),
        *(Col(name, counts(name)) for name in ("formats", "colours")),
    ]
    yield Table(figures, columns, title="Splits")
    classes = [(split, name, count) for split in figures for name, count in split["classes"].items()]
    columns = [
        Col("dataset", lambda of: of[0]["name"], is_head=True),
        Col("class", lambda of: of[1]),
        Col("examples", lambda of: of[2]),
        Col("share", lambda of: of[2] / max(sum(of[0]["classes"].values()), 1), ".1%"),
    ]
    yield Table(classes, columns, title="Examples of each class")


def _findings(
    plan: Plan, scans: Sequence[Scan], figures: Sequence[Block], class_names: Sequence[str], begin: Begin
) -> Iterator[Finding]:
    for scan in scans:
        if scan.broken:
            text = f"{scan.lost:,} of {counted(scan.split.num_examples, 'example')} of {scan.split.name} can't be used"
            skipped = ", or set dataset.on_corrupt=skip" if scan.lost < scan.split.num_examples else ""
            places = [f"{place}: {reason}" for place, reason in scan.broken]
            yield Finding(text, f"repair or convert them{skipped}", places)
    whole, scans = scans, [*apart(scans, [scan.split for scan in scans])]
    sound = [np.flatnonzero(~scan.looks["is_broken"]) for scan in scans]
    numbers, splits = np.concatenate(sound), np.repeat(np.arange(len(scans)), [len(of) for of in sound])
    digests, labels = (
        np.concatenate([scan.looks[name][of] for scan, of in zip(scans, sound, strict=True)])
        for name in ("digest", "label")
    )
    groups = identical(digests, labels, splits)
    is_other = ~groups.is_across & ~groups.is_conflicting
    kinds = (
        (groups.is_across, "in several splits", "remove them from one, or prepare the images with --split"),
        (groups.is_conflicting, "under several labels", "correct the labels, or remove the images"),
        (is_other, "several times in one split", "remove them, unless they are to count more"),
    )

    def where(member: int) -> str:
        scan: Scan = scans[splits[member]]
        return scan.place(int(numbers[member]))

    yield from of_equal(groups, kinds, ("image", "images"), where)
    yield from near_findings(scans, class_names, begin)
    for scan in whole:
        yield from of_pixels(scan)
    for of in figures:
        missing = [name for name, count in of["classes"].items() if not count]
        remedy = "try load.class_weights=balanced, or load.sample=uniform_by_class with load.shuffle=full"
        if missing:
            text = f"{of['name']} has no example of {', '.join(missing[:NAMED])}"
            yield Finding(text, "choose a larger part of the dataset, or add images")
        else:
            yield from of_balance(of["name"], of["classes"], "examples of", remedy)
    sizes = [step.stage.size for stage in plan.train for step in stage.steps if hasattr(step.stage, "size")]
    for scan in whole if sizes else ():
        height, width = sizes[0]
        is_small = (scan.looks["height"] < height) | (scan.looks["width"] < width)
        text = f"a side below the {height}x{width} pixels of transform.resize"
        yield from scan.found(is_small, text, "choose a smaller transform.resize.size, or replace them by larger ones")
