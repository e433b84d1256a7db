"""Folders of caches that hold other things, too: these are nobody's but their owner's."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from etlrun.cache import parts
from etlrun.cache.store import CacheStore, Identity, Opened, first_difference, nearest
from etlrun.cli import main as cli
from etlrun.record.record import held
from etlrun.system import files
from etlrun.system.errors import WorldError
from tests.commands import complaint
from tests.configs import raised
from tests.golden import Says
from tests.present import present
from tests.runs import emulated
from tests.stores import IDENTITY, KEY, begun, keeper_of, published, started, tree


def test_the_first_difference_is_named() -> None:
    assert first_difference(IDENTITY, IDENTITY) is None
    assert first_difference(IDENTITY, [["dataset", "pictures/1.0.0"], ["size", [4, 6]]]) == ("size", [4, 5], [4, 6])
    assert first_difference(IDENTITY, IDENTITY[:1]) == ("size", [4, 5], None)
    assert first_difference(IDENTITY[:1], IDENTITY) == ("size", None, [4, 5])


def test_the_nearest_cache_has_most_in_common(tmp_path: Path) -> None:
    store = CacheStore(tmp_path / "caches")
    others: list[Identity] = [
        [["dataset", "other"], ["size", [4, 5]], ["flip", True]],
        [["dataset", "pictures/1.0.0"], ["size", [4, 5]], ["flip", True]],
    ]
    keys = [published(store, identity) for identity in others]
    near = present(nearest(IDENTITY, store.entries()))
    assert near.key == keys[1]
    assert nearest(IDENTITY, []) is None


Captured = pytest.CaptureFixture[str]
OTHER = "0123456789abcdef0123"


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore(tmp_path / "caches")


def say(capsys: Captured, *words: str) -> list[str]:
    capsys.readouterr()
    cli.main(["cache", *words])
    return capsys.readouterr().out.splitlines()


def filled(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("mine")


def test_gc_and_ls_leave_alone_what_has_no_name_of_a_cache(store: CacheStore, capsys: Captured, says: Says) -> None:
    published(store)
    for name in (
        "photos",
        "thesis.filling",
        "notes.gone.1",
        f"{KEY}x",
        f"{KEY[:-1]}",
        f"{KEY.upper()}.filling",
        f"{KEY}.filling.old",
        f"{KEY}.gone.1",
        f"{KEY}\n",
    ):
        filled(store.folder / name, "a.jpg", "cache.json")
    (store.folder / "photos" / "dangling").symlink_to("nowhere")
    (store.folder / "a.filling").write_text("mine")
    before = {name: kept for name, kept in tree(store.folder).items() if not name.startswith(f"{KEY}/")}
    before.pop(KEY)
    table = say(capsys, "ls", "--dir", str(store.folder))
    assert [line.split()[0] for line in table] == ["key", KEY, "1"]
    says(say(capsys, "gc", "--dir", str(store.folder), "--max-bytes", "0", "--yes")[1:])
    assert tree(store.folder) == before


def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "\udcff"
    published(CacheStore(folder))
    out = say(capsys, "ls", "--dir", str(folder))
    assert out[-1] == rf"1 cache (0.0 MB) in {tmp_path}/\udcff"


def linked(path: Path) -> None:
    filled(path.parent.parent / "elsewhere", "cache.json", "part_00000.bin")
    path.symlink_to(path.parent.parent / "elsewhere")


STRANGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder of somebody's": (
        lambda path: filled(path, "cache.json", "photo.jpg"),
        "a folder that holds photo.jpg has the name of a cache",
    ),
    "a folder of folders": (
        lambda path: filled(path / "part_00000.bin", "photo.jpg"),
        "a folder that holds part_00000.bin has the name of a cache",
    ),
    "a name that is no text": (
        lambda path: filled(path, "\udcff.jpg"),
        r"a folder that holds \xff.jpg has the name of a cache",
    ),
    "a file": (lambda path: path.write_text("mine"), "a file has the name of a cache"),
    "a link": (linked, "a link has the name of a cache"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "a link has the name of a cache"),
}
each_stranger = pytest.mark.parametrize(("make", "reason"), STRANGERS.values(), ids=STRANGERS)


@each_stranger
@pytest.mark.parametrize("suffix", ["", ".filling", ".gone.0123abcd"])
def test_strangers_under_the_name_of_a_cache_are_named_and_kept(
    make: Callable[[Path], object], reason: str, suffix: str, store: CacheStore, capsys: Captured
) -> None:
    published(store)
    make(store.folder / f"{OTHER}{suffix}")
    before = tree(store.folder.parent)
    end = [f"ignored {OTHER}{suffix}: {reason}", f"1 cache (0.0 MB) in {store.folder}"]
    assert say(capsys, "ls", "--dir", str(store.folder))[2:] == end
    assert say(capsys, "gc", "--dir", str(store.folder), "--max-bytes", "9999", "--yes") == end
    assert tree(store.folder.parent) == before


@each_stranger
@pytest.mark.parametrize("suffix", ["", ".filling"])
def test_a_run_goes_without_a_cache_whose_name_something_else_has(
    make: Callable[[Path], object], reason: str, suffix: str, store: CacheStore
) -> None:
    store.folder.mkdir()
    make(store.folder / f"{KEY}{suffix}")
    before = tree(store.folder.parent)
    said: list[str] = []
    keeper = keeper_of(store, said.append)
    fill = begun(keeper)
    keeper.publish(fill)
    keeper.close()
    assert keeper.passes == ["uncached"]
    assert said == [f"the cache {KEY} could not be opened in {store.folder}: {reason}; passes run without it"]
    assert tree(store.folder.parent) == before


def test_of_a_claimed_folder_only_the_files_of_a_cache_go(store: CacheStore) -> None:
    claim = present(store.claim(KEY))
    (claim.folder / "part_00000.bin").write_bytes(b"half")
    (claim.folder / "notes.txt").write_text("mine")
    claim.release()
    assert (claim.folder / "notes.txt").read_text() == "mine"
    shutil.rmtree(claim.folder)
    claim = present(store.claim(KEY))
    (claim.folder / "part_00000.bin").write_bytes(b"half")
    claim.release()
    assert not claim.folder.exists()


@pytest.mark.parametrize("name", ["a file", "x" * 300], ids=["a file", "a long name"])
def test_why_tells_of_a_folder_that_can_be_none(
    name: str, tiny: Path, tmp_path: Path, capsys: Captured, says: Says
) -> None:
    folder = tmp_path / name
    (tmp_path / "a file").write_text("mine")
    words = emulated(tiny, "cache=disk", f"cache.dir='{folder}'", "dataset.eval_split=null")
    says(complaint(capsys, "cache", "why", *words))
    assert (tmp_path / "a file").read_text() == "mine"


def test_looking_leaves_nothing_behind(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    assert say(capsys, "ls", "--dir", str(tmp_path)) == [f"0 caches (0.0 MB) in {tmp_path}"]
    says(say(capsys, "gc", "--dir", str(tmp_path), "--max-bytes", "0", "--yes"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert say(capsys, "ls") == [f"0 caches (0.0 MB) in {tmp_path / 'etlrun'}"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "make",
    [Path.touch, lambda path: path.symlink_to("nowhere"), lambda path: filled(path / "lock")],
    ids=["a file", "a dead link", "a lock that is a folder"],
)
def test_what_can_be_no_folder_of_caches_is_told(make: Callable[[Path], object], store: CacheStore, says: Says) -> None:
    make(store.folder)
    says(raised(WorldError, keeper_of(store, print).prepare))


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_S", 0.1)
    monkeypatch.setattr(files, "LONGEST_S", 0.2)


@contextmanager
def stopped_in(store: CacheStore) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the folder, and that is stopped (Ctrl-Z) in the middle."""
    code = f"store = CacheStore({str(store.folder)!r}); store.make(); alone = store._alone(); alone.__enter__()"
    process = started(code)
    process.send_signal(signal.SIGSTOP)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waiting(store: CacheStore) -> str:
    return f"etlrun: waiting for another process, which holds {store.folder / 'lock'}\n"


def fault(store: CacheStore, where: str) -> str:
    lock = store.folder / "lock"
    return (
        f"{where}: found {lock}: held by another process for more than 0.2 s; "
        "expected a lock that is held only briefly\n"
        f"    -> `fuser {lock}` names the process: let it finish, or end it"
    )


@pytest.mark.usefixtures("_impatient")
def test_a_run_that_starts_beside_a_stopped_process_is_refused(store: CacheStore, capsys: Captured) -> None:
    with stopped_in(store):
        assert raised(WorldError, keeper_of(store, print).prepare) == fault(store, "cache.dir")
    assert capsys.readouterr().err == waiting(store)


@pytest.mark.usefixtures("_impatient")
def test_a_training_goes_on_where_another_process_stops_in_the_folder(store: CacheStore, capsys: Captured) -> None:
    said: list[str] = []
    keeper = keeper_of(store, said.append)
    fill = begun(keeper)
    with stopped_in(store):
        keeper.publish(fill)
        assert keeper.begin() == -1
        keeper.close()
    assert keeper.passes == ["uncached", "uncached"]
    held = f"{store.folder / 'lock'}: held by another process for more than 0.2 s"
    assert said == [f"the cache {KEY} could not be written in {store.folder}: {held}; passes run without it"]
    assert capsys.readouterr().err == waiting(store)
    assert sorted(path.name for path in store.folder.iterdir()) == [f"{KEY}.claim", "lock"]


@pytest.mark.usefixtures("_impatient")
def test_ls_needs_no_lock_and_gc_and_rm_wait_a_while(store: CacheStore, capsys: Captured) -> None:
    published(store)
    words = ["--dir", str(store.folder)]
    with stopped_in(store):
        cli.main(["cache", "ls", *words])
        assert capsys.readouterr().err == ""
        for command in (["gc", "--max-bytes", "0", "--yes"], ["rm", KEY]):
            told = fault(store, f"cache {command[0]}")
            assert complaint(capsys, "cache", *command, *words) == f"{waiting(store)}etlrun: 1 fault\n  {told}\n"
    assert [entry.key for entry in store.entries()] == [KEY]


def test_who_waits_says_so_once_and_goes_on_when_it_can(store: CacheStore) -> None:
    code = f"from etlrun.cache.store import CacheStore; CacheStore({str(store.folder)!r}).make()"
    with stopped_in(store) as process:
        waits = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        assert waits.stderr is not None
        assert waits.stderr.readline() == waiting(store)
        process.send_signal(signal.SIGCONT)
        process.communicate("\n")
        assert waits.communicate()[1] == ""
        assert waits.returncode == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
@pytest.mark.parametrize("name", ["/proc", "/proc/caches"])
def test_a_folder_that_takes_no_files_is_refused_at_once(name: str, says: Says) -> None:
    says(raised(WorldError, keeper_of(CacheStore(name), print).prepare))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_takes_no_files_is_not_taken_for_a_sweep_that_goes_on(says: Says) -> None:
    with pytest.raises(WorldError) as caught, held(Path("/proc")):
        pytest.fail("it was held")
    says(str(caught.value))


EXAMPLES = np.random.default_rng(0).integers(0, 256, (200, 4, 5, 3), dtype=np.uint8)
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A cache with a part for each image."""
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    store = CacheStore(tmp_path)
    published(store, pictures=EXAMPLES)
    assert len(list((tmp_path / KEY).glob("part_*.bin"))) == len(EXAMPLES)
    there = present(store.open(KEY))
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
from etlrun.cache.store import CacheStore
from tests.stores import KEY, published
from tests.test_cache_folders import EXAMPLES
from tests.present import present
parts.PART_BYTES = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
store = CacheStore({str(tmp_path)!r})
published(store, pictures=EXAMPLES)
opened = store.open(KEY)
numbers = np.random.default_rng(0).permutation(len(EXAMPLES))
pictures, labels = opened.batch(numbers)
assert (pictures == EXAMPLES[numbers]).all()
assert (labels == numbers).all()
opened.close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
def test_threads_that_read_at_once_never_read_anothers_file(opened: Opened, tmp_path: Path) -> None:
    def read(seed: int) -> bool:
        numbers = np.random.default_rng(seed).permutation(len(EXAMPLES))
        pictures, labels = opened.batch(numbers)
        return bool((pictures == EXAMPLES[numbers]).all() and (labels == numbers).all())

    before = open_files(tmp_path)
    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(read, range(100)))
    assert open_files(tmp_path) <= before + 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
def test_no_file_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    store = CacheStore(tmp_path)
    published(store, pictures=EXAMPLES)
    opened = present(store.open(KEY))
    opened.batch(np.arange(len(EXAMPLES)))
    assert 0 < open_files(tmp_path) < 70
    opened.close()
    assert open_files(tmp_path) == 0


def test_what_is_open_outlasts_a_removal(opened: Opened, tmp_path: Path) -> None:
    """A reader that found a broken byte has the cache removed while others read."""
    assert CacheStore(tmp_path).remove(KEY, broken=opened.inode)
    np.testing.assert_array_equal(opened.one(0)[0], EXAMPLES[0])
    with pytest.raises(FileNotFoundError):
        opened.one(len(EXAMPLES) - 1)
