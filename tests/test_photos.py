"""On real photos and real weights, where this machine has them."""

import shutil
from pathlib import Path

from etlrun.compose import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.graph.source import Source
from etlrun.grid import planned
from etlrun.stages import STAGES
from tests.conftest import SHARED
from tests.runs import finish, start, summary_of
from tests.test_graph import examples


def pictures(experiment: str, photos: Path) -> list[bytes]:
    words = [f"experiment={experiment}", f"dataset.data_dir={photos}", "dataset.split='train[:5%]'", "cache=none"]
    plan = planned(Request(overrides=words), STAGES)
    source = Source(plan.spec.dataset)
    split = source.split(plan.spec.dataset.split, "dataset.split")
    return examples(Pipeline(plan.train, Context(source=source, split=split, seed=0)).dataset)


def test_the_naive_and_the_parallel_pipeline_give_the_same_pictures(photos: Path) -> None:
    naive, parallel = (pictures(experiment, photos) for experiment in ("naive", "parallel"))
    assert len(naive) == 80
    assert sorted(naive) == sorted(parallel)


def test_the_exercise_learns_from_a_tenth_of_the_photos(photos: Path, tmp_path: Path) -> None:
    home = tmp_path / "keras"
    shutil.copytree(SHARED / "weights", home / "models")
    words = [
        "experiment=cats_vs_dogs",
        f"dataset.data_dir={photos}",
        "dataset.split='train[:10%]'",
        "dataset.eval_split='train[90%:]'",
        "trainer.epochs=2",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    status, _, err = finish(start(words, tmp_path, KERAS_HOME=str(home)))
    assert status == 0, err
    assert summary_of(tmp_path / "run")["epochs"][-1]["val_accuracy"] >= 0.9


def test_imagenet_weights_that_cannot_be_downloaded(photos: Path, tmp_path: Path) -> None:
    home = tmp_path / "keras"
    words = ["experiment=cats_vs_dogs", f"dataset.data_dir={photos}", f"hydra.run.dir={tmp_path / 'run'}"]
    closed = "http://127.0.0.1:9"
    status, _, err = finish(start(words, tmp_path, KERAS_HOME=str(home), https_proxy=closed, HTTPS_PROXY=closed))
    assert status == 1
    assert "model.weights: found imagenet weights that could not be had: " in err
    assert err.endswith(
        "; expected Keras's download to work, or its file to be there already\n"
        f"    -> copy the file that Keras names into {home}/models (the environment variable KERAS_HOME "
        "moves that folder), or set model.weights to the path of a weights file\n"
    )
