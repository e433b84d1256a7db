"""`etlrun cache`: ls, why, gc, rm."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest

from etlrun.cache.store import Store
from etlrun.cli import main as cli
from etlrun.cli.parsers import call
from etlrun.system.errors import WorldError
from tests.runs import emulated, run_here

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches of a run of 32x32 pixels, and a day later of one of 16x16."""
    scratch = tmp_path_factory.mktemp("made")
    folder = scratch / "caches"
    for side in (16, 32):
        size = f"transform.resize.size=[{side},{side}]"
        assert run_here(scratch / str(side), emulated(tiny, "cache=disk", f"cache.dir={folder}", size))[0] == 0
        if side == 16:
            for path in folder.glob("*/cache.json"):
                os.utime(path, (time.time() - 86_400, time.time() - 86_400))
    return folder


@pytest.fixture
def caches(made: Path, tmp_path: Path, capsys: Captured) -> Path:
    """A copy of them, with their times."""
    capsys.readouterr()
    return shutil.copytree(made, tmp_path / "caches")


def say(capsys: Captured, *words: str) -> str:
    cli.main(["cache", *words])
    return capsys.readouterr().out


def refusal(capsys: Captured, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code, capsys.readouterr().err


def test_ls_tells_what_there_is(caches: Path, capsys: Captured) -> None:
    lines = say(capsys, "ls", "--dir", str(caches)).splitlines()
    assert lines[0].split() == ["key", "dataset", "elements", "examples", "MB", "created", "used", "state"]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1:-1]]
    kinds = [("train[80%:]", "10", {32: "0.0", 16: "0.0"}), ("train[:80%]", "38", {32: "0.1", 16: "0.0"})]
    assert sorted((row[1:5], row[6]) for row in rows if row[6] == "1 d ago") == [
        ([f"tiny_pictures/1.2.0 {split}", "uint8 [16, 16, 3] in [0, 255], label", count, size[16]], "1 d ago")
        for split, count, size in kinds
    ]
    assert sorted(row[1:5] for row in rows if row[6] != "1 d ago") == [
        [f"tiny_pictures/1.2.0 {split}", "uint8 [32, 32, 3] in [0, 255], label", count, size[32]]
        for split, count, size in kinds
    ]
    assert {row[7] for row in rows} == {"ready"}
    assert re.fullmatch(rf"4 caches \(0\.\d MB\) in {caches}", lines[-1])


def test_why_finds_a_hit_and_names_the_first_difference(tiny: Path, made: Path, caches: Path, capsys: Captured) -> None:
    words = emulated(tiny, "cache=disk", f"cache.dir={caches}")
    before = emulated(tiny, "cache=disk", f"cache.dir={made}", "transform.resize.size=[32,32]")
    hits = say(capsys, "why", *words).splitlines()
    assert [re.sub(r"[0-9a-f]{20}", "KEY", line) for line in hits] == [
        f"train      hit   KEY  38 examples, 0.1 MB, used {hits[0].rsplit('used ')[1]}",
        f"validation hit   KEY  10 examples, 0.0 MB, used {hits[1].rsplit('used ')[1]}",
    ]
    lines = say(capsys, "why", *words, "transform.resize.size=[40,32]").splitlines()
    assert [re.sub(r"[0-9a-f]{20}", "KEY", line).strip() for line in lines[:3]] == [
        "train      miss  KEY",
        (f"nearest is KEY (tiny_pictures/1.2.0 train[:80%], created by 32 with {' '.join(before)})"),
        "differs in transform.resize.size: [32, 32] in the cache, [40, 32] in this config",
    ]


def test_why_makes_no_folder(tiny: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "typo"
    words = emulated(tiny, "cache=disk", f"cache.dir={folder}", "dataset.eval_split=null")
    (line,) = say(capsys, "why", *words).splitlines()
    assert re.sub(r"[0-9a-f]{20}", "KEY", line) == f"train     miss  KEY  no cache yet in {folder}"
    assert not folder.exists()


def of_sample(folder: Path) -> list[str]:
    return ["dataset=sample", f"dataset.data_dir={folder}", "dataset.eval_split=null", "cache=disk"]


def test_why_does_not_make_the_sample_of_a_config_that_does_not(tmp_path: Path, capsys: Captured) -> None:
    expected = (
        f"etlrun: 1 fault\n  dataset.data_dir: found no etlrun_sample/1.0.0 in {tmp_path}/etlrun_sample/1.0.0; "
        "expected the sample, which is made without a network\n    -> make it: etlrun doctor dataset=sample "
        f"dataset.data_dir={tmp_path}\n"
    )
    words = (*of_sample(tmp_path), "dataset.download=false", f"cache.dir={tmp_path}")
    assert refusal(capsys, "why", *words) == (1, expected)


@pytest.mark.slow
def test_why_makes_the_sample(tmp_path: Path, capsys: Captured) -> None:
    (line,) = say(capsys, "why", *of_sample(tmp_path), f"cache.dir={tmp_path / 'caches'}").splitlines()
    assert re.sub(r"[0-9a-f]{20}", "KEY", line) == f"train     miss  KEY  no cache yet in {tmp_path / 'caches'}"
    assert not (tmp_path / "caches").exists()


def test_why_of_a_config_without_a_cache_on_disk_is_refused(capsys: Captured) -> None:
    assert refusal(capsys, "why", "cache=memory") == (
        2,
        (
            "etlrun: 1 fault\n"
            "  cache: found cache.memory, which other runs can't read; expected cache.disk\n"
            "    -> add cache=disk to explain a cache on disk\n"
        ),
    )


def test_gc_removes_what_was_not_used_for_longest(caches: Path, capsys: Captured) -> None:
    store = Store(caches)
    entries = store.entries()
    young, old = entries[:2], entries[2:]
    (caches / f"{entries[0].key}.filling").mkdir()
    out = say(capsys, "gc", "--dir", str(caches), "--max-bytes", str(sum(entry.bytes for entry in young)), "--yes")
    assert out.splitlines() == [
        f"removed {entries[0].key}.filling, left by a killed run",
        *(f"removed {entry.key}, {entry.bytes / 1e6:,.1f} MB, used 1 d ago" for entry in reversed(old)),
        f"2 caches ({sum(entry.bytes for entry in young) / 1e6:,.1f} MB) in {caches}",
    ]
    assert {entry.key for entry in store.entries()} == {entry.key for entry in young}


def test_gc_shows_what_it_would_remove_until_it_is_told_yes(caches: Path, capsys: Captured) -> None:
    store = Store(caches)
    entries = store.entries()
    (caches / f"{entries[0].key}.filling").mkdir()
    before = sorted(caches.rglob("*"))
    out = say(capsys, "gc", "--dir", str(caches), "--max-bytes", str(sum(entry.bytes for entry in entries[:2])))
    total = sum(entry.bytes for entry in entries) / 1e6
    assert out.splitlines() == [
        *(f"would remove {entry.key}, {entry.bytes / 1e6:,.1f} MB, used 1 d ago" for entry in reversed(entries[2:])),
        f"{len(entries)} caches ({total:,.1f} MB) in {caches}",
        "add --yes to remove what is shown, and what killed runs have left",
    ]
    assert sorted(caches.rglob("*")) == before
    for size in ("50MB", "1.5 gb", "2TB", "50000000", "50000kB"):
        out = say(capsys, "gc", "--dir", str(caches), "--max-bytes", size)
        assert out == f"{len(entries)} caches ({total:,.1f} MB) in {caches}\n"
    with pytest.raises(SystemExit):
        call("cache", ["gc", "--max-bytes", "50 files"])
    assert capsys.readouterr().err.endswith(
        "  --max-bytes: found 50 files; expected a number of bytes, or one with a unit such as 50MB\n"
    )


def test_an_empty_folder_is_not_that_of_the_user(capsys: Captured) -> None:
    """As a variable that is not set gives it."""
    with pytest.raises(WorldError) as caught:
        call("cache", ["gc", "--dir", "", "--max-bytes", "0", "--yes"])
    assert str(caught.value) == (
        "--dir: found nothing; expected a folder of caches, cache.dir of the runs\n"
        "    -> omit --dir for the user's cache folder"
    )
    with pytest.raises(SystemExit):
        call("cache", ["gc", "--max-bytes", "-5"])
    assert capsys.readouterr().err.endswith(
        "  --max-bytes: found -5; expected a number of bytes, or one with a unit such as 50MB\n"
    )


def test_gc_leaves_a_cache_in_use(caches: Path, capsys: Captured) -> None:
    store = Store(caches)
    key = store.entries()[-1].key
    opened = store.open(key)
    assert opened is not None
    out = say(capsys, "gc", "--dir", str(caches), "--max-bytes", "0", "--yes")
    assert f"kept {key}, 0.0 MB: in use" in out.splitlines()
    assert [entry.key for entry in store.entries()] == [key]
    opened.close()


def test_rm_removes_one(caches: Path, capsys: Captured) -> None:
    key = Store(caches).entries()[0].key
    assert say(capsys, "rm", "--dir", str(caches), key[:8]) == f"removed {key}\n"
    assert key not in {entry.key for entry in Store(caches).entries()}


def test_rm_refuses_what_is_not_there_and_what_is_in_use(caches: Path, capsys: Captured) -> None:
    store = Store(caches)
    key = store.entries()[0].key
    wrong = f"{key[:-1]}x"
    assert refusal(capsys, "rm", "--dir", str(caches), wrong) == (
        1,
        (
            f"etlrun: 1 fault\n  cache rm {wrong}: found no such cache; expected the key of one of the 4 caches in "
            f"{caches}, or a unique prefix\n    -> did you mean `{key}`?\n"
        ),
    )
    status, text = refusal(capsys, "rm", "--dir", str(caches), "")
    assert status == 1
    assert "cache rm : found 4 caches with this prefix; expected the key of one of the 4 caches" in text
    opened = store.open(key)
    assert opened is not None
    assert refusal(capsys, "rm", "--dir", str(caches), key) == (
        1,
        (
            f"etlrun: 1 fault\n  cache rm {key}: found a cache in use; expected a cache that no run uses\n"
            "    -> wait for the run to end\n"
        ),
    )
    opened.close()
