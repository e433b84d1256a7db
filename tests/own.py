"""Own images, in folders, lists, archives and TFRecords: how they are prepared, and small runs on them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from etlrun.cli import main as cli
from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests.commands import complaint
from tests.configs import plan_of
from tests.pictures import feature_of, jpeg
from tests.pipelines import as_bytes

CLASSES = ("disc", "cross")
PETS = ("a cat", "dög")
SMALL = ("transform.resize.size=[8,8]", "load.batch_size=4", "trainer.epochs=2", "model=emulated")


def write_photos(folder: Path, count: int = 12, *, splits: Sequence[str] = (".",), start: int = 0) -> Path:
    """Write different JPEG files, half of them of each class, into a folder of classes for each split."""
    for place, split in enumerate(splits):
        for number in range(start + place * count, start + (place + 1) * count):
            path = folder / split / CLASSES[number % 2] / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(number))
    return folder


def prepared(source: Path | str, data_dir: Path, *arguments: str) -> Path:
    """Prepare a source as the dataset `own`; return the folder of its files."""
    given = [*arguments] if "--name" in arguments else ["--name", "own", *arguments]
    cli.main(["data", "prepare", str(source), "--data-dir", str(data_dir), *given])
    version = arguments[arguments.index("--version") + 1] if "--version" in arguments else "1.0.0"
    return data_dir / given[given.index("--name") + 1] / version


def refused(
    capsys: pytest.CaptureFixture[str], source: Path | str, data_dir: Path, *arguments: str, status: int = 1
) -> list[str]:
    """The lines of the message of a command that ends with this status."""
    words = ("data", "prepare", source, "--name", "own", "--data-dir", data_dir, *arguments)
    message = complaint(capsys, *words, status=status).replace(str(source), "SOURCE")
    return message.replace(str(data_dir), "DATA").splitlines()


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder by their paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamps(folder: Path) -> dict[str, tuple[int, ...]]:
    """What changes with a file or folder, of all below a folder."""
    found = {path: path.stat(follow_symlinks=False) for path in (folder, *folder.rglob("*"))}
    return {
        str(path): (of.st_ino, of.st_mode, of.st_size, of.st_mtime_ns, of.st_ctime_ns) for path, of in found.items()
    }


def examples(folder: Path, split: str = "train") -> list[tuple[bytes, int]]:
    """The encoded image and the label of each example of a split, in the order of the files."""
    found = []
    for shard in sorted(folder.glob(f"*-{split}.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(shard)):
            feature = tf.train.Example.FromString(record.numpy()).features.feature
            found.append((feature["image"].bytes_list.value[0], feature["label"].int64_list.value[0]))
    return found


def labelled(source: Path, classes: Sequence[str] = tuple(sorted(CLASSES))) -> set[tuple[bytes, int]]:
    """The bytes and the label of each image in a folder of classes."""
    return {(path.read_bytes(), classes.index(path.parent.name)) for path in source.rglob("*.jpg")}


def write_records(path: Path, features: Sequence[Mapping[str, bytes | int | float]]) -> Path:
    """Write a TFRecord file of examples with these features."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for named in features:
            kept = {name: feature_of(value) for name, value in named.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=kept)).SerializeToString())
    return path


def image(number: int) -> bytes:
    """A small JPEG of noise, another one for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (12 + number % 3, 16, 3), np.uint8)
    return bytes(tf.io.encode_jpeg(pixels).numpy())


def write_pets(folder: Path, numbers: Iterable[int] = range(40)) -> Path:
    """Write images of these numbers, of two classes, into a folder of classes."""
    for place, number in enumerate(numbers):
        path = folder / PETS[place % 2] / f"no {place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    return folder


def of_folder(folder: Path, *words: str) -> Plan:
    """The plan of a small run on a folder of images."""
    return plan_of("dataset=folder", f"dataset.dir='{folder}'", *SMALL, *words)


def batches(plan: Plan, passes: int = 1, name: str = "train") -> list[tuple[bytes, bytes, str]]:
    """Images, labels, and what they are, of each batch of a pipeline in order."""
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    keepers = keepers_of(plan, contexts, {"folder": "-", "overrides": []}, lambda _: None)
    for keeper in keepers.values():
        keeper.prepare()
    pipeline = Pipeline(plan.pipelines[name], contexts[name], keepers.get(name))
    found = list(itertools.chain(*(as_bytes(pipeline.dataset) for _ in range(passes))))
    for keeper in keepers.values():
        keeper.close()
    return found


def records(folder: Path, name: str, numbers: range) -> None:
    """Write a TFRecord file of the images of these numbers; the class of an image is 0 or 1."""
    write_records(folder / name, [{"image": image(number), "label": number % 2} for number in numbers])


def of_records(tmp_path: Path, *words: str) -> Plan:
    """The plan of a small run on the TFRecord files in a folder."""
    own = ("dataset=tfrecord", f"dataset.files='{tmp_path}/*.tfrecord'", "dataset.num_classes=2", *SMALL, *words)
    return plan_of(*own)
