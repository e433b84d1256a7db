"""Files that are no tables: each fault names the file, the line or row, and the column."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from etlrun.cli import main as cli
from etlrun.sources.rows.table import kept_of
from tests.configs import plan_of
from tests.golden import Case, Golden, Says, cases
from tests.runs import run_here
from tests.tables import CSV, a_table, kept_from, message, words_of
from tests.trained import refused, said


@pytest.mark.parametrize("case", cases("rows"))
def test_files_that_are_no_tables(tmp_path: Path, case: Case, golden: Golden) -> None:
    content = case.get("content", "")
    if isinstance(content, str):
        content = content.replace("DEEP", f"{'[' * 9_999}{']' * 9_999}")
    if table := case.get("table"):
        pyarrow.parquet.write_table(pa.table(table), tmp_path / case["file"])
        content = (tmp_path / case["file"]).read_bytes()
    golden(case, message(tmp_path, kept_from, tmp_path, case["file"], content, columns=case.get("columns", {})))
    assert not [*(tmp_path / "kept").glob("rows-*[!k]")]


def test_tables_of_columns_that_can_not_be_kept(tmp_path: Path, says: Says) -> None:
    def fault(table: pa.Table, *, last: int | None = None, **others: Any) -> str:
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:last])
        return message(tmp_path, kept_of, a_table(str(tmp_path / "a.parquet"), tmp_path / "kept", **others))

    damaged = "a.parquet: found a Parquet file that is cut off or damaged: Parquet magic"
    assert fault(pa.table({"a": [1.0]}), last=-100).startswith(damaged)
    texts = [None, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"x\xff\xfe")]
    says(fault(pa.table({"a": pa.StringArray.from_buffers(2, texts[1], texts[2])})))
    says(fault(pa.table({"a": pa.array([0, 2**50], pa.timestamp("s"))})))
    large = pa.table({"a": pa.array([2**63], pa.uint64())})
    assert fault(large).startswith("a.parquet, row 0, a: found 9223372036854775808; expected a value of type integer")


def test_files_of_one_table_have_the_same_columns(tmp_path: Path, says: Says) -> None:
    for name, table in {
        "a": {"a": [1], "price": [1]},
        "b": {"b": [1], "price": [1]},
        "c": {"a": ["x"], "price": [1]},
        "naive": {"day": pa.array([0], pa.timestamp("us"))},
        "zoned": {"day": pa.array([0], pa.timestamp("us", "Europe/Berlin"))},
    }.items():
        pyarrow.parquet.write_table(pa.table(table), tmp_path / f"{name}.parquet")

    def fault(files: Any) -> str:
        return message(tmp_path, kept_of, a_table(files, tmp_path / "kept"))

    says(differing := fault(f"{tmp_path}/[ab].parquet"))
    assert fault({"train": f"{tmp_path}/a.parquet", "test": f"{tmp_path}/b.parquet"}) == differing
    says(fault(f"{tmp_path}/[ac].parquet"))
    says(fault(f"{tmp_path}/*e*.parquet"))


def test_patterns_that_name_no_file_are_refused(tmp_path: Path, says: Says) -> None:
    (tmp_path / "a[1].csv").write_text(CSV)

    def fault(files: str) -> str:
        return message(tmp_path, kept_of, a_table(files, tmp_path / "kept"))

    says(fault(str(tmp_path)))
    says(fault(f"{tmp_path}/a[1].csv"))
    words = [of for of in words_of(tmp_path) if not of.startswith("dataset.files")]
    assert message(tmp_path, plan_of, *words, f"dataset.files={tmp_path}").endswith("name the files in it, as *")


def test_a_file_is_in_one_split(tmp_path: Path, says: Says) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    for name in ("a.csv", "b.csv"):
        files = {"train": f"{tmp_path}/a*.csv", "validation": f"{tmp_path}/{name}"}
        says(message(tmp_path, kept_of, a_table(files, tmp_path / "kept")))


def test_a_compressed_file_that_is_cut_off_far_behind_its_beginning(tmp_path: Path, says: Says) -> None:
    whole = gzip.compress("".join(f'{{"a": {number}}}\n' for number in range(100_000)).encode(), mtime=0)
    says(message(tmp_path, kept_from, tmp_path, "a.jsonl.gz", whole[: len(whole) // 2]))


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "plan --all",
            [
                r"a. transform.parse               -> 32 x {b\x1b[31m: text, c\nd: text}, y",
                r"b\x1b[31m             <- b\x1b[31m: lookup [\x1b[31mred\x1b[0m, \x1b[31mblue\x1b[0m], one_hot (3)",
                r"c\nd                  <- c\nd: lookup [line\nmore, line], one_hot (3)",
            ],
        ),
        ("doctor", [r"\x1b[31mred\x1b[0m (43)", "line more (43)"]),
    ],
)
def test_marks_of_terminals_and_line_ends_are_escaped(
    command: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ['\x1b[31mred\x1b[0m,"line\nmore",yes\r\n', "\x1b[31mblue\x1b[0m,line,no\r\n"]
    (tmp_path / "t.csv").write_text('b\x1b[31m,"c\nd",y\r\n' + "".join(rows * 50), newline="")
    words = ["experiment=table", f"dataset.files={tmp_path}/t.csv", "dataset.target={y: class}", "load.batch_size=32"]
    cli.main([*command.split(), *words])
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
    names, datasets, examples = zip(*found, strict=True)
    assert (datasets, examples) == ((first, second, first), (8, 12, 8))
    assert names[0] == names[2] != names[1]
    assert all(re.fullmatch("codes.csv train [0-9a-f]{8}", name) for name in names)
    assert (run / "evaluations" / "train.json").read_text() == own


def test_a_value_that_is_in_no_vocabulary_is_named(run: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    pyarrow.csv.write_csv(pa.table({"zip": ["300", "400", "b7"]}), run / "rows.csv")
    says(refused(capsys, "predict", run, run / "rows.csv"), RUN=run)


def test_types_of_columns_are_those_that_a_config_would_declare(tmp_path: Path, says: Says) -> None:
    text = "n,x,t,day,word,none,price\n1,1.5,true,2020-01-01T00:00:00Z,a,,1\n2,,,2020-01-02T00:00:00Z,b,,2\n"
    known = kept_from(tmp_path, "rows.csv", text).known
    types = a_table("rows.csv", tmp_path, known=known, columns={"n": "text"}).types
    says(types)
