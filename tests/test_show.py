"""Images of examples after each step of a plan: their content, their passes, their page, and what goes wrong."""

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from etlrun.cache.store import folder_of
from etlrun.datasets.examine.compare import compared, first_examples, of_sheet, pixels_of
from etlrun.datasets.examine.show import Sheet, View, as_text, collect
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.report.render import html
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.flow import Feature
from etlrun.stages.image import Decode
from etlrun.system.errors import WorldError
from etlrun.system.thumbnails import SIDE, data_url, thumbnail
from tests import boxes as of_boxes
from tests.configs import TENSORFLOW, plan_of, raised
from tests.golden import Says
from tests.pages import chromium, opened
from tests.pictures import NUM_EXAMPLES, damaged, feature_of, jpeg, truncate, with_feature
from tests.readers import ran
from tests.runs import emulated

UNSHUFFLED = ("load.shuffle_buffer=0", "load.batch_size=8", "load.drop_remainder=false")
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
FEW = 6


def tiny_plan(data_dir: Path, *overrides: str) -> Plan:
    return plan_of(*emulated(data_dir, *UNSHUFFLED, *overrides))


def paths(sheet: Sheet) -> list[str]:
    return [*dict.fromkeys(view.path.partition(".")[2] for view in sheet.views)]


def cells(view: View, name: str = "image") -> list[Any]:
    return [cell[name] for cell in view.cells]


def epochs(plan: Plan, pipeline: str, count: int) -> list[Any]:
    """All inputs of each epoch, as a training that shuffles nothing has them from the model's scaling."""
    context = contexts_of(plan, open_source(plan.spec.dataset))[pipeline]
    stages = [planned for planned in plan.pipelines[pipeline] if not planned.stage.only_reorders]
    batches = Pipeline(stages, context).dataset
    scaled = []
    for _ in range(count):
        inputs = np.concatenate([batch[0] for batch in batches.as_numpy_iterator()])
        for planned in plan.by_model:
            inputs = planned.stage.op(inputs, **planned.stage.arguments).numpy()
        scaled.append(inputs)
    return scaled


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        (("extract=tfds", TENSORFLOW), "tfds decode resize"),
        ((FLIPPED, "cache.at=resize", TENSORFLOW), "parse decode resize random_flip"),
        (("cache=none",), "parse decode resize"),
        (("transform.decode.fast=true", "dataset.on_corrupt=skip"), "parse resize"),
        (("cache.codec=jpeg90",), "parse decode resize codec decode_jpeg"),
        (("extract=sequential", "load.shuffle=full", "cache=none"), "parse decode resize"),
    ],
)
def test_the_last_column_is_what_the_model_gets_in_each_pass(
    overrides: tuple[str, ...], steps: str, tiny: Path
) -> None:
    plan = tiny_plan(tiny, *overrides)
    sheet = collect(plan, "train", FEW)
    assert paths(sheet) == [*steps.split(), "scale_minus_one_one"]
    assert len(sheet.targets) == 6
    last = [view for view in sheet.views if view.path == sheet.views[-1].path]
    assert len(last) == (3 if FLIPPED in overrides else 1)
    expected = epochs(plan, "train", len(last))
    for view, inputs in zip(last, expected, strict=True):
        np.testing.assert_array_equal(cells(view), inputs[:6])


def test_each_column_is_the_output_of_its_step(tiny: Path) -> None:
    sheet = collect(tiny_plan(tiny, "extract=sequential"), "train", 4)
    files, decoded, resized, scaled = sheet.views
    drawn = [jpeg(number) for number in range(NUM_EXAMPLES)]
    assert all(file in drawn for file in cells(files))
    labels = [drawn.index(file) % 2 for file in cells(files)]
    assert [*sheet.targets] == [("dark (0)", "bright (1)")[label] for label in labels]
    for file, pixels in zip(cells(files), cells(decoded), strict=True):
        np.testing.assert_array_equal(Decode.op(file), pixels)
    np.testing.assert_allclose(np.array(cells(resized)) / 127.5 - 1, cells(scaled), atol=1e-6)
    assert str(resized.features["image"]) == "uint8 [32, 32, 3] in [0, 255]"
    ends = np.min(cells(resized)), np.max(cells(resized))
    assert (resized.ends("image"), resized.shown("image")) == (ends, f"{ends[0]} to {ends[1]}")
    assert [view.is_of_model for view in sheet.views] == [False, False, False, True]


def test_validation_is_shown_after_its_own_steps(tiny: Path) -> None:
    plan = tiny_plan(tiny, FLIPPED, "cache=none", 'dataset.split="train[:32]"', 'dataset.eval_split="train[32:]"')
    sheet = collect(plan, "validation", FEW)
    assert sheet.source == "tiny_pictures/1.2.0 train[32:]"
    assert paths(sheet) == ["parse", "decode", "resize", "scale_minus_one_one"]
    (inputs,) = epochs(plan, "validation", 1)
    np.testing.assert_array_equal(cells(sheet.views[-1]), inputs[:6])


def test_passes_differ_after_random_steps_alone(tiny: Path) -> None:
    flipped = collect(tiny_plan(tiny, FLIPPED, "cache=none"), "train", 8, passes=2)
    assert [view.name for view in flipped.views] == ["", "", "", *["pass 1", "pass 2"] * 2]
    for views in (flipped.views[3:5], flipped.views[5:]):
        one, other = map(cells, views)
        assert not np.array_equal(one, other)
    assert flipped.notes == ("What is random, and what follows from it, is shown in 2 passes.",)
    same = collect(tiny_plan(tiny), "train", 8, passes=2)
    assert [view.name for view in same.views] == [""] * 4
    assert same.notes == ("No step is random: all passes give the same.",)


def test_shards_are_read_in_the_order_of_their_names(tiny: Path) -> None:
    plans = [tiny_plan(tiny, f"extract.shuffle_files={value}") for value in ("true", "false")]
    shuffled, ordered = (collect(plan, "train", FEW).views[0] for plan in plans)
    assert cells(shuffled) == cells(ordered)


def test_a_step_that_fails_is_named(boxes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(width: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return tf.debugging.check_numerics(tf.cast(width, tf.float64) / tf.cast(seed - seed, tf.float64), "no number")

    monkeypatch.setattr(of_boxes.Jitter, "op", staticmethod(fail))
    words = of_boxes.words_of(
        boxes, "trainer=drain", "transform.steps=[jitter]", "dataset.eval_split=null", "cache=none"
    )
    with pytest.raises(WorldError) as caught:
        collect(of_boxes.plan_with(None, words), "train", FEW)
    (fault,) = caught.value.faults
    assert (fault.where, fault.expected) == ("transform.jitter", "a step that can process each example")
    assert "no number" in fault.found


def test_no_cache_is_read_or_filled(tiny: Path, tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    collect(tiny_plan(tiny, "cache=disk", f"cache.dir={caches}"), "train", FEW)
    assert not caches.exists()
    assert not folder_of(str(caches)).exists()


def test_features_of_a_frozen_base_end_with_what_the_base_takes(tiny: Path) -> None:
    words = [word for word in emulated(tiny, *UNSHUFFLED) if not word.startswith("model")]
    sheet = collect(plan_of(*words, "model.trainable=false", "cache.at=features"), "train", FEW)
    assert paths(sheet) == ["parse", "decode", "resize", "scale_minus_one_one"]
    assert sheet.notes == ("The frozen base of the model, whose features are cached, takes the last column.",)


@pytest.mark.parametrize("damage", [with_feature("image", feature_of(b"no image")), truncate])
def test_a_broken_record_is_named_or_its_row_is_left_out(damage: Any, tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "data", damage)
    everything = 48
    with pytest.raises(WorldError) as caught:
        collect(tiny_plan(tmp_path / "data", "dataset.split=train"), "train", everything)
    assert str(caught.value).startswith(f"{shard}, record ")
    assert str(caught.value).endswith("to skip and count such records; etlrun doctor finds all")
    skipping = tiny_plan(tmp_path / "data", "dataset.on_corrupt=skip", "cache=none", "dataset.split=train")
    sheet = collect(skipping, "train", everything)
    (inputs,) = epochs(skipping, "train", 1)
    assert 36 < len(inputs) == len(sheet.targets) < NUM_EXAMPLES
    np.testing.assert_array_equal(cells(sheet.views[-1]), inputs)


def test_a_split_without_a_readable_example_is_refused(tiny: Path, tmp_path: Path, says: Says) -> None:
    damaged(tiny, tmp_path / "data", with_feature("image", feature_of(b"no image")))
    words = ("dataset.on_corrupt=skip", "cache=none", 'dataset.split="train[17:18]"', "dataset.eval_split=null")
    says(raised(WorldError, collect, tiny_plan(tmp_path / "data", *words), "train", FEW))


def test_features_that_are_no_images_are_text(boxes: Path, says: Says) -> None:
    words = of_boxes.words_of(
        boxes,
        "trainer=drain",
        "transform.steps=[jitter]",
        "dataset.eval_split=null",
        "dataset.features={width: float32, name: text}",
        "cache=none",
    )
    sheet = collect(of_boxes.plan_with(None, words), "train", 2)
    read, jittered = sheet.views[0], sheet.views[-1]
    says([(view.name, [*view.features]) for view in sheet.views])
    assert (read.path, jittered.path) == ("transform.parse", "transform.jitter")
    page = html(of_sheet(sheet, ""))
    for target, cell in zip(sheet.targets, read.cells, strict=True):
        assert target.startswith("price ")
        assert f"<p>name {cell['name'].decode()}</p><p>width {cell['width']:.4g}"[:-1] in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("feature", "values", "shown"),
    [
        ({"dtype": "uint8", "low": 0.0, "high": 255.0}, [0, 7, 255], [0, 7, 255]),
        ({"dtype": "float32", "low": -1.0, "high": 1.0}, [-1, 0, 1], [0, 128, 255]),
        ({"dtype": "float32", "low": 0.0, "high": 1.0}, [-1, float("nan"), 2], [0, 0, 255]),
        ({"dtype": "float32"}, [10, 15, 20], [0, 128, 255]),
        ({"dtype": "int32"}, [3, 3, 3], [0, 0, 0]),
    ],
)
def test_images_are_mapped_from_the_range_of_their_feature(
    feature: Mapping[str, Any], values: list[float], shown: list[int]
) -> None:
    image = np.array(values, feature["dtype"]).reshape(1, 3, 1)
    view = View(path="", name="", features={"image": Feature(shape=(1, 3, 1), **feature)}, cells=({"image": image},))
    assert pixels_of(view, "image", 0).ravel().tolist() == shown


def test_a_small_thumbnail_has_the_very_pixels_and_a_large_one_is_small() -> None:
    rng = np.random.default_rng(0)
    small, large = (rng.integers(0, 256, (side, side, 3), np.uint8) for side in (40, 700))
    kind, data = data_url(thumbnail(small)).split(",")
    assert kind == "data:image/png;base64"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), small)
    kind, data = data_url(thumbnail(large)).split(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (SIDE, SIDE)
    assert thumbnail(rng.integers(0, 256, (320, 200, 1), np.uint8)).size == (100, SIDE)


def test_long_values_are_cut_in_the_middle() -> None:
    assert as_text(np.float32(1 / 3)) == "0.3333"
    assert as_text(b"a\n <b>") == "a <b>"
    assert as_text(b"x" * 500) == f"{'x' * 80} … {'x' * 80}"


def test_a_page_of_photos_is_under_two_megabytes() -> None:
    rng = np.random.default_rng(0)
    noise = tuple({"image": rng.integers(0, 256, (224, 224, 3), np.uint8)} for _ in range(8))
    feature = Feature(dtype="uint8", shape=(224, 224, 3), low=0.0, high=255.0)
    steps = (f"transform.step_{number}" for number in range(5))
    views = tuple(View(path=step, name="", features={"image": feature}, cells=noise) for step in steps)
    page = html(of_sheet(Sheet(title="", source="", targets=("<b>",) * 8, views=views), ""))
    assert len(page) < 2e6
    assert "<b>" not in page


@pytest.mark.smoke
def test_the_command_writes_the_page_and_says_what_they_show(tiny: Path, tmp_path: Path, says: Says) -> None:
    words = ["--output", "of/page.html", "--examples", "2", *emulated(tiny)]
    status, text = ran(["show", *words], tmp_path)
    assert status == 0, text
    lines = text.splitlines()
    assert lines[0].split() == ["stage", "result", "values", "shown"]
    says([line.split()[0] for line in lines[1:]])
    assert "--examples 2 " in (tmp_path / "of" / "page.html").read_text()


def test_faults_are_told_before_anything_is_written(tmp_path: Path) -> None:
    assert ran(["show", "load.prefetch=-1"], tmp_path) == ran(["plan", "load.prefetch=-1"], tmp_path)
    (tmp_path / "file").touch()
    status, text = ran(["show", "--output", "file/page.html"], tmp_path)
    assert (status, "--output: found file: Not a directory" in text) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


STEPS = ("transform.resize", "transform.scale_minus_one_one")
EVIL = "<script>alert(1)</script>"
LOADED = "return [...document.images].every((image) => image.complete && image.naturalWidth > 0)"


@pytest.fixture(scope="module")
def page(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Chrome, Path]]:
    """Six examples; the flip and the scaling in two passes."""
    folder = tmp_path_factory.mktemp("shown")
    steps = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
    words = [*emulated(tiny, steps, "load.batch_size=8", "cache=none"), f"hydra.job.name='{EVIL}'"]
    status, text = ran(["show", "--examples", "6", "--passes", "2", *words], folder)
    assert status == 0, text
    with chromium() as browser:
        yield browser, folder / "show.html"


def test_rows_are_examples_and_columns_are_steps(page: tuple[Chrome, Path], says: Says) -> None:
    browser, path = page
    with opened(browser, path):
        heads = [head.text.split("\n")[0] for head in browser.find_elements(By.CSS_SELECTOR, "thead th")]
        says(heads)
        rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
        assert [len(row.find_elements(By.CSS_SELECTOR, "th, td")) for row in rows] == [8] * 6
        targets, places = zip(*(row.find_element(By.TAG_NAME, "th").text.split(", ", 1) for row in rows), strict=True)
        assert [*places] == [f"example {number}" for number in range(1, 7)]
        assert browser.execute_script(LOADED) is True
        images = browser.find_elements(By.TAG_NAME, "img")
        alts = [str(image.get_attribute("alt")) for image in images]
        assert (len(images), len({*alts})) == (42, 42)
        assert alts[4] == f"image after transform.random_flip, pass 2, {targets[0]}, {places[0]}"
        assert browser.find_element(By.CLASS_NAME, "note").text.endswith("is shown in 2 passes.")
        assert EVIL in browser.find_element(By.TAG_NAME, "footer").text
        assert browser.find_elements(By.TAG_NAME, "script") == []


def sides(tiny: Path, *overrides: str) -> list[str]:
    """The arguments of a diff of a run on the tiny dataset and the same with these overrides."""
    words = emulated(tiny, "load.batch_size=8")
    return [" ".join(words), " ".join([*words, *overrides])]


def test_a_diff_shows_the_steps_whose_examples_differ(told: Any, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "of it"
    text = told(*sides(tiny, "transform.resize.method=area"), "--show", str(folder), "--format", "markdown")
    page = folder / "diff.html"
    assert f"4 examples of train before and after, {page}\n" in text
    html = page.read_text()
    assert html.count("<img") == 4 * 2 * 3
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]+)<", html)
    views = [f"{path}, {side}" for path in STEPS for side in ("before", "after", "difference")]
    assert heads == ["example", *views]
    assert "transform.decode" not in html
    assert "transform.resize.method bilinear -&gt; area" in html


def test_a_diff_shows_how_far_its_images_are_apart_and_gives_the_mean(tiny: Path) -> None:
    old, new = (plan_of(*emulated(tiny, f"transform.resize.method={method}")) for method in ("bilinear", "area"))
    views = compared(*(first_examples(plan, "train", 2) for plan in (old, new))).views
    resized, scaled = views[:3], views[3:]
    for (one, other, apart), factor in ((resized, 1.0), (scaled, 1 / 127.5)):
        assert apart.name == "difference"
        for before, after, cell in zip(one.cells, other.cells, apart.cells, strict=True):
            expected = np.abs(np.asarray(after["image"], float) - np.asarray(before["image"], float))
            assert np.array_equal(cell["image"], expected)
            assert cell["mean difference"] == pytest.approx(expected.mean(), abs=1e-4)
        assert apart.ends("image") == pytest.approx((0.0, factor * (resized[2].ends("image") or (0, 0))[1]))


def test_images_of_other_sizes_have_no_difference(tiny: Path) -> None:
    old, new = (plan_of(*emulated(tiny, f"transform.resize.size=[{side},{side}]")) for side in (16, 32))
    assert [view.name for view in compared(*(first_examples(plan, "train", 2) for plan in (old, new))).views] == [
        "before",
        "after",
    ] * 2


def test_a_diff_without_images_says_why(told: Any, tiny: Path, tmp_path: Path) -> None:
    def images(*overrides: str) -> Any:
        text = told(*sides(tiny, *overrides), "--show", str(tmp_path / "images"), "--format", "json")
        return json.loads(text)["experiments"][0]["images"]

    assert images("load.prefetch=1") is None
    missing = images("dataset.name=mnist")
    assert missing["text"].startswith("none, since dataset.data_dir: found no mnist/")
    same = images("transform.decode.fast=true", "transform.resize.dtype=uint8")
    assert same["text"] == "4 examples of train before and after"
    assert images("'dataset.eval_split=\"train[:9]\"'")["text"] == "4 examples of validation before and after"
    assert "begin with different examples" in (tmp_path / "images" / "diff.html").read_text()


def test_nothing_is_written_if_nothing_differs(told: Any, tiny: Path, tmp_path: Path) -> None:
    text = told(*sides(tiny, "dataset.on_corrupt=skip"), "--show", str(tmp_path / "images"))
    assert "\n  images: none, since the first 4 examples of train do not differ\n" in text
    assert not (tmp_path / "images").exists()
