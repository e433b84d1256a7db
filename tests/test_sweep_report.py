"""The report of a sweep: its table on terminals and in Markdown, its page, and what other programs read of it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from etlrun.report.doc import Chart, Table
from etlrun.report.render import RENDER
from etlrun.results import report
from etlrun.results.report import collect
from etlrun.results.results import Results
from tests.golden import Says
from tests.pages import opened
from tests.present import present
from tests.runs import emulated
from tests.sweeps import ended
from tests.test_fills import ledger_of, summaries

EVIL = "<script>alert(1)</script>"
WIDE = ("extract.num_parallel_calls=1,2", "transform.num_parallel_calls=1,2", "cache=none,memory")
KEYS = {
    "config": "number", "examples/s": "examples_per_s", "first epoch": "first_examples_per_s", "MB": "peak_rss_bytes",
    "cores": "cores_used", "au": "au", "max gain": "max_gain", "seconds": "wall_s", "status": "status",
    "bound by": "bound_by", "fill s": "fill_s",
}  # fmt: skip


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
    return present(collect(swept))


@pytest.fixture(scope="module")
def parts(collected: Results) -> dict[str, Any]:
    """The parts of the document by their titles, or by their classes."""
    return {part.title or type(part).__name__: part for part in report.of_sweep(collected).parts}


def recommended_in(results: dict[str, Any]) -> int | None:
    """The number of the recommended config; None where noise leaves it open."""
    decision = results["decision"]
    return decision["config"] if decision["is_certain"] else None


def test_every_cell_is_what_results_json_says(parts: dict[str, Any], results: dict[str, Any], says: Says) -> None:
    table: Table = parts["Configs"]
    columns = {column.name: column for column, _ in table.filled()}
    says([*columns])
    recommended = recommended_in(results)
    for row, config in zip(table.rows, results["configs"], strict=True):
        exact = {name: columns[name].value(row) or None for name in KEYS}
        assert exact == {name: config[key] or None for name, key in KEYS.items()}
        cells = {name: column.cell(row) for name, column in columns.items()}
        assert cells["config"] == f"{config['number']}{'*' * (config['number'] == recommended)}"
        assert [cells[key.rpartition(".")[2]] for key in config["swept"]] == [*config["swept"].values()]
        assert cells["runs"] == str(len(config["runs"]))
        assert cells["reason"] == " ".join(config["error"].split())
    called = {row.number: columns["result"].cell(row) for row in table.rows}
    assert (called[0], [*called.values()][-1]) == ("baseline", "unknown")
    assert table.mark is not None
    assert [row.number for row in table.rows if table.mark(row)] == [recommended] * (recommended is not None)


def test_the_decision_is_on_top_and_the_noise_is_told(
    parts: dict[str, Any], results: dict[str, Any], collected: Results
) -> None:
    assert report.of_sweep(collected).title == results["decision"]["words"]
    assert parts["Notes"].each()[0].text == (
        f"noise of the machine: two runs of the baseline differ by {results['noise']['median']:.1%} median, "
        f"{results['noise']['largest']:.1%} maximum, over 3 pairs"
    )


def test_the_chart_shows_each_measured_config(parts: dict[str, Any], results: dict[str, Any]) -> None:
    chart: Chart = parts["Throughput against memory"]
    recommended = recommended_in(results)
    others = [of for of in results["configs"] if of["examples_per_s"] and of["number"] not in {0, recommended}]
    shown = {series.name: len(series.points) for series in chart.series}
    assert shown == {"other configs": len(others), "baseline": 1, "recommended": int(bool(recommended))}


def test_a_page_is_whole_in_a_browser_and_what_users_wrote_stays_text(
    browser: Chrome, swept: Path, results: dict[str, Any]
) -> None:
    with opened(browser, swept / "report.html"):
        assert browser.find_element(By.TAG_NAME, "h1").text == results["decision"]["words"]
        runs = [run for run in results["runs"] if run["outcome"]["status"] == "failed"]
        texts = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "table.sorted tbody tr")]
        assert any(EVIL in text and " ".join(runs[0]["outcome"]["error"].split()) in text for text in texts)
        assert EVIL in runs[0]["outcome"]["error"]
        assert len(browser.find_elements(By.TAG_NAME, "script")) == 1


def test_the_same_results_make_the_same_page(collected: Results, swept: Path) -> None:
    assert RENDER["html"](report.of_sweep(collected)) == (swept / "report.html").read_text()
    assert json.loads(RENDER["json"](report.of_sweep(collected))) == json.loads((swept / "results.json").read_text())


def test_a_large_sweep_says_what_its_page_leaves_out(collected: Results) -> None:
    best = replace(collected.configs[0], runs=("0",))
    large = replace(
        collected,
        decision=replace(collected.decision, config=0),
        configs=tuple(replace(best, number=number) for number in range(4001)),
    )
    text = RENDER["html"](report.of_sweep(large))
    assert "2,000 of 4,000 points of other configs are drawn." in text
    assert text.count("data-words=") == 4001
    assert len(text) < 5e6


def test_a_sweep_without_a_completed_run_has_a_page(swept: Path, tmp_path: Path) -> None:
    for name in ("sweep.json", "configs.jsonl"):
        shutil.copy(swept / name, tmp_path)
    empty = present(collect(tmp_path))
    text = RENDER["html"](report.of_sweep(empty))
    assert "<h1>No comparable run has completed.</h1>" in text
    assert "<dt>not run yet</dt><dd>0, 0.1, 0.2, 0.3, 0.4, 0.5, 1, 1.1, 1.2, 2, 2.1, 2.2</dd>" in text
    assert "<svg" not in text


def wide() -> Results:
    """Of eight configs; the second of two values is faster."""
    ledger = ledger_of("extract.cycle_length=2", *WIDE, "load.prefetch=1")
    factors = {"extract": 1.1, "transform": 1.5, "cache": 3.0}
    rates = {}
    for config in ledger.configs:
        at = [word.partition("=") for word in config.overrides]
        second = [
            factors[key.partition(".")[0]] for key, _, value in at if value in {"2", "memory"} and "cycle" not in key
        ]
        rate = 1000.0
        for factor in second:
            rate *= factor
        rates[str(config.number)] = (rate, 0.0)
    return summaries(ledger, rates)


def printed(results: Results) -> list[str]:
    return RENDER["text"](report.of_sweep(results)).splitlines()


def test_each_swept_key_is_a_narrow_column_of_its_own(says: Says) -> None:
    results = wide()
    says([column.name for column in report.columns_of(results)][:5])
    lines = printed(results)
    says(re.split(r"  +", lines[0].strip())[:5])
    assert lines[1].split()[:5] == ["7", "2", "2", "memory", "4,950.0"]
    assert len(lines[1:9]) == 8
    assert all(re.match(r" +\d ", line) for line in lines[1:9])
    assert "| config | extract.num_parallel_calls | transform.num_parallel_calls | cache | status |" in (
        RENDER["md"](report.of_sweep(results))
    )
    assert not any(name in lines[0].split() for name in ("status", "runs", "accuracy", "data"))  # equal in all rows
    assert "status" in printed(summaries(ledger_of("load.prefetch=1"), {"0": (1000.0, 0)}))[0]
    short = report._short(["load.prefetch", "a.b.size", "c.b.size", "+x.seconds"], ["seconds", "data"])
    assert [*short.values()] == ["prefetch", "a.b.size", "c.b.size", "x.seconds"]


def test_too_few_runs_have_no_star_and_no_gain_in_large_letters() -> None:
    results = wide()
    assert results.decision.words.startswith("Fastest: ")
    text = RENDER["html"](report.of_sweep(results))
    assert not any("*" in line.split()[0] for line in printed(results)[:9])
    assert "gain over the baseline" not in text
    assert 'class="chosen"' not in text
    assert "is the recommended config" not in text
