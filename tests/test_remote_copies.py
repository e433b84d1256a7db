"""Copies that are fetched ahead of a reader: in its order, several at once, and only as many as there may be."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from benchmarks import remote_kills
from etlrun.cli.parsers import call
from etlrun.remote.copies import Ahead, Copies, Traffic
from etlrun.remote.objects import Object, listed
from etlrun.system.errors import EtlrunError
from tests.disks import mounted
from tests.servers import Server, serving

READ = """\
import sys
from pathlib import Path
from benchmarks import remote_kills
from etlrun.cli import cache
from etlrun.remote.copies import Ahead, Copies
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
    code = READ.replace("ahead.take(listed(sys.argv[-1], {})[0])", "sys.stdin.read()").replace(
        'print("', 'ahead.take(listed(sys.argv[2], {})[0]); ahead.take(listed(sys.argv[3], {})[0]); print("'
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


def test_room_that_is_too_small_is_refused_with_numbers(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 3)
    copies = Copies(tmp_path, {}, 250_000)
    expected = "dataset.keep: found 250 kB; expected at least 0.4 MB for 3 files that are read at once"
    remedy = "\n    -> set dataset.keep=all, or to a size that is large enough"
    for use in (copies.all, lambda objects: copies.ahead(objects, num_open=3)):
        with pytest.raises(EtlrunError) as caught:
            use(objects)
        assert str(caught.value) == expected + remedy
    ahead = copies.ahead(objects)
    ahead.take(objects[0])
    ahead.take(objects[1])
    with pytest.raises(EtlrunError) as caught:
        ahead.take(objects[2])
    assert str(caught.value) == expected + remedy
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


def test_a_full_disk_says_what_makes_room(server: Server, tmp_path: Path) -> None:
    objects = shards(server, 6)
    with mounted(tmp_path / "disk", "400K") as disk:
        with pytest.raises(EtlrunError) as caught:
            Copies(disk, {"at_once": 1}).all(objects)
        of = next(of for of in objects if of.key in caught.value.faults[0].where)
        assert str(caught.value) == (
            f"{disk / 'fetched' / of.key}: found No space left on device; "
            f"expected a folder with space for 100 kB of {of.url}\n"
            "    -> free disk space, set dataset.keep to a size, such as 20GB, with which files that were read make "
            "room for others, or choose another folder for the copies"
        )
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
    assert re.search(r"^fetched +URLs +3 files +- +0\.3 +- +0 s ago +1 in use", told, flags=re.MULTILINE), told
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
