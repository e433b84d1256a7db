"""Choice of the reader for a source: a folder, a list, an archive or TFRecords."""

from __future__ import annotations

import zipfile
from pathlib import Path

from etlrun.datasets.prepare import files, lists
from etlrun.datasets.prepare.archives import Tar, Zip
from etlrun.datasets.prepare.convert import converted, require_heic, suffixes
from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.records import Records
from etlrun.datasets.prepare.source import Source
from etlrun.datasets.prepare.tars import is_tar
from etlrun.system.errors import EtlrunError, fault

_KINDS = f"a folder of classes, a list ({' or '.join(lists.SUFFIXES)}), an archive (.zip, .tar, .tar.gz), or TFRecords"


def opened(options: Options) -> Source:
    """Return the images of the source; raise `EtlrunError` with all of its faults."""
    source = _opened(options)
    if options.converts:
        require_heic([entry.path for entry in source.entries])
        source.convert = converted
    return source


def _opened(options: Options) -> Source:
    path = Path(options.source).expanduser().absolute()
    if options.features is not None:
        return Records(str(path), options.features, skips_corrupt=options.skips_corrupt)
    if path.is_dir():
        _require_apart(path, options)
        return files.of_folder(path, suffixes(converts=options.converts))
    if not path.is_file():
        remedy = "add --features image=KEY,label=KEY for a pattern of TFRecords, or check the path"
        raise EtlrunError(
            [fault(path, "neither a file nor a folder" if path.exists() else "no such file or folder", _KINDS, remedy)]
        )
    if path.suffix.lower() in lists.SUFFIXES:
        return lists.of_list(path)
    if zipfile.is_zipfile(path):
        return Zip(path, suffixes(converts=options.converts))
    if is_tar(path):
        return Tar(path, suffixes(converts=options.converts))
    remedy = "add --features image=KEY,label=KEY if these are TFRecords; download or pack a damaged archive again"
    raise EtlrunError([fault(path, "a file of another kind", _KINDS, remedy)])


def _require_apart(folder: Path, options: Options) -> None:
    """Refuse to write into the source."""
    if options.url is None and options.family.resolve().is_relative_to(folder.resolve()):
        raise EtlrunError(
            [
                fault(
                    "--data-dir",
                    f"{options.data_dir}, in the source",
                    "a folder outside of it",
                    "choose another --data-dir",
                )
            ]
        )
