"""TFRecord files that hold no examples, or that are none: each is named, with what it is and what to do."""

import gzip
import subprocess
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.content import Content, Shard
from etlrun.sources.corrupt import corrupt_records, labels_of
from etlrun.stages.dataset import Dataset
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.own import examples, prepared, refused, write_records
from tests.pictures import jpeg

KEYS = ("--features", "image=image,label=label")
SMALL = ("transform.resize.size=[8,8]", "load.batch_size=1", "model=emulated", "cache=none", "dataset.split=train")
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
    own = ("dataset=tfrecord", f"dataset.files='{pattern}'", "dataset.num_classes=2", *SMALL, *words)
    return plan_of(*own).spec.dataset


def refusal_of(pattern: object) -> list[str]:
    with pytest.raises(EtlrunError) as error:
        read(pattern)
    return str(error.value).splitlines()


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
    own = ["dataset=tfrecord", f"dataset.files='{path}'", "dataset.num_classes=2", *SMALL, "dataset.eval_split=null"]
    plan = plan_of(*own, "dataset.on_corrupt=skip")
    context = contexts_of(plan, source)["train"]
    assert len([*Pipeline(plan.train, context).dataset]) == 5
    assert context.losses.records == [corrupt]


def test_labels_are_those_of_sound_records(tmp_path: Path) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord")
    source = open_source(dataset_of(path, "dataset.on_corrupt=skip"))
    assert [*labels_of(source, source.split("train", "dataset.split"), by_number=False)] == [0, 1, 0, 0, 1]
    source = open_source(dataset_of(path))
    with pytest.raises(EtlrunError) as error:
        labels_of(source, source.split("train", "dataset.split"), by_number=False)
    assert str(error.value).startswith(f"{path}, record 3: found a record of zero bytes; expected an example ")


def test_zeros_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    sound(path)
    path.write_bytes(path.read_bytes() + bytes(160))
    assert Content([Shard(path=str(path), skip=0, take=16)]).digest is None


@pytest.mark.parametrize("place", [0, 3])
def test_prepare_leaves_a_record_of_zero_bytes_out(
    place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_an_empty_record(tmp_path / "a.tfrecord", place)
    assert refused(capsys, path, tmp_path / "data", *KEYS) == [
        "etlrun: 1 fault",
        f"  SOURCE, record {place}: found a record of zero bytes; expected serialised examples",
        "    -> write the file again, or add --on-corrupt skip to leave such records out",
    ]
    assert len(examples(prepared(path, tmp_path / "data", *KEYS, "--on-corrupt", "skip"))) == 5
    assert f"\nskipped   broken images: 1\n          {path}, record {place}: a record of zero bytes\n" in (
        capsys.readouterr().out
    )


def test_prepare_leaves_records_without_a_feature_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tfrecord"
    sound_ones: list[dict[str, bytes | int | float]] = [{"image": jpeg(of), "label": of % 2} for of in range(4)]
    write_records(path, [*sound_ones, {"image": jpeg(7)}, {"label": 1, "picture": jpeg(8)}])
    expected, remedy = (
        "expected an image as bytes and a label among its features",
        "    -> write the file again, or add",
    )
    assert refused(capsys, path, tmp_path / "data", *KEYS) == [
        "etlrun: 2 faults",
        f"  SOURCE, record 4: found no feature 'label'; {expected}: image",
        f"{remedy} --on-corrupt skip to leave such records out",
        f"  SOURCE, record 5: found no feature 'image'; {expected}: label, picture",
        f"{remedy} --on-corrupt skip to leave such records out",
    ]
    folder = prepared(path, tmp_path / "data", *KEYS, "--on-corrupt", "skip")
    assert {*examples(folder)} == {(jpeg(number), number % 2) for number in range(4)}
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("skipped   broken images: 2")
    assert lines[place + 1 : place + 3] == [
        f"          {path}, record 4: no feature 'label'",
        f"          {path}, record 5: no feature 'image'",
    ]


def test_prepare_leaves_out_neither_all_records_nor_all_of_a_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, skip = tmp_path / "a.tfrecord", ("--on-corrupt", "skip")
    sound(path)
    assert refused(capsys, path, tmp_path / "data", "--features", "image=img,label=label", *skip) == [
        "etlrun: 1 fault",
        (
            "  SOURCE, record 0: found no feature 'img'; expected an image as bytes and a label among its features: "
            "image, label"
        ),
        "    -> did you mean `image`?",
    ]
    write_records(path, [{"image": jpeg(0), "label": 0}, {"image": jpeg(1), "label": 1}, {"label": 2}])
    assert refused(capsys, path, tmp_path / "data", *KEYS, *skip) == [
        "etlrun: 1 fault",
        "  SOURCE: found the class 2, all of whose images are broken; expected images that can be decoded",
        "    -> repair them",
    ]


def test_files_of_other_formats_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.tfrecord"
    sound(path)
    data = path.read_bytes()
    unzip = 'python -c "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))"'
    folder = "write its images into a folder for each class, as with mxnet.recordio.unpack, and use that folder"
    other = "choose TFRecord files, or prepare a folder, a list or an archive of images: python -m etlrun prepare"
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
    found = refused(capsys, tmp_path / "*.*", tmp_path / "data", *KEYS)
    assert found[1::2] == [f"  {tmp_path}/{name}: found {what}; {WITHOUT}" for name, (_, what) in files.items()]
    assert found[2::2] == [
        f"{decompress}/a.tfrecord.gz > {tmp_path}/a.tfrecord",
        f"{decompress}/b.tfrecord > {tmp_path}/b-decompressed.tfrecord",
        (
            f"    -> decompress it, and use that file: {unzip} < {tmp_path}/c.tfrecord > "
            f"{tmp_path}/c-decompressed.tfrecord"
        ),
        f"    -> {folder}",
        f"    -> {other}",
    ]
    assert refusal_of(tmp_path / "*.*") == "\n".join(found[1:]).replace("\n  /", "\n/")[2:].splitlines()
    for line in found[2:7:2]:
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


def test_a_split_without_records_names_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        (tmp_path / f"{number}.tfrecord").touch()
    assert refusal_of(tmp_path / "*.tfrecord") == [
        (
            f"dataset.files: found no records for 'train' in 2 files: {tmp_path}/0.tfrecord, {tmp_path}/1.tfrecord; "
            "expected at least one record"
        ),
        "    -> write the files again, or choose others",
    ]
    assert refused(capsys, tmp_path / "*.tfrecord", tmp_path / "data", *KEYS)[1:] == [
        "  SOURCE: found no records in 2 files; expected at least one record",
        "    -> write the files again, or choose others",
    ]
    sound(tmp_path / "2.tfrecord")
    with pytest.raises(EtlrunError) as error:
        read(tmp_path / "*.tfrecord", "train[:0]")
    assert str(error.value) == (
        "dataset.split: found no examples in 'train[:0]' of *.tfrecord; expected at least one\n"
        "    -> choose a larger part of the split"
    )
