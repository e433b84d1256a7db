"""Ejected programs of texts: the same batches of sequences and the same losses as the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import lists
from tests.configs import plan_of
from tests.conftest import Once
from tests.programs import program_of
from tests.runs import run_here
from tests.test_rows_eject import require_same_batches
from tests.texts import TOKENS, words_of, write_reviews

BESIDE = ", end: {of: review, steps: [{tokenize: characters}, {truncate: {length: 3, keep: last}}, {hash: 9}, embed]}"
STARS = ", stars: {of: stars, steps: [standardize]}"
PAIRS = r"{tokenize: {by: regex, pattern: '\W+'}}, {ngrams: 2}, {truncate: 9}, {lookup: {top: 30}}, embed"
CONFIGS = {
    "bucketed": ("load.batch_sizes=[16,8,5]",),
    "of several inputs": ("load.drop_remainder=true", "load.boundaries=[4,20]", "load.drop_long=true"),
    "in order": ("load.shuffle=buffer", "load.shuffle_buffer=0", "dataset.order=file"),
    "padded": ("load.boundaries=[]",),
    "padded from a buffer": ("load.boundaries=[]", "load.shuffle=buffer", "load.shuffle_buffer=30"),
    "as vectors": ("load=shuffled", "load.batch_size=16"),
}
STEPS = {
    "of several inputs": {"more": BESIDE + STARS},
    "padded": {"steps": PAIRS},
    "as vectors": {
        "steps": f"{TOKENS}, lookup, multi_hot",
        "more": f", weights: {{of: review, steps: [{TOKENS}, lookup, tf_idf]}}",
    },
}


@pytest.fixture(scope="module")
def reviews(once: Once) -> Path:
    """The folder of `reviews.jsonl`."""
    return once("reviews", write_reviews)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_its_batches_are_those_of_the_run(reviews: Path, tmp_path: Path, name: str) -> None:
    words = words_of(reviews, *CONFIGS[name], **STEPS.get(name, {}))
    words = tuple(word for word in words if name != "as vectors" or "boundaries" not in word)
    require_same_batches(plan_of(*words), tmp_path)


@pytest.fixture(scope="module")
def signals(once: Once) -> Path:
    """The folder of `signals.parquet`."""
    return once("signals", lists.write_signals)


def write_json_lines(path: Path) -> None:
    """Write rows of lists, of which some are missing, empty, or lack a number."""
    x: tuple[Any, ...] = ([0.5, None, 2], [], None, [1], [3, 4.5], [0])
    rows = [{"x": x[n % 6], "n": [n] * (n % 3), "kind": ["a", "b"][n % 2], "text": "a b"} for n in range(24)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FILLED = "x: {of: x, steps: [{fill: median}]}, n: {of: n, steps: [{hash: 9}, embed]}"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_its_batches_of_lists_are_those_of_the_run(form: str, signals: Path, tmp_path: Path) -> None:
    words = lists.words_of(signals, "trainer.epochs=2", columns=f"{lists.SIGNAL}, {lists.EVENTS}, {lists.AGE}")
    if form == "jsonl":
        write_json_lines(tmp_path / "a.jsonl")
        given = (f"dataset.files={tmp_path / 'a.jsonl'}", "load.boundaries=[]", "load.batch_size=4")
        words = lists.words_of(tmp_path, "trainer.epochs=2", *given, columns=FILLED)
    require_same_batches(plan_of(*words), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("boundaries", ["[4,10,40]", "[]", "lists"])
def test_its_losses_are_those_of_the_run(
    reviews: Path, signals: Path, tmp_path: Path, boundaries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = words_of(reviews, f"load.boundaries={boundaries}", "model=text", "model.units=4", more=STARS)
    words = tuple(word for word in words if "emulated" not in word and "step_ms" not in word)
    if boundaries == "lists":
        columns = f"{lists.SIGNAL}, {lists.EVENTS}, {lists.NOTE}"
        words = lists.words_of(signals, "model=text", "model.layer=gru", "model.units=4", columns=columns)
    status, summary = run_here(tmp_path / "run", [*words])
    history = program_of(plan_of(*words), tmp_path).train().history
    assert status == 0
    for name in ("loss", "val_loss"):
        assert history[name] == [epoch[name] for epoch in summary["epochs"]]
