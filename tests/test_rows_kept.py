"""Kept columns: what plans say of them, how they are listed, and what ends while they are written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.sources.rows.folders import FACTS
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.table import identity_of, kept_of
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.disks import mounted
from tests.tables import CSV, a_table, kept_from, message, values, words_of


def test_a_plan_says_what_is_kept_and_what_is_noted(table: Path, tmp_path: Path) -> None:
    words, kept = words_of(table), tmp_path / "kept"
    (tmp_path / "a.csv").write_text("kind,area,rooms,garden,price\n flat,1,,true,3\nloft,2,3,,4\nflat,3,2,false,5\n")
    planned = plan_of(*words, f"dataset.files={tmp_path / 'a.csv'}", f"dataset.dir={kept}")
    (folder,) = kept.glob("rows-*[!k]")
    bytes_ = sum(path.stat().st_size for path in folder.glob("*.bin"))
    assert planned.remarks[:2] == (
        f"3 rows of 5 columns are kept in {folder}, {bytes_ / 1e6:.1f} MB.",
        "kind has blanks around values, which stay: dataset.strip=true removes them.",
    )


def test_kept_columns_are_listed_and_removed_beside_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, held = kept_from(tmp_path, "a.csv", CSV).folder.name, tmp_path / "other"
    shutil.copytree(tmp_path / "kept" / key, held / key)
    reader = [Kept(held / key)]
    os.utime(held / key / FACTS, (time.time() - 7200, time.time() - 7200))
    (held / f"rows-{'0' * 16}.filling").mkdir()

    def said(*arguments: str) -> list[str]:
        call("cache", [*arguments, f"--dir={held}"])
        return capsys.readouterr().out.splitlines()

    assert said("ls")[-2:] == [
        f"{key}  a.csv    3 columns         3  0.0  0 s ago  2 h ago  in use",
        f"1 cache (0.0 MB) in {held}",
    ]
    assert said("gc", "--max-bytes=0", "--yes")[:2] == [
        f"removed rows-{'0' * 16}.filling, left by a killed run",
        f"kept {key}, 0.0 MB: in use",
    ]
    reader.clear()
    assert said("gc", "--max-bytes=0") == [
        f"would remove {key}, 0.0 MB, used 2 h ago",
        f"1 cache (0.0 MB) in {held}",
        "add --yes to remove what is shown, and what killed runs have left",
    ]
    assert said("gc", "--max-bytes=0", "--yes") == [
        f"removed {key}, 0.0 MB, used 2 h ago",
        f"0 caches (0.0 MB) in {held}",
    ]
    assert [path.name for path in held.iterdir() if path.name != "lock"] == []


KILLED = """
import os, resource, signal, sys
from pathlib import Path
from etlrun.sources.rows.table import identity_of, kept_of
from tests.tables import a_table

event, name, files, kept = sys.argv[1:]

def look(happened, arguments):
    if happened == event and str(arguments[0]).endswith(name):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
if not event:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
kept_of(a_table(files, Path(kept)))
"""
KILLS = {
    "before its first file": ("open", "0.missing.bin"),
    "between its files": ("open", "1.text.bin"),
    "while it writes": ("", ""),
    "before what completes it": ("os.rename", f".{FACTS}"),
    "before it has its name": ("os.rename", ".filling"),
}


@pytest.mark.slow
def test_rows_are_read_again_wherever_a_process_was_killed_that_read_them(tmp_path: Path) -> None:
    rows = [f"{number},text {number},{number / 2}" for number in range(20_000)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,price", *rows]))
    files = f"{tmp_path}/a.csv"
    whole = values(kept_of(a_table(files, tmp_path / "whole")))
    assert whole["b"][-1] == "text 19999"
    for kill, (event, name) in KILLS.items():
        kept = tmp_path / kill
        done = subprocess.run([sys.executable, "-c", KILLED, event, name, files, str(kept)], check=False)
        assert done.returncode == -(signal.SIGKILL if event else signal.SIGXFSZ), kill
        assert [path.suffix for path in kept.glob("rows-*") if path.is_dir()] == [".filling"], kill
        assert values(kept_of(a_table(files, kept))) == whole, kill
        assert [path.suffix for path in kept.glob("rows-*") if path.is_dir()] == [""], kill


@pytest.mark.parametrize("size", ["8K", "64K", "256K"])
def test_a_full_disk_is_named(size: str, tmp_path: Path) -> None:
    rows = [f"{number},text {number},{number / 2}" for number in range(20_000)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,price", *rows]))
    with mounted(tmp_path / "disk", size) as disk:
        with pytest.raises(EtlrunError) as caught:
            kept_of(a_table(f"{tmp_path}/a.csv", disk))
        assert message(tmp_path, caught.value) == (
            "dataset.dir: found disk: No space left on device; expected a folder that can be written to, with space "
            "for the columns\n    -> set dataset.dir to another folder, or free disk space"
        )
        assert [path.suffix for path in disk.iterdir()] == [".lock"]


def test_what_is_left_and_cannot_be_removed_names_its_owner(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\n1,2\n")
    of = a_table(f"{tmp_path}/a.csv", tmp_path / "kept")
    left = tmp_path / "kept" / f"rows-{identity_of(of)}.filling"
    left.parent.mkdir()
    left.touch()  # which is no folder, and stays as one of another user does
    with pytest.raises(EtlrunError) as caught:
        kept_of(of)
    assert message(tmp_path, caught.value) == (
        f"dataset.dir: found kept/{left.name} of {left.owner()}, which is not complete; expected one that this user "
        f"may remove\n    -> ask {left.owner()} to remove it, or set dataset.dir to another folder"
    )
