"""Headers of tar archives, which may claim gigabytes: none is read before its size is known."""

import bz2
import gzip
import io
import lzma
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.own import examples, labelled, prepared, refused, write_photos


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_header_of_gigabytes_is_not_read(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, info = tmp_path / f"a.tar.{kind}", tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 3_000_000_000
    openers: dict[str, Callable[[Path, str], Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    with openers[kind](path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(b"a" * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refused(capsys, path, tmp_path / "data") == [
        "etlrun: 1 fault",
        (
            "  SOURCE: found a header of 3,000,000,000 bytes; expected headers of at most 1,000,000 bytes: names and "
            "attributes of members"
        ),
        "    -> unpack it yourself if you trust it, and prepare the folder",
    ]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32_000  # kB


def test_a_header_behind_members_is_not_read_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, info = tmp_path / "a.tar", tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 2_000_000
    with tarfile.open(path, "w") as tar:
        tar.add(write_photos(tmp_path / "photos", 4), "photos")
        tar.addfile(info, io.BytesIO(bytes(2_000_000)))
    found = refused(capsys, path, tmp_path / "data")
    assert found[1].startswith(
        "  SOURCE: found a header of 2,000,384 bytes; expected headers of at most 1,000,000 bytes"
    )


def test_a_long_name_and_attributes_are_read(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    path, name = tmp_path / "a.tar", f"disc/{'deep/' * 60}0.jpg"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for of in sorted(source.rglob("*.jpg")):
            info = tar.gettarinfo(of, name if of.name == "0.jpg" else str(of.relative_to(source)))
            info.pax_headers = {"SCHILY.xattr.user.note": "x" * 100_000}
            with of.open("rb") as file:
                tar.addfile(info, file)
    assert {*examples(prepared(path, tmp_path / "data"))} == labelled(source)
