"""Datasets of TFDS in programs."""

from __future__ import annotations

import functools

from etlrun.eject.printed import NOWHERE
from etlrun.stages.lazy import tfds

NAME = DATA_DIR = DOWNLOAD = TARGET = NOWHERE


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


def parts_of(split: str) -> list[tuple[str, int, int]]:
    """Return the files of `split`, each with the examples to skip and to take."""
    parts = builder().info.splits[split].file_instructions
    return [(str(of.filename), of.skip, of.examples_in_shard - of.skip if of.take == -1 else of.take) for of in parts]
