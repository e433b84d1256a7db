"""Figures of classes in plans and runs, and labels of records that can't be read."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.backend import seed_all
from etlrun.run.custom_objects import Crossentropy
from etlrun.run.session import prepared as prepared_run
from etlrun.sources.base import OnDisk, open_source, slices
from etlrun.sources.corrupt import counts_of, labels_of
from etlrun.stages.dataset import FILES, TFDS, malformed
from etlrun.stages.load import SampleByClass, balanced
from etlrun.system.errors import WorldError
from tests.configs import refusal_of_request
from tests.golden import Says
from tests.own import image, of_folder, of_records, records, write_records
from tests.programs import losses_in, of_words, program_of
from tests.quick import shallow
from tests.runs import complete_here, losses_of, run_here

BALANCED = ("model=mobilenet_v2_small", "transform.resize.size=[32,32]", "load.class_weights=balanced")
SHARES = ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none")


def notes(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The notes of a plan as text, which are those in its JSON."""
    cli.main(["plan", *words])
    found = [line.removeprefix("note: ") for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    cli.main(["plan", "--format", "json", *words])
    assert json.loads(capsys.readouterr().out)["remarks"] == found
    return found


def counts(plan: Plan) -> dict[str, int]:
    source = open_source(plan.spec.dataset)
    return counts_of(source.split(plan.spec.dataset.split, "dataset.split"), by_number=False)


def test_a_plan_notes_the_classes_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    own = ("dataset=folder", f"dataset.dir='{folder}'", "dataset.split='train[:25%]'")
    found = counts(of_folder(folder, "dataset.split='train[:25%]'"))
    assert (set(found), sum(found.values())) == ({"a cat", "dög"}, 10)
    cat, dog = found.values()
    weighted = f"a cat {cat} ({10 / 2 / cat:.3g}), dög {dog} ({10 / 2 / dog:.3g})."
    assert notes(capsys, *own, "load.class_weights=balanced")[-1].endswith(
        f" by class, with their weights, are {weighted}"
    )
    says(notes(capsys, *own, *SHARES))
    assert not notes(capsys, *own)


NOWHERE = [("dataset=sample", "dataset.data_dir=nowhere"), ("dataset=folder", "dataset.dir=nowhere")]


@pytest.mark.parametrize("words", NOWHERE, ids=" ".join)
def test_a_plan_says_where_figures_will_be(
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    says: Says,
) -> None:
    monkeypatch.chdir(tmp_path)
    says("\n".join(notes(capsys, *words, *SHARES)))


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
        return f"{path}, record 1", "Feature: label (data type: int64) is required but could not be found"
    write_records(path, [good] * 3)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    return f"{path}, record 2", "corrupted record at "


@pytest.mark.parametrize("kind", ["label", "feature", "checksum"])
@pytest.mark.parametrize("own", [BALANCED, SHARES], ids=["weights", "sample"])
def test_a_record_without_a_class_is_named(own: tuple[str, ...], kind: str, tmp_path: Path, says: Says) -> None:
    where, found = broken(tmp_path, kind)
    plan = of_records(tmp_path, "dataset.split=train", "dataset.eval_split=null", *own)
    with pytest.raises(WorldError) as error:
        prepared_run(plan, Record(tmp_path), open_source(plan.spec.dataset))
    (fault,) = error.value.faults
    assert (fault.where, found in fault.found) == (where, True)
    says(fault.remedy)


@pytest.mark.parametrize("kind", ["label", "feature", "checksum"])
def test_records_without_a_class_are_not_counted(kind: str, tmp_path: Path) -> None:
    broken(tmp_path, kind)
    words = ("dataset.split=train", "dataset.eval_split=null", *BALANCED, "dataset.on_corrupt=skip")
    plan = of_records(tmp_path, *words)
    assert counts(plan) == {"0": 6, "1": 6 + 2}
    source = open_source(plan.spec.dataset)
    labels = labels_of(source.split("train", "dataset.split"), by_number=False)
    np.testing.assert_array_equal(program_of(plan, tmp_path, words).labels_of("train"), labels)


def test_a_file_that_is_gone_ends_the_count(tmp_path: Path) -> None:
    broken(tmp_path, "label")
    source = open_source(of_records(tmp_path, *BALANCED, "dataset.on_corrupt=skip").spec.dataset)
    split = source.split("train", "dataset.split")
    (tmp_path / "b.tfrecord").unlink()
    assert len(labels_of(split, by_number=False)) == 12


BY_CLASS = ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential")
CLASSES = {"cat": 24, "dog": 6, "eel": 10}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A run on 40 images, of which 6 are of the smallest class."""
    for place, (name, count) in enumerate(CLASSES.items()):
        (tmp_path / "animals" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "animals" / name / f"{number}.jpg").write_bytes(image(100 * place + number))
    data = ["dataset=folder", f"dataset.dir={tmp_path / 'animals'}", "dataset.split=train", "dataset.eval_split=train"]
    return [*data, "transform.resize.size=[32,32]", "load.batch_size=10", "trainer.epochs=2", "cache=none"]


def test_each_class_is_drawn_at_the_same_odds_and_its_examples_in_turn() -> None:
    labels = np.repeat([0, 1, 4], [9000, 800, 200])
    order = SampleByClass.op(labels, 7)
    assert len(order) == len(labels)
    for label in (0, 1, 4):
        drawn = order[labels[order] == label]
        assert abs(len(drawn) - 10_000 / 3) < 200  # four standard deviations
        times = np.bincount(drawn, minlength=len(labels))[labels == label]
        assert times.max() - times.min() <= 1
    np.testing.assert_array_equal(order, SampleByClass.op(labels, 7))
    assert (order != SampleByClass.op(labels, 8)).any()


def test_weights_are_the_inverse_of_shares_and_one_in_the_mean() -> None:
    labels = np.array([0] * 6 + [1] * 2 + [3] * 4)
    weights = balanced(np.bincount(labels, minlength=5).tolist())
    assert weights == [12 / (3 * 6), 12 / (3 * 2), 0.0, 12 / (3 * 4), 0.0]
    assert np.mean([weights[label] for label in labels]) == pytest.approx(1)


def test_the_weighted_loss_is_that_of_weighted_samples() -> None:
    labels, outputs = np.array([0, 1, 1, 2]), np.random.default_rng(0).dirichlet([1, 1, 1], 4).astype("float32")
    weights = [0.5, 2.0, 0.0]  # of a class that the training lacks
    plain = keras.losses.SparseCategoricalCrossentropy()
    wanted = plain(labels, outputs, sample_weight=np.array([weights[label] for label in labels]))
    loss = Crossentropy(weights)
    assert float(loss(labels, outputs)) == pytest.approx(float(wanted))
    assert Crossentropy.from_config(loss.get_config()).class_weights == weights


@pytest.mark.slow
@pytest.mark.parametrize("own", [("load.class_weights=balanced",), BY_CLASS], ids=" ".join)
def test_a_program_trains_to_the_losses_of_the_run(
    own: tuple[str, ...], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow(monkeypatch)
    summary = complete_here(tmp_path / "run", [*words, *own])
    key = next(word for word in own if "balanced" in word or "uniform" in word).replace("=", " = ")
    noted = {
        "load.class_weights = balanced": ", with their weights, are cat 24 (0.556), dog 6 (2.22), eel 10 (1.33).",
        "load.sample = uniform_by_class": " are cat 24, dog 6, eel 10.",
    }
    assert f"{key}: training examples by class{noted[key]}" in summary["remarks"]
    monkeypatch.chdir(tmp_path)
    keras.backend.clear_session()
    assert losses_in(of_words([*words, *own], tmp_path)[1].train()[0].history) == losses_of(summary)


@pytest.mark.slow
def test_a_run_with_weights_is_resumed_to_the_same_losses(words: list[str], tmp_path: Path) -> None:
    own = [*words, "load.class_weights=balanced"]
    _, whole = run_here(tmp_path / "whole", own)
    run_here(tmp_path / "half", [*own, "trainer.epochs=1"])
    seed_all(0)
    resumed = complete_here(tmp_path / "rest", [*own, f"trainer.resume={tmp_path / 'half'}"])
    assert losses_of(resumed) == losses_of(whole)
    assert len(losses_of(whole)) == 2


VALID = (
    "train", "train[:80%]", "train[80%:]", "train[10:20]", "train[-5:]", "train[:-5%]", "a+b", "a[:1] + b[10%:20%]",
    "train[0:0]",
)  # fmt: skip
OF_TFDS = (
    "train[:12.5%]", "train[3shard]", "train[-1shard:]", "train[:1_000]", "my-split[:10]", "all", "train[10:50%]",
)  # fmt: skip
MALFORMED = (
    "train[10", "train[:50%", "train[a:b]", "train[10: 20]", "train[:150%]", "train[1.5:]", "train[:10]+", "+ train",
    "train[10]", "a + b[50%]", "train[1:9:2]", "train[]", "train[:10]x", "train:50%]", "my split", "[:10]",
)  # fmt: skip


@pytest.mark.parametrize("split", MALFORMED)
def test_a_malformed_split_is_one_in_both_languages(split: str) -> None:
    assert [*malformed(split, FILES)] == [*malformed(split, TFDS)] != []


def test_the_plan_refuses_each_split_by_its_key(says: Says) -> None:
    says(refusal_of_request('dataset.split="train[10"', 'dataset.eval_split="train[:5%]+x["'))


@pytest.mark.parametrize("split", [*VALID, *OF_TFDS, *MALFORMED, "train[:]", "train[.5:]", "train[.5%:]"])
def test_tfds_agrees(split: str) -> None:
    try:
        tfds.core.ReadInstruction.from_spec(split)
        reads = True
    except (ValueError, TypeError):
        reads = False
    assert reads is not bool([*malformed(split, TFDS)])


@pytest.mark.parametrize("split", [*VALID, *OF_TFDS[:4], *MALFORMED, "train[:]"])
def test_sources_of_files_agree(split: str) -> None:
    reads = bool(slices(split, dict.fromkeys(("train", "a", "b"), 100)))
    assert reads is not bool([*malformed(split, FILES)]) or split == "train[:150%]"


def test_a_sample_is_spread_over_a_split(says: Says) -> None:
    cases = [("train", 100, 2), ("train", 30, 2), ("train[50%:]", 10, 3), ("train[:50%]+train[100%:]", 5, 2)]
    for of in (*cases, ("train", 2, 3), ("all", 5, 2)):
        says(f"{of}: {OnDisk(full_name='some', sizes={'train': (100, 1)}).thinned(*of)}")
