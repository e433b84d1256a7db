"""Experiments on data that are not the photos: a folder of one's own, and CIFAR-10."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.runs import run_here


def like_cifar10(data_dir: Path, counts: dict[str, int]) -> None:
    """Have TFDS write a dataset of the form of CIFAR-10: images of noise, whose class is their brightness."""
    random = np.random.default_rng(0)

    def drawn(count: int) -> tf.data.Dataset:
        labels = random.integers(10, size=count)
        noise = random.integers(60, size=(count, 32, 32, 3))
        images = (20 * labels[:, None, None, None] + noise).astype(np.uint8)
        return tf.data.Dataset.from_tensor_slices({"image": images, "label": labels})

    tfds.dataset_builders.store_as_tfds_dataset(
        name="cifar10",
        version="3.0.2",
        data_dir=data_dir,
        features=tfds.features.FeaturesDict(
            {"image": tfds.features.Image(shape=(32, 32, 3)), "label": tfds.features.ClassLabel(num_classes=10)}
        ),
        split_datasets={name: drawn(count) for name, count in counts.items()},
    )


@pytest.mark.slow
def test_cifar10_is_trained_by_its_experiment(tmp_path: Path) -> None:
    like_cifar10(tmp_path / "data", {"train": 256, "test": 64})
    words = ["experiment=cifar10", f"dataset.data_dir={tmp_path / 'data'}", "trainer.epochs=1", "load.batch_size=32"]
    status, summary = run_here(tmp_path / "run", words)
    assert status == 0
    assert summary["dataset"]["examples"] == {"train": 256, "validation": 64}
    assert summary["epochs"][0]["val_loss"] > 0


@pytest.mark.parametrize("words", [(), ("cache=none", "load.shuffle=full", "extract=sequential")], ids=" ".join)
def test_a_folder_is_trained_by_its_experiment(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    own = ["experiment=own", f"dataset.dir='{folder}'", "model.weights=null", "trainer.epochs=1"]
    small = ["transform.resize.size=[32,32]", f"cache.dir={tmp_path / 'caches'}", "load.batch_size=8"]
    status, summary = run_here(tmp_path / "run", [*own, *small, *words])
    assert status == 0
    assert summary["dataset"]["name"] == str(folder)
    assert summary["dataset"]["examples"] == {"train": 32, "validation": 8}
