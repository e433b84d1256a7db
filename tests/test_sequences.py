"""Batches of sequences: of like lengths, padded, the same in each run, and what is refused."""

import dataclasses
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.graph.datasets import keep_sequences
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan, stage_of
from etlrun.planning.planner import plan as planned
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.rows.kept import KeptColumns
from etlrun.sources.rows.reader import OutputReader, items_of, lengths_of
from etlrun.sources.rows.table import kept_of
from etlrun.stages import rows
from etlrun.stages.columns import Output
from etlrun.stages.load import Bucket
from etlrun.stages.step import Map
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, raised, refusal_of_plan, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.lists import words_of as words_of_lists
from tests.pipelines import batches_of, training_pipeline
from tests.present import present
from tests.tables import a_table
from tests.tables import words_of as of_houses
from tests.test_rows_arrays import installed
from tests.texts import NUM_TEXTS, TOKENS, words_of

BOUNDARIES = (4, 10, 40)


def lengths_in(plan: Plan) -> Any:
    """The number of tokens of each row of the training split."""
    with training_pipeline(plan) as pipeline:
        batch = present(stage_of(plan.train, Bucket))
        return np.asarray(lengths_of(pipeline.context.source, pipeline.split, batch.columns))  # type: ignore[arg-type]


def test_batches_are_those_of_tf_data(reviews: Path) -> None:
    plan = plan_of(*words_of(reviews, "load.tokens_per_batch=64"))
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
            bucket_batch_sizes=[16, 6, 1, 1],
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


def test_a_plan_tells_lengths_padding_and_shapes(reviews: Path) -> None:
    def noted(*words: str) -> list[str]:
        return [note for note in plan_of(*words_of(reviews, *words)).remarks if "sequences" in note]

    with training_pipeline(plan_of(*words_of(reviews))) as pipeline:
        shapes = [review.shape for review, _ in pipeline.dataset]
        held = sum(int((review.numpy() > 0).sum()) for review, _ in pipeline.dataset)
    lengths = lengths_in(plan_of(*words_of(reviews)))
    share = 1 - held / sum(rows * length for rows, length in shapes)
    assert noted()[0] == (
        f"train[:80%]: 160 sequences of {lengths.min()} to {lengths.max()} items (median {int(np.median(lengths))}); "
        f"{share:.1%} of the batches is padding; they have {len({*map(tuple, shapes)})} shapes."
    )
    assert "of the batches is padding; they have" in noted("load.boundaries=[]")[1]
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


@pytest.mark.parametrize("case", cases("buckets"))
def test_faults_of_sequences_are_told_all_at_once(reviews: Path, case: Case, golden: Golden) -> None:
    steps = {"steps": of} if (of := case.get("steps")) else {}
    golden(case, raised(EtlrunError, plan_of, *words_of(reviews, *case.get("words", ()), **steps)))


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
        row = int(pipeline.split.numbers[first])
    many = int((lengths > 20).sum())
    assert found == LONG.format(items=lengths[first], file=reviews / "reviews.jsonl", row=row, count=many)
    with training_pipeline(plan_of(*words_of(reviews, "load.boundaries=[4,20]", "load.drop_long=true"))) as pipeline:
        assert sum(len(score) for _, score in pipeline.dataset) == 160 - many


def test_items_may_be_vectors_each(reviews: Path) -> None:
    with training_pipeline(plan_of(*words_of(reviews, steps=f"{TOKENS}, lookup, one_hot"))) as pipeline:
        for review, _ in pipeline.dataset:
            there = ~np.isnan(review)
            assert review.shape[1] in BOUNDARIES
            assert review.shape[2] == 13
            assert (there == there[..., :1]).all()
            assert (np.where(there, review, 0).sum(axis=2) == there[..., 0]).all()


def test_vectors_need_no_boundaries(reviews: Path) -> None:
    vectors = words_of(reviews, "load=shuffled", "load.boundaries=null", steps=f"{TOKENS}, lookup, multi_hot")
    assert plan_of(*vectors).train[-1].gives.features["review"].shape == (13,)


def kept(plan: Plan) -> Callable[..., Any]:
    """Keep the items of a plan; return what takes them."""
    source, columns = open_source(plan.spec.dataset), plan.spec.transform.steps[-1]
    contexts = contexts_of(plan, source)
    keep_sequences(plan, contexts)
    return items_of(source, contexts["train"].split, columns)["review"]  # type: ignore[arg-type] # those of rows


@pytest.mark.parametrize("words", [("load.tokens_per_batch=64",), ("load.boundaries=[]", "load.shuffle=buffer")])
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
        pipeline.skip(1, 3)
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
    "pairs": f"{TOKENS}, {{ngrams: 2}}, {{truncate: 20}}, lookup, {{embed: 4}}",
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
        parts = [len(part) for part in OutputReader(output, {}, source, split).parts(output.steps[:2])]
        assert (max(parts), sum(parts)) == (most, 160)
        uncounted = source.split("train[30%:]", "dataset.split")
        found.append((columns, lengths_of(source, uncounted, columns).tolist(), kept(plan)(tf.range(200)).to_list()))
        stage = present(stage_of(planned(spec_of(*of_houses(table, "cache=memory"))).train, Map))
        assert stage.at_once == of_batches
    assert found[0] == found[1]


def test_missing_texts_are_counted_without_a_copy_of_the_others(tmp_path: Path) -> None:
    table = pa.table({"text": [*["a " * 50_000] * 99, None], "price": range(100)})
    pyarrow.parquet.write_table(table, tmp_path / "reviews.parquet")
    read = a_table(str(tmp_path / "reviews.parquet"), tmp_path / "kept")
    source: Any = open_source(dataclasses.replace(read, known=kept_of(read).known))
    output, before = Output(name="text", of=("text",)), pa.default_memory_pool()
    pa.set_memory_pool(pool := pa.proxy_memory_pool(before))
    try:
        assert OutputReader(output, {}, source, source.split("train", "dataset.split")).missing == 1
    finally:
        pa.set_memory_pool(before)
    assert (pool.max_memory() or 0) < 1_000_000


FEW: dict[str, list[Any]] = {
    "x": [[0.5, 0.0], [], None, [-1.5]],
    "n": [[2**60], [7, 0], [], None],
    "price": [1, 2, 3, 4],
}
FORMS: dict[str, Any] = {
    "a.parquet": lambda path: pyarrow.parquet.write_table(pa.table(FEW), path),
    "a.feather": lambda path: pyarrow.feather.write_feather(pa.table(FEW), path),
    "a.jsonl": lambda path: path.write_text(
        "".join(json.dumps({name: of[row] for name, of in FEW.items()}) + "\n" for row in range(4))
    ),
}


def lists_in(kept: KeptColumns, name: str) -> list[list[float]]:
    whole: list[list[float]] = kept.arrow(name).to_pylist()
    numbers = np.array([3, 0, 0, 1])
    assert [of.tolist() for of in kept.take(name, numbers)] == [whole[number] for number in numbers]
    return whole


@pytest.mark.parametrize("name", FORMS)
def test_lists_are_kept_as_they_are(tmp_path: Path, name: str, says: Says) -> None:
    FORMS[name](tmp_path / name)
    kept = kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))
    assert lists_in(kept, "x") == [[0.5, 0.0], [], [], [-1.5]]
    assert lists_in(kept, "n") == [[2**60], [7, 0], [], []]
    says({of: str(column.feature) for of, column in kept.known.columns.items()})
    assert [column.type for column in kept.known.columns.values()] == ["numbers", "integers", "integer"]


LISTS = {
    "plain": pa.list_(pa.int32()),
    "large": pa.large_list(pa.int16()),
    "view": pa.list_view(pa.int64()),
    "large_view": pa.large_list_view(pa.int32()),
}
ITEMS: list[Any] = [[1, 2, 3], [4, None], None, [], [5]] * 4
OF_TWO: list[Any] = [[1, 2], [None, 3], None, [4, 5], [6, 7]] * 4


def write_lists(path: Path) -> None:
    columns: dict[str, Any] = {name: pa.array(ITEMS, kind) for name, kind in LISTS.items()}
    rows = pa.table({**columns, "fixed": pa.array(OF_TWO, pa.list_(pa.float32(), 2)), "kind": ["a", "b"] * 10})
    write = pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.feather.write_feather
    write(rows, path)


@pytest.mark.parametrize("name", ["signals.parquet", "signals.feather"])
def test_lists_of_all_types_of_arrow_are_sequences(name: str, tmp_path: Path) -> None:
    write_lists(tmp_path / name)
    kept = kept_of(a_table(str(tmp_path / name), tmp_path / "kept", target={"kind": "class"}))
    for column in LISTS:
        assert kept.arrow(column).to_pylist() == [of or [] for of in ITEMS]
    assert kept.arrow("fixed").to_pylist() == [of or [] for of in OF_TWO]


def test_a_function_returns_arrays_of_different_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "{'x': np.arange(n % 3) / 2, 'n': [1] * (n % 2), 'price': n}"
    body = f"    return pa.Table.from_pylist([{row} for n in range(5000)])\n"
    source: Any = open_source(plan_of(*installed(tmp_path, monkeypatch, body), "load=padded").spec.dataset)
    assert [of.tolist() for of in source.kept.take("x", np.array([4997, 4998]))] == [[0.0, 0.5], []]
    assert [of.tolist() for of in source.kept.take("n", np.array([4997, 4998]))] == [[1], []]


def test_fixed_lists_are_sequences_and_what_is_missing_in_them_is_filled(tmp_path: Path, says: Says) -> None:
    fixed = pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int32(), 2))
    pyarrow.parquet.write_table(
        pa.table({"x": fixed, "y": [[float("nan")], [], [2.0]], "kind": ["a", "b", "a"]}), tmp_path / "signals.parquet"
    )
    whole = "dataset.split=train", "dataset.eval_split=null", "trainer.early_stopping.monitor=loss"
    words = words_of_lists(tmp_path, *whole, "model=text", columns="x: {of: x}, y: {of: y}")
    says(refusal_of_plan(*words))
    filled = "x: {of: x, steps: [{fill: median}, {clip: [0, null]}]}, y: {of: y, steps: [{fill: -1}]}"
    words = words_of_lists(tmp_path, *whole, columns=filled)
    with training_pipeline(plan_of(*words, "load.shuffle_buffer=0", "load.shuffle=buffer")) as pipeline:
        ((inputs, _),) = list(pipeline.dataset.as_numpy_iterator())
    nan = np.nan
    np.testing.assert_array_equal(inputs["x"][:, :3], [[5, 6, nan], [1, 2, nan], [3, 3, nan]])
    np.testing.assert_array_equal(inputs["y"][:, :2], [[2, nan], [-1, nan], [nan, nan]])
    assert inputs["x"].shape == (3, 8)
