"""Preparation of a missing dataset: once, even if two runs start together or an earlier one was killed."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from etlrun.stages.dataset import SAMPLE_NAME, TfdsDataset
from etlrun.system.errors import WorldError
from etlrun.system.locks import alone

SAMPLE_SHARDS = 8
_INCOMPLETE = re.compile(r"incomplete\.[A-Z0-9]{6}_.+")
"""Names of folders in which TFDS writes."""


def prepare(builder: Any, dataset: TfdsDataset) -> None:
    """Prepare the dataset of `builder` with TFDS; raise `WorldError` if that fails.

    One process writes at a time; the others wait for the result. TFDS writes into a temporary folder
    and renames it at the end, so that a kill leaves at most such a folder, which is removed here.
    """
    if not dataset.download:
        raise _missing(builder, dataset, "and dataset.download=false")
    family = Path(builder.data_dir).parent
    try:
        family.mkdir(parents=True, exist_ok=True)
        told = "another run is preparing the dataset; waiting for it"
        with alone(family / ".etlrun.lock", longest_s=math.inf, waiting=told):
            if is_prepared(builder):
                return
            for leftover in family.iterdir():
                if _INCOMPLETE.fullmatch(leftover.name):
                    shutil.rmtree(leftover, ignore_errors=True)
            _write(builder, dataset)
    except OSError as error:
        raise WorldError(
            where=str(family),
            found=str(error),
            expected="a folder that can be written to, with space for the data",
            remedy="set dataset.data_dir to another folder",
        ) from error


def is_prepared(builder: Any) -> bool:
    """Return whether TFDS has prepared the dataset of `builder`."""
    return (Path(builder.data_dir) / "dataset_info.json").is_file()


def _write(builder: Any, dataset: TfdsDataset) -> None:
    import requests  # imported here, since few runs prepare a dataset
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.util import DownloadError

    settings: dict[str, Any] = {"num_shards": SAMPLE_SHARDS} if dataset.name == SAMPLE_NAME else {}
    Console(stderr=True).print(f"preparing {builder.info.full_name} in {builder.data_dir}", highlight=False)
    try:
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False, **settings))
    except (requests.RequestException, DownloadError) as error:
        raise _missing(builder, dataset, f"and it could not be prepared: {error}") from error


def _missing(builder: Any, dataset: TfdsDataset, why: str) -> WorldError:
    return WorldError(
        where=dataset.key("data_dir"),
        found=f"no {builder.info.full_name} in {builder.data_dir}, {' '.join(why.split())}",
        expected="a dataset prepared by TFDS, or a network to download it",
        remedy='on a machine with a network run `python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('{dataset.name}').download_and_prepare()\"`, copy ~/tensorflow_datasets/{dataset.name} here "
        "and set dataset.data_dir to the folder above it; or set dataset=sample, which needs no network",
    )
