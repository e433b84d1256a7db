"""`--json`: the answer of each command as one document."""

import json
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.parsers import call
from tests.runs import summary_of


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints, as one JSON document."""
    capsys.readouterr()
    call(words[0], [*words[1:]])
    return json.loads(capsys.readouterr().out)


def test_it_is_what_format_json_prints_and_the_last_of_both_counts(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("plan", "cache=none"), ("diff", "cache=none", "cache=memory"), ("runs", "ls", "docs")):
        assert document(capsys, *words, "--json") == document(capsys, *words, "--format", "json")
    diff = ("diff", "cache=none", "cache=memory")
    assert document(capsys, *diff, "--format", "markdown", "--json")["kinds"] == ["speed"]
    call("diff", [*diff[1:], "--json", "--format", "markdown"])
    assert capsys.readouterr().out.startswith("### ")


def test_the_report_of_a_run_is_its_summary_and_of_a_folder_its_results(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert document(capsys, "report", str(run), "--json") == summary_of(run)
    results = document(capsys, "report", str(run.parent), "--json")
    assert results == json.loads((run.parent / "results.json").read_text())


def test_commands_that_answer_lines_have_them_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "trees"
    assert [*document(capsys, "init", str(folder), "--json")] == ["folder", "begin", "train", "commit", "then"]
    caches = ("--dir", str(folder), "--json")
    nothing = {"folder": str(folder), "caches": []}
    assert document(capsys, "cache", "ls", *caches) == nothing
    assert document(capsys, "cache", "gc", "--max-bytes", "0", *caches) == nothing
    why = document(capsys, "cache", "why", "cache=disk", f"cache.dir={folder}", "--json")
    assert {name: text.split()[0] for name, text in why.items()} == {"train": "miss", "validation": "miss"}
