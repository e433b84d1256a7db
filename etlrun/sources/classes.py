"""Classes of a dataset by their names: their order, and what is wrong with them."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from etlrun.system.errors import Fault, fault, printable

TWO = "a folder for each of at least two classes"
_NAMED = 5


class Labelled(Protocol):
    """An image with a class."""

    @property
    def label(self) -> str:
        """Name of its class."""


def ordered_classes(labels: set[str]) -> list[str]:
    """Return the classes of these labels, sorted; by number if all of them are integers."""
    are_numbers = all(name.isascii() and name.removeprefix("-").isdecimal() for name in labels)
    return sorted(labels, key=(lambda name: (int(name), name)) if are_numbers else None)


def class_faults(
    where: Path,
    classes: Sequence[str],
    found: Mapping[str, Sequence[Labelled]],
    within: Mapping[str, set[str]] | None = None,
    noun: str = "image",
) -> Iterator[Fault]:
    """Yield the faults of the classes of a dataset as a whole.

    `within` names what is in each folder of a class; `noun` is what an example is in messages.
    """
    if len(classes) < 2:  # noqa: PLR2004 - a class and another
        yield _one_class(where, classes, within or {}, noun)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        alike[" ".join(unicodedata.normalize("NFC", name).casefold().split())].append(name)
    for names in alike.values():
        if len(names) > 1:
            is_case = len({name.casefold() for name in names}) == 1
            named = " and ".join(names if is_case else map(ascii, names))
            how = "case" if is_case else "blanks, case or Unicode normalization"
            yield fault(
                where,
                f"the classes {named}, which differ in {how} alone",
                "names that differ on every file system",
                "merge or rename them",
            )
    training = next((name for name in found if name.lower().startswith("train")), None)
    trained = {image.label for image in found.get(training or "", [])}
    for name, images in found.items() if training else ():
        unknown = sorted({image.label for image in images} - trained)
        if unknown:
            yield fault(
                where / name,
                f"{listed_names(unknown)}, not in {training}",
                "classes of the training split",
                f"rename them, or add training {noun}s",
            )


def _one_class(where: Path, classes: Sequence[str], within: Mapping[str, set[str]], noun: str) -> Fault:
    """Return the fault of fewer than two classes; folders in that of the class may be those that are meant."""
    found = f"{noun}s of one class, {printable(classes[0])}" if classes else f"no {noun}s"
    inner = set.union(*within.values()) if within else set()
    if len(inner) < 2 or "" in inner:  # noqa: PLR2004 - a class and another
        return fault(where, found, TWO, "name the folder above those of the classes")
    name, *others = within
    found += f", in the folders {listed_names(sorted(inner))}"
    if "/" in name or others:
        return fault(where, found, TWO, f"move the folders that are in {name} one folder up, if these are the classes")
    return fault(where, found, TWO, f"name the folder {where / name}, if these are the classes")


def note_of_numbers(classes: Sequence[str]) -> Iterator[str]:
    """Yield the note on classes that other programs number in another order."""
    if sorted(classes) != [*classes]:
        yield (
            f"Classes are in the order of their numbers: {listed_names(classes)}. Programs that sort them as text have "
            "another order."
        )


def listed_names(names: Sequence[str]) -> str:
    """Return the first of these names, for a message."""
    return ", ".join(map(printable, names[:_NAMED])) + (" …" if names[_NAMED:] else "")
