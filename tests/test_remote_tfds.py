"""Shards at URLs, of TFDS and of TFRecord files: the same batches as those of the files, and what is refused."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from etlrun.planning.plan import Plan
from etlrun.remote.objects import look_up_again
from etlrun.sources.base import on_disk, open_source
from etlrun.sources.corrupt import raise_cause
from etlrun.system.errors import EtlrunError
from etlrun.system.loading import interrupts
from etlrun.system.machine import rounded
from tests.boxes import words_of
from tests.configs import plan_of, raised, refusal_of_spec
from tests.golden import Says
from tests.pipelines import batches_of, training_pipeline
from tests.servers import Server, serving

Planned = Callable[..., Plan]
FOLDER = "tiny_boxes/1.0.0"
SHARD = FOLDER + "/tiny_boxes-train.tfrecord-0000{}-of-00004"
DRAINED = ("trainer=drain", "trainer.epochs=2", "cache=none", "load.prefetch=0")
IN_ORDER = ("extract=sequential", "extract.shuffle_files=false", "load.shuffle_buffer=0")
FEW = ("extract=interleave", "extract.cycle_length=2")


@pytest.fixture
def server(boxes: Path) -> Iterator[Server]:
    with serving() as found:
        found.put_folder(boxes)
        yield found


@pytest.fixture
def there(server: Server, tmp_path: Path) -> Planned:
    """The plan of a run on the boxes that the server has."""
    return lambda *words: here(server.url, f"dataset.copies={tmp_path}", *words)


def here(data_dir: object, *words: str) -> Plan:
    """The plan of a run on the boxes in a data folder of TFDS."""
    return plan_of(*words_of(data_dir, *DRAINED, *words))  # type: ignore[arg-type]


def as_records(data_dir: object, *words: str) -> Plan:
    """The same boxes as TFRecord files of another program."""
    of_tfds = ("dataset=", "dataset.name=", "dataset.data_dir=", "dataset.download=")
    base = [word for word in words_of("", *DRAINED, *words) if not word.startswith(of_tfds)]  # type: ignore[arg-type]
    files = f"dataset.files={{train: '{data_dir}/{FOLDER}/*.tfrecord*'}}"
    return plan_of("dataset=tfrecord", files, "dataset.num_classes=null", *base)


def passes(plan: Plan, count: int = 2) -> list[list[tuple[bytes, ...]]]:
    with training_pipeline(plan) as pipeline:
        return [batches_of(pipeline.dataset) for _ in range(count)]


def failure(plan: Plan) -> str:
    """What ends a pass."""
    with training_pipeline(plan) as pipeline:
        with pytest.raises(tf.errors.OpError) as ended:
            batches_of(pipeline.dataset)
        with pytest.raises(EtlrunError) as caught:
            raise_cause(ended.value, [(pipeline.split, pipeline.context.losses)])
    return str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("extract=sequential",),
        ("extract=interleave", 'dataset.split="train[10:70%]+train[5%:15%]"', "load.prefetch=2"),
        FEW,
        ("extract=interleave", "load.shuffle_buffer=0"),
        ("extract=sequential", "cache=memory", "dataset.on_corrupt=skip"),
        ("extract=interleave", "cache=disk"),
        ("extract=sequential", "extract.shuffle_files=false", "load.shuffle=full"),
        ("extract=tfds",),
    ],
)
def test_batches_are_those_of_the_files(
    server: Server, boxes: Path, there: Planned, tmp_path: Path, words: tuple[str, ...]
) -> None:
    plan, files = (of(*words, f"cache.dir={tmp_path / 'caches'}") for of in (there, partial(here, boxes)))
    assert plan.fingerprint == files.fingerprint
    expected, server.pause_s = passes(files), 0.002
    assert passes(plan) == expected
    sent = len(server.sent)
    assert passes(plan, 1) == expected[:1]
    assert len(server.sent) == sent


def test_training_begins_with_the_first_shard(server: Server, boxes: Path, there: Planned) -> None:
    with training_pipeline(there(*IN_ORDER)) as pipeline:
        server.held = {SHARD.format(number) for number in range(1, 4)}
        read = iter(pipeline.dataset)
        (first,) = batches_of([next(read)])
        server.pause.set()
        count = 1 + sum(1 for _ in read)
    (expected,) = passes(here(boxes, *IN_ORDER), 1)
    assert (first, count) == (expected[0], len(expected))


class Interrupts(threading.Event):
    """A wait in which this process gets a SIGINT."""

    def wait(self, timeout: float | None = None) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return super().wait(timeout)


def test_a_signal_ends_the_wait_for_a_shard(server: Server, there: Planned) -> None:
    server.held, server.pause = {SHARD.format(0)}, Interrupts()
    with training_pipeline(there(*IN_ORDER)) as pipeline, pytest.raises(KeyboardInterrupt), interrupts():
        batches_of(pipeline.dataset)


@pytest.mark.parametrize("of", [here, as_records])
def test_less_is_kept_than_there_is(server: Server, boxes: Path, tmp_path: Path, of: Planned) -> None:
    sizes = [len(content) for name, content in server.files.items() if "tfrecord" in name]
    keep = f"dataset.keep={3 * max(sizes) / 1000}kB"
    plan = of(server.url, f"dataset.copies={tmp_path}", keep, *FEW)
    assert passes(plan, 3) == passes(of(boxes, *FEW), 3)
    held = [path.stat().st_size for path in (tmp_path / "fetched").rglob("*.tfrecord*")]
    assert 0 < sum(held) <= 3 * max(sizes) < sum(sizes)


def test_a_pass_goes_on_in_its_middle(boxes: Path, there: Planned) -> None:
    with training_pipeline(there("extract=interleave")) as pipeline:
        pipeline.skip(1, 3)
        rest = batches_of(pipeline.dataset)
    assert rest == passes(here(boxes, "extract=interleave"))[1][3:]


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_shard_that_is_gone_or_changes_is_named(server: Server, there: Planned, on_corrupt: str, says: Says) -> None:
    plan, lost = there("extract=sequential", f"dataset.on_corrupt={on_corrupt}"), SHARD.format(3)
    split = open_source(plan.spec.dataset).split("train", "dataset.split")  # which lists the shards
    assert split.content.changed() is None
    content = server.files.pop(lost)
    says(failure(plan), URL=server.url)
    server.put(lost, content + b"!")
    assert split.content.changed() == f"{server.url}/{lost}"
    says(failure(plan), URL=server.url)


def test_a_host_fetches_the_shards_of_its_part_alone(server: Server, there: Planned) -> None:
    split = open_source(there("extract=sequential").spec.dataset).split("train", "dataset.split")
    read: list[bytes] = []
    for part in (split.part(0, 20), split.part(20, 50)):
        server.sent.clear()
        for shard in part.shards:
            read += part.read(shard.path, shard.skip, shard.take).as_numpy_iterator()
        fetched = {Path(name).name for name, _ in server.sent}
        assert fetched <= {Path(path).name for path in part.paths}
        assert 0 < len(fetched) < 4
    assert read == list(split.numbered(np.arange(50)))


def test_a_newer_version_is_there_for_a_later_plan(server: Server, there: Planned) -> None:
    dataset = there("extract=sequential").spec.dataset
    assert open_source(dataset).full_name == "tiny_boxes/1.0.0"
    for name, content in [*server.files.items()]:
        server.put(name.replace("1.0.0", "1.2.0"), content.replace(b'"1.0.0"', b'"1.2.0"'))
    assert open_source(dataset).full_name == "tiny_boxes/1.0.0"
    look_up_again()
    assert open_source(dataset).full_name == "tiny_boxes/1.2.0"


def test_a_shard_that_is_not_listed_is_named(server: Server, there: Planned, says: Says) -> None:
    del server.files[SHARD.format(1)]
    dataset = there("extract=sequential").spec.dataset
    says(raised(EtlrunError, open_source(dataset).split, "train", "dataset.split"), URL=server.url)


def test_records_that_are_damaged_are_named(server: Server, tmp_path: Path) -> None:
    lost = SHARD.format(2)
    content = server.files[lost]
    server.put(lost, content[:-9] + b"?" + content[-8:])
    plan = as_records(server.url, f"dataset.copies={tmp_path}", "extract=sequential")
    last = open_source(plan.spec.dataset).files["train"]  # type: ignore[attr-defined]
    number = [*last.values()][2] - 1
    assert failure(plan).startswith(f"{server.url}/{lost}, record {number}: found corrupted record at ")


def test_options_of_urls_without_one_are_noted(boxes: Path, says: Says) -> None:
    notes = here(boxes, "dataset.keep=1GB", "dataset.storage={anon: true}").remarks
    says([note for note in notes if "no effect" in note])


def test_versions_and_counts_are_those_of_the_server(server: Server, there: Planned, tmp_path: Path) -> None:
    assert on_disk(there("dataset.version=1.*.*").spec.dataset).counts == {"train": 50}
    records = as_records(server.url, f"dataset.copies={tmp_path}").spec.dataset
    assert on_disk(records).counts == {}
    open_source(records)
    assert on_disk(records).counts == {"train": 50}


def test_a_dataset_that_is_not_at_its_url_is_refused(server: Server, there: Planned, says: Says) -> None:
    for word in ("dataset.version=2.*.*", "dataset.name=boxes"):
        says(refusal(there(word)), URL=server.url)


def test_a_folder_of_copies_that_is_a_file_is_refused(server: Server, tmp_path: Path, says: Says) -> None:
    (tmp_path / "file").touch()
    text = refusal(here(server.url, f"dataset.copies={tmp_path / 'file'}"))
    size = rounded(sum(len(of) for name, of in server.files.items() if name.endswith((".json", ".txt"))))
    says(re.sub("/mirrors/[0-9a-f]{20}/", "/mirrors/KEY/", text), URL=server.url, SIZE=size)


def refusal(plan: Plan) -> str:
    return raised(EtlrunError, open_source, plan.spec.dataset)


def files_words(*files: object) -> tuple[str, ...]:
    listed = ",".join(f"'{of}'" for of in files)
    return ("dataset=tfrecord", f"dataset.files=[{listed}]", "dataset.num_classes=2", "model=emulated")


def test_tfrecord_files_may_be_a_list_of_patterns(boxes: Path) -> None:
    words = files_words(*(boxes / FOLDER / f"*-0000[{numbers}]-*" for numbers in ("23", "12")))
    features = ("dataset.features={width: float32}", "dataset.target={kind: class}", *DRAINED)
    steps = ("transform.steps=[]", "transform.eval_steps=[]")
    source = open_source(plan_of(*words, *features, *steps).spec.dataset)
    assert [Path(path).name[-14:-9] for path in source.files["train"]] == ["00002", "00003", "00001"]  # type: ignore[attr-defined]


def test_urls_and_files_in_one_dataset_and_credentials_are_refused(says: Says) -> None:
    says(refusal_of_spec(*files_words("s3://a/*.tfrecord", "b.tfrecord")))
    says(refusal_of_spec("dataset.data_dir='https://me:secret@host/a'"))
