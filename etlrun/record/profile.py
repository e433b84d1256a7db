"""Figures of the data of a run in its folder, by which a review tells what has changed since."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from pydantic import TypeAdapter

from etlrun.system.files import write_atomically
from etlrun.system.values import frozen

FILE = "data.json"


@frozen
class ColumnProfile:
    """Figures of a column, or of the classes or the image files of a dataset.

    Attributes:
        type: Its type, such as `number`.
        rows: Number of its values, with those that are missing.
        missing: Number of those that are missing.
        counts: Number of each value, of classes and of columns with few values; empty for others.
        quantiles: Least value, 5 %, median, 95 % and largest one of numbers, and of times in microseconds since 1970.
        lengths: The same of the characters of texts, of the items of lists, or of the bytes of images.
    """

    type: str
    rows: int
    missing: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    quantiles: tuple[float, ...] = ()
    lengths: tuple[float, ...] = ()


@frozen
class Profile:
    """Figures of a split.

    Attributes:
        examples: Number of its examples.
        columns: Figures of its columns; None if they are not kept.
        digest: Digest of its records; None if it is unknown.
    """

    examples: int
    columns: Mapping[str, ColumnProfile] | None = None
    digest: str | None = None


Profiles = Mapping[str, Profile]
"""Figures of the data of each pipeline."""
COLUMNS = TypeAdapter(Mapping[str, ColumnProfile], config={"defer_build": True})
PROFILES = TypeAdapter(Profiles, config={"defer_build": True})


def write(profiles: Profiles, folder: Path) -> None:
    """Write figures into the folder of a run; `OSError` if that can't be."""
    write_atomically(folder / FILE, PROFILES.dump_json(profiles, indent=1).decode() + "\n")


def kept(folder: Path) -> Profiles:
    """Return the figures that the folder of a run keeps; nothing if it has none that can be read."""
    try:
        return PROFILES.validate_json((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
