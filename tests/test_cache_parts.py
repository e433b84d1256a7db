"""Caches of more parts than a process may have open."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from etlrun.cache import parts
from etlrun.cache.store import Opened, Store
from tests.stores import KEY, published

PICTURES = np.random.default_rng(0).integers(0, 256, (200, 4, 5, 3), dtype=np.uint8)
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A cache with a part for each image."""
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    store = Store(tmp_path)
    published(store, pictures=PICTURES)
    assert len(list((tmp_path / KEY).glob("part_*.bin"))) == len(PICTURES)
    there = store.open(KEY)
    assert there is not None
    yield there
    there.close()


def open_files(folder: Path) -> int:
    """How many descriptors of this process are of files in the folder."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += link.readlink().is_relative_to(folder)
    return count


def test_more_parts_than_files_may_be_open_are_filled_and_read(tmp_path: Path) -> None:
    code = f"""
import resource
import numpy as np
from etlrun.cache import parts
from etlrun.cache.store import Store
from tests.stores import KEY, published
from tests.test_cache_parts import PICTURES
parts.PART_BYTES = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
store = Store({str(tmp_path)!r})
published(store, pictures=PICTURES)
opened = store.open(KEY)
numbers = np.random.default_rng(0).permutation(len(PICTURES))
pictures, labels = opened.reader.batch(numbers)
assert (pictures == PICTURES[numbers]).all()
assert (labels == numbers).all()
opened.close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
def test_threads_that_read_at_once_never_read_anothers_file(opened: Opened, tmp_path: Path) -> None:
    def read(seed: int) -> bool:
        numbers = np.random.default_rng(seed).permutation(len(PICTURES))
        pictures, labels = opened.reader.batch(numbers)
        return bool((pictures == PICTURES[numbers]).all() and (labels == numbers).all())

    before = open_files(tmp_path)
    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(read, range(100)))
    assert open_files(tmp_path) <= before + 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
def test_no_file_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    store = Store(tmp_path)
    published(store, pictures=PICTURES)
    opened = store.open(KEY)
    assert opened is not None
    opened.reader.batch(np.arange(len(PICTURES)))
    assert 0 < open_files(tmp_path) < 70
    opened.close()
    assert open_files(tmp_path) == 0


def test_what_is_open_outlasts_a_removal(opened: Opened, tmp_path: Path) -> None:
    """A reader that found a broken byte has the cache removed while others read."""
    assert Store(tmp_path).remove(KEY, broken=opened.inode)
    np.testing.assert_array_equal(opened.reader.one(0)[0], PICTURES[0])
    with pytest.raises(FileNotFoundError):
        opened.reader.one(len(PICTURES) - 1)
