"""Datasets that `etlrun prepare` writes to a store: the bytes of those on this machine, whole or not to be found."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from tests.buckets import Bucket, store
from tests.configs import plan_of
from tests.own import SMALL, batches, content, prepared, write_photos

__all__ = ["store"]
pytestmark = pytest.mark.needs("moto")
DATA = "s3://bucket/data"
OWN = "data/own/1.0.0"
OPTIONS = ("--split", "train=75,validation=25", "--shards", "3")
SHARDS = [
    f"{OWN}/own-{split}.tfrecord-0000{number}-of-00003" for split in ("train", "validation") for number in range(3)
]


def to_store(source: Path, *options: str) -> None:
    cli.main(["prepare", str(source), "--name", "own", "--data-dir", DATA, *OPTIONS, *options])


def downloaded(store: Bucket, folder: Path) -> dict[str, bytes]:
    for name in store.names():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        store.files.get(f"bucket/{name}", str(folder / name))
    return content(folder / OWN)


def refused(capsys: pytest.CaptureFixture[str], source: Path, data_dir: str = DATA) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["prepare", str(source), "--name", "own", "--data-dir", data_dir])
    assert ended.value.code in (1, 2)
    return capsys.readouterr().err.partition("\n  ")[2]


def test_a_store_has_the_files_that_a_folder_has(
    store: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos")
    here = prepared(source, tmp_path / "data", *OPTIONS)
    table = capsys.readouterr().out.partition("folder")[0]
    to_store(source)
    command = f"""python -m etlrun dataset=tfds dataset.name=own 'dataset.data_dir="{DATA}"' dataset.split=train"""
    assert capsys.readouterr().out == (
        f"{table}folder    {DATA}/own/1.0.0\ntrain     {command} dataset.eval_split=validation\n"
    )
    assert downloaded(store, tmp_path / "got") == content(here)
    assert (sorted(store.written[:6]), store.written[-1]) == (SHARDS, f"{OWN}/dataset_info.json")
    words = ("dataset=tfds", "dataset.name=own", "dataset.split=train", "dataset.eval_split=validation", *SMALL)
    of_store = plan_of(*words, f"dataset.data_dir={DATA}", f"dataset.copies={tmp_path / 'copies'}")
    assert batches(of_store) == batches(plan_of(*words, f"dataset.data_dir={tmp_path / 'data'}"))
    builder = tfds.builder_from_directory(tmp_path / "got" / OWN)
    assert builder.info.splits["train"].shard_lengths == [3, 3, 3]
    assert refused(capsys, source) == (
        f"{DATA}/own/1.0.0: found version 1.0.0 of own, which is never overwritten; expected a version that doesn't "
        "exist\n    -> choose another version, such as --version 1.0.1\n"
    )
    to_store(source, "--version", "1.0.1")
    assert "dataset.version=1.0.1" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_killed_command_has_published_is_not_published_again(store: Bucket, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    command = [sys.executable, "-m", "etlrun", "prepare", str(source), "--name", "own", "--data-dir", DATA, *OPTIONS]
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
    missing = {*SHARDS} - {*before[1:]}
    assert sorted(store.written[: len(missing)]) == sorted(missing)
    assert downloaded(store, tmp_path / "got") == content(prepared(source, tmp_path / "data", *OPTIONS))


def test_no_part_of_a_dataset_is_found_where_a_store_refuses(
    store: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos")
    store.statuses = [403]
    found = refused(capsys, source)
    assert found == (
        f"{DATA}/own/1.0.0/own-train.tfrecord-00000-of-00001: found 403 Forbidden; expected credentials that may list "
        "and write there\n    -> set those that the library of the store reads\n"
    )
    assert store.names() == []
    assert refused(capsys, source, "s3://me:abc@bucket/data") == (
        "--data-dir: found s3://...@bucket/data; expected a URL without credentials, which summaries and pages would "
        "tell\n    -> let the library of the store find credentials, as in the environment\n"
    )
    assert refused(capsys, source, "https://host/data") == (
        "https://host/data/own/1.0.0: found the scheme https; expected s3:// or gs://, whose objects appear whole\n"
        "    -> write here, and copy it there\n"
    )
