"""Runs of datasets at URLs: what limits them, what they have to fetch, and who fetches what."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from etlrun.graph.figures import with_figures
from etlrun.sources.base import open_source
from etlrun.sources.remote import RemoteSplit
from etlrun.system.machine import rounded
from tests.configs import plan_of
from tests.forked import forked
from tests.hosts import SHARED, on_two_hosts
from tests.runs import emulated, finish, run_here, small, summary_of
from tests.servers import Server, serving

SPLITS = ("dataset.split=train", "dataset.eval_split=null")
STEP_S, SHARDS = 0.005, 4


@pytest.fixture
def server(tiny: Path) -> Iterator[Server]:
    with serving() as found:
        found.put_folder(tiny)
        yield found


def shards_sent(server: Server) -> Counter[str]:
    """How often each shard was sent."""
    return Counter(name.rpartition("/")[2] for name, _ in server.sent if "tfrecord" in name)


def test_a_store_that_is_too_slow_limits_a_run(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pause_s, copies = 0.2, f"dataset.copies={tmp_path / 'copies'}"
    words = emulated(Path("url"), f"dataset.data_dir={server.url}", copies, "dataset.storage={at_once: 1}", *SPLITS)
    status, found = run_here(tmp_path / "run", [*words, "cache=none", "trainer.epochs=2"])
    assert status == 0
    data, fetched, (first,) = found["dataset"], found["fetched"], found["verdict"]["apart"][1:]
    assert (first["name"], first["stage"]) == ("first epoch", "extract.fetch")
    assert found["verdict"]["stage"] != "extract.fetch"  # of the second, which reads the copies
    assert (fetched["bytes"], fetched["requests"]) == (data["bytes"], SHARDS)
    assert fetched["busy_s"] > SHARDS * server.pause_s
    waited, read = (row["cost_ms"] for row in found["stages"][:2])
    assert [row["stage"] for row in found["stages"][:2]] == ["extract.fetch", "extract.interleave"]
    assert read < waited < 1000 * fetched["waited_s"]
    noted = f"note: to fetch: {rounded(data['bytes'])} in 4 shards\n"
    assert noted in (tmp_path / "run" / "plan.txt").read_text()
    capsys.readouterr()
    status, found = run_here(tmp_path / "again", [*words, f"dataset.copies={tmp_path / 'others'}", "cache=none"])
    verdict, fetched = found["verdict"], found["fetched"]
    assert (status, verdict["kind"], verdict["stage"]) == (0, "input", "extract.fetch")
    assert verdict["arriving_bytes_per_s"] == pytest.approx(fetched["bytes"] / fetched["busy_s"], rel=0.01)
    consumed = 2 / found["step_floor_ms"] * 1000 * data["bytes"] / data["examples"]["train"]
    assert verdict["consumed_bytes_per_s"] == pytest.approx(consumed)
    arriving, consumes = (f"{rate / 1e6:.2g}" for rate in (verdict["arriving_bytes_per_s"], consumed))
    out = capsys.readouterr().out
    assert f"input-bound at extract.fetch: {arriving} MB/s of the {consumes} that this model consumes, training" in out
    at_once = "Try dataset.storage.at_once=2: 1 of 4 shards were fetched at once"
    assert f"advice    {at_once}; later epochs and runs read the copies.\n" in out
    told = (tmp_path / "again" / "report.md").read_text().splitlines()
    assert f"- fetched   {data['bytes'] / 1e6:,.1f} MB by 4 requests at {arriving} MB/s" in told


def test_what_is_fetched_before_a_training_is_told_too(server: Server, tmp_path: Path) -> None:
    words = emulated(Path("url"), f"dataset.data_dir={server.url}", f"dataset.copies={tmp_path / 'copies'}", *SPLITS)
    whole = ["extract=sequential", "extract.shuffle_files=false", "load.shuffle=full", "cache=none"]
    status, found = run_here(tmp_path / "run", [*words, *whole])
    assert (status, found["fetched"]["requests"], found["fetched"]["bytes"]) == (0, SHARDS, found["dataset"]["bytes"])
    assert (found["verdict"]["stage"] or "") != "extract.fetch"


def test_a_plan_notes_what_is_to_be_fetched(server: Server, tmp_path: Path) -> None:
    base = small(Path("url"), f"dataset.data_dir={server.url}", f"dataset.copies={tmp_path}", "dataset.eval_split=null")
    whole, half = (plan_of(*base, f"dataset.split='{split}'") for split in ("train", "train[50%:]"))
    sizes = {name: len(content) for name, content in server.files.items() if "tfrecord" in name}
    total, last = sum(sizes.values()), sum(sizes[name] for name in sorted(sizes)[2:])
    assert with_figures(whole).remarks[-1:] == (f"to fetch: {rounded(total)} in 4 shards",)
    assert with_figures(half).remarks[-1:] == (f"to fetch: {rounded(last)} in 2 shards",)
    assert not shards_sent(server)
    split = open_source(half.spec.dataset).split("train[50%:]", "dataset.split")
    assert isinstance(split, RemoteSplit)
    split.fetch()
    assert with_figures(half).remarks[-1:] == (f"to fetch: nothing, all 2 shards ({rounded(last)}) are here",)
    left = f"to fetch: {rounded(total - last)} in 2 of 4 shards; {rounded(last)} are here"
    assert with_figures(whole).remarks[-1:] == (left,)
    nowhere = plan_of(*base, f"dataset.data_dir={server.url}/none")
    name = nowhere.spec.dataset.name
    why = f"dataset.data_dir: found no {server.url}/none/{name}/VERSION/dataset_info.json"
    assert with_figures(nowhere).remarks[-1:] == (f"to fetch: unknown, since a run would fail: {why}",)
    first = min(sizes)
    del server.files[first]
    again = "dataset.storage={at_once: 2}"  # since a process lists a store once
    whole, half = (plan_of(*base, again, f"dataset.split='{split}'") for split in ("train", "train[50%:]"))
    assert with_figures(half).remarks[-1:] == (f"to fetch: nothing, all 2 shards ({rounded(last)}) are here",)
    why = f"{server.url}/{first}: found no such file"
    assert with_figures(whole).remarks[-1:] == (f"to fetch: unknown, since a run would fail: {why}",)


def test_two_runs_at_once_fetch_each_shard_once(server: Server, tmp_path: Path) -> None:
    words = emulated(Path("url"), f"dataset.data_dir={server.url}", f"dataset.copies={tmp_path / 'copies'}", *SPLITS)
    server.pause_s = 0.05
    both = [forked([*words, f"hydra.run.dir={tmp_path / name}"], tmp_path) for name in ("one", "other")]
    assert [finish(process)[0] for process in both] == [0, 0]
    shards = [name for name in server.files if "tfrecord" in name]
    assert shards_sent(server) == {name.rpartition("/")[2]: -(-len(server.files[name]) // 2**16) for name in shards}
    fetched = [summary_of(tmp_path / name)["fetched"]["bytes"] for name in ("one", "other")]
    assert sum(fetched) == sum(len(server.files[name]) for name in shards)


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_each_host_fetches_its_own_shards_alone(server: Server, tiny: Path, tmp_path: Path) -> None:
    words = [*SHARED, *SPLITS, "cache=none", "model.trainable=true", "model.weights=null", "measure.digest=true"]
    copies = [f"dataset.copies={tmp_path / str(number)}" for number in range(2)]
    there = [*small(Path("url"), *words, f"dataset.data_dir={server.url}", f"hydra.run.dir={tmp_path / 'two'}")]
    hosts = on_two_hosts([*there, copies[0]], tmp_path, other=[*there, copies[1]])
    assert [finish(host)[0] for host in hosts] == [0, 0]
    ended = forked([*small(tiny, *words[1:], f"hydra.run.dir={tmp_path / 'one'}")], tmp_path)
    assert finish(ended)[0] == 0
    held = [{path.name for path in (tmp_path / str(number)).glob("fetched/*/*tfrecord*")} for number in range(2)]
    assert [sorted(names) for names in held] == [
        [f"tiny_pictures-train.tfrecord-0000{number}-of-00004" for number in part] for part in ((0, 1), (2, 3))
    ]
    assert set(shards_sent(server).values()) == {1}
    one, two = ([epoch["digest"] for epoch in summary_of(tmp_path / name)["epochs"]] for name in ("one", "two"))
    assert two == one
