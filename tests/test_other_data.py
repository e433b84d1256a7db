"""Data that are not those that a config or an earlier run means: other versions, names, and changed files."""

from pathlib import Path

import pytest

from etlrun.sources.base import open_source
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.own import PETS, image, prepared, records, write_photos
from tests.runs import run_here, summary_of


def message_of(*words: str) -> str:
    with pytest.raises(EtlrunError) as error:
        open_source(plan_of("dataset=tfds", "dataset.download=false", *words).spec.dataset)
    return str(error.value)


def test_another_version_than_that_which_is_prepared_is_told(tmp_path: Path) -> None:
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        prepared(write_photos(tmp_path / "photos", 4), tmp_path / "data", "--version", version)
    words = ("dataset.name=own", f"dataset.data_dir={tmp_path / 'data'}")
    assert message_of(*words, "dataset.version=3.*.*") == (
        f"dataset.version: found 3.*.*, which is not in {tmp_path}/data/own; expected a version that is prepared: "
        "1.0.0, 1.9.0, 1.10.0\n    -> set dataset.version=1.10.0, or null for the newest"
    )


def test_a_name_is_compared_with_those_of_prepared_datasets(tmp_path: Path) -> None:
    prepared(write_photos(tmp_path / "photos", 4), tmp_path / "data", "--name", "wild_roses")
    found = message_of("dataset.name=wild_rose", f"dataset.data_dir={tmp_path / 'data'}")
    assert found.endswith(
        "; expected a dataset known to TFDS, or its files in dataset.data_dir\n    -> did you mean wild_roses?"
    )


REST = "or start a new run without trainer.resume (if the examples are known to be the same, remove `digest` from"


@pytest.mark.parametrize("kind", ["folder", "tfrecord"])
def test_a_resumed_run_on_changed_files_is_told_to_restore_them(kind: str, folder: Path, tmp_path: Path) -> None:
    words = ["dataset=folder", f"dataset.dir='{folder}'"]
    remedy = "restore the images, or set dataset.dir to a copy of those"
    if kind == "tfrecord":
        records(tmp_path, "a.tfrecord", range(20))
        words = ["dataset=tfrecord", f"dataset.files='{tmp_path}/*.tfrecord'", "dataset.num_classes=2"]
        remedy = "restore the files, or set dataset.files to a copy of those"
    words += ["model=emulated", "model.step_ms=0", "model.eval_step_ms=0", "cache=none", "load.batch_size=4",
              "transform.resize.size=[8,8]"]  # fmt: skip
    first = tmp_path / "first"
    assert run_here(first, [*words, "trainer.epochs=1"])[0] == 0
    for number in range(40):
        (folder / PETS[number % 2] / f"no {number}.jpg").write_bytes(image(50 + number))
    records(tmp_path, "a.tfrecord", range(50, 70))
    assert run_here(tmp_path / "second", [*words, "trainer.epochs=2", f"trainer.resume={first}"])[0] == 1
    error = summary_of(tmp_path / "second")["error"]
    assert error.splitlines()[1] == f"    -> {remedy}, {REST} {first / 'summary.json'})"
