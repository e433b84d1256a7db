"""`etlrun prepare`: archives, and what they must not do."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.datasets.prepare import archives
from tests.own import content, prepared, refused, stamps, write_photos
from tests.pictures import jpeg

KINDS = ["zip", "tar", "tar.gz", "tar.xz"]
Added = dict[str, bytes | tarfile.TarInfo]


def packed(source: Path, kind: str, top: str = "flowers/", added: Added | None = None) -> Path:
    """An archive beside a folder, of all of its files below `top`, with what is added under other names."""
    path = source.with_name(f"packed.{kind}")
    files = [(f"{top}{of.relative_to(source)}", of) for of in sorted(source.rglob("*")) if of.is_file()]
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, of in files:
                archive.write(of, name)
            for name, data in (added or {}).items():
                assert isinstance(data, bytes)
                archive.writestr(name, data)
        return path
    with tarfile.open(path, f"w:{kind.partition('.')[2]}") as tar:  # type: ignore[call-overload] # of any kind
        for name, of in files:
            tar.add(of, name)
        for name, value in (added or {}).items():
            info = tarfile.TarInfo(name) if isinstance(value, bytes) else value
            info.name, info.size = name, len(value) if isinstance(value, bytes) else 0
            tar.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return path


def link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("top", ["", "./flowers/2024/"])
def test_an_archive_gives_what_its_folder_gives(kind: str, top: str, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4, splits=("train", "test"))
    (source / "train" / "disc" / "notes.txt").write_text("none")
    (source / "train" / "disc" / ".hidden.jpg").write_text("none")
    path = packed(source, kind, top)
    before = stamps(tmp_path)
    assert content(prepared(path, tmp_path / "data")) == content(prepared(source, tmp_path / "folder"))
    after = stamps(tmp_path)
    assert {name: of for name, of in after.items() if name in before and name != str(tmp_path)} == {
        name: of for name, of in before.items() if name != str(tmp_path)
    }
    assert {of.name for of in (tmp_path / "data" / "own").iterdir()} == {"1.0.0", ".etlrun.lock"}


def test_what_is_unpacked_is_removed_after_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "text.jpg").write_text("text")
    path = packed(source, "tar.gz")
    seen: list[int] = []
    unpack = archives.Tar.unpack

    def counted(tar: archives.Tar, folder: Path) -> None:
        (folder / "left").write_text("by a run that was killed")
        unpack(tar, folder)
        seen.append(len([*folder.iterdir()]))

    monkeypatch.setattr(archives.Tar, "unpack", counted)
    found = refused(capsys, path, tmp_path / "data")
    assert found[1].startswith(
        "  SOURCE, flowers/disc/text.jpg: found an image that can't be decoded: Unknown image file format."
    )
    assert seen == [6]
    assert [*(tmp_path / "data" / "own").glob("[!.]*")] == []


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_paths_out_of_an_archive_are_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    path = packed(source, kind, "", {"disc/../../6.jpg": jpeg(6), "/etc/7.jpg": jpeg(7)})
    assert refused(capsys, path, tmp_path / "data") == [
        "etlrun: 2 faults",
        "  SOURCE, disc/../../6.jpg: found a path out of the archive; expected paths within it",
        "    -> pack the archive again, without it",
        "  SOURCE, /etc/7.jpg: found a path out of the archive; expected paths within it",
        "    -> pack the archive again, without it",
    ]
    assert not (tmp_path / "data").exists()


def test_links_out_of_an_archive_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    added: Added = {
        "disc/a.jpg": link("../../secret.jpg"),
        "disc/b.jpg": link("/etc/passwd"),
        "disc/c.jpg": link("../secret.jpg", tarfile.LNKTYPE),
        "disc/d.jpg": link("", tarfile.CHRTYPE),
        "disc/e.jpg": link("/etc/passwd", tarfile.LNKTYPE),
    }
    found = refused(capsys, packed(source, "tar", "", added), tmp_path / "data")
    assert [line for line in found if "->" not in line] == [
        "etlrun: 5 faults",
        "  SOURCE, disc/a.jpg: found a link to ../../secret.jpg out of the archive; expected paths within it",
        "  SOURCE, disc/b.jpg: found a link to /etc/passwd out of the archive; expected paths within it",
        "  SOURCE, disc/c.jpg: found a link to ../../secret.jpg out of the archive; expected paths within it",
        "  SOURCE, disc/d.jpg: found a member that is a device; expected files",
        "  SOURCE, disc/e.jpg: found a link to /etc/passwd out of the archive; expected paths within it",
    ]
    info = zipfile.ZipInfo("disc/a.jpg")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as archive:
        archive.writestr(info, "../../secret.jpg")
    assert refused(capsys, tmp_path / "links.zip", tmp_path / "data")[1] == (
        "  SOURCE, disc/a.jpg: found a link to ../../secret.jpg out of the archive; expected paths within it"
    )


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_links_within_an_archive_are_followed(kind: str, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    added: Added = {
        "disc/a.jpg": link("../cross/1.jpg"),
        "disc/b.jpg": link("cross/3.jpg", tarfile.LNKTYPE),
        "disc/c.jpg": link("a.jpg"),
        "disc/d.jpg": link("d.jpg"),
    }
    path = packed(source, kind, "", added)
    for name, number in (("a", 1), ("b", 3), ("c", 1)):
        (source / "disc" / f"{name}.jpg").write_bytes(jpeg(number))
    assert content(prepared(path, tmp_path / "data")) == content(prepared(source, tmp_path / "folder"))


def test_links_that_end_at_no_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    added: Added = {
        "disc/.hidden.jpg": link("gone.jpg"),
        "disc/a.jpg": link("b.jpg"),
        "disc/b.jpg": link("a.jpg"),
        "disc/c.jpg": link("gone.jpg"),
        "more": link("disc"),
    }
    path = packed(source, "tar.gz", "", added)
    assert content(prepared(path, tmp_path / "data")) == content(prepared(source, tmp_path / "folder"))
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("ignored   links of the archive that don't end at a file: 4")
    assert lines[place + 1 : place + 5] == [
        f"          {name}" for name in ("disc/a.jpg", "disc/b.jpg", "disc/c.jpg", "more")
    ]


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_bombs_are_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archives, "SMALL_BYTES", 1_000_000)
    path = packed(write_photos(tmp_path / "photos", 4), kind, "", {"disc/zeros.jpg": bytes(8_000_000)})
    first, found, remedy = refused(capsys, path, tmp_path / "data")
    assert first == "etlrun: 1 fault"
    assert found.startswith("  SOURCE: found 8.0 MB and more unpacked; expected at most 5,000,000 members, and ")
    assert remedy == "    -> unpack it yourself if you trust it, and prepare the folder"
    monkeypatch.setattr(archives, "SMALL_BYTES", 10_000_000)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 4)
    found = refused(capsys, path, tmp_path / "data")[1]
    assert found.startswith(
        "  SOURCE: found more than 4 members; expected at most 4 members, and 10 MB for an archive of"
    )
    assert not (tmp_path / "data").exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1500])


def cut_between_members(path: Path) -> None:
    with tarfile.open(path) as tar:
        end = tar.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:end])


def damaged_header(path: Path) -> None:
    with tarfile.open(path) as tar:
        start = tar.getmembers()[-1].offset
    data = bytearray(path.read_bytes())
    data[start] ^= 0xFF
    path.write_bytes(data)


def encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start + 8] |= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "harm", "found"),
    [
        ("tar.gz", cut, "SOURCE: found Compressed file ended before the end-of-stream marker was reached"),
        ("tar.xz", cut, "SOURCE: found Compressed file ended before the end-of-stream marker was reached"),
        ("tar", lambda path: path.write_bytes(path.read_bytes()[:3100]), "SOURCE: found unexpected end of data"),
        ("tar", cut_between_members, "SOURCE: found neither a member nor the end of the archive at byte "),
        ("tar", damaged_header, "SOURCE: found neither a member nor the end of the archive at byte "),
        ("zip", cut, "SOURCE: found a file of another kind; expected a folder of classes, a list"),
        ("zip", encrypted, "SOURCE, flowers/cross/1.jpg: found a member that is an encrypted file; expected files"),
    ],
)  # fmt: skip
def test_an_archive_that_is_refused(
    kind: str, harm: Callable[[Path], None], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed(write_photos(tmp_path / "photos", 4), kind)
    harm(path)
    assert refused(capsys, path, tmp_path / "data")[1].startswith(f"  {found}")


def test_a_damaged_member_is_a_broken_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(write_photos(tmp_path / "photos", 4), "zip")
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("flowers/disc/2.jpg")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 400] ^= 0xFF
    path.write_bytes(data)
    found = refused(capsys, path, tmp_path / "data")
    assert found[1].startswith("  SOURCE, flowers/disc/2.jpg: found a damaged archive: ")
    prepared(path, tmp_path / "data", "--on-corrupt", "skip")
    assert "skipped   broken images: 1\n" in capsys.readouterr().out


def test_space_for_what_is_unpacked_is_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_photos(tmp_path / "photos", 4)
    size = sum(of.stat().st_size for of in source.rglob("*.jpg"))
    needed: list[int] = []
    monkeypatch.setattr(
        "etlrun.datasets.prepare.prepare.require_space", lambda _, source: needed.append(source.unpacked_bytes)
    )
    for kind in ("tar", "zip", "tar.gz"):
        prepared(packed(source, kind), tmp_path / kind)
    assert needed == [0, 0, size]


def test_a_class_beside_splits_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4, splits=("train",))
    path = packed(source, "zip", "", {"disc/6.jpg": jpeg(6)})
    expected = "either folders of splits, each with a folder for each class, or folders of classes"
    assert refused(capsys, path, tmp_path / "data")[1:] == [
        f"  SOURCE: found the splits train beside disc; expected {expected}",
        "    -> move the other folders into a split",
    ]
