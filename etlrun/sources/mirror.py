"""Datasets of TFDS at URLs: their versions, and folders on this machine that look like those of one.

DIR/mirrors/KEY/NAME/VERSION/   copies of the metadata, and links to the copies of the shards, which are fetched later
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from etlrun.remote.copies import Copies
from etlrun.remote.objects import Object, Storage, UnreachableError, file_system, listed
from etlrun.remote.room import unwritable
from etlrun.sources.remote import copies_of
from etlrun.stages.dataset import TfdsDataset
from etlrun.system.errors import EtlrunError, WorldError

_INFO = "dataset_info.json"
_METADATA = (".json", ".txt")
"""Ends of the names of files that describe the dataset, or name its classes."""


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A version of a dataset at a URL.

    Attributes:
        url: URL of the version.
        folder: The folder on this machine.
        objects: Its files by name.
    """

    url: str
    folder: Path
    objects: Mapping[str, Object]


def mirror_of(dataset: TfdsDataset) -> Mirror:
    """Return the newest version that matches, as it was when it was first asked for; its metadata are fetched.

    Raises:
        EtlrunError: There is none, or its files can't be listed or read.
    """
    copies = copies_of(dataset)
    url, objects = _found(dataset.urls[0], dataset.name, dataset.version, dataset.storage or {})
    parts = [objects[name].key for name in sorted(objects)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
    folder = copies.folder.absolute().parent / "mirrors" / key / dataset.name / PurePosixPath(url).name
    if not (folder / _INFO).is_file():
        try:
            _make(folder, objects, copies)
        except OSError as error:
            raise unwritable(error, folder, sum(of.bytes for of in _described(objects)), url) from error
    return Mirror(url=url, folder=folder, objects=objects)


def _found(home: str, name: str, version: str | None, store: Storage) -> tuple[str, dict[str, Object]]:
    """Return the URL of a version, and its files by name."""
    family = f"{home.rstrip('/')}/{name}"
    homes = [of.url.rpartition("/")[0] for of in listed(f"{family}/*/{_INFO}", store)]
    versions = {url.rpartition("/")[2]: url for url in homes}
    known = [of for of in versions if re.fullmatch(r"\d+\.\d+\.\d+", of)]
    known.sort(key=lambda of: [int(number) for number in of.split(".")])
    fitting = [of for of in known if fnmatch(of, version or "*")]
    if not fitting:
        raise _none(family, name, version, known, store)
    url = versions[fitting[-1]]
    return url, {of.name: of for of in listed(f"{url}/*", store)}


def _none(family: str, name: str, version: str | None, known: list[str], store: Storage) -> EtlrunError:
    if known:
        return WorldError(
            TfdsDataset.key("version"),
            f"{version}, which is not in {family}",
            f"a version that is there: {', '.join(known)}",
            f"set dataset.version={known[-1]}, or null for the newest",
        )
    try:
        file_system(family, store).ls(family, detail=False)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise UnreachableError.of(family, error) from error
    return WorldError(
        TfdsDataset.key("data_dir"),
        f"no {family}/VERSION/{_INFO}",
        f"the folder above that of {name}, as TFDS and etlrun prepare write it",
        "check dataset.data_dir and dataset.name",
    )


def _described(objects: Mapping[str, Object]) -> list[Object]:
    return [of for name, of in objects.items() if name.endswith(_METADATA)]


def _make(folder: Path, objects: Mapping[str, Object], copies: Copies) -> None:
    """Make the folder, which appears whole."""
    described = _described(objects)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with closing(copies.ahead(described)) as ahead, tempfile.TemporaryDirectory(dir=folder.parent) as made:
        staged = Path(made) / folder.name
        staged.mkdir()
        for name, of in objects.items():
            if of in described:
                shutil.copyfile(ahead.take(of), staged / name)
                ahead.leave(of)
            else:
                (staged / name).symlink_to(Path(copies.path(of)).absolute())
        try:
            staged.rename(folder)
        except OSError:
            if not (folder / _INFO).is_file():  # that another process has made
                raise
