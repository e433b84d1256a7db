"""Files that commands on a run read and write: images, tables and arrays, new files and folders; without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from etlrun.record.summary import SUMMARY
from etlrun.sources.listing import SUFFIXES, below, conversion_of
from etlrun.stages.dataset import Dataset
from etlrun.stages.paths import is_remote, with_secrets, without_secrets
from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, first_few, printable, refuse
from etlrun.system.terminal import say_note
from etlrun.system.values import Block, frozen
from etlrun.trained.load import Trained, trained

if TYPE_CHECKING:
    from etlrun.trained.predict import Reading


_NAMED = 5
OnCorrupt = Literal["raise", "skip"]
_OF_FILES = tuple(f"{Dataset.path}.{name}=" for name in ("errors", "storage", "csv"))
"""Starts of the overrides of a dataset that hold for files that are named, too."""
OUTPUT = "--output"
NEW_FILE, NEW_FOLDER = "a new file", "a new folder"


class ImagePaths(NamedTuple):
    """Image files.

    Attributes:
        files: Their paths as they were named, in the order of the command line; those of a folder in the
            order of their names.
        no_files: Why some of the files can't be read, by their paths: see `Images`.
        notes: What is left out, a sentence each.
    """

    files: tuple[str, ...]
    no_files: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


def is_override(word: str) -> bool:
    """Return whether an argument is an override such as `dataset.split=test`, and no path."""
    return re.match(r"[+~]*[A-Za-z_][\w.]*=", word) is not None and not os.path.lexists(word)


def found(words: Sequence[str], *, skips: bool = False) -> ImagePaths:
    """Return the images that these files and folders are; raise `EtlrunError` with all faults.

    What can't be read in a folder, such as a link to a file that is gone, is no fault if the command `skips` it.
    """
    faults, ignored, no_files, files = list[Fault](), list[str](), dict[str, str](), list[str]()
    for word in words:
        files += _images(word, faults, ignored, no_files)
    if words and not files and not faults:
        kinds, what = ", ".join(SUFFIXES), f"no image in {', '.join(words)}"
        faults.append(fault("PATH", what, f"files with {kinds}", "check the paths"))
    if not skips:
        remedy = "leave it out, or pass --on-corrupt skip"
        faults += [fault(path, why, "an image", remedy) for path, why in no_files.items()]
    refuse(faults, EtlrunError)
    few = first_few([*map(printable, ignored)], _NAMED)
    notes = (f"Files without the suffix of an image are left out: {few}.",) if ignored else ()
    return ImagePaths((*files,), no_files, notes)


def _images(word: str, faults: list[Fault], ignored: list[str], no_files: dict[str, str]) -> Sequence[str]:
    path = Path(word).expanduser()
    if is_remote(word):
        faults.append(fault(word, "a URL", "images on this machine", "copy them here"))
    elif path.is_dir():
        return [*below(path, faults, ignored, no_files)]
    elif not path.exists():
        what = "a broken link" if path.is_symlink() else "no such file or folder"
        faults.append(fault(word, what, "an image, a folder of images, or KEY=VALUE", "check the path"))
    elif not path.is_file():
        faults.append(fault(word, "neither a file nor a folder", "an image, or a folder of images"))
    elif not path.name.lower().endswith(SUFFIXES):
        found, expected = f"a file with the suffix '{path.suffix}'", f"a file with {', '.join(SUFFIXES)}"
        faults.append(fault(word, found, expected, f"{conversion_of(word)}, or leave it out"))
    else:
        return [str(path)]
    return []


@frozen
class Inputs:
    """What the model of a run is asked to predict.

    Attributes:
        run: The run.
        images: Image files; None if there are tables or a split instead.
        tables: Paths of tables or arrays; empty if there are images or a split instead.
        rows: Rows in memory, instead of all these, which are kept in a new `folder`.
    """

    run: Trained
    images: ImagePaths | None = None
    tables: Sequence[str] = ()
    rows: Sequence[Block] = ()
    folder: Path = Path()

    def reading(self, model: Any) -> Reading:
        """Return the examples as the model takes them; `EtlrunError` for what it does not take."""
        from etlrun.trained.model import unchecked
        from etlrun.trained.predict import ImageFiles, of_plan, of_split, opened_rows  # import TensorFlow

        if self.tables or self.rows:
            return opened_rows(self.run, self.tables, self.rows, self.folder)
        if self.images is None:
            reading = of_split(self.run, model)
            if text := unchecked(self.run, reading.source):
                say_note(text)
            return reading
        source = ImageFiles(self.run.plan.spec.dataset, self.images.files, self.images.no_files)
        return of_plan(self.run.plan, source.whole)


def inputs_of(
    folder: Path,
    given: Sequence[str],
    on_corrupt: OnCorrupt = "raise",
    faults: Sequence[Fault] = (),
    epoch: str | None = None,
) -> Inputs:
    """Return what the model of a run is asked to predict, and note what is left out; `EtlrunError` with all faults."""
    paths = [word for word in given if not is_override(word)]
    words = [word for word in given if is_override(word)]
    refuse(fault("PATH", *of) for of in with_secrets(paths))
    found_faults, run, images = [*_faults(folder, paths, words), *faults], None, None
    is_config, takes_rows = True, False
    try:
        run = trained(folder, [f"dataset.on_corrupt={on_corrupt}", *words], reads_split=not paths, epoch=epoch)
        takes_rows = isinstance(run.then.spec.dataset, Rows)
    except EtlrunError as error:
        found_faults += error.faults
        is_config = isinstance(error, ConfigError)
        if paths:
            from etlrun.sources.rows.table import has_format  # imports Arrow

            takes_rows = any(map(has_format, paths))
    try:
        if paths and not takes_rows:
            images = found(paths, skips=on_corrupt == "skip")
    except EtlrunError as error:
        found_faults += error.faults
        is_config = False
    if run is not None and paths:
        found_faults += unfit_for_rows(on_corrupt) if takes_rows else unfit_for_files(run)
    refuse(found_faults, ConfigError if is_config else EtlrunError)
    assert run is not None  # noqa: S101 - for mypy
    for text in images.notes if images else ():
        say_note(text)
    return Inputs(run=run, images=images, tables=paths if takes_rows else ())


def _faults(folder: Path, paths: Sequence[str], words: Sequence[str]) -> Iterator[Fault]:
    of_dataset = [word for word in words if word.startswith(Dataset.path) and not word.startswith(_OF_FILES)]
    if not paths and not of_dataset and not (folder / SUMMARY).is_file():
        remedy = f"name the run: etlrun predict RUN {quote(str(folder))}"
        yield fault("RUN", f"{folder} alone", "a run, and then what it is to predict", remedy)
    elif not paths and not of_dataset:
        found, expected = "no images to predict", "image files, folders of them, or dataset.split=SPLIT"
        yield Fault("PATH", found, expected)
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


def faults_of(output: str, what: str) -> Iterator[Fault]:
    """Yield why `what`, `NEW_FILE` or `NEW_FOLDER`, can be no `output`: something is there, or it is a URL."""
    if is_remote(output):
        yield fault(OUTPUT, without_secrets(output), f"{what} on this machine", "write here, and copy it there")
    elif os.path.lexists(output):
        yield taken(output, what)


def taken(output: object, what: str) -> Fault:
    """Return the fault of an output that is there already; `what` is `NEW_FILE` or `NEW_FOLDER`."""
    expected, remedy = f"{what}, so that nothing is overwritten", f"choose another {OUTPUT}, or remove it"
    return fault(OUTPUT, f"{output}, which exists", expected, remedy)
