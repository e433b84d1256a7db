"""`etlrun prepare`: splits by percent, and images that occur more than once."""

import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from etlrun.datasets.prepare.check import Image, assigned
from etlrun.datasets.prepare.source import Entry
from tests.own import content, examples, prepared, refused, write_photos


def images(counts: dict[int, int]) -> list[Image]:
    entry = Entry(path="", label="", split="train", size=1)
    return [
        Image(entry=entry, digest=f"{label}-{number}", label=label, split="train")
        for label, count in counts.items()
        for number in range(count)
    ]


def shares(found: list[Image]) -> dict[int, Counter[str]]:
    return {label: Counter(of.split for of in found if of.label == label) for label in {of.label for of in found}}


THREE = {"train": Decimal(70), "validation": Decimal("17.5"), "test": Decimal("12.5")}


def test_each_class_is_divided_by_the_percents() -> None:
    found = shares(assigned(images({0: 400, 1: 40}), THREE, 0))
    assert found == {0: {"train": 280, "validation": 70, "test": 50}, 1: {"train": 28, "validation": 7, "test": 5}}


def test_what_percents_leave_over_in_small_classes_adds_up() -> None:
    found = assigned(images(dict.fromkeys(range(100), 2)), {"train": Decimal(75), "test": Decimal(25)}, 0)
    assert Counter(of.split for of in found) == {"train": 150, "test": 50}
    assert all(share["train"] for share in shares(found).values())


@pytest.mark.parametrize("seed", range(5))
def test_a_class_of_one_image_is_in_the_first_split(seed: int) -> None:
    found = shares(assigned(images(dict.fromkeys(range(30), 1)), THREE, seed))
    assert all(share == {"train": 1} for share in found.values())


def test_a_split_depends_on_content_and_seed_alone() -> None:
    one = images({0: 50, 1: 50})
    other = sorted(one, key=lambda image: image.digest[::-1])
    split_of = {of.digest: of.split for of in assigned(one, THREE, 0)}
    assert {of.digest: of.split for of in assigned(other, THREE, 0)} == split_of
    assert {of.digest: of.split for of in assigned(one, THREE, 1)} != split_of


def test_identical_images_are_in_the_same_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 20)
    for number in range(0, 20, 2):
        shutil.copy(source / "disc" / f"{number}.jpg", source / "disc" / f"copy of {number}.jpg")
    shutil.copy(source / "disc" / "0.jpg", source / "cross" / "also.jpg")
    folder = prepared(source, tmp_path / "data", "--split", "train=60,test=40")
    train, test = ({image for image, _ in examples(folder, split)} for split in ("train", "test"))
    assert (len(train | test), train & test) == (20, set())
    assert 4 <= len(test) <= 10
    out = capsys.readouterr().out
    assert "leakage" not in out
    assert "note      images identical to another one in the same split: 10\n" in out
    assert (
        "labels    identical images with several labels: 1\n"
        "          cross/also.jpg (cross) = disc/0.jpg (disc) = disc/copy of 0.jpg (disc)\n"
    ) in out.replace("disc/copy of 0.jpg (disc) = disc/0.jpg (disc)", "disc/0.jpg (disc) = disc/copy of 0.jpg (disc)")


def test_identical_images_across_the_source_s_splits_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", splits=("train", "test"))
    shutil.copy(source / "train" / "disc" / "2.jpg", source / "test" / "disc" / "other.jpg")
    folder = prepared(source, tmp_path / "data")
    assert (len(examples(folder)), len(examples(folder, "test"))) == (12, 13)
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[3:5]
        == [
            "leakage   identical images in several splits: 1",
            "          train/disc/2.jpg (train) = test/disc/other.jpg (test)",
        ]
        or lines[4] == "          test/disc/other.jpg (test) = train/disc/2.jpg (train)"
    )


def test_percents_replace_the_source_s_splits(tmp_path: Path) -> None:
    whole = write_photos(tmp_path / "whole", 24)
    divided = write_photos(tmp_path / "divided", splits=("train", "test"))
    options = ("--split", "fitting=50,holdout=50")
    found = content(prepared(divided, tmp_path / "two", *options))
    assert found == content(prepared(whole, tmp_path / "one", *options))
    assert {name.partition(".")[0] for name in found if "tfrecord" in name} == {"own-fitting", "own-holdout"}


def test_a_split_without_examples_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    assert refused(capsys, source, tmp_path / "data", "--split", "train=98,test=1,rest=1") == [
        "etlrun: 1 fault",
        "  --split: found no examples for test, rest among 4 images; expected examples for each split",
        "    -> choose other percents or more images",
    ]
