"""Words of texts: one form of Unicode, and files of vocabularies."""

from __future__ import annotations

import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from etlrun.cli import main as cli
from etlrun.cli.prepare import trained
from etlrun.eject.printed.rows import native as array_of
from etlrun.planning.learned import columns_of
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import UnfitColumnError
from etlrun.stages.column_text import StandardizeText, Tokenize
from etlrun.stages.columns import Output
from etlrun.stages.rows import Arrays
from tests.configs import plan_of, refusal_of_plan
from tests.tables import kept_from, values

COMPOSED = ["café crème", "plain", "각 Å"]
DECOMPOSED = [unicodedata.normalize("NFD", text) for text in COMPOSED]
NOTE = "text has texts that were not in Unicode's NFC: they are kept in it."


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
    assert [of.known.notes for of in kept] == [(), (NOTE,)]


@pytest.mark.parametrize("kind", ["U", "S"])
def test_texts_of_arrays_are_taken_in_one_form(tmp_path: Path, kind: str) -> None:
    texts = np.array([of if kind == "U" else of.encode() for of in DECOMPOSED])
    np.savez(tmp_path / "a.npz", text=texts, price=np.arange(3))
    given: dict[str, Any] = {"name": "arrays", "split": "train", "eval_split": None, "on_corrupt": "raise"}
    given |= {"target": {"price": "number"}, "inputs": None, "order": "file", "dir": str(tmp_path / "kept")}
    kept = ArraysSource.opened(Arrays(**given, files=str(tmp_path / "a.npz")))
    assert [of.decode() for of in kept.take("text", np.arange(3))] == COMPOSED
    assert kept.known.notes == (NOTE,)
    assert [of.decode() for of in array_of(texts)] == COMPOSED


def test_a_plan_says_what_standardizing_does_and_what_the_first_indices_are() -> None:
    steps = [Tokenize(by="whitespace"), Lookup(values=("a", "b"), oov=2), Embed(dimension=4, padding=True)]
    output = Output(name="text", of=("text",), steps=(StandardizeText(to="lower"), *steps))
    assert output.text == (
        "<- text: standardize_text lower (of ASCII: other letters keep their case), tokenize whitespace, "
        "lookup [a, b] (oov 2), embed 4 (0 is padding, 1 to 2 are unknown)"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbffair\r\ngo\xe2\x80\xa8od\r\n", ("fair", "go\u2028od")),
        ("cafe\u0301".encode(), ("café",)),
        (b"", "no line of {}; expected each value in one line\n    -> write it again"),
        (b"fair\n\ngood", "{}, line 2: no value; expected a value in each line\n    -> remove the line"),
        (
            b"fair\n good\n",
            """\
{}, line 2: ' good'; expected a value without blanks around it
    -> remove the blanks, or list the values in `values`""",
        ),
        (
            b"fair\ngood\nfair\n",
            "'fair' in lines 1 and 3 of {}; expected each value in one line\n    -> write it again",
        ),
        (b"fair\ncaf\xe9\n", "{}, line 2: b'caf\\xe9'; expected text in UTF-8\n    -> write it in UTF-8"),
    ],
)
def test_files_of_vocabularies(tmp_path: Path, content: bytes, expected: str | tuple[str, ...]) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    step = Lookup(file=str(path))
    if isinstance(expected, tuple):
        assert step.opened().values == expected
        return
    with pytest.raises(UnfitColumnError) as error:
        step.opened()
    assert f"{error.value.found}; expected {error.value.expected}\n    -> {error.value.remedy}" == expected.format(path)


PIECES = (
    "[UNK]",
    *"abcdefghijklmnopqrstuvwxyz,!-",
    *(f"##{of}" for of in "abcdefghijklmnopqrstuvwxyz"),
    "un",
    "##able",
)
SCRIPTS = [
    "unable, unbearable!",
    "naïve café",
    "привет, мир",
    "日本語 のテキスト",
    "한국어 텍스트",
    "नमस्ते दुनिया",
    "สวัสดี ab",
    "שלום עולם",
    "مرحبا بالعالم",
    "λέξη ψ",
    "a😀b 😀 well-known",
    "tab\tnew\nline \u3000 a\xa0b",
    "",
]


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
def test_a_lookup_behind_pieces_has_their_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    rows = [f'{{"text": "{text}", "score": {place % 2}}}' for place, text in enumerate(["unable", "ab, ?"] * 20)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    words = ("experiment=text", f"dataset.files={tmp_path}/a.jsonl", f"dataset.dir={tmp_path}/kept")
    tokens = f"{{tokenize: {{by: wordpiece, file: {tmp_path}/vocab.txt}}}}"
    columns = f"transform.columns={{text: {{steps: [{tokens}, lookup, {{embed: 4}}]}}}}"
    planned = columns_of(plan_of(*words, "dataset.target={score: class}", columns).spec)
    assert planned is not None
    found = planned.given({"text": tf.constant(["unable", "ab?"]), "score": tf.constant([0, 1])})["text"]
    assert found.to_list() == [
        [PIECES.index(of) + 2 for of in tokens] for tokens in (["un", "##able"], ["a", "##b", "[UNK]"])
    ]
    gone = columns.replace("/vocab.txt", "/gone.txt")
    assert refusal_of_plan(*words, "dataset.target={score: class}", gone) == (
        f"transform.columns.text.steps[0]: found {tmp_path}/gone.txt: No such file or directory; expected a text file "
        "with a value in each line\n"
        "    -> correct the path; relative ones start in the folder of the command; or pass the config to etlrun "
        "vocabulary --size 8000, which writes it"
    )


@pytest.mark.parametrize(("content", "is_there"), [("a\nb\n", True), ("a\n[UNK]\n", False)])
def test_pieces_that_can_not_be_used(tmp_path: Path, content: str, *, is_there: bool) -> None:
    if (find_spec("tensorflow_text") is not None) is not is_there:
        pytest.skip("one of the two is installed, or not")
    (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(UnfitColumnError) as error:
        Tokenize(by="wordpiece", file=str(tmp_path / "vocab.txt")).opened()
    expected = (
        "no package tensorflow-text; expected the one that tokenizes by pieces\n    -> pip install 'etlrun[text]'"
    )
    if is_there:
        expected = f"""\
no line [UNK] of {tmp_path}/vocab.txt; expected the piece [UNK], which stands for words that it has no pieces of
    -> add the line"""
    assert f"{error.value.found}; expected {error.value.expected}\n    -> {error.value.remedy}" == expected


def test_a_vocabulary_is_for_pieces_alone() -> None:
    wordpiece, others = Tokenize(by="wordpiece"), Tokenize(by="whitespace", file="vocab.txt")
    assert [*wordpiece.rules(), *others.rules()] == [
        ("file", "null", "the path of a vocabulary with by: wordpiece", "add file: vocab.txt"),
        ("file", "vocab.txt", "null with by: whitespace", "leave it out, or set by: wordpiece"),
    ]


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
        cli.main(["vocabulary", "--size", "60", *out, *words])
        found.append(Path(out[-1] if out else tmp_path / "v.txt").read_text(encoding="utf-8").split("\n"))
    assert capsys.readouterr().out.splitlines()[0] == f"60 pieces of 32 texts are in {tmp_path}/v.txt."
    assert found[0] == found[1]
    assert found[0][:6] == ["[UNK]", "'", ",", "0", "1", "2"]
    assert {"the", "##at"} <= {*found[0]}


@pytest.mark.needs("tokenizers")
def test_a_vocabulary_of_the_lines_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"the cat number {number} ate the rat's hat, und wohin?" for number in range(32)]
    (tmp_path / "a.txt").write_text("\ufeff" + "\n\n".join(lines[:20]), encoding="utf-8")
    (tmp_path / "b.txt").write_bytes("\r\n".join([*lines[20:], DECOMPOSED[0], ""]).encode())
    files, out = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], ["--out", str(tmp_path / "v.txt")]
    cli.main(["vocabulary", "--size", "70", *out, *files])
    assert capsys.readouterr().out == f"70 pieces of 33 texts are in {tmp_path}/v.txt.\n"
    pieces = (tmp_path / "v.txt").read_text(encoding="utf-8").split("\n")
    assert pieces == [*trained([*lines, COMPOSED[0]], 70), ""]
    (tmp_path / "b.txt").write_bytes(b"good\nf\xfcr\n")
    with pytest.raises(SystemExit):
        cli.main(["vocabulary", "--size", "70", *files, f"{tmp_path}/none.txt", "experiment=text"])
    assert (
        capsys.readouterr().err
        == f"""\
etlrun: 4 faults
  --out: found nothing; expected the file to write, which no config names
    -> pass --out vocab.txt
  {tmp_path}/b.txt, line 2: found the byte 0xfc; expected text in UTF-8
    -> convert it, as by: iconv -f LATIN1 -t UTF-8 {tmp_path}/b.txt
  {tmp_path}/none.txt: found No such file or directory; expected files of text alone, or overrides KEY=VALUE alone
    -> check the path, or the override
  experiment=text: found No such file or directory; expected files of text alone, or overrides KEY=VALUE alone
    -> check the path, or the override
"""
    )


@pytest.mark.needs("tokenizers")
def test_what_has_no_vocabulary_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = texts_in(tmp_path, "abc", "bcd")
    expected = {
        ("--size", "6", *words): """\
etlrun: 1 fault
  --size: found 6 for 8 characters; expected a larger vocabulary
    -> pass at least 8, or standardize the texts
""",
        ("--size", "9", *words[:-1]): """\
etlrun: 1 fault
  transform.columns: found none by pieces; expected one output of a dataset of rows that is tokenized by pieces of words
    -> pass 'transform.columns={review: {steps: [{tokenize: {by: wordpiece, file: vocab.txt}}, lookup, embed]}}'
""",
    }
    for given, message in expected.items():
        with pytest.raises(SystemExit):
            cli.main(["vocabulary", *given])
        assert capsys.readouterr().err == message
