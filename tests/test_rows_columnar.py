"""Files of columns whose types are rare: what is read of them, and damage that their checksums tell."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.sources.rows.table import kept_of
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, refusal_of_plan
from tests.tables import a_table, message, values
from tests.test_rows_eject import require_same_batches
from tests.test_rows_examples import write as write_examples


def test_times_of_int96_are_those_that_were_written(tmp_path: Path) -> None:
    days = [datetime(9999, 12, 31), datetime(2024, 1, 2, 3, 4, 5, 6), None, datetime(1066, 10, 14)]  # noqa: DTZ001
    table = pa.table({"until": pa.array(days, pa.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert values(kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept"))) == {"until": days}


def test_checksums_of_pages_tell_damage(tmp_path: Path) -> None:
    table = pa.table({"x": [number + 0.123456789 for number in range(200)]})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    assert kept_of(a_table(str(path), tmp_path / "kept")).known.rows == {"train": 200}
    data = bytearray(path.read_bytes())
    data[data.find(struct.pack("<d", 100.123456789)) + 7] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(path), tmp_path / "kept"))
    assert message(tmp_path, caught.value) == (
        "a.parquet: found a Parquet file that is cut off or damaged: could not verify page integrity, CRC checksum "
        "verification failed for page_ordinal 0; expected a complete one\n    -> write or copy it again"
    )


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


RARE: dict[str, tuple[str, Write, str]] = {
    "bytes": ("a.parquet", in_parquet(b"\xff"), "values of type binary in a.parquet"),
    "times of day": ("a.parquet", in_parquet(time(10, 30)), "values of type time64[us] in a.parquet"),
    "durations": ("a.parquet", in_parquet(timedelta(1)), "values of type duration[us] in a.parquet"),
    "parts": ("a.parquet", in_parquet({"a": 1}), "values of type struct<a: int64> in a.parquet"),
    "of Arrow": (
        "a.feather",
        lambda path: pyarrow.feather.write_feather(table_of([[1]]), path),
        "values of type list<item: list<item: int64>> in a.feather",
    ),
    "of JSON": ("a.jsonl", in_json({"a": 1}), "values of type struct<a: int64> in a.jsonl"),
    "lists of JSON": ("a.jsonl", in_json([[1]]), "values of type list<item: list<item: int64>> in a.jsonl"),
    "of records": (
        "a.tfrecord",
        lambda path: write_examples(path, *({"x": [of], "rare": [1, 2], "y": [of]} for of in range(NUM_ROWS))),
        "2 values in a.tfrecord, record 0",
    ),
}


def words_of(path: Path, *others: str, inputs: str = "[x]", target: str = "{y: number}") -> Sequence[str]:
    given = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", f"dataset.target={target}")
    emulated = ("model=emulated", "model.step_ms=0", "load.batch_size=4", "trainer.epochs=2")
    columns = f"transform.columns={{{inputs[1:-1]}: {{}}}}"
    return ("experiment=table", *given, f"dataset.inputs={inputs}", columns, *emulated, *others)


@pytest.mark.parametrize(("name", "write", "told"), RARE.values(), ids=RARE)
def test_a_column_that_can_not_be_kept_is_refused_where_it_is_an_input(
    tmp_path: Path, name: str, write: Write, told: str
) -> None:
    write(tmp_path / name)
    dataset = plan_of(*words_of(tmp_path / name)).spec.dataset
    assert isinstance(dataset, Rows)
    assert ([*dataset.found.columns], dataset.found.left_out) == (["x", "y"], {"rare": told})
    as_text = "; it is read as text by 'dataset.columns={rare: text}'"
    end = (
        f"found rare, which has {told}; expected a number, truth value, text, date, timestamp, or list of numbers or "
        "of texts in each row\n    -> name the other columns in dataset.inputs, or write its parts as columns of their "
        f"own{as_text if re.search('binary|time|duration', told) else ''}"
    )
    for inputs in ("null", "[rare]"):
        assert refusal_of_plan(*words_of(tmp_path / name, inputs=inputs)) == f"dataset.inputs: {end}"
    wanted = refusal_of_plan(*words_of(tmp_path / name, target="{rare: class}"))
    assert wanted == f"dataset.target: {end}"


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
    words = words_of(path, "+dataset.columns={rare: text}", "load.shuffle=full", inputs="[rare]")
    require_same_batches(plan_of(*words), tmp_path)


def test_bytes_that_are_no_texts_are_repaired_where_that_is_asked_for(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"rare": [b"a", b"\xff"]}), path := tmp_path / "a.parquet")
    declared = {"columns": {"rare": "text"}}
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(path), tmp_path / "kept", **declared))
    assert message(tmp_path, caught.value) == (
        "a.parquet, row 1, rare: found b'\\xff'; expected text in UTF-8\n    -> repair the value; or set "
        "dataset.errors=replace"
    )
    kept = kept_of(a_table(str(path), tmp_path / "kept", errors="replace", **declared))
    assert values(kept) == {"rare": ["a", "\ufffd"]}


def test_a_stream_of_arrow_that_was_not_closed_is_noted(tmp_path: Path) -> None:
    table, path = pa.table({"x": [*range(9)]}), tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)
    assert kept_of(a_table(str(path), tmp_path / "kept")).known.notes == ()
    path.write_bytes(path.read_bytes()[:-8])
    kept = kept_of(a_table(str(path), tmp_path / "kept"))
    assert values(kept) == {"x": [*range(9)]}
    note = "a.arrow ends without the end of a stream of Arrow: what wrote it may have been interrupted."
    assert kept.known.notes == (note,)
    for name in ("a.feather", "a.parquet"):
        write = pyarrow.parquet.write_table if "parquet" in name else pyarrow.feather.write_feather
        write(table, tmp_path / name)
        assert kept_of(a_table(str(tmp_path / name), tmp_path / "kept")).known.notes == ()
