"""Steps on text: their words, indices and vectors are those of Keras's `TextVectorization`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from etlrun.sources.rows.reader import counts_in
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import ColumnStep, items, listed, most_frequent
from etlrun.stages.column_text import MultiHot, Ngrams, StandardizeText, TfIdf, Tokenize, Truncate
from etlrun.stages.columns import Output, UnfitStepError
from etlrun.stages.flow import MISSING, Feature

TEXTS = [
    "The cat, the DOG; and (the) bird's nest!",
    "Привет, МИР! Привет ещё раз.",
    "Γειά σου ΚΌΣΜΕ, γειά",  # noqa: RUF001 - Greek
    "שלום עולם, שלום",
    "مرحبا بالعالم، مرحبا",
    "नमस्ते दुनिया। नमस्ते",
    "สวัสดี ชาวโลก สวัสดี",
    "你好，世界。 你好 世界",  # noqa: RUF001 - Chinese
    "こんにちは 世界、こんにちは",
    "안녕하세요 세계, 안녕하세요",
    "გამარჯობა მსოფლიო",
    "👋 🌍! 👋🏽 👩‍👩‍👧 the cat",
    "  tabs\tand\nlines   and  the  ",
    "",
    "?!...",
]
TEXT = Feature(dtype="string", format="text")
FORMS = ("lower_and_strip_punctuation", "lower", "none")


def fitted(*steps: ColumnStep, texts: Any = None) -> tuple[Output, Feature]:
    """An output of texts whose steps have learned from them."""
    given = tf.constant(TEXTS if texts is None else texts)

    def values(done: Any, *, parts: bool = False, counts: tuple[int, int] | None = None) -> Any:
        found = Output(name="text", of=("text",), steps=tuple(done)).behind(done, {"text": given})
        lists = pa.LargeListArray.from_arrays(
            found.row_splits.numpy(),
            pa.array(found.flat_values.numpy(), None if found.dtype != tf.string else pa.large_binary()),
        )
        if counts:
            return counts_in([items(lists)], *counts, Path()).table
        return [lists[:3], lists[3:]] if parts else lists

    return Output(name="text", of=("text",), steps=steps).fitted({"text": TEXT}, values)


def keras_layer(standardize: str, split: str, ngrams: int | None, words: Any, mode: str = "int") -> Any:
    """Keras's layer of a vocabulary."""
    return keras.layers.TextVectorization(
        standardize=None if standardize == "none" else standardize,
        split={"whitespace": "whitespace", "characters": "character"}[split],
        ngrams=ngrams,
        output_mode=mode,
        vocabulary=[*words],
        ragged=mode == "int",
    )


@pytest.mark.parametrize("by", ["whitespace", "characters"])
@pytest.mark.parametrize("standardize", FORMS)
@pytest.mark.parametrize("ngrams", [None, 2, 3])
def test_indices_and_vectors_are_those_of_keras(standardize: Any, by: Any, ngrams: int | None) -> None:
    tokens = (StandardizeText(to=standardize), Tokenize(by=by), *([Ngrams(size=ngrams)] if ngrams else []))
    output, feature = fitted(*tokens, Lookup(min_count=2), Embed(dimension=4))
    words = output.steps[-2].values  # type: ignore[attr-defined]
    found = output.given({"text": tf.constant(TEXTS)})
    expected = keras_layer(standardize, by, ngrams, words)(tf.constant(TEXTS))
    assert found.to_list() == expected.to_list()
    assert (feature.shape, feature.categories) == ((None,), len(words) + 2)  # padding and unknown words
    several = fitted(*tokens, Lookup(min_count=2), MultiHot())[0].given({"text": tf.constant(TEXTS)})
    hot = keras_layer(standardize, by, ngrams, words, "multi_hot")(tf.constant(TEXTS))
    np.testing.assert_array_equal(several.numpy(), hot.numpy())


def test_a_text_alone_is_as_in_a_batch() -> None:
    steps = (StandardizeText(to="lower"), Tokenize(by="whitespace"), Ngrams(size=2), Truncate(length=5))
    for last in (Embed(), MultiHot(), TfIdf()):
        output, _ = fitted(*steps, Lookup(min_count=2), last)
        whole = output.given({"text": tf.constant(TEXTS)})
        for place, text in enumerate(TEXTS):
            alone = output.given({"text": tf.constant(text)}).numpy()
            np.testing.assert_array_equal(alone, whole[place].numpy())


def test_weights_are_those_of_keras() -> None:
    output, feature = fitted(StandardizeText(to="lower"), Tokenize(by="whitespace"), Lookup(), TfIdf())
    layer = keras.layers.TextVectorization(standardize="lower", output_mode="tf_idf")
    layer.adapt(tf.data.Dataset.from_tensor_slices(TEXTS).batch(4))
    found, expected = output.given({"text": tf.constant(TEXTS)}).numpy(), layer(tf.constant(TEXTS)).numpy()
    words = ["[UNK]", *output.steps[-2].values]  # type: ignore[attr-defined]
    ordered = [layer.get_vocabulary().index(word) for word in words]  # its order of words of the same count is another
    np.testing.assert_allclose(found, expected[:, ordered], rtol=1e-5)
    assert feature.shape == (len(words),)
    unseen = tf.constant(["unseen cat"])
    np.testing.assert_allclose(output.given({"text": unseen}), layer(unseen).numpy()[:, ordered], rtol=1e-5)


CASES: dict[str, tuple[ColumnStep, Any, list[Any]]] = {
    "words between other characters": (
        Tokenize(by="regex", pattern=r"[^\w]+"),
        ["a--b, c", "-", MISSING],
        [[b"a", b"b", b"c"], [], []],
    ),
    "letters of another script": (StandardizeText(to="lower"), ["ÄÖ Ab"], ["ÄÖ ab".encode()]),
    "the first ones": (Truncate(length=2), [[1, 2, 3], [], [4]], [[1, 2], [], [4]]),
    "the last ones": (Truncate(length=2, keep="last"), [[1, 2, 3], [], [4]], [[2, 3], [], [4]]),
    "runs of tokens": (Ngrams(size=2), [[b"a", b"b"], [b"c"], []], [[b"a", b"b", b"a b"], [b"c"], []]),
}


@pytest.mark.parametrize(("step", "values", "expected"), CASES.values(), ids=CASES)
def test_steps_compute(step: ColumnStep, values: Any, expected: Any) -> None:
    is_nested = isinstance(values[0], list)
    given = tf.ragged.constant(values) if is_nested else tf.constant(values)
    found = step.op(given, **step.arguments)
    assert (found.to_list() if isinstance(found, tf.RaggedTensor) else found.numpy().tolist()) == expected


IDS = Feature(dtype="int64", shape=(None,), categories=5)
UNFIT: dict[str, tuple[ColumnStep, Feature, str, str]] = {
    "numbers": (
        Tokenize(by="whitespace"),
        Feature(dtype="float32"),
        "text",
        "leave it out, or put it before `tokenize`",
    ),
    "tokens": (
        StandardizeText(to="lower"),
        IDS.replace(dtype="string", format="text"),
        "text",
        "leave it out, or put it before `tokenize`",
    ),
    "a single value": (
        Truncate(length=3),
        Feature(dtype="float32"),
        "a sequence, such as the tokens of a text",
        "put `tokenize` before it",
    ),
    "indices": (Ngrams(size=2), IDS, "tokens", "put it behind `tokenize`"),
    "tokens without indices": (
        MultiHot(),
        IDS.replace(dtype="string", format="text", categories=None),
        "the index of a category",
        "put `lookup`, `bucketize` or `hash` before it",
    ),
    "fewer categories": (
        MultiHot(categories=3),
        IDS,
        "at most 3 categories",
        "leave `categories` out, since the step before it knows them",
    ),
    "weights of others": (TfIdf(weights=(1.0, 2.0)), IDS, "2 categories, as it has weights", "leave `weights` out"),
}


@pytest.mark.parametrize(("step", "given", "expected", "remedy"), UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_refused(step: ColumnStep, given: Feature, expected: str, remedy: str) -> None:
    output = Output(name="x", of=("x",), steps=(step,))
    with pytest.raises(UnfitStepError) as caught:
        output.gives({"x": given})
    assert (caught.value.expected, caught.value.remedy) == (expected, remedy)


@pytest.mark.parametrize("in_memory", [2, 5, 100])
@pytest.mark.parametrize("kind", [pa.large_binary(), pa.int64(), pa.float64()])
def test_items_are_counted_part_by_part(kind: pa.DataType, in_memory: int, tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).choice([*"abcdefghij", ""], 500, p=[*np.full(5, 0.14), *np.full(5, 0.04), 0.1])
    values = pa.array([value.encode() or None for value in drawn], pa.large_binary())
    if kind != pa.large_binary():
        values = pa.array([ord(value) - 100 if value else None for value in drawn], kind)
    parts = [values[start : start + 7] for start in range(0, len(values), 7)]
    found, counts = most_frequent(values)
    for least, most in ((1, 100), (30, 100), (1, 3), (1_000, 100)):
        counted = counts_in(parts, least, most, tmp_path, in_memory=in_memory)
        enough = max(min(sum(count >= least for count in counts), most), 1)
        assert listed(counted.table) == (found[:enough], counts[:enough])
        assert counted[1:] == (len(values) - values.null_count, len(values))
    assert listed(counts_in([], 1, 1, tmp_path).table) == ([], [])
    assert not [*tmp_path.iterdir()]
