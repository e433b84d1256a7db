"""Labels in columns of lists: trained and evaluated by their names, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.planning import render
from tests.configs import plan_of, refusal_of_plan
from tests.pipelines import training_pipeline
from tests.runs import run_here
from tests.test_rows_eject import require_same_batches
from tests.trained import said

TAGS: list[Any] = [["sea", "old"], [], ["park"], ["old", "old, but new"], ["sea"]] * 4
NAMES = ("old", "old, but new", "park", "sea")


def rows(**others: list[Any]) -> dict[str, list[Any]]:
    return {"area": [float(n) for n in range(20)], "tags": TAGS, **others}


def write(path: Path, **others: Any) -> Path:
    given = rows(**others)
    if path.suffix == ".jsonl":
        names = given.keys()
        lines = [dict(zip(names, of, strict=True)) for of in zip(*given.values(), strict=True)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif path.suffix == ".feather":
        tags = pa.array(given["tags"], pa.large_list(pa.large_string()))
        pyarrow.feather.write_feather(pa.table({**given, "tags": tags}), path)
    else:
        pyarrow.parquet.write_table(pa.table(given), path)
    return path


def words_of(
    path: Path, *others: str, model: str = "model=emulated", target: str = "{tags: labels}"
) -> tuple[str, ...]:
    given = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", "dataset.inputs=[area]")
    split = ("dataset.order=file", "dataset.split='train[:50%]'", "dataset.eval_split='train[50%:]'")
    small = ("load.batch_size=5", "trainer.epochs=2", "load=shuffled", model)
    return ("experiment=table", *given, *split, f"dataset.target={target}", *small, *others)


def labels_in(path: Path, *others: str) -> Any:
    order = ("load.shuffle=buffer", "load.shuffle_buffer=0")
    with training_pipeline(plan_of(*words_of(path, *order, *others))) as pipeline:
        return np.concatenate([target for _, target in pipeline.dataset.as_numpy_iterator()])


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.jsonl"])
def test_lists_of_texts_are_labels(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name)
    (target,) = [of for of in render.text(plan_of(*words_of(path))).splitlines() if "<- tags" in of][:1]
    assert target.split("<- ")[1] == "tags: labels (of lists, values [old, old, but new, park, sea])"
    np.testing.assert_array_equal(labels_in(path), [[label in of for label in NAMES] for of in TAGS[:10]])
    require_same_batches(plan_of(*words_of(path)), tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_lists_of_numbers_are_labels_if_they_are_declared(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, tags=[[7, 10], [], [8]] * 6 + [[7]] * 2)
    found = labels_in(path, "dataset.columns={tags: text}")
    np.testing.assert_array_equal(found[:3], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    require_same_batches(plan_of(*words_of(path, "dataset.columns={tags: text}")), tmp_path)


def test_a_model_is_evaluated_by_the_names_of_its_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.parquet")
    status, _ = run_here(tmp_path / "run", [*words_of(path, "model.units=[4]", model="model=tabular")])
    assert status == 0
    found = said(capsys, "evaluate", tmp_path / "run", "--format", "json")
    assert [name for name in NAMES if f'"{name}"' in found] == list(NAMES)


TOLD = {
    "an unknown label": (
        {"tags": [*TAGS[:19], ["hill", "sea"]]},
        "{tags: labels}",
        (
            "tags of hill in 1 row of train[50%:], the first of which is row 19; expected values that train[:50%] has, "
            "since no other label is learned\n"
            "    -> choose splits that have all labels, such as a larger training split, or leave these rows out"
        ),
    ),
    "a missing list": (
        {"tags": [*TAGS[:19], None]},
        "{tags: labels}",
        (
            "1 row of tags without a value, the first of which is row 19; expected a value in each row to learn from\n"
            "    -> leave these rows out of the files"
        ),
    ),
    "a missing label": (
        {"tags": [["sea", None], *TAGS[1:]]},
        "{tags: labels}",
        (
            "1 row of tags without a value, the first of which is row 0; expected a value in each row to learn from\n"
            "    -> leave these rows out of the files"
        ),
    ),
    "numbers": (
        {"tags": [[3]] * 20},
        "{tags: labels}",
        (
            "tags, which is lists of numbers; expected lists of texts as labels\n"
            "    -> set 'dataset.columns={tags: text}', which reads them as labels, or name another column"
        ),
    ),
    "no labels": (
        {},
        "{tags: class}",
        (
            "tags, which is lists of texts; expected one value in each row\n"
            "    -> set 'dataset.target={tags: labels}', or name another column"
        ),
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_lists_that_are_no_labels(name: str, tmp_path: Path) -> None:
    changed, target, told = TOLD[name]
    path = write(tmp_path / "a.parquet", **changed)
    assert refusal_of_plan(*words_of(path, target=target)) == f"dataset.target: found {told}"


def test_lists_of_texts_are_no_inputs_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", kind=["a", "b"] * 10)
    plan = plan_of(*(of for of in words_of(path, target="{kind: class}") if "inputs" not in of))
    assert "tags is no input, since it has lists of texts: they may be labels to predict" in plan.remarks
