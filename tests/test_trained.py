"""Runs whose models can be used, and which not; the batches of a pass with places are those of the run's validation."""

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.system.files import alone
from etlrun.trained.formats import FORMATS
from etlrun.trained.load import trained
from etlrun.trained.predict import of_plan, opened
from tests.configs import plan_of
from tests.disks import mounted
from tests.golden import Case, Golden, Says, cases
from tests.pictures import damaged, feature_of, with_feature
from tests.runs import emulated, small
from tests.trained import ended, refusal, refused, with_summary


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> Path:
    return ended(tmp_path / "run", small(tiny))


PIPELINES = {
    "interleaved": ["extract=interleave", "extract.cycle_length=3", "extract.block_length=2", "cache=none"],
    "sequential": ["extract=sequential", "cache=memory"],
    "tensorflow": ["transform.decode.library=tensorflow", "cache=none"],
    "cached as JPEGs": ["cache=memory", "cache.codec=jpeg90", "cache.at=resize"],
    "shuffled by number": ["load.shuffle=full", "extract=sequential", "cache=none"],
    "balanced": ["load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none"],
    "features": ["cache=memory", "cache.at=features"],
}


@pytest.mark.parametrize("mode", ["raise", "skip"])
@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_those_of_the_validation(name: str, mode: str, tiny: Path, tmp_path: Path) -> None:
    folder = ended(tmp_path, small(tiny, *PIPELINES[name], 'dataset.eval_split="train[5:30]"'))
    loaded = trained(folder, [f"dataset.on_corrupt={mode}"])
    plain = loaded.then
    if name == "features":
        plain = plan_of(*small(tiny, "cache=none", 'dataset.eval_split="train[5:30]"'))
    split = opened(loaded.plan, loaded.split_key)
    reading = of_plan(loaded.plan, split)
    expected = [*Pipeline(plain.evaluation, contexts_of(plain, split.source)["validation"]).dataset]
    found = [*reading.batches("")]
    assert [len(batch.numbers) for batch in found] == [8, 8, 8, 1]
    for batch, (inputs, targets) in zip(found, expected, strict=True):
        assert np.array_equal(batch.inputs.numpy(), inputs.numpy())
        assert np.array_equal(batch.wanted[0], targets.numpy())
    assert sorted(number for batch in found for number in batch.numbers) == list(range(25))
    assert [*reading.lost()] == []


@pytest.mark.parametrize("extract", ["extract=interleave", "extract=tfds", "decoded by TFDS"])
def test_numbers_lead_to_the_examples(extract: str, tiny: Path, tmp_path: Path, says: Says) -> None:
    steps = "[resize,scale_minus_one_one]"
    decoded = ["extract.decode=true", f"transform.steps={steps}", f"transform.eval_steps={steps}"]
    words = ["extract=tfds", *decoded] if extract == "decoded by TFDS" else [extract]
    folder = ended(tmp_path, small(tiny, *words, "cache=none", 'dataset.eval_split="train[:3]+train[40:]"'))
    loaded = trained(folder)
    reading = of_plan(loaded.plan, opened(loaded.plan, loaded.split_key))
    batches = [*reading.batches("")]
    assert sum(len(batch.numbers) for batch in batches) == 11
    for batch in batches:
        for number, target in zip(batch.numbers, batch.wanted[0], strict=True):
            assert int(reading.example(int(number))["label"]) == target
    places = [reading.place(number) for number in range(11)]
    says([place.rpartition("tfrecord-")[2] for place in places[2:4]])


def test_a_split_that_is_named_twice_is_read_twice(tiny: Path, tmp_path: Path) -> None:
    loaded = trained(ended(tmp_path, small(tiny)), ['dataset.split="train[:8]+train[:8]"'])
    reading = of_plan(loaded.plan, opened(loaded.plan, loaded.split_key))
    assert sorted(n for batch in reading.batches("") for n in batch.numbers) == [*range(16)]
    assert [reading.place(number) for number in range(8)] == [reading.place(number) for number in range(8, 16)]
    assert [*reading.lost()] == []


def test_what_is_skipped_is_what_a_run_skips(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", with_feature("label", feature_of(7)))
    words = ["load.shuffle=full", "extract=sequential", "cache=none", "trainer.steps_per_epoch=2"]
    folder = ended(tmp_path / "run", small(tmp_path / "data", *words))
    loaded = trained(folder, ["dataset.split=train", "dataset.on_corrupt=skip"])
    reading = of_plan(loaded.plan, opened(loaded.plan, loaded.split_key))
    assert sum(len(batch.numbers) for batch in reading.batches("")) == 47
    assert [(of.place, of.reason) for of in reading.lost()] == [(f"{shard}, record 5", "label 7")]


@pytest.fixture(scope="module")
def folders(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that can't be used, or are used in a way that they can't."""
    runs = tmp_path_factory.mktemp("runs")
    drain = ("trainer=drain", "trainer.epochs=1")
    (ended(runs / "run", small(tiny)) / "empty").mkdir()
    ended(runs / "failed", small(tiny), status="failed")
    ended(runs / "drained", small(tiny, *drain), model=None)
    ended(runs / "emulated", emulated(tiny))
    ended(runs / "lost", small(tiny), model=None)
    (ended(runs / "unpacked", small(tiny), model=None) / "model.keras").mkdir()
    ended(runs / "no validation", small(tiny, "dataset.eval_split=null"))
    ended(runs / "half", small(tiny, "trainer.mixed_precision=mixed_float16"))
    ended(runs / "fast", small(tiny, "transform.decode.fast=true"))
    return runs


@pytest.mark.parametrize("case", cases("trained"))
def test_a_run_that_can_not_be_used_so_is_refused(
    folders: Path, case: Case, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "litert"):
        monkeypatch.setitem(FORMATS, name, dataclasses.replace(FORMATS[name], modules=()))
    golden(case, refusal(capsys, case, RUN=folders))


def test_a_run_that_has_not_completed_is_refused(run: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    with_summary(run, status="failed", error="data: found nothing; expected more\n    -> add some")
    says(refused(capsys, "evaluate", run), RUN=run)
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "epoch_0001.keras").touch()
    with_summary(run, status="interrupted", error=None)
    says(refused(capsys, "evaluate", run), RUN=run)
    (run / "checkpoints" / "epoch_0001.keras").rename(run / "checkpoints" / "epoch_0000_step_000012.npz")
    with_summary(run, status="running")
    says(refused(capsys, "evaluate", run), RUN=run)
    with alone(run / "lock"):
        says(refused(capsys, "evaluate", run), RUN=run)


def test_a_run_that_can_only_be_read_is_copied(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    with mounted(tmp_path / "disk", "256k") as disk:
        folder = ended(disk / "run", small(tiny))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)  # root can write to any other folder
        says(refused(capsys, "evaluate", folder))


def test_files_of_another_version_are_refused(run: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("batch_size: 8", "batch_sise: 8"))
    says(refused(capsys, "evaluate", run)[:2], RUN=run)
    (run / "config.yaml").unlink()
    says(refused(capsys, "evaluate", run), RUN=run)
    without = {"status": "completed", "overrides": [], "epochs": [], "kept": {"epoch": 1}}
    for held in ({"status": "over"}, without):
        (run / "summary.json").write_text(json.dumps(held))
        says(refused(capsys, "evaluate", run), RUN=run)


def test_only_data_and_speed_may_differ(run: Path) -> None:
    allowed = ["load.prefetch=2", "transform.num_parallel_calls=1", "cache=none", "trainer.device=cpu"]
    loaded = trained(run, [*allowed, "dataset.split=train", "load.batch_size=8"])
    assert (loaded.plan.spec.dataset.eval_split, loaded.split_key) == ("train", "dataset.split")
    assert loaded.plan.spec.cache.path == "cache.none"


def test_an_unknown_choice_of_a_group_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (message, _) = refused(capsys, "evaluate", run, "cache=dsk", status=2)
    assert message.startswith("  cache: found In 'config': Could not find 'cache/dsk' Available options in 'cache': ")


def test_a_run_without_validation_reads_the_split_that_is_named(tiny: Path, tmp_path: Path) -> None:
    folder = ended(tmp_path, small(tiny, "dataset.eval_split=null"))
    assert trained(folder, ["dataset.split=train"]).plan.evaluation
    assert trained(folder, reads_split=False).plan.evaluation
