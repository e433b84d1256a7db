"""The doctor: a dataset with planted faults, and what is found in it."""

import io
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.datasets.examine.doctor import diagnosed
from etlrun.datasets.examine.finding import Diagnosis
from etlrun.datasets.examine.images import BITS, LOOKED, Scan, look_at, near, scanned
from etlrun.sources.base import open_source
from tests.commands import complaint
from tests.configs import plan_of, spec_of
from tests.encoded import HALF
from tests.encoded import saved as encoded
from tests.golden import Says
from tests.pictures import damaged, jpeg, truncate, with_feature
from tests.trained import said

RANDOM = np.random.default_rng(0)


def scene(number: int, side: int = 96) -> Image.Image:
    """An image with large shapes, as photos have: other ones for each number."""
    random = np.random.default_rng(number)
    small = Image.fromarray(random.integers(0, 256, (6, 6, 3), np.uint8))
    return small.resize((side + 16, side), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images of which one is broken, one in both splits, one under two labels, one in two versions."""
    found = tmp_path_factory.mktemp("dataset")
    for split, numbers in (("train", range(30)), ("validation", range(30, 40))):
        for number in numbers:
            label = "rare" if number in (4, 35) else "common"
            place = found / split / label / f"{number}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(encoded(scene(number)))
    train, validation = found / "train", found / "validation"
    (validation / "common" / "30.jpg").write_bytes(encoded(scene(0)))
    (validation / "common" / "31.jpg").write_bytes(encoded(scene(1).resize((80, 70)), quality=60))
    (train / "rare" / "again.jpg").write_bytes(encoded(scene(2)))
    (train / "common" / "3.jpg").write_bytes(encoded(scene(3))[:300])
    (train / "common" / "5.jpg").write_bytes(encoded(scene(5).convert("L")))
    (train / "common" / "6.jpg").write_bytes(encoded(scene(6).convert("CMYK")))
    (train / "common" / "7.jpg").write_bytes(encoded(scene(7).convert("RGBA"), "PNG"))
    (train / "common" / "8.jpg").write_bytes(encoded(scene(8, 40)))
    return found


def words(folder: Path) -> list[str]:
    return ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train", "dataset.eval_split=validation"]


def found_in(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the doctor of a dataset says, as JSON."""
    return json.loads(said(capsys, "doctor", *words, "--format", "json"))


def write(folder: Path, count: int, data_of: Callable[[int], bytes]) -> list[str]:
    """Write images of two classes into a folder; return the words of a config that reads it."""
    for number in range(count):
        place = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data_of(number))
    return ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train", "dataset.eval_split=null"]


def test_what_is_wrong_is_found(folder: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    findings = {finding["text"]: finding for finding in found_in(capsys, *words(folder))["findings"]}
    says([*findings])
    train, validation = folder / "train", folder / "validation"
    (broken,) = findings["1 of 31 examples of train can't be used"]["places"]
    assert broken.startswith(f"{train}/common/3.jpg: an image that can't be decoded: ")
    assert findings["1 image is in several splits"]["places"] == [f"{train}/common/0.jpg = {validation}/common/30.jpg"]
    (labels,) = findings["1 image is under several labels"]["places"]
    assert set(labels.split(" = ")) == {f"{train}/common/2.jpg", f"{train}/rare/again.jpg"}
    (near_one,) = findings["1 image of validation looks like one of train, by perceptual hashes"]["places"]
    assert near_one.startswith(f"{validation}/common/31.jpg ~ {train}/common/1.jpg (")
    says(findings["1 image is in several splits"]["remedy"])


def test_files_are_examined_without_tensorflow_as_a_plan_and_a_run_speak_of_them(folder: Path) -> None:
    code = "import sys; from etlrun.cli import main; main.main(sys.argv[1:]); assert 'tensorflow' not in sys.modules"
    given = [*words(folder), "dataset.eval_splits={half: 'train[50%:]'}", "load.drop_remainder=true"]
    command = [sys.executable, "-c", code, "doctor", *given, "load.batch_size=32", "cache=memory", "trainer.epochs=1"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "finding   load.batch_size: 32, with 31 examples in the training split\n" in text
    assert "note      cache.memory has no effect: a single epoch never reads it back.\n" in text
    assert "note      15 examples of 'train[50%:]' are in 'train', too: half knows them.\n" in text
    assert "half (train[50%:])  common" in text


@pytest.mark.smoke
def test_figures_are_those_of_the_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, validation = found_in(capsys, *words(folder))["splits"]
    assert (train["name"], train["examples"], train["files"], train["broken"]) == ("train", 31, 31, 1)
    assert train["classes"] == {"common": 28, "rare": 2}
    assert validation["classes"] == {"common": 9, "rare": 1}
    assert train["formats"] == {"JPEG": 29, "PNG": 1}
    assert train["colours"] == {"RGB": 27, "CMYK": 1, "RGBA": 1, "grey": 1}
    assert train["widths"] == [56.0, 112.0, 112.0, 112.0, 112.0]
    assert validation["heights"] == [70.0, *validation["heights"][1:]]
    size = sum(path.stat().st_size for path in (folder / "validation").glob("*/*")) / 10
    assert validation["bytes_per_example"] == pytest.approx(size)


def test_the_text_names_findings_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "doctor", *words(folder)).splitlines()
    assert lines[0] == "finding   1 of 31 examples of train can't be used"
    assert lines[1] == "          -> a person decides: repair or convert them, or set dataset.on_corrupt=skip"
    one = [*words(folder)[:2], "dataset.split='validation[:1]'", "dataset.eval_split=null"]
    text = said(capsys, "doctor", *one)
    assert text.startswith("finding   validation[:1] has no example of ")


@pytest.mark.smoke
def test_a_dataset_without_images_is_refused(capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(complaint(capsys, "doctor", "dataset.target={price: float32}", "model=emulated"))


@pytest.mark.parametrize("change", ["quality", "half", "png"])
def test_versions_of_an_image_look_alike_and_others_do_not(change: str) -> None:
    versions = {
        "quality": lambda image: encoded(image, quality=50),
        "half": lambda image: encoded(image.resize((56, 48))),
        "png": lambda image: encoded(image, "PNG"),
    }
    rows = []
    for make in (encoded, versions[change]):
        looks = [look_at(make(scene(number))) for number in range(100, 160)]
        row = np.zeros(len(looks), LOOKED)
        for name in ("digest", "hash", "is_flat"):
            row[name] = [getattr(look, name) for look in looks]
        rows.append(row)
    found = near(rows[0], rows[1], lambda _: None)
    assert [(number, other) for number, other, _ in found] == [(number, number) for number in range(60)]


def test_a_flat_image_and_one_of_16_bits_are_known() -> None:
    flat = look_at(encoded(Image.new("RGB", (40, 40), (9, 9, 9))))
    assert (flat.is_flat, flat.reason) == (True, "")
    deep = tf.io.encode_png(RANDOM.integers(0, 2**16, (20, 30, 3)).astype(np.uint16)).numpy()
    look = look_at(deep)
    assert (look.width, look.height, look.format, look.colours) == (30, 20, "PNG", "16 bit")


def test_stats_are_those_of_numpy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [*words(folder)[:2], "dataset.split=validation", "dataset.eval_split=null", "cache=none"]
    text = said(capsys, "data", "stats", *own, "transform.steps=[decode,resize,random_flip,scale_minus_one_one]")
    images = [tf.io.decode_image(path.read_bytes(), channels=3) for path in (folder / "validation").glob("*/*.jpg")]
    resized = [np.round(tf.image.resize(image, (64, 64)).numpy()) / 255 for image in images]
    pixels = np.stack(resized).reshape(-1, 3)
    lines = text.splitlines()
    assert lines[:3] == ["# Of 10 training images, pixels in [0, 1].", "transform:", "  normalize:"]
    for line, wanted in zip(lines[3:], (pixels.mean(0), pixels.std(0)), strict=True):
        np.testing.assert_allclose(json.loads(line.partition(": ")[2]), wanted, atol=5.1e-5)


def test_stats_know_the_range_and_leave_out_broken_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [*words(folder)[:2], "dataset.split=validation", "dataset.eval_split=null", "cache=none", "trainer=drain"]
    floats = [f"transform.{name}=[decode,scale_minus_one_one,resize]" for name in ("steps", "eval_steps")]
    found = []
    for steps in ((), floats):
        text = said(capsys, "data", "stats", *own, *steps, "transform.resize.dtype=float32")
        found.append([json.loads(line.partition(": ")[2]) for line in text.splitlines()[3:]])
    np.testing.assert_allclose(found[0], found[1], atol=2e-4)
    train = [*words(folder)[:2], "dataset.split=train", "dataset.eval_split=null", "cache=none"]
    assert "# Of 30 training images" in said(capsys, "data", "stats", *train, "dataset.on_corrupt=skip")
    broken = f"{folder}/train/common/3.jpg: found an image that can't be decoded"
    assert broken in complaint(capsys, "data", "stats", *train)


def test_a_finding_names_few_of_many_equal_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path / "data", 12, lambda number: encoded(scene(number if number < 2 else 2 + number % 2)))
    (finding,) = found_in(capsys, *words)["findings"]
    assert finding["text"] == "2 images are several times in one split"
    assert all(place.endswith(" = … (5 in all)") and place.count(" = ") == 4 for place in finding["places"])


def test_pixels_that_are_others_than_their_authors_see_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    odd = {
        "half.jpg": HALF,
        "black.jpg": encoded(Image.new("RGB", (96, 96))),
        "deep.png": encoded(Image.fromarray(RANDOM.integers(0, 65_536, (96, 96)).astype("u2")), "PNG"),
    }
    words = write(tmp_path, 4, lambda number: encoded(scene(number)))
    for name, data in odd.items():
        (tmp_path / "cat" / name).write_bytes(data)
    found = found_in(capsys, *words, "model=emulated", "transform.resize.size=[8,8]")
    says([line for of in found["findings"] for line in (of["text"], *of["places"])])


def test_one_image_under_two_labels_in_one_split_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    """A version of another size and quality, under another class; one of the same class is none."""
    words = write(tmp_path / "pets", 12, lambda number: encoded(scene(100 + number)))[:2]
    for name, quality in (("cat/again.jpg", 60), ("dog/other.jpg", 80)):
        (tmp_path / "pets" / name).write_bytes(encoded(scene(100).resize((80, 70)), quality=quality))
    (tmp_path / "pets" / "dog" / "same.jpg").write_bytes(encoded(scene(102)))
    found = found_in(capsys, *words, "dataset.split=train", "dataset.eval_split=null")["findings"]
    says([(of["text"], of["remedy"]) for of in found[:2]])
    pairs = {tuple(sorted(place.rpartition(" (")[0].split(" ~ "))) for place in found[1]["places"]}
    assert all("(dog)" in one + other and "(cat)" in one + other for one, other in pairs)


def test_pairs_of_other_labels_are_those_of_all_pairs() -> None:
    random = np.random.default_rng(1)
    looks = np.zeros(300, LOOKED)
    looks["hash"], looks["label"] = random.integers(0, 1 << 14, 300), random.integers(0, 3, 300)
    looks["digest"], looks["is_flat"] = [b"%d" % (number % 150) for number in range(300)], random.random(300) < 0.1
    expected = []
    for row, one in enumerate(looks):
        bits = [
            ((int(one["hash"]) ^ int(other["hash"])).bit_count(), of)
            for of, other in enumerate(looks)
            if not (one["is_flat"] or other["is_flat"])
            and one["label"] != other["label"]
            and one["digest"] != other["digest"]
        ]
        least, of = min(bits, default=(64, -1))
        expected += [[row, of, least]] if least <= 8 else []
    assert near(looks, looks, lambda _: None, of_other_labels=True).tolist() == expected


def test_no_dataset_is_downloaded_but_the_sample_is_made() -> None:
    sample, other = spec_of("dataset=sample").dataset, spec_of("dataset=mnist").dataset
    assert sample.without_download() == sample
    assert other.without_download() == spec_of("dataset=mnist", "dataset.download=false").dataset


ORIENTATION = 0x0112


def ignored(*_: object) -> Callable[[int], None]:
    return lambda _: None


def diagnosis(*words: str) -> Diagnosis:
    return diagnosed(plan_of(*words), ignored)


def scan_of(*words: str) -> Scan:
    dataset = plan_of(*words, "dataset.on_corrupt=skip").spec.dataset
    source = open_source(dataset.without_download())
    return scanned(source.split("train", "dataset.split"), ignored())


def of_tiny(data_dir: Path) -> list[str]:
    own = ["dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={data_dir}"]
    return [*own, "dataset.split=train", "dataset.eval_split=null"]


def test_a_diagnosis_holds_no_image(tmp_path: Path) -> None:
    tail = bytes(500_000) + b"\xff\xd9"
    words = write(tmp_path / "data", 24, lambda number: jpeg(number) + tail)
    diagnosis(*words)  # what TensorFlow and Python keep of a first call
    found, held_bytes = zip(*(traced(lambda: diagnosis(*words)) for _ in range(3)), strict=True)
    assert found[0].splits[0]["bytes_per_example"] > len(tail)
    assert min(held_bytes) < 2_000_000  # a table of Python's own, such as that of interned strings, may grow once
    assert LOOKED.itemsize <= 80


def traced(work: Callable[[], Diagnosis]) -> tuple[Diagnosis, int]:
    """Return what `work` returns, and how many bytes of Python's memory are left of it."""
    tracemalloc.start()
    found = work()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, held_bytes


def test_a_record_without_an_image_is_named_among_those_parsed_with_it(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", with_feature("image", None))
    found = diagnosis(*of_tiny(tmp_path / "data"))
    assert found.findings[0].text == "1 of 48 examples of train can't be used"
    (place,) = found.findings[0].places
    assert place.startswith(f"{shard}, record 5: ")
    assert "Feature: image (data type: string) is required but could not be found" in place


def test_images_before_a_damage_are_examined(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", truncate)
    before = sum(1 for _ in tf.data.TFRecordDataset(str(shard)).ignore_errors())
    found, scan = diagnosis(*of_tiny(tmp_path / "data")), scan_of(*of_tiny(tmp_path / "data"))
    size = next(of.take for of in scan.split.shards if of.path == str(shard))
    assert found.findings[0].text == f"{size - before} of 48 examples of train can't be used"
    (place,) = found.findings[0].places
    assert place.startswith(f"{shard}, record {before}: ")
    assert len(scan.looks) == 48 - size + before


def turned(number: int, orientation: int, kind: str = "JPEG") -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[ORIENTATION] = orientation
    Image.open(io.BytesIO(jpeg(number))).save(file, kind, exif=exif, dpi=(72, 72))
    return file.getvalue()


def test_images_that_exif_turns_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    contents = {1: turned(1, 6), 2: turned(2, 1), 3: turned(3, 3, "PNG"), 4: turned(4, 0)}
    contents[5] = turned(5, 8).replace(b"MM\0*", b"??\0*")  # EXIF that can't be read
    words = write(tmp_path / "data", 10, lambda number: contents.get(number, jpeg(number)))
    told = found_in(capsys, *words)
    found = {of["text"]: of for of in told["findings"]}
    finding = found["2 of 10 images of train: turned or mirrored by EXIF's orientation, which TensorFlow ignores"]
    says(finding["remedy"])
    folder = tmp_path / "data" / "dog"
    assert set(finding["places"]) == {f"{folder}/1.jpg: orientation 6", f"{folder}/3.jpg: orientation 3"}
    assert told["splits"][0]["formats"] == {"JPEG": 9, "PNG": 1}


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
    monkeypatch.setattr("etlrun.datasets.examine.images._COLUMNS", 64)
    told: list[int] = []
    assert near(first, second, told.append).tolist() == wanted
    assert 50 < len(wanted) <= 198
    assert sum(told) == 200
