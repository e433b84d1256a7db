"""The page of examples in a real browser, and the images of a diff."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from etlrun.datasets.examine.compare import before_and_after
from tests.configs import plan_of
from tests.pages import chromium, colour, contrast, opened, screen
from tests.readers import ran
from tests.runs import emulated

STEPS = ("transform.resize", "transform.scale_minus_one_one")
EVIL = "<script>alert(1)</script>"
LOADED = "return [...document.images].every((image) => image.complete && image.naturalWidth > 0)"


@pytest.fixture(scope="module")
def page(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Chrome, Path]]:
    """Three examples of each of two batches; the flip and the scaling in two passes."""
    folder = tmp_path_factory.mktemp("shown")
    steps = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
    words = [*emulated(tiny, steps, "load.batch_size=8", "cache=none"), f"+measure.silence={{serial_map: '{EVIL}'}}"]
    status, text = ran(["show", "--batches", "2", "--examples", "3", "--passes", "2", *words], folder)
    assert status == 0, text
    with chromium() as browser:
        yield browser, folder / "show.html"


def test_rows_are_examples_and_columns_are_steps(page: tuple[Chrome, Path]) -> None:
    browser, path = page
    with opened(browser, path):
        heads = [head.text.split("\n")[0] for head in browser.find_elements(By.CSS_SELECTOR, "thead th")]
        assert heads == [
            "example", "transform.parse", "transform.decode", "transform.resize", "transform.random_flip, pass 1",
            "transform.random_flip, pass 2", "transform.scale_minus_one_one, pass 1",
            "transform.scale_minus_one_one, pass 2",
        ]  # fmt: skip
        rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
        assert [len(row.find_elements(By.CSS_SELECTOR, "th, td")) for row in rows] == [8] * 6
        targets, places = zip(*(row.find_element(By.TAG_NAME, "th").text.split(", ", 1) for row in rows), strict=True)
        assert [*places] == [f"batch {batch}, example {example}" for batch in (1, 2) for example in (1, 2, 3)]
        assert browser.execute_script(LOADED) is True
        images = browser.find_elements(By.TAG_NAME, "img")
        alts = [str(image.get_attribute("alt")) for image in images]
        assert (len(images), len({*alts})) == (42, 42)
        assert alts[4] == f"image after transform.random_flip, pass 2, {targets[0]}, {places[0]}"
        assert browser.find_element(By.CLASS_NAME, "note").text.endswith("is shown in 2 passes.")
        assert EVIL in browser.find_element(By.TAG_NAME, "footer").text
        assert browser.find_elements(By.TAG_NAME, "script") == []


def test_it_is_readable_in_light_and_in_dark_and_a_phone_scrolls_its_table(page: tuple[Chrome, Path]) -> None:
    browser, path = page
    with opened(browser, path):
        papers = set()
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            papers.add(paper := colour(browser, "body", "backgroundColor"))
            for what in ("h1", ".note", "figcaption"):
                assert contrast(colour(browser, what, "color"), paper) >= 4.5, (scheme, what)
            for what in ("thead th", "thead small"):
                behind = colour(browser, what.split()[0] + " th", "backgroundColor")
                assert contrast(colour(browser, what, "color"), behind) >= 4.5, (scheme, what)
        assert len(papers) == 2
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(390))
        root = "document.documentElement"
        assert browser.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") == 0


def sides(tiny: Path, *overrides: str) -> list[str]:
    """The arguments of a diff of a run on the tiny dataset and the same with these overrides."""
    words = emulated(tiny, "load.batch_size=8")
    return [" ".join(words), " ".join([*words, *overrides])]


def test_a_diff_shows_the_steps_whose_examples_differ(told: Any, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "of it"
    text = told(*sides(tiny, "transform.resize.method=area"), "--show", str(folder), "--format", "markdown")
    page, image = folder / "diff.html", folder / "diff.png"
    link, name = str(folder).replace(" ", "%20"), "4 examples of train before and after"
    assert f"\n[{name}]({link}/diff.html)\n\n![{name}]({link}/diff.png)\n" in text
    html = page.read_text()
    assert html.count("<img") == 4 * 2 * 3
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]+)<", html)
    views = [f"{path}, {side}" for path in STEPS for side in ("before", "after", "difference")]
    assert heads == ["example", *views]
    assert "transform.decode" not in html
    assert "transform.resize.method bilinear -&gt; area" in html
    with Image.open(image) as shown:
        assert shown.width > 4 * 160


def test_a_diff_shows_how_far_its_images_are_apart_and_gives_the_mean(tiny: Path) -> None:
    old, new = (plan_of(*emulated(tiny, f"transform.resize.method={method}")) for method in ("bilinear", "area"))
    resized, scaled = before_and_after(old, new, "train", 2).columns
    for column, factor in ((resized, 1.0), (scaled, 1 / 127.5)):
        one, other, apart = column.views
        assert apart.name == "difference"
        for before, after, cell in zip(one.cells, other.cells, apart.cells, strict=True):
            expected = np.abs(np.asarray(after["image"], float) - np.asarray(before["image"], float))
            assert np.array_equal(cell["image"], expected)
            assert cell["mean difference"] == pytest.approx(expected.mean(), abs=1e-4)
        assert apart.ends("image") == pytest.approx((0.0, factor * (resized.views[2].ends("image") or (0, 0))[1]))


def test_images_of_other_sizes_have_no_difference(tiny: Path) -> None:
    old, new = (plan_of(*emulated(tiny, f"transform.resize.size=[{side},{side}]")) for side in (16, 32))
    assert [[view.name for view in column.views] for column in before_and_after(old, new, "train", 2).columns] == [
        ["before", "after"]
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
