"""The table of a sweep, in the terminal and in Markdown, and what its page shows before it."""

import re

import pytest

from etlrun.results import heatmap, page, report, shown
from etlrun.results.results import Results
from tests.test_fills import ledger_of, summaries

WIDE = ("extract.num_parallel_calls=1,2", "transform.num_parallel_calls=1,2", "cache=none,memory")


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


def printed(results: Results, capsys: pytest.CaptureFixture[str]) -> list[str]:
    report._print(results)
    return capsys.readouterr().out.splitlines()


def test_each_swept_key_is_a_narrow_column_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    results = wide()
    assert shown.header(results)[:5] == [
        "config", "extract.num_parallel_calls", "transform.num_parallel_calls", "cache", "status",
    ]  # fmt: skip
    lines = printed(results, capsys)
    assert re.split(r"  +", lines[0].strip())[:5] == [
        "config", "extract.num_parallel_calls", "transform.num_parallel_calls", "cache", "examples/s",
    ]  # fmt: skip
    assert lines[1].split()[:5] == ["7", "2", "2", "memory", "4950.0"]
    assert len(lines[1:9]) == 8
    assert all(re.match(r" +\d ", line) for line in lines[1:9])
    assert "| config | extract.num_parallel_calls | transform.num_parallel_calls | cache | status |" in (
        report.markdown(results)
    )


def test_a_key_is_named_by_its_end_unless_that_is_another_column() -> None:
    assert shown._short(["load.prefetch", "a.b.size", "c.b.size", "+x.seconds"], ["seconds", "data"]) == [
        "prefetch", "a.b.size", "c.b.size", "x.seconds",
    ]  # fmt: skip


def test_the_terminal_leaves_out_columns_in_which_all_rows_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    results = wide()
    head = printed(results, capsys)[0]
    assert not any(name in head.split() for name in ("status", "runs", "accuracy", "data"))
    assert "| status |" in report.markdown(results)
    (only,) = printed(summaries(ledger_of("load.prefetch=1"), {"0": (1000.0, 0)}), capsys)[:1]
    assert "status" in only


def test_too_few_runs_have_no_star_and_no_gain_in_large_letters() -> None:
    results = wide()
    assert results.decision.words.startswith("Fastest: ")
    text = page.html(results)
    assert "*" not in "".join(row[0].text for row in shown.rows(results))
    assert "gain over the baseline" not in text
    assert 'class="chosen"' not in text
    assert "is the recommended config" not in text


def test_a_page_shows_charts_before_its_table() -> None:
    text = page.html(wide())
    places = [text.index(f'id="{name}-heading"') for name in ("effects", "pair")]
    assert [*places, text.index('id="configs-title"')] == sorted([*places, text.index('id="configs-title"')])
    assert '<th scope="col" class="text" title="extract.num_parallel_calls">' in text


def test_a_heat_map_has_the_two_keys_whose_values_together_differ_most() -> None:
    plot = heatmap.pair(wide())
    assert plot is not None
    figures = "1, memory: 3,150; 1, none: 1,050; 2, memory: 4,725; 2, none: 1,575"
    assert f'aria-label="Median examples/s by transform.num_parallel_calls and cache. {figures}"' in plot.svg
    assert plot.note == (
        "The two of 3 keys whose values together differ most. A cell is the median examples/s of its configs."
    )


def test_one_key_has_no_heat_map() -> None:
    assert heatmap.pair(summaries(ledger_of("load.prefetch=0,1"), {"0": (900.0, 0), "1": (1000.0, 0)})) is None
