"""Words of texts: one form of Unicode, and files of vocabularies."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.eject.printed.rows_arrays import array_of
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_step import UnfitColumnError
from etlrun.stages.column_text import StandardizeText, Tokenize
from etlrun.stages.columns import Output
from etlrun.stages.rows import Arrays
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
