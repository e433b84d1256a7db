"""Locks of a folder of caches that another process holds, or that can't be had."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etlrun.cache.store import Store
from etlrun.cli import main as cli
from etlrun.record.record import held
from etlrun.system import files
from etlrun.system.errors import WorldError
from tests.stores import KEY, PICTURES, keeper_of, published


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "caches")


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_S", 0.1)
    monkeypatch.setattr(files, "LONGEST_S", 0.2)


@contextmanager
def stopped_in(store: Store) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the folder, and that is stopped (Ctrl-Z) in the middle."""
    code = (
        f"from etlrun.cache.store import Store\nstore = Store({str(store.folder)!r})\nstore.make()\n"
        "with store._alone():\n    print('there', flush=True)\n    input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGSTOP)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waiting(store: Store) -> str:
    return f"etlrun: waiting for another process, which holds {store.folder / 'lock'}\n"


def fault(store: Store, where: str) -> str:
    lock = store.folder / "lock"
    return (
        f"{where}: found {lock}, held by another process for more than 0.2 s; "
        "expected a lock that is held only briefly\n"
        f"    -> `fuser {lock}` names the process: let it finish, or end it"
    )


@pytest.mark.usefixtures("_impatient")
def test_a_run_that_starts_beside_a_stopped_process_is_refused(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with stopped_in(store), pytest.raises(WorldError) as caught:
        keeper_of(store, print).prepare()
    assert str(caught.value) == fault(store, "cache.dir")
    assert capsys.readouterr().err == waiting(store)


@pytest.mark.usefixtures("_impatient")
def test_a_training_goes_on_where_another_process_stops_in_the_folder(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    keeper = keeper_of(store, said.append)
    keeper.prepare()
    fill = keeper.begin()
    keeper.add(fill, PICTURES[0], fill)
    with stopped_in(store):
        keeper.publish(fill)
        assert keeper.begin() == -1
        keeper.close()
    assert keeper.passes == ["uncached", "uncached"]
    held = f"{store.folder / 'lock'}, held by another process for more than 0.2 s"
    assert said == [f"the cache {KEY} could not be written in {store.folder}: {held}; passes run without it"]
    assert capsys.readouterr().err == waiting(store)
    assert sorted(path.name for path in store.folder.iterdir()) == [f"{KEY}.claim", "lock"]


@pytest.mark.usefixtures("_impatient")
def test_ls_needs_no_lock_and_gc_and_rm_wait_a_while(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    published(store)
    words = ["--dir", str(store.folder)]
    with stopped_in(store):
        cli.main(["cache", "ls", *words])
        assert capsys.readouterr().err == ""
        for command in (["gc", "--max-bytes", "0", "--yes"], ["rm", KEY]):
            with pytest.raises(SystemExit) as caught:
                cli.main(["cache", *command, *words])
            assert caught.value.code == 1
            told = fault(store, f"cache {command[0]}")
            assert capsys.readouterr().err == f"{waiting(store)}etlrun: 1 fault\n  {told}\n"
    assert [entry.key for entry in store.entries()] == [KEY]


def test_who_waits_says_so_once_and_goes_on_when_it_can(store: Store) -> None:
    code = f"from etlrun.cache.store import Store; Store({str(store.folder)!r}).make()"
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
def test_a_folder_that_takes_no_files_is_refused_at_once(name: str) -> None:
    with pytest.raises(WorldError) as caught:
        keeper_of(Store(name), print).prepare()
    path = "/proc/lock" if name == "/proc" else name
    assert str(caught.value) == (
        f"cache.dir: found {path}: No such file or directory; expected a folder that can be written to\n"
        "    -> set cache.dir to another folder, or cache=none"
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_takes_no_files_is_not_taken_for_a_sweep_that_goes_on() -> None:
    with pytest.raises(WorldError) as caught, held(Path("/proc")):
        pytest.fail("it was held")
    assert str(caught.value) == (
        "/proc: found [Errno 2] No such file or directory: '/proc/lock'; expected a folder that can be written to\n"
        "    -> choose another hydra.run.dir or hydra.sweep.dir, or free disk space"
    )
