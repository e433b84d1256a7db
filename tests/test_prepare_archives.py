"""`etlrun prepare`: archives, and what they must not do."""

import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds

from tests.golden import Case, Golden, cases
from tests.own import content, examples, labelled, prepared, refused, stamps, write_photos, write_records
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


def test_what_is_unpacked_is_removed_after_an_error_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    (source / "disc" / "text.jpg").write_text("text")
    left = tmp_path / "data" / "own" / "preparing.1.0.0" / "unpacked" / "flowers" / "disc" / "7.jpg"
    left.parent.mkdir(parents=True)
    left.write_text("by a command that was killed")
    found = refused(capsys, packed(source, "tar.gz"), tmp_path / "data")
    assert found[1].startswith("  SOURCE/flowers/disc/text.jpg: found an image that can't be decoded: Unknown image")
    assert "1 broken image of 5" in found[2]
    assert [*(tmp_path / "data" / "own").glob("[!.]*")] == []


WHOLE = "expected a complete zip or tar archive, whose members are files and folders within it"


@pytest.mark.parametrize(
    ("name", "member", "found"),
    [
        ("disc/../../6.jpg", jpeg(6), "'disc/../../6.jpg' would be extracted to "),
        ("disc/a.jpg", link("../../secret.jpg"), "'disc/a.jpg' would link to "),
        ("disc/b.jpg", link("/etc/passwd"), "'disc/b.jpg' is a link to an absolute path"),
        ("disc/c.jpg", link("../secret.jpg", tarfile.LNKTYPE), "'disc/c.jpg' would link to "),
        ("disc/d.jpg", link("", tarfile.CHRTYPE), "'disc/d.jpg' is a special file"),
    ],
)
def test_what_leaves_an_archive_is_refused(
    name: str, member: Any, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed(write_photos(tmp_path / "photos", 4), "tar", "", {name: member})
    lines = refused(capsys, path, tmp_path / "data")
    assert lines[1].startswith(f"  SOURCE: found {found}")
    assert lines[1].endswith(f"; {WHOLE}")
    assert lines[2:] == ["    -> pack it again, or unpack it yourself"]


def test_paths_of_a_zip_stay_within_it_and_its_links_are_no_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_photos(tmp_path / "photos", 4)
    path = packed(source, "zip", "", {"../../disc/6.jpg": jpeg(6)})
    (source / "disc" / "6.jpg").write_bytes(jpeg(6))
    assert content(prepared(path, tmp_path / "data")) == content(prepared(source, tmp_path / "folder"))
    info = zipfile.ZipInfo("disc/a.jpg")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    assert refused(capsys, path, tmp_path / "other")[1].startswith(
        "  SOURCE/disc/a.jpg: found an image that can't be decoded"
    )


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_links_within_an_archive_are_followed(kind: str, tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 4)
    added: Added = {
        "disc/a.jpg": link("../cross/1.jpg"),
        "disc/b.jpg": link("cross/3.jpg", tarfile.LNKTYPE),
        "disc/c.jpg": link("a.jpg"),
    }
    path = packed(source, kind, "", added)
    for name, number in (("a", 1), ("b", 3), ("c", 1)):
        (source / "disc" / f"{name}.jpg").write_bytes(jpeg(number))
    assert content(prepared(path, tmp_path / "data")) == content(prepared(source, tmp_path / "folder"))


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_that_does_not_fit_is_not_unpacked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("etlrun.datasets.prepare.readers.free_disk_bytes", lambda _: 1_000_000)
    path = packed(write_photos(tmp_path / "photos", 4), kind, "", {"disc/zeros.jpg": bytes(8_000_000)})
    assert refused(capsys, path, tmp_path / "data") == [
        "etlrun: 1 fault",
        "  SOURCE: found 8.0 MB or more, unpacked; expected less than the free disk space",
        "    -> free disk space, or choose another --data-dir",
    ]


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


def damaged_member(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("flowers/disc/2.jpg")
    data = bytearray(path.read_bytes())
    data[info.header_offset + info.compress_size // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "harm", "found"),
    [
        ("tar.gz", cut, "Compressed file ended before the end-of-stream marker was reached"),
        ("tar.gz", lambda path: path.write_bytes(path.read_bytes()[:30]), "Compressed file ended before the "),
        ("tar.xz", cut, "Compressed file ended before the end-of-stream marker was reached"),
        ("tar", lambda path: path.write_bytes(path.read_bytes()[:3100]), "unexpected end of data"),
        ("tar", cut_between_members, "neither a member nor the end of the archive at byte "),
        ("tar", damaged_header, "neither a member nor the end of the archive at byte "),
        ("zip", cut, "a file of another kind; expected a folder of classes, a list"),
        ("zip", encrypted, "an encrypted member, flowers/cross/1.jpg"),
        ("zip", damaged_member, "Bad CRC-32 for file 'flowers/disc/2.jpg'"),
    ],
)  # fmt: skip
def test_an_archive_that_is_refused(
    kind: str, harm: Callable[[Path], None], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed(write_photos(tmp_path / "photos", 4), kind)
    harm(path)
    assert refused(capsys, path, tmp_path / "data")[1].startswith(f"  SOURCE: found {found}")


def listed(source: Path, columns: tuple[str, ...] = ("path", "label")) -> list[dict[str, str]]:
    """A row for each image below a folder."""
    rows = []
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        split = "test" if number % 3 == 0 else "train"
        row = {"path": str(path.relative_to(source)), "label": path.parent.name, "split": split}
        rows.append({name: row[name] for name in columns})
    return rows


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    return path


def write_json_lines(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return path


def test_a_list_gives_what_its_folder_gives(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    whole = content(prepared(source, tmp_path / "folder"))
    rows = listed(source)
    assert content(prepared(write_csv(source / "all.csv", rows), tmp_path / "csv")) == whole
    assert content(prepared(write_json_lines(source / "all.jsonl", rows), tmp_path / "jsonl")) == whole


def test_a_list_may_have_splits(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    rows = listed(source, ("split", "label", "path"))
    folder = prepared(write_csv(source / "all.csv", rows), tmp_path / "data")
    wanted = {
        split: {(source / row["path"]).read_bytes() for row in rows if row["split"] == split}
        for split in ("train", "test")
    }
    assert {split: {image for image, _ in examples(folder, split)} for split in wanted} == wanted


def test_labels_that_are_numbers_are_sorted_as_such(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos", 3)
    rows = [{"path": row["path"], "label": label} for row, label in zip(listed(source), (10, 9, 100), strict=True)]
    folder = prepared(write_json_lines(source / "all.jsonl", rows), tmp_path / "data")  # type: ignore[arg-type] # numbers
    assert tfds.builder_from_directory(folder).info.features["label"].names == ["9", "10", "100"]


@pytest.mark.parametrize("case", cases("lists"))
def test_a_list_that_is_refused(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    source = write_photos(tmp_path / "photos", 4)
    path, text = source / case["file"], case["text"]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    golden(case, "\n".join(refused(capsys, path, tmp_path / "data")[1:]).replace(str(source), "DIR"))


def records(tmp_path: Path, *, named: bool) -> Path:
    """Two TFRecord files of twelve images."""
    for file in range(2):
        features = [
            {"image/encoded": jpeg(of), "class": (b"disc", b"cross")[of % 2] if named else 5 + of % 2, "size": 1.5}
            for of in range(6 * file, 6 * file + 6)
        ]
        write_records(tmp_path / f"part-{file}", features)
    return tmp_path / "part-*"


KEYS = ("--features", "image=image/encoded,label=class")


def test_tfrecords_with_names_of_classes(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    options = ("--split", "train=50,test=50")
    wanted = content(prepared(source, tmp_path / "folder", *options))
    found = prepared(records(tmp_path, named=True), tmp_path / "data", *KEYS, *options)
    assert content(found) == wanted


def test_tfrecords_with_numbers_of_classes(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "photos")
    folder = prepared(records(tmp_path, named=False), tmp_path / "data", *KEYS)
    assert {*examples(folder)} == labelled(source, ("disc", "cross"))
    assert tfds.builder_from_directory(folder).info.features["label"].names == ["5", "6"]


def test_tfrecords_with_other_features_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = records(tmp_path, named=True)
    found = refused(capsys, source, tmp_path / "data", "--features", "image=image,label=size")
    among = "expected an image as bytes and a label among its features: class, image/encoded, size"
    assert found == [
        "etlrun: 2 faults",
        f"  {tmp_path}/part-0, record 0: found no feature 'image' and 'size' with 1 values in its float_list; {among}",
        "    -> did you mean `image/encoded`?",
        f"  {tmp_path}/part-1, record 0: found no feature 'image' and 'size' with 1 values in its float_list; {among}",
        "    -> did you mean `image/encoded`?",
    ]


def test_files_that_are_no_tfrecords_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = records(tmp_path, named=True)
    whole = (tmp_path / "part-0").read_bytes()
    (tmp_path / "part-0").write_bytes(whole[:-7])
    (tmp_path / "part-1").write_bytes(b"text" * 9)
    (tmp_path / "part-2").write_bytes(bytes(of ^ (place == len(whole) // 2) for place, of in enumerate(whole)))
    assert refused(capsys, source, tmp_path / "data", *KEYS) == [
        "etlrun: 3 faults",
        f"  {tmp_path}/part-0, record 5: found a damaged record; expected complete records",
        "    -> write the file again",
        (
            f"  {tmp_path}/part-1: found no TFRecord file: it begins with b'texttext'; expected TFRecords without "
            "compression"
        ),
        "    -> choose TFRecord files, or prepare a folder, a list or an archive of images: python -m etlrun prepare",
        f"  {tmp_path}/part-2, record 2: found a damaged record; expected complete records",
        "    -> write the file again",
    ]
    assert refused(capsys, tmp_path / "none-*", tmp_path / "data", *KEYS)[1:] == [
        "  SOURCE: found no such file; expected a pattern that matches TFRecord files",
        "    -> check the path",
    ]
