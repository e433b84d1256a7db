"""A dataset of numbers in TFDS's own files, and stages of a test's own that work on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.stages import STAGES, Stages
from etlrun.stages.flow import Feature
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network
from etlrun.stages.step import Step
from tests.configs import composed
from tests.runs import run_here

NUM_EXAMPLES, SHARDS = 50, 4


class TinyBoxes(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    name = "tiny_boxes"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {}
    pkg_dir_path = None

    def _info(self) -> Any:
        numbers = {name: tfds.features.Scalar(np.float32) for name in ("width", "height", "price")}
        features = {**numbers, "sides": tfds.features.Tensor(shape=(2,), dtype=np.int32)}
        features |= {"kind": tfds.features.ClassLabel(num_classes=2), "name": tfds.features.Text()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for number in range(NUM_EXAMPLES):
            width, height = rng.random(2, np.float32)
            sides, name = np.array([number, -number], np.int32), "x" * (number % 7)
            numbers = {"width": width, "height": height, "price": 3 * width - height}
            yield number, {**numbers, "sides": sides, "kind": number % 2, "name": name}


@dataclass(frozen=True, kw_only=True)
class Linear(Network):
    """A model of a test's own."""

    path: ClassVar[str] = "model.linear"
    predicts: ClassVar[bool] = True

    @staticmethod
    def network(inputs: dict[str, keras.KerasTensor]) -> keras.KerasTensor:
        """(batch, 1) each -> (batch, 1)."""
        return keras.layers.Dense(1)(keras.ops.concatenate([inputs["width"], inputs["height"]], axis=-1))


@dataclass(frozen=True, kw_only=True)
class Jitter(Step):
    """A step of a test's own, on a feature that is no image."""

    path: ClassVar[str] = "transform.jitter"
    feature: ClassVar[str] = "width"
    random: ClassVar[bool] = True

    def gives(self, incoming: Feature) -> Feature:
        return incoming.replace(dtype="float64")

    @staticmethod
    def op(width: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """float32 scalar -> float64 scalar."""
        number = tf.bitcast(width, tf.int32)
        width = tf.cast(width, tf.float64)
        return width + tf.random.stateless_uniform((), tf.stack([seed, tf.cast(number, tf.int64)]), dtype=tf.float64)


MINE: Stages = {
    **STAGES,
    "model": {**STAGES["model"], "linear": Linear},
    "transform": {**STAGES["transform"], "jitter": Jitter},
}
PLAIN = (
    "dataset=tfds", "dataset.name=tiny_boxes", "dataset.download=false",
    "dataset.features={width: float32, height: float32}", "dataset.target={price: float32}", "transform.steps=[]",
    "transform.eval_steps=[]", "load.batch_size=8", "load.shuffle_buffer=16", "trainer.epochs=2",
)  # fmt: skip
DRAINED = ("trainer=drain", "measure.digest=true")


def write_boxes(data_dir: Path) -> Path:
    """Have TFDS write 50 boxes in 4 shards below `data_dir`; returns the folder of the files."""
    builder = TinyBoxes(data_dir=data_dir)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=SHARDS))
    return Path(builder.data_dir)


def words_of(data_dir: Path, *overrides: str) -> list[str]:
    """The overrides of a run on the boxes; later ones replace those of the same key."""
    given = {word.split("=")[0] for word in overrides}
    base = [word for word in (*PLAIN, f"dataset.data_dir={data_dir}") if word.split("=")[0] not in given]
    groups = [word for word in overrides if "." not in word.split("=")[0]]
    return [*groups, *base, *(word for word in overrides if word not in groups)]


def ran(folder: Path, words: list[str], model: str | None = None) -> tuple[int, dict[str, Any]]:
    """Run with the stages of this test; the exit status and the summary."""
    return run_here(folder, words, stages=MINE, model=model)


def plan_with(model: str | None, words: list[str]) -> Plan:
    return plan(parse(composed(*words) | ({} if model is None else {"model": {"name": model}}), MINE))
