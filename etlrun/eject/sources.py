"""Text of where a program's examples come from: TFDS, a folder of images, or TFRecord files."""

from __future__ import annotations

from etlrun.eject.text import call, function, listed, literal, mapping, path
from etlrun.sources.layout import LEFT_BY_SYSTEMS, SPLITS, SUFFIXES, WHOLE
from etlrun.sources.listing import DIGITS, SHARDS
from etlrun.stages.dataset import SAMPLE_NAME, Dataset, Folder, TfdsDataset, TFRecords
from etlrun.stages.load import AT_ONCE
from etlrun.stages.made import Text, quoted


def constants_of(dataset: Dataset) -> dict[str, str]:
    """Return the constants of a program that depend on its dataset."""
    target, own = quoted(dataset.keys[dataset.examples.target]), {"AT_ONCE": str(AT_ONCE)}
    match dataset:
        case TfdsDataset():
            own["DATA_DIR"] = path(dataset.data_dir or "")
        case TFRecords():
            patterns = {quoted(name): path(pattern) for name, pattern in dataset.patterns.items()}
            own["FILES"] = mapping("", patterns)
        case Folder():
            own |= {"DIR": path(dataset.dir), "DIGITS": f"{DIGITS}  # of a class", "SHARDS": str(SHARDS)}
            own |= {"SPLITS": literal(SPLITS), "WHOLE": quoted(WHOLE), "SUFFIXES": literal(SUFFIXES)}
            own["LEFT_BY_SYSTEMS"] = listed(*map(quoted, sorted(LEFT_BY_SYSTEMS)), brackets="{}")
    return {"TARGET": target, **own}


def class_names(dataset: Dataset) -> Text:
    """Return the expression of the list of the names of the classes."""
    if isinstance(dataset, TFRecords):
        return Text(f"[str(number) for number in range({dataset.num_classes})]")
    target = quoted(dataset.keys[dataset.examples.target])
    return Text("classes()" if isinstance(dataset, Folder) else f"builder().info.features[{target}].names")


def functions_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the functions that a program begins with: TFDS's builder, and the number of classes."""
    target = dataset.examples.target
    builder = (_builder(dataset),) if isinstance(dataset, TfdsDataset) else ()
    if not dataset.examples.features[target].is_class:
        return builder
    classes = "len(classes())"
    if isinstance(dataset, TFRecords):
        classes = str(dataset.num_classes)
    elif isinstance(dataset, TfdsDataset):
        classes = f"int(builder().info.features[{quoted(dataset.keys[target])}].num_classes)"
    says = "Return the number of classes; labels are integers from 0 to below it."
    return (*builder, function("num_classes() -> int", says, f"return {classes}"))


def _builder(dataset: TfdsDataset) -> str:
    """Return the function of TFDS's builder."""
    name = quoted(f"{dataset.name}:{dataset.version}" if dataset.version else dataset.name)
    where = [] if dataset.data_dir is None else ["data_dir=DATA_DIR"]
    found = call("tfds.builder", name, *where)
    prepare = (
        f"found = {found}",
        "found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))",
        "return found",
    )
    is_sample = dataset.name == SAMPLE_NAME
    says = "Return the builder of the dataset, which is downloaded and prepared if it is missing."
    if is_sample or not dataset.download:
        says = f"Return the builder of the dataset, which is prepared{' by a run of etlrun' if is_sample else ''}."
    return function(
        "builder() -> tfds.core.DatasetBuilder",
        says,
        *(prepare if dataset.download and not is_sample else (f"return {found}",)),
        decorator="@functools.cache",
    )
