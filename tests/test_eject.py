"""An ejected program does what the run does: the same batches, the same losses, and nothing of etlrun in it."""

import ast
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from etlrun.eject.program import ejected, versions
from etlrun.run.backend import seed_all
from tests.configs import EXPERIMENTS, OTHER_VALUES, beside, experiment, plan_of
from tests.golden import Golden
from tests.pictures import damaged, with_feature
from tests.pipelines import as_bytes, passes_of, training_pipeline, validation_of
from tests.programs import EPOCHS, MEASURES, loaded, of_tiny, of_words
from tests.quick import shallow
from tests.runs import complete_here, losses_of, small

FLIP = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
FLOAT = "transform.resize.dtype=float32"

OF_TURBO = {"simplejpeg", "cv2", "numpy"}
"""What decodes images natively."""
SAYS_NOTHING = {
    "cache.dir": "it has no cache on disk",
    "transform.decode.processes": "a program decodes in threads",
    "trainer.resume": "a program starts at its first epoch",
    "trainer.checkpoint_every_steps": "a program starts at its first epoch",
    "trainer.checkpoint_keep": "a program keeps the last model alone",
    **{
        f"logger.{name}": "a program logs to TensorBoard and CSV alone"
        for name in ("tracking_uri", "experiment_name", "project", "entity", "mode")
    },
    **dict.fromkeys(("dataset.storage", "dataset.keep", "dataset.copies"), "it refuses URLs"),
    "measure.au_min": "nothing is measured",
    "measure.digest": "nothing is measured",
}
"""Parameters that change no line of a program, and why."""
BASES = {
    "dataset.download": ("dataset=cats_vs_dogs",),
    "dataset.features": ("model=emulated",),
    "model.name": ("model=keras_application",),
    "load.shuffle_at": ("cache=none",),
    "load.sample": ("extract=sequential", "cache=none", "load.shuffle=full"),
    "load.shuffle": ("extract=sequential", "cache=none"),
    **{f"trainer.schedule.{name}": ("trainer.schedule.name=cosine",) for name in ("decay_steps", "alpha")},
    "trainer.early_stopping": ("trainer.early_stopping.patience=2",),
}
"""Of parameters that mean something only beside others."""


def program(*overrides: str) -> str:
    return ejected(plan_of(*overrides), overrides, versions())


def code(*overrides: str) -> str:
    """Without the docstring, which tells the overrides."""
    return program(*overrides).split('"""\n', 1)[1]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        *(experiment(name) for name in EXPERIMENTS if name not in {"table", "text"}),  # its rows are not here
        ("trainer=drain", "trainer.seconds=1"),
        ("cache=disk", "trainer.early_stopping.patience=2", "logger=tensorboard", "trainer.device=gpu"),
    ],
    ids=" ".join,
)
def test_a_program_imports_nothing_of_etlrun(overrides: tuple[str, ...], tmp_path: Path) -> None:
    text = program(*overrides)
    nodes = [*ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    of_tfds = set() if "experiment=own" in overrides else {"tensorflow_datasets"}
    assert {"tensorflow"} | of_tfds <= names
    assert names <= {"tensorflow", "tensorflow_datasets", "keras", *OF_TURBO} | sys.stdlib_module_names
    module = loaded(text, tmp_path)
    assert callable(module.train_dataset)


def test_a_program_reads_as_it_was_reviewed(golden: Golden) -> None:
    words, packages = (
        ["experiment=parallel"],
        {"tensorflow": "2.21.0", "keras": "3.15.1", "tensorflow-datasets": "4.9.10"},
    )
    golden(Path(__file__).parent / "golden" / "parallel.py", ejected(plan_of(*words), words, packages))


REFUSED = {"trainer.devices", "trainer.hosts", "dataset.eval_splits"}


@pytest.mark.parametrize("parameter", sorted(OTHER_VALUES.keys() - REFUSED))
def test_every_value_of_a_config_is_in_the_program(parameter: str) -> None:
    base = next((words for start, words in BASES.items() if parameter.startswith(start)), beside(parameter))
    changes = code(*base, f"{parameter}={OTHER_VALUES[parameter]}") != code(*base)
    assert changes is (parameter not in SAYS_NOTHING)


VARIANTS = {
    "flipped before a shuffle": (FLIP, "cache=none"),
    "scaled, then flipped": (
        "transform.steps=[decode,resize,scale_minus_one_one,random_flip]", "cache=none", "load.shuffle_buffer=0",
    ),
    "flipped and not shuffled": (FLIP, "cache=none", "load.shuffle_buffer=0"),
    "flipped after a cache in memory": (FLIP, "cache.at=resize", "trainer.seed=3"),
    "disk, decoded": (FLIP, "cache=disk", "cache.at=decoded", "extract=sequential"),
    "shuffled files": ("extract.shuffle_files=true", "cache=none", FLIP, "extract.cycle_length=all"),
    "shuffled files, cached": (
        "extract=sequential", "extract.shuffle_files=true", "transform.num_parallel_calls=cores-1", "trainer.seed=2",
    ),
    "shuffled files, not shuffled again": (
        "extract.shuffle_files=true", "extract.num_parallel_calls=cores", "load.shuffle_buffer=0",
    ),
    "of classes, by number": (
        "load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "cache=none",
    ),
    "disk, source": ("cache=disk", "cache.at=source", "load.drop_remainder=true"),
    "tfds, source": ("extract=tfds", "cache.at=source", FLOAT, "load.prefetch=0"),
    "tfds decodes": (
        "extract=tfds", "extract.decode=true", "cache=none", "load=plain", "transform.num_parallel_calls=null", FLOAT,
        "transform.steps=[resize,scale_minus_one_one]", "transform.eval_steps=[resize,scale_minus_one_one]",
    ),
    "cropped, nearest, rescaled": (
        "transform.steps=[decode,center_crop,resize,rescale]", "transform.eval_steps=[decode,resize,rescale]", FLOAT,
        "transform.resize.method=nearest", "+transform.rescale.scale=0.007", "+transform.rescale.offset=-0.9",
    ),
    "scaled before it is resized": (
        "transform.steps=[decode,scale_zero_one,resize]", "transform.eval_steps=[decode,scale_zero_one,resize]", FLOAT,
        "transform.resize.antialias=true", "extract.num_parallel_calls=null", "extract.block_length=3",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_its_batches_are_those_of_the_run(name: str, tiny: Path, tmp_path: Path) -> None:
    words = (*VARIANTS[name], f"cache.dir={tmp_path / 'caches'}")
    plan, module = of_tiny(tiny, tmp_path, *words)
    seed_all(plan.spec.trainer.seed)
    passes = passes_of(plan, EPOCHS)
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))
    if name.startswith("disk"):
        return
    validation = validation_of(plan)
    assert [as_bytes(module.validation_dataset())] * 2 == [validation, as_bytes(module.validation_dataset())]


def test_its_batches_go_on_where_epochs_count_steps(tiny: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(tiny, tmp_path, FLIP, "cache=none", "trainer.steps_per_epoch=7")
    seed_all(0)
    with training_pipeline(plan) as pipeline:
        batches = as_bytes(pipeline.endless().take(3 * 7))
    assert as_bytes(module.train_dataset().take(3 * 7)) == batches


def test_its_batches_are_those_of_the_run_where_records_are_left_out(tiny: Path, tmp_path: Path) -> None:
    damaged(tiny, tmp_path / "data", with_feature("label", None))
    plan, module = of_tiny(tmp_path / "data", tmp_path, "dataset.on_corrupt=skip", "cache=disk")
    seed_all(0)
    passes = passes_of(plan, EPOCHS)
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))
    assert as_bytes(module.train_dataset(passes=1)) == passes[0]
    assert "steps_per_epoch=sum(1 for _ in train_dataset(passes=1))" in program("dataset.on_corrupt=skip")


def test_it_names_the_place_of_a_damaged_record_that_it_reads_by_number(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    words = ("extract=sequential", "cache=none", "load.shuffle=full")
    _, module = of_tiny(tmp_path / "data", tmp_path, *words)
    path, place, size = module.located(module.TRAIN_SPLIT)[1]
    data = bytearray(Path(path).read_bytes())
    data[place + size // 2] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(ValueError, match=f"^corrupted record at {place} of {path}$"):
        module.record_at(*module.located(module.TRAIN_SPLIT)[1])


@pytest.mark.slow
def test_it_prints_the_losses_of_the_run_and_saves_its_model(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (FLIP, "cache.at=resize", f"cache.dir={tmp_path / 'caches'}")
    shallow(monkeypatch)
    measured = losses_of(complete_here(tmp_path / "run", small(tiny, f"trainer.epochs={EPOCHS}", *words)))
    assert measured[0] != measured[1]
    _, module = of_tiny(tiny, tmp_path, *words)
    printed = [[f"{value:.4f}" for value in epoch] for epoch in measured]
    assert printed_losses(tmp_path, Path(module.__file__ or "")) == printed
    assert keras.models.load_model("model.keras").predict(np.zeros((1, 32, 32, 3)), verbose=0).shape == (1, 2)


def printed_losses(folder: Path, path: Path) -> list[list[str]]:
    """What a process of its own prints of each epoch, with a shallow network; a warning of Keras ends it."""
    code = "import pytest, runpy, tests.quick; tests.quick.shallow(pytest.MonkeyPatch()); "
    code += f"runpy.run_path({str(path)!r}, run_name='__main__')"
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    epochs = [dict(re.findall(r"(\w+): ([\d.]+)", line)) for line in answer.stdout.splitlines() if "loss" in line]
    return [[epoch[key] for key in MEASURES] for epoch in epochs]


@pytest.mark.smoke
@pytest.mark.parametrize("overrides", [("trainer=drain",), ("model=emulated", "model.step_ms=0.1")])
def test_without_a_model_it_reads_a_pass(overrides: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    words = [word for word in small(tiny, *overrides) if not word.startswith("model.trainable")]
    _, module = of_words(words, tmp_path)
    text = Path(module.__file__ or "").read_text()
    assert text.endswith("    for _ in train_dataset(passes=1):\n        pass\n")
    runpy.run_path(module.__file__ or "", run_name="__main__")


def test_early_stopping_is_keras_own() -> None:
    stopping = [f"trainer.early_stopping.{rule}" for rule in ("patience=3", "monitor=val_accuracy", "min_delta=0.1")]
    text = 'keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=3, min_delta=0.1, mode="max")'
    assert text in program(*stopping)
