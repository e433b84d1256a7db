"""Tables of URLs: their files are fetched from real servers that fail, checked, and read as those on this machine."""

import base64
import hashlib
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import etlrun
from etlrun.graph.figures import with_figures
from etlrun.remote import transfers
from etlrun.remote.copies import Copies
from etlrun.remote.objects import answered, list_objects, look_up_again
from etlrun.sources.base import open_source
from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from etlrun.system.machine import rounded
from tests.configs import plan_of, raised
from tests.forked import forked
from tests.golden import Case, Golden, Says, cases
from tests.hosts import SHARED, on_two_hosts
from tests.runs import complete_here, emulated, finish, run_here, small, summary_of
from tests.servers import Server, serving
from tests.tables import a_table, values, write_houses

MB = 1 << 20
ANSWERS = "expected a server that answers\n    -> check the URL and the network, and run it again"
FETCH = """\
import sys
from pathlib import Path
from etlrun.remote.copies import Copies
from etlrun.remote.objects import list_objects
print(Copies(Path(sys.argv[2]), {}).all(list_objects(sys.argv[1], {}))[0])
"""


@pytest.fixture
def content() -> bytes:
    return np.random.default_rng(0).bytes(20 * MB)


def fetch_one(url: str, folder: Path) -> Path:
    (path,) = Copies(folder, {}).all(list_objects(url, {}))
    return Path(path)


def digest_of(content: bytes) -> bytes:
    return hashlib.new("md5", content, usedforsecurity=False).digest()


def refusal(url: str, folder: Path) -> str:
    return raised(EtlrunError, fetch_one, url, folder)


@pytest.mark.smoke
def test_a_table_of_urls_is_that_of_the_same_files(server: Server, tmp_path: Path) -> None:
    write_houses(tmp_path)
    url = server.put("houses.parquet", (tmp_path / "houses.parquet").read_bytes())
    here = kept_of(a_table(str(tmp_path / "houses.parquet"), tmp_path / "here"))
    there = kept_of(a_table({"train": [f"{server.url}/moved/houses.parquet"]}, tmp_path / "there"))
    assert there.known.identity == here.known.identity
    assert values(there) == values(here)
    sent = len(server.sent)
    assert kept_of(a_table(url, tmp_path / "there")).known.identity == here.known.identity
    assert len(server.sent) > sent  # another URL may be another file
    sent = len(server.sent)
    kept_of(a_table(url, tmp_path / "there", order="random"))
    assert len(server.sent) == sent


def test_a_plan_has_the_rows_of_an_object_as_they_are_now(server: Server, tmp_path: Path) -> None:
    def rows_of(content: bytes) -> int:
        url = server.put("a.csv", content)
        server.sent.clear()
        words = (f"dataset.files={url}", "dataset.target={price: number}", f"dataset.dir={tmp_path}")
        dataset: Any = etlrun.plan("experiment=table", *words, "transform.columns={x: {}}").plan.spec.dataset
        assert server.sent_of("a.csv") == len(content)
        return int(dataset.found.rows["train"])

    assert rows_of(b"x,price\n" + b"1,2\n3,4\n" * 10) == 20
    assert rows_of(b"x,price\n" + b"1,2\n3,4\n" * 15) == 30


def test_a_server_that_was_not_there_may_come_back(server: Server, tmp_path: Path) -> None:
    assert "found no such object" in refusal(f"{server.url}/a.bin", tmp_path)
    url = server.put("a.bin", b"a")
    assert "found no such object" in refusal(url, tmp_path)  # as the same command was told
    look_up_again()
    assert fetch_one(url, tmp_path).read_bytes() == b"a"


@pytest.mark.parametrize("resets", [False, True])
def test_a_transfer_that_is_cut_goes_on_where_it_ended(
    server: Server, tmp_path: Path, content: bytes, *, resets: bool
) -> None:
    url, server.cut_bytes, server.resets = server.put("x.csv", content), 3 * MB, resets
    assert fetch_one(url, tmp_path).read_bytes() == content
    starts = [start for _, start in server.starts]
    assert len(starts) > len(content) // server.cut_bytes
    assert starts == sorted(starts)  # a reset may lose what its reader has not read yet, but nothing that is written
    assert starts[-1] >= len(content) - server.cut_bytes
    if not resets:
        assert server.sent_of("x.csv") < 2 * len(content)


def test_a_server_without_ranges_sends_the_whole_file(server: Server, tmp_path: Path, content: bytes) -> None:
    url, server.has_ranges = server.put("x.csv", content), False
    assert fetch_one(url, tmp_path).read_bytes() == content


def test_progress_counts_no_byte_twice(server: Server, tmp_path: Path, content: bytes) -> None:
    (of,) = list_objects(server.put("x.csv", content), {})
    server.has_ranges = False  # so that what is there comes again
    path, told = Path(Copies(tmp_path, {}).path(of)), list[tuple[int, int]]()
    path.parent.mkdir(parents=True)
    path.with_name(".part").write_bytes(content[:MB])
    transfers.ObjectFetch(of, path, {}, Event(), lambda: None, lambda *counts: told.append(counts)).run()
    assert path.read_bytes() == content
    assert [sum(counts) for counts in zip(*told, strict=True)] == [len(content)] * 2
    assert told[0] == (0, MB)


def test_a_server_that_is_busy_is_asked_again(server: Server, tmp_path: Path) -> None:
    url, server.first = server.put("x.csv", b"a,b\n"), [503, 429, 500]
    assert fetch_one(url, tmp_path).read_bytes() == b"a,b\n"
    assert server.first == []


def test_a_busy_server_is_asked_again_what_there_is() -> None:
    class BusyError(Exception):
        status = 503

    answers: list[object] = [BusyError(), BusyError(), "there"]

    def asked() -> object:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    assert answered("s3://bucket/x", asked) == "there"
    answers = [PermissionError()]
    with pytest.raises(EtlrunError, match="found 403 Forbidden; expected credentials for it"):
        answered("s3://bucket/x", asked)


def test_a_server_that_stays_busy_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setattr(transfers, "LONGEST_S", 1.0)
    url, server.first = server.put("x.csv", b"a,b\n"), [503] * 100
    says(refusal(url, tmp_path), URL=url)


@pytest.mark.parametrize("case", cases("remote"))
def test_what_can_not_be_fetched_is_refused(server: Server, tmp_path: Path, case: Case, golden: Golden) -> None:
    server.put("x.csv", b"a,b\n")
    server.files["old.csv"] = b"a\n"  # without a version
    server.first, server.lengths = [*case.get("first", [])], case.get("lengths", {})
    name = case["name"]
    url = name if "://" in name else f"{server.url}/{name}"
    golden(case, refusal(url, tmp_path).replace(server.url, "SERVER"))
    assert server.first == case.get("first", [])[1:]  # that refuses is not asked again


def test_no_server_is_said_so(tmp_path: Path) -> None:
    with serving() as server:
        url = server.put("x.csv", b"")
    found = refusal(url, tmp_path)
    assert re.fullmatch(rf"{re.escape(url)}: found Cannot connect to host .*; {re.escape(ANSWERS)}", found), found


def test_a_file_that_ends_before_its_length_is_refused(server: Server, tmp_path: Path, says: Says) -> None:
    url = server.put("x.csv", b"a,b\n")
    before = list_objects(url, {})
    server.files["x.csv"], server.lengths = b"a,b", {"x.csv": 4}
    says(raised(EtlrunError, Copies(tmp_path, {}).all, before), URL=url)


def test_a_password_is_taken_from_netrc(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, server.login = server.put("x.csv", b"a,b\n"), "me:pass"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pass\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetch_one(url, tmp_path).read_bytes() == b"a,b\n"


def test_a_file_that_changes_meanwhile_is_refused(server: Server, tmp_path: Path, content: bytes, says: Says) -> None:
    url = server.put("x.csv", content)
    before = list_objects(url, {})
    server.put("x.csv", content[::-1])
    says(raised(EtlrunError, Copies(tmp_path, {}).all, before), URL=url)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]


def test_bytes_that_differ_from_their_checksum_are_refused(server: Server, tmp_path: Path, says: Says) -> None:
    url, digest = server.put("x.csv", b"a,b\n"), digest_of(b"b,a\n")
    server.checksums["x.csv"] = base64.b64encode(digest).decode()
    says(refusal(url, tmp_path), URL=url, FOUND=digest_of(b"a,b\n").hex(), SAID=digest.hex())
    assert not list(tmp_path.rglob("x.csv"))


@pytest.mark.slow
def test_no_kill_leaves_a_wrong_byte(server: Server, tmp_path: Path, content: bytes) -> None:
    url, server.pause_s = server.put("x.csv", content), 0.003
    (of,) = list_objects(url, {})
    part = tmp_path / "fetched" / of.key / ".part"
    for kill in range(3):
        process = subprocess.Popen([sys.executable, "-c", FETCH, url, str(tmp_path)], stdout=subprocess.PIPE)
        before = part.stat().st_size if part.exists() else 0
        while process.poll() is None and (not part.exists() or part.stat().st_size <= before):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, kill
        assert content.startswith(part.read_bytes())
    server.pause_s = 0.0
    sent = server.sent_of("x.csv")
    assert fetch_one(url, tmp_path).read_bytes() == content
    assert server.sent_of("x.csv") - sent < len(content)


def test_processes_fetch_an_object_once(server: Server, tmp_path: Path, content: bytes) -> None:
    url, server.pause_s = server.put("x.csv", content), 0.002
    command = [sys.executable, "-c", FETCH, url, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate() for process in running]
    assert [out for out, _ in told] == [f"{tmp_path}/fetched/{list_objects(url, {})[0].key}/x.csv\n"] * 2, told
    assert server.sent_of("x.csv") == len(content)


SPLITS = ("dataset.split=train", "dataset.eval_split=null")
STEP_S, SHARDS = 0.005, 4


@pytest.fixture
def own_server(tiny: Path) -> Iterator[Server]:
    with serving() as found:
        found.put_folder(tiny)
        yield found


def shards_sent(own_server: Server) -> Counter[str]:
    """How often each shard was sent."""
    return Counter(name.rpartition("/")[2] for name, _ in own_server.sent if "tfrecord" in name)


def test_a_store_that_is_too_slow_limits_a_run(
    own_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_server.pause_s, copies = 0.2, f"dataset.copies={tmp_path / 'copies'}"
    words = emulated(Path("url"), f"dataset.data_dir={own_server.url}", copies, "dataset.storage={at_once: 1}", *SPLITS)
    found = complete_here(tmp_path / "run", [*words, "cache=none", "trainer.epochs=2"])
    data, fetched, (first,) = found["dataset"], found["fetched"], found["verdict"]["apart"][1:]
    assert (first["name"], first["stage"]) == ("first epoch", "extract.fetch")
    assert found["verdict"]["stage"] != "extract.fetch"  # of the second, which reads the copies
    assert (fetched["bytes"], fetched["requests"]) == (data["bytes"], SHARDS)
    assert fetched["busy_s"] > SHARDS * own_server.pause_s
    waited, read = (row["cost_ms"] for row in found["stages"][:2])
    assert [row["stage"] for row in found["stages"][:2]] == ["extract.fetch", "extract.interleave"]
    assert read < waited < 1000 * fetched["waited_s"]
    noted = f"note: to fetch: at most {rounded(data['bytes'])} of {rounded(data['bytes'])}, in 4 of 4 shards\n"
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


def test_what_is_fetched_before_a_training_is_told_too(own_server: Server, tmp_path: Path) -> None:
    words = emulated(own_server.url, f"dataset.copies={tmp_path / 'copies'}", *SPLITS)  # type: ignore[arg-type]
    whole = ["extract=sequential", "extract.shuffle_files=false", "load.shuffle=full", "cache=none"]
    status, found = run_here(tmp_path / "run", [*words, *whole])
    assert (status, found["fetched"]["requests"], found["fetched"]["bytes"]) == (0, SHARDS, found["dataset"]["bytes"])
    assert (found["verdict"]["stage"] or "") != "extract.fetch"


def test_a_plan_notes_what_is_to_be_fetched(own_server: Server, tmp_path: Path) -> None:
    base = small(
        Path("url"), f"dataset.data_dir={own_server.url}", f"dataset.copies={tmp_path}", "dataset.eval_split=null"
    )
    whole, half = (plan_of(*base, f"dataset.split='{split}'") for split in ("train", "train[50%:]"))
    sizes = {name: len(content) for name, content in own_server.files.items() if "tfrecord" in name}
    total, last = sum(sizes.values()), sum(sizes[name] for name in sorted(sizes)[2:])
    assert with_figures(whole).remarks[-1:] == (
        f"to fetch: at most {rounded(total)} of {rounded(total)}, in 4 of 4 shards",
    )
    assert not shards_sent(own_server)
    for split, left in (
        ("train[50%:]", f"at most {rounded(total - last)} of {rounded(total)}, in 2 of 4 shards"),
        ("train", f"nothing, all of {rounded(total)} is here"),
    ):
        part = open_source(half.spec.dataset).split(split, "dataset.split")
        part.fetch()
        assert with_figures(half).remarks[-1:] == (f"to fetch: {left}",)
    nowhere = plan_of(*base, f"dataset.data_dir={own_server.url}/none")
    name = nowhere.spec.dataset.name
    why = f"dataset.data_dir: found no {own_server.url}/none/{name}/VERSION/dataset_info.json"
    assert with_figures(nowhere).remarks[-1:] == (f"to fetch: unknown, since a run would fail: {why}",)


def test_two_runs_at_once_fetch_each_shard_once(own_server: Server, tmp_path: Path) -> None:
    words = emulated(own_server.url, f"dataset.copies={tmp_path / 'copies'}", *SPLITS)  # type: ignore[arg-type]
    own_server.pause_s = 0.05
    both = [forked([*words, f"hydra.run.dir={tmp_path / name}"], tmp_path) for name in ("one", "other")]
    assert [finish(process)[0] for process in both] == [0, 0]
    shards = [name for name in own_server.files if "tfrecord" in name]
    assert shards_sent(own_server) == {
        name.rpartition("/")[2]: -(-len(own_server.files[name]) // 2**16) for name in shards
    }
    fetched = [summary_of(tmp_path / name)["fetched"]["bytes"] for name in ("one", "other")]
    assert sum(fetched) == sum(len(own_server.files[name]) for name in shards)


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_each_host_fetches_its_own_shards_alone(own_server: Server, tiny: Path, tmp_path: Path) -> None:
    words = [*SHARED, *SPLITS, "cache=none", "model.trainable=true", "model.weights=null", "measure.digest=true"]
    copies = [f"dataset.copies={tmp_path / str(number)}" for number in range(2)]
    there = [*small(Path("url"), *words, f"dataset.data_dir={own_server.url}", f"hydra.run.dir={tmp_path / 'two'}")]
    hosts = on_two_hosts([*there, copies[0]], tmp_path, other=[*there, copies[1]])
    assert [finish(host)[0] for host in hosts] == [0, 0]
    ended = forked([*small(tiny, *words[1:], f"hydra.run.dir={tmp_path / 'one'}")], tmp_path)
    assert finish(ended)[0] == 0
    held = [{path.name for path in (tmp_path / str(number)).glob("fetched/*/*tfrecord*")} for number in range(2)]
    assert [sorted(names) for names in held] == [
        [f"tiny_pictures-train.tfrecord-0000{number}-of-00004" for number in part] for part in ((0, 1), (2, 3))
    ]
    assert set(shards_sent(own_server).values()) == {1}
    one, two = ([epoch["digest"] for epoch in summary_of(tmp_path / name)["epochs"]] for name in ("one", "two"))
    assert two == one
