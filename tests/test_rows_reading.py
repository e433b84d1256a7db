"""Files of tables: formats, types that are inferred from all rows, and what is said of those that can't be read."""

import gzip
import json
import re
import shlex
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.planning.columns import misnamed
from etlrun.sources.base import open_source
from etlrun.sources.rows import kinds
from etlrun.sources.rows import table as tables
from etlrun.sources.rows.read import TableFile, TextLinesFile, each_read
from etlrun.sources.rows.source import TableSource
from etlrun.sources.rows.table import kept_of
from etlrun.sources.rows.text_files import DelimitedFile, JsonLinesFile
from etlrun.stages.column_categories import Cross, Identity, Lookup
from etlrun.stages.column_numbers import Fill, Standardize
from etlrun.stages.columns import Columns, Output, with_indicators
from etlrun.stages.flow import MISSING, Feature
from etlrun.system.errors import ConfigError, EtlrunError
from tests.configs import plan_of, raised, refusal_of_plan
from tests.golden import Case, Golden, Says, cases
from tests.programs import program_of
from tests.tables import CSV, NUM_ROWS, a_table, houses, kept_from, types, values, words_of

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


@pytest.mark.parametrize("name", ["A.CSV.GZ", "a.csv.gz-00000-of-00001", "a.jsonl.Gz"])
def test_compressed_files_are_known_by_the_ends_of_their_names(tmp_path: Path, name: str) -> None:
    content = gzip.compress((JSON if "jsonl" in name else CSV).encode())
    assert values(kept_from(tmp_path, name, content)) == HOUSES
    with pytest.raises(EtlrunError, match=r"found compressed bytes that are cut off or damaged; expected"):
        kept_from(tmp_path, name, content[:-9])


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
        "b-0.csv": "price,a\n5,0\n",
        "c.csv": "a,price\n9,9\n",
        "d.csv": "a,price\n8,8\n",
    }.items():
        (tmp_path / name).write_text(rows)
    files = {"train": (f"{tmp_path}/c.csv", f"{tmp_path}/b-*.csv"), "test": (f"{tmp_path}/d.csv",)}
    kept = kept_of(a_table(files, tmp_path / "kept"))
    assert values(kept) == {"a": [9, 0, 1, 2, 8], "price": [9, 5, 1, 2, 8]}
    assert kept.known.rows == {"train": 4, "test": 1}
    source = TableSource(a_table(files, tmp_path / "kept", order="file"))
    split = source.split("train[1:]+test", "")
    places = [split.place(split.shards[0], number) for number in range(4)]
    assert places == [(f"{tmp_path}/{name}.csv", row) for name, row in (("b-0", 0), ("b-1", 0), ("b-1", 1), ("d", 0))]
    assert split.where(split.shards[0], 2) == f"{tmp_path}/b-1.csv, row 1"


def test_columns_that_are_excluded_are_neither_read_nor_needed(tmp_path: Path) -> None:
    odd = pa.array([{"of": 1}] * 200)  # which is of no type that is kept
    pyarrow.parquet.write_table(houses().append_column("odd", odd), tmp_path / "houses.parquet")
    words = words_of(tmp_path, "dataset.inputs=null")
    assert f"-> set {shlex.quote('dataset.exclude=[odd]')}, or write" in refusal_of_plan(*words)
    others = [plan_of(*words, f"dataset.exclude={of}") for of in ("[odd]", "[sold,odd]", "[odd,sold]")]
    assert [*others[0].spec.dataset.found.columns] == houses().column_names  # type: ignore[attr-defined]
    assert "sold" not in others[1].spec.dataset.found.columns  # type: ignore[attr-defined]
    assert len({of.fingerprint for of in others}) == 3
    by_time = plan_of(*words, "dataset.exclude=[odd,sold]", "dataset.split_by={time: sold}")
    assert "sold" not in by_time.spec.dataset.examples.features
    (tmp_path / "a.csv").write_text("id,rooms,price\n1,2,3\n")
    (tmp_path / "b.csv").write_text("rooms,price\n5,6\n")
    kept = kept_of(a_table(f"{tmp_path}/[ab].csv", tmp_path / "kept", exclude=("id",)))
    assert values(kept) == {"rooms": [2, 5], "price": [3, 6]}


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


def test_a_value_at_the_end_of_a_large_file_decides(tmp_path: Path, says: Says) -> None:
    count, filling = 50_000, "x" * 100  # several blocks
    of_lines = "xxxxxxxxx\n" * 10 + "x"
    kept = kept_from(tmp_path, "a.csv", "a,b,c,price\n" + f'7,8,"{of_lines}",1\n' * count + "7.5,x,,1\n")
    assert types(kept) == {"a": "float64", "b": "text", "c": "text", "price": "int64"}
    assert kept.take("a", np.array([0, count])).tolist() == [7, 7.5]
    assert kept.take("b", np.array([0, count])).tolist() == [b"8", b"x"]
    assert kept.take("c", np.array([1, count])).tolist() == [of_lines.encode(), MISSING]
    says(kept.known.notes)
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


ZONED = ("2020-01-02T08:00:00Z", "2020-01-02T10:00:00+02:00", None)
NAIVE = ("2020-01-02T08:00:00", None)


@pytest.mark.parametrize("columns", [{}, {"day": "timestamp"}], ids=["inferred", "declared"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_zones_of_texts_become_utc(tmp_path: Path, name: str, columns: dict[str, str]) -> None:
    def kept_as(*times: str | None) -> list[Any]:
        rows = [json.dumps({"day": time, "price": 1}) if name == "a.jsonl" else f"{time or ''},1" for time in times]
        header = [] if name == "a.jsonl" else ["day,price"]
        kept = kept_from(tmp_path, name, "\n".join([*header, *rows]), columns=columns)
        assert types(kept)["day"] == ("text" if isinstance(values(kept)["day"][0], str) else "timestamp")
        return values(kept)["day"]

    assert kept_as(*ZONED) == [UTC_DAY, UTC_DAY, None]
    assert kept_as(*NAIVE) == [UTC_DAY, None]
    if columns:
        with pytest.raises(EtlrunError, match=r"expected a value of type timestamp\n"):
            kept_as(*NAIVE, *ZONED)
    else:
        assert kept_as(*NAIVE, *ZONED) == [*NAIVE, *ZONED]


def test_numbers_of_json_lines_may_be_declared_as_text(tmp_path: Path) -> None:
    lines = '{"zip": 1067, "garden": true}\n{"zip": null, "garden": null}\n{"zip": 99998}'
    kept = kept_from(tmp_path, "a.jsonl", lines, columns={"zip": "text", "garden": "text"})
    assert values(kept) == {"zip": ["1067", None, "99998"], "garden": ["true", None, None]}
    with pytest.raises(EtlrunError, match="found 99999999999999999999, an integer beyond 64 bits"):
        kept_from(tmp_path, "a.jsonl", '{"zip": 99999999999999999999}', columns={"zip": "text"})


def test_times_that_python_can_not_hold_are_kept(tmp_path: Path) -> None:
    times = [2**60, -(2**60), 0]
    pyarrow.parquet.write_table(pa.table({"day": pa.array(times, pa.timestamp("us"))}), tmp_path / "a.parquet")
    kept = kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept"))
    assert kept.take("day", np.arange(3)).tolist() == times
    assert kept.known.columns["day"].distinct == 3


def test_blanks_stay_with_a_note_unless_they_are_removed(tmp_path: Path, says: Says) -> None:
    content = "kind,price\n flat,1\nloft , 2\n NA ,3\n"
    kept = kept_from(tmp_path, "a.csv", content)
    assert values(kept) == {"kind": [" flat", "loft ", " NA "], "price": [1, 2, 3]}
    assert kept.known.notes == ("kind has blanks around values, which stay: dataset.strip=true removes them.",)
    kept = kept_from(tmp_path, "a.csv", content, strip=True)
    assert values(kept) == {"kind": ["flat", "loft", None], "price": [1, 2, 3]}
    assert kept.known.notes == ()
    kept = kept_from(tmp_path, "a.csv", "living area,price\n 1,1\n", columns={"living area": "text"})
    assert kept.known.notes == ("living area has blanks around values, which stay: dataset.strip=true removes them.",)
    lines = '{"kind": " flat"}\n'
    says(kept_from(tmp_path, "a.jsonl", lines).known.notes)
    assert values(kept_from(tmp_path, "a.jsonl", lines, strip=True)) == {"kind": ["flat"]}


@pytest.mark.parametrize("case", cases("nearly"))
def test_texts_that_are_nearly_numbers_or_times_are_noted(tmp_path: Path, case: Case, golden: Golden) -> None:
    texts = [text for text, count in case["texts"] for _ in range(count)]
    notes = {}
    for name, lines in (
        ("a.tsv", [f"{text}\t1\n" for text in ("a", *texts)]),
        ("a.jsonl", [f"{json.dumps({'a': text})}\n" for text in texts]),
    ):
        kept = kept_from(tmp_path, name, "".join(lines))
        assert values(kept)["a"] == texts
        (notes[name],) = (of for of in kept.known.notes if "has blanks" not in of)
    golden(case, notes["a.tsv"].removeprefix("a is text, since "))
    in_json = re.sub("a.tsv, line ([0-9]+)", lambda found: f"a.jsonl, line {int(found[1]) - 1}", notes["a.tsv"])
    assert notes["a.jsonl"] == in_json.replace("add it to dataset.missing", "write null")


def test_columns_that_differ_in_two_files_of_text_are_text_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\n1,1\n")
    (tmp_path / "b.csv").write_text("a,price\nx,1\n")
    kept = kept_of(a_table({"train": f"{tmp_path}/a.csv", "test": f"{tmp_path}/b.csv"}, tmp_path / "kept"))
    assert values(kept)["a"] == ["1", "x"]
    assert kept.known.notes == ("a is text: its values are of type integer in a.csv, and text in b.csv.",)


@pytest.mark.parametrize(("name", "content", "times"), [("a.csv", CSV, 1), ("a.jsonl", JSON, 1), ("a.csv.gz", CSV, 2)])
def test_rows_are_parsed_once_if_there_is_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, times: int
) -> None:
    read = list[str]()

    def counting(parse: Any) -> Any:
        def counted(*given: Any) -> Any:
            read.append(name)
            return parse(*given)

        return counted

    monkeypatch.setattr(DelimitedFile, "_texts", counting(DelimitedFile._texts))
    monkeypatch.setattr(JsonLinesFile, "_tables", counting(JsonLinesFile._tables))
    for room, expected in ((64_000_000, times), (10, 2)):
        read.clear()
        monkeypatch.setattr(tables, "_HELD_BYTES", room)
        (folder := tmp_path / str(room)).mkdir()
        assert values(kept_from(folder, name, content)) == HOUSES
        assert len(read) == expected


def test_few_values_tell_what_a_column_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, all_fit = list[tuple[int, bool]](), kinds._all_fit

    def look(values: pa.Array, kind: kinds.Kind) -> bool:
        looked.append((len(values), all_fit(values, kind)))
        return looked[-1][1]

    monkeypatch.setattr(kinds, "_all_fit", look)
    rows = "".join(f"word{number},{number}.5,{number}\n" for number in range(10_000))
    found = types(kept_from(tmp_path, "a.csv", f"kind,price,rooms\n{rows}"))
    assert [*found.values()] == ["text", "float64", "int64"]
    assert max(count for count, fits in looked if not fits) == 64


POOLS = {
    "integers": ["1", "-20", "0", "123456"],
    "floats": ["0.5", "-3", "1e9", "12"],
    "large": ["9223372036854775808", "5"],
    "codes": ["007", "12"],
    "words": ["flat", "loft", "no house"],
    "truths": ["true", "FALSE"],
    "letters": ["a", "x1", "inf", "nan"],
    "days": ["2020-01-31", "2021-12-01"],
    "times": ["2020-01-31T10:00:00Z", "2020-01-31T12:00:00+02:00"],
    "blanks": [" 1", "2 "],
    "none": ["", "NA"],
}


SOME = [[["0.5"], ["9223372036854775808"]], [["", "NA"], ["1"], ["flat"], ["loft"]], [[], ["1"], ["flat"]]]
"""Columns of files whose kinds differ."""


def drawn(random: np.random.Generator) -> list[list[str]]:
    """A column of several files."""
    pools, files = random.choice([*POOLS], random.integers(1, 3)), []
    for _ in range(random.integers(2, 6)):
        of = random.permutation(pools)[: random.integers(1, 3)]
        values = ["", *(value for pool in of for value in POOLS[pool])]
        files.append(random.choice(values, random.integers(1, 6)).tolist())
    return files


def test_small_files_together_have_the_kinds_and_notes_that_they_have_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, found = np.random.default_rng(0), list[list[Any]]()
    for number, files in enumerate([*SOME, *(drawn(random) for _ in range(30))]):
        (folder := tmp_path / f"{number}").mkdir()
        for file, values_of in enumerate(files):
            (folder / f"{file}.csv").write_text("".join(f"{of}\n" for of in ["a,b", *(f"{of},1" for of in values_of)]))
        found.append([])
        for at_once in (1, 2, 256):
            monkeypatch.setattr(tables, "_AT_ONCE", at_once)
            try:
                known = kept_of(a_table(f"{folder}/*.csv", tmp_path / f"kept{at_once}")).known
                found[-1].append((known.columns, known.notes))
            except EtlrunError as error:
                found[-1].append(str(error))
    assert all(one == two == many for one, two, many in found)
    assert len({str(of) for of, _, _ in found}) > 20


def test_columns_of_many_small_files_are_looked_at_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, narrowed = list[int](), kinds._narrowed

    def look(values: pa.Array, known: Any) -> Any:
        looked.append(len(values))
        return narrowed(values, known)

    for number in range(300):
        (tmp_path / f"{number:03d}.csv").write_text(f"kind,area,price\nhouse{number},{number}.5,{number}\nflat,1,2\n")
    monkeypatch.setattr(kinds, "_narrowed", look)
    kept = kept_of(a_table(f"{tmp_path}/*.csv", tmp_path / "kept"))
    assert [*types(kept).values()] == ["text", "float64", "int64"]
    assert looked == [512, 512, 512, 88, 88, 88]


def test_small_files_are_read_ahead_and_in_order(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.txt").write_bytes(b"a" * (2_000_000 if number == 2 else 1))
    files = [TextLinesFile(str(path), a_table("", tmp_path)) for path in sorted(tmp_path.glob("*.txt"))]
    two, begun, yielded = threading.Barrier(2), list[str](), list[str]()

    def read(file: TableFile) -> str:
        begun.append(file.name)
        if file.name in ("0.txt", "1.txt"):
            two.wait(timeout=60)
        if file.name == "8.txt":
            raise ValueError(file.name)
        return file.name.removesuffix(".txt")

    def go_through() -> None:
        for file, found in each_read(files, read):
            assert file.name == f"{found}.txt"
            assert ("2.txt" in begun) == (found >= "2")
            yielded.append(found)

    with pytest.raises(ValueError, match=r"8\.txt"):  # which the others come before
        go_through()
    assert yielded == [*"01234567"]


def test_a_table_without_an_input_says_why_its_numbers_are_text(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tk\n?\tx\n" + "".join(f"{number}\t{'xy'[number % 2]}\n" for number in range(50)))
    given = (f"dataset.files={path}", f"dataset.dir={tmp_path / 'kept'}", "dataset.target={k: class}")
    says(refusal_of_plan("experiment=table", *given))


def test_classes_that_are_truth_values_have_labels(table: Path, tmp_path: Path) -> None:
    by_class = ("load.sample=uniform_by_class", "load.shuffle=full", "dataset.inputs=[area]", "dataset.order=file")
    plan = plan_of(*words_of(table, *by_class, target="{garden: class}"))
    source: Any = open_source(plan.spec.dataset)
    gardens = np.array(houses()["garden"].to_pylist(), int)
    np.testing.assert_array_equal(source.labels_of(source.split("train", "")), gardens)
    np.testing.assert_array_equal(program_of(plan, tmp_path).labels_of("train"), gardens)


def table_of(folder: Path, **columns: Any) -> tuple[str, ...]:
    """Arguments of a run on a table with these columns and a price, of which all are inputs."""
    price = np.random.default_rng(0).random(NUM_ROWS)
    pyarrow.parquet.write_table(pa.table({"price": price, **columns}), folder / "houses.parquet")
    return words_of(folder, "dataset.inputs=null", "dataset.order=file")


def chosen(*words: str) -> dict[str, list[str]]:
    (step,) = (step for step in plan_of(*words).spec.transform.steps if isinstance(step, Columns))
    return {of.name: [step.name for step in of.steps] for of in step.chosen}


NUMBERS = np.random.default_rng(1).random(NUM_ROWS)
LATE = np.arange(NUM_ROWS) >= NUM_ROWS - 10
"""Rows of the validation alone."""


def test_names_that_auto_would_give_twice_are_refused(tmp_path: Path, says: Says) -> None:
    age = pa.array(NUMBERS, mask=NUMBERS < 0.2)
    days = (np.arange(NUM_ROWS) * 30).astype("datetime64[D]")
    says(
        raised(
            ConfigError,
            plan_of,
            *table_of(tmp_path, age=age, age_missing=NUMBERS, day=days.astype("datetime64[us]"), day_hour=NUMBERS),
        )
    )


def test_auto_takes_what_is_true_of_all_rows(tmp_path: Path, says: Says) -> None:
    days = (np.arange(NUM_ROWS) * 7 + 10_000).astype("datetime64[D]").astype("datetime64[us]")
    tail = np.where(LATE, -5.0, np.random.default_rng(0).lognormal(0, 2, NUM_ROWS))
    found = chosen(*table_of(tmp_path, day=pa.array(days, mask=LATE), tail=tail))
    says(found)


def test_large_integers_are_numbers_and_categories(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ids = draw.choice(draw.integers(2**60, 2**62, NUM_ROWS), NUM_ROWS)
    few = 2**60 + np.arange(NUM_ROWS) % 5
    found = chosen(*table_of(tmp_path, id=ids, few=few))
    assert found == {"id": ["standardize"], "few": ["lookup", "one_hot"]}
    lookup = Lookup(values=(2**60, 2**60 + 2))
    assert lookup.unknown(pa.array([2**60, 2**60 + 1, 2**60 + 2, None])).to_pylist() == [2**60 + 1]


def test_a_name_of_a_column_and_of_an_output_above_is_refused(says: Says) -> None:
    features = {"age": Feature(dtype="float64"), "zip": Feature(dtype="int64")}
    age = Output(name="age", of=("age",), steps=(Fill(value="median", indicator=True), Standardize()))
    place = Output(name="place", of=("age", "zip"), steps=(Cross(bins=10),))
    assert list(misnamed(Columns(outputs=with_indicators([place, age])), features, ())) == []
    (fault,) = misnamed(Columns(outputs=with_indicators([age, place])), features, ())
    says(str(fault))


def test_a_class_of_several_values_in_each_row_is_refused(tmp_path: Path, says: Says) -> None:
    np.save(tmp_path / "x.npy", NUMBERS)
    np.save(tmp_path / "y.npy", np.arange(NUM_ROWS).reshape(-1, 1) % 3)
    words = [word for word in words_of(tmp_path) if not word.startswith("dataset")]
    files = f"dataset.files={{x: {tmp_path}/x.npy, y: {tmp_path}/y.npy}}"
    says(
        raised(
            ConfigError,
            plan_of,
            "dataset=arrays",
            files,
            f"dataset.dir={tmp_path}/kept",
            "dataset.target={y: class}",
            *words,
        )
    )


def test_identity_refuses_fractions(tmp_path: Path, says: Says) -> None:
    says(
        raised(ConfigError, plan_of, *table_of(tmp_path, x=NUMBERS), "transform.columns={x: {steps: [{identity: 4}]}}")
    )
    assert Identity.op(tf.constant([0.0, 3.0]), categories=4).numpy().tolist() == [0, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        Identity.op(tf.constant([0.0, 1.7, 3.0]), categories=4)


def test_a_vocabulary_begins_behind_a_mark_of_unicode(tmp_path: Path) -> None:
    (tmp_path / "kinds.txt").write_text("fair\ngood\n", encoding="utf-8-sig")
    assert Lookup(file=str(tmp_path / "kinds.txt")).opened().values == ("fair", "good")


@pytest.mark.parametrize("columns", ["auto", "{a: {of: a}}"])
def test_numbers_that_a_model_can_not_take(tmp_path: Path, columns: str, says: Says) -> None:
    rows = [f"{number % 13 * 1e300},{1e300 + number % 20 * 1e300}" for number in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["a,price", *rows]))
    words = words_of(tmp_path, f"dataset.files={tmp_path}/a.csv", "dataset.inputs=[a]", f"transform.columns={columns}")
    says(raised(EtlrunError, plan_of, *words))
