"""Data of a command beside that of the training: whether it is the same, and whether its classes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etlrun.stages.dataset import Dataset, TFRecords
from etlrun.stages.rows import FileRows, TextFolder
from etlrun.trained.load import Trained
from etlrun.trained.model import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etlrun.sources.base import Source  # imports TensorFlow
    from etlrun.trained.numbered import Pass


@dataclass(frozen=True, kw_only=True)
class First:
    """The first example of a class, in the order of the data.

    Attributes:
        name: Name of the class in the order of the model's outputs.
        place: Path of the file of the example, and its record there.
        image: Its encoded image, for the page alone; None where an example has no single one.
    """

    name: str
    place: str
    image: bytes | None


def data_of(dataset: Dataset, source: Source) -> str:
    """Return the name of a dataset that no other one has: of files the whole patterns, of texts the whole folder."""
    if isinstance(dataset, TFRecords | FileRows):
        return ", ".join(dict.fromkeys(of for several in dataset.patterns.values() for of in several))
    return dataset.folder if isinstance(dataset, TextFolder) else source.full_name


def is_of_run(run: Trained, source: Source) -> bool:
    """Return whether the dataset of the command is that of the training."""
    names = [data_of(planned.spec.dataset, source) for planned in (run.plan, run.then)]
    return source.full_name == run.summary.dataset.name and names[0] == names[1]


def unchecked(run: Trained, source: Source) -> str:
    """Return that a dataset may have the classes of the model in another order; empty if their names tell."""
    flow = run.then.spec.dataset.examples
    if not flow.features[flow.target].is_class or is_of_run(run, source):
        return ""
    unnamed = [
        whose
        for whose, names in ((data_of(run.plan.spec.dataset, source), source.class_names), ("the run", run.class_names))
        if names is None or names == tuple(map(str, range(len(names))))
    ]
    if not unnamed:
        return ""
    names = run.class_names or source.class_names or ()
    which = f", which are {listed(names)}" if names else ""
    return (
        f"The classes of {' and of '.join(unnamed)} have no names: whether the data has them in the order of the "
        f"model's outputs{which}, can't be checked."
    )


def firsts(
    reading: Pass, targets: npt.NDArray[Any], numbers: npt.NDArray[np.int64], names: Sequence[str]
) -> Iterator[First]:
    """Yield the first example of each class that occurs; `targets` are those of `numbers`."""
    for label, name in enumerate(names):
        of_class = numbers[targets == label]
        if len(of_class):
            number = int(of_class.min())
            yield First(name=name, place=reading.place(number), image=reading.image(number))
