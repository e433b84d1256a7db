"""Objects of S3 and of Google Cloud Storage, whose listings say their versions."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etlrun.remote.copies import Copies
from etlrun.remote.objects import Object, changed, listed, looked_up
from etlrun.remote.transfers import put, remove, there
from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from tests.tables import a_table, values

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
    with pytest.raises(EtlrunError) as caught:
        copies.all(objects)
    return str(caught.value)


def test_a_listing_says_what_a_look_at_each_object_says(store: Store, tmp_path: Path) -> None:
    objects = store.put()
    pattern = f"{store.scheme}://bucket/x/*.csv"
    assert list(listed(pattern, store.storage)) == objects
    assert [of.bytes for of in objects] == [17] * 3
    copies = Copies(tmp_path, store.storage)
    assert [Path(path).read_bytes()[-5:] for path in copies.all(objects)] == [b"%d,10\n" % of for of in range(3)]
    assert copies.traffic.requests == 3
    assert list(changed(objects, store.storage)) == []


def test_names_of_objects_are_no_urls(store: Store, tmp_path: Path) -> None:
    (of,) = store.put(1)
    name = "a #1?b%20c.csv"
    store.files.pipe_file(f"bucket/x/{name}", b"a,b\n")
    (path,) = Copies(tmp_path, store.storage).all(listed(of.url.replace("0.csv", name), store.storage))
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


def test_files_are_published_in_the_place_of_nothing(store: Store, tmp_path: Path) -> None:
    path, url = tmp_path / "a.csv", f"{store.scheme}://bucket/published/a.csv"
    path.write_bytes(b"one")
    assert there(url, store.storage) == []
    of = put(path, url, store.storage)
    assert (of, put(path, url, store.storage)) == (looked_up(url, store.storage), of)
    path.write_bytes(b"two")
    with pytest.raises(EtlrunError) as caught:
        put(path, url, store.storage)
    assert str(caught.value) == (
        f"{url}: found another object; expected no object there, so that nothing is overwritten\n"
        "    -> choose another place, or remove it"
    )
    assert put(path, url, store.storage, replaces=True).version != of.version
    assert there(f"{store.scheme}://bucket/published", store.storage) == [url]
    remove(url, store.storage)
    assert there(url, store.storage) == []


@pytest.mark.needs("moto", "s3fs")
def test_what_is_no_object_or_pattern_is_refused_by_name(s3: Store) -> None:
    (of,) = s3.put(1)
    expected = "an object, whose newest version is read\n    -> copy that version to an object of its own"
    with pytest.raises(EtlrunError) as caught:
        listed(f"{of.url}?versionId=1", s3.storage)
    assert str(caught.value) == f"{of.url}?versionId=1: found a version of an object; expected {expected}"
    with pytest.raises(EtlrunError) as caught:
        listed("s3://bucket/x/**.csv", s3.storage)
    assert str(caught.value) == (
        "s3://bucket/x/**.csv: found ** in a name; expected ** between slashes, which is all folders below\n"
        "    -> write * in the name, or ** as a folder, such as **/*.jpg"
    )


@pytest.mark.needs("moto", "s3fs")
def test_credentials_that_are_not_found_are_no_silent_server(s3: Store, tmp_path: Path) -> None:
    (of,), path = s3.put(1), tmp_path / "file"
    path.touch()
    with pytest.raises(EtlrunError) as reading:
        looked_up(of.url, {"profile": "none"})
    with pytest.raises(EtlrunError) as writing:
        put(path, of.url, {"profile": "none"})
    found = f"{of.url}: found The config profile (none) could not be found; expected credentials that may"
    remedy = "    -> set those that the library of the store reads"
    assert str(reading.value) == f"{found} read it\n{remedy}, or dataset.storage='{{anon: true}}' of a public store"
    assert str(writing.value) == f"{found} list and write there\n{remedy}"


@pytest.mark.needs("moto", "s3fs")
def test_a_listing_is_one_request(s3: Store, caplog: pytest.LogCaptureFixture) -> None:
    s3.put()
    s3.files.call_s3("put_bucket_versioning", Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    objects = s3.put(line=b"ROOMS,PRICE\n")
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        assert list(listed("s3://bucket/x/[0-9].csv", s3.storage)) == objects
        assert list(changed(objects, s3.storage)) == []
    assert len(caplog.records) == 2, caplog.text


@pytest.mark.needs("gcp_storage_emulator", "gcsfs")
def test_an_object_without_md5_is_compared_by_its_crc32c(gcs: Store, tmp_path: Path) -> None:
    (of,) = gcs.put(1)
    composite = dataclasses.replace(of, md5="")
    (path,) = Copies(tmp_path, gcs.storage).all([composite])
    Path(path).unlink()
    wrong = dataclasses.replace(composite, crc32c="00000000")
    assert refusal(Copies(tmp_path, gcs.storage), [wrong]) == (
        f"{of.url}: found bytes with the CRC32C {of.crc32c}; expected the CRC32C 00000000, which the server says\n"
        "    -> run it again; if that remains, ask who writes the object"
    )


@pytest.mark.needs("moto", "s3fs")
def test_a_pattern_of_a_bucket_is_all_its_shards(s3: Store, tmp_path: Path) -> None:
    for number, line in enumerate((b"1,10\n", b"2,20\n")):
        s3.files.pipe_file(f"bucket/x-{number:05}-of-00003.csv", b"rooms,price\n" + line)
    url = "s3://bucket/x-*.csv"
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(url, tmp_path, storage=s3.storage))
    assert str(caught.value) == (
        f"{url}: found 2 of 3 shards, without s3://bucket/x-00002-of-00003.csv; expected all shards that their "
        "names promise\n    -> restore them, or name the others by a pattern that leaves these out, as with [0-3] "
        "for a digit"
    )
    kept = kept_of(a_table("s3://bucket/x-0000[01]-*.csv", tmp_path, storage=s3.storage))
    assert values(kept) == {"rooms": [1, 2], "price": [10, 20]}
