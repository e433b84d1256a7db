"""Digests of the records that a split reads, and what becomes of a cache whose files change while it is filled."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.record import Record
from etlrun.run.session import at_work, opened, prepared
from etlrun.sources.content import Content, Shard
from etlrun.stages import STAGES
from tests import pictures
from tests.configs import composed
from tests.runs import emulated, run_here

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
    found = content_of(data).digest
    assert found is not None
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
    damage: Callable[[Path], None], data: Path
) -> None:
    sound = content_of(data).files(whole=False)
    damage(shards_below(data)[1])
    found = content_of(data)
    assert found.digest is None
    assert [one == other for one, other in zip(sound, found.files(whole=False), strict=True)] == [
        True,
        False,
        True,
        True,
    ]
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


def test_what_is_exchanged_while_a_cache_is_filled_is_neither_kept_nor_claimed(data: Path, tmp_path: Path) -> None:
    words = emulated(
        data, "cache=disk", f"cache.dir={tmp_path / 'caches'}", "extract=sequential", "dataset.split=train"
    )
    words += ["dataset.eval_split=null", "measure.digest=true", "load.drop_remainder=false"]
    planned = plan(parse(composed(*words), STAGES))
    record = Record.create(tmp_path / "run", composed(*words), words)
    record.update(remarks=[])
    work = prepared(planned, record, opened(planned))
    key, shard = work.pipelines["train"].keeper.key, shards_below(data)[3]  # type: ignore[union-attr]
    assert record.summary.dataset.digest == {"train": content_of(data).digest}
    with at_work(work):
        batches = iter(work.train.dataset)
        next(batches)
        relabelled(shard)
        assert len(list(batches)) == 23
        assert len(list(work.train.dataset)) == 24
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
