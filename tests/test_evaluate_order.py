"""Evaluations on other data: classes whose order nothing tells, and names of the files of two datasets."""

import json
import shutil
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from tests.own import CLASSES, write_photos
from tests.trained import said, with_summary


def records_of(tiny: Path) -> list[str]:
    """Overrides that read the same files, which say nothing of names."""
    files = next(tiny.rglob("*.tfrecord-*")).parent / "*.tfrecord-*"
    return ["dataset=tfrecord", f"dataset.files='{files}'", "dataset.num_classes=2", "dataset.split=train"]


def unchecked(tiny: Path) -> str:
    files = next(tiny.rglob("*.tfrecord-*")).parent / "*.tfrecord-*"
    return (
        f"The classes of {files} have no names: whether the data has them in the order of the model's outputs, which "
        "are dark, bright, can't be checked."
    )


def test_classes_without_names_are_said_to_be_unchecked_and_are_shown(
    run: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "evaluate", run, *records_of(tiny)).splitlines()
    place = lines.index(f"order     {unchecked(tiny)}")
    shards = sorted(tiny.rglob("*.tfrecord-*"))
    assert lines[place + 1].split() == ["class", "first", "example", "of", "the", "data"]
    firsts = dict(line.split(maxsplit=1) for line in lines[place + 2 : place + 4])
    assert firsts.keys() == {"dark", "bright"}
    assert all(place.startswith(f"{shards[0]}, record ") for place in firsts.values())
    page = Path(lines[-1].removeprefix("page").strip())
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["unchecked"] == unchecked(tiny)
    assert {of["name"]: of["place"] for of in found["firsts"]} == firsts
    text = page.read_text()
    assert "First example of each class</h3>" in text
    assert text.count('<img src="data:image/') == len(found["mistakes"]) + 2


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
        "order     The classes of the run have no names: whether the data has them in the order of the model's "
        "outputs, which are cross, disc, can't be checked."
    ) in said(capsys, "evaluate", nameless, *folder)


def test_predictions_say_so_too(run: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    cli.main(["predict", str(run), *records_of(tiny)])
    captured = capsys.readouterr()
    assert f"note  {unchecked(tiny)}" in captured.err.splitlines()
    assert len(captured.out.splitlines()) == 49


def test_evaluations_of_two_folders_with_one_name_stand_beside_each_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "run"
    shutil.copytree(run, other)
    summary = json.loads((other / "summary.json").read_text())["dataset"]
    with_summary(other, dataset=summary | {"classes": sorted(CLASSES)})
    folders = [write_photos(tmp_path / name / "photos", count) for name, count in (("spring", 6), ("autumn", 10))]

    def evaluated(folder: Path, *words: str) -> dict[str, object]:
        own = ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train", *words]
        found: dict[str, object] = json.loads(said(capsys, "evaluate", other, *own, "--format", "json"))
        return found

    found = [evaluated(folder) for folder in (*folders, folders[0], folders[1])]
    assert [of["name"] for of in found] == ["photos train", "photos train 2", "photos train", "photos train 2"]
    assert [of["examples"] for of in found] == [6, 10, 6, 10]
    assert {path.name for path in (other / "evaluations").glob("photos*")} == {
        f"photos train{number}.{suffix}" for number in ("", " 2") for suffix in ("json", "html")
    }


def test_so_do_those_of_two_patterns_of_records(
    run: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    names = []
    for data_dir in (tiny, tmp_path / "data"):
        found = json.loads(said(capsys, "evaluate", run, *records_of(data_dir), "--format", "json"))
        names.append(found["name"])
        assert found["dataset"] == f"{data_dir}/tiny_pictures/1.2.0/*.tfrecord-*"
    assert names == ["*.tfrecord-* train", "*.tfrecord-* train 2"]
