"""Batches of sequences: of like lengths, padded, the same in each run, and what is refused."""

from __future__ import annotations

import dataclasses
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan, stage_of
from etlrun.sources.rows.reader import lengths_of
from etlrun.stages.sequences import Bucket
from tests.configs import plan_of, refusal_of_plan, refusal_of_spec
from tests.conftest import Once
from tests.pipelines import training_pipeline
from tests.test_skip_batches import batches_of
from tests.texts import NUM_TEXTS, TOKENS, words_of, write_reviews

BOUNDARIES = (4, 10, 40)


@pytest.fixture(scope="module")
def reviews(once: Once) -> Path:
    """The folder of `reviews.jsonl`."""
    return once("reviews", write_reviews)


def lengths_in(plan: Plan) -> Any:
    """The number of tokens of each row of the training split."""
    with training_pipeline(plan) as pipeline:
        batch = stage_of(plan.train, Bucket)
        assert batch is not None
        return np.asarray(lengths_of(pipeline.context.source, pipeline.split, batch.columns))  # type: ignore[arg-type]


def test_batches_are_those_of_tf_data(reviews: Path) -> None:
    plan = plan_of(*words_of(reviews, "load.batch_sizes=[16,8,5]"))
    lengths, batch = lengths_in(plan), stage_of(plan.train, Bucket)
    assert batch is not None
    for seed, drops in ((0, False), (1, True), (2, False)):
        order = np.random.default_rng(seed).permutation(len(lengths))
        of_pass = lengths[order]
        stage = dataclasses.replace(batch, drop_remainder=drops)
        places, ends = stage.cut(of_pass)
        found = [places[start:end].tolist() for start, end in pairwise(ends)]
        counted = tf.data.Dataset.from_tensor_slices((np.arange(len(of_pass)), of_pass))
        expected = counted.bucket_by_sequence_length(
            lambda _, length: length,
            bucket_boundaries=[boundary + 1 for boundary in BOUNDARIES],  # which it leaves out
            bucket_batch_sizes=[16, 8, 5, 1],
            drop_remainder=drops,
        )
        assert found == [number.numpy().tolist() for number, _ in expected]
        assert stage.batches_in(of_pass) == len(found)


@pytest.mark.parametrize("words", [(), ("load.shuffle=buffer", "load.shuffle_buffer=0"), ("load.boundaries=[]",)])
def test_a_pass_has_each_sequence_once_and_zeros_behind_it(reviews: Path, words: tuple[str, ...]) -> None:
    plan = plan_of(*words_of(reviews, *words))
    found, orders = [], []
    with training_pipeline(plan) as pipeline:
        for _ in range(2):
            batches = [(review.numpy(), score.numpy()) for review, score in pipeline.dataset]
            assert sum(len(score) for _, score in batches) == NUM_TEXTS * 8 // 10
            found.append(sorted(tuple(row[row > 0].tolist()) for review, _ in batches for row in review))
            for review, _ in batches:
                lengths = (review > 0).sum(axis=1)
                assert all(not row[count:].any() for row, count in zip(review, lengths, strict=True))
                enough = [boundary for boundary in BOUNDARIES if boundary >= lengths.max()]
                assert review.shape[1] == (
                    max(lengths.max(), 1) if words[-1:] == ("load.boundaries=[]",) else enough[0]
                )
            orders.append([review.tobytes() for review, _ in batches])
    assert found[0] == found[1]
    assert (orders[0] == orders[1]) is ("load.shuffle_buffer=0" in words)


def test_digests_do_not_count_padding(reviews: Path) -> None:
    found = set()
    for words in (
        (),
        ("load.boundaries=[]",),
        ("load.boundaries=[40]", "load.batch_size=7"),
        ("load.tokens_per_batch=64",),
    ):
        digest = Digest(("review",))
        with training_pipeline(plan_of(*words_of(reviews, *words))) as pipeline:
            for batch in pipeline.dataset:
                digest.add(*batch)
        found.add(digest.taken())
        digest.close()
    assert len(found) == 1


def test_a_pass_goes_on_behind_the_batches_that_are_skipped(reviews: Path) -> None:
    found = []
    for skipped in (0, 3):
        with training_pipeline(plan_of(*words_of(reviews, "load.batch_sizes=[16,8,5]"))) as pipeline:
            pipeline.skip_passes(1)
            pipeline.skip_batches(skipped)
            found.append(batches_of([*pipeline.dataset, *islice(pipeline.dataset, 4)]))
    assert found[1] == found[0][3:]


def test_a_plan_tells_lengths_padding_and_shapes(reviews: Path) -> None:
    def noted(*words: str) -> list[str]:
        return [note for note in plan_of(*words_of(reviews, *words)).remarks if "sequences" in note]

    with training_pipeline(plan_of(*words_of(reviews))) as pipeline:
        shapes = [review.shape for review, _ in pipeline.dataset]
        held = sum(int((review.numpy() > 0).sum()) for review, _ in pipeline.dataset)
    lengths = lengths_in(plan_of(*words_of(reviews)))
    share = 1 - held / sum(rows * length for rows, length in shapes)
    assert noted()[0] == (
        f"train[:80%]: 160 sequences of {lengths.min()} to {lengths.max()} items, {int(np.median(lengths))} in the "
        f"median; {share:.1%} of what batches hold is padding, in {len({*map(tuple, shapes)})} shapes."
    )
    assert "of what batches hold is padding, in" in noted("load.boundaries=[]")[1]
    assert noted("load.boundaries=[4,20]", "load.drop_long=true")[0].startswith("train[:80%]: ")


@pytest.mark.parametrize("boundaries", ["[4,10,40]", "[]"])
def test_a_plan_tells_what_is_left_out_of_full_batches(reviews: Path, boundaries: str) -> None:
    plan = plan_of(
        *words_of(reviews, f"load.boundaries={boundaries}", "load.drop_remainder=true", "load.batch_size=48")
    )
    with training_pipeline(plan) as pipeline:
        left = 160 - sum(len(score) for _, score in pipeline.dataset)
    told = [note for note in plan.remarks if note.startswith("train[:80%]: ")]
    assert left > 0
    assert told[1] == (
        f"train[:80%]: load.drop_remainder leaves out {left} of 160 sequences in each pass, in batches that are not"
        " full."
    )


WITHOUT = {
    "drop_long": (
        ("load.boundaries=[1]", "load.drop_long=true", 'dataset.eval_split="train[97%:98%]"', "dataset.order=file"),
        "load.drop_long: found true, which leaves out all sequences of train[97%:98%]; expected at least one batch",
        "    -> set load.drop_long=false, or add a boundary",
    ),
    "drop_remainder": (
        ("load.drop_remainder=true", "load.batch_size=500"),
        "load.drop_remainder: found true, which leaves out all sequences of train[:80%]; expected at least one batch",
        "    -> set load.drop_remainder=false, or smaller batches",
    ),
}


@pytest.mark.parametrize(("words", "found", "remedy"), WITHOUT.values(), ids=WITHOUT)
def test_a_split_without_a_batch_is_refused(reviews: Path, words: tuple[str, ...], found: str, remedy: str) -> None:
    assert refusal_of_plan(*words_of(reviews, *words)).splitlines() == [found, remedy]


LONG = (
    "load.boundaries: found {items} items in {file}, row {row}; {count} of 160 sequences of train[:80%] are longer than"
    " 20; expected at most 20 items, the last boundary\n"
    "    -> add {{truncate: 20}} to the steps of the column, or a boundary, or set load.drop_long=true"
)


def test_a_sequence_that_is_longer_than_the_last_boundary_is_refused(reviews: Path) -> None:
    lengths = lengths_in(plan_of(*words_of(reviews)))
    found = refusal_of_plan(*words_of(reviews, "load.boundaries=[4,20]"))
    first = int(np.flatnonzero(lengths > 20)[0])
    with training_pipeline(plan_of(*words_of(reviews))) as pipeline:
        row = int(pipeline.split.rows[first])  # type: ignore[attr-defined] # those of rows
    many = int((lengths > 20).sum())
    assert found == LONG.format(items=lengths[first], file=reviews / "reviews.jsonl", row=row, count=many)
    with training_pipeline(plan_of(*words_of(reviews, "load.boundaries=[4,20]", "load.drop_long=true"))) as pipeline:
        assert sum(len(score) for _, score in pipeline.dataset) == 160 - many


def test_all_faults_of_boundaries_are_told_at_once(reviews: Path) -> None:
    sizes = ("load.boundaries=[4,4]", "load.batch_sizes=[1]", "load.tokens_per_batch=8")
    assert refusal_of_spec(*words_of(reviews, *sizes)).splitlines() == [
        "load.boundaries: found 4 behind 4; expected integers, each above the one before it",
        "    -> sort them",
        "load.batch_sizes: found 1 size; expected 2 of them, one for each boundary",
        "    -> name as many, or leave it out",
        "load.tokens_per_batch: found 8; expected null, since load.batch_sizes is set",
        "    -> leave out one of the two",
    ]
    without = ("load.boundaries=null", "load.batch_sizes=[1]", "load.tokens_per_batch=8", "load.drop_long=true")
    assert refusal_of_spec(*words_of(reviews, *without)).splitlines() == [
        "load.batch_sizes: found [1]; expected null, since there are no load.boundaries",
        "    -> set load=bucketed, or leave it out",
        "load.tokens_per_batch: found 8; expected null, since there are no load.boundaries",
        "    -> set load=bucketed, or leave it out",
        "load.drop_long: found true; expected false, since there are no load.boundaries",
        "    -> set load=bucketed, or leave it out",
    ]


def test_items_may_be_vectors_each(reviews: Path) -> None:
    with training_pipeline(plan_of(*words_of(reviews, steps=f"{TOKENS}, lookup, one_hot"))) as pipeline:
        for review, _ in pipeline.dataset:
            there = ~np.isnan(review)
            assert review.shape[1] in BOUNDARIES
            assert review.shape[2] == 13
            assert (there == there[..., :1]).all()
            assert (np.where(there, review, 0).sum(axis=2) == there[..., 0]).all()


def test_faults_of_steps_say_how_they_are_written(reviews: Path) -> None:
    steps = "{tokenize: null, by: regex}, {truncate: 5, keep: last}, {embed: {dimension: 4}, trainable: false}"
    assert refusal_of_spec(*words_of(reviews, steps=steps)).splitlines() == [
        "transform.columns.review.steps[0]: found tokenize, by beside each other; expected one step",
        "    -> write {tokenize: {by: regex}}",
        "transform.columns.review.steps[1]: found truncate, keep beside each other; expected one step",
        "    -> write {truncate: {length: 5, keep: last}}",
        "transform.columns.review.steps[2]: found embed, trainable beside each other; expected one step",
        "    -> write {embed: {dimension: 4, trainable: False}}",
    ]
    assert refusal_of_plan(*words_of(reviews, steps=f"{TOKENS}, {{lookup: {{min_count: 1000000}}}}, embed")) == (
        "transform.columns.review.steps[2]: found no value 1,000,000 times in the training split; expected at least one"
        " value of the vocabulary\n    -> lower `min_count`; the most frequent value is there 125 times"
    )


def test_vectors_need_no_boundaries(reviews: Path) -> None:
    vectors = words_of(reviews, "load=shuffled", "load.boundaries=null", steps=f"{TOKENS}, lookup, tf_idf")
    assert plan_of(*vectors).train[-1].gives.features["review"].shape == (13,)
    found = refusal_of_plan(*words_of(reviews, steps=f"{TOKENS}, lookup, tf_idf"))
    assert found == (
        "load.boundaries: found [4, 10, 40]; expected null with rows without sequences\n    -> set load.boundaries=null"
    )
