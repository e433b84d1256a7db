"""What a model of arrays has learned: predictions of files of arrays, and of tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from tests.runs import run_here
from tests.tables import words_of
from tests.trained import refused, said


@pytest.fixture(scope="module")
def of_arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with arrays, and two runs on them: on some of the columns, and on all."""
    folder = tmp_path_factory.mktemp("arrays")
    some = np.random.default_rng(0).random((60, 2, 3)).astype("float32")
    found: dict[str, Any] = {"x": some[:, 0, 0], "wide": some, "kind": np.array(["a", "b", "c"])[np.arange(60) % 3]}
    np.savez(folder / "all.npz", **found, y=np.arange(60))
    pyarrow.parquet.write_table(pyarrow.table({"x": found["x"], "kind": found["kind"]}), folder / "all.parquet")
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    files = f"dataset.files={folder / 'all.npz'}"
    words = [word for word in words_of(folder, target="{y: number}") if not word.startswith(("model", "dataset.files"))]
    for name, inputs in (("narrow", "[x,kind]"), ("whole", "[x,kind,wide]")):
        own = (files, "dataset=arrays", "model=linear", f"dataset.inputs={inputs}", "trainer.epochs=1")
        (folder / name).mkdir()
        assert run_here(folder / name, [*words, *own])[0] == 0
    return folder


@pytest.mark.parametrize(
    ("name", "files"),
    [("whole", ["all.npz"]), ("whole", ["x.npy", "kind.npy", "wide.npy"]), ("narrow", ["all.parquet"])],
)
def test_files_of_arrays_and_tables_are_predicted_by_a_run_of_arrays(
    of_arrays: Path, name: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(capsys, "predict", of_arrays / name, *(of_arrays / path for path in files)).splitlines()
    of_split = csv.DictReader(said(capsys, "predict", of_arrays / name, "dataset.split=train").splitlines())
    known = {int(of["path"].rpartition(" ")[2]): float(of["value"]) for of in of_split}
    assert found[0] == "row,value"
    np.testing.assert_allclose([float(of.split(",")[1]) for of in found[1:]], [known[row] for row in range(60)], 1e-5)


def test_arrays_that_do_not_fit_a_run_are_refused(of_arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(of_arrays / "other.npz", x=np.zeros(3), wide=np.zeros((3, 2)), kind=np.array(["a"] * 3))
    assert refused(capsys, "predict", of_arrays / "whole", of_arrays / "other.npz", status=2) == [
        f"  {of_arrays / 'other.npz'}: found wide of shape (2,) in each row; expected (2, 3), as in the training",
        "    -> save the column as an array of this shape, in an .npz or an .npy",
    ]
    assert refused(capsys, "predict", of_arrays / "narrow", of_arrays / "x.npy", status=2) == [
        (
            f"  {of_arrays / 'x.npy'}: found no column kind; expected the columns that the model takes, kind, x, and "
            "none that its training did not have"
        ),
        "    -> name the columns as in the table of the training, and leave out others",
    ]
