"""What is known of files is kept between processes, and never believed of a file that has changed."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import platformdirs
import pytest

from etlrun.sources import content as records
from etlrun.sources.content import Content, Shard
from tests import pictures


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(records, "SETTLED_NS", 0)


@pytest.fixture
def data(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "data"))


def content_of(folder: Path) -> Content:
    shards = sorted(folder.rglob("*.tfrecord-*"))
    return Content([Shard(path=str(path), skip=0, take=pictures.NUM_EXAMPLES // len(shards)) for path in shards])


def database() -> Path:
    return platformdirs.user_cache_path("etlrun") / "records.sqlite"


def rows() -> int:
    with closing(sqlite3.connect(database())) as opened, opened:
        return int(opened.execute("SELECT COUNT(*) FROM files").fetchone()[0])


@pytest.fixture
def later_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists the files that are read; the next content is that of a process which has read none."""
    read: list[str] = []
    from etlrun.sources import content

    for name in ("framing", "sha256_of_all"):
        real = getattr(content, name)

        def spy(path: str, real: records.Read = real) -> bytes | None:
            read.append(Path(path).name)
            return real(path)

        spy.__name__ = name
        monkeypatch.setattr(content, name, spy)
    monkeypatch.setattr(records, "_in_process", {})
    return read


@pytest.mark.parametrize("whole", [False, True])
def test_a_later_process_reads_no_file_again(
    data: Path, later_process: list[str], monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    first = content_of(data).files(whole=whole)
    assert len(later_process) == pictures.SHARDS
    monkeypatch.setattr(records, "_in_process", {})
    assert content_of(data).files(whole=whole) == first
    assert len(later_process) == rows() == pictures.SHARDS


def test_a_file_that_has_changed_is_read_again(
    data: Path, later_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = content_of(data).digest
    changed, other = sorted(data.rglob("*.tfrecord-*"))[:2]
    changed.write_bytes(other.read_bytes())
    later_process.clear()
    monkeypatch.setattr(records, "_in_process", {})
    assert content_of(data).digest != first
    assert later_process == [changed.name]
    assert rows() == pictures.SHARDS


def test_a_file_that_changed_a_moment_ago_is_not_kept(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SETTLED_NS", 3_600_000_000_000)
    assert content_of(data).digest
    assert rows() == 0


@pytest.mark.parametrize("broken", [b"", b"no database at all, but a text of some length" * 40, None, 4096])
def test_a_broken_database_costs_reading_and_is_made_again(
    data: Path, later_process: list[str], monkeypatch: pytest.MonkeyPatch, broken: bytes | int | None
) -> None:
    first = content_of(data).digest
    if broken is None:
        with closing(sqlite3.connect(database())) as opened, opened:
            opened.execute("UPDATE files SET value = x'00'")
    elif isinstance(broken, int):  # all after the first page
        content = database().read_bytes()
        database().write_bytes(content[:broken] + b"\xff" * (len(content) - broken))
    else:
        database().write_bytes(broken)
    for _ in range(2):
        monkeypatch.setattr(records, "_in_process", {})
        assert content_of(data).digest == first
    assert len(later_process) >= 2 * pictures.SHARDS
    monkeypatch.setattr(records, "_in_process", {})
    later_process.clear()
    assert content_of(data).digest == first
    assert (later_process, rows()) == ([], pictures.SHARDS)


def test_without_a_folder_that_can_be_written_each_process_reads(
    data: Path, later_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database().parent.parent.write_text("a file where the folder would be")
    first = content_of(data).digest
    monkeypatch.setattr(records, "_in_process", {})
    assert content_of(data).digest == first
    assert len(later_process) == 2 * pictures.SHARDS


def test_a_busy_database_is_not_waited_for_long(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = content_of(data).digest
    monkeypatch.setattr(records, "_BUSY_S", 0.05)
    with closing(sqlite3.connect(database())) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(records, "_in_process", {})
        assert content_of(data).digest == first
