import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from etlrun.stages.network import TextModel, masks, vectors
from tests.forked import Forked, forked_on_jax
from tests.golden import Says
from tests.pastes import ROOT
from tests.quick import quick_jax
from tests.runs import events_of, finish, finish_well, kill_after_state, losses_of, small, start, summary_of
from tests.texts import words_of, write_reviews

pytestmark = [pytest.mark.slow, pytest.mark.needs("jax")]


def test_the_same_config_trains_on_jax(tiny: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folder = tmp_path / "run"
    words = [*small(tiny, "trainer.epochs=2", "measure.digest=true"), f"hydra.run.dir={folder}"]
    as_a_shell = start(
        words, tmp_path, "tests.quick_jobs", PYTHONPATH=path, **quick_jax(Path(os.environ["XDG_CACHE_HOME"]) / "jax")
    )
    finish_well(as_a_shell)
    summary = summary_of(folder)
    assert [epoch["examples"] for epoch in summary["epochs"]] == [38, 38]
    first, second = (epoch["digest"] for epoch in summary["epochs"])
    assert first == second
    assert first.startswith("38:")
    # Compiling is start-up: of the first epoch, and of nothing later.
    assert summary["epochs"][0]["startup_s"] > 10 * summary["step_floor_ms"] / 1000
    assert summary["epochs"][1]["startup_s"] == 0
    assert summary["verdict"]["because"]
    assert 0 < summary["au"] <= 1
    assert not any("jit_compile" in remark for remark in summary["remarks"])
    assert [event["backend"] for event in events_of(folder) if event["event"] == "started"] == ["jax"]

    killed, resumed = tmp_path / "killed", tmp_path / "resumed"
    inside = [*words[:-1], "trainer.checkpoint_every_steps=2", f"hydra.run.dir={killed}"]
    kill_after_state(forked_on_jax(inside, tmp_path), killed, 1)
    more = [f"trainer.resume={killed}", "trainer.epochs=3", f"hydra.run.dir={resumed}"]
    finish_well(forked_on_jax(more, tmp_path))
    assert [epoch["resumed_steps"] > 0 for epoch in summary_of(resumed)["epochs"]] == [False, True, False]
    assert losses_of(summary_of(resumed))[:2] == losses_of(summary)
    assert [epoch["digest"] for epoch in summary_of(resumed)["epochs"]] == [first] * 3


def test_a_gpu_that_jax_does_not_see(tiny: Path, tmp_path: Path, says: Says) -> None:
    folder = tmp_path / "run"
    words = [*small(tiny, "trainer.device=gpu"), f"hydra.run.dir={folder}"]
    status, _, err = finish(start(words, tmp_path, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu"))
    assert status == 1
    says(err)


def test_who_asks_for_the_cpu_gets_it_though_jax_was_imported_before() -> None:
    told = "import jax\nfrom etlrun.run.backend import prepare\nwith prepare(None):\n"
    told += "    import etlrun.run.epochs\n    print(jax.config.jax_platforms)\n"
    environment = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"}
    done = subprocess.run(
        [sys.executable, "-c", told],
        env={**environment, "KERAS_BACKEND": "jax"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "cpu\n")
    assert done.stderr == ""  # nothing of TensorFlow, which `prepare` imports


def losses_of_layers() -> dict[str, list[float]]:
    """Losses of four steps of each layer over indices and numbers, from weights that no backend has drawn."""
    rng, found = np.random.default_rng(0), {}
    ids, lengths = rng.integers(1, 20, (8, 6)), np.arange(8)[:, None] % 7
    there = np.arange(6) < lengths
    batch = {"ids": ids * there, "numbers": np.where(there, rng.normal(size=(8, 6)), np.nan).astype(np.float32)}
    for layer in ("pool", "conv", "gru"):
        given = {
            "ids": keras.Input((None,), dtype="int32", name="ids"),
            "numbers": keras.Input((None,), name="numbers"),
        }
        columns, where = vectors(given, embedded={"ids": (20, 4)}), masks(given, sequences=[*given])
        network = TextModel.network(columns, where, layer=layer, units=8, dropout=0.0)
        model = keras.Model(given, keras.layers.Dense(1)(network))
        model.set_weights([rng.normal(0, 0.3, weights.shape) for weights in model.get_weights()])
        model.compile(keras.optimizers.SGD(0.05), "mse")
        found[layer] = [float(model.train_on_batch(batch, lengths / 7)) for _ in range(4)]
    return found


def print_losses() -> None:
    print(json.dumps({"backend": keras.backend.backend(), "losses": losses_of_layers()}))


def test_layers_over_sequences_learn_the_same_on_jax(tmp_path: Path) -> None:
    out, _ = finish_well(Forked(print_losses, tmp_path, on_jax=True))
    found, here = json.loads(out), losses_of_layers()
    assert (found["backend"], found["losses"].keys()) == ("jax", here.keys())
    for layer, losses in here.items():
        assert losses[-1] < losses[0]
        np.testing.assert_allclose(found["losses"][layer], losses, rtol=1e-4)


def test_texts_train_on_jax_with_averaged_weights(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    words = words_of(tmp_path, "model=text", "trainer.epochs=2", "trainer.jit_compile=auto", "load.boundaries=[10,40]")
    given = [word for word in words if "emulated" not in word and "step_ms" not in word]
    folder = tmp_path / "run"
    _, err = finish_well(forked_on_jax([*given, f"hydra.run.dir={folder}"], tmp_path))
    assert "int64" not in err
    assert summary_of(folder)["epochs"][1]["examples"] == 160
