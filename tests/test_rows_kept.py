"""Kept columns: what plans say of them, how they are listed, and what ends while they are written."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds
from pyarrow import csv

import etlrun
from etlrun.cli.parsers import call
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.sources.rows import kept as writing
from etlrun.sources.rows.folders import FACTS
from etlrun.sources.rows.kept import KeptColumns, KeptWriter, stamps_of
from etlrun.sources.rows.source import RowsSource, gathered
from etlrun.sources.rows.table import identity_of, kept_of
from etlrun.stages.columns import outputs_of
from etlrun.stages.lazy import tf
from etlrun.stages.load import FullShuffle, SampleByClass
from etlrun.system.errors import ConfigError, EtlrunError
from tests.boxes import DRAINED, plan_with, ran
from tests.boxes import words_of as words_of_boxes
from tests.commands import complaint
from tests.configs import plan_of, raised
from tests.disks import mounted
from tests.golden import Case, Golden, Says, cases
from tests.pipelines import batches_of, digest_of, training_pipeline
from tests.runs import run_here
from tests.tables import (
    COLUMNS,
    CSV,
    INPUTS,
    a_table,
    houses,
    kept_from,
    loaded_run,
    message,
    values,
    words_of,
    write_houses,
)
from tests.test_measures import BATCH, seen
from tests.trained import refused


def test_a_plan_says_what_is_kept_and_what_is_noted(table: Path, tmp_path: Path, says: Says) -> None:
    words, kept = words_of(table), tmp_path / "kept"
    (tmp_path / "a.csv").write_text("kind,area,rooms,garden,price\n flat,1,,true,3\nloft,2,3,,4\nflat,3,2,false,5\n")
    planned = plan_of(*words, f"dataset.files={tmp_path / 'a.csv'}", f"dataset.dir={kept}")
    (folder,) = kept.glob("rows-*[!k]")
    bytes_ = sum(path.stat().st_size for path in folder.glob("*.bin"))
    says(list(planned.remarks[:2]), FOLDER=folder, SIZE=f"{bytes_ / 1e6:.1f} MB")


def test_small_batches_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"n": [0.0, -0.0, None, 2.5] * 25, "text": pa.array(["é", None, "a", ""] * 25, pa.large_string())})
    added, add = list[int](), writing._WrittenColumn.add

    def counting(column: Any, values: pa.Array) -> None:
        added.append(len(values))
        add(column, values)

    monkeypatch.setattr(writing._WrittenColumn, "add", counting)
    for name, size, at_once in (("whole", 100, 1_000), ("of rows", 1, 60), ("of bytes", 1, 1_000)):
        monkeypatch.setattr(writing, "_ROWS", at_once)
        monkeypatch.setattr(writing, "_BYTES", 8_000_000 if name != "of bytes" else 500)
        (folder := tmp_path / name).mkdir()
        writer = KeptWriter(folder, table.schema)
        for batch in table.to_batches(max_chunksize=size):
            writer.add(batch)
        writer.finish(rows={"train": 100}, identity="", title="a")
    whole, of_rows, of_bytes = ({path.name: path.read_bytes() for path in of.iterdir()} for of in tmp_path.iterdir())
    assert whole == of_rows == of_bytes
    assert json.loads(whole[FACTS])["columns"]["n"]["distinct"] == 2
    assert added[:6] == [100, 100, 60, 60, 40, 40]
    assert 4 < len(added[6:]) < 40


def test_kept_columns_are_listed_and_removed_beside_caches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    key, held = kept_from(tmp_path, "a.csv", CSV).folder.name, tmp_path / "other"
    shutil.copytree(tmp_path / "kept" / key, held / key)
    reader = [KeptColumns(held / key)]
    os.utime(held / key / FACTS, (time.time() - 7200, time.time() - 7200))
    (held / f"rows-{'0' * 16}.filling").mkdir()
    (held / f"rows-{'1' * 16}.filling").write_text("a file of another program")

    def said(*arguments: str) -> list[str]:
        call("cache", [*arguments, f"--dir={held}"])
        return capsys.readouterr().out.splitlines()

    says(said("ls")[-2:], KEY=key)
    says(said("gc", "--max-bytes=0", "--yes")[:2], KEY=key)
    reader.clear()
    says(said("gc", "--max-bytes=0"), KEY=key)
    says(said("gc", "--max-bytes=0", "--yes"), KEY=key)
    assert [path.name for path in held.iterdir() if path.name != "lock"] == [f"rows-{'1' * 16}.filling"]


KILLED = """
import os, resource, signal, sys
from pathlib import Path
from etlrun.sources.rows.table import identity_of, kept_of
from tests.tables import a_table

event, name, files, kept = sys.argv[1:]

def look(happened, arguments):
    if happened == event and str(arguments[0]).endswith(name):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
if not event:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
kept_of(a_table(files, Path(kept)))
"""
KILLS = {
    "before its first file": ("open", "0.missing.bin"),
    "between its files": ("open", "1.text.bin"),
    "while it writes": ("", ""),
    "before what completes it": ("os.rename", f".{FACTS}"),
    "before it has its name": ("os.rename", ".filling"),
}


@pytest.mark.slow
def test_rows_are_read_again_wherever_a_process_was_killed_that_read_them(tmp_path: Path) -> None:
    rows = [f"{number},text {number},{number / 2}" for number in range(20_000)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,price", *rows]))
    files = f"{tmp_path}/a.csv"
    whole = values(kept_of(a_table(files, tmp_path / "whole")))
    assert whole["b"][-1] == "text 19999"
    for kill, (event, name) in KILLS.items():
        kept = tmp_path / kill
        done = subprocess.run([sys.executable, "-c", KILLED, event, name, files, str(kept)], check=False)
        assert done.returncode == -(signal.SIGKILL if event else signal.SIGXFSZ), kill
        assert [path.suffix for path in kept.glob("rows-*") if path.is_dir()] == [".filling"], kill
        assert values(kept_of(a_table(files, kept))) == whole, kill
        assert [path.suffix for path in kept.glob("rows-*") if path.is_dir()] == [""], kill


OF_ANOTHER_FORM = [
    "",
    "7",
    "[]",
    "{}",
    '{"outputs": []}',
    '{"outputs": {"area": [1]}}',
    '{"outputs": {"area": {"of": 1}}}',
]


@pytest.mark.parametrize("content", OF_ANOTHER_FORM)
def test_what_is_kept_beside_columns_is_made_again_if_it_has_another_form(tmp_path: Path, content: str) -> None:
    learned = {"outputs": {"area": {"of": ["area"], "steps": [{"standardize": {"mean": 1.0, "std": 2.0}}]}}}

    def asked() -> Any:
        return writing.remembered(tmp_path, "fitted", [1], lambda: learned, lambda held: outputs_of(held["outputs"]))

    whole = asked()
    (path,) = tmp_path.glob("fitted-*.json")
    path.write_text(content)
    assert asked() == whole
    assert path.read_text() == json.dumps(learned)


@pytest.mark.parametrize("size", ["8K", "64K", "256K"])
def test_a_full_disk_is_named(size: str, tmp_path: Path, says: Says) -> None:
    rows = [f"{number},text {number},{number / 2}" for number in range(20_000)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,price", *rows]))
    with mounted(tmp_path / "disk", size) as disk:
        says(message(tmp_path, kept_of, a_table(f"{tmp_path}/a.csv", disk)))
        assert [path.suffix for path in disk.iterdir()] == [".lock"]


def test_what_is_left_and_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\n1,2\n")
    of = a_table(f"{tmp_path}/a.csv", tmp_path / "kept")
    left = tmp_path / "kept" / f"rows-{identity_of(of)}.filling"
    left.parent.mkdir()
    left.touch()  # which is no folder, and stays as one of another user does
    told = message(tmp_path, kept_of, of)
    assert told.startswith(f"dataset.dir: found kept/{left.name}: Not a directory; expected a folder that can be")


ROWS = (
    '{"i": 1, "j": 1, "x": 0.5, "b": true, "c": true, "t": "a", "u": "ä", "d": "2020-01-02", "e": "2021-01-01"}\n'
    '{"i": 2, "x": 1.5, "b": false, "u": "", "e": "2021-01-02"}\n'
    '{"i": 3, "j": 7, "b": true, "c": false, "t": "b", "u": "ä", "d": "1969-12-31", "e": "2021-01-03"}\n'
)
"""Columns of each type, without and with a missing value."""
CODED = "tu"


@pytest.mark.parametrize("numbers", [[2, 0, 1, 2], 1], ids=["batch", "scalar"])
def test_a_graph_takes_what_numpy_takes(numbers: int | list[int], tmp_path: Path) -> None:
    kept = kept_from(tmp_path, "a.jsonl", ROWS, columns={"d": "timestamp", "e": "timestamp"})
    for name, column in kept.known.columns.items():
        gather = gathered(kept, name)
        assert gather is not None, name
        found = tf.function(gather)(tf.constant(numbers, tf.int64))
        assert found.dtype.name == column.feature.dtype, name
        expected = kept.take(name, np.atleast_1d(np.array(numbers)))
        np.testing.assert_array_equal(np.atleast_1d(found.numpy()), expected, name)


def test_texts_of_many_values_have_no_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_CODED", 1)
    kept = kept_from(tmp_path, "a.jsonl", ROWS, columns={"d": "timestamp", "e": "timestamp"})
    assert [name for name in kept.known.columns if gathered(kept, name) is None] == [*CODED]
    assert not [*kept.folder.glob("*.codes.bin")]
    assert kept.take("t", np.array([1, 2])).tolist() == [b"\xff", b"b"]
    assert {name: kept.known.columns[name].distinct for name in CODED} == {"t": None, "u": None}


def test_the_words_of_columns_are_written_one_after_the_other(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(40)]
    batch = pa.RecordBatch.from_pydict({name: pa.array(["a", "b"], pa.large_string()) for name in names})
    writer = KeptWriter(tmp_path, batch.schema)
    writer.add(batch)
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(of.name) for of in Path("/proc/self/fd").iterdir()) + 8, most))
    try:
        writer.finish(rows={"train": 2}, identity="", title="")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert KeptColumns(tmp_path).words("t39").tolist() == [b"\xff", b"a", b"b"]


def test_a_file_that_two_columns_name_is_a_fault_once(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    assert raised(EtlrunError, stamps_of, [path, path], "an array").count("expected an array") == 1


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and a run on their prices that names its columns, but no inputs."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    words = words_of(folder, "model=linear", "dataset.inputs=null", COLUMNS, target="{price: {number: standardize}}")
    given = [of for of in words if "emulated" not in of and "step_ms" not in of]
    assert run_here(folder / "prices", [*given, "trainer.epochs=1"])[0] == 0
    return folder


def test_rows_without_an_input_that_the_training_chose_are_not_evaluated(
    rows: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    csv.write_csv(houses().drop_columns(["kind", "area"]), path := rows / "lacking.csv")
    words = ("evaluate", rows / "prices", f"dataset.files={path}", "dataset.split=train")
    says(refused(capsys, *words, status=2), FOLDER=rows)


TOO_LARGE = (
    "found {}; expected numbers of at most 3.403e+38, since a model {} float32\n"
    "    -> repair the value, or write it in the unit of the training"
)


@pytest.mark.parametrize("area", [1e42, -1e300])
def test_inputs_that_float32_does_not_hold_are_faults(
    area: float, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
    wanted = TOO_LARGE.format(area, "takes")
    told = raised(etlrun.EtlrunError, loaded_run(rows / "prices").predict, [row, {**row, "area": area}])
    assert told == f"rows, row 1, area: {wanted}"
    table = houses().slice(0, 2)
    table = table.set_column(table.schema.get_field_index("area"), "area", pa.array([50.0, area]))
    pq.write_table(table.select(INPUTS), inputs := rows / "inputs.parquet")
    assert complaint(capsys, "predict", rows / "prices", inputs).endswith(f"  {inputs}, row 1, area: {wanted}\n")
    pq.write_table(table, large := rows / "large.parquet")
    words = (f"dataset.files={large}", "dataset.split=train", "--importance", "0")
    assert refused(capsys, "evaluate", rows / "prices", *words) == f"  {large}, row 1, area: {wanted}".splitlines()


def test_a_target_that_float32_does_not_hold_is_a_fault(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = houses().slice(0, 2)
    table = table.set_column(table.schema.get_field_index("price"), "price", pa.array([50.0, 1e40]))
    pq.write_table(table, large := rows / "costly.parquet")
    words = (f"dataset.files={large}", "dataset.split=train", "--importance", "0")
    wanted = f"  {large}, row 1, price: {TOO_LARGE.format(1e40, 'predicts')}"
    assert refused(capsys, "evaluate", rows / "prices", *words) == wanted.splitlines()


ROW = {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
UNFIT: dict[str, Any] = {
    "bytes": [{**ROW, "area": b"3"}],
    "a set": [ROW, {**ROW, "area": {1}}],
    "a complex": [{**ROW, "area": 1j}],
    "too many digits": [{**ROW, "area": 10**5000}],
    "a key": [{**ROW, b"area": 3}],
    "an empty text": [{**ROW, "area": ""}],
    "an empty text behind a number": [ROW, {**ROW, "area": ""}],
    "images": b"abc",
}


@pytest.mark.parametrize("name", UNFIT)
def test_values_that_no_table_has_are_faults(name: str, rows: Path, says: Says) -> None:
    says(raised(etlrun.EtlrunError, loaded_run(rows / "prices").predict, UNFIT[name]))


def test_decimals_are_numbers(rows: Path) -> None:
    run = loaded_run(rows / "prices")
    given = [{**ROW, "area": Decimal("50.0"), "rooms": Decimal(2)}, {**ROW, "area": Decimal("NaN")}]
    wanted = run.predict([ROW, {**ROW, "area": None}])
    assert run.predict(given) == wanted


BESIDE = (
    "+transform.columns={width: {steps: [{standardize: {mean: 0.5, std: 0.25}}]}, "
    "wide: {of: width, steps: [{bucketize: [0.25, 0.5]}, one_hot]}, height: drop}"
)


@pytest.fixture(scope="module")
def digest(boxes: Path) -> str:
    """Of what TFDS itself reads of the training examples, with the outputs computed for whole batches."""
    dataset = tfds.load("tiny_boxes", data_dir=boxes, split="train[:80%]", download=False).batch(7)
    return digest_of((outputs(batch["width"]), batch["price"]) for batch in dataset)


def outputs(width: tf.Tensor) -> dict[str, tf.Tensor]:
    exact = tf.cast(width, tf.float64)
    wide = tf.one_hot(tf.cast(exact >= 0.25, tf.int64) + tf.cast(exact >= 0.5, tf.int64), 3)
    return {"width": tf.cast((exact - 0.5) / 0.25, tf.float32), "wide": wide}


CACHES: dict[str, tuple[str, ...]] = {
    "no cache": ("cache=none",),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "before the columns": ("cache=memory", "cache.at=source"),
}


@pytest.mark.parametrize("name", CACHES)
def test_outputs_stand_beside_the_other_features(name: str, digest: str, boxes: Path, tmp_path: Path) -> None:
    words = words_of_boxes(boxes, *DRAINED, *CACHES[name], BESIDE, f"cache.dir={tmp_path / 'caches'}")
    status, summary = ran(tmp_path / "run", words)
    assert (status, {epoch["digest"] for epoch in summary["epochs"]}) == (0, {digest})


def test_a_plan_shows_outputs_beside_the_other_features(boxes: Path) -> None:
    planned = plan_with(
        None, words_of_boxes(boxes, "trainer=drain", BESIDE.replace("height: drop", "more: {of: height}"))
    )
    given = "{height: float32, more: float32, wide: float32 [3] in [0, 1], width: float32}, price: float32"
    assert str(planned.train[-1].gives) == f"8 x {given}"


@pytest.mark.parametrize("case", cases("beside"))
def test_columns_beside_other_features_learn_nothing(boxes: Path, case: Case, golden: Golden) -> None:
    golden(
        case,
        raised(
            ConfigError,
            plan_with,
            None,
            words_of_boxes(boxes, "trainer=drain", f"+transform.columns={case['columns']}"),
        ),
    )


FULL, BY_CLASS = "load.shuffle=full", "load.sample=uniform_by_class"
CONFIGS = {
    "shuffled": (FULL,),
    "without a remainder": (FULL, "load.drop_remainder=true"),
    "one batch": (FULL, "load.batch_size=1000"),
    "by class": (FULL, BY_CLASS),
    "in order": ("load.shuffle_buffer=0",),
}
SKIPPED = 3


def planned(table: Path, *words: str) -> Plan:
    target = "{band: class}" if BY_CLASS in words else "{price: number}"
    columns = "transform.columns={area: {of: area, steps: [{fill: 0}]}}"
    return plan_of(*words_of(table, columns, *words, target=target))


def order_of(pipeline: Pipeline, words: tuple[str, ...], number: int) -> Any:
    """The rows of a pass, in their order."""
    source, split, seed = pipeline.context.source, pipeline.split, int(pipeline.context.pass_seed(number))
    if FULL not in words:
        return split.numbers
    return split.numbers[
        SampleByClass.op(source.labels_of(split), seed)
        if BY_CLASS in words
        else FullShuffle.op(len(split.numbers), seed)
    ]


@pytest.mark.parametrize("words", CONFIGS.values(), ids=CONFIGS)
def test_batches_are_those_of_the_order_of_the_pass(words: tuple[str, ...], table: Path) -> None:
    plan = planned(table, *words)
    load = plan.spec.load
    with training_pipeline(plan) as pipeline:
        source = pipeline.context.source
        assert isinstance(source, RowsSource)
        for number in (1, 2):
            areas = np.nan_to_num(source.kept.take("area", order_of(pipeline, words, number))).astype(np.float32)
            expected = [areas[first : first + load.batch_size] for first in range(0, len(areas), load.batch_size)]
            whole = [batch for batch in expected if len(batch) == load.batch_size or not load.drop_remainder]
            found = [area.numpy() for area, _ in pipeline.dataset]
            assert [batch.tolist() for batch in found] == [batch.tolist() for batch in whole]


@pytest.mark.parametrize("is_endless", [False, True], ids=["passes", "endless"])
@pytest.mark.parametrize("words", [CONFIGS["shuffled"], CONFIGS["in order"]], ids=["shuffled", "in order"])
def test_a_pass_goes_on_behind_the_batches_that_are_skipped(
    words: tuple[str, ...],
    table: Path,
    is_endless: bool,  # noqa: FBT001 - which dataset is read
) -> None:
    found = []
    for skipped in (0, SKIPPED):
        with training_pipeline(planned(table, *words)) as pipeline:
            pipeline.skip(1, skipped)
            passes = (
                [*islice(pipeline.endless(), 50 - skipped)] if is_endless else [*pipeline.dataset, *pipeline.dataset]
            )
            found.append(batches_of(passes))
    whole, resumed = found
    assert resumed == whole[SKIPPED:]


def test_the_order_of_a_pass_is_no_cost_of_an_example(table: Path) -> None:
    costs = seen(planned(table, FULL, f"load.batch_size={BATCH}"))
    rows = {row.stage: row for row in costs.rows}
    assert [*rows] == ["extract.sequential", "load.shuffle_full", "load.batch", "transform.map", "load.prefetch"]
    assert rows["extract.sequential"].cost_ms == rows["load.shuffle_full"].cost_ms == 0
    assert rows["extract.sequential"].examples == rows["load.shuffle_full"].examples == rows["load.batch"].examples
    assert 0 < rows["load.batch"].cost_ms < rows["transform.map"].cost_ms
    assert costs.periods.work.period_ms == pytest.approx(sum(row.cost_ms for row in costs.rows))
