"""What models of texts have learned: evaluated, predicted from lines of text, and exported."""

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.planning.plan import Plan, given_to_model
from etlrun.planning.planner import plan
from etlrun.run import model as models
from etlrun.run.model import _set_vectors
from etlrun.sources.rows.fitting import require_unchanged
from etlrun.stages.words import dimension_in, vectors_in
from etlrun.system.errors import ConfigError
from tests.configs import raised, spec_of
from tests.conftest import Once
from tests.golden import Case, Golden, cases
from tests.kinds import made_of
from tests.programs import program_of
from tests.runs import complete_here
from tests.test_rows_texts import words_of_texts as words_of_folder
from tests.test_rows_texts import write_texts
from tests.texts import words_of, write_reviews
from tests.trained import refusal, said

EMULATED = ("model=emulated", "model.step_ms=0")


def train(folder: Path) -> None:
    """Train models of the reviews without the long ones, and of a folder of texts."""
    write_reviews(folder)
    words = words_of(folder, "model=text", "model.units=4", "trainer.epochs=1")
    complete_here(folder / "texts", [*words, "load.boundaries=[4,10]", "load.drop_long=true"])
    write_texts(folder / "tree" / "texts", ("train",), each=10)
    words = words_of_folder(folder / "tree", "model=text", "model.units=4", "trainer.epochs=1")
    complete_here(folder / "of_folder", [word for word in words if word not in EMULATED])


@pytest.fixture(scope="module")
def runs(once: Once) -> Path:
    """The folder of `reviews.jsonl`, and of two runs on it."""
    return once("trained on texts", train)


def reviews(runs: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (runs / "reviews.jsonl").read_text().splitlines()]


def predictions(text: str) -> list[list[np.float32]]:
    return [
        [np.float32(row[name]) for name in ("probability_other", "probability_positive")]
        for row in csv.DictReader(text.splitlines())
    ]


def evaluated(runs: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The evaluation of a copy of a run, as JSON, and the folder of the copy."""

    folder = shutil.copytree(runs / name, tmp_path / name)
    return json.loads(said(capsys, "evaluate", folder, *words, "--format", "json")), folder


def test_an_evaluation_shows_texts_and_leaves_out_no_sequence(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, folder = evaluated(runs, "texts", tmp_path, capsys, "dataset.split=train")
    worth = found["importance"]
    assert (found["examples"], worth["value"], worth["predictions"]) == (200, found["accuracy"]["value"], 200 * 6)
    assert [of["name"] for of in worth["columns"]] == ["review"]
    longest = max((of["columns"]["review"] for of in found["mistakes"]), key=len)
    assert longest in {of["review"] for of in reviews(runs)}
    page = (folder / "evaluations" / "train.html").read_text()
    assert f'<td class="long">{longest}</td>' in page
    words = said(capsys, "evaluate", folder, "dataset.split=train", "--importance", "0").split()
    assert " ".join(found["mistakes"][0]["columns"]["review"].split()) in " ".join(words)


def test_a_model_of_a_folder_is_evaluated_on_another_folder(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(tmp_path / "others", each=6)
    words = (f"dataset.folder={tmp_path / 'others'}", "dataset.split=test")
    found, _ = evaluated(runs, "of_folder", tmp_path, capsys, *words)
    assert (found["split"], found["examples"]) == ("test", 12)


def test_an_evaluation_reads_files_of_a_split_that_the_training_did_not_have(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.jsonl").write_text("".join(f"{json.dumps(of)}\n" for of in reviews(runs)[:30]))
    words = (f"dataset.files={{test: {tmp_path}/new.jsonl}}", "dataset.split=test", "--importance", "0")
    found, _ = evaluated(runs, "texts", tmp_path, capsys, *words)
    assert (found["dataset"], found["split"], found["examples"]) == (f"{tmp_path}/new.jsonl", "test", 30)


def test_lines_of_text_are_predicted_as_rows(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [of["review"] for of in reviews(runs)]
    (tmp_path / "texts.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(texts).encode())
    found = predictions(said(capsys, "predict", runs / "texts", tmp_path / "texts.txt"))
    of_split = csv.DictReader(said(capsys, "predict", runs / "texts", "dataset.split=train").splitlines())
    known = {int(of["path"].rpartition(" ")[2]): of["probability_positive"] for of in of_split}
    assert len(texts) == len(found)
    np.testing.assert_allclose([of[1] for of in found], [float(known[row]) for row in range(200)], rtol=1e-5)


@pytest.mark.parametrize("case", cases("text_trained"))
def test_lines_that_a_run_can_not_read_are_refused(
    runs: Path, once: Once, tmp_path: Path, case: Case, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    golden(case, refusal(capsys, case, RUNS=runs, BOTH=made_of("text", once).run, DIR=tmp_path))


def test_lines_that_are_not_utf8_are_read_by_choice_compressed_ones_too(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, whole = tmp_path / "broken.txt.gz", tmp_path / "whole.txt"
    broken.write_bytes(gzip.compress(b"good \xff\x00 tea\n\nbad"))
    whole.write_text("good \ufffd\x00 tea\n\nbad\n", encoding="utf-8")
    found = predictions(said(capsys, "predict", runs / "texts", broken, "dataset.errors=replace"))
    assert found == predictions(said(capsys, "predict", runs / "texts", whole))


@pytest.mark.needs("onnx", "onnxruntime", "tf2onnx")
def test_onnx_takes_the_indices_of_a_vocabulary_that_is_beside_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime

    folder = tmp_path / "onnx"
    said(capsys, "export", runs / "texts", "--format", "onnx", "--output", folder)
    texts = [*(of["review"] for of in reviews(runs)), "", "neu 日本 😀 good"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    wanted = predictions(said(capsys, "predict", runs / "texts", tmp_path / "texts.txt"))
    lines = (folder / "review.vocabulary.jsonl").read_text(encoding="utf-8").splitlines()
    vocabulary = {json.loads(line): index for index, line in enumerate(lines)}
    indices = [[vocabulary.get(token, 1) for token in text.lower().split()] for text in texts]
    padded = np.array([of + [0] * (60 - len(of)) for of in indices])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["probabilities"], {"review": padded})[0], wanted, rtol=1e-5, atol=1e-6)
    of = json.loads((folder / "export.json").read_text())
    assert of["inputs"] == [
        {
            "name": "review",
            "column": "review",
            "dtype": "int64",
            "shape": [None, None],
            "content": "indices of categories, with 0 behind those of each list",
            "range": [0, len(lines) - 1],
            "missing": None,
            "example": [2],
            "vocabulary": {"file": "review.vocabulary.jsonl", "padding": 0, "unknown": [1]},
        }
    ]
    assert [(step["step"], step["parameters"]) for step in of["before"]] == [
        ("NFC", {}),
        ("standardize_text", {"to": "lower"}),
        ("tokenize", {"by": "whitespace"}),
        ("lookup", {"values": "review.vocabulary.jsonl", "oov": 1}),
    ]
    card = (folder / "model_card.md").read_text().splitlines()
    assert any('{"file": "review.vocabulary.jsonl", "padding": 0, "unknown": [1]}' in line for line in card)


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
    columns = made.spec.columns
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
    (again,) = embedding(program_of(made, tmp_path).model()).get_weights()
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
    assert raised(ConfigError, planned, tmp_path, weights=tmp_path / "v.txt", dimension=3) == (
        f"transform.columns.text.steps[2]: found {tmp_path}/v.txt, {found}; "
        "expected vectors of 3 numbers with their words\n    -> correct the path, or the file, or `dimension`"
    )


def test_other_vectors_are_another_run(tmp_path: Path) -> None:
    fields = written(tmp_path, "glove.txt")
    first = planned(tmp_path, **fields)
    fields["weights"].write_text(GLOVE.replace("1 2 3", "1 2 4"), encoding="utf-8")
    second = planned(tmp_path, **fields)
    assert first.fingerprint != second.fingerprint
    columns = first.spec.columns
    assert columns is not None
    with pytest.raises(ConfigError, match="found a file that was changed since the run was planned"):
        require_unchanged([output for output in columns.outputs if output.weights])
