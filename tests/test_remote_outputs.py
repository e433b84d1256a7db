"""Prepared datasets appear whole in a store, in the place of nothing; predictions and exports are written here."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from etlrun.remote import transfers
from etlrun.remote.copies import Copies
from etlrun.remote.objects import looked_up
from etlrun.remote.transfers import put, there
from etlrun.system.errors import EtlrunError
from tests.buckets import Bucket, store
from tests.configs import plan_of, raised
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
    cli.main(["prepare", str(source), "--name", "own", "--data-dir", DATA, *OPTIONS, *options])


def downloaded(store: Bucket, folder: Path) -> dict[str, bytes]:
    for name in store.names():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        store.files.get(f"bucket/{name}", str(folder / name))
    return content(folder / OWN)


def unprepared(capsys: pytest.CaptureFixture[str], source: Path, data_dir: str = DATA) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["prepare", str(source), "--name", "own", "--data-dir", data_dir])
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
    splits = f"""'dataset.data_dir="{DATA}"' dataset.split=train dataset.eval_split=validation"""
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


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[Path, str]]:
    """Three files, and where they go."""
    found = [(tmp_path / name, f"s3://bucket/out/{name}") for name in ("a", "b", "last")]
    for path, _ in found:
        path.write_text(path.name)
    return found


def refusal(file: tuple[Path, str]) -> str:
    return raised(EtlrunError, put, *file, {})


def test_a_store_that_is_busy_is_asked_again(store: Bucket, files: list[tuple[Path, str]]) -> None:
    store.statuses = [503, 500, 0]
    for file in files:
        put(*file, {})
    assert sorted(store.written) == ["out/a", "out/b", "out/last"]  # also that whose answer was lost
    assert [store.files.cat(url) for _, url in files] == [b"a", b"b", b"last"]


def test_a_store_that_stays_busy_is_given_up(
    store: Bucket, files: list[tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LONGEST_S", 0.0)
    put(*files[0], {})
    store.statuses = [503] * 1_000
    assert re.fullmatch(
        r"s3://bucket/out/b: found no success in 0 s of tries, at last: .*; expected a store that takes it\n"
        "    -> run it again",
        refusal(files[1]),
    )
    assert store.names() == ["out/a"]


def test_a_store_that_refuses_is_not_asked_again_and_has_nothing(
    store: Bucket, files: list[tuple[Path, str]], says: Says
) -> None:
    put(*files[0], {})
    before = [*store.written]
    store.statuses = [403]
    says(refusal(files[1]))
    assert (store.written, store.statuses) == (before, [])
    last = files[2][1]
    store.files.pipe(last, b"of another")
    says(refusal(files[2]))
    assert store.names() == ["out/a", "out/last"]
    assert store.files.cat(last) == b"of another"


def test_an_object_without_an_md5_is_not_taken_for_another_of_its_size(store: Bucket, tmp_path: Path) -> None:
    path, url = tmp_path / "large", "s3://bucket/large"
    path.write_bytes(bytes(11 << 20))
    store.files.put_file(str(path), url, chunksize=5 << 20)  # in parts
    path.write_bytes(b"two" + bytes((11 << 20) - 3))
    with pytest.raises(EtlrunError, match="another object"):
        put(path, url, {})
    put(path, url, {}, replaces=True)
    assert store.files.cat_file(url, end=3) == b"two"


def test_objects_that_are_encrypted_have_no_md5(store: Bucket, files: list[tuple[Path, str]], tmp_path: Path) -> None:
    store.is_encrypted = True
    put(*files[0], {})
    (path,) = Copies(tmp_path, {}).all([looked_up(files[0][1], {})])
    assert Path(path).read_text() == "a"


@pytest.mark.usefixtures("store")
def test_places_where_nothing_can_be_written_are_known_before(says: Says) -> None:
    for url in ("s3://none/a", "https://host/a"):
        says(raised(EtlrunError, there, url, {}))


def test_predictions_and_exports_are_written_on_this_machine(
    run: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    place = ("--output", "s3://bucket/one")
    says(refused(capsys, "predict", run, "dataset.split=train", *place, status=2))
    says(refused(capsys, "export", run, "--format", "keras", *place))
