"""`etlrun prepare`: what it writes, that TFDS and runs read it, and that it ends the same after a kill."""

import itertools
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.datasets.prepare import shards
from etlrun.system.files import alone
from tests.disks import fill, mounted
from tests.own import content, examples, labelled, prepared, refused, stamps, write_photos
from tests.runs import emulated, run_here

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


def test_the_printed_command_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", splits=("train", "val"))
    (source / "train" / "disc" / "notes.txt").write_text("none")
    folder = prepared(source, tmp_path / "data")
    text = re.sub(r" +\n| +$", "\n", capsys.readouterr().out)
    command = (
        f"dataset=tfds dataset.name=own dataset.data_dir={tmp_path / 'data'} dataset.split=train dataset.eval_split=val"
    )
    mb = (folder / "own-train.tfrecord-00000-of-00001").stat().st_size / 1e6
    assert text.splitlines() == [
        "split  examples  shards  classes   MB",
        f"train        12       1        2  {mb:.1f}",
        f"val          12       1        2  {mb:.1f}",
        "ignored   files without the suffix of an image: 1",
        "          train/disc/notes.txt",
        f"folder    {folder}",
        f"train     python -m etlrun {command}",
    ]
    status, summary = run_here(tmp_path / "run", emulated(tmp_path / "data", *command.split()))
    assert (status, summary["status"]) == (0, "completed")


def test_without_splits_the_command_slices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos")
    prepared(source, tmp_path / "data dir")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"""train     python -m etlrun dataset=tfds dataset.name=own 'dataset.data_dir="{tmp_path}/data dir"' """
        """'dataset.split="train[:80%]"' 'dataset.eval_split="train[80%:]"'"""
    )
    prepared(source, tmp_path / "data", "--version", "0.9.0")
    capsys.readouterr()
    prepared(source, tmp_path / "data")
    assert " dataset.version=1.0.0 " in capsys.readouterr().out


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


def test_a_version_that_exists_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos")
    folder = prepared(source, tmp_path / "data")
    before = stamps(folder)
    capsys.readouterr()
    assert refused(capsys, source, tmp_path / "data", "--seed", "1") == [
        "etlrun: 1 fault",
        f"  DATA/own/1.0.0: found {EXISTS}; expected a version that doesn't exist",
        "    -> choose another version, such as --version 1.0.1",
    ]
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


def test_space_is_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos")
    with mounted(tmp_path / "disk", "12K") as disk:
        message = refused(capsys, source, disk)
        assert [re.sub(r"\d+ kB", "SIZE", line) for line in message] == [
            "etlrun: 1 fault",
            "  DATA/own: found SIZE of free disk space; expected SIZE for 12 images",
            "    -> free disk space, or choose another --data-dir",
        ]
        assert [*(disk / "own").glob("preparing*/*")] == []


def test_a_full_disk_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", 24)
    undisturbed = content(prepared(source, tmp_path / "whole", "--shards", "12"))
    capsys.readouterr()
    with mounted(tmp_path / "disk", "256K") as disk:
        with monkeypatch.context() as patch:
            patch.setattr("etlrun.datasets.prepare.prepare.require_space", lambda *_: _take(disk, 64 * 1024))
            message = refused(capsys, source, disk, "--shards", "12")
        space = "expected a folder that can be written to, with space for the images"
        assert message == [
            "etlrun: 1 fault",
            f"  DATA/own: found No space left on device; {space}",
            "    -> free disk space, and run the same command again",
        ]
        assert [*(disk / "own").glob("[!.]*")] == []
        (disk / "filler").unlink()
        assert content(prepared(source, disk, "--shards", "12")) == undisturbed


def _take(disk: Path, left: int) -> None:
    """Leave so many bytes on a disk."""
    filler = fill(disk)
    os.truncate(filler, filler.stat().st_size - left)


def test_a_file_that_changes_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos")
    read, changed = shards._read, source / "disc" / "4.jpg"

    def changing(*arguments: object) -> bytes:
        changed.write_bytes(b"other")
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(shards, "_read", changing)
    assert refused(capsys, source, tmp_path / "data") == [
        "etlrun: 1 fault",
        "  SOURCE/disc/4.jpg: found other content than a moment ago; expected the file that was checked",
        "    -> run the command again, while nothing else writes to the source",
    ]


def test_shards_are_as_large_as_asked_and_never_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_photos(tmp_path / "photos", 6)
    monkeypatch.setattr(shards, "LARGEST_SHARD_BYTES", 8_000)
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
