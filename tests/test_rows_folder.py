"""Columns in the folder of a run: what was chosen and fitted, from which the run is planned and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.planning import learned, render
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, parse
from etlrun.record.record import read_config
from etlrun.run import checkpoint
from etlrun.stages import STAGES
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.tables import houses, words_of, write_houses
from tests.test_rows_export import STEPS
from tests.trained import ended


def a_run(folder: Path, *others: str, target: str = "{price: {number: standardize}}") -> Plan:
    """The plan of a run that has ended after an epoch of the houses beside its folder."""
    words = [*words_of(folder.parent, *others, target=target)]
    ended(folder, words, model=None)
    planned = plan_of(*words)
    learned.write(planned.spec, folder)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "epoch_0000_step_000001.npz").touch()
    return planned


def recalled(folder: Path) -> RunSpec:
    return learned.recalled(parse(read_config(folder), STAGES), folder)


@pytest.mark.parametrize("target", ["{price: {number: standardize}}", "{band: binary}", "{rooms: class}"])
def test_a_run_is_planned_again_without_its_rows(tmp_path: Path, target: str) -> None:
    write_houses(tmp_path)
    others = [f"transform.columns={{{STEPS}}}", "dataset.inputs=[area,rooms,kind,sold,garden]"]
    others = ["dataset.inputs=[area,kind,sold]"] if "rooms" in target else others
    planned = a_run(tmp_path / "run", *others, target=target)
    (tmp_path / "houses.parquet").unlink()
    again = plan(recalled(tmp_path / "run"))
    assert (again.spec, again.fingerprint) == (planned.spec, planned.fingerprint)
    assert (again.train, again.evaluation) == (planned.train, planned.evaluation)


def test_a_vocabulary_is_in_one_line_of_the_file(tmp_path: Path) -> None:
    names = [f"name {place % 1_001}" for place in range(12_012)]
    table = pa.table({"name": names, "price": np.arange(12_012.0)})
    pyarrow.parquet.write_table(table, tmp_path / "houses.parquet")
    columns = "transform.columns={name: {of: name, steps: [lookup, embed]}}"
    planned = a_run(tmp_path / "run", "dataset.inputs=[name]", columns)
    lines = (tmp_path / "run" / "columns.json").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith('  "name": {"of"')]
    assert line.count('"name ') == 1_001
    assert len(lines) == 19
    step = render.as_dict(planned)["train"][-2]["steps"][-1]
    assert step["parameters"]["outputs"]["value"]["name"]["steps"][0]["lookup"]["values"] == "1,001 values"


def test_a_resumed_run_has_the_columns_of_the_run_that_it_resumes(tmp_path: Path) -> None:
    write_houses(tmp_path)
    folder = tmp_path / "run"
    a_run(folder)
    path = folder / "columns.json"
    before = path.read_text()
    path.write_text(before.replace('"mean": 120.6', '"mean": 121.6'))  # as another version might fit it
    assert path.read_text() != before
    words = words_of(tmp_path, f"trainer.resume={folder}", target="{price: {number: standardize}}")
    planned = plan_of(*words)
    assert planned.spec.transform == recalled(folder).transform
    assert checkpoint.previous_run(planned, STAGES) is not None
    others = plan_of(*words, "dataset.inputs=[area]")
    assert others.spec.transform != planned.spec.transform


def test_a_run_is_not_resumed_on_a_table_that_has_changed(tmp_path: Path) -> None:
    write_houses(tmp_path)
    folder = tmp_path / "run"
    before = a_run(folder)
    pyarrow.parquet.write_table(houses().slice(1), tmp_path / "houses.parquet")
    words = words_of(tmp_path, f"trainer.resume={folder}", target="{price: {number: standardize}}")
    planned = plan_of(*words)
    with pytest.raises(EtlrunError) as caught:
        checkpoint.previous_run(planned, STAGES)
    now, then = (of.spec.dataset.found.identity for of in (planned, before))  # type: ignore[attr-defined] # rows
    assert str(caught.value) == (
        f"dataset.files: found rows of the identity {now}; expected those of the identity {then}, which {folder} "
        "has read\n    -> restore the files, or set dataset.files to a copy of those, or start a new run without "
        "trainer.resume"
    )


def test_a_file_of_columns_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    write_houses(tmp_path)
    a_run(tmp_path / "run")
    path = tmp_path / "run" / "columns.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(EtlrunError, match="a file that this version can't read: JSONDecodeError: ") as caught:
        recalled(tmp_path / "run")
    assert str(caught.value).startswith(f"{path}: found a file")
    assert str(caught.value).endswith("the run has written them\n    -> restore the file, or train again")
