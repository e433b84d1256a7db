"""Options of `etlrun data prepare`, parsed from its arguments with all faults at once."""

import os
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

from etlrun.cache.store import folder_of
from etlrun.stages.dataset import SAMPLE_NAME
from etlrun.stages.paths import is_remote, with_secrets
from etlrun.system.errors import ConfigError, Fault, fault
from etlrun.system.values import frozen, sha256_of

SPLIT = re.compile(r"(?!all$)[A-Za-z]\w*", re.ASCII)
"""Names of splits that TFDS reads; `all` means all of them."""
SPLIT_EXPECTED = "a letter, followed by letters, digits and underscores, and not all"
LARGEST_SHARD_BYTES = 200_000_000
"""Shards have half of it or more, unless a split is smaller."""
MOST_SHARDS = 99_999
"""Shards of a split whose names have five digits."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")
_WHOLE = 100


@frozen
class Options:
    """What is prepared, and where to.

    Attributes:
        source: Folder of classes.
        name: Name of the dataset.
        version: Version of the dataset.
        data_dir: Data folder of TFDS; for one in a store a folder of this machine, in which shards are written.
        url: URL of a data folder in a store; None for one on this machine.
        percents: Share of each split in percent; None to keep the splits of the source.
        shards: Shards of each split; None for shards of 100 to 200 MB.
        seed: Seed of the order, and of the splits.
        skips_corrupt: Whether images that can't be decoded are left out.
    """

    source: str
    name: str
    version: str
    data_dir: Path
    url: str | None
    percents: Mapping[str, Decimal] | None
    shards: int | None
    seed: int
    skips_corrupt: bool

    @property
    def family(self) -> Path:
        """Folder of all versions of the dataset."""
        return self.data_dir / self.name

    @property
    def target(self) -> Path:
        """Folder of the version."""
        return self.family / self.version

    @property
    def place(self) -> str:
        """Path or URL of the version."""
        return str(self.target) if self.url is None else f"{self.url}/{self.name}/{self.version}"


def parsed(arguments: Mapping[str, str | None]) -> Options:
    """Return the options in the arguments, the text of each by its name; raise `ConfigError` with all faults."""
    faults: list[Fault] = []
    source, name, version = (arguments[key] or "" for key in ("source", "name", "version"))
    if not _NAME.fullmatch(name):
        remedy = "write a name such as --name flowers"
        faults.append(fault("--name", repr(name), "lower-case letters, digits and underscores, a letter first", remedy))
    elif name == SAMPLE_NAME:
        found = f"{name}, which is the sample dataset"
        faults.append(fault("--name", found, "a name of its own", "choose another --name"))
    if not _VERSION.fullmatch(version):
        expected, remedy = "three numbers without leading zeros", "write a version such as --version 1.0.0"
        faults.append(fault("--version", repr(version), expected, remedy))
    data_dir = arguments["data_dir"] or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    url = data_dir.rstrip("/") if is_remote(data_dir) else None
    faults += [fault("--data-dir", *found) for found in with_secrets([data_dir])]
    if url is not None:
        data_dir = str(folder_of(None) / "prepare" / sha256_of(url))
    options = Options(
        source=source,
        name=name,
        version=version,
        data_dir=Path(data_dir).expanduser().absolute(),
        url=url,
        percents=_percents(arguments["split"], faults),
        shards=_integer("--shards", arguments["shards"], (1, MOST_SHARDS), faults),
        seed=_integer("--seed", arguments["seed"], (0, 2**63 - 1), faults) or 0,
        skips_corrupt=arguments["on_corrupt"] == "skip",
    )
    if faults:
        raise ConfigError(faults)
    return options


def _integer(where: str, text: str | None, limits: tuple[int, int], faults: list[Fault]) -> int | None:
    low, high = limits
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,19}", text) and low <= int(text) <= high:
        return int(text)
    faults.append(fault(where, repr(text), f"an integer from {low} to {high:,}"))
    return None


def _percents(text: str | None, faults: list[Fault]) -> dict[str, Decimal] | None:
    if text is None:
        return None
    pairs = [(name.strip(), value.strip()) for name, _, value in (part.partition("=") for part in text.split(","))]
    found: dict[str, Decimal] = {}
    for name, value in pairs:
        if not SPLIT.fullmatch(name):
            faults.append(fault("--split", f"the name {name!r}", SPLIT_EXPECTED))
        try:
            found[name] = Decimal(value)
        except InvalidOperation:
            found[name] = Decimal("NaN")
        if not found[name] > 0 if found[name].is_finite() else True:
            faults.append(fault("--split", f"{name}={value}", "a positive number of percent"))
    total = sum(found.values())
    if len(found) < len(pairs):
        faults.append(fault("--split", text, "each split once"))
    elif total.is_finite() and total != _WHOLE:  # type: ignore[union-attr] # no split is none
        faults.append(
            fault(
                "--split",
                f"{text}, which is {total} percent in all",
                "100 percent in all",
                "write percents such as --split train=80,validation=20",
            )
        )
    return found
