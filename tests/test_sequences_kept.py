"""Items of sequences, and their lengths, that are kept: those of the steps, of the same rows and steps alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from etlrun.graph.datasets import keep_sequences
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan, stage_of
from etlrun.planning.planner import plan as planned
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.rows.reader import Reader, items_of, lengths_of
from etlrun.stages import rows
from etlrun.stages.step import RowsMap
from tests.configs import plan_of, spec_of
from tests.conftest import Once
from tests.pipelines import training_pipeline
from tests.tables import words_of as of_houses
from tests.test_skip_batches import batches_of
from tests.texts import TOKENS, words_of, write_reviews


@pytest.fixture(scope="module")
def reviews(once: Once) -> Path:
    """The folder of `reviews.jsonl`."""
    return once("reviews", write_reviews)


def kept(plan: Plan) -> Callable[..., Any]:
    """Keep the items of a plan; return what takes them."""
    source, columns = open_source(plan.spec.dataset), plan.spec.transform.steps[-1]
    contexts = contexts_of(plan, source)
    keep_sequences(plan, contexts)
    return items_of(source, contexts["train"].split, columns)["review"]  # type: ignore[arg-type] # those of rows


@pytest.mark.parametrize("words", [("load.batch_sizes=[16,8,5]",), ("load.boundaries=[]", "load.shuffle=buffer")])
def test_batches_of_kept_items_are_those_of_texts(reviews: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    plan = plan_of(*words_of(reviews, f"dataset.dir={tmp_path}", *words, more=", stars: {of: stars}"))
    found, digests = [], set()
    for keeps in (False, True):
        if keeps:
            kept(plan)
            for path in (*tmp_path.glob("rows-*/0.text.bin"), *tmp_path.glob("rows-*/3.text.bin")):  # the reviews
                path.write_bytes(bytes(path.stat().st_size))
        digest = Digest(("review",))
        with training_pipeline(plan) as pipeline:
            for batch in pipeline.dataset:
                digest.add(*batch)
            found.append(batches_of(pipeline.dataset))
        digests.add(digest.taken())
        digest.close()
    assert found[0] == found[1]
    assert len(digests) == 1
    with training_pipeline(plan) as pipeline:
        pipeline.skip_passes(1)
        pipeline.skip_batches(3)
        assert batches_of(pipeline.dataset) == found[0][3:]


def test_items_are_kept_of_the_same_rows_and_steps_alone(reviews: Path, tmp_path: Path) -> None:
    (tmp_path / "reviews.jsonl").write_text((reviews / "reviews.jsonl").read_text())
    kept(plan_of(*words_of(tmp_path)))

    def is_there(*words: str, **others: str) -> bool:
        plan = plan_of(*words_of(tmp_path, *words, **others))
        source, columns = open_source(plan.spec.dataset), plan.spec.transform.steps[-1]
        split = source.split(plan.spec.dataset.split, "dataset.split")
        return bool(items_of(source, split, columns))  # type: ignore[arg-type] # those of rows

    assert is_there("load.boundaries=[]", "load.batch_size=7")
    assert not is_there(steps=f"{TOKENS}, {{lookup: [good]}}, embed")
    assert not is_there(steps=f"{TOKENS}, {{truncate: 30}}, lookup, {{embed: 4}}")
    assert not is_there('dataset.split="train[:50%]"')
    (values,) = (path for path in tmp_path.glob("kept/rows-*/0.values.bin") if path.stat().st_size > 4000)
    values.write_bytes(values.read_bytes()[:-4])
    assert not is_there()
    values.write_bytes(values.read_bytes() + bytes(4))
    assert is_there()
    with (tmp_path / "reviews.jsonl").open("a") as file:
        file.write('{"review": "tea", "score": "other", "stars": 1}\n')
    assert not is_there()


STEPS = {
    "learned": f"{TOKENS}, {{ngrams: 3}}, {{truncate: 20}}, lookup, {{embed: 4}}",
    "given": f"{TOKENS}, {{ngrams: 2}}, {{lookup: [good, tea]}}, {{truncate: 9}}, embed",
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_lengths_follow_from_what_was_read_to_fit_columns(reviews: Path, tmp_path: Path, steps: str) -> None:
    spec = spec_of(*words_of(reviews, f"dataset.dir={tmp_path}", "load.boundaries=[120]", steps=steps))
    noted, found = planned(spec).remarks, []
    for _ in range(2):
        assert planned(spec).remarks == noted
        lengths = {path: np.load(path).tolist() for path in tmp_path.glob("rows-*/lengths-*.npy")}
        found.append(lengths)
        for path in lengths:
            path.unlink()
    assert len(found[0]) == 2
    assert found[1] == found[0]


def test_long_texts_are_worked_on_few_at_once(
    reviews: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    for bytes_at_once, most, of_batches in ((16_000_000, 160, 1_024), (1_000, 8, 14)):
        monkeypatch.setattr(rows, "_AT_ONCE_BYTES", bytes_at_once)
        plan = planned(spec_of(*words_of(reviews, f"dataset.dir={tmp_path / str(most)}")))
        source: Any = open_source(plan.spec.dataset)
        columns: Any = plan.spec.transform.steps[-1]
        split, output = source.split("train[:80%]", "dataset.split"), columns.outputs[0]
        parts = [len(part) for part in Reader(output, {}, source, split).parts(output.steps[:2])]
        assert (max(parts), sum(parts)) == (most, 160)
        uncounted = source.split("train[30%:]", "dataset.split")
        found.append((columns, lengths_of(source, uncounted, columns).tolist(), kept(plan)(tf.range(200)).to_list()))
        stage = stage_of(planned(spec_of(*of_houses(table, "cache=memory"))).train, RowsMap)
        assert stage is not None
        assert stage.at_once == of_batches
    assert found[0] == found[1]
