"""TFRecord files that hold no examples, or that are none: each is named, with what it is and what to do."""

import gzip
import random
from collections.abc import Callable, Sequence
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
from tests.configs import plan_of, raised, refusal_of_request
from tests.golden import Case, Golden, Says, cases
from tests.own import SMALL, image, write_records
from tests.pictures import feature_of, jpeg, records_of
from tests.runs import run_here

SMALL_FILE = ("transform.resize.size=[8,8]", "load.batch_size=1", "model=emulated", "cache=none", "dataset.split=train")


def sound(path: Path, count: int = 6) -> list[bytes]:
    """The records of a TFRecord file of images, which is written."""
    write_records(path, [{"image": jpeg(number), "label": number % 2} for number in range(count)])
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def with_an_empty_record(path: Path, place: int = 3) -> Path:
    sound(path)
    with records_of(path) as records:
        records[place] = b""
    return path


def dataset_of(pattern: object, *words: str) -> Dataset:
    own = ("dataset=tfrecord", f"dataset.files='{pattern}'", "dataset.num_classes=2", *SMALL_FILE, *words)
    return plan_of(*own).spec.dataset


@pytest.mark.parametrize("place", [0, 3])
def test_a_record_of_zero_bytes_is_one_corrupt_record(place: int, tmp_path: Path, says: Says) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord", place)
    source = open_source(dataset_of(path))
    split = source.split("train", "dataset.split")
    (corrupt,) = corrupt_records(split)
    says(str(corrupt.error()))
    assert split.content.digest is not None
    own = [
        "dataset=tfrecord", f"dataset.files='{path}'", "dataset.num_classes=2", *SMALL_FILE, "dataset.eval_split=null",
    ]  # fmt: skip
    plan = plan_of(*own, "dataset.on_corrupt=skip")
    context = contexts_of(plan, source)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == 5
    assert context.losses.records == [corrupt]


def test_labels_are_those_of_sound_records(tmp_path: Path) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord")
    source = open_source(dataset_of(path, "dataset.on_corrupt=skip"))
    assert [*labels_of(source.split("train", "dataset.split"), by_number=False)] == [0, 1, 0, 0, 1]
    source = open_source(dataset_of(path))
    told = raised(EtlrunError, labels_of, source.split("train", "dataset.split"), by_number=False)
    assert told.startswith(f"{path}, record 3: found a record of zero bytes; expected an example ")


def test_zeros_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    sound(path)
    path.write_bytes(path.read_bytes() + bytes(160))
    assert Content([Shard(path=str(path), skip=0, take=16)]).digest is None


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
    dataset = plan_of(*words(pattern, "dataset.split=train", *others)).spec.dataset
    return raised(EtlrunError, lambda: open_source(dataset).split(dataset.split, "dataset.split"))


def test_shards_that_a_pattern_leaves_out_are_not_missed(tmp_path: Path) -> None:
    shards(tmp_path / "a", (0, 1, 2, 4), 5)
    chosen = plan_of(*words(f"{tmp_path}/a/x.tfrecord-0000[0124]-*")).spec.dataset
    assert open_source(chosen).counts == {"train": 12}
    in_brackets(tmp_path)
    chosen = plan_of(*words(f"{tmp_path}/b[[]1]/*")).spec.dataset
    assert open_source(chosen).counts == {"train": 4}


def test_all_shards_are_there_whether_they_are_numbered_from_0_or_1(tmp_path: Path) -> None:
    for name, numbers in (("zero", (0, 1, 2)), ("one", (1, 2, 3))):
        shards(tmp_path / name, numbers, 3)
        chosen = plan_of(*words(f"{tmp_path}/{name}/*")).spec.dataset
        assert open_source(chosen).counts == {"train": 9}


def with_feature(path: Path, **features: tf.train.Feature) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(4):
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def of_other_formats(folder: Path) -> None:
    """Write files that are no TFRecords, or compressed ones."""
    sound(path := folder / "own.tfrecord")
    data = path.read_bytes()
    path.unlink()
    (folder / "a.tfrecord.gz").write_bytes(gzip.compress(data, mtime=0))
    (folder / "b.tfrecord").write_bytes(b"version https://git-lfs")
    (folder / "e.tfrecord").write_bytes(b"text")


def misnamed_and_damaged(folder: Path) -> None:
    sound(path := folder / "b.tfrecord")
    (folder / "a.records").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-9])


def empty(folder: Path) -> None:
    for number in range(2):
        (folder / f"{number}.tfrecord").touch()


def of_two_sets(folder: Path) -> None:
    shards(folder, (0, 1), 2)
    shards(folder, (0,), 1)
    shards(folder, (0,), 1, "other.tfrecord")


def in_brackets(folder: Path) -> None:
    (folder / "b[1]").mkdir()
    write_records(folder / "b[1]" / "one.tfrecord", [{"image": image(of), "label": of % 2} for of in range(4)])


def of_other_keys(folder: Path) -> None:
    others = {
        "image/encoded": feature_of(image(0)),
        "image/format": feature_of(b"JPEG"),
        "image/class/label": feature_of(1),
    }
    with_feature(folder / "a.tfrecord", **others, **{"image/height": feature_of(12)})


FILES: dict[str, Callable[[Path], object]] = {
    "six sound records": lambda folder: sound(folder / "a.tfrecord"),
    "files of other formats": of_other_formats,
    "misnamed and damaged": misnamed_and_damaged,
    "empty files": empty,
    "without a shard": lambda folder: shards(folder, (0, 1, 2, 4), 5),
    "of two sets": of_two_sets,
    "two shards": lambda folder: shards(folder, (0, 1), 2),
    "in brackets": in_brackets,
    "a label that is one-hot": lambda folder: with_feature(
        folder / "a.tfrecord", image=feature_of(image(0)), label=feature_of(0, 1)
    ),
    "a label that is text": lambda folder: with_feature(
        folder / "a.tfrecord", image=feature_of(image(0)), label=feature_of(b"cat")
    ),
    "of other keys": of_other_keys,
}


@pytest.mark.parametrize("case", cases("foreign"))
def test_files_that_a_run_refuses_are_named(case: Case, golden: Golden, tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    FILES[case["files"]](folder)
    pattern = str(folder / case.get("pattern", "*.tfrecord*"))
    message = message_of(pattern, *case.get("words", ()))
    golden(case, message.replace(str(folder), "DIR"))


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


def test_records_that_are_sorted_by_class_have_no_folds(
    tmp_path: Path, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path / "a.tfrecord", [{"image": image(of), "label": of // 15} for of in range(30)])
    monkeypatch.chdir(tmp_path)
    says(refusal_of_request(*words("a.tfrecord"), "load.prefetch=0,1", "sweep.folds=3"))


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


def test_files_that_are_no_tfrecords_of_tfds_are_named(tmp_path: Path, says: Says) -> None:
    Volumes(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    given = ["dataset=tfds", "dataset.name=volumes", f"dataset.data_dir={tmp_path}", "dataset.download=false"]
    says(raised(EtlrunError, open_source, plan_of(*given).spec.dataset))


def test_a_model_of_one_class_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], says: Says) -> None:
    write_records(tmp_path / "a.tfrecord", [{"image": image(of), "label": 0} for of in range(20)])
    given = [*words(tmp_path / "a.tfrecord"), "transform=small_64", "cache=none", "load.batch_size=4"]
    given = [word.replace("num_classes=2", "num_classes=1") for word in given]
    assert run_here(tmp_path / "run", given)[0] == 1
    says(capfd.readouterr().err.partition("etlrun: failed\n")[2])
