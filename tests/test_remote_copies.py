"""Copies that are fetched ahead of a reader: in its order, several at once, and only as many as there may be."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from etlrun.remote.copies import Copies, Traffic
from etlrun.remote.objects import Object, listed
from etlrun.system.errors import EtlrunError
from tests.servers import Server, serving

READ = """\
import sys
from pathlib import Path
from etlrun.remote.copies import Copies
from etlrun.remote.objects import listed
ahead = Copies(Path(sys.argv[1]), {}).ahead([of for url in sys.argv[2:] for of in listed(url, {})])
print("begun", flush=True)
ahead.take(listed(sys.argv[-1], {})[0])
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def shards(server: Server, count: int, size: int = 100_000) -> list[Object]:
    content = np.random.default_rng(0).bytes(size)
    return [listed(server.put(f"x-{number}", content + bytes([number])), {})[0] for number in range(count)]


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


def test_waits_and_the_rate_of_a_store_are_counted(server: Server, tmp_path: Path) -> None:
    objects, copies = shards(server, 2), Copies(tmp_path, {"at_once": 1})
    assert (copies.traffic, copies.traffic.bytes_per_s) == (Traffic(), None)
    server.pause_s = 0.1  # twice for each of them, since they have more than 64 KiB
    ahead = copies.ahead(objects)
    ahead.take(objects[0])
    first = copies.traffic
    ahead.take(objects[1])
    ahead.close()
    assert min(first.busy_s, first.waited_s) > 0.15
    assert copies.traffic.since(first).busy_s > 0.15
    assert copies.traffic.bytes_per_s == pytest.approx(200_002 / copies.traffic.busy_s)
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
