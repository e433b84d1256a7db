"""Files that commands on a run read and write: images, tables and arrays, new files and folders; without TensorFlow."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from etlrun.cache.store import folder_of
from etlrun.record.summary import SUMMARY
from etlrun.remote.copies import Copies, copied
from etlrun.remote.objects import Object, Storage, UnreachableError, list_objects
from etlrun.remote.transfers import put_all, there
from etlrun.sources.listing import SUFFIXES, below
from etlrun.stages.dataset import Dataset
from etlrun.stages.paths import is_remote, with_secrets, without_secrets
from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, printable, unreadable_path
from etlrun.system.loading import load_tensorflow
from etlrun.system.values import frozen
from etlrun.trained.load import Trained, trained

if TYPE_CHECKING:
    from etlrun.trained.predict import EvaluationPass
    from etlrun.trained.tables import TableRows


_MOST_DECODED = 1_000
"""Images that are decoded to tell of those that can't be, beside other faults."""


@frozen
class ImagePaths:
    """Image files.

    Attributes:
        files: Their paths as they were named, each file once, in the order of the command line; those of a folder or
            of a pattern of URLs in the order of their names. Of a URL it is the path of its copy.
        ignored: Paths of files in folders whose suffix is not that of an image.
        again: Number of paths that were named again.
        no_files: Why some of the files can't be read, by their paths: see `Images`.
    """

    files: tuple[str, ...]
    ignored: tuple[str, ...]
    again: int
    no_files: Mapping[str, str]


def is_override(word: str) -> bool:
    """Return whether an argument is an override such as `dataset.split=test`, and no path."""
    return re.match(r"[+~]*[A-Za-z_][\w.]*=", word) is not None and not os.path.lexists(word)


def found(words: Sequence[str], storage: Storage | None = None, *, skips: bool = False) -> ImagePaths:
    """Return the images that these files, folders and URLs are; raise `EtlrunError` with all faults.

    Objects of URLs are fetched first, into the user's cache folder; `storage` is how their store is reached.
    What can't be read in a folder, such as a link to a file that is gone, is no fault if the command `skips` it.
    """
    faults: list[Fault] = []
    ignored: list[str] = []
    no_files: dict[str, str] = {}
    files: dict[str, str] = {}
    named = 0
    copies = _fetched([word for word in words if is_remote(word)], storage or {}, faults)
    for word in words:
        for path in copies[word] if is_remote(word) else _images(word, faults, ignored, no_files):
            named += 1
            files.setdefault(os.path.abspath(path), path)  # noqa: PTH100 - of a path that keeps its links
    if words and not files and not faults:
        kinds, what = ", ".join(SUFFIXES), f"no image in {', '.join(words)}"
        faults.append(fault("PATH", what, f"files with {kinds}", "check the paths"))
    remedy = "leave it out, or pass --on-corrupt skip"
    faults += [] if skips else [fault(path, why, "an image", remedy) for path, why in no_files.items()]
    if faults:
        images = [] if skips else [path for path in files.values() if path not in no_files][:_MOST_DECODED]
        raise EtlrunError([*faults, *(_unusable(images, remedy) if images else [])])
    return ImagePaths(files=(*files.values(),), ignored=tuple(ignored), again=named - len(files), no_files=no_files)


def _unusable(paths: Sequence[str], remedy: str) -> Iterator[Fault]:
    """Yield the faults of images that can't be decoded, to be told together with those of the arguments."""
    load_tensorflow()
    from etlrun.sources.corrupt import problem

    for path in paths:
        try:
            found = problem(Path(path).read_bytes())
        except OSError as error:
            yield unreadable_path(path, error, "an image")
            continue
        if found is not None:
            yield fault(path, found.reason, found.expected, remedy)


def _images(word: str, faults: list[Fault], ignored: list[str], no_files: dict[str, str]) -> Sequence[str]:
    path = Path(word).expanduser()
    if path.is_dir():
        return [*below(path, faults, ignored, no_files)]
    if not path.exists():
        what = "a broken link" if path.is_symlink() else "no such file or folder"
        faults.append(fault(word, what, "an image, a folder of images, or KEY=VALUE", "check the path"))
    elif not path.is_file():
        faults.append(fault(word, "neither a file nor a folder", "an image, or a folder of images", ""))
    elif other := _other(word, path.name):
        faults.append(other)
    else:
        return [str(path)]
    return []


def _other(where: str, name: str) -> Fault | None:
    """Return the fault of a file whose suffix is not that of an image; None if it is."""
    if name.lower().endswith(SUFFIXES):
        return None
    kinds, remedy = f"a file with {', '.join(SUFFIXES)}", "convert it to JPEG or PNG, or leave it out"
    return fault(where, f"a file with the suffix '{Path(name).suffix}'", kinds, remedy)


def _fetched(urls: Sequence[str], storage: Storage, faults: list[Fault]) -> dict[str, list[str]]:
    """Return the paths of the copies of the images that each URL names; none if there are faults, which are added."""
    named: dict[str, tuple[Object, ...]] = {}
    for url in urls:
        try:
            named[url] = list_objects(url, storage)
        except UnreachableError as error:
            faults += error.faults
            continue
        faults += [] if named[url] else [fault(url, "no object", "a URL, or a pattern of URLs, of images", "check it")]
    objects = {of.url: of for each in named.values() for of in each}
    faults += [other for of in objects.values() if (other := _other(of.url, of.name)) is not None]
    if faults:
        return {url: [] for url in urls}
    paths = copied(objects, Copies(folder_of(None), storage))
    return {url: [paths[of.url] for of in each] for url, each in named.items()}


OnCorrupt = Literal["raise", "skip"]
_NAMED = 5
_OF_FILES = tuple(f"{Dataset.path}.{name}=" for name in ("errors", "storage", "csv"))
"""Starts of the overrides of a dataset that hold for files that are named, too."""


@frozen
class Inputs:
    """What the model of a run is asked to predict.

    Attributes:
        run: The run.
        images: Image files; None if there are tables or a split instead.
        tables: Paths of tables or arrays; empty if there are images or a split instead.
    """

    run: Trained
    images: ImagePaths | None
    tables: list[str]

    def notes(self) -> Iterator[str]:
        """Yield what is left out of the images."""
        ignored, again = (self.images.ignored, self.images.again) if self.images else ((), 0)
        if ignored:
            named = ", ".join(printable(path) for path in ignored[:_NAMED]) + (", …" if ignored[_NAMED:] else "")
            count = "1 file" if len(ignored) == 1 else f"{len(ignored):,} files"
            verb = "is" if len(ignored) == 1 else "are"
            yield f"{count} without the suffix of an image {verb} left out: {named}."
        if again:
            yield f"{'1 path is' if again == 1 else f'{again:,} paths are'} named again, and predicted once."

    def opened(self) -> TableRows | None:
        """Return the rows of the tables, for which TensorFlow is imported; None if there are no tables."""
        if not self.tables:
            return None
        load_tensorflow()
        from etlrun.trained.tables import opened

        return opened(self.run, self.tables)

    def reading(self, model: Any) -> EvaluationPass:
        """Return the pass over the images, or over the split."""
        from etlrun.trained.predict import of_files, of_split  # import TensorFlow

        if self.images is not None:
            return of_files(self.run, self.images.files, self.images.no_files)
        return of_split(self.run, model)


def inputs_of(
    folder: Path,
    given: Sequence[str],
    on_corrupt: OnCorrupt = "raise",
    faults: Sequence[Fault] = (),
    epoch: str | None = None,
) -> Inputs:
    """Return what paths and overrides ask the model of the run in `folder` to predict.

    Raises:
        EtlrunError: With all faults of them and of the run, behind those that are given.
    """
    paths = [word for word in given if not is_override(word)]
    words = [word for word in given if is_override(word)]
    if told := [*with_secrets(paths)]:
        raise ConfigError([fault("PATH", *of) for of in told])
    found_faults, run, images = [*_faults(folder, paths, words), *faults], None, None
    is_config = True
    try:
        run = trained(folder, [f"dataset.on_corrupt={on_corrupt}", *words], reads_split=not paths, epoch=epoch)
    except EtlrunError as error:
        found_faults += error.faults
        is_config = isinstance(error, ConfigError)
    takes_rows = run is not None and isinstance(run.then.spec.dataset, Rows)
    try:
        are_images = bool(paths) and not takes_rows
        if run is None and paths:
            from etlrun.sources.rows.table import has_format  # imports Arrow

            are_images = not any(map(has_format, paths))
        images = found(paths, run.storage if run else {}, skips=on_corrupt == "skip") if are_images else None
    except EtlrunError as error:
        found_faults += error.faults
        is_config = False
    if run is not None and paths:
        found_faults += unfit_for_rows(on_corrupt) if takes_rows else unfit_for_files(run)
    if found_faults or run is None:
        raise ConfigError(found_faults) if is_config else EtlrunError(found_faults)
    return Inputs(run=run, images=images, tables=paths if takes_rows else [])


def _faults(folder: Path, paths: Sequence[str], words: Sequence[str]) -> Iterator[Fault]:
    of_dataset = [word for word in words if word.startswith(Dataset.path) and not word.startswith(_OF_FILES)]
    if not paths and not of_dataset and not (folder / SUMMARY).is_file():
        remedy = f"name the run: etlrun predict RUN {quote(str(folder))}"
        yield fault("RUN", f"{folder} alone", "a run before what it is to predict", remedy)
    elif not paths and not of_dataset:
        found, expected = "no images to predict", "image files, folders of them, or dataset.split=SPLIT"
        yield Fault("PATH", found, expected, "name some")
    if paths and of_dataset:
        found, remedy = f"{paths[0]}, and {of_dataset[0]}", "leave one out"
        yield Fault("PATH", found, "either paths or a dataset", remedy)


def unfit_for_files(run: Trained) -> Iterator[Fault]:
    """Yield the fault of a run whose model takes more than a single image."""
    if not run.takes_images:
        flow = run.then.spec.dataset.examples
        expected = "a model of a single image, or dataset.split=SPLIT"
        yield Fault("PATH", f"images for a model of {', '.join(flow.inputs)}", expected)


def unfit_for_rows(on_corrupt: OnCorrupt) -> Iterator[Fault]:
    """Yield the fault of rows that are to be skipped."""
    if on_corrupt == "skip":
        expected, remedy = "raise with tables, all of whose rows are predicted", "leave it out"
        yield Fault("--on-corrupt", "skip", expected, remedy)


OUTPUT = "--output"
NEW_FILE, NEW_FOLDER = "a new file", "a new folder"


def faults_of(output: str, what: str) -> Iterator[Fault]:
    """Yield why nothing can be written to `output`: something is there, or its store can't be written to.

    `what` is `NEW_FILE` or `NEW_FOLDER`.
    """
    if secrets := [*with_secrets([output])]:
        yield from (fault(OUTPUT, *found) for found in secrets)
        return
    if is_remote(output) and output.endswith("/") and what == NEW_FILE:
        yield fault(OUTPUT, f"{without_secrets(output)}, the URL of a folder", f"that of {what}", "add the file's name")
        return
    try:
        is_taken = there(output, {}) if is_remote(output) else os.path.lexists(output)
    except UnreachableError as error:
        yield from error.faults
        return
    if is_taken:
        yield taken(output, what)


def taken(output: object, what: str) -> Fault:
    """Return the fault of an output that is there already; `what` is `NEW_FILE` or `NEW_FOLDER`."""
    expected, remedy = f"{what}, so that nothing is overwritten", f"choose another {OUTPUT}, or remove it"
    return fault(OUTPUT, f"{output}, which exists", expected, remedy)


@contextmanager
def placed(output: str, last: str = "") -> Iterator[Path]:
    """Yield the path to which a file or a folder is to be written; for a URL one on this machine, published afterwards.

    Of a folder the file `last` is published last. What can't be published stays on this machine.

    Raises:
        UnreachableError: The store refuses it, or does not answer.
    """
    if not is_remote(output):
        yield Path(output)
        return
    folder = Path(tempfile.mkdtemp(prefix="etlrun-"))
    path = folder / (PurePosixPath(output).name or "output")
    is_kept = False
    try:
        yield path
        try:
            put_all([*_files(path, output, last)], {})
        except UnreachableError as error:
            is_kept = True
            (of,) = error.faults
            remedy = f"{of.remedy}; what was to be written is {path}"
            raise UnreachableError(of.where, of.found, of.expected, remedy) from error
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _files(path: Path, url: str, last: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder with their URLs, or the only one."""
    if path.is_file():
        yield path, url
        return
    names = [of.relative_to(path).as_posix() for of in path.rglob("*") if of.is_file()]
    for name in sorted(names, key=lambda name: (name == last, name)):
        yield path / name, f"{url.rstrip('/')}/{name}"
