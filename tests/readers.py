"""What a reader of the docs has, and a terminal: data sets, configs, a repository, a package, and commands that run."""

import io
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.cli import main as cli
from etlrun.sources.sample import builder, draw
from tests.grove import write_grove
from tests.pastes import ROOT, fenced
from tests.pictures import jpeg
from tests.repository import Repository
from tests.runs import finish, start
from tests.tables import write_houses
from tests.test_installed import installed
from tests.test_rows_texts import write_texts
from tests.texts import write_reviews


def write_photos(data_dir: Path) -> None:
    """Have TFDS write the data sets of the docs below `data_dir`, of 160 and of 64 drawn pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "NUM_EXAMPLES", 160)
        sample = builder.EtlrunSample(data_dir=data_dir)
        sample.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=8))
    photos = sample.as_dataset(split="train[:64]").map(lambda photo: {**photo, "image/filename": tf.constant("")})
    for name, version in (("cats_vs_dogs", "4.0.1"), ("tf_flowers", "3.0.1")):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version=version,
            data_dir=data_dir,
            features=tfds.features.FeaturesDict({**sample.info.features, "image/filename": tfds.features.Text()}),
            split_datasets={"train": photos},
        )


def write_configs(folder: Path) -> None:
    """The files that a reader has."""
    for name, text in (
        ("mineconf/load/huge.yaml", "# Of many.\ndefaults: [shuffled, _self_]\nbatch_size: many\n"),
        ("mineconf/experiment/slow.yaml", "# @package _global_\n# Slow.\ntransform:\n  num_parallel_calls: null\n"),
        ("DIR/dataset/my_flowers.yaml", fenced("extending.md", "my_flowers.yaml")),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    write_own_images(folder / "photos")
    write_houses(folder)
    write_reviews(folder)
    write_texts(folder / "reviews", ("",))


def write_own_images(folder: Path) -> None:
    """A folder of two classes, with a copy and a text among the images."""
    for number in range(51):
        path = folder / ("daisy", "rose")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number % 50))
    (folder / "rose" / "notes.txt").write_text("none")


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Hydra sets up logging for its process, which is that of all tests, and closes each handler that it finds."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging, "_handlerList", [])
            yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def ran(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit status of a command, run in this process, and all that it prints."""
    printed, status = io.StringIO(), 0
    with chdir(folder), redirect_stdout(printed), redirect_stderr(printed), logging_as_it_was():
        try:
            cli.main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, printed.getvalue()


def changed_configs(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """In a repository with etlrun and its configs, of which a branch has three other ones; without data sets."""
    for name in ("etlrun", "conf"):
        shutil.copytree(ROOT / name, folder / "repository" / name)
    repository = Repository(folder / "repository", "conf")
    repository.git("switch", "--quiet", "--create", "change")
    repository.replace("transform/imagenet_224.yaml", "antialias: false", "antialias: true")
    repository.replace("transform/small_64.yaml", "# ", "# Of 4,096 pixels. ")
    repository.replace("experiment/parallel.yaml", "shuffle_buffer: 1024", "shuffle_buffer: 512")
    repository.commit("Three files")
    return outside(words, repository.folder, PYTHONPATH=str(repository.folder), TFDS_DATA_DIR=str(folder / "nothing"))


def grey_package(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """With the step of the docs in a package."""
    site = installed(folder / "site", fenced("extending.md", "class Grey"))
    return outside(words, folder, PYTHONPATH=os.pathsep.join([str(site), *sys.path]))


def grove_package(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """With the model, the loss, the metrics and the callback of the docs in a package."""
    (folder / "DIR" / "model").mkdir(exist_ok=True)
    (folder / "DIR" / "model" / "tower.yaml").write_text(fenced("extending.md", "name: tower"))
    site = write_grove(folder / "site")
    return outside(words, folder, PYTHONPATH=os.pathsep.join([str(site), *sys.path]))


def outside(words: Sequence[str], folder: Path, **environment: str) -> tuple[int, str]:
    """As `ran`, in a process of its own."""
    status, out, err = finish(start([*words], folder, **environment))
    return status, out + err
