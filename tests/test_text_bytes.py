"""Texts of tables that are not UTF-8: refused with their rows, or repaired by choice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.tables import a_table, message, values
from tests.test_rows_dialects import write_examples
from tests.test_rows_eject import require_same_batches
from tests.test_text_faults import words_of

TEXTS = [*(b"day night good w%d" % n for n in range(10)), b"caf\xe9 a\xff\xfeb", b"night \xe2\x82", "ü".encode()]
REPAIRED = [of.decode(errors="replace") for of in TEXTS]
LABELS = [b"neg" if n % 2 else b"pos" for n in range(len(TEXTS))]
ROWS = [b'{"text": "%s", "label": "%s"}' % pair for pair in zip(TEXTS, LABELS, strict=True)]
LINES = [b"text,label", *(b",".join(pair) for pair in zip(TEXTS, LABELS, strict=True))]


def of_texts(kind: str = "plain") -> pa.Table:
    text = pa.array(TEXTS, pa.binary()).view(pa.string())
    columns = {"plain": text, "codes": pa.DictionaryArray.from_arrays(list(range(len(TEXTS))), text)}
    return pa.table({"text": columns[kind], "label": [label.decode() for label in LABELS]})


WRITERS: dict[str, Any] = {
    "a.csv": lambda path: path.write_bytes(b"\n".join(LINES)),
    "a.tsv.gz": lambda path: path.write_bytes(gzip.compress(b"\n".join(LINES).replace(b",", b"\t"))),
    "a.jsonl": lambda path: path.write_bytes(b"\n".join(ROWS)),
    "a.ndjson.gz": lambda path: path.write_bytes(gzip.compress(b"\n".join(ROWS))),
    "a.parquet": lambda path: pyarrow.parquet.write_table(of_texts(), path),
    "b.feather": lambda path: pyarrow.feather.write_feather(of_texts("codes"), path),
    "a.feather": lambda path: pyarrow.feather.write_feather(of_texts(), path),
    "a.tfrecord": lambda path: write_examples(
        path, *({"text": [text], "label": [label]} for text, label in zip(TEXTS, LABELS, strict=True))
    ),
}
OR_REPLACE = "; or set dataset.errors=replace"
CONVERT = "found the byte 0xe9; expected text in UTF-8\n    -> convert it, as by: iconv -f LATIN1 -t UTF-8"
UNZIPPED = CONVERT.replace("iconv", "gunzip -c {} | iconv")
VALUE = f"found b'caf\\xe9 a\\xff\\xfeb'; expected text in UTF-8\n    -> repair the value{OR_REPLACE}"
TOLD = {
    "a.csv": f"line 12: {CONVERT} a.csv{OR_REPLACE}",
    "a.tsv.gz": f"line 12: {UNZIPPED.format('a.tsv.gz')}{OR_REPLACE}",
    "a.jsonl": f"line 11: {CONVERT} a.jsonl{OR_REPLACE}",
    "a.ndjson.gz": f"line 11: {UNZIPPED.format('a.ndjson.gz')}{OR_REPLACE}",
    "a.tfrecord": f"record 10, text: {VALUE}",
}


@pytest.mark.parametrize("name", WRITERS)
def test_texts_that_are_not_utf8_are_refused_or_repaired(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    given = {"target": {"label": "class"}}
    with pytest.raises(EtlrunError) as refused:
        kept_of(a_table(str(path), tmp_path / "kept", **given))
    assert message(tmp_path, refused.value) == f"{name}, {TOLD.get(name, f'row 10, text: {VALUE}')}"
    kept = kept_of(a_table(str(path), tmp_path / "kept", **given, errors="replace"))
    assert values(kept)["text"] == REPAIRED
    assert kept.known.notes == (f"2 rows of {name} are not in UTF-8: U+FFFD is read for what can't be decoded.",)


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.jsonl", "b.feather", "a.tfrecord"])
def test_a_program_reads_the_same_batches(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    columns = "transform.columns={text: {steps: [{hash: 50}, embed]}}"
    others = ("load=shuffled", "load.batch_size=4", "trainer.epochs=2", "dataset.eval_split=train")
    words = (*words_of(tmp_path / name, columns), *others, "dataset.errors=replace")
    require_same_batches(plan_of(*words), tmp_path)


FAULTS = {
    "a.csv": (
        b"text\xe9,price\na,1\n",
        f"a.csv, line 1: {CONVERT} a.csv",
    ),
    "b.csv": (
        b"text,price\ncaf\xe9,1\nb,1,2\n",
        (
            "b.csv, line 3: found 3 values; expected 2, one for each column of the header\n"
            "    -> repair the line: a value with a separator in it stands in quotes"
        ),
    ),
    "a.jsonl": (
        b'{"text": "caf\xe9", "price": 1}\n{"text": "b", "price": "\xe9"}\n',
        "a.jsonl, line 2, price: found a text: \ufffd; expected a number, as in line 1\n    -> repair the line",
    ),
    "b.jsonl": (
        json.dumps({"text": "a", "price": 1}).encode("utf-16"),
        (
            "b.jsonl: found text in UTF-16; expected text in UTF-8\n"
            "    -> convert it, as by: iconv -f UTF-16 -t UTF-8 b.jsonl"
        ),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_repaired_texts(name: str, tmp_path: Path) -> None:
    data, told = FAULTS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(EtlrunError) as refused:
        kept_of(a_table(str(tmp_path / name), tmp_path / "kept", errors="replace"))
    assert message(tmp_path, refused.value) == told
