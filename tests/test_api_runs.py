"""The Python API with TensorFlow: datasets of a plan, runs in this process, and what their models predict."""

import json
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import etlrun
from etlrun.api import planned as of_plans
from etlrun.cluster.service import pipelines_of
from etlrun.measure.digest import hashes
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.flow import MISSING_TIME
from etlrun.system.loading import interrupts
from etlrun.trained.predict import in_memory, plain_value
from tests.configs import raised
from tests.golden import Says
from tests.pictures import jpeg
from tests.runs import complete_here, emulated
from tests.tables import INPUTS, houses, loaded_run, words_of, write_houses
from tests.trained import said

TARGETS = {"prices": "{price: {number: standardize}}", "bands": "{band: class}"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and two runs on them: of their prices, and of their bands."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    for name, target in TARGETS.items():
        words = [of for of in words_of(folder, "model=linear", target=target) if "emulated" not in of]
        complete_here(folder / name, [of for of in words if "step_ms" not in of] + ["trainer.epochs=1"])
    return folder


def test_tensorflow_warns_of_no_prediction_that_follows_others(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, given = loaded_run(rows / "prices"), houses().select(INPUTS).to_pylist()
    assert len({run.predict(given[place])[0].value for place in range(6)}) > 1
    assert [record.getMessage() for record in caplog.records if record.name == "tensorflow"] == []


@pytest.mark.parametrize("name", TARGETS)
def test_rows_are_predicted_as_those_of_a_file(name: str, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = [
        json.loads(line)
        for line in said(capsys, "predict", rows / name, rows / "houses.parquet", "--format", "jsonl").splitlines()
    ]
    run, given, kept = loaded_run(rows / name), houses().select(INPUTS).to_pylist(), {*(rows / "kept").iterdir()}
    found = run.predict(given)
    assert {*(rows / "kept").iterdir()} == kept
    assert [of.row for of in found] == [*range(200)]
    if name == "prices":
        assert [of.value for of in found] == [of["value"] for of in written]
    else:
        assert [(of.class_name, of.probabilities) for of in found] == [
            (of["class"], of["probabilities"]) for of in written
        ]
    assert run.predict(given[3])[0].value == found[3].value
    of_numpy = {**given[0], "rooms": np.int64(given[0]["rooms"]), "garden": np.bool_(given[0]["garden"])}
    alone, first = run.predict([of_numpy])[0], found[0]
    assert (alone.row, alone.class_name) == (first.row, first.class_name)
    assert alone.value == pytest.approx(first.value)  # a batch of one may be rounded otherwise, as the CPU has it
    assert alone.probabilities == pytest.approx(first.probabilities)


def test_a_missing_value_is_none_nan_or_no_key(rows: Path) -> None:
    run, row = loaded_run(rows / "prices"), {"area": 50.0, "rooms": 2, "garden": True}
    found = run.predict([{**row, "kind": "flat"}, {**row, "kind": None}, row, {**row, "kind": float("nan")}])
    values = [of.value for of in found]
    assert values[1] == values[2] == values[3] != values[0]


def test_faults_name_the_rows(rows: Path, says: Says) -> None:
    run, row = loaded_run(rows / "prices"), {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
    says(raised(etlrun.EtlrunError, run.predict, [{"area": 1.0}]))
    wrong: dict[str, list[Any]] = {
        "rooms": ["two", 2**70, timedelta(1)], "area": [float("inf"), {}], "kind": [b"flat"],
    }  # fmt: skip
    for name, values in wrong.items():
        for value in values:
            says(raised(etlrun.EtlrunError, run.predict, [row, {**row, name: value}]))


class Frame:
    columns = ("area",)

    def to_dict(self) -> dict[str, Any]:
        return {}


def test_of_a_frame_it_is_said_how_its_rows_are_passed(rows: Path, says: Says) -> None:
    with pytest.raises(etlrun.EtlrunError) as caught:
        loaded_run(rows / "prices").predict(Frame())  # type: ignore[arg-type]
    says(str(caught.value))


def test_values_of_numpy_and_times_are_plain() -> None:
    day = datetime(2020, 1, 31, 12, tzinfo=UTC)
    given = [np.float32(0.5), np.array([1, 2]), day, (1, float("nan")), np.datetime64("NaT"), "a", None]
    assert [plain_value(of) for of in given] == [0.5, [1, 2], "2020-01-31T12:00:00+00:00", [1, None], None, "a", None]
    noon = [np.datetime64("2020-01-31T12:00", unit) for unit in ("m", "us", "ns")]
    assert [*map(plain_value, noon)] == plain_value(np.array(noon)) == 3 * ["2020-01-31T12:00:00"]
    assert plain_value(np.datetime64("2020-01-31")) == "2020-01-31"


@pytest.mark.parametrize("time", [datetime(2020, 1, 31, 12, tzinfo=UTC), "2020-01-31T13:00+01:00", "2020-01-31 12:00"])
def test_times_of_rows_are_those_of_utc(time: Any, tmp_path: Path) -> None:
    table: Any = SimpleNamespace(columns={"sold": "timestamp"}, strip=False, title="rows", known=None)
    kept = in_memory([{"sold": time}, {"sold": None}], table, tmp_path).kept
    assert kept.take("sold", np.arange(2)).tolist() == [1_580_472_000_000_000, MISSING_TIME]


FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one] cache.at=decoded"
MEASURED = ("measure.digest=true", "trainer.epochs=3")
KINDS = {
    "none": f"cache=none {FLIPPED}",
    "memory": f"cache=memory {FLIPPED}",
    "transformed": "cache=memory",
    "full": f"cache=none extract=sequential load.shuffle=full {FLIPPED}",
}


def examples(dataset: tf.data.Dataset) -> list[list[bytes]]:
    """The hash of each example, batch by batch."""
    return [[*hashes((), *batch)] for batch in dataset]


def passes_of_a_run(plan: Plan) -> dict[str, tf.data.Dataset]:
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    return {name: pipeline.dataset for name, pipeline in pipelines_of(plan, contexts, {}).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_give_the_batches_of_a_run_pass_by_pass(kind: str, tiny: Path) -> None:
    planned = etlrun.plan(*emulated(tiny, *KINDS[kind].split()))
    of_a_run = passes_of_a_run(planned.plan)
    with planned.datasets() as datasets:
        assert [*datasets] == ["train", "validation"]
        assert repr(datasets) == "<etlrun datasets train, validation of tiny_pictures>"
        for name, dataset in datasets.items():
            assert dataset.element_spec == of_a_run[name].element_spec
            first, second = examples(dataset), examples(dataset)
            assert [first, second] == [examples(of_a_run[name]), examples(of_a_run[name])]
            assert (first != second) is (name == "train")


def test_each_iteration_of_what_is_derived_from_a_dataset_is_the_next_pass(tiny: Path) -> None:
    planned = etlrun.plan(*emulated(tiny, *KINDS["none"].split()))
    of_a_run = passes_of_a_run(planned.plan)["train"]
    derived = planned.datasets()["train"].take(2)
    assert [examples(derived) for _ in range(2)] == [examples(of_a_run)[:2] for _ in range(2)]


def test_columns_come_by_their_names(table: Path) -> None:
    inputs, target = next(iter(etlrun.plan(*words_of(table)).datasets()["train"]))
    assert {name: (value.dtype.name, value.shape[0]) for name, value in inputs.items()} == {
        name: (value.dtype.name, 7) for name, value in inputs.items()
    }
    assert target.shape[0] == 7


def test_several_plans_have_their_own_datasets_and_memory(tiny: Path) -> None:
    words = emulated(tiny, "cache=memory", "load.shuffle_buffer=0")
    small, large = (etlrun.plan(*words, f"transform.resize.size=[{side},{side}]").datasets() for side in (16, 32))
    assert [next(iter(of["train"]))[0].shape[1] for of in (small, large, small)] == [16, 32, 16]


@pytest.mark.smoke
def test_datasets_say_why_they_are_not_pickled(tiny: Path) -> None:
    with pytest.raises(TypeError, match="datasets of TensorFlow can't be pickled"):
        pickle.dumps(etlrun.plan(*emulated(tiny, "cache=none")).datasets())


def test_a_cache_on_disk_is_read_and_never_claimed(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    caches = tmp_path / "caches"
    words = emulated(tiny, "cache=disk", f"cache.dir={caches}", *MEASURED)
    planned = etlrun.plan(*words)
    early = planned.datasets()
    next(iter(early["train"]))
    assert "is not filled yet, as a run does: passes run without it" in capfd.readouterr().err
    assert not caches.exists()
    summary = fitted(planned, tmp_path / "run").summary
    assert summary.cache is not None
    assert [of.passes[0] for of in summary.cache.pipelines.values()] == ["filled", "filled"]
    with planned.datasets() as later:
        keepers = [pipeline.keeper for pipeline in later._pipelines if pipeline.keeper is not None]
        assert [len(examples(dataset)) for dataset in later.values()] == [19, 5]
        assert {kind for keeper in keepers for kind in keeper.passes} == {"read"}
    assert all(keeper.count == 0 for keeper in keepers)  # closed


def test_datasets_that_nothing_refers_to_are_closed_and_what_is_derived_from_them_keeps_them(tiny: Path) -> None:
    datasets = etlrun.plan(*emulated(tiny, "cache=none")).datasets()
    close, derived = datasets.close, datasets["train"].take(1)
    del datasets
    assert close.alive
    assert len(examples(derived)) == 1
    del derived
    assert not close.alive


def test_a_corrupt_record_is_told_with_its_place(folder: Path) -> None:
    broken = min(folder.rglob("*.jpg"))
    broken.write_bytes(b"no image")
    words = ["dataset=folder", f"dataset.dir={folder}", "cache=none", "model=emulated"]
    with pytest.raises(etlrun.EtlrunError, match=str(broken)), etlrun.plan(*words).datasets() as datasets:
        sum(len(examples(dataset)) for dataset in datasets.values())


def test_missing_data_raises_its_fault(tmp_path: Path) -> None:
    with pytest.raises(etlrun.EtlrunError, match="nowhere"):
        etlrun.plan("dataset=folder", f"dataset.dir={tmp_path / 'nowhere'}").datasets()


def fitted(planned: etlrun.Planned, folder: Path | None = None) -> etlrun.Run:
    from tests.quick import quick_probes

    with pytest.MonkeyPatch.context() as patch:
        quick_probes(patch)
        return planned.fit(folder)


@pytest.mark.slow
def test_a_run_has_the_digests_of_the_datasets_and_leaves_the_process_as_it_was(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etlrun.measure.digest import digest_of

    monkeypatch.chdir(tmp_path)
    planned = etlrun.plan(*emulated(tiny, *MEASURED))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run = fitted(planned)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert capsys.readouterr().out == ""
    assert run.folder.is_relative_to(tmp_path / "outputs")
    assert {"config.yaml", "plan.txt", "summary.json", "report.html"} <= {path.name for path in run.folder.iterdir()}
    assert run.summary.overrides == [*planned.overrides]
    datasets = planned.datasets()
    for epoch in run.summary.epochs:
        for name, told in (("train", epoch.digest), ("validation", epoch.validation_digest)):
            assert digest_of([each for batch in examples(datasets[name]) for each in batch]) == told
    again = fitted(planned)
    assert again.folder != run.folder
    assert [epoch.digest for epoch in again.summary.epochs] == [epoch.digest for epoch in run.summary.epochs]


@pytest.mark.slow
def test_a_run_in_another_thread_is_the_same_and_two_at_once_are_refused(
    tiny: Path, tmp_path: Path, says: Says
) -> None:
    planned = etlrun.plan(*emulated(tiny, *MEASURED))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fitted, planned, tmp_path / "run").result()
    assert run.summary.status == "completed"
    with of_plans._alone(), pytest.raises(etlrun.EtlrunError) as caught:
        planned.fit(tmp_path / "second")
    says(str(caught.value))
    assert not (tmp_path / "second").exists()


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    before, inside = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interrupts():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


@pytest.mark.slow
def test_an_interrupted_run_raises_says_how_to_resume_and_is_resumed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etlrun.run import callbacks

    save = callbacks.save

    def interrupted(model: Any, path: Path, record: Any) -> None:
        save(model, path, record)
        if path.name == "epoch_0002.keras":
            signal.raise_signal(signal.SIGINT)

    words = emulated(tiny, *MEASURED)
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(etlrun.plan(*words), tmp_path / "left")
    hint = f"etlrun: resume with: etlrun.plan('trainer.resume={tmp_path / 'left'}').fit()"
    assert capsys.readouterr().err.splitlines()[-1] == hint
    left = etlrun.load(tmp_path / "left")
    assert isinstance(left, etlrun.Run)
    assert left.summary.status == "interrupted"
    resumed = fitted(etlrun.plan(f"trainer.resume={left.folder}"), tmp_path / "resumed").summary
    assert (resumed.status, len(resumed.epochs), resumed.resumed_from) == ("completed", 3, str(left.folder))


@pytest.mark.slow
def test_a_failed_run_raises_its_faults_which_its_summary_has(tiny: Path, tmp_path: Path) -> None:
    planned = etlrun.plan(*emulated(tiny, "load.batch_size=64", "load.drop_remainder=true"))
    with pytest.raises(etlrun.EtlrunError) as caught:
        fitted(planned, tmp_path / "run")
    assert str(caught.value).startswith("load.batch_size: found 64, with 38 examples in the training split; expected")
    failed = etlrun.load(tmp_path / "run")
    assert isinstance(failed, etlrun.Run)
    assert (failed.summary.status, failed.summary.error) == ("failed", str(caught.value))
    with pytest.raises(etlrun.EtlrunError, match="found 64"):
        planned.datasets()


def test_another_backend_than_keras_has_is_refused(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    says(raised(etlrun.EtlrunError, etlrun.plan(*emulated(tiny)).fit, tmp_path / "run"))


@pytest.fixture(scope="module")
def loaded(run: Path) -> etlrun.Run:
    return loaded_run(run)


def as_written(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_predictions_are_those_that_the_command_writes(
    loaded: etlrun.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number))
    written = as_written(said(capsys, "predict", loaded.folder, tmp_path, "--format", "jsonl"))
    found = loaded.predict(tmp_path)
    assert [(of.path, of.class_name, of.probabilities) for of in found] == [
        (of["path"], of["class"], of["probabilities"]) for of in written
    ]
    assert all(of.row is None and of.labels is None and of.value is None and not of.targets for of in found)
    assert loaded.predict([str(of.path) for of in found]) == found
    in_memory = loaded.predict([jpeg(number) for number in range(3)])
    assert [(of.row, of.path, of.class_name, of.probabilities) for of in in_memory] == [
        (number, None, of.class_name, of.probabilities) for number, of in enumerate(found)
    ]
    assert [len(of.probabilities) for of in loaded.predict(tmp_path / "0.jpg", top=1)] == [1]
    assert loaded.predict([]) == []


def test_a_split_is_evaluated_and_predicted_with_the_model_that_is_loaded_once(loaded: etlrun.Run) -> None:
    model = loaded.model
    assert isinstance(model, keras.Model)
    evaluation = loaded.evaluate("dataset.split='train[:8]'")
    assert evaluation.examples == 8
    assert {path.suffix for path in (loaded.folder / "evaluations").iterdir()} == {".json", ".html"}
    found = loaded.predict("dataset.split='train[:8]'")
    assert len(found) == 8
    assert loaded.model is model


REFUSED: dict[str, tuple[list[Any], str]] = {
    "several": (["a.jpg", b"image"], "predict: found several kinds of inputs; expected paths and overrides, or images"),
    "an array": ([np.zeros((2, 2))], "predict: found a ndarray; expected paths, overrides, images as bytes, or rows"),
    "rows": ([{"a": 1}], "predict: found rows; expected paths of images, or images as bytes"),
    "broken": ([b"no image"], "image 0: found an image that can't be decoded"),
    "nothing": ([], "PATH: found no images to predict; expected image files"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_can_not_be_predicted_is_refused(kind: str, loaded: etlrun.Run) -> None:
    given, message = REFUSED[kind]
    assert raised(etlrun.EtlrunError, loaded.predict, *given).startswith(message)
