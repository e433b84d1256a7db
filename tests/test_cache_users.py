"""A folder of caches that several users share. Needs the right to start processes as others."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import Says
from tests.stores import KEY

pytestmark = pytest.mark.slow

ANNE, BERT = 65533, 65534
ROOT = Path(__file__).resolve().parent.parent
READ = """
opened = store.open(KEY)
assert opened is not None
assert (opened.one(3)[0] == PICTURES[3]).all()
"""
RUN = """
keeper = keeper_of(store, print)
keeper.prepare()
mode = keeper.begin()
print(keeper.passes)
keeper.close()
"""


def start(user: int, folder: Path, code: str, umask: int = 0o022) -> subprocess.Popen[str]:
    """A process that becomes that user, and then runs `code` with a `store` in `folder`."""
    # All is imported before, what NumPy does later too: another user may not reach where it is.
    lines = f"""
import os, sys, zipfile
{"import colorsys, mmap, rich._emoji_codes, rich.console, rich.table" if "cli." in code else ""}
{"from etlrun.cli import upkeep, main as cli; from etlrun.report import render" if "cli." in code else ""}
{"import mmap; from tests import tables; import numpy.ma; ''.encode('utf-8-sig')" if "tables." in code else ""}
from etlrun.cache.store import CacheStore
from etlrun.system.errors import WorldError
from tests.stores import KEY, PICTURES, keeper_of, published
"".encode("cp437")
os.setgroups([]); os.setgid({user}); os.setuid({user}); os.umask({umask}); os.chdir("/")
store = CacheStore({str(folder)!r})
{code}
"""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", lines], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def done(user: int, folder: Path, code: str, umask: int = 0o022) -> str:
    """What such a process prints, which comes to its end."""
    process = start(user, folder, code, umask)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def command(*words: str) -> str:
    return f"cli.main({['cache', *words]!r})"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of both users, and unlike a test's own folder within their reach."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root becomes other users")
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o777)
        yield Path(scratch)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["open to all", "sticky"])
def test_users_fill_and_read_each_others_caches(mode: int, folder: Path) -> None:
    folder.chmod(mode)
    done(ANNE, folder, "published(store)")
    done(BERT, folder, f"{READ}\nopened.close()")
    assert names(folder) == [KEY, f"{KEY}.claim", "in_use", "lock"]
    assert done(BERT, folder, RUN) == "['read']\n"
    done(BERT, folder, "published(store, [['dataset', 'other']])")
    opened = done(ANNE, folder, "print([store.open(entry.key) is not None for entry in store.entries()])")
    assert opened == "[True, True]\n"
    (folder / KEY / "part_00000.bin").write_bytes(b"cut short")
    said = done(ANNE, folder, RUN)  # who made it makes it anew, and the other one goes without it
    assert said.startswith(f"the cache {KEY} was broken and will be rebuilt: ")
    assert said.endswith("['filling']\n")


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["open to all", "sticky"])
def test_another_users_cache_is_not_removed(mode: int, folder: Path, says: Says) -> None:
    folder.chmod(mode)
    done(ANNE, folder, "published(store)")
    size = sum(path.stat().st_size for path in (folder / KEY).iterdir()) / 1e6
    gc = done(BERT, folder, command("gc", "--dir", str(folder), "--max-bytes", "0", "--yes"))
    assert gc == f"kept {KEY}, {size:,.1f} MB: Permission denied\n1 cache ({size:,.1f} MB) in {folder}\n"
    told = done(
        BERT, folder, f"try:\n    {command('rm', '--dir', str(folder), KEY)}\nexcept SystemExit as end:\n    print(end)"
    )
    assert told == "1\n"
    part = folder / KEY / "part_00000.bin"
    part.write_bytes(b"cut short")
    says(done(BERT, folder, RUN), FOLDER=folder)
    assert part.read_bytes() == b"cut short"
    assert names(folder) == [KEY, f"{KEY}.claim", "in_use", "lock"]


def test_a_cache_that_only_its_user_may_read_is_told_of(folder: Path, says: Says) -> None:
    done(ANNE, folder, "published(store)", umask=0o077)
    says(done(BERT, folder, RUN), FOLDER=folder)
    listed = done(BERT, folder, command("ls", "--dir", str(folder)))
    assert listed == f"ignored {KEY}: Permission denied\n0 caches (0.0 MB) in {folder}\n"


def test_who_may_not_write_reads_what_is_there_and_is_refused_what_is_not(folder: Path, says: Says) -> None:
    done(ANNE, folder, "published(store)")
    folder.chmod(0o755)
    before = names(folder)
    assert done(BERT, folder, RUN) == "['read']\n"
    assert "ready" in done(BERT, folder, command("ls", "--dir", str(folder)))
    code = "try:\n    CacheStore(store.folder / 'new').make()\nexcept WorldError as error:\n    print(error)"
    says(done(BERT, folder, code), FOLDER=folder)
    (folder / KEY).rename(folder / "aside")
    code = code.replace("CacheStore(store.folder / 'new').make()", "keeper_of(store, print).prepare()")
    says(done(BERT, folder, code), FOLDER=folder)
    (folder / "aside").rename(folder / KEY)
    assert names(folder) == before


def test_a_reader_keeps_another_users_cache_from_being_removed(folder: Path) -> None:
    done(ANNE, folder, "published(store)")
    process = start(BERT, folder, f"{READ}\nprint('there', flush=True)\nsys.stdin.readline()")
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    done(ANNE, folder, "assert not store.remove(KEY)")
    process.kill()
    process.communicate()
    done(ANNE, folder, "assert store.remove(KEY)")
    assert names(folder) == [f"{KEY}.claim", "in_use", "lock"]


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["for all", "for one"])
def test_kept_columns_of_another_user_are_read_or_told_of(umask: int, folder: Path) -> None:
    (folder / "a.csv").write_text("a,price\n1,2\n3,4\n")
    dataset = "tables.a_table(str(store.folder / 'a.csv'), store.folder / 'kept')"
    code = f"""
try:
    print(tables.values(tables.kept_of({dataset})))
except WorldError as error:
    print(error)
"""
    (folder / "kept").mkdir()
    (folder / "kept").chmod(0o777)
    there = "{'a': [1, 3], 'price': [2, 4]}\n"
    assert done(ANNE, folder, code, umask) == there
    (kept,) = (path for path in (folder / "kept").iterdir() if path.is_dir())
    refused = (
        f"dataset.dir: found {kept / 'columns.json'}: Permission denied; expected columns that this user may read\n"
        "    -> ask who wrote them to let others read them, or set dataset.dir to another folder\n"
    )
    assert done(BERT, folder, code) == (there if umask == 0o022 else refused)
    assert done(ANNE, folder, code) == there
