"""Trainings of configs that differ in few values, for the claims of `etlrun diff` about losses."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks import policies
from benchmarks.policies import Answers, answer, reviewed
from benchmarks.random_configs import changed, random_pairs
from etlrun.record.record import Record
from etlrun.record.summary import read_summary
from etlrun.review.difference import Comparison
from etlrun.review.folders import KINDS
from etlrun.run import run
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network

Config = dict[str, Any]
INTERLEAVE = {"name": "interleave", "num_parallel_calls": 2}
AXES: dict[str, list[Any]] = {
    "dataset.split": ["train", "train[:50%]"],
    "dataset.eval_split": ["train[80%:]", "train[50%:]"],
    "dataset.on_corrupt": ["raise", "skip"],
    "extract": [
        {"name": "sequential", "shuffle_files": False},
        {"name": "sequential", "shuffle_files": True},
        {"name": "tfds", "decode": False},
        {**INTERLEAVE, "cycle_length": 4, "block_length": 1, "shuffle_files": False, "deterministic": True},
        {**INTERLEAVE, "cycle_length": 2, "block_length": 3, "shuffle_files": False, "deterministic": True},
    ],
    "transform.steps": [
        ["decode", "resize", "scale_minus_one_one"],
        ["decode", "resize", "random_flip", "scale_minus_one_one"],
        ["decode", "center_crop", "resize", "scale_minus_one_one"],
    ],
    "transform.num_parallel_calls": ["autotune", None, 3],
    "transform.decode.library": ["tensorflow", "turbo"],
    "transform.resize.dtype": ["uint8", "float32"],
    "transform.resize.method": ["bilinear", "nearest"],
    "transform.resize.antialias": [False, True],
    "cache.name": ["none", "memory", "disk"],
    "cache.at": ["source", "decoded", "resize"],
    "load.shuffle": ["buffer", "full"],
    "load.shuffle_buffer": [16, 0, 4],
    "load.shuffle_at": ["auto", "before_batch"],
    "load.batch_size": [7, 14, 8],
    "load.drop_remainder": [False, True],
    "load.prefetch": [0, 1, "autotune"],
    "load.num_parallel_calls": [None, "autotune"],
    "load.sample": ["all", "uniform_by_class"],
    "load.class_weights": ["none", "balanced"],
    "load.mixup_alpha": [0.0, 0.4],
    "load.cutmix_alpha": [0.0, 1.0],
    "trainer.epochs": [2, 3],
    "trainer.seed": [0, 1],
    "trainer.optimizer": ["adam", "sgd", "rmsprop"],
    "trainer.learning_rate": [0.001, 0.01],
    "trainer.steps_per_epoch": [None, 3],
    "trainer.label_smoothing": [0.0, 0.1],
    "trainer.metrics": [["accuracy"], ["accuracy", "f1"]],
    "trainer.mixed_precision": [None, "mixed_bfloat16"],
    "trainer.global_clipnorm": [None, 0.1],
    "trainer.weight_decay": [None, 0.1],
    "trainer.ema_momentum": [None, 0.9],
    "trainer.gradient_accumulation_steps": [None, 2],
    "trainer.schedule.name": ["constant", "cosine"],
    "trainer.schedule.warmup_steps": [0, 3],
    "trainer.early_stopping.patience": [None, 1],
    "trainer.jit_compile": [False, True],
    "trainer.device": ["auto", "cpu"],
    "trainer.on_nan": ["fail", "warn"],
    "trainer.checkpoint_keep": [1, 2],
    "trainer.checkpoint_every_steps": [None, 2],
    "logger.name": ["none", "tensorboard"],
    "measure.au_min": [None, 0.01],
}
"""Values of each key, the base's first; those that only another dataset, device or model has are left out."""
_BY_NUMBER = {"extract": AXES["extract"][0], "cache.name": "none"}
BESIDE: dict[str, dict[str, Any]] = {
    "load.shuffle": _BY_NUMBER,
    "load.sample": {**_BY_NUMBER, "load.shuffle": "full"},
    "cache.at": {"cache.name": "disk"},
}
"""For keys that others of the base stand in the way of, the values of these."""
SPEEDS = (
    "transform.num_parallel_calls", "cache.name", "cache.at", "load.shuffle_at",
    "load.prefetch", "load.num_parallel_calls", "trainer.checkpoint_keep", "trainer.checkpoint_every_steps",
    "logger.name",
)  # fmt: skip
"""Those that should change only the speed."""
PLAIN, SPEED_ONLY, OTHER_ORDER, OTHER_TRAINING, OTHER_DATA = SAID = (
    "changes nothing", "changes only the speed", "changes the order", "changes the training", "changes the data"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SmallNetwork(Network):
    """A network with a batch norm that compiles in a tenth of MobileNetV2's time."""

    path: ClassVar[str] = "model.small_network"

    @staticmethod
    def network(inputs: Mapping[str, keras.KerasTensor]) -> keras.KerasTensor:
        """(batch, height, width, 3) -> features (batch, 8)."""
        (image,) = inputs.values()
        image = keras.layers.Conv2D(8, 3, strides=4, use_bias=False)(image)
        image = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.8)(image))
        return keras.layers.GlobalAveragePooling2D()(image)


@dataclass(frozen=True)
class Trained:
    """What a training saw and reached, by epoch.

    Attributes:
        losses: Losses of training and validation.
        digests: Digests of training and validation.
        steps: Batches of the training; of the first epoch, whose first ones compile, none.
    """

    losses: list[tuple[Any, ...]]
    digests: list[tuple[str, ...]]
    steps: list[int]


@dataclass(frozen=True)
class Pair:
    """Two configs that differ in some values, the kinds of `--fail-on` that fail, and what their trainings were."""

    found: Comparison
    failing: set[Kind]
    old: Trained
    new: Trained

    @property
    def said(self) -> str:
        """The strongest of what `diff` said."""
        words = {DATA: OTHER_DATA, TRAINING: OTHER_TRAINING, ORDER: OTHER_ORDER, SPEED: SPEED_ONLY}
        return words[self.found.kinds[0]] if self.found.kinds else PLAIN

    @property
    def equal(self) -> dict[str, bool]:
        """Which figures of the two trainings are equal."""
        return {name: getattr(self.old, name) == getattr(self.new, name) for name in ("digests", "losses", "steps")}

    @property
    def wrong(self) -> Iterator[str]:
        """What contradicts the claim."""
        equal, found = self.equal, self.found
        paths = [f"{item.path} {item.old} -> {item.new}" for item in found.differences]
        common = [*zip(self.old.digests, self.new.digests, strict=False)]  # one of the two may have more epochs
        if any(old != new for old, new in common) and DATA not in found.kinds and not found.doubts:
            yield f"{found.headline}, yet digests differ: {paths}"
        if not equal["steps"] and self.said in {PLAIN, SPEED_ONLY, OTHER_ORDER}:
            yield f"{found.headline}, yet trainings have other numbers of steps: {paths}"
        if not equal["losses"] and self.said in {PLAIN, SPEED_ONLY} and not (found.doubts or found.is_reordered):
            yield f"{found.headline}, yet losses differ: {paths}"
        if any(old != new for old, new in common) and found.kinds and DATA not in self.failing:
            yield f"--fail-on data passes, yet digests differ: {paths}"
        if not equal["steps"] and not self.failing & {DATA, TRAINING}:
            yield f"--fail-on data,training passes, yet trainings have other numbers of steps: {paths}"
        if not equal["losses"] and not self.failing and not found.is_reordered:
            yield f"--fail-on {','.join(KINDS)} passes, yet losses differ: {paths}"


class Trainer:
    """Trains configs, each once, with a small network in place of their model."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._trained: dict[str, Trained] = {}

    def pair(self, old: Config, new: Config) -> Pair:
        """Compare two configs, and train both."""
        return Pair(*reviewed(old, new), self._of(old), self._of(new))

    def _of(self, config: Config) -> Trained:
        name = yaml.safe_dump(config)
        if name not in self._trained:
            self._trained[name] = self._train(config, self._scratch / str(len(self._trained)))
        return self._trained[name]

    @staticmethod
    def _train(config: Config, folder: Path) -> Trained:
        network = {"model": {"name": "small_network"}, "measure": {**config["measure"], "digest": True}}
        Record.create(folder, {**config, **network}, [])
        with contextlib.redirect_stdout(io.StringIO()):
            status = run.run(folder, {**STAGES, "model": {**STAGES["model"], "small_network": SmallNetwork}})
        summary = read_summary(folder)
        if status not in {0, 3} or summary is None:
            raise RuntimeError(f"{config}: status {status}")
        return Trained(
            [(epoch.loss, epoch.val_loss) for epoch in summary.epochs],
            [(epoch.digest, epoch.validation_digest) for epoch in summary.epochs],
            [epoch.steps for epoch in summary.epochs[1:]],
        )


def first_of(base: Config) -> Config:
    """Return the base with the first value of each key."""
    return changed(base, {key: values[0] for key, values in AXES.items()})


def singles(base: Config) -> Iterator[tuple[str, Config, Config]]:
    """Yield each other value of each key by itself, as `KEY=VALUE`, with the configs before and after."""
    for key, values in AXES.items():
        old = changed(base, BESIDE.get(key, {}))
        for value in values[1:]:
            yield f"{key}={value}", old, changed(old, {key: value})


def trained_claims(base: Config, seed: int, pairs: int) -> tuple[str, list[str]]:
    """Train each value by itself, and random pairs; the tables, and what contradicts a claim."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer, base = Trainer(Path(scratch)), first_of(base)
        alone = {name: trainer.pair(old, new) for name, old, new in singles(base)}
        mixed = [trainer.pair(*both) for both in random_pairs(base, seed, pairs, AXES, SPEEDS)]
    rows = ["| value | `diff` said | digests | losses | steps |", "|---|---|---|---|---|"]
    for name, of in alone.items():
        facts = ["equal" if equal else "differ" for equal in of.equal.values()]
        rows.append(f"| `{name}` | {of.said.removeprefix('changes ')} | {' | '.join(facts)} |")
    counts = Counter((of.said, of.equal["losses"]) for of in mixed)
    lines = ["| `diff` said | times | losses equal | losses differ |", "|---|---|---|---|"]
    for said in SAID:
        equal, differ = counts[said, True], counts[said, False]
        lines.append(f"| {said} | {equal + differ} | {equal} | {differ} |")
    kinds = ",".join(KINDS)
    answers = Answers((kinds, answer(of.failing), of.equal["losses"]) for of in [*alone.values(), *mixed])
    lines += ["", policies.table(answers, [kinds], "losses")]
    wrong = [text for of in [*alone.values(), *mixed] for text in of.wrong]
    return "\n".join([*rows, "", *lines]), wrong
