"""Check of all images: whether they can be decoded for training, which are identical, and their order and splits.

Reading, hashing and decoding leave Python's lock to each other.
"""

import contextlib
import hashlib
import io
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import PIL.Image
import xxhash

from etlrun.datasets.prepare.source import LISTED, ImageEntry, ImageSource, first
from etlrun.sources import corrupt
from etlrun.sources.base import Problem
from etlrun.sources.corrupt import CONVERT, pillow_as_header_reader
from etlrun.sources.listing import CONVERSION
from etlrun.system.errors import EtlrunError, Fault, Total, counted, fault, printable, unreadable_path
from etlrun.system.machine import cores, rounded
from etlrun.system.values import frozen

DIGEST = np.dtype("S16")
"""Type of digests in arrays."""


@frozen
class Groups:
    """Groups of images with the same bytes, in the order of their first images.

    Attributes:
        order: Indices of images, by groups; within a group they ascend.
        starts: Where each group begins in `order`; `ends` likewise.
        is_across: Whether a group has images of several splits.
        is_conflicting: Whether its images have several labels.
    """

    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    is_across: npt.NDArray[np.bool_]
    is_conflicting: npt.NDArray[np.bool_]

    def members(self, group: int) -> npt.NDArray[np.int64]:
        """Return the indices of a group's images."""
        return self.order[self.starts[group] : self.ends[group]]


def digest_of(data: bytes) -> bytes:
    """Return the XXH3 of an image's bytes, of 128 bits."""
    return xxhash.xxh3_128_digest(data)


def identical(digests: npt.NDArray[np.bytes_], labels: npt.NDArray[np.int64], splits: npt.NDArray[np.int64]) -> Groups:
    """Return the groups of images that occur more than once, by their digests; `splits` are numbers of splits.

    All three arrays have an entry for each image.
    """
    order = np.argsort(digests, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = digests[order[1:]] != digests[order[:-1]]
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    chosen = np.flatnonzero(ends - starts > 1)
    chosen = chosen[np.argsort(order[starts[chosen]], kind="stable")]

    def differ(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        least, most = (of.reduceat(values[order], starts)[chosen] for of in (np.minimum, np.maximum))
        return np.asarray(least != most)

    return Groups(
        order=order, starts=starts[chosen], ends=ends[chosen], is_across=differ(splits), is_conflicting=differ(labels)
    )


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], ended: Callable[[], object] = lambda: None
) -> Iterator[Result]:
    """Yield the result of `work` on each item, in their order; for each core, two items or results are held at once.

    There is a thread for each core. What has not begun when an error ends it never does; `ended` is called before what
    goes on is waited for.
    """
    begun: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(cores())
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) == 2 * cores():
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        ended()
        pool.shutdown(cancel_futures=True)


_WHOLE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image that can be used.

    Attributes:
        entry: Where it is.
        digest: Hash of its bytes.
        label: Index of its class.
        split: Split that it belongs to.
    """

    entry: ImageEntry
    digest: str
    label: int
    split: str


def ordered(images: Iterable[Image], seed: int) -> dict[str, list[Image]]:
    """Return the images of each split in an order that depends on their bytes, their labels and the seed alone."""
    found: dict[str, list[Image]] = defaultdict(list)
    for image in images:
        found[image.split].append(image)
    for chosen in found.values():
        chosen.sort(key=lambda image: (_drawn(seed, "order", image.digest), image.label))
    return dict(found)


def assigned(images: Sequence[Image], percents: Mapping[str, Decimal], seed: int) -> list[Image]:
    """Return the images with splits of these percents of each class; identical ones are in the same split.

    Splits depend on the images' bytes, their labels and the seed alone. What percents leave over in one class goes to
    the next one, so that the splits have their sizes as a whole; the first split has an image of each class.
    """
    classes: dict[int, list[list[Image]]] = defaultdict(list)
    for group in _by_digest(images).values():
        classes[min(image.label for image in group)].append(group)
    split_of: dict[str, str] = {}
    before = 0
    for _, groups in sorted(classes.items()):
        groups.sort(key=lambda group: _drawn(seed, "split", group[0].digest))
        ends = _ends(before, sum(map(len, groups)), percents)
        place = 0
        for group in groups:
            split_of[group[0].digest] = next(name for name, end in ends.items() if place < end)
            place += len(group)
        before += place
    return [replace(image, split=split_of[image.digest]) for image in images]


def _ends(before: int, count: int, percents: Mapping[str, Decimal]) -> dict[str, int]:
    """Return where each split ends among the `count` images of a class with `before` images in classes before it."""
    ends, share, end = {}, Decimal(0), 1
    for name, percent in percents.items():
        share += percent
        end = max(end, _part(before + count, share) - _part(before, share))
        ends[name] = end
    return ends


def _part(count: int, percent: Decimal) -> int:
    return int((count * percent / _WHOLE).to_integral_value(ROUND_HALF_UP))


def _by_digest(images: Iterable[Image]) -> dict[str, list[Image]]:
    found: dict[str, list[Image]] = defaultdict(list)
    for image in images:
        found[image.digest].append(image)
    return found


def _drawn(seed: int, what: str, digest: str) -> bytes:
    """Return bytes that order images at random, by their content."""
    return hashlib.sha256(f"{seed} {what} {digest}".encode()).digest()


LARGEST_BYTES = 1_000_000_000
"""Size of an encoded image; protocol buffers hold at most 2 GiB."""
FORMATS = ("JPEG", "PNG", "BMP")
_FRAMES = {"GIF": "GIF", "WEBP": "WebP"}
"""Formats that TFDS decodes to a stack of frames, even of a single one, which its feature `Image` refuses."""
_OF_FRAMES = "whose first frame is not taken: TFDS decodes it to a stack of frames, even a single one"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageVerdict:
    """What is known of an image.

    Attributes:
        digest: XXH3 of its bytes, 128 bits in hexadecimal; empty if they were not read.
        reason: Why it can't be used; empty if it can.
        is_convertible: Whether it can if it is converted.
        unreadable: Fault of a file that can't be read at all.
    """

    digest: str
    reason: str = ""
    is_convertible: bool = False
    unreadable: Fault | None = None


def check(source: ImageSource, done: Callable[[int], None]) -> list[ImageVerdict]:
    """Return the verdict on each entry of a source; `done` is told how many further ones are known.

    Raises:
        EtlrunError: Files that can't be read.
    """
    found: list[ImageVerdict] = []
    with pillow_as_header_reader():
        for each in in_order(partial(verdict, source), source.entries):
            found.append(each)
            done(1)
    if unreadable := [of.unreadable for of in found if of.unreadable]:
        raise EtlrunError(first(unreadable, source.listing.folder, "files that can't be read"))
    return found


def verdict(source: ImageSource, entry: ImageEntry) -> ImageVerdict:
    """Read one image, hash and decode it."""
    if entry.refused:
        return ImageVerdict(digest="", reason=entry.refused)
    if entry.size > LARGEST_BYTES:
        return ImageVerdict(digest="", reason=f"a file of {rounded(entry.size)}, more than {rounded(LARGEST_BYTES)}")
    try:
        data = source.read(entry)
    except OSError as error:
        where = str(error.filename or entry.path)
        return ImageVerdict(digest="", unreadable=unreadable_path(where, error, "an image file"))
    digest, found = digest_of(data).hex(), problem(data)
    if found is None:
        return ImageVerdict(digest=digest)
    return ImageVerdict(digest=digest, reason=found.reason, is_convertible=found.expected == CONVERT)


def problem(data: bytes) -> Problem | None:
    """Return why an encoded image can't be used for training; None if it can."""
    if not data:
        return Problem("an empty file", "an image")
    with contextlib.suppress(OSError, ValueError, SyntaxError):  # of a header that TensorFlow may accept
        kind = PIL.Image.open(io.BytesIO(data), formats=(*FORMATS, *_FRAMES)).format
        if kind in _FRAMES:
            return Problem(f"a {_FRAMES[kind]}, {_OF_FRAMES}", CONVERT)
    return corrupt.problem(data)


def faults_of(source: ImageSource, verdicts: Sequence[ImageVerdict]) -> list[Fault]:
    """Return the faults of the first images that can't be used, and one with the number of all; none if all can."""
    broken = [(entry, of) for entry, of in zip(source.entries, verdicts, strict=True) if of.reason]
    expected = f"an image: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    faults = [
        fault(source.path_of(entry), of.reason, expected, CONVERSION if of.is_convertible else "")
        for entry, of in broken[:LISTED]
    ]
    if broken:
        listed = f", of which {LISTED} are listed" if broken[LISTED:] else ""
        faults.append(
            Total(
                printable(str(source.listing.folder)),
                f"{counted(len(broken), 'broken image')} of {len(verdicts):,}{listed}",
                "images that can be decoded",
                "repair or remove them, or add --on-corrupt skip to leave them out",
            )
        )
    return faults
