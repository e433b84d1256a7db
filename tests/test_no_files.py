"""Paths that end like images and are none: links to a file that is gone, pipes, devices. None is ever opened."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import corrupt_records
from etlrun.system.errors import EtlrunError
from etlrun.trained.files import found
from etlrun.trained.predict import ImageFiles
from tests.own import PETS, SMALL, batches, of_folder
from tests.runs import run_here

SPLIT = ("dataset.split=train", "dataset.eval_split=null", "cache=none")
REMEDY = "remove it, or set dataset.on_corrupt=skip to skip and count such files"


def gone(path: Path) -> str:
    path.symlink_to("nowhere.jpg")
    return "a link to a file that is gone: nowhere.jpg"


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "not a regular file"


def link_to_a_device(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "not a regular file"


KINDS = [gone, pipe, link_to_a_device]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_refuses_it_before_it_reads_an_image(kind: Callable[[Path], str], folder: Path) -> None:
    path = folder / PETS[1] / "other.jpg"
    reason = kind(path)
    plan = of_folder(folder, *SPLIT)
    with pytest.raises(EtlrunError) as error:
        batches(plan)
    assert str(error.value) == f"{path}: found {reason}; expected an image file\n    -> {REMEDY}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_skips_counts_it(kind: Callable[[Path], str], folder: Path, tmp_path: Path) -> None:
    path = folder / PETS[1] / "other.jpg"
    reason = kind(path)
    words = ["dataset=folder", f"dataset.dir='{folder}'", *SMALL, *SPLIT, "dataset.on_corrupt=skip", "trainer=drain"]
    status, summary = run_here(tmp_path / "run", [word for word in words if "epochs" not in word])
    assert (status, summary["skipped"], summary["dataset"]["examples"]) == (0, {"train": 1}, {"train": 41})
    (corrupt,) = corrupt_records(open_source(plan := of_folder(folder, *SPLIT, "dataset.on_corrupt=skip").spec.dataset),
                                 open_source(plan).split("train", "dataset.split"))  # fmt: skip
    assert str(corrupt.error()).splitlines()[0] == f"{path}: found {reason}; expected an image file"


@pytest.mark.parametrize("library", ["tensorflow", "turbo"])
def test_other_images_are_read_as_before(library: str, folder: Path) -> None:
    words = (*SPLIT, f"transform.decode.library={library}", "load.shuffle_buffer=0")
    before = batches(of_folder(folder, *words))
    pipe(folder / PETS[1] / "other.jpg")
    assert len(batches(of_folder(folder, *words, "dataset.on_corrupt=skip"))) == len(before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_lists_it(
    kind: Callable[[Path], str], folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = folder / PETS[1] / "other.jpg"
    reason = kind(path)
    cli.main(["doctor", "dataset=folder", f"dataset.dir='{folder}'", "--all", "--html", str(tmp_path / "page.html")])
    assert capsys.readouterr().out.splitlines()[:3] == [
        "finding   1 of 41 examples of train can't be used",
        "          -> repair or convert them, or set dataset.on_corrupt=skip",
        f"          {path}: {reason}",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_predict_refuses_or_skips_it(kind: Callable[[Path], str], folder: Path) -> None:
    path = folder / PETS[1] / "other.jpg"
    reason = kind(path)
    with pytest.raises(EtlrunError) as error:
        found([str(folder)])
    assert str(error.value) == (
        f"{path}: found {reason}; expected an image\n    -> leave it out, or pass --on-corrupt skip"
    )
    images = found([str(folder)], skips=True)
    source = ImageFiles(of_folder(folder).spec.dataset)
    (corrupt,) = corrupt_records(source, source.files(images.files, images.no_files))
    assert (corrupt.path, corrupt.reason) == (str(path), reason)
