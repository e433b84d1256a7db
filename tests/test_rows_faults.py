"""Files that are no tables: each fault names the file, the line or row, and the column."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from etlrun.cli import main as cli
from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.runs import run_here
from tests.tables import CSV, a_table, kept_from, message, words_of
from tests.trained import said

REPAIR, STANDS = "\n    -> repair the line", "\n    -> repair the line: a value with a separator in it stands in quotes"
NAMES = "expected names of columns\n    -> write the names of the columns in the first line"
NO_ROWS = "no rows for train; expected at least one row\n    -> write the files again, or choose others"
ONE_EACH = "one for each column of the header"
QUOTES = "expected values in quotes that end with a quote, and quotes in them written twice\n    -> "
PLAIN_QUOTE, ESCAPED = "set 'dataset.csv={quote: null}'", """set 'dataset.csv={escape: "\\\\"}'"""
REPAIRED = ", or repair the line"
ENDS = "remove the separators at the ends of lines, as by: sed 's/,$//' a.csv"
LINES, PULL = "expected lines of text\n    ->", "fetch the file itself, as by: git lfs pull"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12345\n"
ON_LINES = "expected an object of JSON on each line\n    -> write them so, as by: jq -c"
JQ = "(with jq 1.7 or later, which keeps large integers)"
BYTE = "the byte 0xe4; expected text in UTF-8\n    -> convert it, as by: iconv -f LATIN1 -t UTF-8"
REPLACE = "; or set dataset.errors=replace"
BEYOND = "an integer beyond 64 bits; expected integers from -2**63 to 2**63 - 1\n    ->"
INFINITE = "which is infinite as a number; expected finite numbers\n    -> repair the value, or"
FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "ragged": ("a.csv", "a,price\n1,2\n1,2,3\n", f"a.csv, line 3: found 3 values; expected 2, {ONE_EACH}{STANDS}"),
    "ragged behind lines in a value": (
        "a.csv", 'a,price\n"1\n\n",2\n1\n', f"a.csv, line 5: found 1 value; expected 2, {ONE_EACH}{STANDS}",
    ),
    "an open quote in the last column": (
        "a.csv", 'a,b,price\n1,"2",3\n1,2,"3\n4,5,6\n',
        f"a.csv, line 3: found a quote that is not closed; {QUOTES}{PLAIN_QUOTE}{REPAIRED}",
    ),
    "a quote inside": (
        "a.csv", 'a,price\n1,2\n"say "so"",2\n',
        f"a.csv, line 3: found a quote inside a value in quotes; {QUOTES}{PLAIN_QUOTE}{REPAIRED}",
    ),
    "quotes as Spark writes them, which merge rows": (
        "a.csv", 'a,price\n"12\\"",1\n"13\\"",2\n',
        f"a.csv, line 2: found a quote inside a value in quotes; {QUOTES}{ESCAPED}{REPAIRED}",
    ),
    "quotes that are not closed, which merge rows": (
        "a.csv", 'a,price\n"12,1\n"13,2\n',
        f"a.csv, line 2: found a quote inside a value in quotes; {QUOTES}{PLAIN_QUOTE}{REPAIRED}",
    ),
    "quotes that begin a sentence, which merge rows": (
        "a.tsv", 'a\tprice\n"It is\t1\n"It was\t2\n',
        f"a.tsv, line 2: found a quote inside a value in quotes; {QUOTES}{PLAIN_QUOTE}{REPAIRED}",
    ),
    "quotes that no dialect explains": (
        "a.csv", 'a,b,price\n"x, y",1,1\n"say "so"",1,2\n',
        f"a.csv, line 3: found a quote inside a value in quotes; {QUOTES}repair the line",
    ),
    "names of rows, of R": (
        "a.csv", '"a","price"\n"1",2,3\n"2",3,4\n',
        (f"a.csv, line 2: found 3 values; expected 2, {ONE_EACH}\n    -> quote values with a separator, or, if the "
        "first ones are R's names of rows, name them, as by: sed '1s/^/row,/' a.csv"),
    ),
    "separators at the ends of lines": (
        "a.csv", "a,price\n1,2,\n2,3,\n", f"a.csv, line 2: found 3 values; expected 2, {ONE_EACH}\n    -> {ENDS}",
    ),
    "separators at the ends of all lines": (
        "a.csv", "a,price,\n1,2,\n",
        f"a.csv, line 1: found a header without a name for column 3 of 3; expected names of columns\n    -> {ENDS}",
    ),
    "a separator for Excel": (
        "a.csv", "sep=;\na;price\n1;2\n",
        ("a.csv, line 1: found a separator for Excel; expected names of columns"
        "\n    -> remove the line, as by: sed 1d a.csv"),
    ),
    "commas under another name": (
        "a.tsv", "a,price\n1,2\n",
        ("a.tsv, line 1: found columns separated by ','; expected names of columns"
        """\n    -> set 'dataset.csv={separator: ","}'"""),
    ),
    "two headers, one behind a BOM": (
        "a.csv", "a,price\n1,2\n\ufeffa, price\n3,4\n",
        "a.csv, line 3: found the header again; expected a row of values\n    -> remove the line",
    ),
    "a page": (
        "a.csv", "<!DOCTYPE html><html></html>\n",
        f"a.csv: found a page of HTML or XML; {LINES} download the file itself",
    ),
    "a pointer": ("a.jsonl", POINTER, f"a.jsonl: found a pointer of Git LFS; {LINES} {PULL}"),
    "a pointer instead of Parquet": (
        "a.parquet", POINTER, f"a.parquet: found a pointer of Git LFS; expected a Parquet file\n    -> {PULL}",
    ),
    "a page instead of Arrow": (
        "a.feather", b"\n<html></html>",
        "a.feather: found a page of HTML or XML; expected a file of Arrow\n    -> download the file itself",
    ),
    "a pointer instead of records": (
        "a.tfrecord", POINTER,
        f"a.tfrecord: found a pointer of Git LFS; expected TFRecords without compression\n    -> {PULL}",
    ),
    "a database": (
        "a.csv", b"SQLite format 3\0",
        f"a.csv: found a document or a database; {LINES} export its table as csv",
    ),
    "UTF-16 without a BOM": (
        "a.csv", CSV.encode("utf-16-be"),
        ("a.csv: found text in UTF-16; expected text in UTF-8"
        "\n    -> convert it, as by: iconv -f UTF-16BE -t UTF-8 a.csv"),
    ),
    "UTF-32": (
        "a.txt", CSV.encode("utf-32"),
        "a.txt: found text in UTF-32; expected text in UTF-8\n    -> convert it, as by: iconv -f UTF-32 -t UTF-8 a.txt",
    ),
    "line ends of CR": (
        "a.txt", "a\rb\r",
        "a.txt: found line ends of CR alone; expected those of LF\n    -> convert them, as by: sed 's/\\r/\\n/g' a.txt",
    ),
    "JSON as csv": (
        "a.csv", '{"a": 1, "b": 2}\n',
        "a.csv, line 1: found JSON; expected names of columns\n    -> name it with .jsonl",
    ),
    "an array": (
        "a.jsonl", '[{"a": 1},\n {"a": 2}]', f"a.jsonl: found an array of JSON; {ON_LINES} '.[]' a.jsonl {JQ}",
    ),
    "objects over several lines": (
        "a.jsonl", '{\n "a": 1\n}\n{"a": 2}',
        f"a.jsonl: found objects of JSON that are not on lines of their own; {ON_LINES} . a.jsonl {JQ}",
    ),
    "objects on one line": (
        "a.jsonl.gz", '{"a": 1} {"a": 2}',
        ("a.jsonl.gz: found objects of JSON that are not on lines of their own; "
        f"{ON_LINES.replace('jq', 'gunzip -c a.jsonl.gz | jq')} . {JQ}"),
    ),
    "an array by another name": (
        "a.json", '[{"a": 1}]',
        ("a.json: found a file of another name; expected one that ends in .csv, .tsv, .jsonl, .ndjson, .parquet, "
        f".feather, .arrow, .tfrecord, or .gz behind one of text"
        f"\n    -> write them so, as by: jq -c '.[]' a.json {JQ}"),
    ),
    "two headers": (
        "a.csv", "a,price\n1,2\na,price\n",
        "a.csv, line 3: found the header again; expected a row of values\n    -> remove the line",
    ),
    "a name twice": ("a.csv", "a,price,a\n1,2,3\n", f"a.csv, line 1: found a header with a twice; {NAMES}"),
    "no name": (
        "a.csv", "a,,price,\n1,2,3,4\n", f"a.csv, line 1: found a header without a name for column 2, 4 of 4; {NAMES}",
    ),
    "semicolons": (
        "a.csv", "a;price\n1;2\n",
        ("a.csv, line 1: found columns separated by ';'; expected names of columns"
        """\n    -> set 'dataset.csv={separator: ";"}'"""),
    ),
    "empty": ("a.csv", "", f"a.csv, line 1: found an empty file; {NAMES}"),
    "no rows": ("a.csv", "a,price\n", f"a.csv: found {NO_ROWS}"),
    "another encoding": (
        "a.csv", "a,price\nx,1\nä,2\n".encode("latin-1"), f"a.csv, line 3: found {BYTE} a.csv{REPLACE}",
    ),
    "another encoding in the header": ("a.csv", "ä,price\n".encode("latin-1"), f"a.csv, line 1: found {BYTE} a.csv"),
    "UTF-16": (
        "a.csv", CSV.encode("utf-16"),
        "a.csv: found text in UTF-16; expected text in UTF-8\n    -> convert it, as by: iconv -f UTF-16 -t UTF-8 a.csv",
    ),
    "an integer that is too large": (
        "a.csv", "a,price\n1,1\n99999999999999999999,1\n",
        (f"a.csv, line 3, a: found 99999999999999999999, {BEYOND} set 'dataset.columns={{a: text}}' for a code, or "
        "number for a float"),
    ),
    "a number that is too large": (
        "a.csv", "a,price\n1.5,1\n1e999,1\n",
        f"a.csv, line 3, a: found 1e999, {INFINITE} leave it empty, which is missing",
    ),
    "an integer that a float rounds": (
        "a.csv", f"a,price\n{2**53 + 1},1\n,1\n",
        ("dataset.columns.a: found missing values, and integers from 9007199254740992 to 9007199254740992; "
        "expected integers below 2**53 where some are missing, since these are read as floats"
        "\n    -> set 'dataset.columns={a: text}' for a code, or number for a rounded float"),
    ),
    "no lines": (
        "a.jsonl", "\n\n",
        "a.jsonl: found an empty file; expected lines of JSON\n    -> write an object of JSON on each line",
    ),
    "no JSON": (
        "a.jsonl", '{"a": 1, "price": 2}\n{"a": 1, "price": }\n',
        f"a.jsonl, line 2: found no JSON: Expecting value; expected an object of JSON{REPAIR}",
    ),
    "a list": ("a.jsonl", '[1]\n{"a": 1}\n', f"a.jsonl, line 1: found [1]; expected an object of JSON{REPAIR}"),
    "a key twice": (
        "a.jsonl", '{"a": 1}\n{"a": 1, "a": 2}\n',
        f"a.jsonl, line 2: found the key a twice; expected each key once{REPAIR}",
    ),
    "another key": (
        "a.jsonl", '{"a": 1, "price": 2}\n\n{"a": 1, "prize": 2}\n',
        ("a.jsonl, line 3: found other keys: prize; expected those of the first line: a, price"
        "\n    -> add them to the first line, with null for a value that is missing, or leave them out"),
    ),
    "another type": (
        "a.jsonl", '{"a": 1, "price": 2}\n{"a": null, "price": 2}\n{"a": "x", "price": 2}\n',
        f"a.jsonl, line 3, a: found a text: x; expected a number, as in line 1{REPAIR}",
    ),
    "JSON of another encoding": (
        "a.jsonl", '{"a": "x"}\n{"a": "ä"}\n'.encode("latin-1"), f"a.jsonl, line 2: found {BYTE} a.jsonl{REPLACE}",
    ),
    "a large integer in JSON": (
        "a.jsonl", '{"a": 1}\n{"a": 99999999999999999999}\n',
        f"a.jsonl, line 2, a: found 99999999999999999999, {BEYOND} write it as a text for a code, or as a float",
    ),
    "a header alone": ("a.csv", "a,price", f"a.csv: found {NO_ROWS}"),
    "the index of a frame": (
        "a.csv", ",a,price\n0,1,1\n",
        ("a.csv, line 1: found a header without a name for column 1 of 3; expected names of columns"
        "\n    -> name it, or leave it out, as frame.to_csv(path, index=False) does"),
    ),
    "a title above the header": (
        "a.csv", "Prices of 2020\na,price\n1,1\n",
        (f"a.csv, line 2: found 2 values; expected 1, {ONE_EACH}"
        "\n    -> if the lines above it are no header, remove them"),
    ),
    "Parquet by another name": (
        "a.csv", b"PAR1\x15\x04", "a.csv: found a Parquet file; expected lines of text\n    -> name it with .parquet",
    ),
    "compressed by another name": (
        "a.jsonl", gzip.compress(b"{}", mtime=0),
        f"a.jsonl: found a compressed file; {LINES} decompress it, or add .gz for gzip",
    ),
    "a workbook": (
        "a.tsv", b"PK\x03\x04\x14",
        "a.tsv: found an archive or a workbook; expected lines of text\n    -> unpack it, or save the sheet as csv",
    ),
    "an infinite number in JSON": (
        "a.jsonl", '{"a": 1, "price": 2}\n{"a": 1e999, "price": 2}\n',
        f"a.jsonl, line 2, a: found inf, {INFINITE} write null",
    ),
    "a half of a character": (
        "a.jsonl", '{"a": "x", "price": 2}\n{"a": "\\ud800", "price": 2}\n',
        f"a.jsonl, line 2, a: found a text with a half of a character: \\ud800; expected text in Unicode{REPAIR}",
    ),
    "JSON that is too deep": (
        "a.jsonl", f'{{"a": {"[" * 9_999}{"]" * 9_999}}}\n',
        f"a.jsonl, line 1: found lists or objects within each other; expected an object of JSON{REPAIR}",
    ),
    "no keys": (
        "a.jsonl", "{}\n",
        ("a.jsonl, line 1: found an object without keys; expected names of columns"
        "\n    -> write the names of all columns in the first line, with null for a value that is missing"),
    ),
    "no table": (
        "a.xlsx", "",
        ("a.xlsx: found a file of another name; expected one that ends in .csv, .tsv, .jsonl, .ndjson, .parquet, "
        ".feather, .arrow, .tfrecord, or .gz behind one of text\n    -> rename it"),
    ),
    "an empty Parquet file": (
        "a.parquet", "", "a.parquet: found an empty file; expected a complete one\n    -> write or copy it again",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "expected"), FAULTS.values(), ids=FAULTS)
def test_files_that_are_no_tables(tmp_path: Path, name: str, content: str | bytes, expected: str) -> None:
    with pytest.raises(EtlrunError) as caught:
        kept_from(tmp_path, name, content)
    assert message(tmp_path, caught.value) == expected
    assert not [*(tmp_path / "kept").glob("rows-*[!k]")]


@pytest.mark.parametrize(("value", "kind"), [("1", "integer"), ("0.5", "number"), ("true", "truth")])
def test_json_that_is_no_text_is_no_time(tmp_path: Path, value: str, kind: str) -> None:
    with pytest.raises(EtlrunError) as caught:
        kept_from(tmp_path, "a.jsonl", f'{{"a": null}}\n{{"a": {value}}}\n', columns={"a": "timestamp"})
    assert message(tmp_path, caught.value) == (
        f"a.jsonl, a: found values of type {kind}; expected times as texts, such as 2020-01-31 or 2020-01-31T12:00:00"
        "\n    -> write them so, or leave a out of dataset.columns"
    )


def test_tables_of_columns_that_can_not_be_kept(tmp_path: Path) -> None:
    def fault(table: pa.Table, *, last: int | None = None, **others: Any) -> str:
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:last])
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept", **others))
        return message(tmp_path, caught.value)

    plain = pa.table({"a": pa.array([1.0, None, np.inf]), "price": ["1", "2", "x"]})
    assert fault(plain) == (
        "a.parquet, row 2, a: found inf, which is infinite as a number; expected finite numbers"
        "\n    -> repair the value, or leave it empty, which is missing"
    )
    assert fault(plain, columns={"price": "number", "a": "text"}) == (
        "a.parquet, row 2, price: found x; expected a value of type number"
        "\n    -> repair the value, or set another type by 'dataset.columns={price: text}'"
    )
    assert fault(plain, columns={"prize": "number"}) == (
        "dataset.columns.prize: found a column that the files don't have; expected one of a, price"
        "\n    -> did you mean `price`?"
    )
    damaged = "a.parquet: found a Parquet file that is cut off or damaged: Parquet magic"
    assert fault(plain, last=-100).startswith(damaged)
    nested = pa.table({"a": [[[1]]], "b": [{"c": 1}], "d": [b"x"]})
    of = {"a": "list<element: list<element: int64>>", "b": "struct<c: int64>", "d": "binary"}
    assert fault(nested) == "\n".join(
        f"a.parquet, {name}: found values of type {type_}; expected numbers, truth values, texts, dates or timestamps, "
        "in one column at least\n    -> write others"
        for name, type_ in of.items()
    )
    texts = [None, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"x\xff\xfe")]
    assert fault(pa.table({"a": pa.StringArray.from_buffers(2, texts[1], texts[2])})) == (
        "a.parquet, row 1, a: found b'\\xff\\xfe'; expected text in UTF-8\n    -> repair the value" + REPLACE
    )
    assert fault(pa.table({"a": pa.array([0, 2**50], pa.timestamp("s"))})) == (
        "a.parquet, row 1, a: found 1125899906842624000; expected a value of type timestamp"
        "\n    -> repair the value, or set another type by 'dataset.columns={a: text}'"
    )
    large = pa.table({"a": pa.array([2**63], pa.uint64())})
    assert fault(large).startswith("a.parquet, row 0, a: found 9223372036854775808; expected a value of type integer")


def test_files_of_one_table_have_the_same_columns(tmp_path: Path) -> None:
    for name, table in {
        "a": {"a": [1], "price": [1]},
        "b": {"b": [1], "price": [1]},
        "c": {"a": ["x"], "price": [1]},
        "naive": {"day": pa.array([0], pa.timestamp("us"))},
        "zoned": {"day": pa.array([0], pa.timestamp("us", "Europe/Berlin"))},
    }.items():
        pyarrow.parquet.write_table(pa.table(table), tmp_path / f"{name}.parquet")

    def fault(files: Any) -> str:
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table(files, tmp_path / "kept"))
        return message(tmp_path, caught.value)

    differing = (
        "b.parquet: found columns without a and with b; expected the columns of a.parquet"
        "\n    -> write the same columns to all files, or leave one of them out of dataset.files"
    )
    assert fault(f"{tmp_path}/[ab].parquet") == differing
    assert fault({"train": f"{tmp_path}/a.parquet", "test": f"{tmp_path}/b.parquet"}) == differing
    assert fault(f"{tmp_path}/[ac].parquet") == (
        "c.parquet, a: found values of type text; expected values of type integer, as in a.parquet"
        "\n    -> write the files with one type, or set 'dataset.columns={a: text}'"
    )
    assert fault(f"{tmp_path}/*e*.parquet") == (
        "zoned.parquet, day: found values of type zoned; expected values of type timestamp, as in naive.parquet"
        "\n    -> write the files with one type, or set 'dataset.columns={day: text}'"
    )


def test_a_plan_refuses_patterns_that_name_a_folder_or_a_set_of_characters(tmp_path: Path) -> None:
    (tmp_path / "kind=a").mkdir()
    (tmp_path / "_SUCCESS").touch()
    for name in ("kind=a/a.csv", "kind=a/b.csv", "c[1].csv"):
        (tmp_path / name).write_text(CSV)

    def fault(files: str) -> str:
        words = (of for of in words_of(tmp_path) if not of.startswith("dataset.files"))
        with pytest.raises(EtlrunError) as caught:
            plan_of(*words, f"dataset.files='{files}'")
        return message(tmp_path, caught.value)

    ends = ".csv, .tsv, .jsonl, .ndjson, .parquet, .feather, .arrow, .tfrecord, or .gz behind one of text"
    expected = f"for train; expected a pattern of files that end in {ends}\n    ->"
    assert fault(str(tmp_path)) == (
        f"dataset.files: found no file {tmp_path} {expected} it is a folder: name the files in it, as **/*.csv"
    )
    assert fault(f"{tmp_path}/c[1].csv") == (
        f"dataset.files: found no file c[1].csv {expected} brackets in a pattern are a set of characters: write [[] "
        "for a [, as in c[[]1].csv"
    )


def test_a_file_is_in_one_split(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    for name in ("a.csv", "b.csv"):
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table({"train": f"{tmp_path}/a*.csv", "validation": f"{tmp_path}/{name}"}, tmp_path / "kept"))
        assert message(tmp_path, caught.value) == (
            f"dataset.files: found {name} in train and in validation; expected each file in one split"
            "\n    -> leave it out of one of them; one split may be both trained on and evaluated"
        )


WHOLE = gzip.compress("".join(f'{{"a": {number}}}\n' for number in range(100_000)).encode(), mtime=0)
CUT_OFF = (
    "compressed bytes that are cut off or damaged; expected a file that can be read"
    "\n    -> check its permissions and its storage, or write it again"
)
PLAIN = "a file that is not compressed; expected bytes of gzip\n    -> leave .gz out of its name, or compress it"


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.csv.gz", CSV.encode(), PLAIN),
        ("a.jsonl.gz", WHOLE[: len(WHOLE) // 2], CUT_OFF),
        ("a.csv.gz", gzip.compress(CSV.encode() * 2_000, mtime=0)[:-9], CUT_OFF),
        ("a.csv.gz", POINTER, f"a pointer of Git LFS; {LINES} {PULL}"),
        (
            "a.csv.gz",
            gzip.compress(gzip.compress(b"a", mtime=0), mtime=0),
            f"a compressed file; {LINES} decompress it, or add .gz for gzip",
        ),
    ],
    ids=["plain text", "half a file", "no end", "a pointer", "compressed twice"],
)
def test_compressed_files_that_are_none(tmp_path: Path, name: str, content: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))
    assert message(tmp_path, caught.value) == f"{name}: found {found}"


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "plan",
            [
                r"a. transform.parse               -> 32 x {b\x1b[31m: text, c\nd: text}, y",
                r"b\x1b[31m             <- b\x1b[31m: lookup [\x1b[31mred\x1b[0m, \x1b[31mblue\x1b[0m], one_hot (3)",
                r"c\nd                  <- c\nd: lookup [line\nmore, line], one_hot (3)",
            ],
        ),
        ("stats", [r"b\x1b[31m   \x1b[31mred\x1b[0m    43  53.8%", r"     c\nd            line more    43  53.8%"]),
    ],
)
def test_marks_of_terminals_and_line_ends_are_escaped(
    command: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ['\x1b[31mred\x1b[0m,"line\nmore",yes\r\n', "\x1b[31mblue\x1b[0m,line,no\r\n"]
    (tmp_path / "t.csv").write_text('b\x1b[31m,"c\nd",y\r\n' + "".join(rows * 50), newline="")
    words = ["experiment=table", f"dataset.files={tmp_path}/t.csv", "dataset.target={y: class}", "load.batch_size=32"]
    cli.main([command, *words])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert [line for line in lines if line not in said] == []


COLUMNS = "transform.columns={zip: {of: zip, steps: [{lookup: {oov: error}}, one_hot]}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose codes are text."""
    folder = tmp_path_factory.mktemp("codes")
    codes = ["012", "300", "400", "a5"] * 10
    pyarrow.csv.write_csv(pa.table({"zip": codes, "price": [1.0, 2.5, 3.0, 4.0] * 10}), folder / "codes.csv")
    given = words_of(folder, f"dataset.files={folder}/codes.csv", "dataset.inputs=[zip]", "model=linear", COLUMNS)
    words = [word for word in given if "emulated" not in word and "step_ms" not in word]
    (folder / "run").mkdir()
    assert run_here(folder / "run", words)[0] == 0
    return folder / "run"


def test_another_table_has_the_types_of_the_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.csv.write_csv(pa.table({"zip": [300, 400] * 4, "price": [2, 3] * 4}), run / "other.csv")
    words = (f"dataset.files={run}/other.csv", "dataset.split=train")
    assert json.loads(said(capsys, "evaluate", run, *words, "--format", "json"))["examples"] == 8


def test_evaluations_of_two_tables_with_one_name_stand_beside_each_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [tmp_path / name / "codes.csv" for name in ("spring", "autumn")]
    for place, count in zip(places, (8, 12), strict=True):
        place.parent.mkdir()
        pyarrow.csv.write_csv(
            pa.table({"zip": ["012", "300"] * (count // 2), "price": [1.0, 2.5] * (count // 2)}), place
        )
    said(capsys, "evaluate", run, "dataset.split=train")
    own = (run / "evaluations" / "train.json").read_text()
    found = []
    for place in (*places, places[0]):
        words = (f"dataset.files={place}", "dataset.split=train", "--format", "json")
        of = json.loads(said(capsys, "evaluate", run, *words))
        found.append((of["name"], of["dataset"], of["examples"]))
    first, second = (str(place) for place in places)
    assert found == [("codes.csv train", first, 8), ("codes.csv train 2", second, 12), ("codes.csv train", first, 8)]
    assert (run / "evaluations" / "train.json").read_text() == own


def test_a_value_that_is_in_no_vocabulary_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.csv.write_csv(pa.table({"zip": ["300", "400", "b7"]}), run / "rows.csv")
    with pytest.raises(SystemExit):
        said(capsys, "predict", run, run / "rows.csv")
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  {run}/rows.csv, row 2, zip: found b7; expected values that the steps of zip accept, as in the training",
        "    -> repair the value, or train with a `lookup` whose `oov` is 1",
    ]


def test_types_of_columns_are_those_that_a_config_would_declare(tmp_path: Path) -> None:
    text = "n,x,t,day,word,none,price\n1,1.5,true,2020-01-01T00:00:00Z,a,,1\n2,,,2020-01-02T00:00:00Z,b,,2\n"
    known = kept_from(tmp_path, "rows.csv", text).known
    types = a_table("rows.csv", tmp_path, known=known, columns={"n": "text"}).types
    assert types == {
        "n": "text",
        "x": "number",
        "t": "truth",
        "day": "timestamp",
        "word": "text",
        "none": "number",
        "price": "integer",
    }
