"""Right configs in a wrong world: whole messages, exit status 1, and a summary that says it too."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from etlrun.graph.figures import with_figures
from etlrun.record.record import Record
from etlrun.run import run
from etlrun.sources.base import open_source
from etlrun.sources.tfds import open_builder
from etlrun.stages.dataset import TfdsDataset
from etlrun.system.errors import EtlrunError, WorldError
from tests import pictures
from tests.configs import composed, plan_of, raised, spec_of
from tests.encoded import REFUSED
from tests.golden import Case, Golden, Says, cases
from tests.runs import complete_here, emulated, events_of, finish, run_here, small, start, summary_of

BROKEN = {
    "truncated shard": pictures.truncate,
    "shard with too few records": pictures.without_two,
    "image that can't be decoded": pictures.with_feature("image", pictures.feature_of(b"no picture")),
    "label outside the classes": pictures.with_feature("label", pictures.feature_of(7)),
    "image that a run refuses": pictures.with_feature("image", pictures.feature_of(REFUSED["BMP P"][0])),
    "missing feature": pictures.with_feature("label", None),
}


@pytest.mark.parametrize("extract", ["tfds", "interleave"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_named(
    name: str, extract: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    pictures.damaged(tiny, tmp_path / "data", BROKEN[name])
    run_of = small if name == "truncated shard" else emulated
    status, summary = run_here(tmp_path / "run", run_of(tmp_path / "data", f"extract={extract}"))
    assert status == 1
    assert summary["status"] == "failed"
    says(re.sub(r"record at \d+", "record at N", summary["error"]))
    assert capsys.readouterr().err.endswith(f"etlrun: failed\n  {summary['error']}\n")


@pytest.mark.parametrize(("damage", "left"), [(BROKEN["image that can't be decoded"], 37), (pictures.truncate, 31)])
def test_skipping_counts_and_goes_on(damage: Callable[[Path], None], left: int, tiny: Path, tmp_path: Path) -> None:
    pictures.damaged(tiny, tmp_path / "data", damage)
    run_of = small if damage is pictures.truncate else emulated
    words = run_of(tmp_path / "data", "dataset.on_corrupt=skip", "trainer.epochs=2", "load.drop_remainder=false")
    summary = complete_here(tmp_path / "run", words)
    assert [epoch["examples"] for epoch in summary["epochs"]] == [left, left]
    assert summary["skipped"] == {"train": 38 - left, "validation": 0}
    (skipped,) = [event for event in events_of(tmp_path / "run") if event["event"] == "skipped"]
    counted = "1 corrupt record was" if left == 37 else f"{38 - left} corrupt records were"
    assert summary["remarks"] == [f"{counted} skipped: {skipped['where']} ({skipped['reason']})."]


@pytest.mark.parametrize("case", cases("world"))
def test_a_run_says_what_its_data_lacks(case: Case, golden: Golden, tiny: Path, tmp_path: Path) -> None:
    words = [word.replace("TMP", str(tmp_path)) for word in case["overrides"]]
    status, summary = run_here(tmp_path / "run", (emulated if case.get("emulated") else small)(tiny, *words))
    assert status == 1
    golden(case, summary["error"].replace(str(tmp_path), "TMP"))


def test_a_gpu_that_is_not_there(tiny: Path, tmp_path: Path, says: Says) -> None:
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    status, summary = run_here(tmp_path, small(tiny, "trainer.device=gpu"))
    assert status == 1
    says(summary["error"])


@pytest.mark.parametrize("kind", ["tfds", "folder", "tfrecord"])
def test_a_split_that_is_not_there_is_refused_by_a_plan_as_by_a_run(
    kind: str, tiny: Path, tmp_path: Path, says: Says
) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "b").mkdir()
    for number in range(8):
        (tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg").touch()
    files = f"dataset.files='{tiny}/tiny_pictures/1.2.0/*.tfrecord*'"
    own = ("dataset.split=train", "extract=interleave", "cache=none")
    words = {
        "tfds": tuple(emulated(tiny)),
        "folder": ("dataset=folder", f"dataset.dir={tmp_path}/photos", *own),
        "tfrecord": ("dataset=tfrecord", files, "dataset.num_classes=2", *own),
    }[kind]
    for name, split in (("split", "trian[:80%]"), ("eval_split", "validation"), ("eval_split", "train[:0]")):
        planned = plan_of(*words, f'dataset.{name}="{split}"')
        message = raised(EtlrunError, with_figures, planned)
        says(message)
        assert raised(EtlrunError, open_source(planned.spec.dataset).split, split, f"dataset.{name}") == message


def test_a_data_set_that_tfds_does_not_know(tmp_path: Path) -> None:
    status, summary = run_here(tmp_path / "run", small(tmp_path, "dataset.name=cats_and_dogs"))
    assert status == 1
    assert summary["error"].startswith(f"dataset.name: found cats_and_dogs in {tmp_path}: ")
    assert summary["error"].endswith(
        "; expected a dataset known to TFDS, or its files in dataset.data_dir\n    -> did you mean cats_vs_dogs?"
    )


@pytest.mark.slow
def test_a_home_of_data_sets_that_is_not_on_this_machine(tmp_path: Path, says: Says) -> None:
    words = ["model=emulated", "hydra.run.dir=run"]
    status, _, told = finish(start(words, tmp_path, TFDS_DATA_DIR="gs://bucket"))
    assert status == 1
    says(told.splitlines()[-3:])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_shard_that_is_gone(tiny: Path, tmp_path: Path, says: Says) -> None:
    pictures.damaged(tiny, tmp_path / "data", Path.unlink)
    _, summary = run_here(tmp_path / "run", emulated(tmp_path / "data"))
    says(summary["error"])


@pytest.mark.parametrize("text", ["", '{"name": ', "[]", "{}"])
def test_damaged_metadata_are_named(text: str, tiny: Path, tmp_path: Path, says: Says) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    path = shard.with_name("dataset_info.json")
    path.write_text(text)
    status, summary = run_here(tmp_path / "run", emulated(tmp_path / "data"))
    assert status == 1
    says(summary["error"])


def test_weights_that_are_no_weights(tiny: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.h5"
    weights.write_bytes(b"not HDF5")
    _, summary = run_here(tmp_path / "run", small(tiny, f"model.weights={weights}"))
    assert summary["error"].startswith(f"model.weights: found incompatible weights in {weights}: ")
    assert summary["error"].endswith(
        "; expected weights of MobileNetV2 without its top and with the same alpha\n"
        "    -> set model.alpha to that of the file, or model.weights=null for random initialization"
    )


@pytest.mark.skipif(find_spec("huggingface_hub") is not None, reason="the package is installed")
def test_a_dataset_whose_package_is_missing_is_told_with_it(tmp_path: Path, says: Says) -> None:
    dataset = spec_of("dataset=tfds", "dataset.name=huggingface:mnist", f"dataset.data_dir={tmp_path}").dataset
    assert isinstance(dataset, TfdsDataset)
    says(raised(WorldError, open_builder, dataset))


def test_an_error_that_nobody_foresaw_is_told_with_the_file_of_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Record.create(tmp_path / "run", composed(), [])
    assert run.run(tmp_path / "run", stages={}) == 1
    told = f"The run failed: KeyError: 'extract'\n    -> the traceback is in {tmp_path / 'run' / 'traceback.txt'}"
    told += "; etlrun doctor --report prints what an issue needs"
    assert capsys.readouterr().err == f"etlrun: failed\n  {told}\n"
    assert summary_of(tmp_path / "run")["error"] == told
    assert (tmp_path / "run" / "traceback.txt").read_text().startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize(
    "text", ["", "OOM when allocating tensor with shape[9,9]", "RESOURCE_EXHAUSTED: Out of memory"]
)
def test_a_run_without_memory_is_told_to_take_less(text: str, tmp_path: Path, says: Says) -> None:
    Record.create(tmp_path / "run", composed(), [])
    (tmp_path / "run" / "checkpoints").symlink_to(300 * "x")  # can't be listed, which a run on one host doesn't
    error = RuntimeError(text) if text else MemoryError()
    (fault,) = run._reported(Record(tmp_path / "run"), error).faults
    says(fault.remedy)
