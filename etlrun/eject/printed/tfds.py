"""Datasets of TFDS in programs."""

from __future__ import annotations

import functools
import types

from etlrun.eject.printed.given import DATA_DIR, DOWNLOAD, NAME, TARGET
from etlrun.stages.lazy import tfds


@functools.cache
def builder() -> tfds.core.DatasetBuilder:
    """Return the builder of the dataset, which is downloaded and prepared if it is missing, and DOWNLOAD is true."""
    found = tfds.builder(NAME, data_dir=DATA_DIR)
    if DOWNLOAD:
        found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    return found


def classes() -> list[str]:
    """Return the names of the classes."""
    return list(builder().info.features[TARGET].names)


def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return the files of `split`, each with the examples to skip and to take."""
    found = []
    for of in builder().info.splits[split].file_instructions:
        take = of.examples_in_shard - of.skip if of.take == -1 else of.take
        found.append(types.SimpleNamespace(filename=str(of.filename), skip=of.skip, take=take))
    return found


def num_examples(split: str) -> int:
    """Return the number of examples of `split`."""
    return sum(part.take for part in parts_of(split))


def paths_of(split: str) -> list[str]:
    """Return the paths of the files of `split`."""
    return [part.filename for part in parts_of(split)]
