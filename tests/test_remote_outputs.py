"""Prepared datasets appear whole in a store, in the place of nothing; predictions and exports are written here."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from etlrun.remote import objects
from etlrun.remote.copies import Copies
from etlrun.remote.objects import looked_up
from tests.buckets import Bucket, store
from tests.configs import plan_of
from tests.golden import Says
from tests.own import SMALL, batches, content, prepared, write_photos
from tests.trained import refused

__all__ = ["store"]
pytestmark = pytest.mark.needs("moto")
DATA = "s3://bucket/data"
OWN = "data/own/1.0.0"
OPTIONS = ("--split", "train=75,validation=25", "--shards", "3")
SHARDS = [
    f"{OWN}/own-{split}.tfrecord-0000{number}-of-00003" for split in ("train", "validation") for number in range(3)
]


def to_store(source: Path, *options: str) -> None:
    cli.main(["data", "prepare", str(source), "--name", "own", "--data-dir", DATA, *OPTIONS, *options])


def downloaded(store: Bucket, folder: Path) -> dict[str, bytes]:
    for name in store.names():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        store.files.get(f"bucket/{name}", str(folder / name))
    return content(folder / OWN)


def unprepared(capsys: pytest.CaptureFixture[str], source: Path, data_dir: str = DATA) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["data", "prepare", str(source), "--name", "own", "--data-dir", data_dir])
    assert ended.value.code in (1, 2)
    return capsys.readouterr().err.partition("\n  ")[2]


def test_a_store_has_the_files_that_a_folder_has(
    store: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos")
    here = prepared(source, tmp_path / "data", *OPTIONS)
    table = capsys.readouterr().out.partition("folder")[0]
    to_store(source)
    command = "python -m etlrun dataset=tfds dataset.name=own dataset.version=1.0.0"
    splits = f"dataset.data_dir={DATA} dataset.split=train dataset.eval_split=validation"
    assert capsys.readouterr().out == f"{table}folder    {DATA}/own/1.0.0\ntrain     {command} {splits}\n"
    assert downloaded(store, tmp_path / "got") == content(here)
    assert (sorted(store.written[:6]), store.written[-1]) == (SHARDS, f"{OWN}/dataset_info.json")
    words = ("dataset=tfds", "dataset.name=own", "dataset.split=train", "dataset.eval_split=validation", *SMALL)
    of_store = plan_of(*words, f"dataset.data_dir={DATA}", f"dataset.copies={tmp_path / 'copies'}")
    assert batches(of_store) == batches(plan_of(*words, f"dataset.data_dir={tmp_path / 'data'}"))
    builder = tfds.builder_from_directory(tmp_path / "got" / OWN)
    assert builder.info.splits["train"].shard_lengths == [3, 3, 3]
    says(unprepared(capsys, source))
    to_store(source, "--version", "1.0.1")
    assert "dataset.version=1.0.1" in capsys.readouterr().out


@pytest.mark.slow
def test_a_command_after_one_that_was_killed_replaces_what_that_has_published(store: Bucket, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    prepare = ["prepare", str(source)]
    command = [sys.executable, "-m", "etlrun", "data", *prepare, "--name", "own", "--data-dir", DATA, *OPTIONS]
    store.most = 3
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not store.is_waiting.wait(0.05):
        pass
    process.send_signal(signal.SIGKILL)
    told = process.communicate()
    assert process.returncode == -signal.SIGKILL, told
    before = [*store.written]
    assert sorted(before) == sorted(store.names()) == sorted({*before} & {*SHARDS})
    store.most = None
    store.files.pipe(f"bucket/{OWN}/own-train.tfrecord-00000-of-00009", b"of another plan")
    store.files.pipe(f"bucket/{before[0]}", b"of another command")
    store.written.clear()
    to_store(source)
    assert downloaded(store, tmp_path / "got") == content(prepared(source, tmp_path / "data", *OPTIONS))


def test_no_part_of_a_dataset_is_found_where_a_store_refuses(
    store: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    source = write_photos(tmp_path / "photos")
    store.statuses = [403]
    found = unprepared(capsys, source)
    says(found)
    assert store.names() == []
    says(unprepared(capsys, source, "s3://me:abc@bucket/data"))
    says(unprepared(capsys, source, "https://host/data"))
    says(unprepared(capsys, source, "s3://none/data"))


def test_a_store_that_is_busy_is_asked_again(store: Bucket, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    store.statuses = [503, 500, 0]
    to_store(source)
    assert (store.statuses, sorted(store.written[:6])) == ([], SHARDS)  # also that whose answer was lost
    assert downloaded(store, tmp_path / "got") == content(prepared(source, tmp_path / "data", *OPTIONS))


def test_a_store_that_stays_busy_is_given_up(
    store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    monkeypatch.setattr(objects, "_PAUSES_S", ())
    store.statuses = [503] * 1_000
    says(unprepared(capsys, write_photos(tmp_path / "photos")))
    assert store.names() == []


def test_objects_that_are_encrypted_have_no_md5(store: Bucket, tmp_path: Path) -> None:
    store.files.pipe("bucket/a", b"a")
    store.is_encrypted = True
    (path,) = Copies(tmp_path, {}).all([looked_up("s3://bucket/a", {})])
    assert Path(path).read_text() == "a"


def test_predictions_and_exports_are_written_on_this_machine(
    run: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    place = ("--output", "s3://bucket/one")
    says(refused(capsys, "predict", run, "dataset.split=train", *place, status=2))
    says(refused(capsys, "export", run, "--format", "keras", *place))
