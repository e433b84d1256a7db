"""Columns in the names of folders, as Hive and Spark write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import etlrun
from etlrun.sources.rows.table import kept_of, values_of_folders
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.runs import run_here
from tests.servers import serving
from tests.tables import a_table, message, types, values
from tests.test_rows_eject import FORMATS, require_same_batches
from tests.trained import said


def written(folder: Path, name: str, *places: str) -> str:
    """A pattern of files of two rows in these folders."""
    for number, place in enumerate(places):
        (folder / place).mkdir(parents=True)
        FORMATS[name](pa.table({"x": [number + 0.5, 7.25], "price": [number, 9]}), folder / place / name)
    return f"{folder}/**/{name}"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "rows.parquet"])
def test_folders_of_all_formats_are_columns(tmp_path: Path, name: str) -> None:
    files = written(tmp_path, name, "of=x/kind=a%20b/n=1", "of=x/kind=__HIVE_DEFAULT_PARTITION__/n=20")
    kept = kept_of(a_table(files, tmp_path / "kept"))
    assert values(kept) == {
        "x": [1.5, 7.25, 0.5, 7.25],
        "price": [1, 9, 0, 9],
        "kind": [None, None, "a b", "a b"],
        "n": [20, 20, 1, 1],
    }
    assert types(kept) == {"x": "float64", "price": "int64", "kind": "text", "n": "int64"}
    declared = a_table(files, tmp_path / "kept", columns={"of": "text", "n": "text"})
    assert values(kept_of(declared))["of"] == ["x"] * 4
    assert values(kept_of(declared))["n"] == ["20", "20", "1", "1"]


def test_codes_with_leading_zeros_are_text(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "month=09", "month=10")
    assert values(kept_of(a_table(files, tmp_path / "kept")))["month"] == ["09", "09", "10", "10"]


def test_a_column_of_a_file_is_not_that_of_its_folder(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "x=1", "x=2")
    assert values(kept_of(a_table(files, tmp_path / "kept")))["x"] == [0.5, 7.25, 1.5, 7.25]


def test_files_in_folders_of_other_columns_are_refused(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "kind=a", "others")
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(files, tmp_path / "kept"))
    assert message(tmp_path, caught.value) == (
        "others/rows.csv: found columns without kind; expected the columns of kind=a/rows.csv"
        "\n    -> write the same columns to all files, or leave one of them out of dataset.files"
    )


def test_files_of_other_folders_are_other_data(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "kind=a", "kind=b")
    before = kept_of(a_table(files, tmp_path / "kept")).known.identity
    (tmp_path / "kind=b").rename(tmp_path / "kind=c")
    kept = kept_of(a_table(files, tmp_path / "kept"))
    assert (values(kept)["kind"], kept.known.identity == before) == (["a", "a", "c", "c"], False)


def test_folders_of_urls_are_columns(tmp_path: Path) -> None:
    written(tmp_path / "data", "rows.csv", "kind=a", "kind=c")
    with serving() as server:
        url = server.put_folder(tmp_path / "data")
        urls = [f"{url}/kind={of}/rows.csv" for of in "ac"]
        assert values(kept_of(a_table(urls, tmp_path / "kept")))["kind"] == ["a", "a", "c", "c"]


def test_only_whole_folders_are_columns() -> None:
    assert values_of_folders("C:\\data\\a=1=2\\=3\\b=\\c=4.csv") == {"a": "1=2", "b": ""}
    assert values_of_folders("s3://bucket/a=1/c.csv?b=2") == {"a": "1"}


def words_of(folder: Path, *others: str) -> Sequence[str]:
    rng, kinds = np.random.default_rng(0), ("a", "b")
    for number, kind in enumerate(kinds):
        (folder / f"kind={kind}").mkdir(exist_ok=True)
        x = rng.random(20)
        rows = pa.table({"x": x, "price": x + number})
        pyarrow.csv.write_csv(rows, folder / f"kind={kind}" / "rows.csv")
    files = (f"dataset.files='{folder}/*/rows.csv'", "dataset.target={price: number}", f"dataset.dir={folder}/kept")
    return ("experiment=table", *files, "load.batch_size=8", "trainer.epochs=2", *others)


def test_a_program_reads_the_same_batches(tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of(tmp_path)), tmp_path)


def test_one_folder_of_them_is_predicted_and_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of(tmp_path, "model=linear", "transform.columns={x: {}, kind: {steps: [lookup, one_hot]}}")
    assert run_here(tmp_path / "run", [*words])[0] == 0
    found: Any = etlrun.load(tmp_path / "run")
    given = [of["x"] for of in pyarrow.csv.read_csv(tmp_path / "kind=b/rows.csv").to_pylist()]
    wanted = found.predict([{"x": x, "kind": "b"} for x in given])
    (tmp_path / "kind=b/inputs.csv").write_text("\n".join(["x", *map(str, given)]))
    assert found.predict(tmp_path / "kind=b/inputs.csv") == wanted
    said(capsys, "evaluate", tmp_path / "run", f"dataset.files='{tmp_path}/kind=b/rows.csv'", "dataset.split=train")
