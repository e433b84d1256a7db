"""Runs on several hosts: two real processes on loopback, each with its own part of the data."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etlrun.cluster import hosts
from etlrun.system.errors import WorldError
from tests.configs import plan_of
from tests.conftest import Once
from tests.forked import Forked, in_turn
from tests.golden import Says
from tests.hosts import SHARED, on_two_hosts
from tests.present import present
from tests.runs import finish, losses_of, small, summary_of, wait_for
from tests.service import free_port

EPOCHS = 3
SPLITS = ("dataset.split='train[:24]'", "dataset.eval_split='train[24:38]'")
ORDER = ("extract.cycle_length=2", "extract.block_length=4", "load.shuffle_buffer=0")
MODEL = ("model.trainable=true", "model.weights=null")
pytestmark = [pytest.mark.slow, pytest.mark.needs("jax")]


def in_training(words: list[str], run: Path) -> list[Forked]:
    """Two hosts that have trained for an epoch."""
    hosts = on_two_hosts(words, run.parent)
    wait_for((run / "checkpoints" / "epoch_0001.keras").exists, hosts[0])
    return hosts


@pytest.fixture(scope="module")
def trained(tiny: Path, once: Once) -> dict[str, Any]:
    """Summaries of equal trainings on one host and on two, of which one host was killed, and what was said of that."""
    folder = once("hosts", lambda folder: train(folder, tiny))
    summaries = {name: summary_of(folder / name) for name in ("one", "killed", "then_on_one", "then_on_two")}
    return {"folder": folder, **summaries, **json.loads((folder / "said.json").read_text())}


def train(folder: Path, tiny: Path) -> None:
    """With this extract, one host reads the batches that two hosts read together, each from its own shard."""
    base = small(tiny, *SHARED[1:], *SPLITS, *ORDER, *MODEL, "measure.digest=true", f"trainer.epochs={EPOCHS}")

    def words(name: str, *more: str) -> list[str]:
        return [*base, *more, f"hydra.run.dir={folder / name}"]

    hosts = in_training(words("killed", SHARED[0]), folder / "killed")
    os.kill(hosts[1].pid, signal.SIGKILL)
    began_s = time.monotonic()
    ended, _ = (finish(host) for host in hosts)
    took_s = time.monotonic() - began_s
    on_one = [
        words("one"),
        words("begun_on_one", "trainer.epochs=1"),
        words("then_on_one", f"trainer.resume={folder / 'killed'}", "trainer.hosts=1"),
    ]
    status, out, err = finish(Forked(partial(in_turn, on_one), folder, on_jax=True))
    assert (status, out.count("ended: 0")) == (0, 3), err
    resumed = words("then_on_two", SHARED[0], f"trainer.resume={folder / 'begun_on_one'}")
    both = [finish(host)[0] for host in on_two_hosts(resumed, folder)]
    left = [path.name for path in folder.iterdir() if path.name.startswith("etlrun_host_1")]
    (folder / "said.json").write_text(json.dumps({"ended": ended, "took_s": took_s, "both": both, "left": left}))


def test_a_host_that_is_killed_ends_the_other_within_a_minute(trained: dict[str, Any]) -> None:
    (status, _, err), folder = trained["ended"], trained["folder"] / "killed"
    assert (status, trained["killed"]["status"]) == (1, "failed")
    found, remedy = trained["killed"]["error"].split("\n")
    assert found.startswith("The run failed: ")
    assert "Gloo" in found
    assert remedy == (
        "    -> see what the other hosts say, since one may have ended; resume with this or another number "
        f"of them: trainer.resume={folder}; the traceback is in {folder / 'traceback.txt'}"
    )
    assert f"etlrun: failed\n  {found}\n{remedy}\n" in err
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


@pytest.mark.parametrize(
    ("host", "by", "status", "said"),
    [(0, signal.SIGKILL, -signal.SIGKILL, ""), (1, signal.SIGINT, 130, "etlrun: host 1: The run was interrupted\n")],
    ids=["killed", "interrupted"],
)
def test_the_end_of_one_host_ends_the_other(
    tiny: Path, tmp_path: Path, host: int, by: signal.Signals, status: int, said: str
) -> None:
    run = tmp_path / "run"
    words = small(tiny, *SHARED, *SPLITS, *ORDER, *MODEL, "trainer.epochs=999", f"hydra.run.dir={run}")
    hosts = in_training(words, run)
    os.kill(hosts[host].pid, by)
    began_s = time.monotonic()
    ended = [finish(of) for of in hosts]
    assert time.monotonic() - began_s < 60
    assert ended[host][0] == status
    assert said in ended[host][2]
    assert ended[1 - host][0] in (1, -signal.SIGABRT)  # a step fails, or JAX ends the process before
    assert any(why in ended[1 - host][2] for why in ("The run failed: ", "the JAX distributed service detected"))


def too_few() -> None:
    """The first of two hosts, of which the other one isn't started."""
    trainer = present(plan_of(*SHARED).spec.fit)
    hosts._JOIN_S = 1
    try:
        hosts.join_hosts("jax", trainer)
    except WorldError as error:
        print(error, flush=True)
        os._exit(1)  # at its usual end, JAX would wait for the other one


def test_a_host_that_never_comes_is_missed(tmp_path: Path, says: Says) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}
    status, out, _ = finish(Forked(too_few, tmp_path, on_jax=True, environment=environment))
    assert status == 1
    says(out, ADDRESS=address)
