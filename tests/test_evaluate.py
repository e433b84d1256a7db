"""Evaluations: the losses of the run's own validation, of classes and of numbers, in all forms; and intervals."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import intervals
from etlrun.cli import main as cli
from etlrun.trained.scores import f1
from tests.encoded import REFUSED
from tests.golden import Says
from tests.own import CLASSES, write_photos
from tests.pages import chromium, opened
from tests.pictures import damaged, feature_of, with_feature
from tests.runs import summary_of
from tests.trained import outputs_of, refused, said, validation_of, with_summary


def test_f1_has_an_interval_at_its_border() -> None:
    right = f1(10, 0, 0)
    assert right.value == right.high == 1
    assert right.low == pytest.approx(0.8389, abs=1e-4)
    wrong = f1(0, 5, 5)
    assert wrong.value == wrong.low == 0
    assert wrong.high == pytest.approx(0.4345, abs=1e-4)


OF_KINDS = [
    pytest.param(name, marks=[pytest.mark.slow] if ", " in name else [])  # thousands of sweeps are fitted for each
    for name in intervals.KINDS
]


@pytest.mark.parametrize("name", OF_KINDS)
def test_an_interval_holds_the_truth_as_often_as_it_says(name: str) -> None:
    shares = [found.held for found in intervals.KINDS[name](np.random.default_rng(0), 300)]
    assert np.mean(shares) >= 0.935
    assert min(shares) >= 0.8


@pytest.mark.smoke
def test_figures_and_mistakes_are_those_of_the_predictions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", run, "--format", "json"))
    last = summary_of(run)["epochs"][-1]
    assert found["then"] == {"loss": last["val_loss"], "accuracy": last["val_accuracy"]}
    assert (found["dataset"], found["split"], found["examples"]) == ("tiny_pictures/1.2.0", "train[80%:]", 10)
    assert json.loads((run / "evaluations" / "train[80%:].json").read_text()) == found
    outputs = outputs_of(run)
    labels = np.concatenate([targets.numpy() for _, targets in validation_of(run).dataset])
    predicted = outputs.argmax(axis=1)
    assert [sum(row) for row in found["confusion"]] == np.bincount(labels, minlength=2).tolist()
    assert [of["predicted"] for of in found["classes"]] == np.bincount(predicted, minlength=2).tolist()
    assert [of["name"] for of in found["classes"]] == ["dark", "bright"]
    losses = -np.log(outputs[np.arange(10), labels])
    wrong = sorted(losses[labels != predicted], reverse=True)
    assert [of["loss"] for of in found["mistakes"]] == pytest.approx(wrong, rel=1e-5)
    assert sum(of["examples"] for of in found["calibration"]) == 10


def test_another_split_is_named_and_kept_beside(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "evaluate", run, 'dataset.split="train[:10%]"', "load.prefetch=0").splitlines()
    of = f"by the model of epoch {summary_of(run)['kept']['epoch']}"
    assert lines[0].startswith("accuracy  ")
    assert f"data      tiny_pictures/1.2.0 train[:10%], 5 examples, {of}" in lines
    assert "in the run" not in "".join(lines)
    assert lines[-2:] == [
        f"results   {run}/evaluations/train[:10%].json",
        f"page      {run}/evaluations/train[:10%].html",
    ]


@pytest.fixture
def of_shapes(run: Path, tmp_path: Path) -> Path:
    """A copy of the run, whose classes have the names of those of own photos."""
    other = Path(shutil.copytree(run, tmp_path / "run"))
    with_summary(
        other, dataset=json.loads((run / "summary.json").read_text())["dataset"] | {"classes": sorted(CLASSES)}
    )
    return other


def test_own_photos_are_evaluated_by_the_names_of_their_classes(
    run: Path, of_shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    photos = write_photos(tmp_path / "photos")
    words = ["dataset=folder", f"dataset.dir={photos}", "dataset.split=train"]
    says(refused(capsys, "evaluate", run, *words))
    assert not list((run / "evaluations").glob("photos*"))
    found = json.loads(said(capsys, "evaluate", of_shapes, *words, "--format", "json"))
    assert re.fullmatch("photos train [0-9a-f]{8}", found["name"])
    assert (found["examples"], found["then"]) == (12, {})
    names = {path.name for path in (of_shapes / "evaluations").glob("photos*")}
    assert names == {f"{found['name']}.json", f"{found['name']}.html"}


CORRUPT = {
    "label": (with_feature("label", feature_of(7)), "label 7"),
    "image": (with_feature("image", feature_of(REFUSED["BMP P"][0])), REFUSED["BMP P"][1]),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_records_end_it_or_are_listed(
    name: str, run: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    damage, reason = CORRUPT[name]
    shard = damaged(tiny, tmp_path / "data", damage)
    words = [f"dataset.data_dir={tmp_path / 'data'}", "dataset.split=train"]
    says(refused(capsys, "evaluate", run, *words))
    found = json.loads(said(capsys, "evaluate", run, *words, "dataset.on_corrupt=skip", "--format", "json"))
    assert found["examples"] == 47
    assert found["skipped"] == [{"place": f"{shard}, record 5", "reason": reason}]
    cli.main(["predict", str(run), *words, "--on-corrupt", "skip"])
    assert f"skipped   {shard}, record 5: {reason}" in capsys.readouterr().err.splitlines()


def test_the_page_shows_the_mistakes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "evaluate", run)
    page = run / "evaluations" / "train[80%:].html"
    mistakes = json.loads(page.with_suffix(".json").read_text())["mistakes"]
    assert "Worst mistakes</h2>" in page.read_text()
    assert page.read_text().count('<img src="data:image/') == len(mistakes) > 0
    with chromium() as browser, opened(browser, page):
        assert "tiny_pictures/1.2.0 train[80%:], 10 examples" in browser.page_source


def records_of(tiny: Path) -> list[str]:
    """Overrides that read the same files, which say nothing of names."""
    files = next(tiny.rglob("*.tfrecord-*")).parent / "*.tfrecord-*"
    return ["dataset=tfrecord", f"dataset.files='{files}'", "dataset.num_classes=2", "dataset.split=train"]


def unchecked(tiny: Path) -> str:
    files = next(tiny.rglob("*.tfrecord-*")).parent / "*.tfrecord-*"
    return (
        f"The classes of {files} have no names: it can't be checked whether the data has them in the order of the "
        "model's outputs (dark, bright)."
    )


def test_classes_without_names_are_said_to_be_unchecked(
    run: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "evaluate", run, *records_of(tiny)).splitlines()
    assert f"order     {unchecked(tiny)}" in lines
    page = Path(lines[-1].removeprefix("page").strip())
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["unchecked"] == unchecked(tiny)
    assert page.read_text().count('<img src="data:image/') == len(found["mistakes"])


def test_the_data_of_the_run_and_data_with_names_are_not(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "can't be checked" not in said(capsys, "evaluate", run)
    nameless = tmp_path / "nameless"
    shutil.copytree(run, nameless)
    summary = json.loads((nameless / "summary.json").read_text())
    del summary["dataset"]["classes"]
    with_summary(nameless, dataset=summary["dataset"])
    assert "can't be checked" not in said(capsys, "evaluate", nameless)
    photos = write_photos(tmp_path / "photos")
    named = json.loads((run / "summary.json").read_text())["dataset"] | {"classes": sorted(CLASSES)}
    with_summary(nameless, dataset=named)
    folder = ["dataset=folder", f"dataset.dir={photos}", "dataset.split=train"]
    assert "can't be checked" not in said(capsys, "evaluate", nameless, *folder)
    del named["classes"]
    with_summary(nameless, dataset=named)
    assert (
        "order     The classes of the run have no names: it can't be checked whether the data has them in the order of "
        "the model's outputs (cross, disc)."
    ) in said(capsys, "evaluate", nameless, *folder)


def test_predictions_say_so_too(run: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    cli.main(["predict", str(run), *records_of(tiny)])
    captured = capsys.readouterr()
    assert f"note  {unchecked(tiny)}" in captured.err.splitlines()
    assert len(captured.out.splitlines()) == 49


def test_evaluations_of_two_folders_with_one_name_stand_beside_each_other(
    of_shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [write_photos(tmp_path / name / "photos", count) for name, count in (("spring", 6), ("autumn", 10))]

    def evaluated(folder: Path, *words: str) -> dict[str, object]:
        own = ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train", *words]
        found: dict[str, object] = json.loads(said(capsys, "evaluate", of_shapes, *own, "--format", "json"))
        return found

    found = [evaluated(folder) for folder in (*folders, folders[0], folders[1])]
    one, other, *again = [of["name"] for of in found]
    assert (again, one != other) == ([one, other], True)
    assert [of["examples"] for of in found] == [6, 10, 6, 10]
    assert {path.name for path in (of_shapes / "evaluations").glob("photos*")} == {
        f"{name}.{suffix}" for name in (one, other) for suffix in ("json", "html")
    }
