"""Ejected programs read as the project's own code does: ruff and a strict mypy find nothing in them."""

import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.eject.program import ejected, versions
from tests.configs import CONF, EXPERIMENTS, experiment, plan_of
from tests.test_augment import EVERY

FLIP = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
PROGRAMS = {
    "default": (),
    **{name: experiment(name) for name in EXPERIMENTS if name not in {"table", "text"}},  # its rows are not here
    "on_disk": ("extract=tfds", "cache=disk", "cache.at=decoded", FLIP, "cache.dir='~/a'", "dataset.data_dir='~/b'"),
    "features": (
        "model.trainable=false", "cache.at=features", "dataset.on_corrupt=skip", "model.weights='~/w.h5'",
        "load.class_weights=balanced",
    ),
    "augmented": EVERY,
    "optimized": (
        "trainer.schedule.name=piecewise", "trainer.schedule.boundaries=[5,9]", "trainer.schedule.factors=[0.5,0.1]",
        "trainer.schedule.warmup_steps=2", "trainer.ema_momentum=0.9", "trainer.clipnorm=1", "load.mixup_alpha=0.2",
        "trainer.label_smoothing=0.1", "trainer.metrics=[accuracy,top_1_accuracy]",
    ),
    "scored": (
        "trainer.schedule.name=cosine", "trainer.schedule.warmup_steps=2",
        "trainer.metrics=[accuracy,f1,recall_of_a,precision]", "trainer.loss=focal_crossentropy",
        "load.class_weights=balanced", "trainer.label_smoothing=0.1", "load.drop_remainder=true",
    ),
    "phases": (
        "model=mobilenet_v2", "trainer=fine_tune", "cache.at=features", "trainer.schedule.name=cosine",
        "dataset.on_corrupt=raise", "load.class_weights=balanced",
    ),
    "plain_phases": ("model=mobilenet_v2", "trainer=fine_tune", "load=plain", "dataset.on_corrupt=skip"),
    "callbacks": ("trainer.early_stopping.patience=2", "logger=tensorboard", "trainer.device=gpu"),
    "steps": ("trainer.steps_per_epoch=7", "dataset.eval_split=null", "load=plain", "trainer.jit_compile=auto"),
    "drained": ("trainer=drain", "trainer.seconds=3", "trainer.epochs=null", "dataset.on_corrupt=skip"),
    "by_class": ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none"),
    "numbered": ("load.shuffle=full", "extract=sequential", "cache=disk", FLIP, "cache.at=resize"),
    "kept": ("load.shuffle=full", "extract=sequential", "cache=disk", "cache.at=features", "model.trainable=false"),
    "folder": (
        "dataset=folder", "dataset.dir=photos", "load.shuffle=full", "extract=sequential", "cache=none",
        "load.sample=uniform_by_class", "load.mixup_alpha=0.2", "load.cutmix_alpha=1", "transform.parse_batch=8",
    ),
    "records": (
        "dataset=tfrecord", "dataset.files='old/*.tfrecord'", "dataset.num_classes=3", "load.class_weights=balanced",
        "transform.parse_batch=8",
    ),
    "long": (
        "dataset=tfds", "extract=tfds", "dataset.name=my_pictures", "dataset.image_key='a \"b\"'",
        f"dataset.label_key={'label_' * 9}", f"dataset.data_dir=/{'long/' * 20}",
        f"dataset.split='{'train[:1%]+' * 12}train'",
        "transform.steps=[decode,center_crop,resize,rescale]", "transform.eval_steps=[decode,resize,rescale]",
        "+transform.rescale.scale=0.00784313725490196", "+transform.rescale.offset=-1",
    ),
}  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.needs("ruff", "mypy")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, each a file."""
    found = tmp_path_factory.mktemp("programs")
    for name, words in PROGRAMS.items():
        (found / f"{name}.py").write_text(ejected(plan_of(*words), words, versions()), encoding="utf-8")
    return found


@pytest.mark.parametrize(
    "check",
    [
        ["ruff", "format", "--diff"],
        ["ruff", "check", "--quiet", "--ignore", "E501,D301,INP001"],  # a value may be long, or have a backslash
        ["mypy", "--no-incremental", "--no-error-summary"],
    ],
    ids=lambda check: " ".join(check[:2]),
)
def test_a_check_finds_nothing(check: list[str], folder: Path) -> None:
    config = "--config-file" if check[0] == "mypy" else "--config"
    command = [sys.executable, "-m", *check, config, str(CONF.parent / "pyproject.toml")]
    paths = sorted(str(path) for path in folder.glob("*.py"))
    answer = subprocess.run([*command, *paths], cwd=folder, capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.returncode) == ("", 0), answer.stderr
