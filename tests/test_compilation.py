"""JAX's cache of executables, and the note on the shapes for which a step was compiled."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from etlrun.run.backend import remove_broken, remove_oldest
from tests.disks import mounted

COMPILES = """
import jax
from etlrun.run.backend import keep_executables
keep_executables()
print(jax.config.jax_compilation_cache_dir)
print(float(jax.jit(lambda of: (of @ of).sum())(jax.numpy.ones((4, 4)))))
"""

WITHOUT_A_HOME = """
import os, jax
from etlrun.run.backend import keep_executables
os.environ.pop("HOME", None)
os.environ.pop("XDG_CACHE_HOME", None)
os.setuid(54321)
keep_executables()
print(jax.config.jax_compilation_cache_dir)
"""


def compiled(caches: Path, **environment: str) -> tuple[list[str], str]:
    """What a process that compiles prints, with its caches in a folder."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    variables |= {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(caches), **environment}
    done = subprocess.run([sys.executable, "-c", COMPILES], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_executables_are_kept_for_later_runs_and_compiled_anew_where_they_are_broken(tmp_path: Path) -> None:
    (folder, found), _ = compiled(tmp_path)
    assert found == "64.0"
    entries = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*-cache")}
    assert Path(folder).parent == tmp_path / "etlrun" / "jax"
    assert entries
    assert compiled(tmp_path)[0] == [folder, "64.0"]
    assert {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*-cache")} == entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:20])  # as a kill leaves it
    told, err = compiled(tmp_path)
    assert told == [folder, "64.0"]
    assert "persistent compilation cache" not in err  # which JAX would say at each run, since it replaces nothing
    assert all(zlib.decompress(path.read_bytes()) for path in entries)
    own = tmp_path / "own"
    assert compiled(tmp_path, JAX_COMPILATION_CACHE_DIR=str(own))[0] == [str(own), "64.0"]
    (tmp_path / "file").write_text("no folder")
    assert compiled(tmp_path / "file")[0] == ["None", "64.0"]


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_no_executables_are_kept_where_a_folder_can_only_be_read(tmp_path: Path) -> None:
    with mounted(tmp_path / "caches", "1m") as caches:
        subprocess.run(["mount", "-o", "remount,ro", caches], check=True)
        assert compiled(caches) == (["None", "64.0"], "")


@pytest.mark.slow
@pytest.mark.needs("jax")
@pytest.mark.skipif(os.getuid() != 0, reason="root alone becomes a user that the system does not know")
def test_a_user_without_a_home_keeps_no_executables(tmp_path: Path) -> None:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")} | {
        "JAX_PLATFORMS": "cpu"
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_HOME], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr
    assert not list(tmp_path.iterdir())


def test_executables_that_were_cut_off_since_the_last_check_go(tmp_path: Path) -> None:
    whole = zlib.compress(bytes(1000))
    for name, written in {"whole": whole, "cut": whole[:-1], "empty": b"", "zstandard": b"\x28\xb5\x2f\xfd"}.items():
        (tmp_path / f"{name}-cache").write_bytes(written)
    remove_broken(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checked", "whole-cache", "zstandard-cache"]
    old = tmp_path / "old-cache"
    old.write_bytes(whole[:-1])
    os.utime(old, (1000, 1000))  # read no more than once
    (tmp_path / "new-cache").write_bytes(whole[:-1])
    (tmp_path / "gone-cache").symlink_to("nowhere")  # as one that another job removes after it was listed
    remove_broken(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*-cache")) == [
        *("gone-cache", "old-cache", "whole-cache", "zstandard-cache")
    ]


def test_the_oldest_executables_go_where_there_are_too_many(tmp_path: Path) -> None:
    for place, name in enumerate(("new", "old", "older")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - place, 1000 - place))
    remove_oldest(tmp_path, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
