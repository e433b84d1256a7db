"""TFRecord files as rows: those of a dataset of texts that TFDS has written, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.tables import a_table, message, values
from tests.test_rows_eject import require_same_batches
from tests.test_rows_texts import PRINTED, source_of, text_of

FEATURES = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(names=["neg", "pos"])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews as TFDS keeps `imdb_reviews`."""
    path = tmp_path_factory.mktemp("of_tfds")

    def some(split: str) -> tf.data.Dataset:
        texts = [text_of(split, ("neg", "pos")[n % 2], n) for n in range(20)]
        return tf.data.Dataset.from_tensor_slices({"text": texts, "label": [n % 2 for n in range(20)]})

    tfds.dataset_builders.store_as_tfds_dataset(
        name="reviews",
        version="1.0.0",
        data_dir=path,
        features=tfds.features.FeaturesDict(FEATURES),
        split_datasets={"train": some("train"), "test": some("test")},
    )
    return path


def words_of(folder: Path, *others: str) -> tuple[str, ...]:
    files = ", ".join(f"{split}: '{folder}/reviews/1.0.0/reviews-{split}.tfrecord*'" for split in ("train", "test"))
    given = (f"dataset.files={{{files}}}", "dataset.split=train", "dataset.eval_split=test")
    emulated = ("model=emulated", "model.step_ms=0", "trainer.epochs=2", "load.batch_size=4")
    kept = f"dataset.dir={folder / 'kept'}"
    return ("experiment=text", *given, kept, "dataset.target={label: class}", *emulated, *others)


def test_a_dataset_of_texts_of_tfds_is_read_as_rows(folder: Path) -> None:
    source = source_of(*words_of(folder))
    assert source.counts == {"test": 20, "train": 20}
    assert source.class_names == ("neg", "pos")
    numbers = source.split("train", "dataset.split").rows
    found = zip(source.kept.take("text", numbers), source.kept.take("label", numbers), strict=True)
    assert {(text.decode(), label.decode()) for text, label in found} == {
        (text_of("train", name := ("neg", "pos")[n % 2], n), name) for n in range(20)
    }


def test_a_program_reads_the_same_batches(folder: Path, tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of(folder, *PRINTED)), tmp_path)


def example(**features: list[Any]) -> bytes:
    kinds = {str: "bytes_list", bytes: "bytes_list", int: "int64_list", float: "float_list"}
    held = {}
    for name, of in features.items():
        kind = kinds[type(of[0])] if of else "int64_list"
        plain = [value.encode() if isinstance(value, str) else value for value in of]
        held[name] = tf.train.Feature(**{kind: {"value": plain}})
    return bytes(tf.train.Example(features=tf.train.Features(feature=held)).SerializeToString())


def write(path: Path, *examples: dict[str, list[Any]] | bytes) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for of in examples:
            writer.write(of if isinstance(of, bytes) else example(**of))
    return path


def test_features_without_a_value_are_missing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tfrecord", {"a": ["x"], "b": [1], "c": [0.5]}, {"a": ["y"], "b": [], "c": []}, {"c": [1.0]}
    )
    kept = kept_of(a_table(str(path), tmp_path / "kept", target={"c": "number"}))
    assert values(kept) == {"a": ["x", "y", None], "b": [1, None, None], "c": [0.5, None, 1.0]}


def test_classes_have_the_names_that_are_beside_the_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", {"label": [1], "price": [1]}, {"label": [-1], "price": [2]})
    (tmp_path / "label.labels.txt").write_text("neg\npos\n")

    def labels(**others: Any) -> list[Any]:
        return values(kept_of(a_table(str(path), tmp_path / "kept", **others)))["label"]

    assert labels() == ["pos", None]
    assert labels(columns={"label": "integer"}) == [1, -1]
    (tmp_path / "label.labels.txt").write_text("neg\nüber\n")
    assert labels() == ["über", None]
    (tmp_path / "label.labels.txt").write_text("neg\n")
    with pytest.raises(EtlrunError) as refused:
        labels()
    assert message(tmp_path, refused.value) == (
        "a.tfrecord, record 0, label: found 1; expected the number of a class, from 0 to 0, as label.labels.txt has "
        "them\n    -> write the files again, or read others"
    )


ROW: dict[str, list[Any]] = {"price": [1], "text": ["a"]}
FAULTS: dict[str, tuple[tuple[dict[str, list[Any]] | bytes, ...], str]] = {
    "bytes": (
        (ROW, {"price": [1], "text": [b"\xff"]}),
        (
            "a.tfrecord, record 1, text: found b'\\xff'; expected text in UTF-8\n    -> repair the value"
            "; or set dataset.errors=replace"
        ),
    ),
    "another feature": (
        (ROW, {**ROW, "other": [1]}),
        (
            "a.tfrecord, record 1, other: found a feature that the first example lacks; expected price, text\n"
            "    -> write the files again, or read others"
        ),
    ),
    "another type": (
        (ROW, {**ROW, "price": ["x"]}),
        (
            "a.tfrecord, record 1, price: found a value of type text; expected values of type integer, as before\n"
            "    -> write the files again, or read others"
        ),
    ),
    "no example": (
        (ROW, b"none of them"),
        (
            "a.tfrecord, record 1: found a damaged record, or none of tf.train.Example; expected a serialised example\n"
            "    -> write the file again"
        ),
    ),
    "no features": (
        (b"",),
        "a.tfrecord, record 0: found an example without features; expected features\n    -> write the file again",
    ),
    "no records": ((), "a.tfrecord: found no records; expected at least one example\n    -> write the file again"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_records_that_are_no_rows(name: str, tmp_path: Path) -> None:
    examples, told = FAULTS[name]
    path = write(tmp_path / "a.tfrecord", *examples)
    with pytest.raises(EtlrunError) as refused:
        kept_of(a_table(str(path), tmp_path / "kept"))
    assert message(tmp_path, refused.value) == told
