"""TFRecord files that hold no examples, or that are none: each is named, with what it is and what to do."""

import gzip
import random
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.content import Content, Shard
from etlrun.sources.corrupt import corrupt_records, labels_of
from etlrun.sources.tfrecord import are_sorted
from etlrun.stages.dataset import Dataset
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, raised
from tests.own import SMALL, image, prepared, write_photos, write_records
from tests.pictures import jpeg
from tests.runs import run_here

SMALL_FILE = ("transform.resize.size=[8,8]", "load.batch_size=1", "model=emulated", "cache=none", "dataset.split=train")
WITHOUT = "expected TFRecords without compression"


def sound(path: Path, count: int = 6) -> list[bytes]:
    """The records of a TFRecord file of images, which is written."""
    write_records(path, [{"image": jpeg(number), "label": number % 2} for number in range(count)])
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def with_an_empty_record(path: Path, place: int = 3) -> Path:
    records = sound(path)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, record in enumerate(records):
            writer.write(b"" if number == place else record)
    return path


def dataset_of(pattern: object, *words: str) -> Dataset:
    own = ("dataset=tfrecord", f"dataset.files='{pattern}'", "dataset.num_classes=2", *SMALL_FILE, *words)
    return plan_of(*own).spec.dataset


def refusal_of(pattern: object) -> list[str]:
    return raised(EtlrunError, read, pattern).splitlines()


def read(pattern: object, split: str = "train") -> None:
    open_source(dataset_of(pattern)).split(split, "dataset.split")


@pytest.mark.parametrize("place", [0, 3])
def test_a_record_of_zero_bytes_is_one_corrupt_record(place: int, tmp_path: Path) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord", place)
    source = open_source(dataset_of(path))
    split = source.split("train", "dataset.split")
    (corrupt,) = corrupt_records(source, split)
    remedy = "write the file again, check dataset.num_classes and the declared features"
    assert str(corrupt.error()) == (
        f"{path}, record {place}: found a record of zero bytes; expected an example with the features image and label\n"
        f"    -> {remedy}, or set dataset.on_corrupt=skip to skip and count such records"
    )
    assert split.content.digest is not None
    own = [
        "dataset=tfrecord",
        f"dataset.files='{path}'",
        "dataset.num_classes=2",
        *SMALL_FILE,
        "dataset.eval_split=null",
    ]
    plan = plan_of(*own, "dataset.on_corrupt=skip")
    context = contexts_of(plan, source)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == 5
    assert context.losses.records == [corrupt]


def test_labels_are_those_of_sound_records(tmp_path: Path) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord")
    source = open_source(dataset_of(path, "dataset.on_corrupt=skip"))
    assert [*labels_of(source, source.split("train", "dataset.split"), by_number=False)] == [0, 1, 0, 0, 1]
    source = open_source(dataset_of(path))
    told = raised(EtlrunError, labels_of, source, source.split("train", "dataset.split"), by_number=False)
    assert told.startswith(f"{path}, record 3: found a record of zero bytes; expected an example ")


def test_zeros_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    sound(path)
    path.write_bytes(path.read_bytes() + bytes(160))
    assert Content([Shard(path=str(path), skip=0, take=16)]).digest is None


def test_files_of_other_formats_are_named(tmp_path: Path) -> None:
    path = tmp_path / "own.tfrecord"
    sound(path)
    data = path.read_bytes()
    unzip = 'python -c "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))"'
    folder = "write its images into a folder for each class, as with mxnet.recordio.unpack, and use that folder"
    other = "choose TFRecord files, or prepare a folder or a list of images: python -m etlrun prepare"
    decompress = f"    -> decompress it, and use that file: gunzip < {tmp_path}"
    files = {
        "a.tfrecord.gz": (gzip.compress(data), "a file compressed with gzip"),
        "b.tfrecord": (gzip.compress(data), "a file compressed with gzip"),
        "c.tfrecord": (zlib.compress(data), "a file compressed with ZLIB"),
        "d.rec": (b"\x0a\x23\xd7\xce" + bytes(60), "a RecordIO file of MXNet"),
        "e.tfrecord": (b"text", "no TFRecord file: it begins with b'text'"),
    }
    path.unlink()
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    found = refusal_of(tmp_path / "*.*")
    assert found[::2] == [f"{tmp_path}/{name}: found {what}; {WITHOUT}" for name, (_, what) in files.items()]
    assert found[1::2] == [
        f"{decompress}/a.tfrecord.gz > {tmp_path}/a.tfrecord",
        f"{decompress}/b.tfrecord > {tmp_path}/b-decompressed.tfrecord",
        (
            f"    -> decompress it, and use that file: {unzip} < {tmp_path}/c.tfrecord > "
            f"{tmp_path}/c-decompressed.tfrecord"
        ),
        f"    -> {folder}",
        f"    -> {other}",
    ]
    for line in found[1:6:2]:
        subprocess.run(line.partition("file: ")[2], shell=True, check=True)  # noqa: S602 - the remedy
        made = Path(line.rpartition("> ")[2])
        assert made.read_bytes() == data


def test_tfrecords_under_another_name_and_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "b.tfrecord"
    sound(path)
    (tmp_path / "a.records").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-9])
    assert refusal_of(tmp_path / "*") == [
        f"{tmp_path}/a.records: found TFRecords in a file of another name; expected a file named *.tfrecord*",
        "    -> rename it, as to a.records.tfrecord",
        f"{path}: found a TFRecord file that is truncated or damaged; expected complete records",
        "    -> write or copy it again",
    ]


def test_a_split_without_records_names_its_files(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.tfrecord").touch()
    assert refusal_of(tmp_path / "*.tfrecord") == [
        (
            f"dataset.files: found no records for 'train' in 2 files: {tmp_path}/0.tfrecord, {tmp_path}/1.tfrecord; "
            "expected at least one record"
        ),
        "    -> write the files again, or choose others",
    ]
    sound(tmp_path / "2.tfrecord")
    assert raised(EtlrunError, read, tmp_path / "*.tfrecord", "train[:0]") == (
        "dataset.split: found no examples in 'train[:0]' of *.tfrecord; expected at least one\n"
        "    -> choose a larger part of the split"
    )


def shards(folder: Path, numbers: Sequence[int], total: int, head: str = "x.tfrecord") -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        examples: list[dict[str, bytes | int | float]] = [
            {"image": image(3 * number + of), "label": of % 2} for of in range(3)
        ]
        write_records(folder / f"{head}-{number:05}-of-{total:05}", examples)


def words(pattern: object, *others: str) -> list[str]:
    return ["dataset=tfrecord", f"dataset.files='{pattern}'", "dataset.num_classes=2", *others]


def message_of(pattern: object, *others: str) -> str:
    return raised(EtlrunError, open_source, plan_of(*words(pattern, *others)).spec.dataset)


RESTORE = "restore them, or name the others by a pattern that leaves these out, as with [0-3] for a digit"


def test_shards_that_are_missing_are_named(tmp_path: Path) -> None:
    shards(tmp_path / "a", (0, 1, 2, 4), 5)
    pattern = f"{tmp_path}/a/x.tfrecord-*"
    assert message_of(pattern) == (
        f"{pattern}: found 4 of 5 shards, without {tmp_path}/a/x.tfrecord-00003-of-00005; expected all shards that "
        f"their names promise\n    -> {RESTORE}"
    )


def test_shards_that_a_pattern_leaves_out_are_not_missed(tmp_path: Path) -> None:
    shards(tmp_path / "a", (0, 1, 2, 4), 5)
    chosen = plan_of(*words(f"{tmp_path}/a/x.tfrecord-0000[0124]-*")).spec.dataset
    assert open_source(chosen).counts == {"train": 12}


def test_all_shards_are_there_whether_they_are_numbered_from_0_or_1(tmp_path: Path) -> None:
    for name, numbers in (("zero", (0, 1, 2)), ("one", (1, 2, 3))):
        shards(tmp_path / name, numbers, 3)
        chosen = plan_of(*words(f"{tmp_path}/{name}/*")).spec.dataset
        assert open_source(chosen).counts == {"train": 9}


def test_shards_of_two_sets_are_refused(tmp_path: Path) -> None:
    shards(tmp_path / "a", (0, 1), 2)
    shards(tmp_path / "a", (0,), 1)
    shards(tmp_path / "a", (0,), 1, "other.tfrecord")
    assert message_of(f"{tmp_path}/a/*") == (
        f"{tmp_path}/a/x.tfrecord-*: found shards of several sets: 1 of 00001 and 2 of 00002; expected shards of one "
        f"set, with each example once\n    -> name one of them, as {tmp_path}/a/x.tfrecord-*-of-00002"
    )


def test_a_folder_in_the_place_of_files_is_told(tmp_path: Path) -> None:
    told = f"\n    -> it is a folder: name the files in it, as {tmp_path}/**/*"
    assert message_of(str(tmp_path)).endswith(told)
    shards(tmp_path / "a", (0, 1), 2)
    (tmp_path / "README").touch()
    assert message_of(str(tmp_path)).endswith(f"{told}.tfrecord*")


@pytest.mark.parametrize("name", ["one.tfrecord", "*"])
def test_brackets_in_a_path_are_told_from_a_set_of_characters(name: str, tmp_path: Path) -> None:
    (tmp_path / "b[1]").mkdir()
    write_records(tmp_path / "b[1]" / "one.tfrecord", [{"image": image(of), "label": of % 2} for of in range(4)])
    remedy = f"brackets in a pattern are a set of characters: write [[] for a [, as in {tmp_path}/b[[]1]/{name}"
    assert message_of(f"{tmp_path}/b[1]/{name}").endswith(f"\n    -> {remedy}")
    chosen = plan_of(*words(f"{tmp_path}/b[[]1]/{name}")).spec.dataset
    assert open_source(chosen).counts == {"train": 4}


def with_feature(path: Path, **features: tf.train.Feature) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(4):
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def ints(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def texts(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def test_a_label_that_is_one_hot_or_text_is_told_with_what_to_do(tmp_path: Path) -> None:
    one_hot = with_feature(tmp_path / "a.tfrecord", image=texts(image(0)), label=ints(0, 1))
    has = "expected one int64 for label; it has image (a string), label"
    assert message_of(one_hot) == (
        f"{one_hot}, record 0: found 'label', which is int64 of 2 values; {has} (int64)\n"
        "    -> write the number of the class as one integer; of a one-hot vector, the place of its 1"
    )
    text = with_feature(tmp_path / "b.tfrecord", image=texts(image(0)), label=texts(b"cat"))
    assert message_of(text) == (
        f"{text}, record 0: found 'label', which is a string; {has} (a string)\n"
        "    -> write the number of the class as one integer; of a one-hot vector, the place of its 1"
    )


def test_the_image_and_the_class_of_other_keys_are_found(tmp_path: Path) -> None:
    path = with_feature(
        tmp_path / "a.tfrecord",
        **{
            "image/encoded": texts(image(0)),
            "image/format": texts(b"JPEG"),
            "image/class/label": ints(1),
            "image/height": ints(12),
        },
    )
    assert message_of(path).endswith("\n    -> did you mean dataset.image_key=image/encoded?")
    assert message_of(path, "dataset.image_key=image/encoded").endswith(
        "\n    -> did you mean dataset.label_key=image/class/label?"
    )


SORTED = (
    "The records of train are sorted by class, as 30 of them show that are spread over it: a slice holds few classes, "
    "and a shuffle buffer mixes neighbours alone. Set load.shuffle=full, and validate on another split."
)


@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_records_that_are_sorted_by_class_are_noted(order: str, tmp_path: Path) -> None:
    labels = [number // 15 if order == "sorted" else number % 2 for number in range(30)]
    write_records(tmp_path / "a.tfrecord", [{"image": image(of), "label": label} for of, label in enumerate(labels)])
    given = words(
        tmp_path / "a.tfrecord", *(word for word in SMALL if "epochs" not in word), "trainer=drain", "cache=none"
    )
    assert (SORTED in run_here(tmp_path / "run", given)[1]["remarks"]) is (order == "sorted")


def test_a_file_is_read_from_the_folder_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path / "a.tfrecord", [{"image": image(of), "label": of % 2} for of in range(30)])
    monkeypatch.chdir(tmp_path)
    given = words("a.tfrecord", *(word for word in SMALL if "epochs" not in word), "trainer=drain", "cache=disk")
    status, summary = run_here(tmp_path / "run", given)
    assert (status, summary["status"], summary["dataset"]["examples"]["train"]) == (0, "completed", 24)


def test_an_order_shows_in_blocks_of_classes() -> None:
    assert are_sorted([0] * 40 + [1] * 5)
    assert are_sorted([2] * 20 + [0] * 20 + [1] * 20)
    assert are_sorted([*range(96)])
    assert not are_sorted([])
    assert not are_sorted([0] * 96)
    assert not are_sorted([0] * 94 + [1] * 2)
    drawn = random.Random(0)  # noqa: S311 - for a test
    for classes, share in ((2, 0.05), (2, 0.5), (10, 0.5), (1000, 0.5)):
        for _ in range(200):
            labels = [drawn.randrange(1, classes) if drawn.random() < share else 0 for _ in range(96)]
            assert not are_sorted(labels)


class Volumes(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    name = "volumes"
    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self) -> object:
        features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=2)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: object) -> dict[str, object]:
        examples = ((of, {"image": np.full((9, 9, 3), of, np.uint8), "label": of % 2}) for of in range(10))
        return {"train": examples}

    def _generate_examples(self) -> None:
        raise NotImplementedError


def test_files_that_are_no_tfrecords_of_tfds_are_named(tmp_path: Path) -> None:
    Volumes(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    given = ["dataset=tfds", "dataset.name=volumes", f"dataset.data_dir={tmp_path}", "dataset.download=false"]
    assert raised(EtlrunError, open_source, plan_of(*given).spec.dataset) == (
        f"{tmp_path}/volumes/1.0.0: found files of array_record; expected files of tfrecord\n"
        "    -> prepare it with file_format='tfrecord' into another data_dir, by the program that prepared it; or "
        "write a copy: tfds.dataset_builders.store_as_tfds_dataset"
    )


def test_empty_values_behind_the_last_column_are_none(tmp_path: Path) -> None:
    path = write_photos(tmp_path / "photos", 4) / "all.csv"
    path.write_text("path,label\ndisc/0.jpg,a,\ncross/1.jpg,b,,\n")
    assert (prepared(path, tmp_path / "data") / "label.labels.txt").read_text().split() == ["a", "b"]


def test_a_model_of_one_class_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path / "a.tfrecord", [{"image": image(of), "label": 0} for of in range(20)])
    given = [*words(tmp_path / "a.tfrecord"), "transform=small_64", "cache=none", "load.batch_size=4"]
    given = [word.replace("num_classes=2", "num_classes=1") for word in given]
    assert run_here(tmp_path / "run", given)[0] == 1
    assert (
        "etlrun: failed\n  dataset: found a dataset of one class; expected at least two classes, or a number as the "
        "target\n"
        "    -> add examples of another class\n"
    ) in capfd.readouterr().err
