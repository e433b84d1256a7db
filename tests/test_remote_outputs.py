"""Predictions, exports and prepared datasets appear whole in a store, in the place of nothing, or stay here."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from etlrun.remote import transfers
from etlrun.remote.copies import Copies
from etlrun.remote.objects import looked_up
from etlrun.remote.transfers import put, put_all, there
from etlrun.system.errors import EtlrunError
from tests.buckets import Bucket, store
from tests.configs import plan_of, raised
from tests.golden import Says
from tests.own import SMALL, batches, content, prepared, write_photos
from tests.pictures import jpeg
from tests.trained import refused, said

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


def refusal(files: list[tuple[Path, str]]) -> str:
    return raised(EtlrunError, put_all, files, {})


def test_a_folder_appears_with_its_last_file(store: Bucket, files: list[tuple[Path, str]]) -> None:
    put_all(files, {})
    assert store.names() == ["out/a", "out/b", "out/last"]
    assert store.written[-1] == "out/last"
    assert [store.files.cat(url) for _, url in files] == [b"a", b"b", b"last"]


def test_a_store_that_is_busy_is_asked_again(store: Bucket, files: list[tuple[Path, str]]) -> None:
    store.statuses = [503, 500, 0]
    put_all(files, {})
    assert sorted(store.written) == ["out/a", "out/b", "out/last"]  # also that whose answer was lost


def test_a_store_that_stays_busy_is_given_up(
    store: Bucket, files: list[tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LONGEST_S", 0.0)
    put(*files[0], {})
    store.statuses = [503] * 1_000
    assert re.fullmatch(
        r"s3://bucket/out/b: found no success in 0 s of tries, at last: .*; expected a store that takes it\n"
        "    -> run it again",
        refusal(files[1:]),
    )
    assert store.names() == ["out/a"]


def test_a_store_that_refuses_is_not_asked_again_and_has_nothing(
    store: Bucket, files: list[tuple[Path, str]], says: Says
) -> None:
    put(*files[0], {})
    before = [*store.written]
    store.statuses = [403]
    says(refusal(files[1:]))
    assert (store.written, store.statuses) == (before, [])
    last = files[2][1]
    store.files.pipe(last, b"of another")
    says(refusal(files[1:]))
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
    put_all(files, {})
    (path,) = Copies(tmp_path, {}).all([looked_up(files[0][1], {})])
    assert Path(path).read_text() == "a"


@pytest.mark.slow
def test_an_interruption_leaves_nothing(store: Bucket, files: list[tuple[Path, str]]) -> None:
    store.statuses = [None, *[503] * 1_000]

    def interrupt() -> None:
        while not store.written or len(store.statuses) > 998:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        put_all(files, {})
    interrupting.join()
    assert len(store.written) == 1
    assert store.names() == []


@pytest.mark.usefixtures("store")
def test_places_where_nothing_can_be_written_are_known_before(says: Says) -> None:
    for url in ("s3://none/a", "https://host/a"):
        says(raised(EtlrunError, there, url, {}))


def test_predictions_are_read_from_a_bucket_and_written_to_one(
    store: Bucket, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    paths = [tmp_path / "0.jpg", tmp_path / "1.jpg"]
    for number, path in enumerate(paths):
        path.write_bytes(jpeg(number))
        store.files.pipe(f"bucket/photos/{number}.jpg", path.read_bytes())
    said(capsys, "predict", run, "s3://bucket/photos/*.jpg", "--output", "s3://bucket/out/rows.csv")
    here = said(capsys, "predict", run, *paths)
    for number, path in enumerate(paths):
        here = here.replace(str(path), f"s3://bucket/photos/{number}.jpg")
    assert store.files.cat("bucket/out/rows.csv").decode() == here
    for place in ("s3://bucket/out/rows.csv", "s3://bucket/out"):
        says(refused(capsys, "predict", run, "s3://bucket/photos/*.jpg", "--output", place, status=2))
    says(refused(capsys, "predict", run, *paths, "--output", "s3://bucket/rows/", status=2))
    store.statuses = [403]
    found = refused(capsys, "predict", run, "s3://bucket/photos/*.jpg", "--output", "s3://bucket/out/more.csv")
    assert "secret" not in "".join(found)
    kept = re.fullmatch(r"    -> set those .* reads; what was to be written is (.*)", found[1])
    assert kept is not None
    assert Path(kept[1]).read_text() == store.files.cat("bucket/out/rows.csv").decode()
    assert "bucket/out/more.csv" not in store.names()


def test_an_export_is_published_with_its_description_last(
    store: Bucket, run: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    import keras

    place = "s3://bucket/models/one"
    text = said(capsys, "export", run, "--format", "keras", "--output", place)
    says(text.splitlines()[-2:])
    assert store.names() == [f"models/one/{name}" for name in ("export.json", "model.keras", "model_card.md")]
    assert store.written[-1] == "models/one/export.json"
    store.files.get("bucket/models/one/model.keras", f"{run}/got.keras")
    assert keras.saving.load_model(f"{run}/got.keras").name
    says(refused(capsys, "export", run, "--format", "keras", "--output", place)[0])
