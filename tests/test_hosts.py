"""Runs on several hosts: two real processes on loopback, each with its own part of the data."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.configs import plan_of
from tests.forked import Forked
from tests.hosts import QUICK, SHARED, WAITING, is_linked, on_two_hosts, wait_for
from tests.quick import quick_jax
from tests.runs import finish, losses_of, small, summary_of

pytestmark = pytest.mark.slow

EPOCHS = 3
SPLITS = ("dataset.split='train[:24]'", "dataset.eval_split='train[24:38]'")
ORDER = ("extract.cycle_length=2", "extract.block_length=4", "load.shuffle_buffer=0")
MODEL = ("model.trainable=true", "model.weights=null")
LOST = "expected 2 hosts until the end of the run\n    -> resume with this or another trainer.hosts: trainer.resume="
ON_ONE = """
import json, sys
import tests.quick_jobs
from etlrun.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
"""
"""A process that does one run after the other on one host."""


def in_training(words: list[str], run: Path, patch: pytest.MonkeyPatch) -> list[Forked]:
    """Two hosts on JAX that have trained for an epoch."""
    for name, value in quick_jax(run.parent / "jax").items():
        patch.setenv(name, value)
    hosts = on_two_hosts(words, run.parent, QUICK)
    wait_for("checkpoint", hosts[0], is_there=partial((run / "checkpoints" / "epoch_0001.keras").exists))
    return hosts


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Summaries of equal trainings on one host and on two, of which one host was killed, and what was said of that.

    With this extract, one host reads the batches that two hosts read together, each from its own shard.
    """
    if importlib.util.find_spec("jax") is None:
        pytest.skip("the extra `jax` is not installed")
    folder = tmp_path_factory.mktemp("hosts")
    base = small(tiny, *SHARED[1:], *SPLITS, *ORDER, *MODEL, "measure.digest=true", f"trainer.epochs={EPOCHS}")

    def words(name: str, *more: str) -> list[str]:
        return [*base, *more, f"hydra.run.dir={folder / name}"]

    with pytest.MonkeyPatch.context() as patch:
        hosts = in_training(words("killed", SHARED[0]), folder / "killed", patch)
        os.kill(hosts[1].pid, signal.SIGKILL)
        began_s = time.monotonic()
        ended, took_s = finish(hosts[0]), time.monotonic() - began_s
        runs = [
            words("one"),
            words("begun_on_one", "trainer.epochs=1"),
            words("then_on_one", f"trainer.resume={folder / 'killed'}", "trainer.hosts=1"),
        ]
        command = [sys.executable, "-c", ON_ONE, json.dumps(runs)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        resumed = words("then_on_two", SHARED[0], f"trainer.resume={folder / 'begun_on_one'}")
        both = [finish(host)[0] for host in on_two_hosts(resumed, folder, QUICK)]
    names = ("one", "killed", "then_on_one", "then_on_two")
    left = [path.name for path in folder.iterdir() if path.name.startswith("etlrun_host_1")]
    return {
        **{name: summary_of(folder / name) for name in names},
        "folder": folder,
        "ended": ended,
        "took_s": took_s,
        "both": both,
        "left": left,
    }


def test_a_host_that_is_killed_ends_the_other_within_a_minute(trained: dict[str, Any]) -> None:
    status, _, err = trained["ended"]
    error = f"host 1: found the end of its connection; {LOST}{trained['folder'] / 'killed'}"
    assert (status, trained["killed"]["status"], trained["killed"]["error"]) == (1, "failed", error)
    assert f"etlrun: failed\n  {error}\n" in err
    assert trained["took_s"] < 60


@pytest.mark.parametrize("name", ["then_on_one", "then_on_two"])
def test_a_run_goes_on_with_another_number_of_hosts(trained: dict[str, Any], name: str) -> None:
    one, other = trained["one"], trained[name]
    assert losses_of(other) == [pytest.approx(losses, rel=1e-3) for losses in losses_of(one)]


@pytest.mark.parametrize("kind", ["digest", "validation_digest", "examples"])
def test_the_hosts_together_read_what_one_host_reads(trained: dict[str, Any], kind: str) -> None:
    one, two = ([epoch[kind] for epoch in trained[name]["epochs"]] for name in ("one", "then_on_two"))
    assert two == one
    assert {"digest": "24:", "validation_digest": "14:", "examples": "24"}[kind] in str(one[0])


def test_there_is_one_run_folder(trained: dict[str, Any]) -> None:
    assert trained["both"] == [0, 0]
    assert trained["then_on_two"]["host"]["device"] == "CPU, on each of 2 hosts"
    assert (trained["folder"] / "then_on_two" / "model.keras").exists()
    assert len(trained["left"]) == 1  # that of the host that was killed


def waiting(tmp_path: Path, *more: str, other: list[str] | None = None) -> list[Any]:
    """Two hosts that wait, and are linked."""
    words = [*SHARED, *more, f"hydra.run.dir={tmp_path / 'run'}"]
    hosts = on_two_hosts(words, tmp_path, WAITING, other=other)
    if other is None:
        wait_for("link", hosts[1], is_there=partial(is_linked, hosts[1], tmp_path / "run"))
    return hosts


def test_a_first_host_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    hosts = waiting(tmp_path)
    os.kill(hosts[0].pid, signal.SIGKILL)
    status, _, err = finish(hosts[1])
    assert (status, err) == (
        1,
        f"etlrun: failed\n  host 0: found the end of its connection; {LOST}{tmp_path / 'run'}\n",
    )


def test_a_part_that_is_killed_ends_all_hosts(tmp_path: Path) -> None:
    import psutil

    hosts = waiting(tmp_path)
    (part,) = psutil.Process(hosts[1].pid).children()
    part.kill()
    expected = "host 1: found the end of its process: SIGKILL; expected 2 hosts until the end of the run\n"
    for status, _, err in map(finish, hosts):
        assert (status, err) == (
            1,
            f"etlrun: failed\n  {expected}    -> start again, with this or another trainer.hosts\n",
        )
    assert summary_of(tmp_path / "run")["error"].startswith("host 1: found the end of its process: SIGKILL")


def test_an_interrupt_of_one_host_ends_all(tmp_path: Path) -> None:
    hosts = waiting(tmp_path)
    os.kill(hosts[1].pid, signal.SIGTERM)
    (first, _, said), (second, _, also_said) = map(finish, hosts)
    assert (first, second) == (130, 130)
    assert (said, also_said) == ("etlrun: interrupted before the first checkpoint\n", "etlrun: interrupted\n")
    assert summary_of(tmp_path / "run")["status"] == "interrupted"


def test_an_interrupt_ends_the_training_of_all_hosts_itself(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    words = small(tiny, *SHARED, *SPLITS, *ORDER, *MODEL, "trainer.epochs=999", f"hydra.run.dir={tmp_path / 'run'}")
    hosts = in_training(words, tmp_path / "run", monkeypatch)
    os.kill(hosts[1].pid, signal.SIGINT)
    (first, _, said), (second, _, also_said) = map(finish, hosts)
    assert (first, second, also_said) == (130, 130, "etlrun: interrupted\n")
    assert said.endswith(f"etlrun: interrupted; resume with: etlrun trainer.resume={tmp_path / 'run'}\n")
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert {"event": "ended", "status": "interrupted"}.items() <= json.loads(events[-1]).items()


def test_hosts_with_another_run_are_refused(tmp_path: Path) -> None:
    hosts = waiting(tmp_path, other=[*SHARED, "trainer.learning_rate=0.5"])
    plans = [plan_of(*SHARED).fingerprint, plan_of(*SHARED, "trainer.learning_rate=0.5").fingerprint]
    expected = (
        f"etlrun: failed\n  host 1: plan: found {plans[1]}; expected {plans[0]}, as on host 0\n"
        "    -> start all with the same command\n"
    )
    assert [(status, err) for status, _, err in map(finish, hosts)] == [(1, expected)] * 2
