"""A store of caches: what it reads back, what it finds broken, and what stays valid where a config changes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.cache.parts import BrokenError, Manifest, checksum
from etlrun.cache.store import CacheStore, Claim, Opened
from etlrun.graph.identity import PARTS
from etlrun.review.effects import VALID, caches
from etlrun.run.keepers import keepers_for
from etlrun.system.errors import WorldError
from tests.configs import CONF, plan_of
from tests.golden import Case, Golden, cases
from tests.runs import small
from tests.stores import KEY, PICTURES, keeper_of, published

KEPT = ["cache=disk", "cache.dir=/caches"]


@pytest.mark.parametrize("case", cases("caches"))
def test_caches_stay_valid_where_nothing_before_them_differs(case: Case, golden: Golden) -> None:
    found = caches(plan_of(*case["old"]), plan_of(*case["new"]))
    golden(case, "\n".join(f"{kept.pipeline}: {kept}".split(" (")[0] for kept in found))


def test_the_docs_list_what_a_key_rests_on() -> None:
    listed = re.findall(r"^    - (.+)[;.]$", (CONF.parent / "docs" / "caches.md").read_text(), re.MULTILINE)
    assert listed == [part.title for part in PARTS]


@pytest.mark.parametrize(
    "change",
    [
        "load.batch_size=8", "transform.resize.size=[32,32]", "cache.at=decoded", "cache.at=source", "trainer.seed=3",
        "extract.cycle_length=2", "extract.block_length=2", "extract.shuffle_files=false", "dataset.split='train[:24]'",
        "dataset.on_corrupt=skip", "extract=sequential", "transform.num_parallel_calls=null",
    ],
)  # fmt: skip
def test_a_cache_that_stays_valid_keeps_its_key(tiny: Path, change: str) -> None:
    shared = (*KEPT, "extract.shuffle_files=true")
    plans = [plan_of(*small(tiny, *shared)), plan_of(*small(tiny, *shared, change))]
    keys = [{name: keeper.key for name, keeper in keepers_for(plan).items()} for plan in plans]
    valid = {kept.pipeline for kept in caches(*plans) if kept.state == VALID}
    same = {name for name in keys[0] if keys[0][name] == keys[1][name]}
    assert valid <= same
    assert ("train" in valid) == ("train" in same)  # the only shard of validation is read in the same order


RNG = np.random.default_rng(0)


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore(tmp_path / "caches")


def test_what_was_published_is_read_back(store: CacheStore) -> None:
    assert store.open(KEY) is None
    published(store)
    opened = store.open(KEY)
    assert opened is not None
    pictures, labels = opened.reader.batch(np.array([6, 0, 3]))
    np.testing.assert_array_equal(pictures, PICTURES[[6, 0, 3]])
    assert labels.tolist() == [6, 0, 3]
    picture, label = opened.reader.one(2)
    np.testing.assert_array_equal(picture, PICTURES[2])
    assert label == 2
    opened.close()


@pytest.mark.parametrize(
    "pictures",
    [
        [b"one", b"", b"three and more"],
        [RNG.random((side, 3, 3), np.float32) for side in (2, 5, 1)],
        [RNG.random(8, np.float32) for _ in range(3)],
    ],
    ids=["encoded", "of several sizes", "features"],
)
def test_examples_of_any_kind_come_back(pictures: list[Any], store: CacheStore) -> None:
    opened = store.open(published(store, pictures=pictures))
    assert opened is not None
    for number, wanted in enumerate(pictures):
        picture, label = opened.reader.one(number)
        np.testing.assert_array_equal(picture, wanted)
        assert label == number
    opened.close()


def test_many_parts_are_one_cache(store: CacheStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etlrun.cache.parts.PART_BYTES", 100)
    published(store)
    assert sorted(path.name for path in (store.folder / KEY).glob("part_*")) == [
        f"part_{part:05}.bin" for part in range(4)
    ]
    opened = store.open(KEY)
    assert opened is not None
    np.testing.assert_array_equal(opened.reader.batch(np.arange(7))[0], PICTURES)
    opened.close()


def flip(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_in_a_part_is_found_when_it_is_read(store: CacheStore) -> None:
    published(store)
    part = store.folder / KEY / "part_00000.bin"
    flip(part)
    opened = store.open(KEY)
    assert opened is not None
    opened.reader.one(5)
    with pytest.raises(BrokenError) as caught:
        opened.reader.batch(np.array([5, 6]))
    assert str(caught.value).startswith(f"{part}: found example 6 with checksum ")
    opened.close()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("part_00000.bin", cut, "{path}: found 475 bytes; expected 476 bytes"),
        ("part_00000.bin", Path.unlink, "{path}: found no file; expected 476 bytes"),
        ("index.npz", flip, "{path}: found a modified index; expected the index that was written"),
        (
            "cache.json",
            cut,
            "{path}: found a modified manifest; expected the manifest that the run that filled the cache wrote",
        ),
        (
            "cache.json",
            lambda path: flip(path, path.read_text().index("pictures/1.0.0")),
            "{path}: found a modified manifest; expected the manifest that the run that filled the cache wrote",
        ),
    ],
    ids=["a part cut short", "no part", "a flipped byte in the index", "a manifest cut short", "another manifest"],
)
def test_a_broken_cache_is_not_opened(name: str, damage: Any, message: str, store: CacheStore) -> None:
    published(store)
    path = store.folder / KEY / name
    damage(path)
    with pytest.raises(BrokenError) as caught:
        store.open(KEY)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize("damage", [cut, Path.unlink], ids=["cut short", "gone"])
def test_a_cache_without_a_whole_part_is_listed_as_broken(damage: Any, store: CacheStore) -> None:
    published(store)
    damage(store.folder / KEY / "part_00000.bin")
    assert [entry.manifest for entry in store.entries()] == [None]


def test_a_cache_under_the_wrong_key_is_not_opened(store: CacheStore) -> None:
    published(store)
    (store.folder / KEY).rename(store.folder / "another")
    with pytest.raises(BrokenError) as caught:
        store.open("another")
    assert str(caught.value) == (
        f"{store.folder / 'another' / 'cache.json'}: found the manifest of another cache; expected that of another"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"files": ["index.npz"]},
        {"files": {}},
        {"files": {"index.npz": "x"}},
        {"identity": "pictures"},
        {"identity": [["dataset"], ["size", 4, 5]]},
        {"made_by": []},
    ],
    ids=str,
)
def test_a_manifest_of_other_types_is_a_broken_one(changed: dict[str, Any], store: CacheStore) -> None:
    """As another program might write it, with a right checksum."""
    published(store)
    path = store.folder / KEY / "cache.json"
    cache = {**json.loads(path.read_text())["cache"], **changed}
    path.write_text(json.dumps({"cache": cache, "checksum": checksum(json.dumps(cache, sort_keys=True).encode())}))
    assert [entry.manifest for entry in store.entries()] == [None]
    with pytest.raises(BrokenError, match=f"^{re.escape(str(path))}: found a modified manifest; expected "):
        store.open(KEY)


def test_a_folder_without_a_manifest_is_a_broken_cache(store: CacheStore) -> None:
    published(store)
    (store.folder / KEY / "cache.json").unlink()
    with pytest.raises(BrokenError) as caught:
        store.open(KEY)
    assert str(caught.value).endswith("cache.json: found no manifest; expected that of a complete cache")
    assert [entry.manifest for entry in store.entries()] == [None]
    assert store.remove(KEY, broken=caught.value.inode)
    assert store.open(KEY) is None


class Failing(CacheStore):
    """On a disk that loses a byte of each cache."""

    def publish(self, key: str, claim: Claim, manifest: Manifest) -> Opened | None:
        cut(claim.folder / "part_00000.bin")
        return super().publish(key, claim, manifest)


def test_a_cache_that_is_broken_when_it_is_published_does_not_end_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    keeper = keeper_of(Failing(tmp_path), said.append)
    keeper.prepare()
    fill = keeper.begin()
    keeper.add(fill, PICTURES[0], fill)
    keeper.publish(fill)
    assert keeper.begin() == -1
    keeper.close()
    assert keeper.passes == ["uncached", "uncached"]
    found = f"{tmp_path / KEY / 'part_00000.bin'}: found 67 bytes; expected 68 bytes"
    assert said == [f"the cache {KEY} could not be written in {tmp_path}: {found}; passes run without it"]
    said.clear()
    after = keeper_of(CacheStore(tmp_path), said.append)
    after.prepare()
    assert after.is_to_fill
    after.close()
    assert said == [f"the cache {KEY} was broken and will be rebuilt: {found}"]


def test_only_the_broken_folder_is_removed_and_not_what_has_taken_its_place(store: CacheStore) -> None:
    published(store)
    inode = (store.folder / KEY).stat().st_ino
    (store.folder / KEY).rename(store.folder / "aside")
    published(store)
    assert store.remove(KEY, broken=inode)
    assert (store.folder / KEY).is_dir()
    assert store.remove("of another run, which has removed it")


def test_what_is_being_filled_or_removed_is_no_entry(store: CacheStore) -> None:
    published(store)
    for name in (f"{KEY}.filling", f"{KEY}.gone.0123abcd"):
        (store.folder / name).mkdir()
        (store.folder / name / "cache.json").write_text((store.folder / KEY / "cache.json").read_text())
    assert [entry.key for entry in store.entries()] == [KEY]


def test_one_fills_at_a_time(store: CacheStore) -> None:
    claim = store.claim(KEY)
    assert claim is not None
    assert store.is_claimed_here(KEY)
    assert CacheStore(store.folder).claim(KEY) is None
    claim.release()
    assert not store.is_claimed_here(KEY)
    second = CacheStore(store.folder).claim(KEY)
    assert second is not None
    second.release()


def started(code: str) -> subprocess.Popen[str]:
    """A process that runs `code` and then waits, to be killed."""
    lines = f"from etlrun.cache.store import CacheStore; {code}; print('there', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_the_claim_of_a_killed_process_is_free_and_its_files_go(store: CacheStore) -> None:
    process = started(
        f"claim = CacheStore({str(store.folder)!r}).claim({KEY!r})\n"
        "(claim.folder / 'part_00000.bin').write_bytes(b'half')"
    )
    assert store.claim(KEY) is None
    assert list(store.leftovers()) == []
    process.kill()
    process.communicate()
    assert (store.folder / f"{KEY}.filling" / "part_00000.bin").exists()
    claim = store.claim(KEY)
    assert claim is not None
    assert list(claim.folder.iterdir()) == []
    claim.release()


def test_what_dead_runs_have_left_is_removed(store: CacheStore) -> None:
    (store.folder / f"{KEY}.filling").mkdir(parents=True)
    (store.folder / f"{KEY}.gone.0123abcd").mkdir()
    (store.folder / f"{KEY}.gone.0123abcd" / "part_00000.bin").write_bytes(b"half")
    assert [(path.name, reason) for path, reason in store.leftovers()] == [
        (f"{KEY}.filling", ""),
        (f"{KEY}.gone.0123abcd", ""),
    ]
    assert not list(store.folder.glob(f"{KEY}.*ing")) + list(store.folder.glob("*.gone.*"))


def test_a_cache_in_use_is_not_removed(store: CacheStore) -> None:
    published(store)
    opened = store.open(KEY)
    assert opened is not None
    assert [entry.in_use for entry in store.entries()] == [True]
    assert not CacheStore(store.folder).remove(KEY)
    opened.close()
    assert [entry.in_use for entry in store.entries()] == [False]
    assert store.remove(KEY)
    assert store.entries() == []
    assert not (store.folder / KEY).exists()


def test_the_mark_of_a_killed_reader_protects_nothing(store: CacheStore) -> None:
    published(store)
    process = started(f"opened = CacheStore({str(store.folder)!r}).open({KEY!r})")
    assert not store.remove(KEY)
    process.kill()
    process.communicate()
    assert store.remove(KEY)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError) as caught:
        CacheStore(tmp_path / "file" / "caches").make()
    assert str(caught.value) == (
        f"cache.dir: found {tmp_path / 'file' / 'caches'}: Not a directory; expected a folder that can be written to\n"
        "    -> set cache.dir to another folder, or cache=none"
    )
