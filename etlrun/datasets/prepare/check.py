"""Check of all images: whether they can be decoded for training, which are identical, and their order and splits.

Reading, hashing and decoding leave Python's lock to each other.
"""

import contextlib
import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import PIL.Image
import xxhash

from etlrun.datasets.prepare.options import SPLIT, SPLIT_EXPECTED, Options
from etlrun.sources import corrupt
from etlrun.sources.base import Problem
from etlrun.sources.corrupt import CONVERT, pillow_as_header_reader
from etlrun.sources.listing import CONVERSION, Listing, list_files
from etlrun.system.errors import EtlrunError, Fault, Total, counted, fault, printable, refuse, unreadable_path
from etlrun.system.machine import cores, rounded
from etlrun.system.values import frozen, grouped

LISTED = 20
"""Faults of one kind that a message lists."""
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


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the result of `work` on each item, in their order; for each core, two items or results are held at once.

    There is a thread for each core. What has not begun when an error ends it never does.
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
        pool.shutdown(cancel_futures=True)


_WHOLE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image of a folder of classes.

    Attributes:
        path: Path below the folder.
        label: Index of its class.
        split: Split that it belongs to.
        size: Bytes of the file; 0 until it is read. `digest` likewise.
        digest: XXH3 of its bytes, 128 bits in hexadecimal.
        reason: Why it can't be used, such as a link to a file that is gone; empty if it can.
        is_convertible: Whether it can if it is converted.
    """

    path: str
    label: int
    split: str
    size: int = 0
    digest: str = ""
    reason: str = ""
    is_convertible: bool = False


def ordered(images: Iterable[Image], seed: int) -> dict[str, list[Image]]:
    """Return the images of each split in an order that depends on their bytes, their labels and the seed alone."""
    found = grouped((image.split, image) for image in images)
    for chosen in found.values():
        chosen.sort(key=lambda image: (_drawn(seed, "order", image.digest), image.label))
    return found


def assigned(images: Sequence[Image], percents: Mapping[str, Decimal], seed: int) -> list[Image]:
    """Return the images with splits of these percents of each class; identical ones are in the same split.

    Splits depend on the images' bytes, their labels and the seed alone. What percents leave over in one class goes to
    the next one, so that the splits have their sizes as a whole; the first split has an image of each class.
    """
    alike = grouped((image.digest, image) for image in images).values()
    classes = grouped((min(image.label for image in group), group) for group in alike)
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


def _drawn(seed: int, what: str, digest: str) -> bytes:
    """Return bytes that order images at random, by their content."""
    return hashlib.sha256(f"{seed} {what} {digest}".encode()).digest()


LARGEST_BYTES = 1_000_000_000
"""Size of an encoded image; protocol buffers hold at most 2 GiB."""
FORMATS = ("JPEG", "PNG", "BMP")
_FRAMES = {"GIF": "GIF", "WEBP": "WebP"}
"""Formats that TFDS decodes to a stack of frames, even of a single one, which its feature `Image` refuses."""
_OF_FRAMES = "whose first frame is not taken: TFDS decodes it to a stack of frames, even a single one"


def opened(options: Options) -> Listing:
    """Return the folder of images to prepare; raise `EtlrunError` with all of its faults."""
    folder = Path(options.source).expanduser().absolute()
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        remedy = "unpack an archive before; dataset=tfrecord reads TFRecords where they are, and dataset=table a list"
        remedy = remedy if folder.exists() else "check the path"
        raise EtlrunError([fault(folder, found, "a folder of classes", remedy)])
    if options.url is None and options.family.resolve().is_relative_to(folder.resolve()):
        found, remedy = f"{options.data_dir}, in the source", "choose another --data-dir"
        raise EtlrunError([fault("--data-dir", found, "a folder outside of it", remedy)])
    listing = list_files(folder, "SOURCE")
    faults = [
        fault(folder, f"the split {name!r}", SPLIT_EXPECTED, "rename the split")
        for name in sorted(listing.splits)
        if not SPLIT.fullmatch(name)
    ]
    expected = "a printable name that neither begins nor ends with a space"
    odd = (name for name in listing.classes if not name.isprintable() or name != name.strip())
    refuse(
        (*faults, *(fault(folder, f"the class {name!a}", expected, "rename the class") for name in odd)), EtlrunError
    )
    return listing


def check(listing: Listing, done: Callable[[int], None]) -> list[Image]:
    """Return all images of a folder, checked; `done` is told of further ones; `EtlrunError` for unreadable files."""
    labels = {name: label for label, name in enumerate(listing.classes)}
    images = (
        Image(path=of.path, label=labels[of.label], split=split, reason=listing.refused.get(of.path, ""))
        for split, files in listing.splits.items()
        for of in files
    )
    found, unreadable = list[Image](), list[Fault]()
    with pillow_as_header_reader():
        for each in in_order(partial(checked, listing.folder), images):
            if isinstance(each, Fault):
                unreadable.append(each)
            else:
                found.append(each)
            done(1)
    if unreadable[LISTED:]:
        what, remedy = (
            f"{counted(len(unreadable), 'file')} that can't be read, of which {LISTED} are listed",
            unreadable[0].remedy,
        )
        unreadable[LISTED:] = [fault(listing.folder, what, "none", remedy)]
    refuse(unreadable, EtlrunError)
    return found


def checked(folder: Path, image: Image) -> Image | Fault:
    """Return an image that is read, hashed and decoded; its fault if it can't be read."""
    if image.reason:
        return image
    path = folder / image.path
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            return replace(image, reason=f"a file of {rounded(size)}, more than {rounded(LARGEST_BYTES)}")
        data = path.read_bytes()
    except OSError as error:
        return unreadable_path(str(path), error, "an image file")
    found = problem(data)
    reason, is_convertible = ("", False) if found is None else (found.reason, found.expected == CONVERT)
    digest = digest_of(data).hex()
    return replace(image, size=len(data), digest=digest, reason=reason, is_convertible=is_convertible)


def problem(data: bytes) -> Problem | None:
    """Return why an encoded image can't be used for training; None if it can."""
    if not data:
        return Problem("an empty file", "an image")
    with contextlib.suppress(OSError, ValueError, SyntaxError):  # of a header that TensorFlow may accept
        kind = PIL.Image.open(io.BytesIO(data), formats=(*FORMATS, *_FRAMES)).format
        if kind in _FRAMES:
            return Problem(f"a {_FRAMES[kind]}, {_OF_FRAMES}", CONVERT)
    return corrupt.problem(data)


def faults_of(listing: Listing, images: Sequence[Image]) -> list[Fault]:
    """Return the faults of the first images that can't be used, and one with the number of all; none if all can."""
    broken = [of for of in images if of.reason]
    expected = f"an image: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    faults = [
        fault(listing.folder / of.path, of.reason, expected, CONVERSION if of.is_convertible else "")
        for of in broken[:LISTED]
    ]
    if broken:
        listed = f", of which {LISTED} are listed" if broken[LISTED:] else ""
        faults.append(
            Total(
                printable(str(listing.folder)),
                f"{counted(len(broken), 'broken image')} of {len(images):,}{listed}",
                "images that can be decoded",
                "repair or remove them, or add --on-corrupt skip to leave them out",
            )
        )
    return faults
