"""An ejected program does what the run does: the same batches, the same losses, and nothing of etlrun in it."""

import ast
import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.eject.program import ejected, versions
from etlrun.graph.build import Pipeline
from etlrun.measure.digest import Digest
from etlrun.plan.plan import Plan
from etlrun.run.backend import seed_all
from etlrun.run.session import contexts_of
from etlrun.sources.tfds import Source
from etlrun.stages import STAGES
from tests.configs import EXPERIMENTS, OTHER_VALUES, plan_of
from tests.pictures import damaged, with_feature
from tests.pipelines import training_pipeline
from tests.runs import losses_of, run_here, small

FLIP = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
FLOAT = "transform.resize.dtype=float32"
EPOCHS = 2

SAYS_NOTHING = {
    "cache.dtype": "it refuses plans",
    "cache.when_busy": "no other program shares the cache",
    "trainer.resume": "a program starts at its first epoch",
    "measure.au_min": "nothing is measured",
    "measure.digest": "nothing is measured",
}
"""Parameters that change no line of a program, and why."""
BASES = {
    "dataset.download": ("dataset=cats_vs_dogs",),
    "dataset.features": ("model=emulated",),
    "cache.dir": ("cache=disk",),
    "trainer.early_stopping": ("trainer.early_stopping.patience=2",),
    "transform.rescale": (
        "transform.steps=[decode,resize,rescale]",
        "transform.eval_steps=[decode,resize,rescale]",
        "+transform.rescale.scale=0.001",
        "+transform.rescale.offset=0.1",
    ),
}
"""Of parameters that mean something only beside others."""


def program(*overrides: str) -> str:
    return ejected(plan_of(*overrides), overrides, versions())


def code(*overrides: str) -> str:
    """Without the docstring, which tells the overrides."""
    return program(*overrides).split('"""\n', 1)[1]


def loaded(text: str, folder: Path) -> ModuleType:
    """A program as a module, which is what `import` makes of it."""
    path = folder / f"program_{abs(hash(text))}.py"
    path.write_text(text, encoding="utf-8")
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_tiny(data_dir: Path, folder: Path, *overrides: str) -> tuple[Plan, ModuleType]:
    words = small(data_dir, f"trainer.epochs={EPOCHS}", *overrides)
    plan = resolve(Request(overrides=words), STAGES).plan
    return plan, loaded(ejected(plan, words, versions()), folder)


def as_bytes(dataset: tf.data.Dataset) -> list[tuple[bytes, bytes, str]]:
    """Pictures, labels, and what they are, of each batch in order."""
    return [
        (pictures.tobytes(), labels.tobytes(), f"{pictures.dtype} {pictures.shape}")
        for pictures, labels in dataset.as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        *((f"experiment={name}",) for name in EXPERIMENTS),
        ("trainer=drain", "trainer.seconds=1"),
        ("cache=disk", "trainer.early_stopping.patience=2", "trainer.tensorboard=true", "trainer.device=gpu"),
    ],
    ids=" ".join,
)
def test_a_program_imports_nothing_of_etlrun(overrides: tuple[str, ...], tmp_path: Path) -> None:
    text = program(*overrides)
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imported for alias in node.names}
    assert {"tensorflow", "tensorflow_datasets"} <= names
    assert names <= {"tensorflow", "tensorflow_datasets", "keras"} | sys.stdlib_module_names
    module = loaded(text, tmp_path)
    assert callable(module.drain if "trainer=drain" in overrides else module.train)


def test_a_program_tells_its_command_and_versions() -> None:
    words = ("load.batch_size=8", "dataset.split='train[:10%]'")
    made_for = ", ".join(f"{name} {version}" for name, version in versions().items())
    assert program(*words).split('"""')[1] == (
        "MobileNetV2 on etlrun_sample: a run of etlrun 0.1.0 as a program of its own.\n\n"
        "It was written by\n\n"
        "    python -m etlrun eject load.batch_size=8 \"dataset.split='train[:10%]'\"\n\n"
        f"from the plan {plan_of(*words).fingerprint}, for {made_for}.\n"
        "It trains on the examples of the run in the same order, and comes to its losses: on a CPU, to the bit.\n"
        "It does not measure, profile, keep checkpoints, resume, or explain broken data: etlrun does.\n"
    )


def test_a_program_reads_as_it_was_reviewed() -> None:
    path = Path(__file__).parent / "golden" / "parallel.py"
    words, packages = (
        ["experiment=parallel"],
        {"tensorflow": "2.21.0", "keras": "3.15.1", "tensorflow-datasets": "4.9.10"},
    )
    if ejected(plan_of(*words), words, packages) != path.read_text(encoding="utf-8"):
        command = "python -m etlrun eject experiment=parallel > tests/golden/parallel.py"
        pytest.fail(f"{path} is not the program of today; review what\n    {command}\nmakes of it")


@pytest.mark.parametrize("parameter", sorted(OTHER_VALUES))
def test_every_value_of_a_config_is_in_the_program(parameter: str) -> None:
    base = next((words for start, words in BASES.items() if parameter.startswith(start)), ())
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


@pytest.mark.parametrize("name", VARIANTS)
def test_its_batches_are_those_of_the_run(name: str, tiny: Path, tmp_path: Path) -> None:
    words = (*VARIANTS[name], f"cache.dir={tmp_path / 'caches'}")
    plan, module = of_tiny(tiny, tmp_path, *words)
    seed_all(plan.spec.trainer.seed)
    with training_pipeline(plan) as pipeline:
        passes = [as_bytes(pipeline.dataset) for _ in range(EPOCHS)]
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))
    if name.startswith("disk"):
        return
    context = contexts_of(plan, Source(plan.spec.dataset))["validation"]
    validation = as_bytes(Pipeline(plan.evaluation, context).dataset)
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
    with training_pipeline(plan) as pipeline:
        passes = [as_bytes(pipeline.dataset) for _ in range(EPOCHS)]
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))
    assert as_bytes(module.train_dataset(passes=1)) == passes[0]
    assert "steps_per_epoch=sum(1 for _ in train_dataset(passes=1))" in program("dataset.on_corrupt=skip")


def test_a_cache_on_disk_is_in_its_folder(tiny: Path, tmp_path: Path) -> None:
    _, module = of_tiny(tiny, tmp_path, "cache=disk", f"cache.dir={tmp_path / 'caches'}")
    for _ in module.validation_dataset():
        pass
    assert [path.parent.parent for path in tmp_path.glob("caches/*/validation.index")] == [tmp_path / "caches"]


RUNS = {
    "in memory, flipped": (FLIP, "cache.at=resize", "measure.digest=true"),
    "on disk, sequential, float32": (FLOAT, "extract=sequential", "cache=disk", "measure.digest=true"),
    "features": ("cache.at=features", "trainer.learning_rate=0.1"),
}


@pytest.mark.parametrize("name", RUNS)
def test_its_losses_and_digests_are_those_of_the_run(
    name: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (*RUNS[name], f"cache.dir={tmp_path / 'caches'}")
    status, summary = run_here(tmp_path / "run", small(tiny, f"trainer.epochs={EPOCHS}", *words))
    assert status == 0
    measured = losses_of(summary)
    assert measured[0] != measured[1]
    _, module = of_tiny(tiny, tmp_path, *words)
    if name.startswith("in memory"):
        assert printed_losses(tmp_path, Path(module.__file__ or "")) == [
            [f"{value:.4f}" for value in epoch] for epoch in measured
        ]
    else:
        history = module.train().history
        found = [[history[key][epoch] for key in MEASURES] for epoch in range(EPOCHS)]
        np.testing.assert_allclose(found, measured, rtol=1e-4 if name == "features" else 0)
    assert keras.models.load_model("model.keras").predict(np.zeros((1, 32, 32, 3)), verbose=0).shape == (1, 2)
    if name == "features":
        return
    batches, steps = iter(module.train_dataset()), summary["epochs"][0]["steps"]
    for epoch in summary["epochs"]:
        assert digest_of(itertools.islice(batches, steps)) == epoch["digest"]
        assert digest_of(module.validation_dataset()) == epoch["validation_digest"]


MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")


def printed_losses(folder: Path, path: Path) -> list[list[str]]:
    """What a process of its own prints of each epoch; a warning of Keras ends it."""
    command = [sys.executable, "-W", "error::UserWarning", str(path)]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    epochs = [dict(re.findall(r"(\w+): ([\d.]+)", line)) for line in answer.stdout.splitlines() if "loss" in line]
    return [[epoch[key] for key in MEASURES] for epoch in epochs]


def digest_of(batches: Any) -> str:
    digest = Digest()
    for pictures, labels in batches:
        digest.add(pictures.numpy(), labels.numpy())
    return digest.taken()


EMULATED = ("model=emulated", "model.step_ms=0.1", "model.eval_step_ms=0")


@pytest.mark.parametrize(("loop", "overrides"), [("pass", ("trainer=drain",)), ("epoch", EMULATED)])
def test_loops_without_a_model_tell_their_pace(
    loop: str, overrides: tuple[str, ...], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in small(tiny, *overrides, "trainer.epochs=2") if not word.startswith("model.trainable")]
    module = loaded(ejected(resolve(Request(overrides=words), STAGES).plan, words, versions()), tmp_path)
    (module.drain if loop == "pass" else module.train)()
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{loop} 2: [\d.]+ s, [\d.]+ examples/s", lines[1])
    assert len(lines) == 2


def test_early_stopping_is_keras_own() -> None:
    stopping = [f"trainer.early_stopping.{rule}" for rule in ("patience=3", "monitor=val_accuracy", "min_delta=0.1")]
    text = 'keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=3, min_delta=0.1, mode="max")'
    assert text in program(*stopping)
