"""`etlrun data prepare`: what it writes, that TFDS and runs read it, and that it ends the same after a kill."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

from etlrun.datasets.prepare import prepare
from etlrun.datasets.prepare.check import DIGEST, Image, assigned, digest_of, identical, in_order
from etlrun.system.files import alone
from etlrun.system.machine import cores
from tests.disks import fill, mounted
from tests.golden import Case, Golden, Says, cases
from tests.own import content, examples, labelled, prepared, refused, stamps, write_photos
from tests.pictures import jpeg
from tests.runs import complete_here, emulated


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_groups_are_those_of_a_dictionary(count: int) -> None:
    random = np.random.default_rng(count)
    contents, labels, splits = (random.integers(0, most, count) for most in (150, 2, 2))
    digests = np.array([digest_of(bytes([of])) for of in contents], DIGEST)
    of_content: dict[int, list[int]] = {}
    for number, of in enumerate(contents):
        of_content.setdefault(int(of), []).append(number)
    wanted = [group for group in of_content.values() if len(group) > 1]
    found = identical(digests, labels, splits)
    assert [found.members(group).tolist() for group in range(len(found.starts))] == wanted
    assert found.is_across.tolist() == [len(set(splits[group])) > 1 for group in wanted]
    assert found.is_conflicting.tolist() == [len(set(labels[group])) > 1 for group in wanted]


def test_few_items_are_taken_before_a_result_is() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    for place, result in enumerate(in_order(lambda number: number * number, items())):
        assert result == place * place
        assert len(taken) <= min(place + 2 * cores(), 1000)
    assert len(taken) == 1000


def test_an_error_of_the_work_ends_it() -> None:
    results = in_order(lambda number: 1 // (5 - number), range(1000))
    with pytest.raises(ZeroDivisionError):
        list(results)


EXISTS = "version 1.0.0 of own, which is never overwritten"


def test_tfds_reads_what_is_prepared(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", splits=("train", "validation"))
    prepared(source, tmp_path / "data", "--shards", "3")
    data, info = tfds.load(
        "own", data_dir=tmp_path / "data", with_info=True, decoders={"image": tfds.decode.SkipDecoding()}
    )
    assert info.features["label"].names == ["cross", "disc"]
    assert info.features["image"].shape == (None, None, 3)
    assert (str(info.version), info.supervised_keys) == ("1.0.0", ("image", "label"))
    assert {name: split.shard_lengths for name, split in info.splits.items()} == {
        "train": [4, 4, 4],
        "validation": [4, 4, 4],
    }
    for split in ("train", "validation"):
        read = {(example["image"], example["label"]) for example in data[split].as_numpy_iterator()}
        assert read == labelled(source / split)
    images = tfds.load("own", data_dir=tmp_path / "data", split="train[:2]", as_supervised=True)
    assert [image.shape for image, _ in images] == [(40, 48, 3), (40, 48, 3)]


def test_the_printed_command_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos", splits=("train", "val"))
    (source / "train" / "disc" / "notes.txt").write_text("none")
    prepared(source, tmp_path / "data")
    says(re.sub(r" +\n| +$", "\n", capsys.readouterr().out))
    command = (
        f"dataset=tfds dataset.name=own dataset.version=1.0.0 dataset.data_dir={tmp_path / 'data'} "
        "dataset.split=train dataset.eval_split=val"
    )
    complete_here(tmp_path / "run", emulated(tmp_path / "data", *command.split()))


@pytest.mark.smoke
def test_without_splits_the_command_slices(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos")
    prepared(source, tmp_path / "data dir")
    says(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.smoke
def test_the_source_is_not_touched(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    before = stamps(source), content(source)
    prepared(source, tmp_path / "data", "--split", "train=75,validation=25")
    assert (stamps(source), content(source)) == before


def test_files_with_other_names_give_the_same_bytes(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 30)
    options = ("--split", "train=80,test=20", "--shards", "2")
    one = content(prepared(source, tmp_path / "one", *options))
    for place, path in enumerate(sorted(source.rglob("*.jpg"))):
        path.rename(path.with_name(f"{97 * place % 31}-{place}.jpeg"))
    shutil.move(source, tmp_path / "moved")
    assert content(prepared(tmp_path / "moved", tmp_path / "two", *options)) == one
    assert content(prepared(tmp_path / "moved", tmp_path / "three", *options, "--seed", "1")) != one


def test_the_order_mixes_classes_and_depends_on_the_seed(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 40)
    first, second = (
        examples(prepared(source, tmp_path / seed, "--seed", seed, "--shards", "2")) for seed in ("0", "1")
    )
    assert {*first} == {*second} == labelled(source)
    assert first != second
    changes = sum(one[1] != other[1] for one, other in itertools.pairwise(first))
    assert changes > 10


class KilledError(BaseException):
    """In place of SIGKILL."""


def test_a_run_after_one_that_was_killed_ends_with_the_bytes_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one has left, of which some is not removed in its place, is no part of it."""
    source = write_photos(tmp_path / "photos", 24)
    undisturbed = content(prepared(source, tmp_path / "whole", "--shards", "6"))
    begun = tmp_path / "data" / "own" / "preparing.1.0.0"

    def killed(version: Path, _target: Path) -> None:
        shutil.copytree(version, tmp_path / "left")
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("etlrun.datasets.prepare.prepare.publish", killed)
        with pytest.raises(KilledError):
            prepared(source, tmp_path / "data", "--shards", "5")
    assert [*begun.parent.glob("[!.]*")] == []
    shutil.copytree(tmp_path / "left", begun / "version")
    (begun / "unpacked").mkdir()
    assert content(prepared(source, tmp_path / "data", "--shards", "6")) == undisturbed
    assert not begun.exists()


def test_a_version_that_exists_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos")
    folder = prepared(source, tmp_path / "data")
    before = stamps(folder)
    capsys.readouterr()
    says(refused(capsys, source, tmp_path / "data", "--seed", "1"))
    assert stamps(folder) == before


def test_of_two_commands_one_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos")
    family = tmp_path / "data" / "own"
    family.mkdir(parents=True)
    ended: list[BaseException] = []

    def second() -> None:
        try:
            prepared(source, tmp_path / "data")
        except SystemExit as end:
            ended.append(end)

    with alone(family / ".etlrun.lock"):
        thread = threading.Thread(target=second)
        thread.start()
        err = ""
        while thread.is_alive() and "waiting" not in err:
            thread.join(0.05)
            err += capsys.readouterr().err
        (family / "1.0.0").mkdir()
    thread.join()
    assert err == "etlrun: another command is preparing own; waiting for it\n"
    assert len(ended) == 1
    assert EXISTS in capsys.readouterr().err
    assert [*(family / "1.0.0").iterdir()] == []


def test_a_full_disk_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos", 24)
    undisturbed = content(prepared(source, tmp_path / "whole", "--shards", "12"))
    capsys.readouterr()
    with mounted(tmp_path / "disk", "256K") as disk:
        planned = prepare.planned

        def planned_on_a_full_disk(*arguments: Any) -> list[prepare.WrittenShard]:
            filler = fill(disk)
            os.truncate(filler, filler.stat().st_size - 64 * 1024)
            return planned(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(prepare, "planned", planned_on_a_full_disk)
            message = refused(capsys, source, disk, "--shards", "12")
        says(message)
        assert [*(disk / "own").glob("[!.]*")] == []
        (disk / "filler").unlink()
        assert content(prepared(source, disk, "--shards", "12")) == undisturbed


def test_a_file_that_changes_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos")
    read, changed = prepare._read, source / "disc" / "4.jpg"

    def changing(*arguments: object) -> bytes:
        changed.write_bytes(b"other")
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "_read", changing)
    says(refused(capsys, source, tmp_path / "data"))


def test_shards_are_as_large_as_asked_and_never_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_photos(tmp_path / "photos", 6)
    monkeypatch.setattr(prepare, "LARGEST_SHARD_BYTES", 8_000)
    sizes = [path.stat().st_size for path in prepared(source, tmp_path / "data").glob("*.tfrecord-*")]
    assert len(sizes) > 1
    assert max(sizes) < 8_200
    few = prepared(source, tmp_path / "few", "--shards", "50")
    assert len([*few.glob("*-of-00006")]) == len([*few.glob("*.tfrecord-*")]) == 6


def test_real_photos(photos: Path, tmp_path: Path) -> None:
    cats = tfds.builder("cats_vs_dogs", data_dir=photos)
    for number, example in enumerate(
        tfds.load("cats_vs_dogs", data_dir=photos, split="train[:40]", decoders={"image": tfds.decode.SkipDecoding()})
    ):
        path = tmp_path / "pets" / cats.info.features["label"].int2str(int(example["label"])) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(example["image"].numpy())
    folder = prepared(tmp_path / "pets", tmp_path / "data", "--split", "train=80,validation=20")
    found = [*examples(folder), *examples(folder, "validation")]
    assert (len(found), {*found}) == (40, labelled(tmp_path / "pets", ("cat", "dog")))


def images(counts: dict[int, int]) -> list[Image]:
    return [
        Image(path="", digest=f"{label}-{number}", label=label, split="train", size=1)
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


def test_identical_images_are_in_the_same_split(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 20)
    for number in range(0, 20, 2):
        shutil.copy(source / "disc" / f"{number}.jpg", source / "disc" / f"copy of {number}.jpg")
    shutil.copy(source / "disc" / "0.jpg", source / "cross" / "also.jpg")
    folder = prepared(source, tmp_path / "data", "--split", "train=60,test=40")
    train, test = ({image for image, _ in examples(folder, split)} for split in ("train", "test"))
    assert (len(train | test), train & test) == (20, set())
    assert 4 <= len(test) <= 10


def test_percents_replace_the_source_s_splits(tmp_path: Path) -> None:
    whole = write_photos(tmp_path / "whole", 24)
    divided = write_photos(tmp_path / "divided", splits=("train", "test"))
    options = ("--split", "fitting=50,holdout=50")
    found = content(prepared(divided, tmp_path / "two", *options))
    assert found == content(prepared(whole, tmp_path / "one", *options))
    assert {name.partition(".")[0] for name in found if "tfrecord" in name} == {"own-fitting", "own-holdout"}


def test_a_split_without_examples_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos", 4)
    says(refused(capsys, source, tmp_path / "data", "--split", "train=98,test=1,rest=1"))


@pytest.mark.parametrize("case", cases("prepare"))
def test_arguments_are_refused_all_at_once(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    golden(case, "\n".join(refused(capsys, tmp_path / "photos", tmp_path, *case["words"], status=2)))
    assert [*tmp_path.iterdir()] == []


def test_names_of_other_datasets_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos", 2)
    says(refused(capsys, source, tmp_path / "data", "--name", "tf_flowers"))
    own = refused(capsys, source, tmp_path / "data", "--name", "etlrun_sample", status=2)
    assert own[1] == "  --name: found etlrun_sample, which is the sample dataset; expected a name of its own"


def a_text(source: Path) -> None:
    shutil.rmtree(source)
    source.write_text("text")


def with_a_space_at_its_end(source: Path) -> None:
    (source / "disc").rename(source / "disc ")


@pytest.mark.parametrize("harm", [with_a_space_at_its_end, shutil.rmtree, a_text])
def test_a_folder_that_is_refused(
    harm: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    harm(source)
    says(refused(capsys, source, tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_names_with_spaces_and_other_alphabets(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc").rename(source / "große Scheibe 円")
    (source / "cross" / "1.jpg").rename(source / "cross" / "a\nb c ö.JPEG")
    folder = prepared(source, tmp_path / "data")
    assert {*examples(folder)} == labelled(source, ("cross", "große Scheibe 円")) | {(jpeg(1), 0)}
    assert (folder / "label.labels.txt").read_text(encoding="utf-8").splitlines() == ["cross", "große Scheibe 円"]


@pytest.mark.slow
def test_a_file_without_permission_is_named(tmp_path: Path, says: Says) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv, with which root gives up its right to read everything")
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "2.jpg").chmod(0)
    own = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    words = ["prepare", str(source), "--name", "own", "--data-dir", str(tmp_path / "data"), "--on-corrupt", "skip"]
    command = [*own, sys.executable, "-m", "etlrun", "data", *words]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 1
    says(answer.stderr)  # and no line of TensorFlow's


def test_data_are_not_written_into_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    source = write_photos(tmp_path / "photos", 4)
    says(refused(capsys, source, source / "disc"))


def test_labels_that_are_numbers_are_sorted_as_such(tmp_path: Path) -> None:
    source = tmp_path / "photos"
    for place, label in enumerate(("10", "9", "100")):
        (source / label).mkdir(parents=True)
        (source / label / "1.jpg").write_bytes(jpeg(place))
    folder = prepared(source, tmp_path / "data")
    assert tfds.builder_from_directory(folder).info.features["label"].names == ["9", "10", "100"]
