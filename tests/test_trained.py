"""Runs whose models can be used, and which not; the batches of a pass with places are those of the run's validation."""

import json
from pathlib import Path

import numpy as np
import pytest

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.system.files import alone
from etlrun.trained.load import trained
from etlrun.trained.predict import Pass, opened
from tests.configs import plan_of
from tests.pictures import damaged, int_feature, with_feature
from tests.runs import emulated, small
from tests.trained import ended, refused, with_summary

RIGHT = "expected the folder of a completed run"
LEAVE = "    -> leave it out, or train a model with it"


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> Path:
    return ended(tmp_path / "run", small(tiny))


PIPELINES = {
    "interleaved": ["extract=interleave", "extract.cycle_length=3", "extract.block_length=2", "cache=none"],
    "sequential": ["extract=sequential", "cache=memory"],
    "parsed in batches": ["transform.parse_batch=4", "extract=sequential", "cache=memory"],
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
    source, split = opened(loaded.plan, loaded.split_key)
    reading = Pass(loaded.plan, source, split)
    expected = [*Pipeline(plain.evaluation, contexts_of(plain, source)["validation"]).dataset]
    found = [*reading.batches("")]
    assert [len(batch.numbers) for batch in found] == [8, 8, 8, 1]
    for batch, (inputs, targets) in zip(found, expected, strict=True):
        assert np.array_equal(batch.inputs.numpy(), inputs.numpy())
        assert np.array_equal(batch.targets, targets.numpy())
    assert sorted(number for batch in found for number in batch.numbers) == list(range(25))
    assert [*reading.lost()] == []


@pytest.mark.parametrize("extract", ["extract=interleave", "extract=tfds", "decoded by TFDS"])
def test_numbers_lead_to_the_examples(extract: str, tiny: Path, tmp_path: Path) -> None:
    steps = "[resize,scale_minus_one_one]"
    decoded = ["extract.decode=true", f"transform.steps={steps}", f"transform.eval_steps={steps}"]
    words = ["extract=tfds", *decoded] if extract == "decoded by TFDS" else [extract]
    folder = ended(tmp_path, small(tiny, *words, "cache=none", 'dataset.eval_split="train[:3]+train[40:]"'))
    loaded = trained(folder)
    reading = Pass(loaded.plan, *opened(loaded.plan, loaded.split_key))
    batches = [*reading.batches("")]
    assert sum(len(batch.numbers) for batch in batches) == 11
    for batch in batches:
        for number, target in zip(batch.numbers, batch.targets, strict=True):
            assert int(reading.example(int(number))["label"]) == target
    places = [reading.place(number) for number in range(11)]
    assert [place.rpartition("tfrecord-")[2] for place in places[2:4]] == [
        "00000-of-00004, record 2",
        "00003-of-00004, record 4",
    ]


def test_a_split_that_is_named_twice_is_read_twice(tiny: Path, tmp_path: Path) -> None:
    loaded = trained(ended(tmp_path, small(tiny)), ['dataset.split="train[:8]+train[:8]"'])
    reading = Pass(loaded.plan, *opened(loaded.plan, loaded.split_key))
    assert sorted(n for batch in reading.batches("") for n in batch.numbers) == sorted([*range(8), *range(8)])
    assert [*reading.lost()] == []


def test_what_is_skipped_is_what_a_run_skips(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", with_feature("label", int_feature(7)))
    words = ["load.shuffle=full", "extract=sequential", "cache=none", "trainer.steps_per_epoch=2"]
    folder = ended(tmp_path / "run", small(tmp_path / "data", *words))
    loaded = trained(folder, ["dataset.split=train", "dataset.on_corrupt=skip"])
    reading = Pass(loaded.plan, *opened(loaded.plan, loaded.split_key))
    assert sum(len(batch.numbers) for batch in reading.batches("")) == 47
    assert [(of.place, of.reason) for of in reading.lost()] == [(f"{shard}, record 5", "label 7")]


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_folder_without_a_run_is_refused(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [run.parent / "gone", run / "config.yaml", run.parent, run / "empty"]
    (run / "empty").mkdir()
    found = [refused(capsys, command, path, "dataset.split=train") for path in paths]
    assert found == [
        [f"  {paths[0]}: found no such folder; {RIGHT}", "    -> check the path"],
        [f"  {paths[1]}: found a file; {RIGHT}", "    -> check the path"],
        [
            f"  {paths[2]}: found no run: there is no summary.json; {RIGHT}",
            f"    -> name one of the runs in it, such as {run}",
        ],
        [f"  {paths[3]}: found no run: there is no summary.json; {RIGHT}", "    -> check the path"],
    ]


def test_a_run_that_has_not_completed_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_summary(run, status="failed", error="data: found nothing; expected more\n    -> add some")
    failed = refused(capsys, "evaluate", run)
    assert failed == [
        f"  {run}: found a run that failed: data: found nothing; expected more; {RIGHT}",
        "    -> train again",
    ]
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "epoch_0001.keras").touch()
    with_summary(run, status="interrupted", error=None)
    interrupted = refused(capsys, "evaluate", run)
    resume = f"    -> resume it: etlrun trainer.resume={run}"
    assert interrupted == [f"  {run}: found an interrupted run; {RIGHT}", resume]
    (run / "checkpoints" / "epoch_0001.keras").rename(run / "checkpoints" / "epoch_0000_step_000012.npz")
    with_summary(run, status="running")
    killed = refused(capsys, "evaluate", run)
    assert killed == [f"  {run}: found a run whose process was killed; {RIGHT}", resume]
    with alone(run / "lock"):
        running = refused(capsys, "evaluate", run)
    assert running == [f"  {run}: found a run that is still running; {RIGHT}", "    -> wait for it to end, or stop it"]


def test_a_run_without_a_model_is_refused(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drained = ended(tmp_path / "drained", small(tiny, "trainer=drain", "trainer.epochs=1"), model=None)
    expected = "expected a run of trainer=fit with a model that learns"
    assert refused(capsys, "evaluate", drained) == [
        f"  {drained}: found a run of trainer=drain, which trains no model; {expected}"
    ]
    slept = ended(tmp_path / "emulated", emulated(tiny))
    assert refused(capsys, "evaluate", slept) == [
        f"  {slept}: found a run of model.emulated, which learns nothing; {expected}"
    ]
    lost = ended(tmp_path / "lost", small(tiny), model=None)
    assert refused(capsys, "evaluate", lost, "load.batch_size=2") == [
        f"  {lost}/model.keras: found no such file; expected the trained model",
        f"    -> restore it, or save it again: etlrun trainer.resume={lost}",
        "  load.batch_size: found 2; expected 8, as in the training: only the data and the speed may differ",
        LEAVE,
    ]


def test_files_of_another_version_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("batch_size: 8", "batch_sise: 8"))
    assert refused(capsys, "evaluate", run)[:2] == [
        f"  {run}/config.yaml: load.batch_size: found nothing; expected a positive integer",
        "    -> train again with this version",
    ]
    (run / "config.yaml").unlink()
    gone = f"[Errno 2] No such file or directory: '{run}/config.yaml'"
    assert refused(capsys, "evaluate", run) == [
        f"  {run}/config.yaml: found {gone}; expected the config that the run was started with",
        "    -> restore the file, or train again",
    ]
    (run / "summary.json").write_text(json.dumps({"status": "over"}))
    assert refused(capsys, "evaluate", run) == [
        f"  {run}: found a summary.json that this version can't read; {RIGHT}",
        "    -> train again with this version",
    ]


def test_a_model_that_keras_cannot_load_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = "a file that Keras cannot load: BadZipFile: File is not a zip file"
    assert refused(capsys, "evaluate", run) == [
        f"  {run}/model.keras: found {found}; expected the complete model that the run saved",
        f"    -> restore it, or save it again: etlrun trainer.resume={run}",
    ]


def test_only_data_and_speed_may_differ(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["transform.resize.size=[48,48]", "model.alpha=0.5", "trainer.seed=3", "load.prefetch=2", "cache=none"]
    differ = "as in the training: only the data and the speed may differ"
    assert refused(capsys, "evaluate", run, *words, status=2) == [
        f"  model.alpha: found 0.5; expected 0.35, {differ}",
        LEAVE,
        f"  trainer.seed: found 3; expected 0, {differ}",
        LEAVE,
        f"  transform.resize.size: found [48, 48]; expected [32, 32], {differ}",
        LEAVE,
    ]
    allowed = ["load.prefetch=2", "transform.num_parallel_calls=1", "cache=none", "trainer.device=cpu"]
    loaded = trained(run, [*allowed, "dataset.split=train", "load.batch_size=8"])
    assert (loaded.plan.spec.dataset.eval_split, loaded.split_key) == ("train", "dataset.split")
    assert loaded.plan.spec.cache.path == "cache.none"


def test_unfit_overrides_are_refused_at_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "evaluate", run, "datset=folder", "cache=dsk", "load.prefetch=1,2", status=2)
    groups = "dataset, extract, transform, cache, load, model, trainer, profile, logger, measure"
    assert message[:3] == [
        f"  datset: found an unknown group; expected one of the groups {groups}",
        "    -> did you mean `dataset`?",
        "  load.prefetch: found several values; expected KEY=VALUE with one value, for a key of the run's config",
    ]
    assert message[3].startswith(
        "  cache: found In 'config': Could not find 'cache/dsk' Available options in 'cache': "
    )
    known = (
        "name, split, eval_split, on_corrupt, storage, image_key, label_key, features, target, weight, keep, copies, "
    )
    known += "version, data_dir, download"
    assert refused(capsys, "evaluate", run, "dataset.splt=test", "load.prefetch=-1", status=2) == [
        f"  dataset.splt: found an unknown key; expected one of the keys {known}",
        "    -> did you mean `dataset.split`?",
        "  load.prefetch: found -1; expected an integer from 0 to 1,000,000, or autotune",
    ]
    assert refused(capsys, "evaluate", run, "dataset.split=3", "dataset.on_corrupt=often", status=2) == [
        "  dataset.split: found 3; expected a string, or null",
        "  dataset.on_corrupt: found 'often'; expected raise or skip",
    ]


def test_a_run_without_validation_needs_a_split(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ended(tmp_path, small(tiny, "dataset.eval_split=null"))
    for command in ("evaluate", "predict"):
        assert refused(capsys, command, folder, "dataset.data_dir=/other", status=2) == [
            "  dataset.split: found no split, and the run has no validation; expected the split to read",
            "    -> name one: dataset.split=SPLIT",
        ]
    assert trained(folder, ["dataset.split=train"]).plan.evaluation
    assert trained(folder, reads_split=False).plan.evaluation
