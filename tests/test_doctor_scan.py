"""The doctor's scan: what it holds in memory, damaged files, EXIF, and images that look alike."""

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.cli import main as cli
from etlrun.datasets.examine.doctor import diagnosed, of_doctor
from etlrun.datasets.examine.finding import Diagnosis
from etlrun.datasets.examine.scan import BITS, LOOKED, SAMPLES, Scan, near, scanned
from etlrun.report.html import html
from etlrun.sources.base import open_source
from tests.configs import plan_of
from tests.pictures import damaged, jpeg, truncate, with_feature

ORIENTATION = 0x0112


def ignored(*_: object) -> Callable[[int], None]:
    return lambda _: None


def diagnosis(*words: str) -> Diagnosis:
    given = [*words, "dataset.eval_split=null"]
    return diagnosed(plan_of(*given), ignored, is_whole=False)


def scan_of(*words: str) -> Scan:
    dataset = plan_of(*words, "dataset.eval_split=null", "dataset.on_corrupt=skip").spec.dataset
    source = open_source(dataset.without_download())
    return scanned(source, source.split("train", "dataset.split"), ignored())


def samples_in(found: Diagnosis) -> list[int]:
    """How many samples of each class the page has."""
    page = html(of_doctor(found, ""))
    return [page.count(f'alt="{name} in train"') for name in found.splits[0]["classes"]]


def of_tiny(data_dir: Path) -> list[str]:
    return ["dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={data_dir}", "dataset.split=train"]


def write(folder: Path, count: int, data_of: Callable[[int], bytes]) -> list[str]:
    """Write images of two classes into a folder; return the words of a config that reads it."""
    for number in range(count):
        place = folder / ("cross", "disc")[number % 2] / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data_of(number))
    return ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train"]


def test_a_diagnosis_holds_no_image(tmp_path: Path) -> None:
    tail = bytes(500_000) + b"\xff\xd9"
    words = write(tmp_path / "data", 24, lambda number: jpeg(number) + tail)
    diagnosis(*words)  # what TensorFlow and Python keep of a first call
    found, held_bytes = zip(*(traced(lambda: diagnosis(*words)) for _ in range(3)), strict=True)
    assert found[0].splits[0]["bytes_per_example"] > len(tail)
    assert min(held_bytes) < 2_000_000  # a table of Python's own, such as that of interned strings, may grow once
    assert LOOKED.itemsize <= 80
    assert samples_in(found[0]) == [SAMPLES, SAMPLES]


def traced(work: Callable[[], Diagnosis]) -> tuple[Diagnosis, int]:
    """Return what `work` returns, and how many bytes of Python's memory are left of it."""
    tracemalloc.start()
    found = work()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, held_bytes


def test_samples_are_the_first_images_of_each_class_that_can_be_used(tiny: Path, tmp_path: Path) -> None:
    damaged(tiny, tmp_path / "data", with_feature("image", None))
    scan = scan_of(*of_tiny(tmp_path / "data"))
    sound = [index for index in range(48) if not scan.looks["is_broken"][index]]
    of_class = {label: [index for index in sound if scan.looks["label"][index] == label] for label in (0, 1)}
    assert dict(scan.samples()) == {label: indices[:SAMPLES] for label, indices in of_class.items()}
    assert len(sound) == 47


def test_a_record_without_an_image_is_named_among_those_parsed_with_it(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", with_feature("image", None))
    found = diagnosis(*of_tiny(tmp_path / "data"))
    assert found.findings[0].text == "1 of 48 examples of train can't be used"
    (place,) = found.findings[0].places
    assert place.startswith(f"{shard}, record 5: ")
    assert "Feature: image (data type: string) is required but could not be found" in place


def test_images_before_a_damage_are_examined_and_shown(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", truncate)
    before = sum(1 for _ in whole_records(shard))
    found, scan = diagnosis(*of_tiny(tmp_path / "data")), scan_of(*of_tiny(tmp_path / "data"))
    size = next(of.take for of in scan.split.shards if of.path == str(shard))
    assert found.findings[0].text == f"{size - before} of 48 examples of train can't be used"
    (place,) = found.findings[0].places
    assert place.startswith(f"{shard}, record {before}: ")
    assert len(scan.looks) == 48 - size + before
    assert samples_in(found) == [SAMPLES, SAMPLES]
    data = scan.encoded(int(max(np.flatnonzero(scan.looks["shard"] == 1))))
    assert data is not None
    assert data.startswith(b"\xff\xd8")


def whole_records(shard: Path) -> list[tf.Tensor]:
    found = []
    records = iter(tf.data.TFRecordDataset(str(shard)))
    while True:
        try:
            found.append(next(records))
        except (tf.errors.DataLossError, StopIteration):
            return found


def turned(number: int, orientation: int, kind: str = "JPEG") -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[ORIENTATION] = orientation
    Image.open(io.BytesIO(jpeg(number))).save(file, kind, exif=exif, dpi=(72, 72))
    return file.getvalue()


def test_images_that_exif_turns_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = {1: turned(1, 6), 2: turned(2, 1), 3: turned(3, 3, "PNG"), 4: turned(4, 0)}
    contents[5] = turned(5, 8).replace(b"MM\0*", b"??\0*")  # EXIF that can't be read
    words = write(tmp_path / "data", 10, lambda number: contents.get(number, jpeg(number)))
    cli.main(["doctor", *words, "dataset.eval_split=null", "--format", "json"])
    said = json.loads(capsys.readouterr().out)
    found = {of["text"]: of for of in said["findings"]}
    finding = found[
        "2 of 10 images of train are turned or mirrored by EXIF's orientation, which TensorFlow ignores: they are "
        "decoded as they are stored"
    ]
    assert finding["remedy"] == (
        "store them upright, such as by `exiftran -ai` (without loss) or Pillow's ImageOps.exif_transpose"
    )
    folder = tmp_path / "data" / "disc"
    assert set(finding["places"]) == {f"{folder}/1.jpg: orientation 6", f"{folder}/3.jpg: orientation 3"}
    assert said["splits"][0]["formats"] == {"JPEG": 9, "PNG": 1}


def rows(hashes: list[int]) -> np.ndarray:
    found = np.zeros(len(hashes), LOOKED)
    found["hash"] = np.array(hashes, np.uint64)
    return found


def test_the_nearest_image_is_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    centres = [int(of) for of in random.integers(0, 2**63, 8)]

    def hashes(count: int) -> list[int]:
        changes = [sum(1 << int(bit) for bit in random.choice(64, 5, replace=False)) for _ in range(count)]
        return [centres[place % 8] ^ change for place, change in enumerate(changes)]

    first, second = rows(hashes(300)), rows(hashes(200))
    first["digest"], second["digest"] = [b"a%d" % of for of in range(300)], [b"b%d" % of for of in range(200)]
    second["digest"][3], second["is_flat"][4], first["is_broken"][5] = b"a3", True, True
    wanted = []
    for row in (row for row in range(200) if row not in {3, 4}):
        bits = [int(of ^ second["hash"][row]).bit_count() for of in first["hash"]]
        bits[5] = 64
        if min(bits) <= BITS:
            wanted.append([row, bits.index(min(bits)), min(bits)])
    monkeypatch.setattr("etlrun.datasets.examine.scan._COLUMNS", 64)
    told: list[int] = []
    assert near(first, second, told.append).tolist() == wanted
    assert 50 < len(wanted) <= 198
    assert sum(told) == 200
