"""The page of a sweep, of real runs and in a real browser."""

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from etlrun.results import page as pages
from etlrun.results.collect import collect
from etlrun.results.results import Results
from tests.pages import (
    KEYS,
    colour,
    contrast,
    heads,
    hparams_of,
    opened,
    screen,
    shown,
    stage_texts,
    stages,
    texts,
    value,
)
from tests.runs import emulated
from tests.sweeps import ended

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """A sweep of three configs, three times each; the dataset of one is not there, and has a name to be wary of."""
    folder = tmp_path_factory.mktemp("page") / "sweep"
    words = emulated(
        tiny,
        "model.step_ms=1",
        "trainer.epochs=2",
        "cache=none,memory",
        "load.shuffle_buffer=16,8",
        f"dataset.name=tiny_pictures,'{EVIL}'",
        "sweep.exclude=['cache=memory dataset.name!=tiny_pictures']",
        "sweep.zip=[[cache,load.shuffle_buffer]]",
        "sweep.repeats=3",
    )
    assert ended([*words, f"hydra.sweep.dir={folder}"]) == 1
    return folder


@pytest.fixture(scope="module")
def results(swept: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((swept / "results.json").read_text())
    return read


@pytest.fixture(scope="module")
def collected(swept: Path) -> Results:
    found = collect(swept)
    assert found is not None
    return found


@pytest.fixture
def page(browser: Chrome, swept: Path) -> Iterator[Chrome]:
    with opened(browser, swept / "report.html"):
        yield browser


def test_the_decision_is_on_top_with_its_gain_and_its_data(page: Chrome, results: dict[str, Any]) -> None:
    decision = results["decision"]
    assert page.find_element(By.TAG_NAME, "h1").text == decision["words"]
    facts = page.find_element(By.CLASS_NAME, "facts").text
    gain = decision["gain"]
    is_baseline = decision["config"] == 0
    interval = "it is the baseline" if is_baseline else f"{gain['low']:.2f} to {gain['high']:.2f}, 95 % "
    assert f"{gain['ratio']:.2f}\N{MULTIPLICATION SIGN}\n{interval}" in facts
    assert facts.endswith(f"{decision['same_data'][0].upper()}{decision['same_data'][1:]}.")


def test_the_copied_overrides_are_the_recommended_ones(page: Chrome, results: dict[str, Any]) -> None:
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.execute_cdp_cmd("Browser.grantPermissions", grant)
    page.find_element(By.ID, "copy").send_keys(Keys.ENTER)
    words = page.find_element(By.ID, "words")
    words.send_keys(Keys.CONTROL, "v")
    assert shlex.split(str(words.get_attribute("value"))) == results["decision"]["overrides"]
    assert page.find_element(By.ID, "copied").text == "Copied"


def test_every_cell_is_what_results_json_says(page: Chrome, results: dict[str, Any]) -> None:
    names = [head.text.rstrip(" ↑↓") for head in heads(page)]
    assert names == [
        "config", "cache", "shuffle_buffer", "name", "status", "runs", "examples/s", "first epoch", "fill s",
        "with fill", "gain", "result", "MB", "cores", "au", "bound by", "max gain", "seconds", "reason",
    ]  # fmt: skip
    rows = page.find_elements(By.CSS_SELECTOR, "#configs tbody tr")
    assert [row.get_attribute("data-config") for row in rows] == [str(of["number"]) for of in results["configs"]]
    for row, config in zip(rows, results["configs"], strict=True):
        cells = dict(zip(names, row.find_elements(By.CSS_SELECTOR, "th, td"), strict=True))
        exact = {name: config[key] for name, key in KEYS.items()}
        exact |= {"gain": config["gain"]["ratio"], "runs": len(config["runs"])}
        assert {name: value(cells[name]) for name in exact} == exact
        assert {name: cell.text for name, cell in cells.items()} == texts(config, results)


def test_columns_are_sorted_with_the_keyboard_by_their_exact_figures(page: Chrome, results: dict[str, Any]) -> None:
    page.find_element(By.ID, "result").send_keys(Keys.TAB, Keys.TAB)
    for name, key in (("gain", Keys.ENTER), ("MB", Keys.SPACE)):
        while page.switch_to.active_element.text.rstrip(" ↑↓") != name:
            page.switch_to.active_element.send_keys(Keys.TAB)
        for order in ("ascending", "descending"):
            page.switch_to.active_element.send_keys(key)
            (head,) = page.find_elements(By.CSS_SELECTOR, "#configs th[aria-sort]")
            assert (head.text[: len(name)], head.get_attribute("aria-sort")) == (name, order)
            of = {
                config["number"]: config["gain"]["ratio"] if name == "gain" else config["peak_rss_bytes"]
                for config in results["configs"]
            }
            known = sorted((number for number in of if of[number] is not None), key=lambda number: of[number])
            unknown = [number for number in of if of[number] is None]
            assert shown(page) == (known if order == "ascending" else known[::-1]) + unknown
    assert len(known) == 2


def test_rows_are_filtered_by_words_and_by_result(page: Chrome, results: dict[str, Any]) -> None:
    words, said = page.find_element(By.ID, "words"), page.find_element(By.ID, "shown")
    words.send_keys("completed CACHE=mem")
    memory = [of["number"] for of in results["configs"] if "cache=memory" in of["overrides"]]
    assert (shown(page), said.text) == (memory, "1 of 3 configs")
    assert said.get_attribute("aria-live") == "polite"
    words.send_keys(" nowhere")
    assert (shown(page), said.text) == ([], "0 of 3 configs")
    words.clear()
    Select(page.find_element(By.ID, "result")).select_by_visible_text("baseline")
    assert (shown(page), said.text) == ([0], "1 of 3 configs")


def test_the_stage_tables_of_any_two_runs_stand_side_by_side(page: Chrome, results: dict[str, Any]) -> None:
    runs = {run["name"]: run for run in results["runs"]}
    left, right = page.find_elements(By.CLASS_NAME, "side")
    assert stages(left) == stage_texts(runs["0"])
    assert stages(right) == stage_texts(runs[str(results["decision"]["config"])])
    memory = next(of for of in results["configs"] if "cache=memory" in of["overrides"])["runs"][1]
    for side, name in ((left, memory), (right, "0.5")):
        select = Select(side.find_element(By.TAG_NAME, "select"))
        (option,) = [option.text for option in select.options if option.text.startswith(f"{name}: ")]
        select.select_by_visible_text(option)
        assert side.find_element(By.CLASS_NAME, "label").text == option
    assert stages(left) == stage_texts(runs[memory])
    assert stages(right) == stage_texts(runs["0.5"])
    absent = right.find_element(By.CLASS_NAME, "absent")
    assert absent.text == "cache.memory not in this run"
    assert left.find_element(By.XPATH, ".//tr[th='cache.memory']").rect["y"] == absent.rect["y"]


def test_what_failed_is_told_in_full_and_what_users_wrote_stays_text(page: Chrome, results: dict[str, Any]) -> None:
    (failed,) = page.find_elements(By.CSS_SELECTOR, "#unfinished article")
    names = [run["name"] for run in results["runs"] if run["outcome"]["status"] == "failed"]
    assert failed.find_element(By.TAG_NAME, "h3").text.split("\n") == [
        ", ".join(names), "failed", f"cache=none load.shuffle_buffer=16 dataset.name='{EVIL}'",
    ]  # fmt: skip
    reason = failed.find_element(By.TAG_NAME, "pre")
    (error,) = {run["outcome"]["error"] for run in results["runs"] if run["name"] in names}
    assert EVIL in error
    assert reason.get_property("textContent") == error
    assert reason.value_of_css_property("white-space") == "pre-wrap"
    assert len(page.find_elements(By.TAG_NAME, "script")) == 2


def test_the_plots_show_each_measured_config_and_tell_what_they_show(page: Chrome, results: dict[str, Any]) -> None:
    plots = page.find_elements(By.CSS_SELECTOR, "svg[role=img]")
    told = [str(plot.get_attribute("aria-label")) for plot in plots]
    assert [text.partition(".")[0] if text[:6] != "Median" else text.rpartition(". ")[0] for text in told] == [
        "Throughput against memory", "Median examples/s by cache", "Median examples/s by load.shuffle_buffer",
        "Epochs over time",
    ]  # fmt: skip
    texts = {text.text for text in plots[0].find_elements(By.TAG_NAME, "text")}
    measured = {str(of["number"]) for of in results["configs"] if of["examples_per_s"]}
    assert measured | {f"ideal input pipeline: {results['ceiling_examples_per_s']:,.0f}", "frontier"} <= texts
    epochs = sum(len(run["outcome"]["epochs"]) for run in results["runs"])
    dots = len(plots[3].find_elements(By.CLASS_NAME, "dot"))
    assert (
        dots - len({mark.get_attribute("class") for mark in plots[3].find_elements(By.CLASS_NAME, "dot")}) == 2 * epochs
    )
    assert told[3].startswith(f"Epochs over time. {epochs} epochs over ")


def test_the_noise_of_the_machine_is_told(page: Chrome, results: dict[str, Any]) -> None:
    noise = results["noise"]
    section = page.find_element(By.CSS_SELECTOR, "section[aria-labelledby=noise-title]")
    assert section.text.startswith(
        f"Noise of the machine\nTwo runs of the baseline differ by {noise['median']:.1%} median, "
        f"{noise['largest']:.1%} maximum, over 3 pairs."
    )


def test_text_is_readable_in_light_and_in_dark(page: Chrome) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        paper = colour(page, "body", "backgroundColor")
        papers.add(paper)
        for what in ("h1", ".note", "#configs td", ".result.baseline", "a", ".status", "#configs thead button"):
            assert contrast(colour(page, what, "color"), paper) >= 4.5, (scheme, what)
        assert contrast(colour(page, "svg text", "fill"), paper) >= 4.5
        assert contrast(colour(page, "#copy", "color"), colour(page, "#copy", "backgroundColor")) >= 4.5
    assert len(papers) == 2


def test_a_phone_scrolls_tables_and_not_the_page(page: Chrome) -> None:
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(width) == 0
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(390))
    assert page.execute_script(width) == 0
    box = "const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth"
    assert page.execute_script(box) is True


def test_paper_shows_all_rows_in_light_and_no_controls(page: Chrome) -> None:
    page.find_element(By.ID, "words").send_keys("nowhere")
    dark = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    controls = page.find_elements(By.CSS_SELECTOR, "input, select, #copy")
    assert (len(controls), any(control.is_displayed() for control in controls)) == (5, False)
    assert all(row.is_displayed() for row in page.find_elements(By.CSS_SELECTOR, "#configs tbody tr"))
    assert colour(page, "body", "backgroundColor") == (255, 255, 255)


def test_the_same_results_make_the_same_page(collected: Results, swept: Path) -> None:
    assert pages.html(collected) == (swept / "report.html").read_text()


def test_a_large_sweep_says_what_its_page_leaves_out(collected: Results) -> None:
    best = replace(collected.configs[0], runs=("0",))
    run = next(run for run in collected.runs if run.outcome and run.outcome.stages)
    numbers = range(4001)
    large = replace(
        collected,
        decision=replace(collected.decision, config=0),
        frontier=(0,),
        configs=tuple(replace(best, number=number, runs=(str(number),)) for number in numbers),
        runs=tuple(replace(run, name=str(number), config=number, repeat=0) for number in numbers),
    )
    text = pages.html(large)
    assert "1,334 of 4,001 configs are drawn. Only the frontier, the baseline and the recommended" in text
    assert "Available: the first completed run of each of the 500 fastest configs. 3,501 more stage tables" in text
    assert text.count("<tr data-config=") == 4001
    assert len(text) < 5e6


def test_a_sweep_without_a_completed_run_has_a_page(swept: Path, tmp_path: Path) -> None:
    for name in ("sweep.json", "configs.jsonl"):
        shutil.copy(swept / name, tmp_path)
    empty = collect(tmp_path)
    assert empty is not None
    text = pages.html(empty)
    assert "<h1>No comparable run has completed.</h1>" in text
    assert "<p>Not run yet: 0, 0.1, 0.2, 0.3, 0.4, 0.5, 1, 1.1, 1.2, 2, 2.1, 2.2.</p>" in text
    assert "<svg" not in text


def test_tensorboard_is_told_what_each_run_was_made_with_and_what_it_came_to(
    swept: Path, results: dict[str, Any]
) -> None:
    made_with = {of["number"]: of["swept"] for of in results["configs"]}
    for run in results["runs"]:
        folder, outcome = swept / run["name"] / "hparams", run["outcome"]
        assert folder.is_dir() == (outcome["status"] == "completed")
        if folder.is_dir():
            group, swept_values, metrics = hparams_of(folder)
            buffer = float(made_with[run["config"]]["load.shuffle_buffer"])
            assert group == f"config {run['config']}"
            assert swept_values == {**made_with[run["config"]], "load.shuffle_buffer": buffer}
            assert metrics == {key: pytest.approx(outcome[key]) for key in ("examples_per_s", "au", "peak_rss_bytes")}
