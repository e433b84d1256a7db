"""Digests of the records that a split reads, and what becomes of a cache whose files change while it is filled."""

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.record import Record
from etlrun.review.difference import compare
from etlrun.run.session import at_work, opened, prepared
from etlrun.sources.content import Content, Shard
from etlrun.stages import STAGES
from etlrun.system import machine
from etlrun.system.machine import calls_here
from tests import pictures
from tests.configs import composed, plan_of, refusal_of_spec
from tests.golden import Says
from tests.own import PETS, image, of_folder, of_records, records
from tests.present import present
from tests.runs import complete_here, emulated, run_here
from tests.test_graph import PLAIN, examples, shuffled_passes
from tests.test_identity import identity_of

EACH = pictures.NUM_EXAMPLES // pictures.SHARDS


def shards_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tfrecord-*"))


def content_of(folder: Path, *, skip: int = 0, take: int = EACH) -> Content:
    """Of these records of each shard."""
    return Content([Shard(path=str(path), skip=skip, take=take) for path in shards_below(folder)])


def relabelled(shard: Path) -> None:
    """Record 5 with the other class, in a file of the same size and time."""
    with tf.io.TFRecordWriter(f"{shard}.new") as writer:
        for number, record in enumerate(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()):
            example = tf.train.Example.FromString(record)
            if number == 5:
                label = example.features.feature["label"].int64_list.value
                label[0] = 1 - label[0]
            writer.write(example.SerializeToString(deterministic=True))
    before = shard.stat()
    assert Path(f"{shard}.new").stat().st_size == before.st_size
    Path(f"{shard}.new").replace(shard)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def data(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the images, whose features have an order that can be had again."""
    folder = tmp_path / "data"
    shutil.copytree(tiny, folder)
    for shard in shards_below(folder):
        relabelled(shard)
        relabelled(shard)
    return folder


def test_a_digest_tells_which_records_are_read_and_nothing_of_their_folder(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    found = present(content_of(data).digest)
    assert (len(found), content_of(tmp_path / "copy").digest) == (16, found)
    parts = [content_of(data, skip=skip, take=take).digest for skip, take in ((0, 5), (5, 5), (6, 6), (0, 6))]
    assert len({found, *parts}) == 5
    relabelled(shards_below(data)[1])
    assert content_of(data).digest != found
    now = [content_of(data, skip=skip, take=take).digest for skip, take in ((0, 5), (5, 5), (6, 6), (0, 6))]
    assert [one == other for one, other in zip(parts, now, strict=True)] == [True, False, True, False]


def test_the_order_of_the_files_counts(data: Path) -> None:
    first, second = shards_below(data)[:2]
    found = content_of(data).digest
    first.rename(f"{first}.aside")
    second.rename(first)
    Path(f"{first}.aside").rename(second)
    assert content_of(data).digest != found


def zeros(shard: Path) -> None:
    shard.write_bytes(bytes(1_000_000))


def with_length(length: int) -> Callable[[Path], None]:
    """Damage that gives the second record that length."""

    def damage(shard: Path) -> None:
        data = bytearray(shard.read_bytes())
        place = 16 + struct.unpack_from("<Q", data)[0]
        struct.pack_into("<Q", data, place, length)
        shard.write_bytes(data)

    return damage


@pytest.mark.parametrize(
    "damage",
    [pictures.truncate, zeros, with_length(0), with_length(10**9), with_length(2**63), with_length(2**64 - 17),
     lambda shard: shard.write_bytes(b""), lambda shard: shard.write_bytes(shard.read_bytes() + b"more")],
    ids=["truncated", "zeros", "no length", "past the end", "past any end", "negative", "empty", "more"],
)  # fmt: skip
def test_a_damaged_file_has_no_digest_and_counts_as_a_whole_for_a_cache(
    damage: Callable[[Path], None], data: Path, says: Says
) -> None:
    sound = content_of(data).files(whole=False)
    damage(shards_below(data)[1])
    found = content_of(data)
    assert found.digest is None
    says([one == other for one, other in zip(sound, found.files(whole=False), strict=True)])
    assert found.files(whole=False)[1] == content_of(data).files(whole=True)[1]


def test_files_of_other_formats_have_no_digest(data: Path) -> None:
    for shard in shards_below(data):
        shard.rename(shard.with_name(shard.name.replace("tfrecord", "array_record")))
    shards = [Shard(path=str(path), skip=0, take=EACH) for path in sorted(data.rglob("*.array_record-*"))]
    found = Content(shards)
    assert len(shards) == pictures.SHARDS
    assert found.digest is None
    assert found.files(whole=False) == Content(shards).files(whole=True)


def copied_over(shard: Path) -> None:
    shutil.copy(shard, f"{shard}.new")
    Path(f"{shard}.new").replace(shard)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda shard: shard.chmod(0o600), False),
        (lambda shard: Path(f"{shard}.link").hardlink_to(shard), False),
        (copied_over, False),
        (relabelled, True),
        (Path.unlink, True),
        (pictures.truncate, True),
    ],
    ids=["permissions", "a link", "a copy", "relabelled", "removed", "truncated"],
)
@pytest.mark.parametrize("whole", [False, True])
def test_only_other_records_are_a_change(
    change: Callable[[Path], None], data: Path, *, counts: bool, whole: bool
) -> None:
    found = content_of(data)
    found.files(whole=whole)
    assert found.changed() is None
    shard = shards_below(data)[1]
    change(shard)
    assert found.changed() == (str(shard) if counts else None)


def test_pipelines_are_closed_once(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = emulated(tiny, "cache=none")
    planned, closed = plan(parse(composed(*words), STAGES)), list[str]()
    work = prepared(planned, Record.create(tmp_path, composed(*words), words), opened(planned))
    with at_work(work):
        for name, of in work.inputs.items():
            monkeypatch.setattr(of.pipeline, "close", partial(closed.append, name))
    assert closed == [*work.inputs]


def test_what_is_exchanged_while_a_cache_is_filled_is_neither_kept_nor_claimed(data: Path, tmp_path: Path) -> None:
    words = emulated(
        data, "cache=disk", f"cache.dir={tmp_path / 'caches'}", "extract=sequential", "dataset.split=train"
    )
    words += ["dataset.eval_split=null", "measure.digest=true", "load.drop_remainder=false"]
    planned = plan(parse(composed(*words), STAGES))
    record = Record.create(tmp_path / "run", composed(*words), words)
    record.update(remarks=[])
    work = prepared(planned, record, opened(planned))
    key, shard = work.train.pipeline.keeper.key, shards_below(data)[3]  # type: ignore[union-attr]
    assert record.summary.dataset.digest == {"train": content_of(data).digest}
    with at_work(work):
        batches = iter(work.train.pipeline.dataset)
        next(batches)
        relabelled(shard)
        assert len(list(batches)) == 23
        assert len(list(work.train.pipeline.dataset)) == 24
    text = f"he cache {key} was discarded: {shard} has changed since the run began; passes run without it"
    assert record.summary.remarks == [
        f"T{text}.",
        f"{shard} changed during the run: it is unknown which of its records were read.",
    ]
    assert record.summary.written["cache"]["pipelines"]["train"]["passes"] == ["uncached", "uncached"]
    assert record.summary.dataset.digest == {"train": None}
    assert not list((tmp_path / "caches").glob("*/cache.json"))
    status, summary = run_here(tmp_path / "next", words)
    assert (status, summary["cache"]["pipelines"]["train"]["passes"]) == (0, ["filled"])
    assert summary["cache"]["pipelines"]["train"]["key"] != key


SHUFFLED = ("extract.shuffle_files=true", *PLAIN)
Build = Callable[..., Pipeline]


@pytest.fixture
def shuffled(pipeline: Build) -> Build:
    """Of runs that read shuffled files, without shuffling their examples."""
    return partial(pipeline, *SHUFFLED)


@pytest.mark.parametrize("extract", ["sequential", "interleave"])
def test_each_pass_reads_the_shards_in_an_order_that_follows_from_the_seed(extract: str, shuffled: Build) -> None:
    words = (f"extract={extract}", "cache=none")
    passes, endless = shuffled_passes(partial(shuffled, *words)), shuffled(*words)
    endless.skip(1)
    assert examples(endless.endless().take(12)) == passes[1] + passes[2]


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_cache_keeps_the_order_of_the_first_pass_whenever_it_is_filled(cache: str, shuffled: Build) -> None:
    first = examples(shuffled("cache=none").dataset)
    cached = shuffled(f"cache={cache}")
    assert [examples(cached.dataset) for _ in range(2)] == [first, first]
    resumed = shuffled(f"cache={cache}")
    resumed.skip(2)
    assert examples(resumed.dataset) == first
    endless = shuffled(f"cache={cache}")
    endless.skip(1)
    assert examples(endless.endless().take(12)) == first + first


def test_the_fingerprint_tells_an_order_that_a_cache_keeps(says: Says) -> None:
    each, kept = ("extract.shuffle_files=true", "cache=none"), ("extract.shuffle_files=true", "cache=memory")
    on_disk = ("extract.shuffle_files=true", "cache=disk")
    assert plan_of(*each).fingerprint != plan_of(*kept).fingerprint
    assert plan_of(*kept).fingerprint == plan_of(*on_disk).fingerprint
    assert plan_of(*each).remarks == ()
    says(plan_of(*kept).remarks)
    assert compare(plan_of(*each), plan_of(*kept)).headline == "changes the order"
    assert compare(plan_of(*kept), plan_of(*on_disk)).headline == "changes only the speed"


def test_validation_reads_the_shards_in_the_order_of_their_names() -> None:
    assert not plan_of("extract.shuffle_files=true").evaluation[0].is_random


def test_the_key_of_a_cache_holds_the_seed_where_the_shards_are_shuffled(tiny: Path, tmp_path: Path) -> None:
    def keys(*words: str) -> list[dict[str, object]]:
        return [identity_of(tiny, f"cache.dir={tmp_path}", *words, f"trainer.seed={seed}") for seed in (0, 1)]

    by_name, shuffled = keys(), keys("extract.shuffle_files=true")
    assert by_name[0] == by_name[1]
    assert [name for name in shuffled[0] if shuffled[0][name] != shuffled[1].get(name)] == ["seed"]
    one_shard = "dataset.split='train[:5]'"
    assert keys("extract.shuffle_files=true", one_shard) == keys(one_shard)


@pytest.mark.parametrize("calls", ["cores", "cores-1"])
@pytest.mark.parametrize("cycle_length", ["1", "all"])
def test_calls_that_follow_the_machine_change_no_byte(calls: str, cycle_length: str, shuffled: Build) -> None:
    words = ("cache=none", f"extract.cycle_length={cycle_length}")
    speeds = (f"extract.num_parallel_calls={calls}", f"transform.num_parallel_calls={calls}")
    assert examples(shuffled(*words, *speeds).dataset) == examples(shuffled(*words).dataset)


def test_all_shards_are_as_many_as_the_split_has(shuffled: Build) -> None:
    four = shuffled("cache=none", "extract.cycle_length=4", "extract.num_parallel_calls=4")
    every = shuffled("cache=none", "extract.cycle_length=all", "extract.num_parallel_calls=64")
    assert examples(every.dataset) == examples(four.dataset)


def test_a_plan_tells_the_cores_of_the_machine_and_its_golden_text_does_not() -> None:
    words = ("extract.num_parallel_calls=cores", "extract.cycle_length=2", "transform.num_parallel_calls=cores-1")
    plan, calls = plan_of(*words), "num_parallel_calls"
    assert _values(render.text(plan, 8), calls)[:2] == ["cores (2) speed", "cores-1 (7) speed"]
    assert _values(render.text(plan), calls)[:2] == ["cores speed", "cores-1 speed"]
    assert render.text_here(plan) == render.text(plan, machine.cores())
    assert _values(render.text(plan_of("extract.cycle_length=all"), 8), "cycle_length")[0] == "all order"


def _values(text: str, name: str) -> list[str]:
    return [" ".join(line.split()[1:]) for line in text.splitlines() if line.split()[:1] == [name]]


def test_at_least_one_call_is_left_on_one_core() -> None:
    assert [calls_here(word, 1) for word in ("cores", "cores-1")] == [1, 1]
    assert [calls_here(word, 8) for word in ("cores", "cores-1")] == [8, 7]


def test_other_words_are_refused(says: Says) -> None:
    says(refusal_of_spec("extract.num_parallel_calls=core", "extract.cycle_length=every"))


@pytest.mark.parametrize(
    ("cycle_length", "split", "notes"),
    [
        ("16", "train", ["extract.cycle_length = 16 is limited to 4: the split has 4 shards."]),
        ("4", "train[:5]", ["extract.cycle_length = 4 is limited to 1: the split has 1 shard."]),
        ("4", "train", []),
        ("all", "train[:5]", []),
    ],
)
def test_a_run_notes_a_cycle_above_the_shards_of_its_split(
    cycle_length: str, split: str, notes: list[str], tiny: Path, tmp_path: Path
) -> None:
    words = (
        f"extract.cycle_length={cycle_length}", f"dataset.split='{split}'", "dataset.eval_split=null", "cache=none",
    )  # fmt: skip
    summary = complete_here(tmp_path, emulated(tiny, *words, "model.step_ms=0", "trainer.epochs=2"))
    assert summary["remarks"] == notes


CALM = ("load.prefetch=0", "load.num_parallel_calls=null", "load.shuffle_buffer=0", "measure.digest=true")
TFDS = ("extract=tfds", "extract.decode=true", "transform.steps=[resize,scale_minus_one_one]")
TFDS_EVAL = "transform.eval_steps=[resize,scale_minus_one_one]"


def cached(tmp_path: Path) -> tuple[str, ...]:
    return ("cache=disk", f"cache.dir='{tmp_path / 'caches'}'", *CALM, "dataset.eval_split=null")


def two_files(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    records(data, "a.tfrecord", range(8))
    records(data, "b.tfrecord", range(8, 16))
    return data


@contextmanager
def exchanged(paths: dict[Path, Path]) -> Iterator[None]:
    """Put other files into the place of some, and these back at the end."""
    for path, other in paths.items():
        path.rename(f"{path}.aside")
        other.rename(path)
    yield
    for path, other in paths.items():
        path.rename(other)
        Path(f"{path}.aside").rename(path)


def filled(plan: Plan, folder: Path, paths: dict[Path, Path]) -> tuple[list[str], list[str], object]:
    """Notes, kinds of passes and digest of a run, in whose first pass all batches but the last are those of others."""
    record = Record.create(folder, {}, [])
    record.update(remarks=[])
    work = prepared(plan, record, opened(plan))
    with at_work(work):
        count = -(-work.train.pipeline.split.num_examples // plan.spec.load.batch_size)
        with exchanged(paths):
            batches = iter(work.train.pipeline.dataset)
            for _ in range(count):
                next(batches)
        assert not list(batches)
        assert len(list(work.train.pipeline.dataset)) == count
    summary = record.summary
    return summary.remarks, summary.written["cache"]["pipelines"]["train"]["passes"], summary.dataset.digest["train"]


def is_refused(plan: Plan, folder: Path, paths: dict[Path, Path]) -> None:
    notes, passes, digest = filled(plan, folder, paths)
    (path,) = paths
    assert len(notes) == 2
    assert notes[0].endswith(f" was discarded: {path} has changed since the run began; passes run without it.")
    assert notes[1] == f"{path} changed during the run: it is unknown which of its records were read."
    assert ({*passes}, digest) == ({"uncached"}, None)
    assert not list(folder.parent.glob("caches/*/cache.json"))


@pytest.mark.parametrize(
    "words",
    [
        ("extract=sequential",),
        ("extract.cycle_length=4", "extract.num_parallel_calls=autotune", "extract.shuffle_files=true"),
        ("extract.cycle_length=3", "cache.at=source"),
        ("extract=sequential", "dataset.on_corrupt=skip"),
        ("extract=sequential", "load.shuffle=full"),
        ("extract=sequential", "dataset.split=train+train"),
    ],
    ids=["sequential", "interleave", "source", "skip", "full", "twice"],
)
def test_a_shard_that_was_another_one_for_a_while(words: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    plan, shard, other = with_another_shard(tiny, tmp_path, *words)
    is_refused(plan, tmp_path / "run", {shard: other})


def with_another_shard(tiny: Path, tmp_path: Path, *words: str) -> tuple[Plan, Path, Path]:
    """The plan of a run on a copy of the data, one of its shards, and the same with another label."""
    shutil.copytree(tiny, tmp_path / "data")
    shard = shards_below(tmp_path / "data")[1]
    relabelled(shard)
    other = tmp_path / "other.tfrecord-00000-of-00001"
    shutil.copy(shard, other)
    relabelled(other)
    return plan_of(*emulated(tmp_path / "data", *cached(tmp_path), "dataset.split=train", *words)), shard, other


def test_a_shard_that_was_another_one_for_a_while_and_is_read_by_tfds(tiny: Path, tmp_path: Path) -> None:
    """Its records are not seen, so that the files and their folders must be as they were."""
    plan, shard, other = with_another_shard(tiny, tmp_path, *TFDS, TFDS_EVAL)
    with_folder = shard.parent, tmp_path / "other"
    notes, passes, digest = filled(plan, tmp_path / "run", {shard: other})
    assert notes[0].endswith(f" was discarded: {shard} has changed since the run began; passes run without it.")
    assert (passes, digest) == (["uncached", "uncached"], None)
    shutil.copytree(*with_folder)
    notes, passes, digest = filled(plan, tmp_path / "again", dict([with_folder]))
    assert notes[0].endswith(f" was discarded: {shard.parent} has changed since the run began; passes run without it.")
    assert (passes, digest) == (["uncached", "uncached"], None)


@pytest.mark.parametrize(
    "words",
    [
        ("cache.at=source",),
        ("extract=sequential", "transform.decode.library=tensorflow"),
        ("dataset.on_corrupt=skip",),
    ],
    ids=["source", "tensorflow", "skip"],
)
def test_an_image_of_a_folder_that_was_another_one_for_a_while(
    words: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    path, other = folder / PETS[0] / "no 6.jpg", tmp_path / "other.jpg"
    other.write_bytes(image(90))
    is_refused(of_folder(folder, *cached(tmp_path), "dataset.split=train", *words), tmp_path / "run", {path: other})


def test_a_folder_that_was_another_one_for_a_while(folder: Path, tmp_path: Path) -> None:
    """Nothing of what was there before has another time then."""
    shutil.copytree(folder, tmp_path / "other")
    path = folder / PETS[1] / "no 5.jpg"
    (tmp_path / "other" / path.relative_to(folder)).write_bytes(image(90))
    notes, passes, _ = filled(
        of_folder(folder, *cached(tmp_path), "dataset.split=train"), tmp_path / "run", {folder: tmp_path / "other"}
    )
    assert notes[0].endswith(f" was discarded: {path} has changed since the run began; passes run without it.")
    assert passes == ["uncached", "uncached"]


def test_a_file_of_records_that_was_another_one_for_a_while(tmp_path: Path) -> None:
    """With the same records in another order: a cache holds them in the order of its key."""
    data = two_files(tmp_path)
    records(tmp_path, "other.tfrecord", range(15, 7, -1))
    is_refused(
        of_records(data, *cached(tmp_path), "extract=sequential"),
        tmp_path / "run",
        {data / "b.tfrecord": tmp_path / "other.tfrecord"},
    )


def test_what_was_exchanged_outside_of_a_split_is_no_matter(tmp_path: Path) -> None:
    data = two_files(tmp_path)
    records(tmp_path, "other.tfrecord", range(20, 28))
    plan = of_records(data, *cached(tmp_path), "dataset.split='train[:8]'", "extract=sequential")
    notes, passes, _ = filled(plan, tmp_path / "run", {data / "b.tfrecord": tmp_path / "other.tfrecord"})
    assert (notes, passes) == ([], ["filled", "read"])
