"""Listing of folders of images, and what is wrong with them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.sources import listing
from etlrun.sources.base import on_disk
from etlrun.sources.listing import listed
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of

CLASSES = ("a cat", "dög")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 files of two classes in a folder."""
    for number in range(40):
        place = tmp_path / "pets" / CLASSES[number % 2] / f"no {number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    return tmp_path / "pets"


TWO = "a folder for each of at least two classes", "name the folder above those of the classes"
FAULTS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "nothing": ((), "{0}: found no images", *TWO),
    "one class": (("a/1.jpg",), "{0}: found images of one class, a", *TWO),
    "a class without images": (
        ("a/1.jpg", "b/2.jpg", "c/notes.txt"),
        "{0}/c: found a class without images",
        "files with .jpg, .jpeg, .jfif, .png, .bmp, .gif, .webp",
        "remove the folder",
    ),
    "case": (
        ("Cat/1.jpg", "cat/2.jpg"),
        "{0}: found the classes Cat and cat, which differ in case alone",
        "names that differ on every file system",
        "merge or rename them",
    ),
    "splits beside classes": (
        ("train/a/1.jpg", "train/b/2.jpg", "c/3.jpg"),
        "{0}: found the splits train beside c",
        "either folders of splits, each with a folder for each class, or folders of classes",
        "move the other folders into a split",
    ),
    "a class of validation alone": (
        ("train/a/1.jpg", "train/b/2.jpg", "val/c/3.jpg"),
        "{0}/val: found c, not in train",
        "classes of the training split",
        "rename them, or add training images",
    ),
    "a newline": (
        ("a\nb/1.jpg", "c/2.jpg", "d/1.jpg"),
        "{0}/a\\nb: found an unprintable character in the name of a class",
        "a name that a list of classes, one a line, can hold",
        "rename the folder",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_folder_that_is_no_dataset_is_refused(name: str, tmp_path: Path) -> None:
    files, found, expected, remedy = FAULTS[name]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    with pytest.raises(EtlrunError) as error:
        listed(tmp_path, "dataset.dir")
    assert str(error.value) == f"{found.format(tmp_path)}; expected {expected}\n    -> {remedy}"


def test_a_folder_that_is_missing_or_goes_in_circles_is_refused(folder: Path) -> None:
    with pytest.raises(EtlrunError) as error:
        listed(folder / "none", "dataset.dir")
    message = f"dataset.dir: found {folder}/none: no such folder; expected a folder of classes with images"
    assert str(error.value) == f"{message}\n    -> check the path"
    (folder / CLASSES[0] / "loop").symlink_to(folder)
    with pytest.raises(EtlrunError) as error:
        listed(folder, "dataset.dir")
    message = f"{folder}/{CLASSES[0]}/loop: found a link to a folder above it; expected folders without a circle"
    assert str(error.value) == f"{message}\n    -> remove the link"


def test_hidden_and_other_files_are_left_out(folder: Path) -> None:
    for name in ("notes.txt", ".hidden.jpg", "Thumbs.db"):
        (folder / CLASSES[0] / name).write_bytes(b"")
    (folder / "LICENSE").write_bytes(b"")
    listing = listed(folder, "dataset.dir")
    assert (len(listing.splits["train"]), listing.ignored) == (40, ("LICENSE", f"{CLASSES[0]}/notes.txt"))


@pytest.fixture
def listed_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders of the dataset that have been listed, in order; a change of them counts as long ago."""
    found: list[str] = []
    scandir = os.scandir

    def watched(path: str | Path) -> Any:
        if Path(path).is_relative_to(folder):
            found.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    monkeypatch.setattr(listing, "SETTLED_NS", 0)
    for path in (folder, *folder.iterdir()):
        os.utime(path, ns=(1, 1))
    return found


def test_a_command_lists_a_folder_once(folder: Path, listed_folders: list[str], told: Callable[..., str]) -> None:
    words = ["dataset=folder", f"dataset.dir='{folder}'", "load.class_weights=balanced"]
    cli.main(["plan", *words])
    assert listed_folders.count(CLASSES[0]) == 1
    base = f"dataset=folder dataset.dir='{folder}' cache=disk"
    assert "cache of train: cache.disk at source will be rebuilt" in told(base, f"{base} cache.at=source")
    assert listed_folders.count(CLASSES[0]) == 1


@pytest.mark.parametrize("change", ["new", "renamed", "gone", "settling"])
def test_a_folder_that_has_changed_is_listed_again(
    change: str, folder: Path, listed_folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count() -> int:
        words = ["dataset=folder", f"dataset.dir='{folder}'", "dataset.split=train"]
        found = on_disk(plan_of(*words).spec.dataset).examples("train")
        return 0 if found is None else found.count

    path = folder / CLASSES[0] / "no 0.jpg"
    if change == "settling":  # a file that came as its folder was listed might not be seen
        monkeypatch.setattr(listing, "SETTLED_NS", 3_600_000_000_000)
    assert count() == 40
    if change == "new":
        path.with_name("another.jpg").touch()
    elif change == "renamed":
        path.rename(path.with_suffix(".txt"))
    elif change == "gone":
        path.unlink()
    assert count() == {"new": 41, "settling": 40}.get(change, 39)
    assert listed_folders.count(CLASSES[0]) == 2
