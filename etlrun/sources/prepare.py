"""Preparation of a missing dataset: once, even if two runs start together or an earlier one was killed."""

from __future__ import annotations

import dataclasses
import io
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from etlrun.stages.dataset import SAMPLE_NAME, TfdsDataset
from etlrun.system.errors import WorldError, one_line
from etlrun.system.locks import alone
from etlrun.system.progress import Task, showing
from etlrun.system.terminal import tell

SAMPLE_SHARDS = 8
_STAGING, _RECORD = "preparing.tfds", "begun_by_etlrun"
"""Folder in which TFDS writes for etlrun, beside the versions, and the file in it that says so."""


def prepare(dataset: TfdsDataset, opened: Callable[[TfdsDataset], Any]) -> None:
    """Prepare a dataset with TFDS, whose builder `opened` returns; raise `WorldError` if that fails.

    One process writes at a time; the others wait for the result. TFDS writes into a folder that is etlrun's own, from
    which the version is renamed at the end. A kill leaves at most that folder, which the next preparation removes; what
    others prepare beside it is left alone.
    """
    builder = opened(dataset)
    if not dataset.download:
        raise _missing(builder, dataset, "and dataset.download=false")
    family = Path(builder.data_dir).parent
    try:
        family.mkdir(parents=True, exist_ok=True)
        told = "another run is preparing the dataset; waiting for it"
        with alone(family / ".etlrun.lock", longest_s=math.inf, waiting=told):
            if is_prepared(builder):
                return
            with _staging(family) as folder:
                _write(builder, dataset, opened(dataclasses.replace(dataset, data_dir=str(folder))))
    except OSError as error:
        raise WorldError(
            str(family),
            str(error),
            "a folder that can be written to, with space for the data",
            "set dataset.data_dir to another folder",
        ) from error


def is_prepared(builder: Any) -> bool:
    """Return whether TFDS has prepared the dataset of `builder`."""
    return (Path(builder.data_dir) / "dataset_info.json").is_file()


@contextmanager
def _staging(family: Path) -> Iterator[Path]:
    """Yield an empty folder, which is removed at the end, as one that a kill has left is; `OSError` for another's."""
    folder = family / _STAGING
    if (folder / _RECORD).is_file():
        shutil.rmtree(folder)
    with suppress(FileNotFoundError):  # a kill may leave it without its record, but empty
        folder.rmdir()
    folder.mkdir()
    (folder / _RECORD).touch()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Preparing(Task):
    """Preparation of a dataset, whose files in some folders tell how far it is."""

    def __init__(self, name: str, *folders: Path) -> None:
        super().__init__(f"prepare {name}")
        self._folders = folders
        self._before_bytes = self._bytes()

    def further(self) -> Iterator[str]:
        """Yield the megabytes that have been downloaded and written."""
        yield f"{max(0, self._bytes() - self._before_bytes) / 1e6:,.1f} MB"

    def _bytes(self) -> int:
        size_bytes = 0
        for folder in self._folders:
            for path in folder.rglob("*"):
                with suppress(OSError):  # it is renamed meanwhile
                    size_bytes += path.stat().st_size
        return size_bytes


@contextmanager
def _unsaid() -> Iterator[None]:
    """Print what TFDS prints on standard output only if the block fails, on standard error."""
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            yield
    except BaseException:
        print(said.getvalue(), end="", file=sys.stderr)
        raise


def _write(builder: Any, dataset: TfdsDataset, staged: Any) -> None:
    """Prepare the dataset of `staged`, and move it to that of `builder`, unless others have prepared it meanwhile."""
    import requests  # imported here, since few runs prepare a dataset
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.util import DownloadError

    settings: dict[str, Any] = {"num_shards": SAMPLE_SHARDS} if dataset.name == SAMPLE_NAME else {}
    tell(f"preparing {builder.info.full_name} in {builder.data_dir}")
    downloads = Path(builder.data_dir_root) / "downloads"
    tfds.disable_progress_bar()  # whose lines are those of no terminal
    try:
        with showing(_Preparing(builder.info.full_name, downloads, Path(staged.data_dir).parent)), _unsaid():
            staged.download_and_prepare(
                download_dir=downloads,
                download_config=tfds.download.DownloadConfig(try_download_gcs=False, **settings),
            )
    except ImportError as error:
        raise needs_package(dataset, error) from error
    except (requests.RequestException, DownloadError) as error:
        raise _missing(builder, dataset, f"and it could not be prepared: {error}") from error
    default, own = (Path(of.data_dir_root) / of.name / ".config" for of in (staged, builder))  # the default of several
    if default.is_dir() and not own.exists():
        default.rename(own)
    if not is_prepared(builder):
        Path(staged.data_dir).rename(builder.data_dir)


def needs_package(dataset: TfdsDataset, error: ImportError) -> WorldError:
    """Return the error of a dataset whose code in TFDS needs a package that is not installed."""
    package = (error.name or "").partition(".")[0]
    return WorldError(
        dataset.key("name"),
        f"{dataset.name}, for which TFDS needs a package that is not installed: {one_line(error)}",
        "a dataset whose packages are installed",
        f"install {f'{package}, and ' * bool(package)}what TFDS says it needs, or prepare the data elsewhere, "
        "and set dataset.data_dir",
    )


def _missing(builder: Any, dataset: TfdsDataset, why: str) -> WorldError:
    if dataset.name == SAMPLE_NAME:
        folder = f" dataset.data_dir={dataset.data_dir}" * (dataset.data_dir is not None)
        return WorldError(
            dataset.key("data_dir"),
            f"no {builder.info.full_name} in {builder.data_dir}",
            "the sample, which is made without a network",
            f"make it: etlrun doctor dataset=sample{folder}",
        )
    return WorldError(
        dataset.key("data_dir"),
        f"no {builder.info.full_name} in {builder.data_dir}, {' '.join(why.split())}",
        "a dataset prepared by TFDS, or a network to download it",
        'on a machine with a network run `python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('{dataset.name}').download_and_prepare()\"`, copy ~/tensorflow_datasets/{dataset.name} here "
        "and set dataset.data_dir to the folder above it; or set dataset=sample, which needs no network",
    )
