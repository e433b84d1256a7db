"""Splits of rows by the values of a column: which rows they have, what plans say of them, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.graph.figures import with_figures
from etlrun.planning import render
from etlrun.planning.planner import plan
from etlrun.sources.base import on_disk, open_source
from etlrun.sources.rows import dividing
from etlrun.sources.rows.arrays import KeptArrays, write_arrays
from etlrun.sources.rows.dividing import hashes_of, in_random_order
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.columns import Columns
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, raised, refusal_of_plan, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.pipelines import training_pipeline
from tests.runs import complete_here
from tests.tables import NUM_ROWS, houses, kept_from, words_of
from tests.test_rows_eject import require_same_batches
from tests.trained import said


def split_by(folder: Path, written: str, *others: str) -> tuple[str, ...]:
    return words_of(folder, f"dataset.split_by={written}", *others)


def rows_of(words: tuple[str, ...], *splits: str) -> list[Any]:
    """Numbers of the rows of splits, in the order in which they are read."""
    source = open_source(plan_of(*words).spec.dataset)
    assert isinstance(source, RowsSource)
    return [source.split(split, "").numbers for split in splits or ("train[:80%]", "train[80%:]")]


def notes_of(*words: str) -> list[str]:
    """The notes of a plan on its splits."""
    return [
        note
        for note in plan_of(*words).remarks
        if "rows of which" in note or "rows with" in note or "together" in note or "no" in note
    ]


def column(name: str, rows: Any) -> list[Any]:
    values: list[Any] = houses()[name].take(np.asarray(rows)).to_pylist()
    return values


@pytest.mark.parametrize("order", ["random", "file"])
def test_by_time_the_last_part_is_the_latest(table: Path, order: str, says: Says) -> None:
    words = split_by(table, "{time: sold}", f"dataset.order={order}")
    train, validation = rows_of(words)
    assert max(column("sold", train)) < min(column("sold", validation))
    assert sorted([*train, *validation]) == [*range(NUM_ROWS)]
    assert (len(train), len(validation)) == (160, 40)
    whole = open_source(plan_of(*words_of(table, f"dataset.order={order}")).spec.dataset).split("train", "").numbers
    assert train.tolist() == [row for row in whole if row in {*train}]
    says(notes_of(*words))


def test_a_plan_and_its_run_share_the_order_of_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(207)  # no other test's source has as many rows
    write(tmp_path, {"area": values, "price": values})
    split = open_source(plan_of(*written(tmp_path, "null")).spec.dataset).split("train", "")
    assert np.shares_memory(split.numbers, in_random_order(207))


def test_rows_of_one_time_stay_together(table: Path) -> None:
    train, validation, *_ = rows_of(split_by(table, "{time: rooms}"))
    assert max(column("rooms", train)) < min(column("rooms", validation))
    counts = Counter(column("rooms", range(NUM_ROWS)))
    before = np.cumsum([counts[value] for value in sorted(counts)])
    assert len(train) == min(before, key=lambda count: abs(count - 0.8 * NUM_ROWS))


@pytest.mark.parametrize("order", ["random", "file"])
def test_no_group_is_in_two_splits_and_their_shares_are_near_to_those_asked_for(tmp_path: Path, order: str) -> None:
    rng = np.random.default_rng(1)
    customers = (rng.random(5_000) ** 3 * 300).astype(int)
    write(tmp_path, {"customer": customers, "area": rng.random(5_000), "price": rng.random(5_000)})
    words = written(tmp_path, "{group: customer}", f"dataset.order={order}")
    splits = "train[:70%]", "train[70%:85%]", "train[85%:]"
    several = [{*customers[rows]} for rows in rows_of(words, *splits)]
    assert sum(map(len, several)) == len(set.union(*several))
    sizes = [len(rows) for rows in rows_of(words, *splits)]
    assert sum(sizes) == 5_000
    largest = max(Counter(customers.tolist()).values())
    for size, asked in zip(np.cumsum(sizes), (0.7, 0.85, 1), strict=True):
        assert abs(size - asked * 5_000) <= largest / 2


def write(folder: Path, columns: dict[str, Any], name: str = "houses") -> None:
    pyarrow.parquet.write_table(pa.table(columns), folder / f"{name}.parquet")


def written(folder: Path, by: str, *others: str) -> tuple[str, ...]:
    """Arguments of a run that reads a table of a test in `folder`."""
    words = split_by(folder, by, *others)
    return tuple(word for word in words if not word.startswith("dataset.inputs"))


def test_stratified_splits_have_the_same_shares_of_each_value(table: Path) -> None:
    words = split_by(table, "{stratify: rooms}")
    train, validation = rows_of(words)
    assert (len(train), len(validation)) == (160, 40)
    counts, of_train = Counter(column("rooms", range(NUM_ROWS))), Counter(column("rooms", train))
    assert all(abs(of_train[value] - 0.8 * count) < 1 for value, count in counts.items())
    shares = ", ".join(f"{value} in {of_train[value] / 160:.1%}" for value in sorted(counts))
    assert notes_of(*words)[0] == f"train[:80%]: 160 rows of which rooms is {shares}."


def test_splits_may_be_named_by_the_values_of_a_column(table: Path, says: Says) -> None:
    named = ("dataset.split=train", "dataset.eval_split='test[:50%]'")
    words = split_by(table, "{column: rooms, train: [1, 2], test: [3]}", *named)
    train, test, half = rows_of(words, "train", "test", "test[:50%]")
    rooms = column("rooms", range(NUM_ROWS))
    assert sorted(train) == [row for row in range(NUM_ROWS) if rooms[row] in (1, 2)]
    assert sorted(test) == [row for row in range(NUM_ROWS) if rooms[row] == 3]
    assert half.tolist() == test[: len(test) // 2].tolist()
    says(notes_of(*words))
    texts = split_by(table, "{column: band, train: [dear], validation: [cheap]}", "dataset.split='train+validation'")
    assert [len(rows) for rows in rows_of(texts, "train", "validation")] == [
        pc.sum(pc.equal(houses()["band"], band)).as_py() for band in ("dear", "cheap")
    ]


def test_a_split_that_is_named_and_not_read_is_noted(table: Path, says: Says) -> None:
    words = split_by(table, "{column: garden, train: [true], validation: [false]}")
    says(with_figures(plan_of(*words)).remarks[-1])


def test_what_splits_rows_is_data_and_decides_the_fingerprint(table: Path) -> None:
    plain, by_time = plan_of(*words_of(table)), plan_of(*split_by(table, "{time: sold}"))
    assert plain.fingerprint != by_time.fingerprint
    known = on_disk(by_time.spec.dataset)
    assert known.examples("train[80%:]").count == 40  # type: ignore[union-attr]
    assert known.thinned("train[80%:]", 3, 2) == "train[80%:]"
    by_group = on_disk(plan_of(*split_by(table, "{group: rooms}")).spec.dataset)
    assert by_group.examples("train[:80%]").count == len(rows_of(split_by(table, "{group: rooms}"))[0])  # type: ignore[union-attr]


def test_columns_of_which_other_rows_have_other_values_are_no_inputs_of_auto(table: Path) -> None:
    words = tuple(word for word in split_by(table, "{group: rooms}") if "inputs" not in word)
    assert "column `rooms` is not used: rows are split by it; to use it, name it in transform.columns" in " ".join(
        plan_of(*words).remarks
    )
    columns = next(step for step in plan_of(*words).spec.transform.steps if isinstance(step, Columns))
    assert "rooms" not in columns.output_names
    assert "rooms" in plan_of(*split_by(table, "{group: rooms}")).train[-1].gives.inputs  # which names it


@pytest.mark.parametrize("case", cases("split_by"))
def test_columns_that_can_not_split_the_rows(table: Path, tmp_path: Path, case: Case, golden: Golden) -> None:
    words = split_by(table, case["by"])
    if columns := case.get("columns"):
        (values,) = columns.values()
        write(tmp_path, {**columns, "price": np.arange(float(len(values)))})
        words = written(tmp_path, case["by"])
    golden(case, raised(EtlrunError, plan_of, *words))


def test_a_table_is_counted_without_what_splits_it(table: Path) -> None:
    assert on_disk(plan_of(*words_of(table)).spec.dataset).counts == {"train": NUM_ROWS}


def test_values_with_fewer_rows_than_splits_can_not_be_stratified(tmp_path: Path, says: Says) -> None:
    kinds = ["flat"] * 8 + ["loft", "barn"]
    write(tmp_path, {"kind": kinds, "area": np.arange(10.0), "price": np.arange(10.0)})
    says(refusal_of_plan(*written(tmp_path, "{stratify: kind}")))
    assert notes_of(*written(tmp_path, "{stratify: kind}", "dataset.eval_split=null", "dataset.split=train"))


def test_a_group_in_the_files_of_two_splits_is_refused(tmp_path: Path, says: Says) -> None:
    for name, customers in (("train", ["a", "b", "c"]), ("validation", ["d", "c"])):
        count = len(customers)
        write(tmp_path, {"customer": customers, "area": np.arange(count), "price": np.arange(1.0, count + 1)}, name)
    files = f"dataset.files={{train: {tmp_path}/train.parquet, validation: {tmp_path}/validation.parquet}}"
    words = [word for word in written(tmp_path, "{group: customer}") if not word.startswith("dataset.files")]
    splits = ("dataset.split=train", "dataset.eval_split=validation")
    says(refusal_of_plan(*words, files, *splits))
    both = plan_of(*words, files, "dataset.split=train", "dataset.eval_split='train[50%:]'")
    assert any("which stay together" in note for note in both.remarks)  # rows that are read twice are noted by a run


def test_arrays_are_split_by_the_values_of_one_of_them(tmp_path: Path, says: Says) -> None:
    fold = np.repeat(np.arange(4, dtype=np.uint8), 10)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((40, 3)), y=np.arange(40.0), fold=fold)
    of_table = ("dataset=", "dataset.files", "dataset.inputs", "dataset.target", "dataset.split_by")
    words = [word for word in words_of(tmp_path) if not word.startswith(of_table)]
    words += ["dataset=arrays", f"dataset.files={tmp_path}/data.npz", "dataset.target={y: number}"]
    words += ["dataset.split=train", "dataset.eval_split=validation"]
    by_fold = "dataset.split_by={column: fold, train: [0, 1], validation: [3]}"
    train, validation = rows_of((*words, by_fold), "train", "validation")
    assert (sorted(train), sorted(validation)) == ([*range(20)], [*range(30, 40)])
    says(refusal_of_plan(*words, "dataset.split_by={group: x}"))


SPLITS = ("dataset.order=file", "dataset.split='train[:100]'", "dataset.eval_split='train[100:]'")


def leaky(folder: Path, **others: Any) -> tuple[str, ...]:
    """Arguments of a run on 120 rows: of the last 20, 3 are as in the training, and 2 are with another target."""
    rng = np.random.default_rng(0)
    area, kind, price = rng.random(120), rng.integers(0, 50, 120), rng.random(120)
    for row, same in ((100, 7), (101, 7), (102, 99), (103, 0), (104, 1)):
        area[row], kind[row] = area[same], kind[same]
        price[row] = price[same] + (row in (103, 104))
    area[[5, 105]] = np.nan
    pyarrow.parquet.write_table(
        pa.table({"area": area, "kind": kind, "price": price, **others}), folder / "houses.parquet"
    )
    return tuple(word for word in words_of(folder, *SPLITS) if not word.startswith("dataset.inputs"))


def notes_on(words: tuple[str, ...]) -> list[str]:
    return [note for note in plan_of(*words).remarks if "of 20 rows" in note]


def test_rows_in_two_splits_are_noted_with_the_same_and_with_another_target(tmp_path: Path, says: Says) -> None:
    says(notes_on(leaky(tmp_path)))


def test_a_column_with_another_value_in_each_row_is_left_out(tmp_path: Path, says: Says) -> None:
    says(notes_on(leaky(tmp_path, id=np.arange(120), name=[f"house {row}" for row in range(120)])))


def test_rows_that_are_equal_by_chance_or_read_twice_are_not_noted(table: Path, tmp_path: Path) -> None:
    few = words_of(table, "dataset.inputs=[rooms,garden]", target="{band: class}")
    assert not [note for note in plan_of(*few).remarks if "also in" in note or "have the inputs" in note]
    words = (*leaky(tmp_path), "dataset.eval_split='train[90:]'")
    assert not [note for note in plan_of(*words).remarks if "also in" in note]


def test_rows_are_compared_by_few_columns_before_they_are_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {f"flag{number}": np.arange(120) < 110 for number in range(4)}
    said, counted = notes_on(leaky(tmp_path)), dividing.hashes_of
    read: list[tuple[int, int]] = []

    def hashed(kept: Any, names: list[str], rows: Any, *done: Any) -> Any:
        read.append((len(names), len(rows)))
        return counted(kept, names, rows, *done)

    monkeypatch.setattr(dividing, "hashes_of", hashed)
    (other := tmp_path / "other").mkdir()
    assert notes_on(leaky(other, **more)) == said
    assert read == [(3, 100), (3, 20), (6, 4), (6, 5), (7, 5), (7, 4)]


def test_rows_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = leaky(tmp_path)
    before = plan(spec_of(*words)).remarks
    monkeypatch.setattr(dividing, "hashes_of", None)
    assert plan(spec_of(*words)).remarks == before
    with pytest.raises(TypeError):
        plan(spec_of(*words, "dataset.eval_split='train[101:]'"))


def test_equal_rows_have_equal_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["1,x,0.0,true", "1,x,-0.0,true", "1,y,0.0,true", "1,x,0.5,true", ",x,0.0,true", "NA,x,0.0,true"]
    rows += ["1,,0.0,true", "1,x,0.0,false", "0,x,1.0,true"]
    kept = kept_from(tmp_path, "a.csv", "\n".join(["a,kind,price,garden", *rows]))
    names, numbers = [*kept.known.columns], np.arange(9)
    found = hashes_of(kept, names, numbers)
    assert found[0] == found[1]
    assert found[4] == found[5]
    assert len({*found.tolist()}) == 7
    monkeypatch.setattr(dividing, "_AT_ONCE", 2)
    np.testing.assert_array_equal(hashes_of(kept, names, numbers[::-1]), found[::-1])
    assert len({*hashes_of(kept, ["garden"], numbers).tolist()}) == 2
    assert found[0] == 111092985487745740  # in any process, since splits are kept by it


def test_arrays_of_several_dimensions_are_compared_by_each_value(tmp_path: Path) -> None:
    x = np.array([[1, 2], [2, 1], [1, 2]], np.float32)
    write_arrays(tmp_path, {"x": x, "y": np.array([1, 1, 1])}, where="", identity="a", title="a")
    first, other, equal_to_first = hashes_of(KeptArrays({}, tmp_path), ["x", "y"], np.arange(3))
    assert first == equal_to_first != other


TAGS: list[Any] = [["sea", "old"], [], ["park"], ["old", "old, but new"], ["sea"]] * 4
NAMES = ("old", "old, but new", "park", "sea")


def rows(**others: list[Any]) -> dict[str, list[Any]]:
    return {"area": [float(n) for n in range(20)], "tags": TAGS, **others}


def write_labels(path: Path, **others: Any) -> Path:
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


def words_of_labels(
    path: Path, *others: str, model: str = "model=emulated", target: str = "{tags: labels}"
) -> tuple[str, ...]:
    given = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", "dataset.inputs=[area]")
    split = ("dataset.order=file", "dataset.split='train[:50%]'", "dataset.eval_split='train[50%:]'")
    small = ("load.batch_size=5", "trainer.epochs=2", "load=shuffled", model)
    return ("experiment=table", *given, *split, f"dataset.target={target}", *small, *others)


def labels_in(path: Path, *others: str) -> Any:
    order = ("load.shuffle=buffer", "load.shuffle_buffer=0")
    with training_pipeline(plan_of(*words_of_labels(path, *order, *others))) as pipeline:
        return np.concatenate([target for _, target in pipeline.dataset.as_numpy_iterator()])


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.jsonl"])
def test_lists_of_texts_are_labels(name: str, tmp_path: Path) -> None:
    path = write_labels(tmp_path / name)
    (target,) = [of for of in render.text(plan_of(*words_of_labels(path))).splitlines() if "<- tags" in of][:1]
    assert target.split("<- ")[1] == "tags: labels (of lists, values [old, old, but new, park, sea])"
    np.testing.assert_array_equal(labels_in(path), [[label in of for label in NAMES] for of in TAGS[:10]])
    require_same_batches(plan_of(*words_of_labels(path)), tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_lists_of_numbers_are_labels_if_they_are_declared(name: str, tmp_path: Path) -> None:
    path = write_labels(tmp_path / name, tags=[[7, 10], [], [8]] * 6 + [[7]] * 2)
    found = labels_in(path, "dataset.columns={tags: text}")
    np.testing.assert_array_equal(found[:3], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    require_same_batches(plan_of(*words_of_labels(path, "dataset.columns={tags: text}")), tmp_path)


def test_a_model_is_evaluated_by_the_names_of_its_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_labels(tmp_path / "a.parquet")
    complete_here(tmp_path / "run", [*words_of_labels(path, "model.units=[4]", model="model=tabular")])
    found = said(capsys, "evaluate", tmp_path / "run", "--format", "json")
    assert [name for name in NAMES if f'"{name}"' in found] == list(NAMES)


@pytest.mark.parametrize("case", cases("labels"))
def test_lists_that_are_no_labels(case: Case, tmp_path: Path, golden: Golden) -> None:
    tags = [case["tags"].get(row, tags) for row, tags in enumerate(TAGS)]
    path = write_labels(tmp_path / "a.parquet", tags=tags)
    golden(case, refusal_of_plan(*words_of_labels(path, target=case["target"])))


def test_lists_of_numbers_are_no_labels(tmp_path: Path, says: Says) -> None:
    path = write_labels(tmp_path / "a.parquet", tags=[[3]] * 20)
    says(refusal_of_plan(*words_of_labels(path)))


def test_lists_of_texts_are_no_inputs_of_their_own(tmp_path: Path) -> None:
    path = write_labels(tmp_path / "a.parquet", kind=["a", "b"] * 10)
    plan = plan_of(*(of for of in words_of_labels(path, target="{kind: class}") if "inputs" not in of))
    assert "column `tags` is not used: it holds lists of texts, which can only be labels to predict" in plan.remarks
