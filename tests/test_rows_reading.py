"""Files of tables: formats, types that are inferred from all rows, and what is said of those that can't be read."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.cli import cache
from etlrun.sources.rows.folders import FACTS
from etlrun.sources.rows.keeping import kept_of
from etlrun.sources.rows.kept import Kept
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.tables import houses, words_of


def a_table(files: Any, kept: Path, **others: Any) -> Table:
    """A dataset of these files, whose columns are kept in the folder `kept`."""
    given = {
        "name": "table",
        "files": files,
        "split": "train",
        "eval_split": None,
        "on_corrupt": "raise",
        "target": {"price": "number"},
        "inputs": None,
        "columns": {},
        "order": "file",
        "missing": ("", "NA", "null"),
        "strip": False,
        "dir": str(kept),
    }
    return Table(**{**given, **others})


def kept_from(folder: Path, name: str, content: str | bytes, **others: Any) -> Kept:
    """The kept columns of a file of that content."""
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return kept_of(a_table(str(folder / name), folder / "kept", **others))


def values(kept: Kept) -> dict[str, list[Any]]:
    """All values by column; what is missing is None, and text is str."""
    plain = {"text": pa.large_string(), "timestamp": pa.timestamp("us")}
    found = {name: (kept.arrow(name), column.feature.format) for name, column in kept.known.columns.items()}
    return {name: (of.cast(plain[str(kind)]) if kind else of).to_pylist() for name, (of, kind) in found.items()}


def types(kept: Kept) -> dict[str, str]:
    return {name: str(column.feature).split(" in ")[0] for name, column in kept.known.columns.items()}


def message(folder: Path, error: EtlrunError) -> str:
    return str(error).replace(f"{folder}/", "")


CSV = "rooms,kind,price\n1,flat,10.5\n,NA,20\n3,loft,30\n"
JSON = (
    '{"rooms": 1, "kind": "flat", "price": 10.5}\n\n{"rooms": null, "price": 20}\n{"kind":"loft","rooms":3,"price":30}'
)
HOUSES = {"rooms": [1, None, 3], "kind": ["flat", None, "loft"], "price": [10.5, 20.0, 30.0]}
TEXTS = {
    "of commas": ("a.csv", CSV),
    "of tabs": ("a.tsv", CSV.replace(",", "\t")),
    "compressed": ("a.csv.gz", CSV),
    "in capitals": ("A.CSV", CSV),
    "with a BOM": ("a.csv", "\ufeff" + CSV),
    "with CRLF": ("a.csv", CSV.replace("\n", "\r\n")),
    "in quotes": ("a.csv", '"rooms","kind","price"\n"1","flat","10.5"\n"","NA","20"\n"3","loft","30"'),
    "JSON lines": ("a.jsonl", JSON),
    "JSON lines with a BOM, compressed": ("a.ndjson.gz", "\ufeff" + JSON),
}


@pytest.mark.parametrize(("name", "content"), TEXTS.values(), ids=TEXTS)
def test_files_of_text_hold_the_same(tmp_path: Path, name: str, content: str) -> None:
    kept = kept_from(tmp_path, name, content)
    assert values(kept) == HOUSES
    assert types(kept) == {"rooms": "float64", "kind": "text", "price": "float64"}
    assert (kept.known.rows, kept.known.notes) == ({"train": 3}, ())


def test_files_of_columns_hold_the_same(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(houses(), tmp_path / "a.parquet", row_group_size=64)
    pyarrow.feather.write_feather(houses(), tmp_path / "a.feather", chunksize=64)
    with pa.ipc.new_stream(tmp_path / "a.arrow", houses().schema) as stream:
        stream.write_table(houses())
    pyarrow.csv.write_csv(houses(), tmp_path / "a.csv")
    expected = {name: of.to_pylist() for name, of in zip(houses().column_names, houses().columns, strict=True)}
    for name in ("a.parquet", "a.feather", "a.arrow", "a.csv"):
        assert values(kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))) == expected, name


def test_splits_of_several_patterns_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, rows in {
        "b-1.csv": "a,price\n1,1\n2,2\n",
        "b-0.csv": "price,a\n0,0\n",
        "c.csv": "a,price\n9,9\n",
    }.items():
        (tmp_path / name).write_text(rows)
    files = {"train": (f"{tmp_path}/c.csv", f"{tmp_path}/b-*.csv"), "test": (f"{tmp_path}/c.csv",)}
    kept = kept_of(a_table(files, tmp_path / "kept"))
    assert values(kept) == {"a": [9, 0, 1, 2, 9], "price": [9, 0, 1, 2, 9]}
    assert kept.known.rows == {"train": 4, "test": 1}


UTC_DAY = datetime(2020, 1, 2, 8)  # noqa: DTZ001 - as kept, in UTC
INFERRED: dict[str, tuple[str, str, list[Any]]] = {
    "integers": ("1,-2,+3".replace("+", ""), "int64", [1, -2, 3]),
    "integers in blanks": (" 1,2 ,3", "int64", [1, 2, 3]),
    "numbers": ("1,2.5,-1e3", "float64", [1.0, 2.5, -1000.0]),
    "a number that is none": ("1.5,NaN,2", "float64", [1.5, None, 2.0]),
    "missing": ("NA,null,", "float64", [None, None, None]),
    "leading zeros": ("01234,2,3", "text", ["01234", "2", "3"]),
    "leading zeros later": ("1,2,03", "text", ["1", "2", "03"]),
    "hexadecimal": ("0x1F,2,3", "text", ["0x1F", "2", "3"]),
    "truth values": ("true,False,True", "bool", [True, False, True]),
    "other words": ("true,yes,no", "text", ["true", "yes", "no"]),
    "days": ("2020-01-02,2020-01-02,NA", "timestamp", [datetime(2020, 1, 2), datetime(2020, 1, 2), None]),  # noqa: DTZ001
    "times with zones": ("2020-01-02T08:00Z,2020-01-02T10:00+02:00,", "timestamp", [UTC_DAY, UTC_DAY, None]),
    "times with and without zones": (
        "2020-01-02T08:00Z,2020-01-02,",
        "text",
        ["2020-01-02T08:00Z", "2020-01-02", None],
    ),
    "texts like numbers": ("1,2,three", "text", ["1", "2", "three"]),
}


@pytest.mark.parametrize(("column", "dtype", "expected"), INFERRED.values(), ids=INFERRED)
def test_types_are_those_of_all_rows(tmp_path: Path, column: str, dtype: str, expected: list[Any]) -> None:
    rows = "".join(f"{value},1\n" for value in column.split(","))
    kept = kept_from(tmp_path, "a.csv", f"a,price\n{rows}")
    assert (types(kept)["a"], values(kept)["a"]) == (dtype, expected)


def test_a_value_at_the_end_of_a_large_file_decides(tmp_path: Path) -> None:
    count, filling = 50_000, "x" * 100  # several blocks
    kept = kept_from(tmp_path, "a.csv", "a,b,c,price\n" + f"7,8,{filling},1\n" * count + "7.5,x,,1\n")
    assert types(kept) == {"a": "float64", "b": "text", "c": "text", "price": "int64"}
    assert kept.take("a", np.array([0, count])).tolist() == [7, 7.5]
    assert kept.take("b", np.array([0, count])).tolist() == [b"8", b"x"]
    where = "a.csv, line 50,002"
    assert kept.known.notes == (
        (
            f"b is text, since {where} has x, though 50,000 of 50,001 values are numbers: "
            "repair it, or add it to dataset.missing."
        ),
    )
    lines = f'{{"a": 7, "c": "{filling}"}}\n' * count + '{"a": 7.5, "c": null}\n'
    assert types(kept_from(tmp_path, "a.jsonl", lines)) == {"a": "float64", "c": "text"}


def test_declared_types_come_before_those_that_are_inferred(tmp_path: Path) -> None:
    columns = {"zip": "text", "day": "timestamp", "big": "number", "code": "integer"}
    big = pa.array([2**63, None], pa.uint64())
    table = pa.table({"zip": [1, 2], "day": ["2020-01-02T08:00", None], "big": big, "code": [7.0, None]})
    expected = {"zip": ["1", "2"], "day": [UTC_DAY, None], "big": [2.0**63, None], "code": [7, None]}
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        assert values(kept_of(a_table(str(tmp_path / name), tmp_path / "kept", columns=columns))) == expected


def test_zones_and_units_of_typed_timestamps_become_utc(tmp_path: Path) -> None:
    zoned = pa.array([datetime(2020, 1, 2, 8, tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin"))
    pyarrow.parquet.write_table(pa.table({"day": zoned, "price": [1]}), tmp_path / "a.parquet")
    assert values(kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept")))["day"] == [UTC_DAY]


def test_blanks_stay_with_a_note_unless_they_are_removed(tmp_path: Path) -> None:
    content = "kind,price\n flat,1\nloft , 2\n NA ,3\n"
    kept = kept_from(tmp_path, "a.csv", content)
    assert values(kept) == {"kind": [" flat", "loft ", " NA "], "price": [1, 2, 3]}
    assert kept.known.notes == ("kind has blanks around values, which stay: dataset.strip=true removes them.",)
    kept = kept_from(tmp_path, "a.csv", content, strip=True)
    assert values(kept) == {"kind": ["flat", "loft", None], "price": [1, 2, 3]}
    assert kept.known.notes == ()


@pytest.mark.parametrize("value", ["1.234.567,5", "1'234", "1,5", "12,345.6", "-1 234"])
def test_separators_make_text_with_a_note(tmp_path: Path, value: str) -> None:
    kept = kept_from(tmp_path, "a.tsv", f"a\tprice\n12\t1\n{value}\t2\n")
    assert values(kept)["a"] == ["12", value]
    assert kept.known.notes == (
        (
            f"a is text, since a.tsv, line 3 has {value}: "
            "numbers are written with a decimal point and without separators of thousands."
        ),
    )


def test_columns_that_differ_in_two_files_of_text_are_text_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\n1,1\n")
    (tmp_path / "b.csv").write_text("a,price\nx,1\n")
    kept = kept_of(a_table({"train": f"{tmp_path}/a.csv", "test": f"{tmp_path}/b.csv"}, tmp_path / "kept"))
    assert values(kept)["a"] == ["1", "x"]
    assert kept.known.notes == ("a is text: its values are of type integer in a.csv, and text in b.csv.",)


REPAIR, ONCE_MORE = "\n    -> repair the line", "\n    -> write the files again, or choose others"
NAMES = "expected names of columns\n    -> write the names of the columns in the first line"
FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "ragged": (
        "a.csv",
        "a,price\n1,2\n1,2,3\n",
        (
            "a.csv, line 3: found 3 values; expected 2, one for each column of the header"
            "\n    -> repair the line: a value with a separator in it stands in quotes"
        ),
    ),
    "ragged behind lines in a value": (
        "a.csv",
        'a,price\n"1\n\n",2\n1\n',
        (
            "a.csv, line 5: found 1 values; expected 2, one for each column of the header"
            "\n    -> repair the line: a value with a separator in it stands in quotes"
        ),
    ),
    "an open quote in the last column": (
        "a.csv",
        'a,b,price\n1,"2",3\n1,2,"3\n4,5,6\n',
        (
            "a.csv, line 3: found a quote that is not closed; expected values in quotes that end with a quote, and "
            f"quotes in them written twice{REPAIR}"
        ),
    ),
    "a quote inside": (
        "a.csv",
        'a,price\n1,2\n"say "so"",2\n',
        (
            "a.csv, line 3: found a quote inside a value in quotes; expected values in quotes that end with a quote, "
            f"and quotes in them written twice{REPAIR}"
        ),
    ),
    "two headers": (
        "a.csv",
        "a,price\n1,2\na,price\n",
        "a.csv, line 3: found the header again; expected a row of values\n    -> remove the line",
    ),
    "a name twice": ("a.csv", "a,price,a\n1,2,3\n", f"a.csv, line 1: found a header with a twice; {NAMES}"),
    "no name": (
        "a.csv",
        "a,,price,\n1,2,3,4\n",
        f"a.csv, line 1: found a header without a name for column 2, 4 of 4; {NAMES}",
    ),
    "semicolons": (
        "a.csv",
        "a;price\n1;2\n",
        (
            "a.csv, line 1: found columns separated by ';'; expected names of columns"
            "\n    -> write it with commas, or with tabs as .tsv"
        ),
    ),
    "empty": ("a.csv", "", f"a.csv, line 1: found an empty file; {NAMES}"),
    "no rows": ("a.csv", "a,price\n", f"a.csv: found no rows for train; expected at least one row{ONCE_MORE}"),
    "another encoding": (
        "a.csv",
        "a,price\nx,1\nä,2\n".encode("latin-1"),
        (
            "a.csv, line 3: found the byte 0xe4; expected text in UTF-8"
            "\n    -> convert it, as by: iconv -f LATIN1 -t UTF-8 a.csv"
        ),
    ),
    "another encoding in the header": (
        "a.csv",
        "ä,price\nx,1\n".encode("latin-1"),
        (
            "a.csv, line 1: found the byte 0xe4; expected text in UTF-8"
            "\n    -> convert it, as by: iconv -f LATIN1 -t UTF-8 a.csv"
        ),
    ),
    "UTF-16": (
        "a.csv",
        CSV.encode("utf-16"),
        "a.csv: found text in UTF-16; expected text in UTF-8\n    -> convert it, as by: iconv -f UTF-16 -t UTF-8 a.csv",
    ),
    "an integer that is too large": (
        "a.csv",
        "a,price\n1,1\n99999999999999999999,1\n",
        (
            "a.csv, line 3, a: found 99999999999999999999, an integer beyond 64 bits; expected integers from -2**63 to "
            "2**63 - 1\n    -> set 'dataset.columns={a: text}' for a code, or number for a float"
        ),
    ),
    "a number that is too large": (
        "a.csv",
        "a,price\n1.5,1\n1e999,1\n",
        (
            "a.csv, line 3, a: found 1e999, which is infinite as a number; expected finite numbers"
            "\n    -> repair the value, or leave it empty, which is missing"
        ),
    ),
    "an integer that a float rounds": (
        "a.csv",
        f"a,price\n{2**53 + 1},1\n,1\n",
        (
            "dataset.columns.a: found missing values, and integers from 9007199254740992 to 9007199254740992; "
            "expected integers below 2**53 where some are missing, since these are read as floats"
            "\n    -> set 'dataset.columns={a: text}' for a code, or number for a rounded float"
        ),
    ),
    "no lines": (
        "a.jsonl",
        "\n\n",
        "a.jsonl: found an empty file; expected lines of JSON\n    -> write an object of JSON on each line",
    ),
    "no JSON": (
        "a.jsonl",
        '{"a": 1, "price": 2}\n{"a": 1, "price": }\n',
        f"a.jsonl, line 2: found no JSON: Expecting value; expected an object of JSON{REPAIR}",
    ),
    "a list": ("a.jsonl", '[1]\n{"a": 1}\n', f"a.jsonl, line 1: found [1]; expected an object of JSON{REPAIR}"),
    "a key twice": (
        "a.jsonl",
        '{"a": 1}\n{"a": 1, "a": 2}\n',
        f"a.jsonl, line 2: found the key a twice; expected each key once{REPAIR}",
    ),
    "another key": (
        "a.jsonl",
        '{"a": 1, "price": 2}\n\n{"a": 1, "prize": 2}\n',
        (
            "a.jsonl, line 3: found other keys: prize; expected those of the first line: a, price"
            "\n    -> add them to the first line, with null for a value that is missing, or leave them out"
        ),
    ),
    "another type": (
        "a.jsonl",
        '{"a": 1, "price": 2}\n{"a": null, "price": 2}\n{"a": "x", "price": 2}\n',
        f"a.jsonl, line 3, a: found a text: x; expected a number, as in line 1{REPAIR}",
    ),
    "a nested value": (
        "a.jsonl",
        '{"a": [1], "price": 2}\n',
        "a.jsonl, line 1, a: found a list; expected a single value\n    -> write its parts as columns of their own",
    ),
    "JSON of another encoding": (
        "a.jsonl",
        '{"a": "x"}\n{"a": "ä"}\n'.encode("latin-1"),
        (
            "a.jsonl, line 2: found the byte 0xe4; expected text in UTF-8"
            "\n    -> convert it, as by: iconv -f LATIN1 -t UTF-8 a.jsonl"
        ),
    ),
    "a large integer in JSON": (
        "a.jsonl",
        '{"a": 1}\n{"a": 99999999999999999999}\n',
        (
            "a.jsonl, line 2, a: found 99999999999999999999, an integer beyond 64 bits; expected integers from -2**63 "
            "to 2**63 - 1\n    -> write it as a text for a code, or as a float"
        ),
    ),
    "no table": (
        "a.xlsx",
        "",
        (
            "a.xlsx: found a file of another name; expected one that ends in .csv, .tsv, .jsonl, .ndjson, .parquet, "
            ".feather, .arrow, or .gz behind one of text\n    -> rename it"
        ),
    ),
    "an empty Parquet file": (
        "a.parquet",
        "",
        "a.parquet: found an empty file; expected a complete one\n    -> write or copy it again",
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), FAULTS.values(), ids=FAULTS)
def test_files_that_are_no_tables(tmp_path: Path, name: str, content: str | bytes, expected: str) -> None:
    with pytest.raises(EtlrunError) as caught:
        kept_from(tmp_path, name, content)
    assert message(tmp_path, caught.value) == expected
    assert not [*(tmp_path / "kept").glob("rows-*[!k]")]


def test_tables_of_columns_that_can_not_be_kept(tmp_path: Path) -> None:
    def fault(table: pa.Table, *, last: int | None = None, **others: Any) -> str:
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:last])
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept", **others))
        return message(tmp_path, caught.value)

    plain = pa.table({"a": pa.array([1.0, None, np.inf]), "price": ["1", "2", "x"]})
    assert fault(plain) == (
        "a.parquet, row 3, a: found inf, which is infinite as a number; expected finite numbers"
        "\n    -> repair the value, or leave it empty, which is missing"
    )
    assert fault(plain, columns={"price": "number", "a": "text"}) == (
        "a.parquet, row 3, price: found x; expected a value of type number"
        "\n    -> repair the value, or set another type by 'dataset.columns={price: text}'"
    )
    assert fault(plain, columns={"prize": "number"}) == (
        "dataset.columns.prize: found a column that the files don't have; expected one of a, price"
        "\n    -> did you mean `price`?"
    )
    assert fault(plain, last=-100).startswith(
        "a.parquet: found a Parquet file that is cut off or damaged: Parquet magic"
    )
    nested = pa.table({"a": [[1]], "b": [{"c": 1}], "d": [b"x"]})
    assert fault(nested) == "\n".join(
        f"a.parquet, {name}: found values of type {kind}; expected numbers, truth values, texts, dates or timestamps"
        "\n    -> write its parts as columns of their own, or leave it out of the files"
        for name, kind in {"a": "list<element: int64>", "b": "struct<c: int64>", "d": "binary"}.items()
    )
    large = pa.table({"a": pa.array([2**63], pa.uint64())})
    assert fault(large).startswith("a.parquet, row 1, a: found 9223372036854775808; expected a value of type integer")


def test_files_of_one_table_have_the_same_columns(tmp_path: Path) -> None:
    for name, table in {
        "a": {"a": [1], "price": [1]},
        "b": {"b": [1], "price": [1]},
        "c": {"a": ["x"], "price": [1]},
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


def test_a_compressed_file_that_is_cut_off(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "a.jsonl.gz"):
        whole = gzip.compress("".join(f'{{"a": {number}}}\n' for number in range(100_000)).encode())
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))
        assert message(tmp_path, caught.value) == (
            f"{name}: found compressed bytes that are cut off or damaged; expected a file that can be read"
            "\n    -> check its permissions and its storage, or write it again"
        )


def test_a_plan_says_what_is_kept_and_what_is_noted(table: Path, tmp_path: Path) -> None:
    words, kept = words_of(table), tmp_path / "kept"
    (tmp_path / "a.csv").write_text("kind,area,rooms,garden,price\n flat,1,,true,3\nloft,2,3,,4\nflat,3,2,false,5\n")
    planned = plan_of(*words, f"dataset.files={tmp_path / 'a.csv'}", f"dataset.dir={kept}")
    (folder,) = kept.glob("rows-*[!k]")
    bytes_ = sum(path.stat().st_size for path in folder.glob("*.bin"))
    assert planned.remarks[:2] == (
        f"3 rows of 5 columns are kept in {folder}, {bytes_ / 1e6:.1f} MB.",
        "kind has blanks around values, which stay: dataset.strip=true removes them.",
    )


def test_kept_columns_are_listed_and_removed_beside_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, held = kept_from(tmp_path, "a.csv", CSV).folder.name, tmp_path / "other"
    shutil.copytree(tmp_path / "kept" / key, held / key)
    reader = [Kept(held / key)]
    os.utime(held / key / FACTS, (time.time() - 7200, time.time() - 7200))
    (held / f"rows-{'0' * 16}.filling").mkdir()

    def said(*arguments: str) -> list[str]:
        cache.main([*arguments, f"--dir={held}"])
        return capsys.readouterr().out.splitlines()

    assert said("ls")[-2:] == [
        f"{key}  a.csv    3 columns         3  0.0  0 s ago  2 h ago  in use",
        f"1 cache (0.0 MB) in {held}",
    ]
    assert said("gc", "--max-bytes=0", "--yes")[:2] == [
        f"removed rows-{'0' * 16}.filling, left by a killed run",
        f"kept {key}, 0.0 MB: in use",
    ]
    reader.clear()
    assert said("gc", "--max-bytes=0") == [
        f"would remove {key}, 0.0 MB, used 2 h ago",
        f"1 cache (0.0 MB) in {held}",
        "add --yes to remove what is shown, and what killed runs have left",
    ]
    assert said("gc", "--max-bytes=0", "--yes") == [
        f"removed {key}, 0.0 MB, used 2 h ago",
        f"0 caches (0.0 MB) in {held}",
    ]
    assert [path.name for path in held.iterdir() if path.name != "lock"] == []
