"""A store of caches: what it reads back, finds broken, and keeps where a config changes; JPEGs and features."""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.cache.parts import BrokenError, Manifest, checksum
from etlrun.cache.store import CacheStore, Claim, Opened
from etlrun.graph.build import Pipeline
from etlrun.graph.identity import PARTS
from etlrun.planning.plan import Plan, at_cache
from etlrun.review.difference import compare
from etlrun.review.effects import VALID, caches
from etlrun.run.readings import keepers_for
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.system.errors import WorldError
from tests import pictures
from tests.configs import CONF, TENSORFLOW, plan_of, raised
from tests.golden import Case, Golden, Says, cases
from tests.pipelines import as_bytes, passes_of
from tests.present import present
from tests.programs import of_tiny
from tests.runs import complete_here, emulated, run_here, small
from tests.stores import KEY, PICTURES, begun, keeper_of, published, started

RELATIVE = 1e-4
"""Between losses with and without a cache of features: other batches through the base, other rounding."""


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Two epochs without a cache, and with one of features in memory, on disk, and on disk again."""
    folder = tmp_path_factory.mktemp("features")
    words = small(tiny, "trainer.epochs=2", "trainer.learning_rate=0.1")
    disk = ["cache=disk", "cache.at=features", f"cache.dir={folder / 'caches'}"]
    settings = {"none": ["cache=none"], "memory": ["cache=memory", "cache.at=features"], "filled": disk, "read": disk}
    found = {}
    for name, extra in settings.items():
        summary = complete_here(folder / name, [*words, *extra])
        found[name] = folder / name, summary
    return found


def losses(summary: dict[str, Any]) -> list[float]:
    return [epoch[key] for epoch in summary["epochs"] for key in ("loss", "val_loss")]


@cache
def head_of(folder: Path) -> list[Any]:
    weights: list[Any] = keras.models.load_model(folder / "model.keras").get_layer("probabilities").get_weights()
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "filled", "read"])
def test_losses_and_the_head_are_those_of_a_run_without_a_cache(
    name: str, runs: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    folder, summary = runs[name]
    plain_folder, plain = runs["none"]
    assert losses(summary) == pytest.approx(losses(plain), rel=RELATIVE)
    assert losses(plain)[0] != pytest.approx(losses(plain)[2], rel=RELATIVE)
    for mine, other in zip(head_of(folder), head_of(plain_folder), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


def test_the_second_run_computes_no_features(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    filled, read = (runs[name][1]["cache"]["pipelines"] for name in ("filled", "read"))
    assert [pipeline["passes"] for pipeline in filled.values()] == [["filled", "read"]] * 2
    assert [pipeline["passes"] for pipeline in read.values()] == [["read", "read"]] * 2
    assert read["train"]["held_bytes"] == 38 * (1280 * 4 + 8)
    assert runs["memory"][1]["cache"]["pipelines"]["train"]["held_bytes"] == 38 * (1280 * 4 + 8)
    remark = "cache.at = features: losses differ from those without a cache by rounding."
    assert remark in runs["read"][1]["remarks"]


def test_the_saved_model_takes_pictures(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    answers = [keras.models.load_model(runs[name][0] / "model.keras").predict(pictures) for name in ("none", "memory")]
    assert answers[0].shape == (3, 2)
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_run_goes_on_with_another_cache(
    tiny: Path, runs: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    words = small(tiny, "trainer.epochs=3", "trainer.learning_rate=0.1")
    whole = run_here(tmp_path / "whole", [*words, "cache=none"])[1]
    resumed = f"trainer.resume={runs['memory'][0]}"
    summary = complete_here(tmp_path / "on", [*words, "cache=none", resumed])
    assert losses(summary) == pytest.approx(losses(whole), rel=RELATIVE)
    back = f"trainer.resume={runs['none'][0]}"
    summary = complete_here(tmp_path / "back", [*words, "cache=memory", "cache.at=features", back])
    assert losses(summary) == pytest.approx(losses(whole), rel=RELATIVE)


def test_other_weights_are_another_cache(
    tiny: Path, runs: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    caches = runs["filled"][0].parent / "caches"
    words = small(tiny, "cache=disk", "cache.at=features", f"cache.dir={caches}", "trainer.seed=1")
    summary = complete_here(tmp_path / "other", words)
    assert summary["cache"]["pipelines"]["train"]["passes"] == ["filled"]


JPEG = "cache.codec=jpeg90"
FLIPPED = ("transform.steps=[decode,resize,random_flip,scale_minus_one_one]", "cache.at=resize")


def stages_of(plan: Plan) -> dict[str, Any]:
    return {planned.stage.path: planned.stage for planned in plan.train}


def images_of(batches: Any) -> Any:
    return np.concatenate([image for image, _ in batches.as_numpy_iterator()])


@pytest.mark.parametrize("more", [(), FLIPPED], ids=["plain", "flipped"])
@pytest.mark.parametrize("library", [(TENSORFLOW,), ()], ids=["tensorflow", "turbo"])
def test_each_pass_sees_what_the_jpegs_hold(
    library: tuple[str, ...], more: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    words = small(tiny, JPEG, f"cache.dir={tmp_path}", *library, *more)
    disk, memory = (passes_of(plan_of(*words, f"cache={target}"), 3) for target in ("disk", "memory"))
    assert (
        disk == memory == passes_of(plan_of(*words, "cache=disk"), 3)
    )  # filled, in memory, and read from the first pass on
    raw = passes_of(plan_of(*small(tiny, f"cache.dir={tmp_path}", *library, *more), "cache=memory"), 3)
    assert raw != memory
    assert [labels for _, labels, _ in memory[0]] == [labels for _, labels, _ in raw[0]]


def test_the_first_pass_is_that_of_an_encoder_and_a_decoder(tiny: Path) -> None:
    words = small(tiny, "load.shuffle_buffer=0", "cache=memory", "transform.resize.size=[64,96]")
    raw, held = (images_of(Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset))["train"]).dataset)
                 for plan in (plan_of(*words), plan_of(*words, "cache.codec=jpeg95")))  # fmt: skip
    for image, found in zip(raw, held, strict=True):
        expected = tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=95, chroma_downsampling=True))
        np.testing.assert_array_equal(found, expected)


def test_both_libraries_read_the_same_pixels(tiny: Path) -> None:
    """So that the choice changes the speed of a cache, and the pixels only by what is before it."""
    words = small(tiny, "cache=memory", JPEG, "transform.resize.size=[40,48]")
    plain, turbo = (stages_of(plan_of(*words, *library)) for library in ((TENSORFLOW,), ()))
    assert [*turbo][-3:] == ["load.batch", "transform.turbo_after_cache", "load.prefetch"]
    natively, (step,) = turbo["transform.turbo_after_cache"], plain["transform.after_cache"].steps
    for seed in range(5):
        data = pictures.jpeg(seed)
        (found,) = natively.op([data], **natively.arguments)
        np.testing.assert_array_equal(found, step.op(data, **step.arguments))
    assert plan_of(*words).fingerprint != plan_of(*words, TENSORFLOW).fingerprint


def test_it_changes_the_data_of_a_run_with_a_cache() -> None:
    fingerprints = {
        codec: {plan_of(cache, f"cache.codec={codec}").fingerprint for cache in ("cache=memory", "cache=disk")}
        for codec in ("raw", "jpeg90", "jpeg95")
    }
    assert [len(found) for found in fingerprints.values()] == [1, 1, 1]
    assert len(set.union(*fingerprints.values())) == 3
    assert plan_of("cache=none", JPEG).fingerprint == plan_of("cache=none").fingerprint
    unused = "cache.codec = jpeg90 has no effect with cache=none: images stay as they are."
    assert plan_of("cache=none", JPEG).remarks == (unused,)
    found = compare(plan_of("cache=disk"), plan_of("cache=disk", JPEG))
    assert found.changes_data
    assert found.headline == "changes the data, from the cache on"
    assert compare(plan_of("cache=none"), plan_of("cache=disk", JPEG)).headline == found.headline
    assert not compare(plan_of("cache=none", JPEG), plan_of("cache=disk")).changes_data
    assert not compare(plan_of("cache=memory", JPEG), plan_of("cache=disk", JPEG)).changes_data


@pytest.mark.slow
def test_a_program_reads_the_same_batches(tiny: Path, tmp_path: Path) -> None:
    for library in ((TENSORFLOW,), ()):
        words = ("cache=disk", JPEG, f"cache.dir={tmp_path / 'caches'}", *FLIPPED, *library)
        _, module = of_tiny(tiny, tmp_path, *words)
        passes = passes_of(plan_of(*small(tiny, *words)), 3)
        found = as_bytes(module.train_dataset())
        assert found == [batch for one in passes for batch in one][: len(found)]


def test_a_run_fills_and_reads_it_and_knows_its_size(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "cache=disk", JPEG, f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=2")
    words += ["measure.digest=true", "transform.resize.size=[128,128]"]
    runs = [run_here(tmp_path / name, words) for name in ("fills", "reads")]
    assert [status for status, _ in runs] == [0, 0]
    passes = [summary["cache"]["pipelines"]["train"]["passes"] for _, summary in runs]
    assert passes == [["filled", "read"], ["read", "read"]]
    assert len({epoch["digest"] for _, summary in runs for epoch in summary["epochs"]}) == 1
    assert runs[0][1]["plan_fingerprint"] == runs[1][1]["plan_fingerprint"]
    cache = runs[0][1]["cache"]
    held = sum(pipeline["held_bytes"] for pipeline in cache["pipelines"].values())
    assert cache["forecast_bytes"] == pytest.approx(held + 48 * 64, rel=0.05)
    assert {"cache.disk", "transform.turbo_after_cache"} <= {row["stage"] for row in runs[1][1]["stages"]}


def test_corrupt_records_are_skipped_before_it(tiny: Path, tmp_path: Path) -> None:
    damage = pictures.with_feature("image", pictures.feature_of(b"no picture"))
    pictures.damaged(tiny, tmp_path / "data", damage)
    for library in ("tensorflow", "turbo"):
        words = emulated(
            tmp_path / "data", "cache=memory", JPEG, "dataset.on_corrupt=skip", "load.drop_remainder=false"
        )
        summary = complete_here(tmp_path / library, [*words, f"transform.decode.library={library}"])
        assert (summary["skipped"]["train"], summary["epochs"][0]["examples"]) == (1, 37)


def test_its_key_names_the_quality(tiny: Path) -> None:
    from etlrun.graph.identity import identity

    keys = []
    for words in ((), (JPEG,), ("cache.codec=jpeg95",), (JPEG, "load.batch_size=4")):
        plan = plan_of(*small(tiny, "cache=disk", *words))
        context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
        keys.append(identity(at_cache(plan.train)[0], context))
    assert keys[1] == keys[3]
    assert keys[0] != keys[1] != keys[2] != keys[0]
    assert ["cache.codec.quality", 90] in keys[1]


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
    opened = present(store.open(KEY))
    pictures, labels = opened.batch(np.array([6, 0, 3]))
    np.testing.assert_array_equal(pictures, PICTURES[[6, 0, 3]])
    assert labels.tolist() == [6, 0, 3]
    picture, label = opened.one(2)
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
    opened = present(store.open(published(store, pictures=pictures)))
    for number, wanted in enumerate(pictures):
        picture, label = opened.one(number)
        np.testing.assert_array_equal(picture, wanted)
        assert label == number
    opened.close()


@pytest.mark.smoke
def test_memory_of_a_batch_is_taken_again_once_nothing_uses_it(store: CacheStore) -> None:
    opened = present(store.open(published(store)))
    first, _ = opened.batch(np.arange(3))
    place, view = first.ctypes.data, first[1:].reshape(-1)
    del first
    second, _ = opened.batch(np.arange(3, 6))
    np.testing.assert_array_equal(view, PICTURES[1:3].reshape(-1))
    np.testing.assert_array_equal(second, PICTURES[3:6])
    del view
    third, _ = opened.batch(np.arange(2))
    assert third.ctypes.data == place
    np.testing.assert_array_equal(third, PICTURES[:2])
    np.testing.assert_array_equal(second, PICTURES[3:6])
    opened.close()


def test_many_parts_are_one_cache(store: CacheStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etlrun.cache.parts.PART_BYTES", 100)
    published(store)
    assert sorted(path.name for path in (store.folder / KEY).glob("part_*")) == [
        f"part_{part:05}.bin" for part in range(4)
    ]
    opened = present(store.open(KEY))
    np.testing.assert_array_equal(opened.batch(np.arange(7))[0], PICTURES)
    opened.close()


def flip(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_in_a_part_is_found_when_it_is_read(store: CacheStore) -> None:
    published(store)
    part = store.folder / KEY / "part_00000.bin"
    flip(part)
    opened = present(store.open(KEY))
    opened.one(5)
    told = raised(BrokenError, opened.batch, np.array([5, 6]))
    assert told.startswith(f"{part}: found example 6 with checksum ")
    opened.close()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("part_00000.bin", cut),
        ("part_00000.bin", Path.unlink),
        ("index.npz", flip),
        ("cache.json", cut),
        ("cache.json", lambda path: flip(path, path.read_text().index("pictures/1.0.0"))),
    ],
    ids=["a part cut short", "no part", "a flipped byte in the index", "a manifest cut short", "another manifest"],
)
def test_a_broken_cache_is_not_opened(name: str, damage: Any, store: CacheStore, says: Says) -> None:
    published(store)
    damage(store.folder / KEY / name)
    says(raised(BrokenError, store.open, KEY))
    assert name == "index.npz" or [entry.manifest for entry in store.entries()] == [None]


def test_a_cache_under_the_wrong_key_is_not_opened(store: CacheStore, says: Says) -> None:
    published(store)
    (store.folder / KEY).rename(store.folder / "another")
    says(raised(BrokenError, store.open, "another"))


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
    fill = begun(keeper)
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


@pytest.mark.smoke
def test_one_fills_at_a_time(store: CacheStore) -> None:
    claim = present(store.claim(KEY))
    assert store.is_claimed_here(KEY)
    assert CacheStore(store.folder).claim(KEY) is None
    claim.release()
    assert not store.is_claimed_here(KEY)
    second = present(CacheStore(store.folder).claim(KEY))
    second.release()


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
    claim = present(store.claim(KEY))
    assert list(claim.folder.iterdir()) == []
    claim.release()


def test_what_dead_runs_have_left_is_removed(store: CacheStore, says: Says) -> None:
    (store.folder / f"{KEY}.filling").mkdir(parents=True)
    (store.folder / f"{KEY}.gone.0123abcd").mkdir()
    (store.folder / f"{KEY}.gone.0123abcd" / "part_00000.bin").write_bytes(b"half")
    says([(path.name, reason) for path, reason in store.leftovers()])
    assert not list(store.folder.glob(f"{KEY}.*ing")) + list(store.folder.glob("*.gone.*"))


@pytest.mark.parametrize("count", [4, 16])
def test_marks_are_found_without_listing_all_caches(
    count: int, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are read in folders, for each cache: as many with four caches as with sixteen."""
    for number in range(count):
        published(store, [["dataset", number]])
    listed, listing = list[str](), os.listdir

    def noted(folder: Path) -> Iterator[Path]:
        names = listing(folder)
        listed.extend(names)
        return iter([folder / name for name in names])

    monkeypatch.setattr(Path, "iterdir", noted)
    entries = store.entries()
    assert all(store.remove(entry.key) for entry in entries)
    assert len(entries) == count
    assert len(listed) <= count + len(("lock", "in_use")) + count  # each once, with its claim


def test_a_cache_in_use_is_not_removed(store: CacheStore) -> None:
    published(store)
    opened = present(store.open(KEY))
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


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, says: Says) -> None:
    (tmp_path / "file").write_text("")
    says(raised(WorldError, CacheStore(tmp_path / "file" / "caches").make))
