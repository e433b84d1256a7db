"""`etlrun prepare`: what is wrong with arguments and folders, each with its file and a remedy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.own import examples, labelled, prepared, refused, write_photos
from tests.pictures import jpeg


def test_arguments_are_refused_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--version", "1.02.3", "--split", "train=80,all=x", "--shards", "0", "--seed", "-1")
    wrong = ("--name", "Wild Flowers", *options, "--features", "image=a")
    assert refused(capsys, tmp_path / "photos", tmp_path, *wrong, status=2) == [
        "etlrun: 7 faults",
        "  --name: found 'Wild Flowers'; expected lower-case letters, digits and underscores, a letter first",
        "    -> write --name wild_flowers",
        "  --version: found '1.02.3'; expected three numbers without leading zeros",
        "    -> write a version such as --version 1.0.0",
        "  --split: found the name 'all'; expected a letter, followed by letters, digits and underscores, and not all",
        "  --split: found all=x; expected a positive number of percent",
        "  --shards: found '0'; expected an integer from 1 to 99,999",
        "  --seed: found '-1'; expected an integer from 0 to 9,223,372,036,854,775,807",
        "  --features: found 'image=a'; expected image=KEY,label=KEY, the keys of the TFRecords' examples",
    ]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["1st", "class\n", "blüten", "a-b", ""])
def test_a_name_is_an_identifier(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = refused(capsys, tmp_path / "photos", tmp_path, "--name", name, status=2)[1]
    assert found == f"  --name: found {name!r}; expected lower-case letters, digits and underscores, a letter first"


@pytest.mark.parametrize(
    ("split", "found"),
    [
        ("train=80,test=30", "train=80,test=30, which is 110 percent in all; expected 100 percent in all"),
        ("train=50,train=50", "train=50,train=50; expected each split once"),
        ("train=100,test=0", "test=0; expected a positive number of percent"),
        ("train=inf,test=1", "train=inf; expected a positive number of percent"),
    ],
)
def test_percents(split: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, tmp_path, tmp_path, "--split", split, status=2)[1] == f"  --split: found {found}"


def test_names_of_other_datasets_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 2)
    assert refused(capsys, source, tmp_path / "data", "--name", "tf_flowers") == [
        "etlrun: 1 fault",
        "  --name: found tf_flowers, which is a dataset of TFDS; expected a name of its own",
        "    -> choose another name, such as --name my_tf_flowers",
    ]
    own = refused(capsys, source, tmp_path / "data", "--name", "etlrun_sample", status=2)
    assert own[1] == "  --name: found etlrun_sample, which is the sample dataset; expected a name of its own"


def empty(source: Path) -> None:
    shutil.rmtree(source)
    source.mkdir()


def of_one_class(source: Path) -> None:
    shutil.rmtree(source / "disc")


def in_two_cases(source: Path) -> None:
    shutil.copytree(source / "disc", source / "DISC")


def with_a_newline(source: Path) -> None:
    (source / "disc").rename(source / "di\nsc")


def with_a_space_at_its_end(source: Path) -> None:
    (source / "disc").rename(source / "disc ")


def in_a_circle(source: Path) -> None:
    (source / "disc" / "more").symlink_to(source)


def gone(source: Path) -> None:
    shutil.rmtree(source)


def a_text(source: Path) -> None:
    shutil.rmtree(source)
    source.write_text("text")


KINDS = "a folder of classes, a list (.csv or .jsonl), an archive (.zip, .tar, .tar.gz), or TFRecords"
CLASSES = "a folder for each of at least two classes\n    -> name the folder above those of the classes"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (empty, f"SOURCE: found no images; expected {CLASSES}"),
        (of_one_class, f"SOURCE: found images of one class, cross; expected {CLASSES}"),
        (
            in_two_cases,
            (
                "SOURCE: found the classes DISC and disc, which differ in case alone; expected names that differ on "
                "every file system\n    -> merge or rename them"
            ),
        ),
        (
            with_a_newline,
            (
                "SOURCE/di\\nsc: found an unprintable character in the name of a class; expected a name that a list of "
                "classes, one a line, can hold\n    -> rename the folder"
            ),
        ),
        (
            with_a_space_at_its_end,
            (
                "SOURCE: found the class 'disc '; expected a printable name that neither begins nor ends with a space\n"
                "    -> rename the class"
            ),
        ),
        (
            in_a_circle,
            (
                "SOURCE/disc/more: found a link to a folder above it; expected folders without a circle\n"
                "    -> remove the link"
            ),
        ),
        (
            gone,
            (
                f"SOURCE: found no such file or folder; expected {KINDS}\n"
                "    -> add --features image=KEY,label=KEY for a pattern of TFRecords, or check the path"
            ),
        ),
        (
            a_text,
            (
                f"SOURCE: found a file of another kind; expected {KINDS}\n    -> add --features image=KEY,label=KEY if "
                "these are TFRecords; download or pack a damaged archive again"
            ),
        ),
    ],
)
def test_a_folder_that_is_refused(
    harm: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    harm(source)
    found = refused(capsys, source, tmp_path / "data")
    assert found[0].startswith("etlrun: ")
    assert message in "\n".join(found)
    assert not (tmp_path / "data").exists()


def test_names_with_spaces_and_other_alphabets(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc").rename(source / "große Scheibe 円")
    (source / "cross" / "1.jpg").rename(source / "cross" / "a\nb c ö.JPEG")
    folder = prepared(source, tmp_path / "data")
    assert {*examples(folder)} == labelled(source, ("cross", "große Scheibe 円")) | {(jpeg(1), 0)}
    assert (folder / "label.labels.txt").read_text(encoding="utf-8").splitlines() == ["cross", "große Scheibe 円"]


@pytest.mark.slow
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv, with which root gives up its right to read everything")
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "2.jpg").chmod(0)
    own = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    words = ["prepare", str(source), "--name", "own", "--data-dir", str(tmp_path / "data"), "--on-corrupt", "skip"]
    command = [*own, sys.executable, "-m", "etlrun", *words]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 1
    assert answer.stderr == (
        f"etlrun: 1 fault\n  {source}/disc/2.jpg: found Permission denied; expected an image file\n"
        "    -> check its permissions and its storage\n"
    )  # and no line of TensorFlow's


def test_data_are_not_written_into_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    assert refused(capsys, source, source / "disc") == [
        "etlrun: 1 fault",
        "  --data-dir: found SOURCE/disc, in the source; expected a folder outside of it",
        "    -> choose another --data-dir",
    ]
