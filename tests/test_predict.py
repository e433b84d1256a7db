"""Predictions: bit for bit those of the run's validation, of splits and of files, and what can't be predicted."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from etlrun.cli import main as cli
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import corrupt_records
from etlrun.system.errors import EtlrunError
from etlrun.trained.files import found
from etlrun.trained.predict import ImageFiles
from tests.configs import raised
from tests.golden import Case, Golden, Says, cases
from tests.own import PETS, SMALL, batches, of_folder
from tests.pictures import damaged, jpeg, truncate
from tests.runs import run_here
from tests.trained import outputs_of, refusal, refused, said, validation_of, with_summary

NAMES = ("dark", "bright")


@pytest.fixture(scope="module")
def outputs(run: Path) -> npt.NDArray[np.float32]:
    return outputs_of(run)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three images in a folder and one below it, and a note."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for number, name in enumerate(("a.jpg", "b.JPEG", "c.jpg", "more/d.jpg")):
        (folder / name).write_bytes(jpeg(number))
    (folder / "notes.txt").write_text("no image")
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def probabilities(rows: list[dict[str, str]]) -> npt.NDArray[np.float32]:
    return np.array([[np.float32(row[f"probability_{name}"]) for name in NAMES] for row in rows])


def test_files_are_predicted_as_the_run_validates_their_bytes(
    run: Path, outputs: npt.NDArray[np.float32], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = validation_of(run)
    records = pipeline.uncached(pipeline.stages[:1])
    parse = pipeline.context.source.parser()
    for number, record in enumerate(records):
        (tmp_path / f"{number:02}.jpg").write_bytes(parse(record)["image"].numpy())
    rows = rows_of(said(capsys, "predict", run, tmp_path))
    assert [row["path"] for row in rows] == [str(tmp_path / f"{number:02}.jpg") for number in range(10)]
    assert np.array_equal(probabilities(rows), outputs)


def test_the_rows_of_both_formats_say_the_same(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(said(capsys, "predict", run, photos / "a.jpg", photos / "c.jpg"))
    lines = [
        json.loads(line)
        for line in said(capsys, "predict", run, photos / "a.jpg", photos / "c.jpg", "--format", "jsonl").splitlines()
    ]
    assert [line["path"] for line in lines] == [row["path"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        assert line["class"] == row["class"] == next(iter(line["probabilities"]))
        shares = {name: float(row[f"probability_{name}"]) for name in NAMES}
        assert line["probabilities"] == shares
        assert [*line["probabilities"].values()] == sorted(shares.values(), reverse=True)
    top = rows_of(said(capsys, "predict", run, photos / "a.jpg", "--top", "1"))
    likeliest = {"path": rows[0]["path"], "class_1": rows[0]["class"]}
    assert top == [likeliest | {"probability_1": rows[0][f"probability_{rows[0]['class']}"]}]


@pytest.mark.smoke
def test_folders_are_searched_and_the_order_is_that_of_the_arguments(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out" / "rows.csv"
    cwd = os.path.relpath(photos)
    assert said(capsys, "predict", run, photos / "c.jpg", photos, Path(cwd) / "a.jpg", "--output", output) == ""
    rows = rows_of(output.read_text())
    names = ("c.jpg", "a.jpg", "b.JPEG", "c.jpg", "more/d.jpg")
    assert [row["path"] for row in rows] == [*(str(photos / name) for name in names), str(Path(cwd) / "a.jpg")]
    assert [*output.parent.iterdir()] == [output]


def test_what_is_left_out_is_noted(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["predict", str(run), str(photos)])
    assert capsys.readouterr().err.splitlines() == [
        "note  Files without the suffix of an image are left out: notes.txt.",
    ]


def test_broken_images_are_listed_and_the_others_keep_their_places(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    whole = rows_of(said(capsys, "predict", run, photos))
    (photos / "b.JPEG").write_bytes(b"")
    (photos / "b2.jpg").write_bytes(jpeg(1)[:300])
    cli.main(["predict", str(run), str(photos), "--on-corrupt", "skip"])
    captured = capsys.readouterr()
    rows = rows_of(captured.out)
    assert [row["path"] for row in rows] == [str(photos / name) for name in ("a.jpg", "c.jpg", "more/d.jpg")]
    np.testing.assert_allclose(probabilities(rows), probabilities([whole[0], *whole[2:]]), rtol=1e-6)
    says([line for line in captured.err.splitlines() if not line.startswith("note")])


def test_a_broken_image_ends_the_command_and_leaves_no_file(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    (photos / "more" / "d.jpg").write_bytes(b"")
    message = refused(capsys, "predict", run, photos / "more", photos / "c.jpg", "--output", tmp_path / "rows.csv")
    says(message)
    (photos / "c.jpg").write_bytes(b"II*\0" + jpeg(1))
    says(refused(capsys, "predict", run, photos))
    assert not (tmp_path / "rows.csv").exists()
    capsys.readouterr()
    with pytest.raises(SystemExit, match="1"):
        said(capsys, "predict", run, photos / "more", "--on-corrupt", "skip")


def test_a_truncated_shard_loses_its_last_records_alone(
    run: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = damaged(tiny, tmp_path / "data", truncate)
    words = ["predict", str(run), f"dataset.data_dir={tmp_path / 'data'}", "dataset.split=train"]
    whole = {row["path"].replace(str(tiny), ""): row for row in rows_of(said(capsys, *words[:2], words[3]))}
    cli.main([*words, "--on-corrupt", "skip"])
    captured = capsys.readouterr()
    rows = {row["path"].replace(str(tmp_path / "data"), ""): row for row in rows_of(captured.out)}
    name = str(shard).replace(str(tmp_path / "data"), "")
    assert whole.keys() - rows.keys() == {f"{name}, record {number}" for number in range(5, 12)}
    for place, row in rows.items():
        assert float(row["probability_dark"]) == pytest.approx(float(whole[place]["probability_dark"]), rel=1e-6)
    assert captured.err.splitlines()[0].startswith(f"skipped   {shard}, record 5: truncated record")
    assert captured.err.splitlines()[-1] == "etlrun: 7 of 48 skipped"
    message = refused(capsys, *words, "--output", tmp_path / "found.csv")
    assert message[0].startswith(f"  {shard}, record 5: found truncated record at ")
    assert message[1].endswith("or pass --on-corrupt skip to list and leave out such records")


def test_classes_without_names_are_numbers(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nameless = tmp_path / "nameless"
    shutil.copytree(run, nameless)
    dataset = json.loads((nameless / "summary.json").read_text())["dataset"]
    with_summary(nameless, dataset={key: of for key, of in dataset.items() if key != "classes"})
    header = said(capsys, "predict", nameless, photos / "a.jpg").splitlines()[0]
    assert header == "path,class,probability_0,probability_1"


@pytest.mark.parametrize("case", cases("predict"))
def test_what_can_not_be_predicted_is_refused(
    run: Path, photos: Path, case: Case, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "link.jpg").symlink_to(photos / "gone.jpg")
    (photos / "empty").mkdir()
    golden(case, refusal(capsys, case, RUN=run, DIR=photos))


def test_a_path_with_an_equals_sign_is_a_path_where_it_exists(
    run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    (photos / "size=2.jpg").write_bytes(jpeg(2))
    rows = rows_of(said(capsys, "predict", run, "size=2.jpg"))
    assert [row["path"] for row in rows] == ["size=2.jpg"]


SPLIT = ("dataset.split=train", "dataset.eval_split=null", "cache=none")


@pytest.fixture(params=["gone", "pipe", "link to a device"])
def irregular(request: pytest.FixtureRequest, folder: Path) -> tuple[Path, str]:
    """What is no file in a folder of images, and what it is said to be."""
    path = folder / PETS[1] / "other.jpg"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere.jpg" if request.param == "gone" else "/dev/zero")
    return path, "a link to a file that is gone: nowhere.jpg" if request.param == "gone" else "not a regular file"


@pytest.mark.usefixtures("irregular")
def test_a_run_refuses_it_before_it_reads_an_image(folder: Path, says: Says) -> None:
    says(raised(EtlrunError, batches, of_folder(folder, *SPLIT)))


def test_a_run_that_skips_counts_it(irregular: tuple[Path, str], folder: Path, tmp_path: Path) -> None:
    path, reason = irregular
    words = ["dataset=folder", f"dataset.dir='{folder}'", *SMALL, *SPLIT, "dataset.on_corrupt=skip", "trainer=drain"]
    status, summary = run_here(tmp_path / "run", [word for word in words if "epochs" not in word])
    assert (status, summary["skipped"], summary["dataset"]["examples"]) == (0, {"train": 1}, {"train": 41})
    source = open_source(of_folder(folder, *SPLIT, "dataset.on_corrupt=skip").spec.dataset)
    (corrupt,) = corrupt_records(source.split("train", "dataset.split"))
    assert str(corrupt.error()).splitlines()[0] == f"{path}: found {reason}; expected an image file"


def test_a_few_of_many_broken_images_are_named_and_a_file_of_the_run_has_all(folder: Path, tmp_path: Path) -> None:
    broken = sorted(folder.glob("*/*"))[:7]
    for path in broken:
        path.write_bytes(b"no image")
    words = ["dataset=folder", f"dataset.dir='{folder}'", *SMALL, *SPLIT, "dataset.on_corrupt=skip", "trainer=drain"]
    status, summary = run_here(tmp_path / "run", [word for word in words if "epochs" not in word])
    (told,) = (of for of in summary["remarks"] if "corrupt" in of)
    assert (status, summary["skipped"]) == (0, {"train": 7})
    assert told.startswith("7 corrupt records were skipped: ")
    assert told.endswith("; 2 more in skipped.txt.")
    assert sum(str(path) in told for path in broken) == 5
    lines = (tmp_path / "run" / "skipped.txt").read_text().splitlines()
    assert {line.partition(": ")[0] for line in lines} == {*map(str, broken)}


@pytest.mark.parametrize("library", ["tensorflow", "turbo"])
def test_other_images_are_read_as_before(library: str, folder: Path) -> None:
    words = (*SPLIT, f"transform.decode.library={library}", "load.shuffle_buffer=0")
    before = batches(of_folder(folder, *words))
    os.mkfifo(folder / PETS[1] / "other.jpg")
    assert len(batches(of_folder(folder, *words, "dataset.on_corrupt=skip"))) == len(before)


@pytest.mark.usefixtures("irregular")
def test_the_doctor_lists_it(folder: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    whole = [f"dataset.dir='{folder}'", "dataset.split=train", "dataset.eval_split=null"]
    cli.main(["doctor", "dataset=folder", *whole])
    says(capsys.readouterr().out.splitlines()[:3])


def test_predict_refuses_or_skips_it(irregular: tuple[Path, str], folder: Path, says: Says) -> None:
    path, reason = irregular
    says(raised(EtlrunError, found, [str(folder)]))
    images = found([str(folder)], skips=True)
    source = ImageFiles(of_folder(folder).spec.dataset, images.files, images.no_files)
    (corrupt,) = corrupt_records(source.whole)
    assert (corrupt.where, corrupt.reason) == (str(path), reason)
