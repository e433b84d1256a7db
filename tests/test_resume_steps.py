import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from etlrun.record.locks import is_nobodys
from tests.forked import forked
from tests.runs import are_equal, finish, run_here, small, summary_of, variables_of

EPOCHS = ("trainer.epochs=2", "load.batch_size=2", "model.batch_norm_momentum=0.9", "measure.digest=true")
EVERY = "trainer.checkpoint_every_steps=3"
NO_DIGEST = "measure.digest=false"


def kill_after_state(words: list[str], folder: Path, epochs: int) -> None:
    """Run in a process of its own, and kill it as soon as it has saved a state after that many epochs."""
    process = forked([*words, f"hydra.run.dir={folder}"], folder.parent)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if list((folder / "checkpoints").glob(f"epoch_{epochs:04}_step_*.npz")):
            os.killpg(process.pid, signal.SIGKILL)
            assert finish(process)[0] == -signal.SIGKILL
            return
        time.sleep(0.001)
    pytest.fail(f"there is no state after {epochs} epochs: {process.communicate()}")


def results(folder: Path) -> list[list[Any]]:
    keys = ("loss", "accuracy", "val_loss", "val_accuracy", "digest", "validation_digest")
    return [[epoch.get(key) for key in keys] for epoch in summary_of(folder)["epochs"]]


@pytest.mark.parametrize(
    ("epochs", "overrides"),
    [
        pytest.param(0, ("cache=none",), id="shuffled bytes, first epoch"),
        pytest.param(1, ("cache=none", "load=plain"), id="in order"),
        pytest.param(1, ("cache=memory",), id="memory"),
        pytest.param(1, ("cache=disk", "cache.at=decoded"), id="disk"),
        pytest.param(0, ("cache=disk", "load.shuffle=full", "extract=sequential"), id="by number"),
        pytest.param(1, ("cache=none", "trainer.steps_per_epoch=16"), id="epochs of steps"),
        pytest.param(1, ("cache=disk", "cache.at=features", "trainer.steps_per_epoch=16", NO_DIGEST), id="features"),
        pytest.param(1, ("cache=none", "dataset.on_corrupt=skip", "trainer.optimizer=sgd"), id="skip"),
    ],
)
def test_a_run_killed_inside_an_epoch_ends_as_if_undisturbed(
    epochs: int, overrides: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    apart = (f"cache.dir={tmp_path / 'cache'}",) if "cache=disk" in overrides else ()
    words = small(tiny, *EPOCHS, EVERY, "load.shuffle_buffer=16", *overrides, *apart)
    words = [word for word in words if not (word.startswith("load.shuffle_buffer") and "load=plain" in words)]
    undisturbed, killed, resumed = (tmp_path / name for name in ("undisturbed", "killed", "resumed"))
    assert run_here(undisturbed, words)[0] == 0
    kill_after_state(words, killed, epochs)
    assert is_nobodys(killed)
    status, _, err = finish(forked([f"trainer.resume={killed}", f"hydra.run.dir={resumed}"], tmp_path))
    assert status == 0, err
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
    resumed_epoch = summary_of(resumed)["epochs"][epochs]
    whole = summary_of(undisturbed)["epochs"][epochs]
    assert resumed_epoch["resumed_steps"] > 0
    assert resumed_epoch["resumed_steps"] + resumed_epoch["steps"] == whole["steps"]
    assert not list((resumed / "checkpoints").glob("*.npz"))
