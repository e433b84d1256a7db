"""Copies that are fetched ahead of a reader: in its order, several at once, and only as many as there may be."""

import dataclasses
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.config import conf

from benchmarks import remote_kills
from etlrun.cli.parsers import call
from etlrun.datasets.prepare.options import parsed
from etlrun.datasets.prepare.prepare import VersionStore
from etlrun.remote.copies import Ahead, Copies, Traffic
from etlrun.remote.objects import Object, changed, list_objects, looked_up
from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from etlrun.system.files import alone
from tests.configs import raised
from tests.disks import mounted
from tests.golden import Says
from tests.servers import Server
from tests.tables import a_table, values

READ = """\
import sys
from pathlib import Path
from benchmarks import remote_kills
from etlrun.cli import upkeep
from etlrun.remote.copies import Ahead, Copies
from etlrun.remote.objects import list_objects
ahead = Copies(Path(sys.argv[1]), {}).ahead([of for url in sys.argv[2:] for of in list_objects(url, {})])
print("begun", flush=True)
ahead.take(list_objects(sys.argv[-1], {})[0])
"""


def shards(server: Server, count: int, size: int = 100_000) -> list[Object]:
    content = np.random.default_rng(0).bytes(size)
    return [list_objects(server.put(f"x-{number}", content + bytes([number])), {})[0] for number in range(count)]


def test_shards_come_in_the_order_of_their_reader(server: Server, tmp_path: Path) -> None:
    objects, copies = shards(server, 20), Copies(tmp_path, {"at_once": 2})
    ahead = copies.ahead(objects)
    for of in objects:
        path = ahead.take(of)
        assert path == copies.path(of) == str(tmp_path / "fetched" / of.key / of.name)
        assert Path(path).read_bytes() == server.files[of.name]
        ahead.leave(of)
    ahead.close()
    assert (copies.traffic.requests, copies.traffic.bytes) == (20, 20 * 100_001)
    assert copies.missing(objects) == []


def test_copies_are_marked_as_in_use_many_at_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock and a file cost the reader; where copies make room for others, each is marked by itself."""
    objects, held = shards(server, 40, size=10), list[Path]()

    def counted(path: Path) -> AbstractContextManager[None]:
        held.append(path)
        return alone(path)

    monkeypatch.setattr("etlrun.remote.room.alone", counted)
    for keep_bytes, most in ((None, 4), (100_000, 80)):
        copies = Copies(tmp_path, {}, keep_bytes)
        copies.all(objects)
        copies.room.leave(objects)
        held.clear()
        ahead = copies.ahead(objects)
        for of in objects:
            ahead.take(of)
            assert of.key in copies.room.used()
            ahead.leave(of)
        ahead.close()
        assert copies.room.used() == {}
        assert 0 < len(held) <= most
        assert not [*(tmp_path / "fetched/in_use").iterdir()]


def test_waits_and_the_rate_of_a_store_are_counted(server: Server, tmp_path: Path) -> None:
    objects, copies = shards(server, 2), Copies(tmp_path, {"at_once": 1})
    assert copies.traffic == Traffic()
    server.pause_s = 0.1  # twice for each of them, since they have more than 64 KiB
    ahead = copies.ahead(objects)
    ahead.take(objects[0])
    first = copies.traffic
    ahead.take(objects[1])
    ahead.close()
    assert min(first.busy_s, first.waited_s) > 0.15
    assert copies.traffic.since(first).busy_s > 0.15
    assert copies.traffic.busy_s > 0
    copies.all(objects)
    assert copies.traffic == copies.traffic.since(Traffic())  # which does not go on


def test_the_first_shard_has_the_bandwidth_first(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 6)
    server.first = [503]  # while the first is asked for again, the others could come
    ahead = Copies(tmp_path, {}).ahead(objects)
    ahead.take(objects[0])
    assert [name for name, _ in server.sent][:2] == ["x-0", "x-0"]
    ahead.take(objects[5])
    ahead.close()


def test_shards_begin_apart_so_that_they_do_not_end_together(server: Server, tmp_path: Path) -> None:
    objects, server.pause_s = shards(server, 4, 3_000_000), 0.001
    ahead = Copies(tmp_path, {}).ahead(objects)
    for of in objects:
        ahead.take(of)
    ahead.close()
    names = [name for name, _ in server.sent]
    assert all(names[: names.index(f"x-{number + 1}")].count(f"x-{number}") >= 16 for number in range(3))  # of 64 KiB


def test_no_more_shards_come_than_there_may_be(server: Server, tmp_path: Path) -> None:
    objects, copies = shards(server, 12), Copies(tmp_path, {"at_once": 2})
    ahead = copies.ahead(objects)
    ahead.take(objects[4])
    ahead.take(objects[3])
    ahead.close()
    assert len(copies.missing(objects)) >= 12 - 2 - 4  # those that were taken, and twice as many as come at once


def test_a_shard_that_is_gone_is_named_when_it_is_taken(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 3)
    del server.files["x-1"]
    ahead = Copies(tmp_path, {}).ahead(objects)
    ahead.take(objects[2])
    ahead.take(objects[0])
    with pytest.raises(EtlrunError) as caught:
        ahead.take(objects[1])
    expected = "found no such object; expected one that is there\n    -> check the URL"
    assert str(caught.value) == f"{objects[1].url}: {expected}"
    ahead.close()


def test_all_objects_that_can_not_be_fetched_are_named_at_once(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 12)
    del server.files["x-1"], server.files["x-11"]
    with pytest.raises(EtlrunError) as caught:
        Copies(tmp_path, {}).all(objects)
    assert [fault.where for fault in caught.value.faults] == [objects[1].url, objects[11].url]


def test_a_reader_that_leaves_waits_for_no_shard(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 2)
    server.pause_s = 1000.0
    ahead = Copies(tmp_path, {}).ahead(objects)
    ahead.close()
    with pytest.raises(EtlrunError, match="found an interruption; expected the whole object"):
        ahead.take(objects[0])


def test_an_interrupt_ends_a_wait_and_its_process(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 3)
    server.pause_s = 1000.0
    command = [sys.executable, "-c", READ, str(tmp_path), *(of.url for of in objects)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(2)
    _, told = process.communicate(timeout=30)
    assert told.rstrip().endswith("KeyboardInterrupt"), told


def on_disk(folder: Path) -> int:
    """The bytes of the copies in a folder, while others may be removed."""
    found = 0
    for path, _, names in os.walk(folder / "fetched"):
        for name in names:
            with suppress(FileNotFoundError):
                found += (Path(path) / name).stat().st_size
    return found


def read_all(ahead: Ahead, objects: list[Object], server: Server, folder: Path) -> int:
    """Return the most bytes that there were."""
    most = 0
    for of in objects:
        assert Path(ahead.take(of)).read_bytes() == server.files[of.name]
        most = max(most, on_disk(folder))
        ahead.leave(of)
    ahead.close()
    return most


def test_a_dataset_larger_than_keep_passes_through(server: Server, tmp_path: Path) -> None:
    objects, keep_bytes = shards(server, 10), 650_000
    for number in range(3):
        copies = Copies(tmp_path, {"at_once": 1}, keep_bytes)
        assert 600_000 <= read_all(copies.ahead(objects), objects, server, tmp_path) <= keep_bytes
        assert (
            copies.traffic.requests == 10 if number == 0 else copies.traffic.requests <= 7
        )  # what a pass still reads goes last
    assert len(copies.missing(objects)) == 4
    assert sorted(path.name for path in (tmp_path / "fetched").iterdir() if not path.is_dir()) == ["lock"]


def test_copies_in_use_stay(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 6)
    (others, ours) = objects[:2], objects[2:]
    code = READ.replace("ahead.take(list_objects(sys.argv[-1], {})[0])", "sys.stdin.read()").replace(
        'print("', 'ahead.take(list_objects(sys.argv[2], {})[0]); ahead.take(list_objects(sys.argv[3], {})[0]); print("'
    )
    command = [sys.executable, "-c", code, str(tmp_path), *(of.url for of in others)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    copies = Copies(tmp_path, {}, 350_000)
    read_all(copies.ahead(ours), ours, server, tmp_path)
    assert copies.missing(others) == []
    process.kill()
    process.communicate()
    read_all(copies.ahead(ours), ours, server, tmp_path)
    assert copies.missing(objects) == others + ours[:1]


def test_room_that_is_too_small_is_refused_with_numbers(server: Server, tmp_path: Path, says: Says) -> None:
    objects = shards(server, 3)
    copies = Copies(tmp_path, {}, 250_000)
    says(told := raised(EtlrunError, copies.all, objects))
    assert raised(EtlrunError, lambda: copies.ahead(objects, num_open=3)) == told
    ahead = copies.ahead(objects)
    ahead.take(objects[0])
    ahead.take(objects[1])
    assert raised(EtlrunError, ahead.take, objects[2]) == told
    ahead.close()


def test_what_is_there_too_early_makes_room(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 8)
    copies = Copies(tmp_path, {}, 350_000)
    ahead, other = copies.ahead(objects[:4]), copies.ahead(objects[4:])
    for of in (objects[3], objects[7], objects[2]):
        for reader in (other if of is objects[7] else ahead,):
            assert Path(reader.take(of)).read_bytes() == server.files[of.name]
    ahead.close()
    other.close()


def test_a_full_disk_says_what_makes_room(server: Server, tmp_path: Path, says: Says) -> None:
    objects = shards(server, 6)
    with mounted(tmp_path / "disk", "400K") as disk:
        with pytest.raises(EtlrunError) as caught:
            Copies(disk, {"at_once": 1}).all(objects)
        of = next(of for of in objects if of.key in caught.value.faults[0].where)
        says(str(caught.value), URL=of.url, KEY=of.key)
        read_all(Copies(disk, {}, 350_000).ahead(objects), objects, server, disk)


def test_what_is_fetched_is_listed_beside_caches(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects, copies = shards(server, 3), Copies(tmp_path, {})
    read_all(copies.ahead(objects), objects, server, tmp_path)
    ahead = copies.ahead(objects[:1])
    ahead.take(objects[0])
    call("cache", ["ls", "--dir", str(tmp_path)])
    told = capsys.readouterr().out
    assert re.search(r"^fetched +URLs +3 files +0\.3 +0 s ago +1 in use", told, flags=re.MULTILINE), told
    call("cache", ["rm", "--dir", str(tmp_path), "fetched"])
    assert capsys.readouterr().out == "removed fetched\n"
    assert copies.missing(objects) == objects[1:]
    with pytest.raises(EtlrunError, match="found a cache in use; expected a cache that no run uses"):
        call("cache", ["rm", "--dir", str(tmp_path), "fetched"])
    ahead.close()
    call("cache", ["gc", "--dir", str(tmp_path), "--max-bytes", "0", "--yes"])
    assert copies.missing(objects) == objects


@pytest.mark.slow
@pytest.mark.parametrize("keep_bytes", [None, remote_kills.KEEP_BYTES])
def test_no_kill_of_one_of_two_readers_leaves_a_wrong_byte(
    server: Server, tmp_path: Path, keep_bytes: int | None
) -> None:
    server.pause_s = 0.004
    sums = {}
    for number in range(remote_kills.OBJECTS):
        content = np.random.default_rng(number).bytes(remote_kills.BYTES)
        sums[server.put(f"x-{number}", content)] = hashlib.sha256(content).hexdigest()
    (tmp_path / "sums.json").write_text(json.dumps(sums))
    found = remote_kills.Found()
    remote_kills.rounds(found, keep_bytes, 2, server, tmp_path)
    assert (found.kills, found.wrong_copies, found.wrong_reads, found.failed_readers) == (2, 0, 0, 0), found.told
    assert found.most_bytes <= (keep_bytes or remote_kills.OBJECTS * remote_kills.BYTES)


CHANGED = (
    "found another version than at the start of the run; expected an object that stays\n"
    "    -> run it again; if that remains, ask who writes the object"
)
GONE = "found no such object; expected one that is there\n    -> check the URL"


class Store:
    """A store with the bucket `bucket`."""

    def __init__(self, scheme: str, storage: dict[str, bool | str], files: Any) -> None:
        self.scheme, self.storage, self.files = scheme, storage, files

    def put(self, count: int = 3, line: bytes = b"rooms,price\n") -> list[Object]:
        for number in range(count):
            self.files.pipe_file(f"bucket/x/{number}.csv", line + b"%d,10\n" % number)
        return self.now()

    def now(self) -> list[Object]:
        return [
            looked_up(f"{self.scheme}://{path}", self.storage) for path in self.files.find("bucket/x", refresh=True)
        ]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    import s3fs
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        storage: dict[str, bool | str] = {"endpoint_url": f"http://{host}:{port}"}
        files = s3fs.S3FileSystem(**storage)
        if not files.exists("bucket"):  # servers of a process share it
            files.mkdir("bucket")
        yield Store("s3", storage, files)
        files.rm("bucket", recursive=True)
    finally:
        server.stop()


@pytest.fixture
def gcs() -> Iterator[Store]:
    from gcp_storage_emulator.server import create_server
    from gcsfs.core import GCSFileSystem

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        host, port = server._api._httpd.server_address
        storage: dict[str, bool | str] = {"endpoint_url": f"http://{host}:{port}", "anon": True}
        yield Store("gs", storage, GCSFileSystem(endpoint_url=storage["endpoint_url"], token="anon"))  # noqa: S106
    finally:
        server.stop()


@pytest.fixture(
    params=[
        pytest.param("s3", marks=pytest.mark.needs("moto", "s3fs")),
        pytest.param("gcs", marks=pytest.mark.needs("gcp_storage_emulator", "gcsfs")),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Store)
    return found


def refusal(copies: Copies, objects: list[Object]) -> str:
    return raised(EtlrunError, copies.all, objects)


def test_a_listing_says_what_a_look_at_each_object_says(store: Store, tmp_path: Path) -> None:
    objects = store.put()
    pattern = f"{store.scheme}://bucket/x/*.csv"
    assert list(list_objects(pattern, store.storage)) == objects
    assert [of.bytes for of in objects] == [17] * 3
    copies = Copies(tmp_path, store.storage)
    assert [Path(path).read_bytes()[-5:] for path in copies.all(objects)] == [b"%d,10\n" % of for of in range(3)]
    assert copies.traffic.requests == 3
    assert list(changed(objects, store.storage)) == []


def test_names_of_objects_are_no_urls(store: Store, tmp_path: Path) -> None:
    (of,) = store.put(1)
    name = "a #1?b%20c.csv"
    store.files.pipe_file(f"bucket/x/{name}", b"a,b\n")
    (path,) = Copies(tmp_path, store.storage).all(list_objects(of.url.replace("0.csv", name), store.storage))
    assert (Path(path).name, Path(path).read_bytes()) == (name, b"a,b\n")


def test_objects_that_change_or_go_are_named_in_each_pass(store: Store, tmp_path: Path) -> None:
    objects, copies = store.put(), Copies(tmp_path, store.storage)
    copies.all(objects)
    store.put(2, line=b"ROOMS,PRICE\n")
    store.files.rm("bucket/x/0.csv")
    assert {str(error) for error in changed(objects, store.storage)} == {
        f"{objects[0].url}: {GONE}",
        f"{objects[1].url}: {CHANGED}",
    }
    ahead = copies.ahead(objects)
    ahead._threads[-1].join()
    with pytest.raises(EtlrunError) as caught:
        ahead.take(objects[2])
    assert [fault.where for fault in caught.value.faults] == [objects[0].url, objects[1].url]
    ahead.close()


def test_an_object_that_a_listing_had_is_refused_when_it_is_fetched(store: Store, tmp_path: Path) -> None:
    objects = store.put()
    store.files.rm("bucket/x/2.csv")
    assert refusal(Copies(tmp_path, store.storage), objects) == f"{objects[2].url}: {GONE}"
    store.put(line=b"ROOMS,PRICE\n")
    found = refusal(Copies(tmp_path / "other", store.storage), objects[:1])
    if store.scheme == "s3":
        assert found == f"{objects[0].url}: {CHANGED}"
    else:  # this server ignores generations
        assert f"expected the MD5 {objects[0].md5}, which the server says" in found


@pytest.mark.needs("moto", "s3fs")
def test_shards_are_put_in_the_place_of_nothing(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setitem(conf, "s3", s3.storage)
    arguments = dict.fromkeys(("source", "split", "shards", "seed", "on_corrupt"))
    place = {"name": "own", "version": "1.0.0", "data_dir": "s3://bucket/data"}
    options, path = parsed({**arguments, **place}), tmp_path / "own-train.tfrecord-00000-of-00001"
    first = VersionStore(options)
    path.write_bytes(b"one")
    first.put_shard(path)
    assert path.read_bytes() == b""
    path.write_bytes(b"two")
    says(raised(EtlrunError, first.put_shard, path))
    VersionStore(options).put_shard(path)
    says(raised(EtlrunError, first.publish, tmp_path))


@pytest.mark.needs("moto", "s3fs")
def test_what_is_no_object_or_pattern_is_refused_by_name(s3: Store, says: Says) -> None:
    (of,) = s3.put(1)
    expected = "an object, whose newest version is read\n    -> copy that version to an object of its own"
    told = raised(EtlrunError, list_objects, f"{of.url}?versionId=1", s3.storage)
    assert told == f"{of.url}?versionId=1: found a version of an object; expected {expected}"
    says(raised(EtlrunError, list_objects, "s3://bucket/x/**.csv", s3.storage))


@pytest.mark.needs("moto", "s3fs")
def test_credentials_that_are_not_found_are_no_silent_server(s3: Store) -> None:
    (of,) = s3.put(1)
    found = f"{of.url}: found The config profile (none) could not be found; expected credentials for it"
    remedy = "    -> set those that the library of the store reads"
    told = f"{found}\n{remedy}, or dataset.storage='{{anon: true}}' of a public store"
    assert raised(EtlrunError, looked_up, of.url, {"profile": "none"}) == told


@pytest.mark.needs("moto", "s3fs")
def test_a_listing_is_one_request(s3: Store, caplog: pytest.LogCaptureFixture) -> None:
    s3.put()
    s3.files.call_s3("put_bucket_versioning", Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    objects = s3.put(line=b"ROOMS,PRICE\n")
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        assert list(list_objects("s3://bucket/x/[0-9].csv", s3.storage)) == objects
        assert list(changed(objects, s3.storage)) == []
    assert len(caplog.records) == 2, caplog.text


@pytest.mark.needs("gcp_storage_emulator", "gcsfs")
def test_an_object_without_md5_is_compared_by_its_crc32c(gcs: Store, tmp_path: Path, says: Says) -> None:
    (of,) = gcs.put(1)
    composite = dataclasses.replace(of, md5="")
    (path,) = Copies(tmp_path, gcs.storage).all([composite])
    Path(path).unlink()
    wrong = dataclasses.replace(composite, crc32c="00000000")
    says(refusal(Copies(tmp_path, gcs.storage), [wrong]), URL=of.url, CRC=of.crc32c)


@pytest.mark.needs("moto", "s3fs")
def test_a_pattern_of_a_bucket_is_all_its_shards(s3: Store, tmp_path: Path, says: Says) -> None:
    for number, line in enumerate((b"1,10\n", b"2,20\n")):
        s3.files.pipe_file(f"bucket/x-{number:05}-of-00003.csv", b"rooms,price\n" + line)
    url = "s3://bucket/x-*.csv"
    says(raised(EtlrunError, kept_of, a_table(url, tmp_path, storage=s3.storage)))
    kept = kept_of(a_table("s3://bucket/x-0000[01]-*.csv", tmp_path, storage=s3.storage))
    assert values(kept) == {"rooms": [1, 2], "price": [10, 20]}
