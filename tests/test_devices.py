"""Trainings whose batches are shared among the devices of one machine, which the tests force a CPU to have."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import Once
from tests.forked import Forked, in_turn
from tests.golden import MESSAGES, Golden
from tests.runs import finish, losses_of, small, summary_of

pytestmark = pytest.mark.slow

SHARED = ("load.drop_remainder=true", "trainer.jit_compile=auto")


def on_devices(backend: str, runs: Sequence[Sequence[str]], cwd: Path, count: int = 4) -> tuple[list[int], str]:
    """The exit status of each run, one after the other in a process, and what was printed on standard error."""
    forced = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    work = partial(in_turn if backend == "jax" else _on_four_of_tensorflow, runs)
    _, out, err = finish(Forked(work, cwd, on_jax=backend == "jax", environment=forced))
    lines = [line for line in out.splitlines() if line.startswith("ended: ")]
    assert len(lines) == len(runs), err
    return [int(line.split()[1]) for line in lines], err


def _on_four_of_tensorflow(runs: Sequence[Sequence[str]]) -> None:
    cpu, four = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(cpu, four)
    in_turn(runs)


@pytest.fixture(scope="module", params=["tensorflow", pytest.param("jax", marks=pytest.mark.needs("jax"))])
def trained(request: pytest.FixtureRequest, tiny: Path, once: Once) -> dict[str, Any]:
    """Summaries of trainings on one device, on four, and of those that went on from there on one, and again on four."""
    folder = once(f"devices_{request.param}", lambda folder: train(request.param, folder, tiny))
    return {name: summary_of(folder / name) for name in ("one", "four", "then_on_one", "then_on_four")}


def train(backend: str, folder: Path, tiny: Path) -> None:
    of_eight = "dataset.eval_split='train[38:46]'"  # which four devices have equal shares of
    base = [*small(tiny, *SHARED, of_eight, "model.trainable=true", "model.weights=null", "measure.digest=true")]
    base = [word for word in base if not word.startswith("trainer.epochs=")]

    def run(name: str, *words: str) -> list[str]:
        return [*base, *words, f"hydra.run.dir={folder / name}"]

    runs = [
        run("one", "trainer.epochs=3"),
        run("four", "trainer.epochs=1", "trainer.devices=4", "trainer.checkpoint_every_steps=2"),
        run("then_on_one", "trainer.epochs=2", "trainer.devices=1", f"trainer.resume={folder / 'four'}"),
        run("then_on_four", "trainer.epochs=3", "trainer.devices=all", f"trainer.resume={folder / 'then_on_one'}"),
    ]
    status, err = on_devices(backend, runs, folder)
    assert status == [0] * len(runs), err


@pytest.mark.parametrize(("name", "epochs"), [("four", 1), ("then_on_one", 2), ("then_on_four", 3)])
def test_the_losses_are_those_of_one_device(trained: dict[str, Any], name: str, epochs: int) -> None:
    one, other = trained["one"], trained[name]
    assert [epoch["digest"] for epoch in other["epochs"]] == [epoch["digest"] for epoch in one["epochs"][:epochs]]
    assert losses_of(other) == [pytest.approx(losses, rel=1e-3) for losses in losses_of(one)[:epochs]]


def test_the_devices_are_named(trained: dict[str, Any]) -> None:
    assert trained["one"]["host"]["device"] == trained["then_on_one"]["host"]["device"] == "CPU"
    assert trained["four"]["host"]["device"] == trained["then_on_four"]["host"]["device"] == "CPU (4 devices)"


@pytest.mark.parametrize(("examples", "sizes"), [(16, [8, 8]), (14, [8, 4]), (11, [8])])
def test_a_last_batch_has_equal_shares(examples: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from etlrun.run import devices

    monkeypatch.setattr(devices, "shares", lambda: 4)
    numbers = tf.data.Dataset.range(examples)
    batches = [*devices.shared_equally(tf.data.Dataset.zip((numbers, numbers)).batch(8))]
    assert [len(inputs) for inputs, _ in batches] == sizes
    for inputs, targets in batches:
        assert inputs.numpy().tolist() == targets.numpy().tolist()
    assert [*np.concatenate([inputs for inputs, _ in batches])] == [*range(sum(sizes))]


def test_what_the_backend_can_not_share_is_refused(golden: Golden, tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, *SHARED, "trainer.devices=8", f"hydra.run.dir={tmp_path / 'a'}")
    whole = small(tiny, *SHARED, "load.batch_size=6", "trainer.devices=all", f"hydra.run.dir={tmp_path / 'b'}")
    compiled = small(
        tiny, SHARED[0], "trainer.jit_compile=true", "trainer.devices=2", f"hydra.run.dir={tmp_path / 'c'}"
    )
    norm = ("trainer.global_clipnorm=1.0", "trainer.devices=2")
    clipped = small(tiny, *SHARED, *norm, f"hydra.run.dir={tmp_path / 'd'}")
    status, err = on_devices("tensorflow", [words, whole, compiled, clipped], tmp_path)
    assert status == [1, 2, 1, 1]
    golden(MESSAGES.parent / "devices.txt", "".join(re.findall(r"etlrun: failed\n(?:  .*\n)+", err)))
