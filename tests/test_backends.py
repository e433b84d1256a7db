import os
from pathlib import Path

import pytest

from tests.forked import forked_on_jax
from tests.pastes import ROOT
from tests.quick import quick_jax
from tests.runs import events_of, finish, kill_after_state, losses_of, small, start, summary_of

pytestmark = [pytest.mark.slow, pytest.mark.needs("jax")]


def test_the_same_config_trains_on_jax(tiny: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folder = tmp_path / "run"
    words = [*small(tiny, "trainer.epochs=2", "measure.digest=true"), f"hydra.run.dir={folder}"]
    as_a_shell = start(words, tmp_path, "tests.quick_jobs", PYTHONPATH=path, **quick_jax(tmp_path / "jax"))
    status, _, err = finish(as_a_shell)
    assert status == 0, err
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
    slow = "trainer.jit_compile = false: Keras's jax backend takes each operation of a step by itself; set "
    assert f"{slow}trainer.jit_compile=auto." in summary["remarks"]
    assert [event["backend"] for event in events_of(folder) if event["event"] == "started"] == ["jax"]

    killed, resumed = tmp_path / "killed", tmp_path / "resumed"
    inside = [*words[:-1], "trainer.checkpoint_every_steps=2", f"hydra.run.dir={killed}"]
    kill_after_state(forked_on_jax(inside, tmp_path), killed, 1)
    more = [f"trainer.resume={killed}", "trainer.epochs=3", f"hydra.run.dir={resumed}"]
    status, _, err = finish(forked_on_jax(more, tmp_path))
    assert status == 0, err
    assert [epoch["resumed_steps"] > 0 for epoch in summary_of(resumed)["epochs"]] == [False, True, False]
    assert losses_of(summary_of(resumed))[:2] == losses_of(summary)
    assert [epoch["digest"] for epoch in summary_of(resumed)["epochs"]] == [first] * 3


def test_a_gpu_that_jax_does_not_see(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*small(tiny, "trainer.device=gpu"), f"hydra.run.dir={folder}"]
    status, _, err = finish(start(words, tmp_path, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu"))
    assert status == 1
    assert err == (
        "etlrun: failed\n  trainer.device: found no GPU that Keras's jax backend can see; "
        "expected a GPU, since trainer.device=gpu\n"
        "    -> check the driver and the backend's GPU packages, or set trainer.device=auto\n"
    )
