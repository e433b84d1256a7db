"""Steps on text: their words, indices and vectors are those of Keras's `TextVectorization`."""

import gzip
import json
import unicodedata
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.cli import main as cli
from etlrun.sources.rows import reader
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.sources.rows.arrays import native as array_of
from etlrun.sources.rows.counting import counts_in, pairs_behind
from etlrun.sources.rows.table import kept_of
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import ColumnStep, by_frequency, counted_in, items
from etlrun.stages.column_text import MultiHot, Ngrams, StandardizeText, Tokenize, Truncate
from etlrun.stages.columns import Output
from etlrun.stages.flow import MISSING, Feature, UnfitError
from etlrun.stages.rows import Arrays
from tests.commands import complaint
from tests.configs import plan_of, refusal_of_plan
from tests.golden import Case, Golden, Says, cases
from tests.present import present
from tests.tables import a_table, kept_from, message, values
from tests.test_rows_dialects import write_examples
from tests.test_rows_eject import require_same_batches
from tests.test_text_trained import words_of_rows

COMPOSED = ["café crème", "plain", "각 Å"]
DECOMPOSED = [unicodedata.normalize("NFD", text) for text in COMPOSED]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_texts_of_tables_are_kept_in_one_form(tmp_path: Path, name: str) -> None:
    assert COMPOSED != DECOMPOSED
    kept = []
    for texts, folder in ((COMPOSED, tmp_path / "composed"), (DECOMPOSED, tmp_path / "decomposed")):
        folder.mkdir()
        lines = [f'{{"text": "{text}", "price": 1}}' for text in texts]
        content = "\n".join(["text,price", *(f"{text},1" for text in texts)] if name == "a.csv" else lines)
        kept.append(kept_from(folder, name, content))
    assert [values(of)["text"] for of in kept] == [COMPOSED, COMPOSED]


@pytest.mark.parametrize("kind", ["U", "S"])
def test_texts_of_arrays_are_taken_in_one_form(tmp_path: Path, kind: str) -> None:
    texts = np.array([of if kind == "U" else of.encode() for of in DECOMPOSED])
    np.savez(tmp_path / "a.npz", text=texts, price=np.arange(3))
    given: dict[str, Any] = {"name": "arrays", "split": "train", "eval_split": None, "on_corrupt": "raise"}
    given |= {"target": {"price": "number"}, "inputs": None, "order": "file", "dir": str(tmp_path / "kept")}
    kept = ArraysSource.opened(Arrays(**given, files=str(tmp_path / "a.npz")))
    assert [of.decode() for of in kept.take("text", np.arange(3))] == COMPOSED
    assert [of.decode() for of in array_of(texts)] == COMPOSED


def test_a_plan_says_what_standardizing_does_and_what_the_first_indices_are(says: Says) -> None:
    steps = [Tokenize(by="whitespace"), Lookup(values=("a", "b"), oov=2), Embed(dimension=4, padding=True)]
    output = Output(name="text", of=("text",), steps=(StandardizeText(to="lower"), *steps))
    says(output.text)


def unfit(step: Any) -> str:
    """With what a step refuses its file."""
    with pytest.raises(UnfitError) as error:
        step.opened()
    return f"{error.value.found}; expected {error.value.expected}\n    -> {error.value.remedy}"


def test_files_of_vocabularies(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "words.txt"
    for content, words in (
        (b"\xef\xbb\xbffair\r\ngo\xe2\x80\xa8od\r\n", ("fair", "go\u2028od")),
        (b"fa\rir\ngood\n", ("fa\rir", "good")),
        ("cafe\u0301".encode(), ("café",)),
    ):
        path.write_bytes(content)
        assert Lookup(file=str(path)).opened().values == words
    for content in (b"", b"fair\n\ngood", b"fair\n good\n", b"fair\ngood\nfair\n", b"fair\ncaf\xe9\n"):
        path.write_bytes(content)
        says(unfit(Lookup(file=str(path))))


PIECES = (
    "[UNK]",
    *"abcdefghijklmnopqrstuvwxyz,!-",
    *(f"##{of}" for of in "abcdefghijklmnopqrstuvwxyz"),
    "un",
    "##able",
)
SCRIPTS = [
    "unable, unbearable!", "naïve café", "привет, мир", "日本語 のテキスト", "한국어 텍스트", "नमस्ते दुनिया", "สวัสดี ab",
    "שלום עולם", "مرحبا بالعالم", "λέξη ψ", "a😀b 😀 well-known", "tab\tnew\nline \u3000 a\xa0b", "",
]  # fmt: skip


@pytest.mark.needs("tensorflow-text", "tokenizers")
def test_pieces_of_words_are_those_of_tokenizers(tmp_path: Path) -> None:
    import tokenizers
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    step = Tokenize(by="wordpiece", file=str(tmp_path / "vocab.txt")).opened()
    model = tokenizers.models.WordPiece(vocab={of: place for place, of in enumerate(PIECES)}, unk_token="[UNK]")  # noqa: S106
    other = tokenizers.Tokenizer(model)
    other.normalizer = BertNormalizer(lowercase=False, strip_accents=False, clean_text=False)
    other.pre_tokenizer = BertPreTokenizer()
    expected = [other.encode(text, add_special_tokens=False).tokens for text in SCRIPTS]
    found = step.applied(tf.constant([*SCRIPTS, b"\xff"])).to_list()
    assert [[of.decode() for of in tokens] for tokens in found] == [*expected, []]
    assert found[0][:4] == [b"un", b"##able", b",", b"un"]
    program = Tokenize.op(tf.constant(SCRIPTS), **step.arguments)  # as programs call it
    assert program.to_list() == found[:-1]


@pytest.mark.needs("tensorflow-text")
def test_a_lookup_behind_pieces_has_their_vocabulary(tmp_path: Path, says: Says) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    rows = [f'{{"text": "{text}", "score": {place % 2}}}' for place, text in enumerate(["unable", "ab, ?"] * 20)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    words = ("experiment=text", f"dataset.files={tmp_path}/a.jsonl", f"dataset.dir={tmp_path}/kept")
    tokens = f"{{tokenize: {{by: wordpiece, file: {tmp_path}/vocab.txt}}}}"
    columns = f"transform.columns={{text: {{steps: [{tokens}, lookup, {{embed: 4}}]}}}}"
    planned = present(plan_of(*words, "dataset.target={score: class}", columns).spec.columns)
    found = planned.given({"text": tf.constant(["unable", "ab?"]), "score": tf.constant([0, 1])})["text"]
    assert found.to_list() == [
        [PIECES.index(of) + 2 for of in tokens] for tokens in (["un", "##able"], ["a", "##b", "[UNK]"])
    ]
    gone = columns.replace("/vocab.txt", "/gone.txt")
    says(refusal_of_plan(*words, "dataset.target={score: class}", gone))


@pytest.mark.parametrize(("content", "is_there"), [("a\nb\n", True), ("a\n[UNK]\n", False)])
def test_pieces_that_can_not_be_used(tmp_path: Path, content: str, *, is_there: bool) -> None:
    if (find_spec("tensorflow_text") is not None) is not is_there:
        pytest.skip("one of the two is installed, or not")
    (tmp_path / "vocab.txt").write_text(content)
    expected = (
        "no package tensorflow-text; expected the one that tokenizes by pieces\n    -> "
        "pip install 'tensorflow-text>=2.21,<2.22' 'tokenizers>=0.22,<0.24'"
    )
    if is_there:
        expected = f"""\
no line [UNK] of {tmp_path}/vocab.txt; expected the piece [UNK], which stands for all other words
    -> add the line"""
    assert unfit(Tokenize(by="wordpiece", file=str(tmp_path / "vocab.txt"))) == expected


def test_a_vocabulary_is_for_pieces_alone(says: Says) -> None:
    wordpiece, others = Tokenize(by="wordpiece"), Tokenize(by="whitespace", file="vocab.txt")
    says([*wordpiece.rules(), *others.rules()])


def texts_in(folder: Path, *texts: str) -> tuple[str, ...]:
    """Write a table of texts, and return the overrides of a run that tokenizes them by pieces."""
    rows = [f'{{"text": "{text}", "score": {place % 2}}}' for place, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    steps = (
        f"[{{standardize_text: lower}}, {{tokenize: {{by: wordpiece, file: {folder}/v.txt}}}}, lookup, {{embed: 4}}]"
    )
    files = (f"dataset.files={folder}/a.jsonl", f"dataset.dir={folder}/kept", "dataset.target={score: class}")
    return ("experiment=text", *files, f"transform.columns={{text: {{steps: {steps}}}}}")


@pytest.mark.needs("tokenizers")
def test_a_vocabulary_is_the_same_for_the_same_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = texts_in(tmp_path, *(f"The cat number {number} ate the rat's hat, und wohin?" for number in range(40)))
    found = []
    for out in ([], ["--out", str(tmp_path / "other.txt")]):
        cli.main(["data", "vocabulary", "--size", "60", *out, *words])
        found.append(Path(out[-1] if out else tmp_path / "v.txt").read_text(encoding="utf-8").split("\n"))
    assert capsys.readouterr().out.splitlines()[0] == f"60 pieces of 32 texts are in {tmp_path}/v.txt."
    assert found[0] == found[1]
    assert found[0][:6] == ["[UNK]", "'", ",", "0", "1", "2"]
    assert {"the", "##at"} <= {*found[0]}


@pytest.mark.needs("tokenizers")
def test_what_has_no_vocabulary_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    words = texts_in(tmp_path, "abc", "bcd")
    says(complaint(capsys, "data", "vocabulary", "--size", "6", *words))
    says(complaint(capsys, "data", "vocabulary", "--size", "9", *words[:-1], status=2))


RAW_TEXTS = [*(b"day night good w%d" % n for n in range(10)), b"caf\xe9 a\xff\xfeb", b"night \xe2\x82", "ü".encode()]
REPAIRED = [of.decode(errors="replace") for of in RAW_TEXTS]
LABELS = [b"neg" if n % 2 else b"pos" for n in range(len(RAW_TEXTS))]
ROWS = [b'{"text": "%s", "label": "%s"}' % pair for pair in zip(RAW_TEXTS, LABELS, strict=True)]
LINES = [b"text,label", *(b",".join(pair) for pair in zip(RAW_TEXTS, LABELS, strict=True))]


def of_texts(kind: str = "plain") -> pa.Table:
    text = pa.array(RAW_TEXTS, pa.binary()).view(pa.string())
    columns = {"plain": text, "codes": pa.DictionaryArray.from_arrays(list(range(len(RAW_TEXTS))), text)}
    return pa.table({"text": columns[kind], "label": [label.decode() for label in LABELS]})


WRITERS: dict[str, Any] = {
    "a.csv": lambda path: path.write_bytes(b"\n".join(LINES)),
    "a.tsv.gz": lambda path: path.write_bytes(gzip.compress(b"\n".join(LINES).replace(b",", b"\t"))),
    "a.jsonl": lambda path: path.write_bytes(b"\n".join(ROWS)),
    "a.ndjson.gz": lambda path: path.write_bytes(gzip.compress(b"\n".join(ROWS))),
    "a.parquet": lambda path: pyarrow.parquet.write_table(of_texts(), path),
    "b.feather": lambda path: pyarrow.feather.write_feather(of_texts("codes"), path),
    "a.feather": lambda path: pyarrow.feather.write_feather(of_texts(), path),
    "a.tfrecord": lambda path: write_examples(
        path, *({"text": [text], "label": [label]} for text, label in zip(RAW_TEXTS, LABELS, strict=True))
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_texts_that_are_not_utf8_are_refused_or_repaired(name: str, tmp_path: Path, says: Says) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    given = {"target": {"label": "class"}}
    says(message(tmp_path, kept_of, a_table(str(path), tmp_path / "kept", **given)))
    kept = kept_of(a_table(str(path), tmp_path / "kept", **given, errors="replace"))
    assert values(kept)["text"] == REPAIRED


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.jsonl", "b.feather", "a.tfrecord"])
def test_a_program_reads_the_same_batches(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    columns = "transform.columns={text: {steps: [{hash: 50}, embed]}}"
    others = ("load=shuffled", "load.batch_size=4", "trainer.epochs=2", "dataset.eval_split=train")
    words = (*words_of_rows(tmp_path / name, columns), *others, "dataset.errors=replace")
    require_same_batches(plan_of(*words), tmp_path)


FAULTS = {
    "a.csv": b"text\xe9,price\na,1\n",
    "b.csv": b"text,price\ncaf\xe9,1\nb,1,2\n",
    "a.jsonl": b'{"text": "caf\xe9", "price": 1}\n{"text": "b", "price": "\xe9"}\n',
    "b.jsonl": json.dumps({"text": "a", "price": 1}).encode("utf-16"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_repaired_texts(name: str, tmp_path: Path, says: Says) -> None:
    (tmp_path / name).write_bytes(FAULTS[name])
    says(message(tmp_path, kept_of, a_table(str(tmp_path / name), tmp_path / "kept", errors="replace")))


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
            return counts_in([items(lists)], *counts)[0]
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
    for last in (Embed(), MultiHot()):
        output, _ = fitted(*steps, Lookup(min_count=2), last)
        whole = output.given({"text": tf.constant(TEXTS)})
        for place, text in enumerate(TEXTS):
            alone = output.given({"text": tf.constant(text)}).numpy()
            np.testing.assert_array_equal(alone, whole[place].numpy())


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
UNFIT: dict[str, tuple[ColumnStep, Feature]] = {
    "numbers": (Tokenize(by="whitespace"), Feature(dtype="float32")),
    "tokens": (StandardizeText(to="lower"), IDS.replace(dtype="string", format="text")),
    "a single value": (Truncate(length=3), Feature(dtype="float32")),
    "indices": (Ngrams(size=2), IDS),
    "tokens without indices": (MultiHot(), IDS.replace(dtype="string", format="text", categories=None)),
    "fewer categories": (MultiHot(categories=3), IDS),
}


@pytest.mark.parametrize("case", cases("text_steps"))
def test_what_does_not_fit_is_refused(case: Case, golden: Golden) -> None:
    step, given = UNFIT[case["why"]]
    with pytest.raises(UnfitError) as caught:
        Output(name="x", of=("x",), steps=(step,)).gives({"x": given})
    golden(case, f"expected {caught.value.expected}\n    -> {caught.value.remedy}")


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.int64(), pa.float64()])
def test_items_are_counted_part_by_part(kind: pa.DataType) -> None:
    drawn = np.random.default_rng(0).choice([*"abcdefghij", ""], 500, p=[*np.full(5, 0.14), *np.full(5, 0.04), 0.1])
    values = pa.array([value.encode() or None for value in drawn], pa.large_binary())
    if kind != pa.large_binary():
        values = pa.array([ord(value) - 100 if value else None for value in drawn], kind)
    parts = [values[start : start + 7] for start in range(0, len(values), 7)]
    found, counts = by_frequency(counted_in(values))
    for least, most in ((1, 100), (30, 100), (1, 3), (1_000, 100)):
        counted, is_dropped = counts_in(parts, least, most, in_memory=100)
        assert not is_dropped
        enough = max(min(sum(count >= least for count in counts), most), 1)
        assert by_frequency(counted) == (found[:enough], counts[:enough])
    assert by_frequency(counts_in([], 1, 1)[0]) == ([], [])


LAST: tuple[tuple[Truncate, ...], ...] = (
    (),
    (Truncate(length=7),),
    (Truncate(length=9, keep="last"), Truncate(length=4)),
    (Truncate(length=5), Truncate(length=3, keep="last")),
)


def listed(sequences: tf.RaggedTensor) -> pa.LargeListArray:
    """Sequences of texts, null where one is missing."""
    found = [None if text == MISSING else text for text in sequences.flat_values.numpy()]
    return pa.LargeListArray.from_arrays(sequences.row_splits.numpy(), pa.array(found, pa.large_binary()))


@pytest.mark.parametrize("last", LAST, ids=str)
@pytest.mark.parametrize("in_memory", [10_000, 30, 5])
def test_pairs_of_tokens_are_counted_as_their_texts_would_be(last: tuple[Truncate, ...], in_memory: int) -> None:
    steps: list[Any] = [Tokenize(by="whitespace"), Ngrams(size=2), *last]
    random, parts, after = np.random.default_rng(0), [], []
    for size in (40, 0, 60, 1, 200):
        drawn = [random.choice([*b"abcdefgh", MISSING[0]], random.integers(0, 9)) for _ in range(size)]
        parts.append(tf.ragged.constant([[bytes([of]) for of in row] for row in drawn], tf.string, 1))
        after.append(parts[-1])
        for step in steps[1:]:
            after[-1] = step.op(after[-1], **step.arguments)
    texts = [items(listed(of)) for of in after]
    for least, most in ((1, 1_000), (2, 15), (30, 3)):
        before, pairs = present(pairs_behind(steps))
        assert [*before] == steps[:1]
        expected, was_dropped = counts_in(texts, least, most, in_memory=in_memory)
        found = [pairs.numbers(listed(of)) for of in parts]
        assert [of.tolist() for _, of in found] == [of.row_lengths().numpy().tolist() for of in after]
        numbers = (pairs.numbers(listed(of))[0] for of in parts)
        counted, is_dropped = counts_in(numbers, least, most, in_memory=in_memory, pairs=pairs)
        assert (by_frequency(counted), is_dropped) == (by_frequency(expected), was_dropped)
        assert is_dropped is (in_memory < len({*pa.chunked_array(texts).drop_null().to_pylist()}))


def test_what_is_not_made_of_pairs_is_counted_by_its_texts() -> None:
    others = [
        (),
        (Ngrams(size=3),),
        (Ngrams(size=2), Lookup()),
        (Truncate(length=2),),
        (Ngrams(size=2), Ngrams(size=2)),
    ]
    assert [pairs_behind([Tokenize(by="whitespace"), *steps]) for steps in others] == [None] * 5


def test_rare_items_are_dropped_where_too_many_are_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [pa.array([*range(start, start + 20), -1, -1, -2]) for start in range(0, 1_000, 20)]
    counted, is_dropped = counts_in(parts, 1, 2, in_memory=50)
    assert (by_frequency(counted), is_dropped) == (([-1, -2], [100, 50]), True)
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"of {number},{'xy'[number % 2]}\n" for number in range(60))
    )
    monkeypatch.setattr(reader, "counts_in", partial(counts_in, in_memory=50))
    words = words_of_rows(
        tmp_path / "a.csv", "transform.columns={text: {steps: [{tokenize: whitespace}, lookup, embed]}}"
    )
    note = "more than 2,000,000 different values, of which rare ones are not all counted"
    for _ in range(2):  # also where it was fitted before
        columns = present(plan_of(*words).spec.columns)
        assert dict(columns.shares) == {"text": note}
