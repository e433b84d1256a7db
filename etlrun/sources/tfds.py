"""Datasets of TFDS on disk: their shards and features, and their preparation, once, if they are missing."""

import errno
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar

from etlrun.sources.base import OnDisk, Source, Split, all_there, versions_in
from etlrun.stages.dataset import IMAGE, LABEL, SAMPLE_NAME, TfdsDataset
from etlrun.stages.flow import Feature
from etlrun.stages.lazy import np, tfds
from etlrun.stages.paths import is_remote
from etlrun.system.errors import EtlrunError, WorldError, did_you_mean, headline, one_line
from etlrun.system.files import alone
from etlrun.system.terminal import tell

_KEYS = {IMAGE: TfdsDataset.key("image_key"), LABEL: TfdsDataset.key("label_key")}
"""Config keys of the features with default names."""


def checked(info: Any, dataset: TfdsDataset) -> int | None:
    """Return the number of classes of the only target, None if it is no class, or if there are several.

    Raises:
        WorldError: The dataset, which TFDS describes by `info`, has other features.
    """
    flow, features = dataset.examples, dict(info.features.items())
    declared = {"target": dataset.target, "features": dataset.features, "weight": (dataset.weight,)}
    for name, key in dataset.keys.items():
        declaring = [TfdsDataset.key(of) for of, names in declared.items() if name in (names or ())]
        has, where = features.get(key), declaring[0] if declaring else _KEYS[name]
        for other in _other(features, key, flow.features[name], where):
            found = f"no feature '{key}'" if has is None else f"'{key}', which is {has},"
            raise WorldError(where, f"{found} in {info.full_name}", *other)
    if not flow.features[flow.target].is_class or len(flow.targets) > 1:
        return None
    return int(getattr(info.features[dataset.keys[flow.target]], "num_classes", 2))  # of a binary target of numbers


def _other(features: Mapping[str, Any], key: str, feature: Feature, where: str) -> Iterator[tuple[str, str]]:
    """Yield what is expected of a feature of a dataset that is not as it was declared, and what to do."""
    has: Any = features.get(key)
    (dtype, shape), labels, is_image = _stored(has), tfds.features.ClassLabel, feature.format == "image"
    remedy = f"declare it as it is, or name another feature of {', '.join(sorted(features))}"
    if feature.is_labels or (feature.is_binary and not isinstance(has, labels)):
        if (dtype != "bool" and "int" not in dtype) or shape != feature.shape:
            numbers = f"{feature.shape[0]} numbers" if feature.is_labels else "a number"
            yield f"{numbers} of 0 or 1 in each example", remedy
    elif is_image or feature.is_class:
        kind, count = tfds.features.Image if is_image else labels, len(feature.classes)
        known = [name for name, of in features.items() if isinstance(of, kind)]
        if key not in known:
            remedy = f"set {where}={known[0]}" if known and where in _KEYS.values() else "name one of them"
            yield f"a feature of type {kind.__name__}: {', '.join(known) or 'there is none'}", remedy
        elif is_image and has.np_dtype == np.float32:  # TFDS stores their bytes as four channels
            yield "images of uint8 or uint16", "choose a dataset whose images are not float32"
        elif not is_image and count not in (0, has.num_classes):
            yield f"{count} classes, as declared", f"write {key}: class {has.num_classes}"
    elif has is None:
        yield f"one of {', '.join(sorted(features))}", did_you_mean(key, features, otherwise="name one of them")
    elif (dtype, shape) != (feature.dtype, feature.shape):
        yield f"{feature}, as declared", remedy


def _stored(has: Any) -> tuple[str, tuple[int | None, ...]]:
    stored: Any = None if has is None else has.get_serialized_info()
    if not hasattr(stored, "np_dtype"):
        return "", ()
    found = np.dtype(stored.np_dtype)
    return "string" if found.kind in "OSU" else found.name, tuple(stored.shape)


SAMPLE_SHARDS = 8
_STAGING, _RECORD = "preparing.tfds", "begun_by_etlrun"
"""Folder in which TFDS writes for etlrun, beside the versions, and the file in it that says so."""


def prepare(dataset: TfdsDataset) -> None:
    """Prepare a dataset with TFDS; raise `WorldError` if that fails.

    One process writes at a time; the others wait for the result. TFDS writes into a folder that is etlrun's own, from
    which the version is renamed at the end. A kill leaves at most that folder, which the next preparation removes; what
    others prepare beside it is left alone.
    """
    builder = open_builder(dataset)
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
                staged = open_builder(replace(dataset, data_dir=str(folder)))
                import requests  # imported here, since few runs prepare a dataset
                import tensorflow_datasets as tfds
                from tensorflow_datasets.core.download.util import DownloadError

                settings: dict[str, Any] = {"num_shards": SAMPLE_SHARDS} if dataset.name == SAMPLE_NAME else {}
                tell(f"preparing {builder.info.full_name} in {builder.data_dir}")
                downloads = Path(builder.data_dir_root) / "downloads"
                if not sys.stderr.isatty():
                    tfds.disable_progress_bar()
                try:
                    with _unsaid():
                        staged.download_and_prepare(
                            download_dir=downloads,
                            download_config=tfds.download.DownloadConfig(try_download_gcs=False, **settings),
                        )
                except ImportError as error:
                    raise needs_package(dataset, error) from error
                except (requests.RequestException, DownloadError) as error:
                    raise _missing(builder, dataset, f"and it could not be prepared: {error}") from error
                if not is_prepared(builder):
                    Path(staged.data_dir).rename(builder.data_dir)
    except OSError as error:
        expected, remedy = "a folder that can be written to, with space for the data", "set dataset.data_dir to another"
        raise WorldError(family, str(error), expected, f"{remedy} folder") from error


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


def needs_package(dataset: TfdsDataset, error: ImportError) -> WorldError:
    """Return the error of a dataset whose code in TFDS needs a package that is not installed."""
    return WorldError(
        dataset.key("name"),
        f"{dataset.name}, for which TFDS needs a package that is not installed: {one_line(error)}",
        "a dataset whose packages are installed",
        "install it, or prepare the data elsewhere, and set dataset.data_dir",
    )


def _missing(builder: Any, dataset: TfdsDataset, why: str) -> WorldError:
    found = f"no {builder.info.full_name} in {builder.data_dir}"
    if dataset.name == SAMPLE_NAME:
        folder = f" dataset.data_dir={dataset.data_dir}" * (dataset.data_dir is not None)
        expected, remedy = "the sample, which is made without a network", "make it: etlrun doctor dataset=sample"
        return WorldError(dataset.key("data_dir"), found, expected, f"{remedy}{folder}")
    return WorldError(
        dataset.key("data_dir"),
        f"{found}, {' '.join(why.split())}",
        "a dataset prepared by TFDS, or a network to download it",
        f"prepare it on a machine with a network, by `tfds build {dataset.name}`, copy its folder here, and set "
        "dataset.data_dir to the folder above it; or set dataset=sample, which needs no network",
    )


_INFO = "dataset_info.json"


class TfdsSource(Source):
    """A dataset prepared by TFDS.

    Attributes:
        builder: TFDS's builder.
    """

    dataset: TfdsDataset
    noun: ClassVar[str] = "a shard"

    def __init__(self, dataset: TfdsDataset) -> None:
        """Find the dataset, and prepare it if that is allowed; raise `WorldError` if it isn't available."""
        self.dataset = dataset
        if dataset.urls:
            from etlrun.remote.copies import copies_of, name_copies
            from etlrun.sources.shards import mirror_of

            self.copies, self._mirror = copies_of(dataset), mirror_of(dataset)
            self.objects = {self.copies.path(of): of for of in self._mirror.objects.values()}
            name_copies(self.objects.values(), self.copies)
        self.builder = open_builder(dataset)
        if not is_prepared(self.builder):
            prepare(dataset)
            self.builder = open_builder(dataset)  # this builder doesn't know what another process has prepared
        kind = self.builder.info.file_format
        if kind not in (None, tfds.core.FileFormat.TFRECORD):
            raise WorldError(
                str(self.builder.data_dir),
                f"files of {kind.value}",
                f"files of {tfds.core.FileFormat.TFRECORD.value}",
                "prepare it with file_format='tfrecord' into another data_dir, by the program that prepared it; or "
                "write a copy: tfds.dataset_builders.store_as_tfds_dataset",
            )
        self.full_name = self.identity = self.builder.info.full_name
        self.counts = {name: split.num_examples for name, split in self.builder.info.splits.items()}
        self.num_classes = checked(self.builder.info, dataset)
        target = self.builder.info.features[dataset.keys[dataset.examples.target]]
        names = getattr(target, "names", dataset.examples.features[dataset.examples.target].classes)
        self.class_names = tuple(names) if self.num_classes is not None else None

    def names_of(self, target: str) -> tuple[str, ...]:
        feature = self.builder.info.features[self.dataset.keys[target]]
        return tuple(getattr(feature, "names", None) or super().names_of(target))

    @classmethod
    def on_disk(cls, dataset: TfdsDataset) -> OnDisk:
        home = home_of(dataset)
        if home is None:
            return OnDisk()
        splits = _read(home / _INFO).get("splits", [])
        sizes = {of["name"]: (sum(map(int, of.get("shardLengths", []))), int(of.get("numBytes", 0))) for of in splits}
        return OnDisk(full_name=f"{dataset.name}/{home.name}", sizes=sizes)

    @classmethod
    def begin(cls, dataset: TfdsDataset) -> None:
        if dataset.name == SAMPLE_NAME and dataset.download and home_of(dataset) is None:
            from etlrun.sources.sample.draw import begin

            begin()

    def split(self, name: str, where: str) -> Split:
        from etlrun.sources.content import Shard

        try:
            instructions = self.builder.info.splits[name].file_instructions
        except (KeyError, ValueError, AssertionError) as error:
            raise self.unknown_split(name, where) from error
        shards = []
        for of in instructions:
            take = of.examples_in_shard - of.skip if of.take == -1 else of.take
            shards.append(Shard(path=self._path(str(of.filename)), skip=of.skip, take=take))
        split = Split(source=self, name=name, shards=tuple(shards))
        if not split.num_examples:
            raise self.empty(name, (), where)
        if self.copies is None:
            all_there(split)
        return split

    def _path(self, path: str) -> str:
        """Return the path of a shard, or of its copy, which may be fetched later."""
        if self.copies is None:
            return path
        name, mirror = Path(path).name, self._mirror
        if name not in mirror.objects:
            raise self.unreadable(f"{mirror.url}/{name}", os.strerror(errno.ENOENT))
        return self.copies.path(mirror.objects[name])

    def remedy_of(self, path: str) -> str:
        if self.dataset.urls:
            return "write all shards there"
        return f"remove {Path(path).parent} and run again, so that the dataset is prepared again"


def home_of(dataset: TfdsDataset) -> Path | None:
    """Return the folder of the newest version that matches; None if there is none."""
    found = [path for path in homes_of(dataset) if fnmatch(path.name, dataset.version or "*")]
    return found[-1] if found else None


def homes_of(dataset: TfdsDataset) -> list[Path]:
    """Return the folders of all versions that are prepared, the newest last."""
    if dataset.urls:
        from etlrun.sources.shards import mirror_of

        try:
            return [mirror_of(dataset).folder]
        except EtlrunError:
            return []
    home = dataset.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    folder = Path(home).expanduser() / dataset.name
    try:
        found = [str(path.parent) for path in folder.glob(f"*/{_INFO}")]
    except OSError:
        return []
    return [*map(Path, versions_in(found).values())]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _require_metadata(dataset: TfdsDataset) -> None:
    """Raise `WorldError` if the metadata of a prepared dataset are damaged, which TFDS fails to parse."""
    home = home_of(dataset)
    if home is None or _read(home / _INFO):
        return
    raise WorldError(
        str(home / _INFO),
        "metadata that are damaged, or can't be read",
        "the JSON that TFDS writes of a prepared dataset",
        f"copy the file again from where the dataset was prepared, or remove {home}, to prepare it again",
    )


def open_builder(dataset: TfdsDataset) -> Any:
    """Return TFDS's builder of `dataset`; raise `WorldError` if there is none."""
    if dataset.urls:
        from etlrun.sources.shards import mirror_of

        return tfds.builder_from_directory(mirror_of(dataset).folder)
    name = f"{dataset.name}:{dataset.version}" if dataset.version else dataset.name
    data_dir = str(Path(dataset.data_dir).expanduser()) if dataset.data_dir else None
    if data_dir is None and is_remote(str(tfds.core.constants.DATA_DIR)):
        raise WorldError(
            "TFDS_DATA_DIR",
            str(tfds.core.constants.DATA_DIR),
            "a folder on this machine",
            f"set dataset.data_dir={tfds.core.constants.DATA_DIR}, which fetches what is prepared there",
        )
    _require_metadata(dataset)
    try:
        home = home_of(dataset) if dataset.version not in (None, "experimental_latest") else None
        if home is not None and (home / "features.json").is_file():
            return tfds.builder_from_directory(home)
        if dataset.name == SAMPLE_NAME:
            from etlrun.sources.sample.builder import EtlrunSample  # derived from a class of TFDS

            return EtlrunSample(data_dir=data_dir, version=dataset.version)
        return tfds.builder(name, data_dir=data_dir)
    except ImportError as error:
        raise needs_package(dataset, error) from error
    except (tfds.core.DatasetNotFoundError, AssertionError, ValueError) as error:
        if dataset.version is not None and (homes := homes_of(dataset)):
            versions = ", ".join(path.name for path in homes)
            raise WorldError(
                dataset.key("version"),
                f"{dataset.version}, which is not in {homes[0].parent}",
                f"a version that is prepared: {versions}",
                f"set dataset.version={homes[-1].name}, or null for the newest",
            ) from error
        known = tfds.list_builders(with_community_datasets=False)
        check = "dataset.name, dataset.version and dataset.data_dir"
        raise WorldError(
            dataset.key("name"),
            f"{name} in {data_dir or tfds.core.constants.DATA_DIR}: {headline(error)}",
            "a dataset known to TFDS, or its files in dataset.data_dir",
            did_you_mean(dataset.name, known, "{}", otherwise=f"check {check}"),
        ) from error
