"""Ejected programs of rows: the batches and the losses of the run, with what its columns learned; the style of all."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.eject.program import ejected, versions
from etlrun.eject.text import complete, literal
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.system.errors import ConfigError
from tests.configs import EXPERIMENTS, experiment, plan_of, raised
from tests.golden import Says
from tests.pipelines import training_pipeline
from tests.programs import CHECKS, found_by, program_of
from tests.tables import houses, words_of, write_houses
from tests.test_augment import EVERY
from tests.test_rows_arrays import OF_FUNCTIONS, arrays, installed, saved
from tests.test_rows_arrays import words_of as words_of_arrays

FLIP = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
PROGRAMS = {
    "default": (),
    **{name: experiment(name) for name in EXPERIMENTS if name not in {"table", "text"}},  # its rows are not here
    "on_disk": ("extract=tfds", "cache=disk", "cache.at=decoded", FLIP, "cache.dir='~/a'", "dataset.data_dir='~/b'"),
    "frozen": (
        "model.trainable=false", "cache=none", "dataset.on_corrupt=skip", "model.weights='~/w.h5'",
        "load.class_weights=balanced",
    ),
    "augmented": EVERY,
    "optimized": (
        "trainer.schedule.warmup_steps=2", "trainer.ema_momentum=0.9", "trainer.global_clipnorm=1",
        "load.mixup_alpha=0.2",
        "trainer.label_smoothing=0.1", "trainer.metrics=[accuracy,top_1_accuracy]",
    ),
    "scored": (
        "trainer.schedule.name=cosine", "trainer.schedule.warmup_steps=2",
        "trainer.metrics=[accuracy,f1,recall,precision]",
        "load.class_weights=balanced", "trainer.label_smoothing=0.1", "load.drop_remainder=true",
    ),
    "phases": (
        "model=mobilenet_v2", "trainer=fine_tune", "trainer.schedule.name=cosine",
        "dataset.on_corrupt=raise", "load.class_weights=balanced",
    ),
    "plain_phases": ("model=mobilenet_v2", "trainer=fine_tune", "load=plain", "dataset.on_corrupt=skip"),
    "callbacks": ("trainer.early_stopping.patience=2", "logger=tensorboard", "trainer.device=gpu"),
    "steps": ("trainer.steps_per_epoch=7", "dataset.eval_split=null", "load=plain", "trainer.jit_compile=auto"),
    "drained": ("trainer=drain", "trainer.seconds=3", "trainer.epochs=null", "dataset.on_corrupt=skip"),
    "by_class": ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none"),
    "numbered": ("load.shuffle=full", "extract=sequential", "cache=disk", FLIP, "cache.at=resize"),
    "folder": (
        "dataset=folder", "dataset.dir=photos", "load.shuffle=full", "extract=sequential", "cache=none",
        "load.sample=uniform_by_class", "load.mixup_alpha=0.2", "load.cutmix_alpha=1",
    ),
    "records": (
        "dataset=tfrecord", "dataset.files='old/*.tfrecord'", "dataset.num_classes=3", "load.class_weights=balanced",
    ),
    "long": (
        "dataset=tfds", "extract=tfds", "dataset.name=my_pictures", "dataset.image_key='a \"b\"'",
        f"dataset.label_key={'label_' * 9}", f"dataset.data_dir=/{'long/' * 20}",
        f"dataset.split='{'train[:1%]+' * 12}train'",
        "transform.steps=[decode,center_crop,resize,rescale]", "transform.eval_steps=[decode,resize,rescale]",
        "+transform.rescale.scale=0.00784313725490196", "+transform.rescale.offset=-1",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, each a file."""
    found = tmp_path_factory.mktemp("programs")
    for name, words in PROGRAMS.items():
        (found / f"{name}.py").write_text(ejected(plan_of(*words), words, versions()), encoding="utf-8")
    return found


@pytest.mark.slow
@pytest.mark.needs("ruff", "mypy")
@pytest.mark.parametrize("check", CHECKS)
def test_a_check_finds_nothing(check: str, programs: Path) -> None:
    assert found_by(check, programs) == ""


EMBEDDED = (
    "transform.columns={area: {steps: [{fill: mean}, standardize]}, kind: {steps: [{lookup: {oov: 2}}, embed]}, "
    "seats: {of: rooms, steps: [log1p]}}"
)
CROSSED = (
    "transform.columns={range: {of: area, steps: [{fill: {value: mean, indicator: true}}, {quantiles: 4}, embed]}, "
    "place: {of: [range, kind], steps: [{cross: 20}, embed]}, day: {of: sold, steps: [{part: day}, standardize]}}"
)
PRICE, BAND = "{price: number}", "{band: class}"
CONFIGS = {
    "a buffer": ("load.shuffle=buffer", EMBEDDED),
    "rows by number": ("load.shuffle=full",),
    "in order": ("load.shuffle_buffer=0", "dataset.order=file", "extract.shuffle_files=true"),
    "in memory": ("cache=memory",),
    "before the columns": ("cache=memory", "cache.at=source"),
    "a single column": ("dataset.inputs=[rooms]",),
    "split by time": ("dataset.split_by={time: sold}", "load.shuffle=full"),
    "split by group": (
        "dataset.split_by={group: band}",
        "dataset.split='train[:50%]'",
        "dataset.eval_split='train[50%:]'",
    ),
    "stratified": ("dataset.split_by={stratify: rooms}", "dataset.order=file"),
    "split by values": (
        "dataset.split_by={column: band, train: [dear], validation: [cheap]}",
        "dataset.split=train",
        "dataset.eval_split=validation",
    ),
    "of classes": ("load.shuffle=full", "load.sample=uniform_by_class", "load.drop_remainder=true"),
    "an output of another": (
        "dataset.inputs=[area,kind,sold,garden]",
        CROSSED,
    ),
    "texts and times": ("dataset.inputs=null", "transform.columns={sold: {}, band: {}, kind: {}}"),
}  # fmt: skip


def trained(folder: Path, *others: str, target: str = PRICE) -> tuple[str, ...]:
    """Arguments of a run that reads the houses in `folder` and trains a model."""
    return (
        *(word for word in words_of(folder, target=target) if not word.startswith("model")),
        "model=tabular",
        *others,
    )


def batches(dataset: tf.data.Dataset) -> list[Any]:
    """All that is in each batch, in order, with what it is."""
    return [
        tf.nest.map_structure(
            lambda of: (of.tolist() if of.dtype == object else of.tobytes(), of.dtype, of.shape), batch
        )
        for batch in dataset.as_numpy_iterator()
    ]


def require_same_batches(plan: Plan, folder: Path) -> None:
    module = program_of(plan, folder)
    with training_pipeline(plan) as pipeline:
        passes = [batch for _ in range(2) for batch in batches(pipeline.dataset)]
    assert batches(module.train_dataset()) == passes
    context = contexts_of(plan, open_source(plan.spec.dataset))["validation"]
    assert batches(module.validation_dataset()) == batches(Pipeline(plan.evaluation, context).dataset)


@pytest.mark.parametrize("words", CONFIGS.values(), ids=CONFIGS)
def test_its_batches_are_those_of_the_run(table: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    target = BAND if "load.sample=uniform_by_class" in words else PRICE
    require_same_batches(plan_of(*words_of(table, *words, target=target)), tmp_path)


def test_it_imports_the_modules_that_it_names(table: Path) -> None:
    words = words_of(table)
    text = ejected(plan_of(*words), words, versions())
    named = set(re.findall(r"\b((?:pyarrow|urllib)\.[a-z]+)\.", text))
    assert named == {"pyarrow.csv", "pyarrow.feather", "pyarrow.parquet", "urllib.parse"}
    assert named == set(re.findall(r"^import ((?:pyarrow|urllib)\.\w+)$", text, re.MULTILINE))


def test_it_reads_no_other_columns_and_those_of_a_batch_in_one_call(table: Path, tmp_path: Path) -> None:
    pyarrow.feather.write_feather(houses(), tmp_path / "rows.feather")
    module = program_of(plan_of(*words_of(table, "dataset.inputs=[area,rooms]")), tmp_path)
    assert module.table_of(str(tmp_path / "rows.feather")).column_names == ["area", "rooms", "price"]
    graph = tf.function(module.parse).get_concrete_function(tf.TensorSpec((None,), tf.int64)).graph
    assert [of.type for of in graph.get_operations()].count("PyFunc") == 1


def write_json_lines(rows: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))


def write_stream(rows: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, rows.schema) as stream:
        stream.write_table(rows)


def write_far_days(rows: pa.Table, path: Path) -> None:
    """Write days of the years 4757 and later as Spark does."""
    later = pc.add(rows["sold"], pa.scalar(timedelta(days=1_000_000)))
    rows = rows.set_column(rows.column_names.index("sold"), "sold", later)
    pyarrow.parquet.write_table(rows, path, use_deprecated_int96_timestamps=True)


FORMATS: dict[str, Callable[[pa.Table, Path], None]] = {
    "rows.csv": pyarrow.csv.write_csv,
    "rows.csv.gz": lambda rows, path: pyarrow.csv.write_csv(rows, pa.CompressedOutputStream(path, "gzip")),
    "ROWS.CSV.GZ": lambda rows, path: pyarrow.csv.write_csv(rows, pa.CompressedOutputStream(path, "gzip")),
    "rows.tsv": lambda rows, path: pyarrow.csv.write_csv(rows, path, pyarrow.csv.WriteOptions(delimiter="\t")),
    "rows.jsonl": write_json_lines,
    "rows.feather": pyarrow.feather.write_feather,
    "rows.arrow": write_stream,
    "rows.parquet": write_far_days,
}


@pytest.mark.parametrize("name", FORMATS)
def test_its_batches_are_those_of_the_run_from_files_of_several_formats_and_splits(name: str, tmp_path: Path) -> None:
    rows = houses()
    garden = pa.array(rows["garden"].to_pylist(), mask=np.arange(len(rows)) % 7 == 3)
    rows = rows.set_column(rows.column_names.index("garden"), "garden", garden)
    kinds = pa.array([kind and f" {kind} " for kind in rows["kind"].to_pylist()])
    rows = rows.set_column(rows.column_names.index("kind"), "kind", kinds)
    for split, part in (("train", rows[:50]), ("more", rows[50:90]), ("validation", rows[90:])):
        FORMATS[name](part, tmp_path / f"{split}_{name}")
    files = f"{{train: [{tmp_path}/train*, {tmp_path}/m*], validation: {tmp_path}/val*}}"
    splits = ("dataset.split='train[10:]+validation[:5]'", "dataset.eval_split='validation[5:]'")
    words = words_of(tmp_path, *splits, "dataset.inputs=[area,rooms,kind,garden,sold]", "dataset.strip=true")
    words = (*words, "dataset.columns={rooms: text}")
    words = (*(word for word in words if not word.startswith("dataset.files")), f"dataset.files={files}")
    require_same_batches(
        plan_of(*words, "transform.columns={area: {}, rooms: {}, kind: {}, garden: {}, sold: {}}"), tmp_path
    )


def write_fractions_of_zeros(rows: pa.Table, path: Path) -> None:
    """Write a csv as pandas does, which Arrow writes without them."""
    lines = [rows.column_names, *([*row.values()] for row in rows.to_pylist())]
    path.write_text("".join(f"{','.join(map(str, line))}\n" for line in lines))


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.csv", write_fractions_of_zeros), ("a.jsonl", write_json_lines), ("a.parquet", pyarrow.parquet.write_table)],
)
def test_classes_folds_and_codes_may_be_written_as_floats(name: str, write: Any, tmp_path: Path) -> None:
    numbers = np.arange(200)
    columns = {"code": numbers % 3 * 1.0, "fold": (numbers % 5 == 4) * 1.0, "kind": [1.0, -0.0, 0.0, 2.0] * 50}
    write(pa.table(columns), tmp_path / name)
    planned = plan_of(
        *(word for word in words_of(tmp_path, target="{kind: class}") if "dataset.inputs" not in word),
        f"dataset.files={tmp_path / name}",
        "dataset.columns={code: integer}",
        "dataset.split_by={column: fold, train: [0], validation: [1]}",
        "dataset.split=train",
        "dataset.eval_split=validation",
        "transform.columns={code: {of: code, steps: [{lookup: [0, 1, 2]}, one_hot]}}",
        "load.sample=uniform_by_class",
        "load.shuffle=full",
        "load.drop_remainder=true",
    )
    assert planned.spec.dataset.found.classes == ("0", "1", "2")  # type: ignore[attr-defined]
    require_same_batches(planned, tmp_path)


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (False, ("load.shuffle=full", "load.sample=uniform_by_class", "load.drop_remainder=true")),
        (True, ("dataset.split_by={group: name}", "dataset.split='train[:50%]'", "dataset.eval_split='train[50%:]'")),
    ],
    ids=["files, by class", "an archive, by group"],
)
def test_its_batches_are_those_of_the_run_from_arrays(tmp_path: Path, *, archive: bool, words: tuple[str, ...]) -> None:
    files = saved(tmp_path, arrays(), archive=archive)
    require_same_batches(plan_of(*words_of_arrays(tmp_path, files), *words, "trainer.epochs=2"), tmp_path)


MADE = {
    **OF_FUNCTIONS,
    "masked": (
        "    some = np.ma.masked_greater(np.arange(20.0), 15)\n"
        "    return {'area': some, 'some': np.arange(40, dtype='>i4').reshape(20, 2), 'price': np.arange(20)}\n"
    ),
}


@pytest.mark.parametrize("body", MADE.values(), ids=MADE)
def test_its_batches_are_those_of_the_run_from_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    words = [*installed(tmp_path, monkeypatch, body), "load.batch_size=128", "trainer.epochs=2"]
    require_same_batches(plan_of(*words), tmp_path)


@pytest.mark.parametrize(
    "words",
    [words_of(Path()), (*words_of(Path())[3:], "dataset=python", "dataset.of=none_such")],
    ids=["a table", "a function"],
)
def test_rows_that_are_not_on_this_machine_have_no_program(words: Sequence[str], says: Says) -> None:
    says(raised(ConfigError, ejected, plan_of(*words), words, versions()))


def _is_even(number: int) -> bool:
    return number == 0 or _is_odd(number - 1)


def _is_odd(number: int) -> bool:
    return number != 0 and _is_even(number - 1)


def test_functions_may_call_each_other() -> None:
    found = complete({"_is_even": _is_even, "_is_odd": _is_odd}, ["def model():\n    return _is_even(2)"])
    assert [text.partition("(")[0] for text in found] == ["def _is_odd", "def _is_even", "def model"]


def test_values_that_python_has_no_literals_for() -> None:
    found = [literal(value) for value in (b"\xff", b'"', math.nan, -math.inf, 1.5)]
    assert found == [r'b"\xff"', "b'\"'", 'float("nan")', 'float("-inf")', "1.5"]


@pytest.mark.slow
@pytest.mark.needs("ruff", "mypy")
@pytest.mark.parametrize("check", CHECKS)
def test_a_check_of_rows_finds_nothing(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    with contextlib.chdir(tmp_path):
        write_houses(tmp_path)
        for name, words in CONFIGS.items():
            target, words_for = BAND if name == "of classes" else PRICE, words_of if "times" in name else trained
            args = words_for(Path(), *words, target=target)
            Path(f"{name.replace(' ', '_')}.py").write_text(ejected(plan_of(*args), args, versions()), encoding="utf-8")
        others: dict[str, Sequence[str]] = {"arrays": words_of_arrays(Path(), saved(Path(), arrays()))}
        others["made"] = installed(tmp_path / "package", monkeypatch, OF_FUNCTIONS["arrays"])
        for name, given in others.items():
            Path(f"{name}.py").write_text(ejected(plan_of(*given), given, versions()), encoding="utf-8")
    assert found_by(check, tmp_path) == ""
