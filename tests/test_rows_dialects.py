"""How csv and tsv are written: `dataset.csv`, what it makes of quotes, and what is noted of them without it."""

import gzip
import json
import re
import shlex
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.review.difference import compare
from etlrun.sources.rows.table import identity_of, kept_of
from etlrun.sources.rows.text_files import remedy_of
from etlrun.stages.rows import Rows, Table
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, refusal_of_plan, refusal_of_spec
from tests.golden import Case, Golden, Says, cases
from tests.tables import a_table, kept_from, message, values
from tests.test_rows_eject import require_same_batches
from tests.test_rows_texts import PRINTED, source_of, text_of

DIALECTS: dict[str, tuple[str, str, dict[str, str | None], list[str]]] = {
    "escapes": ("a.csv", r'a,price|"12\"",1|"1\\",2|x\,y,3', {"escape": "\\"}, ['12"', "1\\", "x,y"]),
    "no quotes": ("a.tsv", 'a\tprice|"It is\t1|"x" y\t2|z\t3', {"quote": None}, ['"It is', '"x" y', "z"]),
    "other quotes": ("a.csv", "a,price|'x, y',1|z,2|\"z,3", {"quote": "'"}, ["x, y", "z", '"z']),
    "semicolons": ("a.csv.gz", 'a;price|x,y;1|"2;3";2|z;3', {"separator": ";"}, ["x,y", "2;3", "z"]),
    "tabs in a .txt": ("a.txt", 'a\tprice|"x\t1|y\t2|z\t3', {"separator": "\\t", "quote": None}, ['"x', "y", "z"]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_read(tmp_path: Path, dialect: str) -> None:
    name, content, csv, texts = DIALECTS[dialect]
    kept = kept_from(tmp_path, name, content.replace("|", "\n"), csv=csv)
    assert values(kept) == {"a": texts, "price": [1, 2, 3]}
    assert kept.known.notes == ()


def words_of(path: Path, *others: str) -> tuple[str, ...]:
    """Arguments of a run that reads the columns `a` and `price` of a file."""
    return (
        "dataset=table", f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}",
        "dataset.target={price: number}", "dataset.split=train", "dataset.eval_split=train", "transform=columns",
        "transform.columns={a: {steps: [{hash: 50}, one_hot]}}", "extract=sequential", "cache=none",
        "load.batch_size=2", "trainer.epochs=2", "model=emulated", *others,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "csv"),
    [
        ("a.csv", 'a,price\n"12\\"",1\n"13\\"",2\n', """dataset.csv={escape: "\\\\"}"""),
        ("a.txt.gz", 'a\tprice\n"12\t1\n13\t2\n', r"""dataset.csv={separator: "\t", quote: null}"""),
    ],
)
def test_a_program_reads_the_same_dialect(tmp_path: Path, name: str, content: str, csv: str) -> None:
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) + bytes(512) if name.endswith(".gz") else data)
    plan = plan_of(*words_of(tmp_path / name, csv))
    assert plan.spec.dataset.examples.features["price"].dtype == "int64"
    require_same_batches(plan, tmp_path)


def test_a_dialect_is_part_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\nx,1\ny,2\n")
    one, other = (plan_of(*words_of(tmp_path / "a.csv", *words)) for words in ((), ("dataset.csv={quote: null}",)))
    (difference,) = compare(one, other).differences
    assert (difference.kind, difference.path, difference.new) == ("data", "dataset.csv", "{quote: null}")
    plain, set_to = (a_table(str(tmp_path / "a.csv"), tmp_path / "kept", csv=of) for of in (None, {"quote": None}))
    assert identity_of(plain) == identity_of(a_table(str(tmp_path / "a.csv"), tmp_path / "kept"))
    assert identity_of(plain) != identity_of(set_to)


@pytest.mark.parametrize(
    ("csv", "found"),
    [
        ("{separator: ab}", "found {separator: ab}; expected a mapping from separator, quote or escape to a character"),
        ("{sep: ';'}", "found {sep: ;}; expected a mapping from separator, quote or escape to a character"),
        ('{separator: "\\""}', 'found {separator: "}; expected different characters'),
    ],
)
def test_a_dialect_that_is_none_is_refused(tmp_path: Path, csv: str, found: str) -> None:
    (tmp_path / "a.csv").write_text("a,price\nx,1\n")
    told = refusal_of_spec(*words_of(tmp_path / "a.csv", f"dataset.csv={csv}"))
    assert told.startswith("dataset.csv")
    assert found in told


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.txt.gz"])
def test_zeros_behind_a_gzip_are_left_out(tmp_path: Path, name: str) -> None:
    rows = {"a.jsonl.gz": '{"price": 1}\n{"price": 2}\n', "a.csv.gz": "price\n1\n2\n"}.get(name, "1\n2\n")
    (tmp_path / name).write_bytes(gzip.compress(rows.encode()) + bytes(512))
    assert kept_of(a_table(str(tmp_path / name), tmp_path / "kept")).known.rows == {"train": 2}


def refused(path: Path) -> str:
    """The remedy of a file that is refused."""
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(path), path.parent / "kept"))
    return caught.value.faults[0].remedy


MARKED: dict[str, tuple[str, str]] = {
    "no quotes": ("a.csv", 'a,price\n"12,1\n"13,2\n'),
    "beside another mark": ("a.csv", "a;price\n1;2\n2;3\n"),
    "tabs": ("a.csv", "a\tprice\n1\t2\n2\t3\n"),
}


@pytest.mark.parametrize("name", MARKED)
def test_the_dialects_of_remedies_read_files(tmp_path: Path, name: str) -> None:
    file, content = MARKED[name]
    (tmp_path / file).write_text(content)
    (override,) = re.findall("set '(dataset.csv=.*?)'", refused(tmp_path / file))
    plan = plan_of(*words_of(tmp_path / file, override))
    assert isinstance(plan.spec.dataset, Table)
    assert plan.spec.dataset.found.rows == {"train": 2}


def test_a_gzip_that_is_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = bytearray(gzip.compress("".join(f"{n * 7919 % 1000}\n" for n in range(5_000)).encode()))
    data[900:1_200] = b"\xff" * 300
    (tmp_path / "a.csv.gz").write_bytes(data)
    assert refused(tmp_path / "a.csv.gz") == "check its permissions and its storage, or write it again"


def test_a_remedy_is_quoted_for_a_shell_whatever_a_dialect_has() -> None:
    assert shlex.split(remedy_of({"quote": "'"})) == ["set", """dataset.csv={quote: "'"}"""]


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


def words_of_examples(folder: Path, *others: str) -> tuple[str, ...]:
    files = ", ".join(f"{split}: '{folder}/reviews/1.0.0/reviews-{split}.tfrecord*'" for split in ("train", "test"))
    given = (f"dataset.files={{{files}}}", "dataset.split=train", "dataset.eval_split=test")
    emulated = ("model=emulated", "model.step_ms=0", "trainer.epochs=2", "load.batch_size=4")
    kept = f"dataset.dir={folder / 'kept'}"
    return ("experiment=text", *given, kept, "dataset.target={label: class}", *emulated, *others)


def test_a_dataset_of_texts_of_tfds_is_read_as_rows(folder: Path) -> None:
    source = source_of(*words_of_examples(folder))
    assert source.counts == {"test": 20, "train": 20}
    assert source.class_names == ("neg", "pos")
    numbers = source.split("train", "dataset.split").numbers
    found = zip(source.kept.take("text", numbers), source.kept.take("label", numbers), strict=True)
    assert {(text.decode(), label.decode()) for text, label in found} == {
        (text_of("train", name := ("neg", "pos")[n % 2], n), name) for n in range(20)
    }


def test_a_program_reads_the_same_batches(folder: Path, tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of_examples(folder, *PRINTED)), tmp_path)


def example(**features: list[Any]) -> bytes:
    kinds = {str: "bytes_list", bytes: "bytes_list", int: "int64_list", float: "float_list"}
    held = {}
    for name, of in features.items():
        kind = kinds[type(of[0])] if of else "int64_list"
        plain = [value.encode() if isinstance(value, str) else value for value in of]
        held[name] = tf.train.Feature(**{kind: {"value": plain}})
    return bytes(tf.train.Example(features=tf.train.Features(feature=held)).SerializeToString())


def write_examples(path: Path, *examples: dict[str, list[Any]] | bytes) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for of in examples:
            writer.write(of if isinstance(of, bytes) else example(**of))
    return path


def test_features_without_a_value_are_missing(tmp_path: Path) -> None:
    path = write_examples(
        tmp_path / "a.tfrecord", {"a": ["x"], "b": [1], "c": [0.5]}, {"a": ["y"], "b": [], "c": []}, {"c": [1.0]}
    )
    kept = kept_of(a_table(str(path), tmp_path / "kept", target={"c": "number"}))
    assert values(kept) == {"a": ["x", "y", None], "b": [1, None, None], "c": [0.5, None, 1.0]}


def test_classes_have_the_names_that_are_beside_the_files(tmp_path: Path, says: Says) -> None:
    path = write_examples(tmp_path / "a.tfrecord", {"label": [1], "price": [1]}, {"label": [-1], "price": [2]})
    (tmp_path / "label.labels.txt").write_text("neg\npos\n")

    def labels(**others: Any) -> list[Any]:
        return values(kept_of(a_table(str(path), tmp_path / "kept", **others)))["label"]

    assert labels() == ["pos", None]
    assert labels(columns={"label": "integer"}) == [1, -1]
    (tmp_path / "label.labels.txt").write_text("neg\nüber\n")
    assert labels() == ["über", None]
    (tmp_path / "label.labels.txt").write_text("neg\n")
    says(message(tmp_path, labels))


@pytest.mark.parametrize("case", cases("records"))
def test_records_that_are_no_rows(case: Case, tmp_path: Path, golden: Golden) -> None:
    path = write_examples(tmp_path / "a.tfrecord", *case["examples"])
    golden(case, message(tmp_path, kept_of, a_table(str(path), tmp_path / "kept")))


def test_times_of_int96_are_those_that_were_written(tmp_path: Path) -> None:
    days = [datetime(9999, 12, 31), datetime(2024, 1, 2, 3, 4, 5, 6), None, datetime(1066, 10, 14)]  # noqa: DTZ001
    table = pa.table({"until": pa.array(days, pa.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert values(kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept"))) == {"until": days}


def test_checksums_of_pages_tell_damage(tmp_path: Path, says: Says) -> None:
    table = pa.table({"x": [number + 0.123456789 for number in range(200)]})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    assert kept_of(a_table(str(path), tmp_path / "kept")).known.rows == {"train": 200}
    data = bytearray(path.read_bytes())
    data[data.find(struct.pack("<d", 100.123456789)) + 7] ^= 0x40
    path.write_bytes(data)
    says(message(tmp_path, kept_of, a_table(str(path), tmp_path / "kept")))


NUM_ROWS = 20
Write = Callable[[Path], object]


def table_of(*rare: object) -> pa.Table:
    """Columns `x`, `y` and `rare`."""
    return pa.table({"x": [*range(NUM_ROWS)], "rare": pa.array([*rare] * NUM_ROWS), "y": [*range(NUM_ROWS)]})


def in_parquet(*rare: object) -> Write:
    return lambda path: pyarrow.parquet.write_table(table_of(*rare), path)


def in_json(rare: object) -> Write:
    rows = (json.dumps({"x": number, "rare": rare, "y": number}) for number in range(NUM_ROWS))
    return lambda path: path.write_text("\n".join(rows))


RARE: dict[str, tuple[str, Write]] = {
    "bytes": ("a.parquet", in_parquet(b"\xff")),
    "times of day": ("a.parquet", in_parquet(time(10, 30))),
    "durations": ("a.parquet", in_parquet(timedelta(1))),
    "parts": ("a.parquet", in_parquet({"a": 1})),
    "of Arrow": ("a.feather", lambda path: pyarrow.feather.write_feather(table_of([[1]]), path)),
    "of JSON": ("a.jsonl", in_json({"a": 1})),
    "lists of JSON": ("a.jsonl", in_json([[1]])),
    "texts in lists": ("a.jsonl", in_json([["a"]])),
    "of records": (
        "a.tfrecord",
        lambda path: write_examples(path, *({"x": [of], "rare": [1, 2], "y": [of]} for of in range(NUM_ROWS))),
    ),
}


def words_of_columns(path: Path, *others: str, inputs: str = "[x]", target: str = "{y: number}") -> Sequence[str]:
    given = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", f"dataset.target={target}")
    emulated = ("model=emulated", "model.step_ms=0", "load.batch_size=4", "trainer.epochs=2")
    columns = "transform.columns=" + ("auto" if inputs == "null" else f"{{{inputs[1:-1]}: {{}}}}")
    return ("experiment=table", *given, f"dataset.inputs={inputs}", columns, *emulated, *others)


@pytest.mark.parametrize(("name", "write"), RARE.values(), ids=RARE)
def test_a_column_that_can_not_be_kept_is_refused_where_it_is_an_input(
    tmp_path: Path, name: str, write: Write, says: Says
) -> None:
    write(tmp_path / name)
    dataset = plan_of(*words_of_columns(tmp_path / name)).spec.dataset
    assert isinstance(dataset, Rows)
    assert ([*dataset.found.columns], [*dataset.found.left_out]) == (["x", "y"], ["rare"])
    told = refusal_of_plan(*words_of_columns(tmp_path / name, target="{rare: class}"))
    says(told)
    for inputs in ("null", "[rare]"):
        refused = refusal_of_plan(*words_of_columns(tmp_path / name, inputs=inputs))
        exclude = "set 'dataset.exclude=[rare]', or " * (inputs == "null")
        assert refused == told.replace("dataset.target", "dataset.inputs", 1).replace("-> ", f"-> {exclude}", 1)


@pytest.mark.parametrize(
    ("rare", "text"),
    [([b"ab", b"\xc3\xa4"], ["ab", "ä"]), ([time(10, 30)], ["10:30:00.000000"]), ([timedelta(1)], ["86400000000"])],
    ids=["bytes", "times of day", "durations"],
)
def test_bytes_and_times_of_day_may_be_declared_as_texts(tmp_path: Path, rare: list[object], text: list[str]) -> None:
    table = pa.table({"rare": pa.array(rare * 10), "y": [*range(10 * len(rare))]})
    pyarrow.parquet.write_table(table, path := tmp_path / "a.parquet")
    kept = kept_of(a_table(str(path), tmp_path / "kept", columns={"rare": "text"}))
    assert values(kept)["rare"] == text * 10
    words = words_of_columns(path, "+dataset.columns={rare: text}", "load.shuffle=full", inputs="[rare]")
    require_same_batches(plan_of(*words), tmp_path)


def test_bytes_that_are_no_texts_are_repaired_where_that_is_asked_for(tmp_path: Path, says: Says) -> None:
    pyarrow.parquet.write_table(pa.table({"rare": [b"a", b"\xff"]}), path := tmp_path / "a.parquet")
    declared = {"columns": {"rare": "text"}}
    says(message(tmp_path, kept_of, a_table(str(path), tmp_path / "kept", **declared)))
    kept = kept_of(a_table(str(path), tmp_path / "kept", errors="replace", **declared))
    assert values(kept) == {"rare": ["a", "\ufffd"]}


def test_a_stream_of_arrow_that_was_not_closed_is_noted(tmp_path: Path, says: Says) -> None:
    table, path = pa.table({"x": [*range(9)]}), tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)
    assert kept_of(a_table(str(path), tmp_path / "kept")).known.notes == ()
    path.write_bytes(path.read_bytes()[:-8])
    kept = kept_of(a_table(str(path), tmp_path / "kept"))
    assert values(kept) == {"x": [*range(9)]}
    says(kept.known.notes)
    pyarrow.feather.write_feather(table, tmp_path / "a.feather")
    assert kept_of(a_table(str(tmp_path / "a.feather"), tmp_path / "kept")).known.notes == ()
