"""What the page of a run gets while it goes: memory and CPU over time, images of the first batch, and its own page."""

import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.measure.watched import MOST, Interval, Usage, halved
from etlrun.record import report
from etlrun.record.record import Record
from etlrun.run import epochs
from tests.run_pages import course, epoch


def test_intervals_are_halved_by_the_largest_memory_and_the_mean_of_the_cores() -> None:
    found = [Interval(1.0, 5, 1.0), Interval(4.0, 3, 2.0), Interval(5.0, 7, 0.5)]
    assert [*halved(found)] == [Interval(4.0, 5, 1.75), Interval(5.0, 7, 0.5)]
    assert [*halved([])] == []


def test_a_series_has_bounded_length_over_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now_s)
    monkeypatch.setattr("time.process_time", lambda: 1.5 * now_s)
    usage = Usage()
    assert usage.described() is None
    for step in range(1, 40_001):
        now_s = step * 0.03
        usage.look()
    described = usage.described()
    assert described is not None
    assert MOST / 2 - 1 <= len(described["at_s"]) == len(described["rss_bytes"]) < MOST
    assert described["at_s"] == sorted(described["at_s"])
    assert now_s - 10 < described["at_s"][-1] <= now_s
    assert set(described["cores"]) == {1.5}
    assert min(described["rss_bytes"]) > 10**7


@pytest.mark.parametrize(
    ("values", "pixels"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, 128.0, 255.0], [0, 128, 255]),
        ([-3.0, 0.0, 3.0], [0, 128, 255]),
        ([float("nan"), float("inf"), 1.0], [0, 0, 255]),
        ([0.0, 0.0, 0.0], [0, 0, 0]),
        ([7.0, 300.0, 7.0], [0, 255, 0]),
    ],
)
def test_floats_are_scaled_back(values: list[float], pixels: list[int]) -> None:
    image = np.array(values, np.float32).reshape(1, 1, 3, 1)
    assert epochs.scaled_back(image, is_float=True).ravel().tolist() == pixels


def written(folder: Path, batch: Any, classes: list[str] | None = None) -> list[dict[str, str]]:
    epochs.write_thumbnails(folder, batch, classes)
    found: list[dict[str, str]] = json.loads((folder / report.THUMBNAILS).read_text())
    return found


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 3), ("float32", 3), ("bfloat16", 1)])
def test_at_most_16_images_of_at_most_64_pixels_are_kept(tmp_path: Path, dtype: str, channels: int) -> None:
    images = tf.cast(tf.fill((20, 128, 96, channels), 1), dtype)
    found = written(tmp_path, (images, tf.range(20)), [f"class {number}" for number in range(19)])
    assert [image["target"] for image in found] == [f"class {number}" for number in range(16)]
    image = Image.open(BytesIO(b64decode(found[0]["url"].partition(",")[2])))
    assert image.size == (48, 64)
    (tmp_path / "summary.json").write_text('{"status": "completed", "overrides": []}')
    report.write(tmp_path)
    assert (tmp_path / "report.html").read_text().count("<img src=") == 16


@pytest.mark.parametrize(
    ("target", "classes", "texts"),
    [
        (tf.constant([1, 5]), ["cat", "dog"], ["dog", "5"]),
        (tf.constant([0.25, 2.0]), None, ["0.25", "2"]),
        (tf.constant([[0.0, 1.0, 0.75], [1.0, 0.0, 0.5]]), ["cat", "dog"], ["75% cat, 25% dog", "50% dog, 50% cat"]),
        (tf.zeros((2, 4)), None, ["", ""]),
        ({"a": tf.zeros(2)}, None, ["", ""]),
    ],
)
def test_an_image_has_its_target(tmp_path: Path, target: Any, classes: list[str] | None, texts: list[str]) -> None:
    inputs = {"weight": tf.zeros((2, 1)), "image": tf.zeros((2, 8, 8, 3))}
    assert [image["target"] for image in written(tmp_path, (inputs, target), classes)] == texts


@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 8), (4, 8, 8, 7), (4, 1, 1, 3)])
def test_a_batch_without_images_has_none(tmp_path: Path, shape: tuple[int, ...]) -> None:
    epochs.write_thumbnails(tmp_path, (tf.zeros(shape), tf.zeros(4)), None)
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_the_page_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = course(tmp_path, epoch(1))
    monkeypatch.setattr(report, "stages_of", lambda *_: 1 / 0)
    report.renew(record)
    event = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (event["event"], event["error"]) == ("page_failed", "ZeroDivisionError: division by zero")
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_kept_as_the_refusal(tmp_path: Path) -> None:
    record: Record = course(tmp_path, epoch(1))
    (tmp_path / "report.html").mkdir()
    with pytest.raises(IsADirectoryError):
        report.renew(record)
    assert isinstance(record.refusal, IsADirectoryError)
