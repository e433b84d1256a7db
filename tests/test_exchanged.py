"""Files that are exchanged while a cache is filled, and put back before its end: the cache holds none of them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.session import at_work, opened, prepared
from tests.configs import plan_of
from tests.own import PETS, image, of_folder, of_records, records
from tests.runs import emulated
from tests.test_content import relabelled, shards_below

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
        count = -(-work.train.split.num_examples // plan.spec.load.batch_size)
        with exchanged(paths):
            batches = iter(work.train.dataset)
            for _ in range(count):
                next(batches)
        assert not list(batches)
        assert len(list(work.train.dataset)) == count
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
        ("extract.cycle_length=3", "transform.parse_batch=5", "cache.at=source"),
        ("extract=sequential", "dataset.on_corrupt=skip"),
        ("extract=sequential", "load.shuffle=full"),
        ("extract=sequential", "dataset.split=train+train"),
    ],
    ids=["sequential", "interleave", "parse_batch", "skip", "full", "twice"],
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
        ("transform.parse_batch=4",),
        ("dataset.on_corrupt=skip",),
    ],
    ids=["source", "tensorflow", "parse_batch", "skip"],
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
