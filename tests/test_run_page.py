"""The page of a run: what it shows of the folder's files, and what it makes of files that are odd, hostile or old."""

import json
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from etlrun.cli.main import main
from etlrun.record import page as pages
from etlrun.record.boxes import boxes
from etlrun.record.charts import MOST_BARS, MOST_POINTS, Line, bars, curves
from etlrun.record.locks import nobodys
from etlrun.record.summary import Summary, read_summary
from tests.pages import colour, contrast, opened, screen
from tests.run_pages import PIXEL, PLAN, STAGES, course, epoch, whole

EVIL = "</pre></style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def html(folder: Path) -> str:
    text = pages.html(folder)
    assert text is not None
    return text


def summary_of(folder: Path) -> Summary:
    summary = read_summary(folder)
    assert summary is not None
    return summary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "run"
    whole(folder)
    pages.write(folder)
    return folder


@pytest.fixture
def page(browser: Chrome, folder: Path) -> Iterator[Chrome]:
    with opened(browser, folder / "report.html"):
        yield browser


def test_the_result_is_on_top_and_then_the_verdict_with_its_evidence(page: Chrome) -> None:
    assert page.find_element(By.TAG_NAME, "h1").text == "Val accuracy 0.25, val loss 1 in epoch 3"
    verdict = "Input-bound at transform.map: training at most 2.50x faster with an ideal input pipeline"
    assert page.find_element(By.ID, "verdict").text == verdict
    assert page.find_element(By.ID, "because").text == "It waits."
    assert page.find_element(By.ID, "advice").text == "Try a cache."
    assert page.find_element(By.ID, "command").text == "python -m etlrun load.prefetch=1 'dataset.name=a b'"


def test_the_stages_stand_in_order_with_cost_and_share_and_the_slowest_is_marked(page: Chrome) -> None:
    assert [box.text.split("\n") for box in page.find_elements(By.CSS_SELECTOR, ".stages li")] == [
        ["extract.interleave", "1.000 ms per example", "25 % of the cost", "4 threads"],
        ["transform.map", "limits the run", "3.000 ms per example", "75 % of the cost", "1 thread", "transform.decode"],
        ["load.batch"],
        ["model", "12.50 ms per step with a batch that is ready"],
    ]


def test_facts_charts_images_notes_and_evaluations_are_there(page: Chrome) -> None:
    facts = page.find_element(By.CSS_SELECTOR, "dl.facts").text
    assert "dataset\npets/1.0.0: 8 train, 2 validation examples in 1 file, 2.0 MB" in facts
    assert "classes\n2: cat, dog" in facts
    assert "apart\nvalidation waited 1.00 of 4.00 s: 1.33x without" in facts
    charts = [str(chart.get_attribute("aria-label")) for chart in page.find_elements(By.CSS_SELECTOR, "svg[role=img]")]
    assert charts == [
        "loss. train: 2 to 0.6667, minimum 0.6667, maximum 2; validation: 3 to 1, minimum 1, maximum 3",
        "accuracy. train: 0.5 to 0.5, minimum 0.5, maximum 0.5; validation: 0.25 to 0.25, minimum 0.25, maximum 0.25",
        "seconds. 3 in all: computing 15.0, waiting for input 9.0, start-up 6.0, validation 12.0",
        "memory, MB. process: 100 to 300, minimum 100, maximum 300",
        "CPU, cores in use. process: 1 to 0.5, minimum 0.5, maximum 1.5",
    ]
    image = page.find_element(By.CSS_SELECTOR, ".images img")
    assert (image.get_attribute("src"), image.get_property("naturalWidth")) == (PIXEL, 1)
    assert page.find_element(By.CSS_SELECTOR, ".images figcaption").text == "cat"
    (link,) = page.find_elements(By.TAG_NAME, "a")
    assert (link.text, link.get_dom_attribute("href")) == ("validation", "evaluations/validation.html")
    assert "Only a test." in page.find_element(By.CSS_SELECTOR, "section[aria-labelledby=notes-title]").text
    assert page.find_elements(By.TAG_NAME, "script") == []


def test_text_is_readable_in_light_and_in_dark_and_a_phone_does_not_scroll_sideways(page: Chrome) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        papers.add(colour(page, "body", "backgroundColor"))
        for what in ("h1", ".over", ".note", ".status", "a", ".legend", ".facts dt", "#epochs td", "figcaption"):
            assert contrast(colour(page, what, "color"), colour(page, "body", "backgroundColor")) >= 4.5, (scheme, what)
        for what in (".stages .mark", ".stages span"):
            assert contrast(colour(page, what, "color"), colour(page, ".stages li", "backgroundColor")) >= 4.5
        assert contrast(colour(page, "svg text", "fill"), colour(page, "body", "backgroundColor")) >= 4.5
    assert len(papers) == 2
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(390))
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(width) == 0


def test_the_page_is_made_again_from_the_folder_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    main(["report", str(folder)])
    assert (folder / "report.html").read_text() == before
    assert capsys.readouterr().out.endswith(f"report    {folder}/report.html\n")


def test_a_page_that_cannot_be_written_is_no_reason_to_print_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole(tmp_path / "run")
    (tmp_path / "run" / "report.html").mkdir()
    main(["report", str(tmp_path / "run")])
    printed = capsys.readouterr()
    assert "status    completed" in printed.out
    assert printed.err == f"etlrun: {tmp_path}/run/report.html is as it was: Is a directory\n"


def test_a_run_that_goes_on_says_so_and_a_killed_one_too(tmp_path: Path) -> None:
    record = course(tmp_path, epoch(1), status="running")
    os.utime(tmp_path / "summary.json", (0, 86_400))
    with nobodys(tmp_path):
        text = html(tmp_path)
        assert '<span class="status running">running</span>, as of 1970-01-02 00:00:00 UTC' in text
        assert '<meta http-equiv="refresh" content="5">' in text
    assert '<span class="status killed">killed</span>, as of 1970-01-02 00:00:00 UTC' in html(tmp_path)
    record.update(status="failed", error="the run: found a test; expected none")
    text = html(tmp_path)
    assert '<pre id="error">the run: found a test; expected none</pre>' in text
    assert "as of" not in text
    assert "refresh" not in text
    assert "<h1>Val accuracy 0.25, val loss 3 in epoch 1</h1>" in text
    record.update(kept={"epoch": 1, "monitor": "val_loss", "value": 3.0})
    assert '</h1>\n<p id="kept">Kept: epoch 1 (val loss 3)</p>' in html(tmp_path)
    record.update(epochs=[], kept=None)
    assert "<h1>Failed, 0 epochs</h1>" in html(tmp_path)


def test_what_files_say_stays_text(tmp_path: Path) -> None:
    record = whole(tmp_path / "run")
    folder = record.folder
    (folder / "config.yaml").write_text(EVIL)
    (folder / "plan.json").write_text(json.dumps({"train": [{"stage": EVIL, "steps": [{"stage": EVIL}]}]}))
    (folder / "thumbnails.json").write_text(json.dumps([{"url": PIXEL, "target": EVIL}]))
    (folder / "evaluations" / f"{EVIL.replace('/', '')}.json").write_text("{}")
    (folder / "evaluations" / f"{EVIL.replace('/', '')}.html").write_text("")
    record.update(
        overrides=[EVIL], remarks=[EVIL], error=EVIL, resumed_from=EVIL, versions={EVIL: EVIL}, config_dir=EVIL,
        verdict={"kind": "input", "stage": EVIL, "because": EVIL, "advice": EVIL},
        stages=[{**STAGES[0], "stage": EVIL}], skipped={EVIL: 1},
        dataset={"name": EVIL, "examples": {EVIL: 1}, "classes": [EVIL]},
        host={"device": EVIL, "cores": 1, "system": EVIL}, cache={"target": EVIL, "at": EVIL, "pipelines": {EVIL: {}}},
    )  # fmt: skip
    text = html(folder)
    assert not re.search(r"<script|<img src=x|[\"']>\s*<img src=x|onerror=alert\(1\)>(?!&)", text.replace("&gt;", "&"))
    assert text.count("</style>") == 1
    assert text.count("&lt;script&gt;") > 15


@pytest.mark.parametrize(
    "url", ["https://example.com/a.png", "javascript:alert(1)", f"{PIXEL}\n", 'data:image/png;base64,"']
)
def test_an_image_that_is_no_data_url_is_left_out(tmp_path: Path, url: str) -> None:
    record = whole(tmp_path / "run")
    (record.folder / "thumbnails.json").write_text(json.dumps([{"url": url, "target": "cat"}]))
    assert "<img" not in html(record.folder)


def test_a_loss_that_is_nan_is_a_gap_with_a_note(tmp_path: Path) -> None:
    losses = [1.0, "NaN", 2.0, "Infinity"]
    course(tmp_path, *(epoch(number + 1, loss=loss) for number, loss in enumerate(losses)))
    text = html(tmp_path)
    assert "<figcaption>train loss: not a finite number in 2 of 4 epochs, first in 2.</figcaption>" in text
    assert text.count('<circle class="dot first"') == 2
    assert not re.search(r'd="[^"]*(nan|inf)', text)


def test_a_loss_that_never_was_a_number_is_told_without_a_chart(tmp_path: Path) -> None:
    course(tmp_path, epoch(1, loss="NaN", val_loss=None))
    assert "train loss: not a finite number in 1 of 1 epochs, first in 1. validation loss: not a" in html(tmp_path)


def test_metrics_have_charts_as_loss_and_accuracy_have(tmp_path: Path) -> None:
    measured = [{"f1": 0.25, "val_f1": 0.5, "top_2_accuracy": 1.0}, {"f1": 0.5, "val_f1": "NaN", "top_2_accuracy": 1.0}]
    course(tmp_path, *(epoch(number, metrics=metrics) for number, metrics in enumerate(measured, 1)))
    text = html(tmp_path)
    assert re.findall(r"<h3>(.*)</h3>", text)[:4] == ["loss", "accuracy", "f1", "top 2 accuracy"]
    assert "f1. train: 0.25 to 0.5, minimum 0.25, maximum 0.5; validation: 0.5 to 0.5, minimum 0.5, maximum 0.5" in text
    assert "validation f1: not a finite number in 1 of 2 epochs, first in 2." in text
    assert "top 2 accuracy. train: 1 to 1, minimum 1, maximum 1; validation: no value" in text


def test_one_epoch_is_drawn_as_dots(tmp_path: Path) -> None:
    course(tmp_path, epoch(1))
    assert re.findall(r'<circle class="dot (\w+)"', html(tmp_path)) == ["first", "second"] * 2


def test_a_pipeline_without_a_model_has_no_loss_and_no_validation(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("loss", "val_loss", "accuracy", "val_accuracy", "validation_s"))
    values = {key: value for key, value in epoch(1).model_dump(exclude_unset=True).items() if key not in nothing}
    course(tmp_path, type(epoch(1))(**values))
    text = html(tmp_path)
    assert "Loss and metrics" not in text
    assert "computing 5.0, waiting for input 3.0, start-up 2.0, validation 0.0" in text
    assert '<span class="fourth">' not in text


def test_a_run_without_an_epoch_and_an_old_summary_have_a_page(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "completed", "overrides": []}')
    text = html(tmp_path)
    assert "<h1>Completed, 0 epochs</h1>" in text
    assert not any(mark in text for mark in ("<svg", "<img", "<table", "<details"))
    assert pages.html(tmp_path / "none") is None
    pages.write(tmp_path / "none")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"train": 3}', '{"train": [3]}', '{"train": [{"steps": 1}]}'])
def test_a_plan_and_events_that_cannot_be_read_are_left_out(tmp_path: Path, text: str) -> None:
    course(tmp_path, epoch(1))
    (tmp_path / "plan.json").write_text(text)
    (tmp_path / "events.jsonl").write_text(
        f'{text}\n{{"event": "stages", "pipeline": "train", "stages": {text or 1}}}\n'
    )
    assert boxes(tmp_path, summary_of(tmp_path)) == ("train", [])


def test_until_the_verdict_the_costs_are_those_of_the_last_epoch(tmp_path: Path) -> None:
    record = course(tmp_path, epoch(1), status="running")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    for cost_ms in (9.0, 3.0):
        record.event("stages", pipeline="train", stages=[{**STAGES[1], "cost_ms": cost_ms}])
    record.event("stages", pipeline="validation", stages=[{**STAGES[1], "cost_ms": 7.0}])
    _, found = boxes(tmp_path, summary_of(tmp_path))
    assert [(box.name, box.cost_ms, box.mark) for box in found] == [
        ("extract.interleave", None, ""), ("transform.map", 3.0, "slowest"), ("load.batch", None, ""),
    ]  # fmt: skip


def test_a_long_run_with_long_texts_has_a_small_page_that_is_made_at_once(tmp_path: Path) -> None:
    record = whole(tmp_path / "run")
    long = {"overrides": ["x=" + "y" * 10**5], "remarks": ["z" * 10**4] * 100, "error": "e" * 10**5}
    usage = {"at_s": [*map(float, range(300))], "rss_bytes": [10**9 + 7 * n for n in range(300)], "cores": [1.25] * 300}
    many = [f"{of}top_{number}_accuracy" for of in ("", "val_") for number in range(2, 22)]
    epochs = [
        epoch(number, loss=math.sin(number), metrics=dict.fromkeys(many, math.cos(number))) for number in range(1, 2001)
    ]
    record.update(epochs=epochs, usage=usage, **long, dataset={"name": "d", "classes": ["c" * 99] * 1000})
    (record.folder / "config.yaml").write_text("k: v\n" * 10**4)
    assert len(html(record.folder).encode()) < 200_000
    began_s = time.process_time()
    html(record.folder)
    assert time.process_time() - began_s < 1.0


def test_a_chart_says_what_it_leaves_out() -> None:
    points = [(float(x), float(x)) for x in range(1, 1002)]
    chart = curves("loss", "epoch", [Line("train", "first", points)])
    assert chart is not None
    assert chart.note == "251 of 1,001 points are drawn."
    assert chart.svg.count("L") + chart.svg.count("M") - chart.svg.count("M60 ") == 251 <= MOST_POINTS
    stacked = bars("seconds", "epoch", [("a", "first")], [[1.0]] * 1000)
    assert stacked is not None
    assert stacked.note == "A bar is the mean of 10 of 1,000."
    assert stacked.svg.count("z") == MOST_BARS


@pytest.mark.parametrize("values", [[0.0], [1e299, -1e299], [1e-320, 2e-320], [5.0, 5.0], [1e308, 1.0], [1e9, 1e9 + 1]])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    points: list[Any] = [*enumerate(values, 1)]
    for from_zero in (False, True):
        chart = curves("loss", "epoch", [Line("train", "first", points)], from_zero=from_zero)
        assert chart is not None
        assert not re.search("nan|inf", chart.svg)
