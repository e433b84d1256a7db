"""Vectors of words that embeddings begin with: from GloVe, word2vec and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.eject.parts import parts
from etlrun.planning.learned import columns_of
from etlrun.planning.plan import Plan, given_to_model
from etlrun.planning.planner import plan
from etlrun.run import model as models
from etlrun.run.model import _set_vectors
from etlrun.sources.rows.fitting import require_unchanged
from etlrun.stages.words import dimension_in, vectors_in
from etlrun.system.errors import ConfigError
from tests.configs import spec_of

GLOVE = "the 1 2 3\nunseen 4 5 6\nat night 7 7 7\ncafé 7 8 9\nthe 0 0 0\n"
"""Vectors of two words of the table; a word twice, and one with a blank."""
WORDS = "the\nunseen\ncafé\n"
ROWS = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], "float32")
FILES = {"glove.txt": GLOVE, "w2v.txt": f"3 3\n{GLOVE}".replace("\n", " \n"), "v.npy": WORDS}


def planned(folder: Path, **embed: Any) -> Plan:
    """The plan of a run on texts with the words `the`, `café` and `rat`."""
    texts = ["the café", "the rat", "the café"] * 10
    lines = [f'{{"text": "{text}", "score": {place % 2}}}' for place, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = ", ".join(f"{name}: {value}" for name, value in embed.items())
    steps = f"[{{tokenize: whitespace}}, lookup, {{embed: {{{given}}}}}]"
    words = (f"dataset.files={folder}/a.jsonl", f"dataset.dir={folder}/kept", "dataset.target={score: class}")
    return plan(spec_of("experiment=text", *words, f"transform.columns={{text: {{steps: {steps}}}}}"))


def written(folder: Path, name: str) -> dict[str, Any]:
    """Write a file of vectors; return the fields of `embed` for it."""
    (folder / name).write_text(FILES[name], encoding="utf-8")
    if name != "v.npy":
        return {"weights": folder / name}
    np.save(folder / name, ROWS)
    (folder / "words.txt").write_text(WORDS, encoding="utf-8")
    return {"weights": folder / name, "words": folder / "words.txt"}


def embedding(model: Any) -> Any:
    return next(layer for layer in model.layers if isinstance(layer, keras.layers.Embedding))


@pytest.mark.parametrize("name", ["glove.txt", "w2v.txt"])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    Path(path).write_text(FILES[name], encoding="utf-8-sig")
    found = vectors_in(path, listed=None, words=["the", "café"], dimension=dimension_in(path))
    assert {place: of.tolist() for place, of in found.items()} == {0: [1, 2, 3], 1: [7, 8, 9]}


@pytest.mark.parametrize("name", FILES)
def test_words_of_the_vocabulary_begin_with_their_vectors(tmp_path: Path, name: str) -> None:
    made = planned(tmp_path, **written(tmp_path, name), trainable="false")
    columns = columns_of(made.spec)
    assert columns is not None
    assert dict(columns.lines)["text"] == (
        f"<- text: tokenize whitespace, lookup [the, café, rat], embed 3 from {tmp_path}/{name}, which stay "
        f"(0 is padding, 1 is unknown); 66.7% of 3 words have a vector of {tmp_path}/{name}"
    )
    model = models.build(made.spec.model, given_to_model(made.train), (), 2)
    before = embedding(model).get_weights()[0]
    _set_vectors(model, made)
    (found,) = embedding(model).get_weights()
    assert found[2:4].tolist() == ROWS[[0, 2]].tolist()
    assert (found[[0, 1, 4]] == before[[0, 1, 4]]).all()
    assert embedding(model).trainable is False
    texts = parts(made)
    program = "\n\n\n".join(texts[: 1 + [of.startswith("def model") for of in texts].index(True)])
    names: dict[str, Any] = {"keras": keras, "np": np, "num_classes": lambda: 2}
    exec(f"from typing import Any\nfrom collections.abc import Mapping\n{program}", names)  # noqa: S102 - ours
    (again,) = embedding(names["model"]()).get_weights()
    assert again[2:4].tolist() == ROWS[[0, 2]].tolist()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("the 1 2 3\ncafé 1 2\n", "line 2: 'café 1 2' is no word with 3 numbers behind it"),
        ("the 1 2 3\ncafé 1 2 3 4\n", "line 2: 'café 1 2 3 4' is no word with 3 numbers behind it"),
        ("the 1 2 3\ncafé 1 x 3\n", "line 2: 'café 1 x 3' is no word with 3 numbers behind it"),
        ("the 1 2 nan\n", "line 1: 'the 1 2 nan' is no word with 3 numbers behind it"),
        ("the 1 2\n", "line 1: 2 numbers"),
        ("", "line 1: no word with numbers behind it"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "v.txt").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, weights=tmp_path / "v.txt", dimension=3)
    assert str(error.value) == (
        f"transform.columns.text.steps[2]: found {tmp_path}/v.txt, {found}; "
        "expected vectors of 3 numbers with their words\n    -> correct the path, or the file, or `dimension`"
    )


def test_other_vectors_are_another_run(tmp_path: Path) -> None:
    fields = written(tmp_path, "glove.txt")
    first = planned(tmp_path, **fields)
    fields["weights"].write_text(GLOVE.replace("1 2 3", "1 2 4"), encoding="utf-8")
    second = planned(tmp_path, **fields)
    assert first.fingerprint != second.fingerprint
    columns = columns_of(first.spec)
    assert columns is not None
    with pytest.raises(ConfigError, match="found a file that was changed since the run was planned"):
        require_unchanged([output for output in columns.outputs if output.weights])
