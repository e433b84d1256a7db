"""Images of all kinds become the same pixels, whether TFDS's map or a step decodes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.stages.image import Decode
from tests import pictures
from tests.configs import TENSORFLOW
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import of_tiny
from tests.runs import emulated, run_here

STEPS = "[resize,scale_minus_one_one]"
DECODES = ("extract=tfds", "extract.decode=true", f"transform.steps={STEPS}", f"transform.eval_steps={STEPS}")
KINDS: dict[str, tuple[type[np.number[Any]], tuple[int, int, int], bool]] = {
    "grey": (np.uint8, (28, 28, 1), True),
    "grey_of_any_size": (np.uint8, (28, 30, 1), False),
    "with_alpha": (np.uint8, (28, 30, 4), False),
    "of_16_bits": (np.uint16, (28, 30, 3), False),
    "grey_of_16_bits": (np.uint16, (28, 30, 1), True),
    "of_floats": (np.float32, (28, 30, 1), False),
}
"""What each dataset holds: dtype, shape, and whether its feature says the size."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of a dataset of 12 random images for each kind."""
    data_dir, rng = tmp_path_factory.mktemp("kinds"), np.random.default_rng(0)
    for name, (dtype, shape, is_fixed) in KINDS.items():
        numbers = rng.integers(0, 256 ** np.dtype(dtype).itemsize, (12, *shape)).astype(dtype)
        size = shape[:2] if is_fixed else (None, None)
        feature = tfds.features.Image(shape=(*size, shape[2]), dtype=dtype, encoding_format="png")
        pictures.write_images(data_dir, name, feature, list(numbers))
    return data_dir


@pytest.mark.parametrize("name", [name for name in KINDS if name != "of_floats"])
def test_what_decodes_changes_no_byte(name: str, kinds: Path, tmp_path: Path) -> None:
    def batches(*words: str) -> list[tuple[bytes, bytes, str]]:
        plan, module = of_tiny(kinds, tmp_path, f"dataset.name={name}", "cache=none", *words)
        with training_pipeline(plan) as pipeline:
            found = as_bytes(pipeline.dataset)
        assert as_bytes(module.train_dataset().take(len(found))) == found
        return found

    by_step, by_tfds = batches("extract=tfds", TENSORFLOW), batches(*DECODES)
    assert by_step == by_tfds
    assert len(by_step) == 2


def test_of_16_bits_the_upper_8_stay() -> None:
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    found = Decode.op(tf.io.encode_png(levels))
    np.testing.assert_array_equal(found, np.repeat(levels // 256, 3, axis=2))


def test_a_cache_that_one_has_filled_is_what_the_other_makes(kinds: Path, tmp_path: Path) -> None:
    words = (
        "dataset.name=of_16_bits",
        TENSORFLOW,
        "measure.digest=true",
        "cache=disk",
        f"cache.dir={tmp_path / 'caches'}",
    )
    digests = []
    for number, decodes in enumerate([DECODES, ("extract=tfds",), ("extract=tfds", "cache=none")]):
        status, summary = run_here(tmp_path / str(number), emulated(kinds, *words, *decodes, "model.step_ms=0"))
        assert status == 0
        digests.append(summary["epochs"][0]["digest"])
    assert len(set(digests)) == 1


def test_images_of_floats_are_refused(kinds: Path, tmp_path: Path) -> None:
    status, summary = run_here(tmp_path, emulated(kinds, "dataset.name=of_floats"))
    assert status == 1
    assert summary["error"] == (
        "dataset.image_key: found 'image', which is Image(shape=(None, None, 1), dtype=float32), in of_floats/1.0.0; "
        "expected images of uint8 or uint16\n    -> choose a dataset whose images are not float32"
    )
