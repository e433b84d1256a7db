"""What the runs of a sweep come to, from their summaries alone."""

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from etlrun.sweep.collect import collect
from etlrun.sweep.report import markdown
from etlrun.sweep.results import Results


def epoch(rate: float = 1000.0, **values: Any) -> dict[str, Any]:
    """An epoch of a second."""
    times = {"wall_s": 1.0, "startup_s": 0.0, "fill_wait_s": 0.0, "input_wait_s": 0.0}
    return {**times, "examples": rate, "startup_examples": 0, "examples_per_s": rate, **values}


def results_of(folder: Path, *summaries: dict[str, Any]) -> Results:
    """Of completed runs with these summaries, each of a config of its own."""
    for number, summary in enumerate(summaries):
        (folder / str(number)).mkdir()
        known = {"status": "completed", "overrides": [f"load.prefetch={number}"], "epochs": [epoch(), epoch()]}
        (folder / str(number) / "summary.json").write_text(json.dumps({**known, **summary}))
    found = collect(folder)
    assert found is not None
    return found


def saw(*digests: str) -> dict[str, Any]:
    """A run whose epochs have these digests, `training` or `training/validation`."""
    parts = [digest.partition("/") for digest in digests]
    return {"epochs": [epoch(digest=train, validation_digest=other) for train, _, other in parts]}


@pytest.mark.parametrize(
    ("runs", "data"),
    [
        ([saw("a"), saw("a", "b")], ["same", "same"]),
        ([saw("a", "b"), saw("a"), saw("a", "c")], ["differs: A", "differs: A", "differs: B"]),
        ([saw("a"), saw("b", "b"), saw("a", "b")], ["differs: A", "differs: B", "differs: A"]),
        ([saw("a/x", "b/x"), saw("a", "b")], ["same", "same"]),
        ([saw("a/x"), saw("a/y")], ["differs: A", "differs: B"]),
        ([saw("a"), {}, saw("a")], ["same", "", "same"]),
        ([saw("a"), {}], ["", ""]),
    ],
)
def test_data_is_the_same_where_the_epochs_are_that_both_have(
    runs: list[dict[str, Any]], data: list[str], tmp_path: Path
) -> None:
    found = {config.number: config.data for config in results_of(tmp_path, *runs).configs}
    assert [found[number] for number in range(len(runs))] == data


MARKUP = r"<b>*x*</b> _y_ __z__ ~~s~~ $a$ [l](http://e.test) ![i](j) \ \| |c| `q` &amp; @me load.shuffle_buffer=1"


def read(markdown: str) -> str:
    """What a reader sees of it."""
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    assert not re.search("<(em|del|a|img|b)>", rendered)
    return html.unescape(re.sub("<[^>]*>", "", rendered))


def test_markdown_shows_what_the_user_wrote(tmp_path: Path) -> None:
    overrides = [f"dataset.name='{MARKUP}'", "dataset.version='1\n\n# 2'"]
    failed = {"status": "failed", "error": f"dataset.name: found {MARKUP}"}
    text = read(markdown(results_of(tmp_path, {"overrides": overrides}, {"overrides": ["cache=none"], **failed})))
    assert f"Fastest: dataset.name='{MARKUP}' dataset.version='1 # 2'. So few runs" in text
    assert f"\n{shlex.join(overrides)}\n" in text
    assert text.count(f"\ndataset.name='{MARKUP}' dataset.version='1 # 2'\n") == 1
    assert f"\ndataset.name: found {MARKUP}\n" in text
