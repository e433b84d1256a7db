"""Figures of classes in plans and runs, and labels of records that can't be read."""

import json
from pathlib import Path

import numpy as np
import pytest

from etlrun.cli import main as cli
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.session import prepared as prepared_run
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import counts_of, labels_of
from etlrun.stages import STAGES
from etlrun.system.errors import WorldError
from tests.own import image, of_folder, of_records, prepared, records, write_photos, write_records
from tests.programs import program_of

BALANCED = ("model=mobilenet_v2_small", "transform.resize.size=[32,32]", "load.class_weights=balanced")
BY_CLASS = ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none")


def notes(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The notes of a plan as text, which are those in its JSON."""
    cli.main(["plan", *words])
    found = [line.removeprefix("note: ") for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    cli.main(["plan", "--format", "json", *words])
    assert json.loads(capsys.readouterr().out)["remarks"] == found
    return found


def counts(plan: Plan) -> dict[str, int]:
    source = open_source(plan.spec.dataset)
    return counts_of(source, source.split(plan.spec.dataset.split, "dataset.split"), by_number=False)


def test_a_plan_notes_the_classes_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("dataset=folder", f"dataset.dir='{folder}'", "dataset.split='train[:25%]'")
    found = counts(of_folder(folder, "dataset.split='train[:25%]'"))
    assert (set(found), sum(found.values())) == ({"a cat", "dög"}, 10)
    cat, dog = found.values()
    assert notes(capsys, *own, "load.class_weights=balanced")[-1] == (
        "load.class_weights = balanced: training examples by class, with their weights, are "
        f"a cat {cat} ({10 / 2 / cat:.3g}), dög {dog} ({10 / 2 / dog:.3g})."
    )
    assert notes(capsys, *own, *BY_CLASS) == [
        f"load.sample = uniform_by_class: training examples by class are a cat {cat}, dög {dog}."
    ]
    assert not notes(capsys, *own)


def test_a_plan_notes_the_classes_of_whole_splits_that_are_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(write_photos(tmp_path / "photos", splits=("train", "validation")), tmp_path / "data")
    (tmp_path / "photos" / "train" / "cross" / "1.jpg").unlink()
    prepared(tmp_path / "photos", tmp_path / "data", "--version", "1.0.1")
    capsys.readouterr()
    own = ["dataset=tfds", "dataset.name=own", f"dataset.data_dir={tmp_path / 'data'}", "load.class_weights=balanced"]
    setting, figures = "load.class_weights = balanced: ", "training examples by class, with their weights, are "
    for words, note in {
        ("dataset.split=train",): f"{figures}cross 5 (1.1), disc 6 (0.917).",
        ("dataset.split=train+validation",): f"{figures}cross 11 (1.05), disc 12 (0.958).",
        ("dataset.split=train", "dataset.version=1.0.0"): f"{figures}cross 6 (1), disc 6 (1).",
        ("dataset.split='train[:9]'",): (
            "a run counts the labels of 'train[:9]' when it starts, and notes the examples by class, with their "
            "weights."
        ),
    }.items():
        assert notes(capsys, *own, *words)[-1] == f"{setting}{note}"
    plan = resolve(Request(overrides=[*own, "dataset.split=train"]), STAGES).plan
    assert counts(plan) == {"cross": 5, "disc": 6}


NOWHERE = [("dataset=sample", "dataset.data_dir=nowhere"), ("dataset=folder", "dataset.dir=nowhere")]


@pytest.mark.parametrize("words", NOWHERE, ids=" ".join)
def test_a_plan_says_where_figures_will_be(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    (note,) = notes(capsys, *words, *BY_CLASS)
    assert note == (
        "load.sample = uniform_by_class: a run counts the labels of 'train[:80%]' when it starts, and notes the "
        "examples by class."
    )


def broken(folder: Path, kind: str) -> tuple[str, str]:
    """Write 12 records, and more behind one that has no class; return its place and what is found there."""
    records(folder, "a.tfrecord", range(12))
    path = folder / "b.tfrecord"
    good: dict[str, bytes | int | float] = {"image": image(1), "label": 1}
    if kind == "label":
        write_records(path, [good, good | {"label": 7}, good])
        return f"{path}, record 1", "label 7"
    if kind == "feature":
        write_records(path, [good, {"image": image(1)}, good])
        return f"{path}, record 1", "Feature: label (data type: int64) is required but could not be found."
    write_records(path, [good] * 3)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    return f"{path}, record 2", "corrupted record at "


@pytest.mark.parametrize("kind", ["label", "feature", "checksum"])
@pytest.mark.parametrize("own", [BALANCED, BY_CLASS], ids=["weights", "sample"])
def test_a_record_without_a_class_is_named(own: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    where, found = broken(tmp_path, kind)
    plan = of_records(tmp_path, "dataset.split=train", "dataset.eval_split=null", *own)
    with pytest.raises(WorldError) as error:
        prepared_run(plan, Record(tmp_path), open_source(plan.spec.dataset))
    (fault,) = error.value.faults
    also = " and load.shuffle=buffer" if own is BY_CLASS else ""
    assert (fault.where, found in fault.found) == (where, True)
    assert fault.remedy == (
        "write the file again, check dataset.num_classes and the declared features, or set dataset.on_corrupt=skip"
        f"{also} to skip and count such records"
    )


@pytest.mark.parametrize("kind", ["label", "feature", "checksum"])
def test_records_without_a_class_are_not_counted(kind: str, tmp_path: Path) -> None:
    broken(tmp_path, kind)
    words = ("dataset.split=train", "dataset.eval_split=null", *BALANCED, "dataset.on_corrupt=skip")
    plan = of_records(tmp_path, *words)
    assert counts(plan) == {"0": 6, "1": 6 + 2}
    source = open_source(plan.spec.dataset)
    labels = labels_of(source, source.split("train", "dataset.split"), by_number=False)
    np.testing.assert_array_equal(program_of(plan, tmp_path, words).labels_of("train"), labels)


def test_a_file_that_is_gone_ends_the_count(tmp_path: Path) -> None:
    broken(tmp_path, "label")
    source = open_source(of_records(tmp_path, *BALANCED, "dataset.on_corrupt=skip").spec.dataset)
    split = source.split("train", "dataset.split")
    (tmp_path / "b.tfrecord").unlink()
    assert len(labels_of(source, split, by_number=False)) == 12
