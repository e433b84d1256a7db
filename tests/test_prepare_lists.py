"""`etlrun prepare`: lists of images, and TFRecords of other programs."""

import json
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from tests.own import content, examples, labelled, prepared, refused, write_photos, write_records
from tests.pictures import jpeg


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


def test_all_faults_of_a_list_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_photos(tmp_path / "photos", 4)
    path = source / "all.csv"
    path.write_text("path,label,split\n../a.jpg,disc,train\n/b.jpg,disc,train\ndisc/0.jpg,,\ndisc/0.jpg,disc,train\n")
    remedy = "    -> put the list into a folder above all of its images"
    assert refused(capsys, path, tmp_path / "data") == [
        "etlrun: 3 faults",
        "  SOURCE:2: found ../a.jpg; expected a path within the folder of the list",
        remedy,
        "  SOURCE:3: found /b.jpg; expected a path within the folder of the list",
        remedy,
        "  SOURCE:4: found no label, no split; expected text for path, label, split",
        "    -> complete the line or remove it",
    ]
    path.write_text("path,label\ngone.jpg,disc\ndisc/0.jpg,disc\ncross,cross\n")
    assert refused(capsys, path, tmp_path / "data")[1:] == [
        f"  {source}/gone.jpg: found No such file or directory; expected an image file",
        "    -> check its permissions and its storage",
        f"  {source}/cross: found not a regular file; expected an image file",
        "    -> remove it",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("file,label\na.jpg,b\n", "SOURCE:1: found the columns file, label; expected the columns path and label, and "),
        ("", "SOURCE:1: found no line; expected the columns path and label, and optionally split"),
        ("path,label\n", "SOURCE: found no images; expected the columns path and label, and optionally split, and a "),
        ("path,label\nb\xff", "SOURCE: found 'utf-8' codec can't decode byte 0xff in position 12: invalid start byte"),
        (
            "path,label,split\ndisc/0.jpg,disc,train\ncross/1.jpg,cross,train\ndisc/2.jpg,other,test\n",
            "SOURCE/test: found other, not in train; expected classes of the training split",
        ),
        (
            "path,label,split\ndisc/0.jpg,disc,my split\ncross/1.jpg,cross,my split\n",
            "SOURCE: found the split 'my split'; expected a letter, followed by letters, digits and underscores",
        ),
        ("path,label\ndisc/0.jpg,disc\ndisc/2.jpg,disc\n", "SOURCE: found images of one class, disc; expected"),
    ],
)  # fmt: skip
def test_a_list_that_is_refused(text: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_photos(tmp_path / "photos", 4) / "all.csv"
    path.write_bytes(text.encode("latin-1"))
    assert refused(capsys, path, tmp_path / "data")[1].startswith(f"  {found}")


@pytest.mark.parametrize(("mark", "named"), [(";", "';'"), ("\t", "tabs"), ("|", "'|'")])
def test_a_list_of_another_separator_is_named(
    mark: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.csv"
    path.write_text(mark.join(("path", "label", "split")) + "\n")
    first = mark.join(("path", "label", "split"))
    assert refused(capsys, path, tmp_path / "data") == [
        "etlrun: 1 fault",
        (
            f"  SOURCE:1: found one column, {first!r}, which looks separated by {named}; expected the columns path and "
            "label, and optionally split"
        ),
        "    -> save the list with commas between the columns",
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[1]", 'found [1]; expected an object: {"path": "rose.jpg", "label": "rose"}'),
        ("{", 'found {; expected an object: {"path": "rose.jpg", "label": "rose"}'),
        ('{"path": "a", "label": true}', "found label=True; expected text for path, label"),
        ('{"path": "a"}', "found no label; expected text for path, label"),
    ],
)
def test_json_lines_that_are_refused(line: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text(f"\n{line}\n")
    assert refused(capsys, path, tmp_path / "data")[1] == f"  SOURCE:2: {found}"


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
