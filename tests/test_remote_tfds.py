"""Datasets of TFDS at URLs: the same batches as those of the files, while their shards arrive, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.plan.plan import Plan
from etlrun.sources.corrupt import raise_cause
from etlrun.sources.open import open_source
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.pipelines import as_bytes, training_pipeline
from tests.servers import Server, serving

WORDS = ("dataset=sample", "model=emulated", "transform.resize.size=[16,16]", "cache=none", "load.prefetch=0")
SHARD = "etlrun_sample/1.0.0/etlrun_sample-train.tfrecord-0000{}-of-00008"


@pytest.fixture
def server(sample: Path) -> Iterator[Server]:
    with serving() as found:
        found.put_folder(sample)
        yield found


def planned(data_dir: object, *words: str) -> Plan:
    return plan_of(*WORDS, f"dataset.data_dir={data_dir}", *words)


def passes(plan: Plan, count: int = 2) -> list[Any]:
    with training_pipeline(plan) as pipeline:
        return [as_bytes(pipeline.dataset) for _ in range(count)]


@pytest.mark.parametrize(
    "words",
    [
        ("extract=sequential",),
        ("extract=interleave", 'dataset.split="train[10:70%]+train[5%:15%]"'),
        ("extract=interleave", "extract.cycle_length=3", "extract.num_parallel_calls=null", "load.prefetch=2"),
        ("extract=interleave", "transform.parse_batch=4", "load.shuffle_buffer=0"),
        ("extract=sequential", "cache=memory", "dataset.on_corrupt=skip"),
        ("extract=sequential", "extract.shuffle_files=false", "load.shuffle=full"),
        ("extract=tfds",),
    ],
)
def test_batches_are_those_of_the_files(server: Server, sample: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    here = planned(sample, *words)
    there = planned(server.url, f"dataset.copies={tmp_path}", *words)
    assert there.fingerprint == here.fingerprint
    server.pause_s = 0.002
    assert passes(there) == passes(here)
    sent = len(server.sent)
    assert passes(planned(f"{server.url}/", f"dataset.copies={tmp_path / 'other'}", *words), 1) == passes(here, 1)
    assert len(server.sent) > sent


def test_training_begins_with_the_first_shard(server: Server, sample: Path, tmp_path: Path) -> None:
    words = ("extract=sequential", "extract.shuffle_files=false", "load.shuffle_buffer=0")
    with training_pipeline(planned(server.url, f"dataset.copies={tmp_path}", *words)) as pipeline:
        server.held = {SHARD.format(number) for number in range(1, 8)}
        batches = iter(pipeline.dataset)
        first = next(batches)
        server.pause.set()
        count = 1 + sum(1 for _ in batches)
    here = passes(planned(sample, *words), 1)[0]
    assert (first[0].numpy().tobytes(), count) == (here[0][0], len(here))


def test_less_is_kept_than_there_is(server: Server, sample: Path, tmp_path: Path) -> None:
    sizes = [len(content) for name, content in server.files.items() if "tfrecord" in name]
    words = ("extract=interleave", "extract.cycle_length=2", "extract.num_parallel_calls=null")
    keep = f"dataset.keep={4 * max(sizes) // 1000}kB"
    there = planned(server.url, f"dataset.copies={tmp_path}", keep, "dataset.storage={at_once: 1}", *words)
    assert passes(there, 3) == passes(planned(sample, *words), 3)
    held = [path.stat().st_size for path in (tmp_path / "fetched").rglob("*.tfrecord*")]
    assert 0 < sum(held) <= 4 * max(sizes) < sum(sizes)
    assert server.sent_of(SHARD.format(0)) > len(server.files[SHARD.format(0)])


def test_a_pass_goes_on_in_its_middle(server: Server, sample: Path, tmp_path: Path) -> None:
    words = ("extract=interleave", "load.shuffle_buffer=100")
    with training_pipeline(planned(server.url, f"dataset.copies={tmp_path}", *words)) as pipeline:
        pipeline.skip_passes(1)
        pipeline.skip_batches(3)
        rest = as_bytes(pipeline.dataset)
    assert rest == passes(planned(sample, *words), 2)[1][3:]


def test_a_shard_that_is_gone_or_changes_is_named(server: Server, tmp_path: Path) -> None:
    words, lost = ("extract=sequential", "dataset.on_corrupt=raise"), SHARD.format(3)
    plan = planned(server.url, f"dataset.copies={tmp_path}", *words)
    open_source(plan.spec.dataset)  # which lists the shards
    content = server.files.pop(lost)
    gone = "found no such object; expected one that is there\n    -> check the URL"
    assert failure(plan) == f"{server.url}/{lost}: {gone}"
    server.put(lost, content + b"!")
    assert failure(plan) == (
        f"{server.url}/{lost}: found another version than at the start of the run; expected an object that stays\n"
        "    -> run it again; if that remains, ask who writes the object"
    )


def failure(plan: Plan) -> str:
    """What ends a pass."""
    with training_pipeline(plan) as pipeline:
        with pytest.raises(tf.errors.OpError) as ended:
            as_bytes(pipeline.dataset)
        with pytest.raises(EtlrunError) as caught:
            raise_cause(ended.value, pipeline.context.source, [(pipeline.split, pipeline.context.losses)])
    return str(caught.value)
