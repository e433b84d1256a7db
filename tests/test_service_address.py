"""Servers that others have started: what a run reads from them, and what it says if it can't."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import tensorflow as tf

from etlrun.run.service import versions as hello
from etlrun.run.service.loopback import is_shared
from etlrun.run.service.processes import started
from etlrun.run.service.servers import Servers
from etlrun.run.service.versions import workers_of
from etlrun.stages.service import Service
from etlrun.sweep import process
from etlrun.system.errors import WorldError
from tests.forked import Forked, forked
from tests.pipelines import training_pipeline
from tests.service import as_bytes, planned, served, servers

NONE_HEARD = list[str]().append


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses."""
    while True:
        with socket.socket() as one:
            one.bind(("localhost", 0))
            port: int = one.getsockname()[1]
        others = [socket.socket() for _ in range(count)]
        try:
            for place, other in enumerate(others):
                other.bind(("localhost", port + place))
        except OSError:
            continue
        finally:
            for other in others:
                other.close()
        return port


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_workers(address: str, count: int) -> bool:
    try:
        return workers_of(address, "here") == count
    except WorldError:
        return False


def is_served(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("localhost", port)) == 0


@pytest.fixture(scope="module")
def folder_of_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servers") / "cwd"
    folder.mkdir()
    return folder


def ended(server: Forked) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server._process.join()


class Elsewhere:
    """A dispatcher and its worker, started by the commands."""

    def __init__(self, folder: Path) -> None:
        self.port, self._folder = free_ports(3), folder
        self.address = f"localhost:{self.port}"
        self.dispatcher = forked(["service", "dispatcher", "--port", str(self.port)], folder)
        self.join()

    def join(self) -> None:
        until(partial(has_workers, self.address, 0))
        words = ["service", "worker", "--dispatcher", self.address, "--port", str(self.port + 2)]
        self.worker = forked(words, self._folder)
        until(partial(has_workers, self.address, 1))
        until(partial(is_served, self.port + 2))

    def end(self) -> None:
        for server in (self.worker, self.dispatcher):
            ended(server)


@pytest.fixture(scope="module")
def elsewhere(folder_of_servers: Path) -> Iterator[Elsewhere]:
    found = Elsewhere(folder_of_servers)
    yield found
    found.end()


def words(address: str) -> list[str]:
    return ["load.service.workers=null", f"load.service.address={address}"]


def test_a_worker_that_comes_back_goes_on_with_an_exact_pass(tiny: Path, elsewhere: Elsewhere) -> None:
    plan = planned(tiny, *words(elsewhere.address))
    with training_pipeline(plan) as local:
        expected = as_bytes(local.dataset)
    with servers(address=elsewhere.address) as own, served(plan, own) as pipeline:
        batches = iter(pipeline.dataset)
        found = as_bytes(islice(batches, 5))
        ended(elsewhere.worker)
        elsewhere.join()
        assert [*found, *as_bytes(batches)] == expected
        assert own.restarts == 0


def test_a_dynamic_pass_counts_what_a_worker_elsewhere_has_lost(tiny: Path, elsewhere: Elsewhere) -> None:
    plan, heard = planned(tiny, *words(elsewhere.address), "load.service.order=dynamic"), list[str]()
    with (
        servers(heard, address=elsewhere.address, order="dynamic", on_loss="report") as own,
        served(plan, own) as pipeline,
    ):
        batches = iter(pipeline.dataset)
        found = as_bytes(islice(batches, 5))
        ended(elsewhere.worker)
        elsewhere.join()
        found += as_bytes(batches)
    assert len(set(found)) == len(found)
    assert heard == [
        f"{len(found)} of 38 examples in pass 1 of train: {38 - len(found)} were lost with a worker that ended"
    ]


def test_a_worker_that_does_not_see_the_files_says_so(tiny: Path, tmp_path: Path, elsewhere: Elsewhere) -> None:
    shutil.copytree(tiny, tmp_path / "here")
    plan = planned(tmp_path / "here", *words(elsewhere.address))
    with servers(address=elsewhere.address) as own, served(plan, own) as pipeline:
        (tmp_path / "here").rename(tmp_path / "elsewhere")
        with pytest.raises(WorldError) as caught:
            list(pipeline.dataset)
    says_which_file(caught.value, tmp_path / "here")


def test_a_worker_that_does_not_see_the_cache_says_so(
    tiny: Path, tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the worker has another folder there
    here = Path("/proc/self/cwd/here")
    plan = planned(tiny, *words(elsewhere.address), "cache=disk", f"cache.dir={here}")
    with (
        servers(address=elsewhere.address) as own,
        served(plan, own) as pipeline,
        pytest.raises(WorldError) as caught,
    ):
        list(pipeline.dataset)
    says_which_file(caught.value, here)


def says_which_file(error: Exception, folder: Path) -> None:
    found, _, rest = str(error).partition("; expected ")
    assert found.startswith(f"load.service.address: found a worker that can't read a file: {folder}")
    assert found.endswith("No such file or directory")
    assert rest == (
        "workers that have the files of the dataset, and of a cache, at the same paths\n    -> mount the folder of the "
        "dataset, and cache.dir, on the machines of the workers, at the paths that they have here"
    )


def test_other_versions_are_refused(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    own = hello.versions()
    monkeypatch.setattr(hello, "versions", lambda: {**own, "tensorflow": "2.20.0"})
    for where, ask in (
        ("load.service.address", lambda: Servers(Service(address=elsewhere.address), NONE_HEARD)),
        ("--dispatcher", lambda: hello.join(elsewhere.address, "--dispatcher")),
    ):
        with pytest.raises(WorldError) as caught:
            ask()
        assert str(caught.value) == (
            f"{where}: found a dispatcher of tensorflow {own['tensorflow']} at {elsewhere.address}, and tensorflow "
            "2.20.0 here; expected one version everywhere, since graphs and values of options differ between versions\n"
            "    -> install the same version of tensorflow on both machines"
        )


def test_nobody_and_no_worker_are_told_apart(folder_of_servers: Path) -> None:
    port = free_ports(2)
    address = f"localhost:{port}"
    with pytest.raises(WorldError) as nobody:
        Servers(Service(address=address), NONE_HEARD)
    dispatcher = forked(["service", "dispatcher", "--port", str(port)], folder_of_servers)
    until(partial(has_workers, address, 0))
    with pytest.raises(WorldError) as alone:
        Servers(Service(address=address), NONE_HEARD)
    os.kill(dispatcher.pid, signal.SIGTERM)
    dispatcher._process.join()
    assert str(nobody.value) == (
        f"load.service.address: found no dispatcher at {address}: Connection refused; expected HOST:PORT of a "
        "dispatcher that `etlrun service dispatcher` has started, with PORT + 1 open\n"
        "    -> start it, and check the address and the firewalls between"
    )
    assert str(alone.value) == (
        f"load.service.address: found no worker of the dispatcher {address}; expected at least one\n"
        f"    -> start it: etlrun service worker --dispatcher {address}"
    )


@pytest.mark.parametrize("role", [["dispatcher"], ["worker", "--dispatcher", "localhost:1"]], ids=lambda of: of[0])
def test_another_machine_is_served_on_a_trusted_network_alone(role: list[str], folder_of_servers: Path) -> None:
    process = forked(["service", *role, "--host", "0.0.0.0"], folder_of_servers)  # noqa: S104 - it is refused
    _, errors = process.communicate(30)
    assert process.returncode == 2
    assert errors == (
        "etlrun: 1 fault\n  --host: found 0.0.0.0; expected an address of this machine alone, since the service "
        "neither encrypts nor authenticates\n    -> add --trusted-network on a network whose machines you trust\n"
    )


def test_two_workers_do_not_share_a_port(elsewhere: Elsewhere, folder_of_servers: Path) -> None:
    """The system would deal the clients of both to either of them, which would get the batches of others."""
    port = elsewhere.port + 2
    process = forked(["service", "worker", "--dispatcher", elsewhere.address, "--port", str(port)], folder_of_servers)
    _, errors = process.communicate(60)
    assert (process.returncode, errors) == (
        1,
        (
            f"etlrun: 1 fault\n  --port: found {port}: Address already in use; expected a free port, and the next one "
            "free for a dispatcher\n    -> choose another with --port\n"
        ),
    )


def test_a_port_is_shared_if_another_process_listens_there(elsewhere: Elsewhere) -> None:
    with socket.create_server(("localhost", 0)) as own:
        assert not is_shared(own.getsockname()[1])
    assert is_shared(elsewhere.port + 2)


def test_a_pass_that_servers_do_not_know_is_no_missing_file(elsewhere: Elsewhere) -> None:
    with servers(address=elsewhere.address) as own:
        error = own.refused(tf.errors.NotFoundError(None, None, "Dataset id 1000 not found"))
    assert str(error) == (
        "load.service.address: found servers that do not know this pass: Dataset id 1000 not found; expected the "
        "dispatcher and the workers with which it began\n"
        "    -> look whether one was started again, or shares its port with another, and run again"
    )


def test_a_file_whose_path_has_the_words_of_a_pass_is_a_file(elsewhere: Elsewhere) -> None:
    with servers(address=elsewhere.address) as own:
        error = tf.errors.NotFoundError(None, None, "/data/multitask/a.tfrecord; No such file or directory")
        assert not own.is_gone(error, 0)
        says_which_file(own.refused(error), Path("/data/multitask"))


def test_a_worker_that_is_stopped_blames_no_dispatcher(folder_of_servers: Path) -> None:
    own = Elsewhere(folder_of_servers)
    said = own.worker._output / "2"
    until(lambda: f"worker of {own.address}\n" in said.read_text())
    os.kill(own.worker.pid, signal.SIGTERM)
    _, errors = own.worker.communicate(60)
    ended(own.dispatcher)
    assert (own.worker.returncode, errors.splitlines()[-1]) == (0, f"worker of {own.address}")


def _start_and_say() -> None:
    print(*(started("cluster").process.pid for _ in range(2)), flush=True)
    signal.pause()


def test_servers_end_with_the_process_that_has_started_them(folder_of_servers: Path) -> None:
    parent = Forked(_start_and_say, folder_of_servers)
    said = parent._output / "1"
    until(lambda: said.exists() and len(said.read_text().split()) == 2)
    pids = [int(pid) for pid in said.read_text().split()]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    ended(parent)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
