"""Layout of a folder or an archive of images: which of its folders are splits and classes, by their names alone."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etlrun.sources.classes import TWO, class_faults, listed_names, note_of_numbers, ordered_classes
from etlrun.system.errors import Fault, fault, printable

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp")
"""Suffixes of files that TensorFlow decodes, in lower case."""
OTHER_IMAGES = (".heic", ".heif", ".avif", ".tif", ".tiff", ".jxl", ".jp2", ".dng", ".nef", ".cr2", ".arw")
"""Suffixes of other images, in lower case."""
SPLITS = ("train", "training", "validation", "valid", "val", "test", "testing")
"""Names of folders that are splits if they hold folders, in lower case."""
WHOLE = "train"
"""Name of the split of a folder that is not divided."""
LEFT_BY_SYSTEMS = {
    "thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "@__thumb", "#recycle", "@recycle", "#snapshot",
    "@recently-snapshot", "$recycle.bin", "system volume information", "lost+found", "lost.dir",
}  # fmt: skip
"""Names of what systems and network storage leave in folders, in lower case."""
_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev", "eval"),
    "test": ("test", "testing"),
}
"""Words by which the names of folders say of which split they are, as in `seg_train` and `TestSet2`."""
_LABELLED = re.compile(r"(.*?[^\W\d_])[\W_]*\d+[\W_]*")
"""Name of a file, without its suffix, that begins with what may be its class: `cat.0`, `cat_12`, `cat (3)`."""
_LIST = "write a list with the columns path and label, and prepare it: python -m etlrun prepare LIST.csv"


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A kind of files that are examples.

    Attributes:
        noun: What one of them is called.
        suffixes: Suffixes of those that are read, in lower case.
        others: Suffixes of those that have to be converted, in lower case.
        otherwise: What else can be done about files in no folder of a class; empty for nothing.
    """

    noun: str
    suffixes: tuple[str, ...]
    others: tuple[str, ...] = ()
    otherwise: str = ""


IMAGES = FileKind(noun="image", suffixes=SUFFIXES, others=OTHER_IMAGES, otherwise=f"; or {_LIST}")
TEXTS = FileKind(noun="text", suffixes=(".txt",))


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """An image file, or another one of a class.

    Attributes:
        path: Path relative to the folder of the dataset, with slashes.
        label: Name of its class.
    """

    path: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Splits and classes of images.

    Attributes:
        splits: Images of each split by name, in the order in which they were given.
        classes: Names of the classes: the index of a class is its place.
        outside: Paths of images that are in no folder of a class.
        notes: What a reader may not expect of the classes, a sentence each.
        faults: What is wrong with the layout.
    """

    splits: Mapping[str, Sequence[ImageFile]]
    classes: tuple[str, ...]
    outside: tuple[str, ...]
    notes: tuple[str, ...]
    faults: tuple[Fault, ...]


def laid_out(
    where: Path, images: Sequence[str], folders: Iterable[str], others: Sequence[str], kind: FileKind = IMAGES
) -> Layout:
    """Return the splits and classes of images: a folder named like a split is one if it holds folders.

    All paths are relative, with slashes: those of `images`, of the `folders` around them, and of `others`, which are
    files that are not read. `where` is the folder or the archive, and `kind` what `images` are, for messages.
    """
    names = [*folders]
    tops = list(dict.fromkeys(name.partition("/")[0] for name in names))
    named = [top for top in tops if top.lower() in SPLITS]
    parents = {name.partition("/")[0] for name in names if "/" in name}
    divided = [top for top in named if top in parents]
    beside = [top for top in tops if top not in named]
    found: dict[str, list[ImageFile]] = {name: [] for name in divided or ([WHOLE] if beside else [])}
    outside: list[str] = []
    within: dict[str, set[str]] = defaultdict(set)
    for path in images:
        split, *parts = path.split("/") if divided else (WHOLE, *path.split("/"))
        if split not in found or len(parts) == 1:
            outside.append(path)
            continue
        found[split].append(ImageFile(path=path, label=parts[0]))
        within[f"{split}/{parts[0]}" if divided else parts[0]].add(parts[1] if parts[2:] else "")
    classes = tuple(ordered_classes({image.label for of in found.values() for image in of}))
    empty = _empty_classes(names, within, divided) if classes else []
    faults = [
        *_beside(where, divided, beside),
        *_unprintable(where, within),
        *(_empty(where, name, others, kind) for name in empty),
        *([] if divided else _splits_as_classes(where, within)),
    ]
    if not classes:
        faults.append(_unlabelled(where, divided or named, outside, others, kind))
    elif len(classes) > 1 or not faults:
        faults += class_faults(where, classes, found, within, kind.noun)
    notes = (*_nested(within, kind), *_like_splits(named, divided), *note_of_numbers(classes))
    return Layout(splits=found, classes=classes, outside=tuple(outside), notes=notes, faults=tuple(faults))


def _beside(where: Path, divided: Sequence[str], beside: Sequence[str]) -> Iterator[Fault]:
    if divided and beside:
        yield fault(
            where,
            f"the splits {', '.join(divided)} beside {', '.join(map(printable, beside))}",
            "either folders of splits, each with a folder for each class, or folders of classes",
            "move the other folders into a split",
        )


def _unprintable(where: Path, within: Iterable[str]) -> Iterator[Fault]:
    for name in within:
        if not name.isprintable():
            yield fault(
                where / name,
                "an unprintable character in the name of a class",
                "a name that a list of classes, one a line, can hold",
                "rename the folder",
            )


def _empty_classes(names: Iterable[str], within: Iterable[str], divided: Sequence[str]) -> list[str]:
    """Return the folders of classes without an example."""
    found = sorted(name for name in names if name.count("/") == bool(divided) and name not in within)
    return [name for name in found if not divided or name.partition("/")[0] in divided]


def _empty(where: Path, name: str, others: Sequence[str], kind: FileKind) -> Fault:
    """Return the fault of a folder of a class without files that are read."""
    kinds, has = ", ".join(kind.suffixes), _of_other_formats((of for of in others if of.startswith(f"{name}/")), kind)
    return fault(
        where / name,
        f"a class without {kind.noun}s{has and f', but with {has}'}",
        f"files with {kinds}",
        f"convert them: {conversion_of(where)}" if has else "remove the folder",
    )


def conversion_of(source: Path) -> str:
    """Return the command that prepares images of other formats, too."""
    return f"python -m etlrun prepare {shlex.quote(str(source))} --name NAME --convert"


def _of_other_formats(paths: Iterable[str], kind: FileKind) -> str:
    """Return how many of these files have to be converted to be read; empty if none has."""
    counts = Counter(suffix for path in paths if (suffix := Path(path).suffix.lower()) in kind.others)
    return " and ".join(f"{count:,} file{'s' * (count > 1)} of {suffix}" for suffix, count in sorted(counts.items()))


def _unlabelled(
    where: Path, splits: Sequence[str], outside: Sequence[str], others: Sequence[str], kind: FileKind
) -> Fault:
    """Return the fault of a folder without an example in the folder of a class."""
    expected = f"a folder for each class in {', '.join(splits)}" if splits else TWO
    if not outside:
        has = _of_other_formats(others, kind)
        remedy = f"convert them: {conversion_of(where)}" if has else "name the folder above those of the classes"
        return fault(where, f"no {kind.noun}s{has and f', but {has}'}", TWO, remedy)
    count = f"{len(outside):,} {kind.noun}{'s' * (len(outside) > 1)}"
    found = f"{count} in no folder of a class, such as {printable(outside[0])}"
    stems = {path: _LABELLED.fullmatch(Path(path).stem) for path in outside}
    begins = Counter(stem[1] for stem in stems.values() if stem)
    remedy = f"put them into folders that are named by their classes{kind.otherwise}"
    if len(begins) > 1 and len(outside) == sum(begins.values()) and min(begins.values()) > 1:
        stem = stems[outside[0]]
        target = Path(outside[0]).with_name(stem[1] if stem else "")
        remedy = f"if names begin with classes, move {outside[0]} into a folder {target}, and so on{kind.otherwise}"
    return fault(where, found, expected, remedy)


def _splits_as_classes(where: Path, within: Mapping[str, set[str]]) -> Iterator[Fault]:
    """Yield the fault of classes whose names are those of splits, and whose images are all in folders within them."""
    splits = {name: split for name, inner in within.items() if "" not in inner and (split := _split_of(name))}
    if "train" not in splits.values() or len({*splits.values()}) == 1:
        return
    moves = [f"{_sole(name, within)} to {split}" for name, split in sorted(splits.items())]
    yield fault(
        where,
        f"the classes {', '.join(map(printable, splits))}, which are splits by their names, and hold folders alone",
        f"folders of splits ({', '.join(SPLITS)}), each with a folder for each class",
        f"move {', '.join(moves)}",
    )


def _split_of(name: str) -> str:
    """Return of which split a folder is by a word of its name; empty if none says so."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    words = [re.sub(r"(?<=.)(set|data|images?)$", "", word) for word in words]
    return next((split for split, known in _SPLIT_WORDS.items() if {*known} & {*words}), "")


def _sole(name: str, within: Mapping[str, set[str]]) -> str:
    """Return the folder in that of a class that holds all of it, if there is one."""
    return f"{name}/{next(iter(within[name]))}" if len(within[name]) == 1 else name


def _nested(within: Mapping[str, set[str]], kind: FileKind) -> Iterator[str]:
    """Yield the note on classes all of whose examples are in folders of the same names."""
    classes = [name for name, inner in within.items() if "" not in inner]
    names = Counter(inner for name in classes for inner in within[name])
    shared = sorted(name for name, count in names.items() if count > 1)
    if len(shared) > 1:
        yield (
            f"The classes {listed_names(classes)} hold folders of the same names, {listed_names(shared)}: "
            f"{kind.noun}s have the class of the outer folder."
        )


def _like_splits(named: Sequence[str], divided: Sequence[str]) -> Iterator[str]:
    """Yield the note on classes that are named like splits."""
    if named and not divided:
        yield f"{listed_names(named)}: read as classes and not as splits, since these folders hold no folders."
