import hashlib
import json
import os
import signal
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from etlrun.sources.base import open_source, source_type
from etlrun.sources.sample import draw
from etlrun.sources.sample.draw import CLASSES, JPEG_QUALITY, NUM_EXAMPLES, jpeg, picture
from tests.configs import plan_of
from tests.forked import Forked

FEW = 160
"""Images of a sample that is made more than once."""


def prepare(data_dir: Path) -> Forked:
    """A process that needs the sample dataset, and so makes it, of fewer images."""
    return Forked(partial(_prepare, data_dir), data_dir)


def _prepare(data_dir: Path) -> None:
    draw.NUM_EXAMPLES = FEW
    source = open_source(plan_of(f"dataset.data_dir={data_dir}").spec.dataset)
    print(source.split("train", "dataset.split").num_examples)


def files(data_dir: Path) -> dict[str, str]:
    """For each shard a digest of its images and labels, in order; the proto's own bytes have no fixed order."""
    digests = {}
    for path in (data_dir / "etlrun_sample" / "1.0.0").glob("*.tfrecord*"):
        digest = hashlib.sha256()
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            digest.update(feature["image"].bytes_list.value[0] + bytes(feature["label"].int64_list.value))
        digests[path.name] = digest.hexdigest()
    return digests


def test_every_machine_draws_the_same_bytes() -> None:
    digest = hashlib.sha256()
    for number in range(40):
        digest.update(jpeg(number))
    assert digest.hexdigest() == "f736e348a05fd4b5b6b01eb0ccda063247ad5c73e6e31219153b8a929c8d16c1"


def test_they_are_those_of_tensorflow() -> None:
    for number in range(4):
        assert jpeg(number) == tf.io.encode_jpeg(picture(number), quality=JPEG_QUALITY).numpy()


def test_a_run_that_needs_the_sample_has_it_drawn_in_a_process(sample: Path, tmp_path: Path) -> None:
    for data_dir in (sample, tmp_path):
        dataset = plan_of(f"dataset.data_dir={data_dir}").spec.dataset
        source_type(dataset).begin(dataset)
        assert len(draw._begun) == (data_dir == tmp_path)
    assert list(islice(draw.images(), 3)) == [jpeg(number) for number in range(3)]


def test_what_an_ended_process_has_not_drawn_is_drawn_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "NUM_EXAMPLES", 6)
    expected = [jpeg(number) for number in range(6)]
    framed = b"".join(len(encoded).to_bytes(draw.SIZE_BYTES, "big") + encoded for encoded in expected[:4])
    (tmp_path / "framed").write_bytes(framed[:-1])
    killed = tmp_path / "python"
    killed.write_text(f"#!/bin/sh\ncat '{tmp_path}/framed'\nkill -9 $$\n")
    killed.chmod(0o755)
    for executable in (str(killed), "/bin/false", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        draw.begin()
        assert list(draw.images()) == expected


def test_pictures_cost_what_photos_cost() -> None:
    sizes = [len(jpeg(number)) for number in range(100)]
    assert min(sizes) > 15_000
    assert max(sizes) < 40_000
    sides = [side for number in range(100) for side in picture(number).shape[:2]]
    assert min(sides) >= 300
    assert max(sides) <= 500
    assert NUM_EXAMPLES >= 1000


def test_the_classes_differ_in_shape_and_not_in_colour() -> None:
    means = np.array([picture(number).mean(axis=(0, 1)) for number in range(400)])
    of_discs, of_crosses = means[0::2], means[1::2]
    error_of_difference = means.std(axis=0) * np.sqrt(2 / len(of_discs))
    assert (np.abs(of_discs.mean(axis=0) - of_crosses.mean(axis=0)) < 3 * error_of_difference).all()
    assert CLASSES == ("disc", "cross")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("sample")
    process = prepare(data_dir)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return data_dir


def test_it_is_a_data_set_of_tfds(sample: Path) -> None:
    folder = sample / "etlrun_sample" / "1.0.0"
    info = json.loads((folder / "dataset_info.json").read_text())
    lengths = [int(length) for length in info["splits"][0]["shardLengths"]]
    assert len(lengths) == 8
    assert sum(lengths) == NUM_EXAMPLES
    record = next(iter(tf.data.TFRecordDataset(str(min(folder.glob("*.tfrecord*"))))))
    features = tf.train.Example.FromString(record.numpy()).features.feature
    assert sorted(features) == ["image", "label"]


@pytest.mark.slow
def test_two_processes_at_once_make_it_once(undisturbed: Path, tmp_path: Path) -> None:
    processes = [prepare(tmp_path) for _ in range(2)]
    outputs, errors = zip(*(process.communicate(timeout=300) for process in processes), strict=True)
    assert [process.returncode for process in processes] == [0, 0], errors
    assert [output.splitlines()[-1] for output in outputs] == [str(FEW)] * 2
    assert sum("preparing etlrun_sample/1.0.0 in " in error for error in errors) == 1
    assert files(tmp_path) == files(undisturbed)


@pytest.mark.slow
def test_a_kill_half_way_is_mended(undisturbed: Path, tmp_path: Path) -> None:
    family = tmp_path / "etlrun_sample"
    process = prepare(tmp_path)
    deadline = time.monotonic() + 120
    while not list(family.glob("preparing.tfds/*/incomplete.*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(family.glob("preparing.tfds/*/incomplete.*"))
    assert not files(tmp_path)

    others = {"incomplete.notes", "incomplete.A1B2C3_1.0.0"}
    for name in others:
        (family / name).mkdir()
    again = prepare(tmp_path)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert files(tmp_path) == files(undisturbed)
    there = {path.name for path in family.iterdir()}
    assert there == {"1.0.0", ".etlrun.lock", *others}, "of which another program may be writing the last ones"


def test_users_who_share_a_folder_of_data_share_its_lock(sample: Path) -> None:
    assert oct((sample / "etlrun_sample" / ".etlrun.lock").stat().st_mode & 0o777) == "0o666"
