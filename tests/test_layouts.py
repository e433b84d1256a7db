"""Layouts of folders and archives of images that public datasets and storage have: which are splits, and classes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.graph.figures import with_figures
from etlrun.sources import listing
from etlrun.sources.base import on_disk
from etlrun.sources.listing import Listing, list_files, notes_on
from etlrun.system.errors import EtlrunError
from tests.commands import complaint
from tests.configs import plan_of, raised
from tests.disks import fill, mounted
from tests.golden import Case, Golden, Says, cases
from tests.own import PETS, batches, image, of_folder, prepared, write_records
from tests.pipelines import as_bytes
from tests.programs import program_of
from tests.test_cli import answered


def put(folder: Path, *paths: str) -> Path:
    """Write an image to each of these paths in a folder; `{}` stands for the numbers 0 to 2."""
    for number, path in enumerate(path.format(place) for path in paths for place in range(3)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(image(number))
    return folder


@pytest.mark.parametrize("case", cases("layouts"))
def test_a_layout_that_hides_its_classes_is_refused_with_the_remedy_that_fits(
    case: Case, tmp_path: Path, golden: Golden
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    told = raised(EtlrunError, list_files, put(folder, *case["files"]), "dataset.dir")
    golden(case, told.replace(str(folder), "DIR"))


NOTED = cases("noted_layouts")


def sizes(listing: Listing) -> dict[str, int]:
    return {name: len(images) for name, images in listing.splits.items() if images}


@pytest.mark.parametrize("case", cases("noted_layouts"))
def test_what_a_layout_leaves_open_is_noted(case: Case, tmp_path: Path, golden: Golden) -> None:
    listing = list_files(put(tmp_path / "own", *case["files"]), "dataset.dir")
    golden(case, "\n".join([str(sizes(listing)), ", ".join(listing.classes), *notes_on(listing)]))


@pytest.mark.slow
@pytest.mark.parametrize("case", NOTED)
def test_a_program_has_the_layout_of_the_run(case: Case, tmp_path: Path) -> None:
    folder = put(tmp_path / "own", *case["files"])
    plan = of_folder(folder, "cache=none", "dataset.split=train", "dataset.eval_split=null")
    program = program_of(plan, tmp_path)
    assert ", ".join(program.classes()) == case["message"].splitlines()[1]
    found = batches(plan)
    assert as_bytes(program.train_dataset().take(len(found))) == found


UNUSED = (
    "The split validation (6 examples) is not used: the validation reads train[80%:]. To use it, set "
    "dataset.split=train dataset.eval_split=validation."
)


@pytest.mark.parametrize("kind", ["folder", "tfrecord", "tfds"])
def test_a_plan_notes_a_validation_split_that_is_not_used(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = put(
        tmp_path / "own", "train/cat/{}.jpg", "train/dog/{}.jpg", "validation/cat/{}.jpg", "validation/dog/{}.jpg"
    )
    words = ["dataset=folder", f"dataset.dir='{folder}'"]
    if kind == "tfrecord":
        for split in ("train", "validation"):
            write_records(tmp_path / f"{split}.tfrecord", [{"image": image(n), "label": n % 2} for n in range(6)])
        files = ",".join(f"{split}:'{tmp_path}/{split}.tfrecord'" for split in ("train", "validation"))
        words = ["dataset=tfrecord", f"dataset.files={{{files}}}", "dataset.num_classes=2"]
    if kind == "tfds":
        prepared(folder, tmp_path / "data")
        words = ["dataset=tfds", "dataset.name=own", f"dataset.data_dir={tmp_path / 'data'}"]
        words += ["dataset.split='train[:80%]'", "dataset.eval_split='train[80%:]'"]
    capsys.readouterr()
    cli.main(["plan", *words])
    assert f"note: {UNUSED}\n" in capsys.readouterr().out
    used = [word for word in words if "split" not in word]
    cli.main(["plan", *used, "dataset.split=train", "dataset.eval_split=validation"])
    assert "is not used" not in capsys.readouterr().out


def test_the_doctor_says_what_a_layout_leaves_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = put(
        tmp_path / "own",
        "train/cat/{}.jpg",
        "train/dog/{}.jpg",
        "validation/cat/{}.jpg",
        "validation/dog/{}.jpg",
        "cover.png",
    )
    cli.main(["doctor", "dataset=folder", f"dataset.dir='{folder}'"])
    notes = [UNUSED, "Left out: 1 file in no folder of a class: cover.png."]
    found = capsys.readouterr().out.splitlines()
    assert [line for line in found if line.startswith("note")] == [f"note      {note}" for note in notes]


def test_a_folder_that_is_missing_or_goes_in_circles_is_refused(folder: Path, says: Says) -> None:
    says(raised(EtlrunError, list_files, folder / "none", "dataset.dir"))
    (folder / PETS[0] / "loop").symlink_to(folder)
    says(raised(EtlrunError, list_files, folder, "dataset.dir"))


def test_a_plan_says_that_a_folder_is_missing_and_a_run_names_the_one_beside_it(folder: Path, says: Says) -> None:
    near = folder.with_name("pet")
    says(*with_figures(plan_of("dataset=folder", f"dataset.dir={near}")).remarks)
    says(raised(EtlrunError, list_files, near, "dataset.dir"))
    says(raised(EtlrunError, list_files, min((folder / PETS[0]).iterdir()) / "none", "dataset.dir"))


def test_hidden_and_other_files_are_left_out(folder: Path) -> None:
    for name in ("notes.txt", ".hidden.jpg", "Thumbs.db"):
        (folder / PETS[0] / name).write_bytes(b"")
    (folder / "LICENSE").write_bytes(b"")
    listing = list_files(folder, "dataset.dir")
    assert (len(listing.splits["train"]), listing.ignored) == (40, ["LICENSE", f"{PETS[0]}/notes.txt"])


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
    assert listed_folders.count(PETS[0]) == 1
    base = f"dataset=folder dataset.dir='{folder}' cache=disk"
    assert "cache of train: cache.disk at source will be rebuilt" in told(base, f"{base} cache.at=source")
    assert listed_folders.count(PETS[0]) == 1


@pytest.mark.parametrize("change", ["new", "renamed", "gone", "settling"])
def test_a_folder_that_has_changed_is_listed_again(
    change: str, folder: Path, listed_folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count() -> int:
        words = ["dataset=folder", f"dataset.dir='{folder}'", "dataset.split=train"]
        found = on_disk(plan_of(*words).spec.dataset).examples("train")
        return 0 if found is None else found.count

    path = folder / PETS[0] / "no 0.jpg"
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
    assert listed_folders.count(PETS[0]) == 2


@pytest.mark.parametrize("case", cases("folders"))
def test_a_folder_that_no_run_can_have_is_refused(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to("nowhere")
    word, long = case["word"], "x" * 300
    words = [word.replace("LONG", long), *(["-m"] if "sweep" in word else [])]
    told = complaint(capsys, *words, status=case["status"]).replace(long, "LONG")
    golden(case, told.removeprefix("etlrun: 1 fault\n  ").removesuffix("\n"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "gone"]


def test_a_full_disk_is_refused_before_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    with mounted(tmp_path / "full", "64k") as full:
        fill(full)
        says(complaint(capsys, f"hydra.run.dir={full / 'run'}"))


def test_what_the_system_refuses_is_told_in_words(capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(complaint(capsys, "report", "x" * 300))


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_report_of_a_folder_without_runs_fails(name: str, tmp_path: Path, says: Says) -> None:
    status, out, err = answered(tmp_path, "report", str(tmp_path / name))
    assert (status, out) == (1, "")
    says(err)
