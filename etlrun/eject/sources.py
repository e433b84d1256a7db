"""Text of where a program's examples come from: TFDS, a folder of images, or TFRecord files."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import singledispatch

from etlrun.eject.text import call, function, mapping, path, quoted
from etlrun.sources.classes import ordered_classes
from etlrun.sources.layout import LEFT_BY_SYSTEMS, SPLITS, SUFFIXES, WHOLE
from etlrun.sources.listing import DIGITS, SHARDS
from etlrun.sources.slices import slices
from etlrun.stages.dataset import SAMPLE_NAME, Dataset, Folder, TfdsDataset, TFRecords

_SUFFIXES = ", ".join(map(quoted, SUFFIXES))
_SLICES = inspect.getsource(slices).rstrip()
_ORDER = inspect.getsource(ordered_classes).rstrip()
_COUNT = function(
    "count_of(path: str) -> int",
    "Count the records of a file.",
    "count = place = 0",
    'with pathlib.Path(path).open("rb") as file:',
    "    while length := os.pread(file.fileno(), 8, place):",
    '        count, place = count + 1, place + int.from_bytes(length, "little") + 16',
    "return count",
)
_PARTS_OF_FILES = function(
    "parts_of(split: str) -> list[types.SimpleNamespace]",
    "Return the files of `split`, each with the records to skip and to take.",
    "paths = {name: sorted(glob.glob(of, recursive=True)) for name, of in FILES.items()}  # noqa: PTH207",
    "files = {name: {path: count_of(path) for path in of} for name, of in paths.items()}",
    "found = []",
    "for name, first, end in slices(split, {name: sum(counts.values()) for name, counts in files.items()}):",
    "    before = 0",
    "    for path, count in files[name].items():",
    "        skip, until = max(first - before, 0), min(end - before, count)",
    "        if until > skip:",
    "            found.append(types.SimpleNamespace(filename=path, skip=skip, take=until - skip))",
    "        before += count",
    "return found",
    decorator="@functools.cache",
)
_SHOWN = function(
    "folders_in(path: pathlib.Path) -> list[pathlib.Path]",
    "Return the folders in a folder, without hidden ones and those of systems.",
    "systems = {",
    *(f"    {quoted(name)}," for name in sorted(LEFT_BY_SYSTEMS)),
    "}",
    'shown = (of for of in path.iterdir() if not of.name.startswith(".") and of.name.lower() not in systems)',
    "return [of for of in shown if of.is_dir()]",
)
_IMAGES = function(
    "images() -> dict[str, list[tuple[str, pathlib.Path]]]",
    "Return the class and the path of each image, by split, in the order of the SHA-256 of the paths.",
    "folder = pathlib.Path(DIR).absolute()",
    f"names = {{{', '.join(map(quoted, SPLITS))}}}",
    "divided = [path for path in folders_in(folder) if path.name.lower() in names and folders_in(path)]",
    f'roots = {{path.name: path for path in divided}} or {{"{WHOLE}": folder}}',
    "found: dict[str, list[tuple[str, pathlib.Path]]] = {name: [] for name in roots}",
    f"suffixes = ({_SUFFIXES})",
    "for name, root in roots.items():",
    "    for parent, folders, files in os.walk(root, followlinks=True):",
    "        folders[:] = [of.name for of in folders_in(pathlib.Path(parent))]",
    "        within = pathlib.Path(parent).relative_to(root).parts",
    '        shown = [file for file in files if file.lower().endswith(suffixes) and not file.startswith(".")]',
    "        found[name] += [(within[0], pathlib.Path(parent, file)) for file in shown if within]",
    "    by_path = {os.fsencode(path.relative_to(folder).as_posix()): (label, path) for label, path in found[name]}",
    "    found[name] = [by_path[path] for path in sorted(by_path, key=lambda path: hashlib.sha256(path).digest())]",
    "return found",
    decorator="@functools.cache",
)
_CLASSES = function(
    "classes() -> list[str]",
    "Return the names of the classes.",
    "return ordered_classes({label for paths in images().values() for label, _ in paths})",
    decorator="@functools.cache",
)
_RECORDS = function(
    "records_of(split: str) -> list[bytes]",
    f"Return the images of `split`, each as {DIGITS} digits of its class and its path.",
    "places = {label: place for place, label in enumerate(classes())}",
    "counts = {name: len(paths) for name, paths in images().items()}",
    "taken = [image for name, start, end in slices(split, counts) for image in images()[name][start:end]]",
    f'return [b"%0{DIGITS}d%s" % (places[label], os.fsencode(path)) for label, path in taken]',
    decorator="@functools.cache",
)
_PARTS_OF_IMAGES = function(
    "parts_of(split: str) -> list[types.SimpleNamespace]",
    f"Return up to {SHARDS} groups of images, which are read like shards.",
    "count = len(records_of(split))",
    f"bounds = [count * place // {SHARDS} for place in range({SHARDS + 1})]",
    "groups = [(start, end - start) for start, end in itertools.pairwise(bounds) if end > start]",
    "return [types.SimpleNamespace(filename=split, skip=start, take=size) for start, size in groups]",
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Expressions by which a program reads a split named `split`.

    Attributes:
        parts: Its files with attributes `filename`, `skip` and `take`.
        count: Number of examples.
        paths: Paths of all files.
    """

    parts: str
    count: str
    paths: str


def reading(dataset: Dataset, split: str = "split") -> Reading:
    """Return how a program reads the split of `dataset` that the expression `split` names."""
    if dataset.is_of_tfds:
        parts = f"builder().info.splits[{split}].file_instructions"
        return Reading(
            parts=parts,
            count=f"builder().info.splits[{split}].num_examples",
            paths=f"[str(part.filename) for part in {parts}]",
        )
    listed = f"[record[{DIGITS}:] for record in records_of({split})]"
    return Reading(
        parts=f"parts_of({split})",
        count=f"sum(part.take for part in parts_of({split}))",
        paths=listed if dataset.is_listed else f"[part.filename for part in parts_of({split})]",
    )


def readable(dataset: Dataset) -> str:
    """Return the function that drops the records of a split which raise."""
    return function(
        "readable(dataset: tf.data.Dataset, split: str) -> tf.data.Dataset",
        "Drop elements that raise.",
        "# The number of reads is limited, since a file that can't be opened raises on every read.",
        f"tries = tf.data.Dataset.range({reading(dataset).count})",
        "return tf.data.Dataset.zip((tries, dataset)).ignore_errors().map(lambda _, example: example)",
    )


def functions_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the functions of a dataset that a program needs, with the one of the number of classes."""
    flow, of = dataset.examples, text_for(dataset)
    classes = function(
        "num_classes() -> int",
        "Return the number of classes; labels are integers from 0 to below it.",
        f"return {of.num_classes}",
    )
    return (*of.functions, classes) if flow.features[flow.target].is_class else of.functions


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """Text of a program that depends on the kind of its dataset.

    Attributes:
        constants: Its constants, by name.
        functions: Its functions.
        num_classes: Expression of the number of classes.
        class_names: Expression of the list of their names.
    """

    constants: dict[str, str]
    functions: tuple[str, ...]
    num_classes: str
    class_names: str


@singledispatch
def text_for(dataset: Dataset) -> SourceText:
    """Return the text for a dataset, by its type."""
    raise NotImplementedError(type(dataset))


@text_for.register
def _(dataset: TfdsDataset) -> SourceText:
    target = quoted(dataset.keys[dataset.examples.target])
    return SourceText(
        constants={"DATA_DIR": path(dataset.data_dir or "")},
        functions=(_builder(dataset),),
        num_classes=f"int(builder().info.features[{target}].num_classes)",
        class_names=f"builder().info.features[{target}].names",
    )


@text_for.register
def _(dataset: TFRecords) -> SourceText:
    return SourceText(
        constants={"FILES": mapping("", {quoted(name): path(pattern) for name, pattern in dataset.patterns.items()})},
        functions=(_COUNT, _SLICES, _PARTS_OF_FILES),
        num_classes=str(dataset.num_classes),
        class_names=f"[str(number) for number in range({dataset.num_classes})]",
    )


@text_for.register
def _(dataset: Folder) -> SourceText:
    return SourceText(
        constants={"DIR": path(dataset.dir)},
        functions=(_SLICES, _SHOWN, _IMAGES, _ORDER, _CLASSES, _RECORDS, _PARTS_OF_IMAGES),
        num_classes="len(classes())",
        class_names="classes()",
    )


def _builder(stage: TfdsDataset) -> str:
    """Return the function of TFDS's builder."""
    name = quoted(f"{stage.name}:{stage.version}" if stage.version else stage.name)
    where = [] if stage.data_dir is None else ["data_dir=DATA_DIR"]
    found = call("tfds.builder", name, *where)
    prepare = (
        f"found = {found}",
        "found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))",
        "return found",
    )
    is_sample = stage.name == SAMPLE_NAME
    says = "Return the builder of the dataset, which is downloaded and prepared if it is missing."
    if is_sample or not stage.download:
        says = f"Return the builder of the dataset, which is prepared{' by a run of etlrun' if is_sample else ''}."
    return function(
        "builder() -> tfds.core.DatasetBuilder",
        says,
        *(prepare if stage.download and not is_sample else (f"return {found}",)),
        decorator="@functools.cache",
    )
