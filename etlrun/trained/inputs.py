"""What a model is asked to predict: images, the rows of tables or arrays, or a split; without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from etlrun.record.summary import SUMMARY
from etlrun.stages.dataset import Dataset
from etlrun.stages.paths import with_secrets
from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, printable
from etlrun.system.loading import load_tensorflow
from etlrun.trained.load import Trained, trained
from etlrun.trained.paths import Found, found, is_override

if TYPE_CHECKING:
    from etlrun.trained.numbered import Pass
    from etlrun.trained.tables import Rows as Tables

OnCorrupt = Literal["raise", "skip"]
_NAMED = 5
_OF_FILES = tuple(f"{Dataset.path}.{name}=" for name in ("errors", "storage", "csv"))
"""Starts of the overrides of a dataset that hold for files that are named, too."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the model of a run is asked to predict.

    Attributes:
        run: The run.
        images: Image files; None if there are tables or a split instead.
        tables: Paths of tables or arrays; empty if there are images or a split instead.
    """

    run: Trained
    images: Found | None
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

    def opened(self) -> Tables | None:
        """Return the rows of the tables, for which TensorFlow is imported; None if there are no tables."""
        if not self.tables:
            return None
        load_tensorflow()
        from etlrun.trained.tables import opened

        return opened(self.run, self.tables)

    def reading(self, model: Any) -> Pass:
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
        are_images = bool(paths) and not takes_rows and (run is not None or not any(map(_is_table, paths)))
        images = found(paths, run.storage if run else {}, skips=on_corrupt == "skip") if are_images else None
    except EtlrunError as error:
        found_faults += error.faults
        is_config = False
    if run is not None and paths:
        found_faults += unfit_for_rows(on_corrupt) if takes_rows else unfit_for_files(run)
    if found_faults or run is None:
        raise ConfigError(found_faults) if is_config else EtlrunError(found_faults)
    return Inputs(run=run, images=images, tables=paths if takes_rows else [])


def _is_table(path: str) -> bool:
    from etlrun.sources.rows.table import has_format  # imports Arrow

    return has_format(path)


def _faults(folder: Path, paths: Sequence[str], words: Sequence[str]) -> Iterator[Fault]:
    of_dataset = [word for word in words if word.startswith(Dataset.path) and not word.startswith(_OF_FILES)]
    if not paths and not of_dataset and not (folder / SUMMARY).is_file():
        remedy = f"name the run: etlrun predict RUN {quote(str(folder))}"
        yield fault("RUN", f"{folder} alone", "a run before what it is to predict", remedy)
    elif not paths and not of_dataset:
        found, expected = "no images to predict", "image files, folders of them, or dataset.split=SPLIT"
        yield Fault(where="PATH", found=found, expected=expected, remedy="name some")
    if paths and of_dataset:
        found, remedy = f"{paths[0]}, and {of_dataset[0]}", "leave one out"
        yield Fault(where="PATH", found=found, expected="either paths or a dataset", remedy=remedy)


def unfit_for_files(run: Trained) -> Iterator[Fault]:
    """Yield the fault of a run whose model takes more than a single image."""
    if not run.takes_images:
        flow = run.then.spec.dataset.examples
        expected = "a model of a single image, or dataset.split=SPLIT"
        yield Fault(where="PATH", found=f"images for a model of {', '.join(flow.inputs)}", expected=expected)


def unfit_for_rows(on_corrupt: OnCorrupt) -> Iterator[Fault]:
    """Yield the fault of rows that are to be skipped."""
    if on_corrupt == "skip":
        expected, remedy = "raise with tables, all of whose rows are predicted", "leave it out"
        yield Fault(where="--on-corrupt", found="skip", expected=expected, remedy=remedy)
