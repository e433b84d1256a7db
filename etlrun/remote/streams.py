"""Content of objects as it arrives: one request each, whose answer says which version it is of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from etlrun.remote.failures import ChangedError, UnreachableError
from etlrun.remote.objects import GCS, S3, WEB, Object, Storage, file_system, scheme_of, version_of

Read = Callable[[int], Awaitable[bytes]]
_READ_BYTES, _RANGE_BYTES = 1 << 20, 8 << 20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The content of an object, as it arrives.

    Attributes:
        start: The byte at which it begins: that asked for, or 0 of a server without ranges.
        chunks: The content from there on, whose `close` ends the transfer.
        is_of_version: Whether it is known to be of the version that was asked for.
        is_tag_md5: Whether its ETag may be its MD5: not of objects of S3 that a key of their own encrypts.
    """

    start: int
    chunks: Generator[bytes, None, None]
    is_of_version: bool
    is_tag_md5: bool = True


def answer_of(of: Object, storage: Storage, start: int) -> Answer:
    """Ask for an object from the byte `start` on.

    Raises:
        ChangedError: The server has another version.
        Exception: What the library of the store raises.
    """
    scheme = scheme_of(of.url)
    files = file_system(of.url, storage)
    if scheme in WEB:
        return _of_http(files, of, start)
    if scheme in S3:
        return _of_s3(files, of, start)
    generation = {"generation": of.version} if scheme in GCS else {}
    return Answer(start=start, chunks=_of_ranges(files, of, start, generation), is_of_version=bool(generation))


def _of_http(files: Any, of: Object, start: int) -> Answer:
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    source = files.open(of.url, "rb", block_size=0, size=max(1, of.bytes), headers=headers)
    chunks = _chunks(files.loop, source.r.content.read, source.close)
    answer = source.r.headers
    said = answer.get("Content-Range", "").rpartition("/")[2] or answer.get("Content-Length", "")
    version = version_of(answer)
    if (version and version != of.version) or (said.isdigit() and int(said) != of.bytes):
        source.close()
        if version in ("", of.version):
            raise UnreachableError(
                of.url,
                f"an answer of {int(said):,} bytes",
                f"{of.bytes:,} bytes, as its server said before",
                "ask who runs the server",
            )
        raise ChangedError(of.url)
    begins = start if answer.get("Content-Range") else 0
    return Answer(start=begins, chunks=chunks, is_of_version=bool(version))


def _of_s3(files: Any, of: Object, start: int) -> Answer:
    bucket, key, _ = files.split_path(of.url)
    ranged = {"Range": f"bytes={start}-"} if start else {}
    answer = files.call_s3("get_object", Bucket=bucket, Key=key, IfMatch=of.version, **ranged)
    body = answer["Body"]
    if version_of(answer) != of.version:
        body.close()
        raise ChangedError(of.url)
    chunks = _chunks(files.loop, body.read, lambda: files.loop.call_soon_threadsafe(body.close))
    is_tag_md5 = "SSECustomerAlgorithm" not in answer and "kms" not in answer.get("ServerSideEncryption", "")
    return Answer(start=start, chunks=chunks, is_of_version=True, is_tag_md5=is_tag_md5)


def _chunks(loop: Any, read: Read, close: Callable[[], None]) -> Generator[bytes, None, None]:
    from fsspec.asyn import sync

    try:
        while chunk := sync(loop, _chunk, read):
            yield chunk
    finally:
        close()


async def _chunk(read: Read) -> bytes:
    """Return what arrives, up to `_READ_BYTES`: each change of the thread costs more than to read on."""
    parts: list[bytes] = []
    left = _READ_BYTES
    while left:
        try:
            part = await read(left)
        except Exception:
            if not parts:
                raise
            break  # to be raised by the next read
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _of_ranges(files: Any, of: Object, start: int, version: Mapping[str, str]) -> Generator[bytes, None, None]:
    for at in range(start, of.bytes, _RANGE_BYTES):
        yield files.cat_file(of.url, start=at, end=min(at + _RANGE_BYTES, of.bytes), **version)
