"""Text of a full shuffle in a program: records are read by number, features of a frozen base are in memory."""

from __future__ import annotations

from etlrun.eject.place import Expression, Place
from etlrun.eject.sources import reading
from etlrun.eject.steps import source_of
from etlrun.eject.text import call, function, quoted
from etlrun.plan.plan import reads_features
from etlrun.sources.listing import DIGITS
from etlrun.stages.code import source
from etlrun.stages.dataset import Dataset
from etlrun.stages.load import AT_ONCE, FullShuffle, distinct

_ORDERED = (
    "order = tf.numpy_function(shuffle_full, [count, seed], tf.int64)",
    "numbers = tf.data.Dataset.from_tensor_slices(tf.ensure_shape(order, (None,)))",
)
_LOCATED = function(
    "located(split: str) -> list[tuple[str, int, int]]",
    "Return the file of each record of a split, its place there, and its size, with the checksums around its data.",
    "found = []",
    "for part in PARTS:",
    "    records, place, path = [], 0, str(part.filename)",
    '    with pathlib.Path(path).open("rb") as file:',
    "        while length := os.pread(file.fileno(), 8, place):",
    '            records.append((path, place, int.from_bytes(length, "little") + 16))',
    "            place += records[-1][2]",
    "    found += records[part.skip :] if part.take == -1 else records[part.skip : part.skip + part.take]",
    "return found",
    decorator="@functools.cache",
)
_RECORD = function(
    "record_of(number: int, split: str) -> bytes",
    "Read a record by number, and check it as TensorFlow does.",
    "path, place, size = located(split)[number]",
    'with pathlib.Path(path).open("rb") as file:',
    "    found = os.pread(file.fileno(), size, place)",
    "for data, checksum in ((found[:8], found[8:12]), (found[12:-4], found[-4:])):",
    "    crc = google_crc32c.value(data)",
    '    if int.from_bytes(checksum, "little") != ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF:',
    '        raise ValueError(f"corrupted record at {place} of {path}")',
    "return found[12:-4]",
)
_NUMBERED = function(
    "numbered(split: str, seed: tf.Tensor) -> tf.data.Dataset",
    "Read the serialised examples of a split in a random order of all of them.",
    "count = len(located(split))",
    *_ORDERED,
    "",
    function(
        "read(some: np.ndarray) -> np.ndarray",
        "Return records by number.",
        "return np.array([record_of(int(number), split) for number in some], dtype=object)",
    ),
    "",
    call(
        f"records = numbers.batch({AT_ONCE}).map",
        "lambda some: tf.ensure_shape(tf.numpy_function(read, [some], tf.string), (None,))",
        "num_parallel_calls=tf.data.AUTOTUNE",
        "deterministic=True",
    ),
    "return records.unbatch()",
)
_IMAGES = function(
    "numbered(split: str, seed: tf.Tensor) -> tf.data.Dataset",
    "Return the images of a split in a random order of all of them.",
    "count, images = len(records_of(split)), tf.constant(records_of(split))",
    *_ORDERED,
    "return numbers.map(lambda number: images[number])",
)
_SHUFFLED = function(
    "shuffled(examples: tf.data.Dataset, count: int, seed: tf.Tensor) -> tf.data.Dataset",
    "Return all examples, which are in memory, in a random order of all of them.",
    "everything = examples.batch(count).get_single_element()",
    *_ORDERED,
    "return numbers.map(lambda number: tf.nest.map_structure(lambda column: column[number], everything))",
)


def full_shuffle(stage: FullShuffle, place: Place) -> Expression:
    """Return the text of reading all examples of a split in the order of the pass."""
    split, dataset = f"{place.pipeline.upper()}_SPLIT", place.plan.spec.dataset
    if reads_features(place.plan):
        shuffled = _of(stage, _SHUFFLED, "everything[1]")
        count = reading(dataset, split).count
        return Expression(text=f"shuffled({place.dataset}, {count}, seed)", functions=(source_of(stage), shuffled))
    labels = (labels_of(dataset),) if stage.is_by_class else ()
    numbered = _of(stage, _IMAGES if dataset.is_listed else _NUMBERED, "labels_of(split)")
    sources = source_of(stage), *labels, *_located(dataset)
    if place.carries:
        numbered, sources = _indexed(numbered), (*sources, source(distinct))
    return Expression(text=f"numbered({split}, seed)", functions=(*sources, numbered))


def _indexed(text: str) -> str:
    """Return the function that reads by number with an index for each draw, which differs for equal examples, too."""
    order = "tf.ensure_shape(order, (None,))"
    record = "tf.ensure_shape(tf.numpy_function(read, [some], tf.string), (None,))"
    draws = "draws = tf.ensure_shape(tf.numpy_function(distinct, [order], tf.int64), (None,))"
    for old, new in (
        (f"    numbers = tf.data.Dataset.from_tensor_slices({order})", f"    {draws}\n    {{}}(({order}, draws))"),
        (f"lambda some: {record}", f"lambda some, draw: ({record}, draw)"),
        ("lambda number: images[number]", "lambda number, draw: (images[number], draw)"),
    ):
        text = text.replace(old, new.replace("{}", "numbers = tf.data.Dataset.from_tensor_slices"))
    return text


def labels_of(dataset: Dataset) -> str:
    """Return the function of the classes of all examples of a split."""
    lines = [f"return np.array([int(record[:{DIGITS}]) for record in records_of(split)])"]
    if not dataset.is_listed:
        key, skips = quoted(dataset.keys[dataset.examples.target]), dataset.on_corrupt == "skip"
        lines = [
            f"features = {{{key}: tf.io.FixedLenFeature((), tf.int64)}}",
            "found: list[int] = []",
            f"for part in {reading(dataset).parts}:",
            "    records = tf.data.TFRecordDataset(str(part.filename)).skip(part.skip).take(part.take)",
            f"    labels = records.map(lambda record: tf.io.parse_single_example(record, features)[{key}])",
            f"    found += labels{'.ignore_errors()' if skips else ''}.as_numpy_iterator()",
            *(("found = [label for label in found if 0 <= label < num_classes()]",) if skips else ()),
            "return np.array(found, np.int64)",
        ]
    signature, says = "labels_of(split: str) -> np.ndarray", "Return the class of each example of a split."
    return function(signature, says, *lines, decorator="@functools.cache")


def _located(dataset: Dataset) -> tuple[str, ...]:
    """Return the functions that read a record by number; those of a folder are there already."""
    return () if dataset.is_listed else (_LOCATED.replace("PARTS", reading(dataset).parts), _RECORD)


def _of(stage: FullShuffle, text: str, labels: str) -> str:
    """Return a function that draws numbers by the function of `stage`."""
    if not stage.is_by_class:
        return text
    for old, new in (
        ("shuffle_full, [count", f"sample_by_class, [{labels}"),
        ("in a random order of all of them", "in a random order, each class at the same odds"),
        ("    count = len(located(split))\n", ""),
        ("count, images = len(records_of(split)), ", "images = "),
    ):
        text = text.replace(old, new)
    return text
