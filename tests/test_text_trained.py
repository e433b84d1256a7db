"""Texts: models of them, evaluated, predicted and exported; commands around a run, programs; odd and long ones."""

import csv
import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.datasets.examine.show import as_text, collect
from etlrun.review.difference import compare
from tests import lists
from tests.configs import plan_of
from tests.conftest import Once
from tests.golden import Case, Golden, Says, cases
from tests.kinds import made_of
from tests.runs import complete_here
from tests.test_rows_arrays import refusal_of_function
from tests.test_rows_eject import require_same_batches
from tests.test_rows_texts import words_of_texts as words_of_folder
from tests.test_rows_texts import write_texts
from tests.texts import TOKENS, words_of, write_reviews
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


def rows_of(runs: Path) -> list[dict[str, Any]]:
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
    assert longest in {of["review"] for of in rows_of(runs)}
    assert f"review={longest}, stars=" in (folder / "evaluations" / "train.html").read_text()
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
    (tmp_path / "new.jsonl").write_text("".join(f"{json.dumps(of)}\n" for of in rows_of(runs)[:30]))
    words = (f"dataset.files={{test: {tmp_path}/new.jsonl}}", "dataset.split=test", "--importance", "0")
    found, _ = evaluated(runs, "texts", tmp_path, capsys, *words)
    assert (found["dataset"], found["split"], found["examples"]) == (f"{tmp_path}/new.jsonl", "test", 30)


def test_lines_of_text_are_predicted_as_rows(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [of["review"] for of in rows_of(runs)]
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
def test_onnx_takes_the_indices_of_the_vocabulary_that_its_description_has(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    import onnxruntime

    folder = tmp_path / "onnx"
    said(capsys, "export", runs / "texts", "--format", "onnx", "--output", folder)
    texts = [*(of["review"] for of in rows_of(runs)), "", "neu 日本 😀 good"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    wanted = predictions(said(capsys, "predict", runs / "texts", tmp_path / "texts.txt"))
    of = json.loads((folder / "export.json").read_text())
    steps = of["before"][0]["parameters"]["outputs"]["review"]["steps"]
    vocabulary = {token: index for index, token in enumerate(steps[2]["lookup"]["values"], 2)}
    indices = [[vocabulary.get(token, 1) for token in text.lower().split()] for text in texts]
    padded = np.array([of + [0] * (60 - len(of)) for of in indices])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["probabilities"], {"review": padded})[0], wanted, rtol=1e-5, atol=1e-6)
    says(of["inputs"])


BESIDE = ", end: {of: review, steps: [{tokenize: characters}, {truncate: {length: 3, keep: last}}, {hash: 9}, embed]}"
STARS = ", stars: {of: stars, steps: [standardize]}"
PAIRS = r"{tokenize: {by: regex, pattern: '\W+'}}, {ngrams: 2}, {truncate: 9}, {lookup: {top: 30}}, embed"
CONFIGS = {
    "bucketed": ("load.tokens_per_batch=64",),
    "of several inputs": ("load.drop_remainder=true", "load.boundaries=[4,20]", "load.drop_long=true"),
    "in order": ("load.shuffle=buffer", "load.shuffle_buffer=0", "dataset.order=file"),
    "padded": ("load.boundaries=[]",),
    "padded from a buffer": ("load.boundaries=[]", "load.shuffle=buffer", "load.shuffle_buffer=30"),
    "as vectors": ("load=shuffled", "load.batch_size=16"),
}
STEPS_OF = {
    "of several inputs": {"more": BESIDE + STARS},
    "padded": {"steps": PAIRS},
    "as vectors": {"steps": f"{TOKENS}, lookup, multi_hot"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_its_batches_are_those_of_the_run(reviews: Path, tmp_path: Path, name: str) -> None:
    words = words_of(reviews, *CONFIGS[name], **STEPS_OF.get(name, {}))
    words = tuple(word for word in words if name != "as vectors" or "boundaries" not in word)
    require_same_batches(plan_of(*words), tmp_path)


def write_reviews_of(path: Path) -> None:
    """Write rows of lists, of which some are missing, empty, or lack a number."""
    x: tuple[Any, ...] = ([0.5, None, 2], [], None, [1], [3, 4.5], [0])
    rows = [{"x": x[n % 6], "n": [n] * (n % 3), "kind": ["a", "b"][n % 2], "text": "a b"} for n in range(24)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FILLED = "x: {of: x, steps: [{fill: median}]}, n: {of: n, steps: [{hash: 9}, embed]}"


@pytest.mark.slow
def test_its_batches_of_lists_are_those_of_the_run(tmp_path: Path) -> None:
    write_reviews_of(tmp_path / "a.jsonl")
    given = (f"dataset.files={tmp_path / 'a.jsonl'}", "load.boundaries=[]", "load.batch_size=4")
    require_same_batches(plan_of(*lists.words_of(tmp_path, "trainer.epochs=2", *given, columns=FILLED)), tmp_path)


Rows = Sequence[tuple[str, str]]
STEPS = "{standardize_text: lower_and_strip_punctuation}, {tokenize: whitespace}"
COLUMNS = f"transform.columns={{text: {{steps: [{STEPS}, {{lookup: {{top: 50}}}}, {{embed: 4}}]}}}}"


def rows_with(**others: str) -> Rows:
    """40 texts of four words; `others` take the places of those at their numbers, as in `at_3`."""
    texts = {f"at_{n}": f"day night good w{n}" for n in range(40)} | others
    return [(text, ("neg", "pos")[n % 2]) for n, text in enumerate(texts.values())]


def write_json_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def write_parquet(path: Path, rows: Rows) -> None:
    texts, labels = zip(*rows, strict=True)
    pyarrow.parquet.write_table(pa.table({"text": texts, "label": labels}), path)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "rows.jsonl": write_json_lines,
    "rows.csv": write_csv,
    "rows.parquet": write_parquet,
}


def words_of_rows(path: Path, *others: str) -> tuple[str, ...]:
    files = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", "dataset.target={label: class}")
    whole = ("dataset.split=train", "dataset.eval_split=null", "dataset.order=file")
    return ("experiment=text", *files, *whole, "model=emulated", "load.batch_size=8", COLUMNS, *others)


def lengths_noted(path: Path, rows: Rows, *others: str) -> str:
    WRITERS[path.name](path, rows)
    dataset: Any = plan_of(*words_of_rows(path, *others)).spec.dataset
    return str(dataset.found.splits[-1]).partition(" (")[0]


@pytest.mark.parametrize("name", WRITERS)
def test_a_sequence_behind_the_last_boundary_is_refused_with_its_row(name: str, tmp_path: Path, says: Says) -> None:
    WRITERS[name](tmp_path / name, rows_with(at_7=" ".join(["day"] * 700)))
    says(refusal_of_function(*words_of_rows(tmp_path / name)))


@pytest.mark.parametrize("name", WRITERS)
def test_zeros_are_part_of_words(name: str, tmp_path: Path) -> None:
    assert lengths_noted(tmp_path / name, rows_with(at_3="day\0night good")) == "train: 40 sequences of 2 to 4 items"


def test_texts_without_a_word_are_sequences_without_an_item(tmp_path: Path) -> None:
    rows = rows_with(at_0="", at_1="... !", at_2="  ")
    assert lengths_noted(tmp_path / "rows.jsonl", rows) == "train: 40 sequences of 0 to 4 items"


def test_a_text_of_10_megabytes_is_read(tmp_path: Path) -> None:
    rows = rows_with(at_5="day night " * 1_000_000)
    found = lengths_noted(tmp_path / "rows.jsonl", rows, "load=padded")
    assert found == "train: 40 sequences of 4 to 2,000,000 items"
    assert lengths_noted(tmp_path / "rows.csv", rows, "load=padded") == found


@pytest.mark.parametrize("text", ["", "... !"])
def test_nothing_is_learned_from_texts_without_words(text: str, tmp_path: Path, says: Says) -> None:
    write_json_lines(tmp_path / "rows.jsonl", rows_with(**{f"at_{n}": text for n in range(40)}))
    says(refusal_of_function(*words_of_rows(tmp_path / "rows.jsonl")))


def test_texts_tokens_and_identifiers_are_shown(reviews: Path) -> None:
    words = words_of(reviews, "dataset.order=file", steps=f"{TOKENS}, {{lookup: [good, bad]}}, embed")
    sheet = collect(plan_of(*words), "train", 3)
    texts = [json.loads(line)["review"] for line in (reviews / "reviews.jsonl").read_text().splitlines()[:3]]
    shown = {
        view.path: [as_text(cell["review"], view.features["review"]) for cell in view.cells] for view in sheet.views
    }
    tokens = [text.lower().split() for text in texts]
    assert [*shown][1:4] == [f"transform.columns after step {number}" for number in (1, 2, 3)]
    assert shown["transform.columns after step 2"] == [" | ".join(of) for of in tokens]
    index = {"good": 2, "bad": 3}
    assert shown["transform.columns"] == [
        np.array2string(np.array([index.get(token, 1) for token in of]), threshold=16, edgeitems=4, separator=", ")
        for of in tokens
    ]
    view = next(view for view in sheet.views if view.path == "transform.columns after step 2")
    assert view.shown("review") == f"{min(map(len, tokens))} to {max(map(len, tokens))} tokens"


@pytest.mark.parametrize("word", ["load.boundaries=[4,40]", "load.tokens_per_batch=64", "load.drop_long=true"])
def test_a_comparison_tells_other_batches(reviews: Path, word: str, says: Says) -> None:
    found = compare(plan_of(*words_of(reviews)), plan_of(*words_of(reviews, word)))
    says([found.headline, *(f"{of.path}  {of.old} -> {of.new}" for of in found.differences)])


def test_a_comparison_tells_other_steps_on_texts_and_other_lengths(reviews: Path) -> None:
    steps = "{standardize_text: none}, {tokenize: whitespace}, {truncate: 5}, {lookup: {min_count: 20}}, {embed: 4}"
    found = compare(plan_of(*words_of(reviews)), plan_of(*words_of(reviews, steps=steps)))
    assert found.headline == "changes the data, from transform.columns on"
    (of,) = found.differences
    assert of.path == "transform.columns.review"
    assert str(of.old).startswith("review: standardize_text lower")
    assert str(of.new).startswith("review: standardize_text none, tokenize whitespace, truncate 5, lookup ")
    old, new = (plan_of(*words_of(reviews, f"load.boundaries=[4,{last}]", "load.drop_long=true")) for last in (10, 20))
    assert compare(old, new).doubts == (
        "load.drop_long=true: with another last boundary, a pass leaves out other sequences.",
    )


def test_the_doctor_examines_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    rows = [{"review": f"tea number {number} is not bad", "shop": f"s{number}"} for number in range(20)]
    texts = ("", "  ", "\u0447\u0430\u0439 \u0438 \u043a\u043e\u0444\u0435", *[rows[19]["review"], rows[3]["review"]])
    rows += [{"review": text, "shop": f"t{number}"} for number, text in enumerate(texts)]
    lines = [json.dumps({**row, "score": "good" if place % 2 else "bad"}) for place, row in enumerate(rows)]
    for name, part in (("train", lines[:23]), ("validation", lines[23:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part) + "\n")
    (tmp_path / "train.jsonl").write_text("\n".join([*lines[:23], lines[3].replace("s3", "u")]) + "\n")
    files = f"dataset.files={{train: {tmp_path}/train.jsonl, validation: {tmp_path}/validation.jsonl}}"
    steps, more = f"{TOKENS}, {{lookup: {{top: 5}}}}, {{embed: 4}}", ", shop: {of: shop, steps: [{hash: 9}, one_hot]}"
    words = (*words_of(tmp_path, steps=steps, more=more), files)
    splits = ("dataset.split=train", "dataset.eval_split=validation")
    given = [word for word in words if not word.startswith("dataset.files=/")]
    found = json.loads(said(capsys, "doctor", *given, *splits, "--format", "json"))
    says([of["text"] for of in found["findings"]][:2])
    assert not any("blanks" in of["text"] for of in found["findings"])  # which part tokens
