"""Layouts of folders and archives of images that public datasets and storage have: which are splits, and classes."""

import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.datasets.prepare import archives
from etlrun.datasets.prepare.archives import Archive
from etlrun.sources.listing import SUFFIXES, Listing, listed, notes_on
from etlrun.system.errors import EtlrunError
from tests.own import batches, examples, image, of_folder, prepared, refused, write_records
from tests.pipelines import as_bytes
from tests.programs import program_of

KINDS = ".jpg, .jpeg, .jfif, .png, .bmp, .gif, .webp"
TWO = "a folder for each of at least two classes"
SPLITS = "folders of splits (train, training, validation, valid, val, test, testing), each with a folder for each class"
LIST = "write a list with the columns path and label, and prepare it: python -m etlrun prepare LIST.csv"
CAFE = "café"


def put(folder: Path, *paths: str) -> Path:
    """Write an image to each of these paths in a folder; `{}` stands for the numbers 0 to 2."""
    for number, path in enumerate(path.format(place) for path in paths for place in range(3)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(image(number))
    return folder


FAULTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "splits by other names": (
        ("training_set/cats/{}.jpg", "training_set/dogs/{}.jpg", "test_set/cats/{}.jpg", "test_set/dogs/{}.jpg"),
        (
            (
                "{0}: found the classes test_set, training_set, which are splits by their names, and hold folders "
                f"alone; expected {SPLITS}"
            ),
            "    -> move test_set to test, training_set to train",
        ),
    ),
    "splits within folders of their names": (
        ("seg_train/seg_train/sea/{}.jpg", "seg_train/seg_train/ice/{}.jpg", "seg_test/seg_test/sea/{}.jpg",
         "seg_pred/seg_pred/{}.jpg"),
        (
            (
                "{0}: found the classes seg_test, seg_train, which are splits by their names, and hold folders alone; "
                f"expected {SPLITS}"
            ),
            "    -> move seg_test/seg_test to test, seg_train/seg_train to train",
        ),
    ),
    "a year behind the splits": (
        ("TrainData/a/{}.jpg", "TrainData/b/{}.jpg", "val2017/a/{}.jpg", "val2017/b/{}.jpg"),
        (
            (
                "{0}: found the classes TrainData, val2017, which are splits by their names, and hold folders alone; "
                f"expected {SPLITS}"
            ),
            "    -> move TrainData to train, val2017 to validation",
        ),
    ),
    "one folder above the classes": (
        ("photos/cat/{}.jpg", "photos/dog/{}.jpg"),
        (
            "{0}: found images of one class, photos, in the folders cat, dog; expected " + TWO,
            "    -> name the folder {0}/photos, if these are the classes",
        ),
    ),
    "a folder above the classes of a split": (
        ("train/train/cat/{}.jpg", "train/train/dog/{}.jpg"),
        (
            "{0}: found images of one class, train, in the folders cat, dog; expected " + TWO,
            "    -> move the folders that are in train/train one folder up, if these are the classes",
        ),
    ),
    "classes in the names of files": (
        ("train/cat.{}.jpg", "train/dog.{}.jpg"),
        (
            (
                "{0}: found 6 images in no folder of a class, such as train/cat.0.jpg; expected a folder for each "
                "class in train"
            ),
            "    -> if names begin with classes, move train/cat.0.jpg into a folder train/cat, and so on; or " + LIST,
        ),
    ),
    "images without classes": (
        ("{}.jpg",),
        (
            "{0}: found 3 images in no folder of a class, such as 0.jpg; expected " + TWO,
            "    -> put them into folders that are named by their classes; or " + LIST,
        ),
    ),
    "a class of another format": (
        ("cat/{}.avif", "dog/{}.jpg"),
        (
            "{0}/cat: found a class without images, but with 3 files of .avif; expected files with " + KINDS,
            "    -> convert them: python -m etlrun prepare {0} --name NAME --convert",
        ),
    ),
    "another format alone": (
        ("cat/{}.HEIC", "dog/{}.tif"),
        (
            "{0}: found no images, but 3 files of .heic and 3 files of .tif; expected " + TWO,
            "    -> convert them: python -m etlrun prepare {0} --name NAME --convert",
        ),
    ),
    "names that look alike": (
        ("cat/{}.jpg", "cat /{}.jpg", "café/{}.jpg", unicodedata.normalize("NFD", "café") + "/{}.jpg"),
        (
            (
                "{0}: found the classes 'cafe\\u0301' and 'caf\\xe9', which differ in blanks, case or Unicode "
                "normalization alone; expected names that differ on every file system"
            ),
            "    -> merge or rename them",
            (
                "{0}: found the classes 'cat' and 'cat ', which differ in blanks, case or Unicode normalization alone; "
                "expected names that differ on every file system"
            ),
            "    -> merge or rename them",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_layout_that_hides_its_classes_is_refused_with_the_remedy_that_fits(name: str, tmp_path: Path) -> None:
    paths, lines = FAULTS[name]
    folder = put(tmp_path / "own", *paths)
    with pytest.raises(EtlrunError) as error:
        listed(folder, "dataset.dir")
    assert str(error.value).splitlines() == [line.replace("{0}", str(folder)) for line in lines]


LEFT = {
    "classes that are named like splits": (
        ("valid/{}.jpg", "invalid/{}.jpg"),
        ("invalid", "valid"),
        ["valid: read as classes and not as splits, since these folders hold no folders."],
    ),
    "an image beside the classes": (
        ("cat/{}.jpg", "dog/{}.jpg", "cover.jpg"),
        ("cat", "dog"),
        ["1 image is in no folder of a class, and left out: cover.jpg."],
    ),
    "folders of the same names in all classes": (
        ("cat/2023/{}.jpg", "cat/2024/{}.jpg", "dog/2023/{}.jpg", "dog/2024/{}.jpg"),
        ("cat", "dog"),
        ["The classes cat, dog hold folders of the same names, 2023, 2024: images have the class of the outer folder."],
    ),
    "a test split without classes": (
        ("train/cat/{}.jpg", "train/dog/{}.jpg", "test/{}.jpg"),
        ("cat", "dog"),
        ["3 images are in no folder of a class, and left out: test/0.jpg, test/1.jpg, test/2.jpg."],
    ),
    "numbers": (
        tuple(f"{number}/{{}}.jpg" for number in (1, 2, 10)),
        ("1", "2", "10"),
        ["Classes are in the order of their numbers: 1, 2, 10. Programs that sort them as text have another order."],
    ),
    "thumbnails of network storage": (
        ("cat/{}.jpg", "dog/{}.jpg", "cat/@eaDir/{}.jpg/SYNOPHOTO_THUMB_M.jpg", "dog/@__thumb/s100{}.jpg",
         "#recycle/cat/{}.jpg", "@Recently-Snapshot/a/{}.jpg", "dog/.thumbnails/{}.jpg"),
        ("cat", "dog"),
        [],
    ),
}  # fmt: skip


def sizes(listing: Listing) -> dict[str, int]:
    return {name: len(images) for name, images in listing.splits.items() if images}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_layout_leaves_open_is_noted(name: str, tmp_path: Path) -> None:
    paths, classes, notes = LEFT[name]
    listing = listed(put(tmp_path / "own", *paths), "dataset.dir")
    assert (listing.classes, [*notes_on(listing)]) == (classes, notes)
    assert sizes(listing) == {"train": 9 if name == "numbers" else 12 if "same names" in name else 6}


@pytest.mark.parametrize("name", LEFT)
def test_an_archive_has_the_layout_of_its_folder(name: str, tmp_path: Path) -> None:
    folder, top = put(tmp_path / "own", *LEFT[name][0]), "photos/2024/"
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        for path in sorted(folder.rglob("*.jpg")):
            archive.write(path, f"{top}{path.relative_to(folder)}")
    of_archive = prepared(tmp_path / "own.zip", tmp_path / "archive")
    of_folder = prepared(folder, tmp_path / "folder")
    for file in ("label.labels.txt",):
        assert (of_archive / file).read_text() == (of_folder / file).read_text()
    assert examples(of_archive) == examples(of_folder)


@pytest.mark.parametrize("name", [name for name in FAULTS if "one folder above" not in name])
def test_an_archive_is_refused_like_its_folder(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = put(tmp_path / "own", *FAULTS[name][0])
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(path, str(path.relative_to(folder)))
    found = refused(capsys, tmp_path / "own.zip", tmp_path / "data")[1:]
    lines = [line.replace("{0}", "SOURCE") for line in FAULTS[name][1]]
    assert found == [line if line.startswith("    ->") else f"  {line}" for line in lines]


def test_an_archive_with_an_image_beside_its_classes_below_one_folder(tmp_path: Path) -> None:
    found = [
        archives.Member(name=f"top/{name}", kind="file", link="", size=1, place=0)
        for name in ("cover.jpg", "a/1.jpg", "b/2.jpg")
    ]
    archive = Archive(put(tmp_path, "any.zip") / "any.zip", found, SUFFIXES)
    assert ([entry.label for entry in archive.entries], archive.outside) == (["a", "b"], ["top/cover.jpg"])


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT)
def test_a_program_has_the_layout_of_the_run(name: str, tmp_path: Path) -> None:
    plan = of_folder(
        put(tmp_path / "own", *LEFT[name][0]), "cache=none", "dataset.split=train", "dataset.eval_split=null"
    )
    program = program_of(plan, tmp_path)
    assert tuple(program.classes()) == LEFT[name][1]
    found = batches(plan)
    assert as_bytes(program.train_dataset().take(len(found))) == found


def test_a_folder_and_a_list_number_their_classes_alike(tmp_path: Path) -> None:
    folder = put(tmp_path / "own", *(f"{number}/{{}}.jpg" for number in range(1, 12)))
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in sorted(folder.rglob("*.jpg"))]
    (tmp_path / "own.csv").write_text("\n".join(["path,label", *rows]))
    names = [prepared(source, tmp_path / "data", "--name", name) / "label.labels.txt"
             for name, source in (("folder", folder), ("list", tmp_path / "own.csv"))]  # fmt: skip
    assert [path.read_text().split() for path in names] == [[str(number) for number in range(1, 12)]] * 2


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
    cli.main(["doctor", "dataset=folder", f"dataset.dir='{folder}'", "--html", str(tmp_path / "page.html")])
    notes = [UNUSED, "1 image is in no folder of a class, and left out: cover.png."]
    found = capsys.readouterr().out.splitlines()
    assert [line for line in found if line.startswith("note")] == [f"note      {note}" for note in reversed(notes)]
    assert all(note in (tmp_path / "page.html").read_text() for note in notes)
