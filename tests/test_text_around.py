"""Texts in the commands around a run and in ejected programs, and what becomes of those that are long or odd."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.datasets.examine.show import Wanted, as_text, collect
from etlrun.review.difference import compare
from tests import lists
from tests.configs import plan_of
from tests.conftest import Once
from tests.test_rows_arrays import refusal_of_function
from tests.test_rows_eject import require_same_batches
from tests.texts import TOKENS, words_of, write_reviews
from tests.trained import said

BESIDE = ", end: {of: review, steps: [{tokenize: characters}, {truncate: {length: 3, keep: last}}, {hash: 9}, embed]}"
STARS = ", stars: {of: stars, steps: [standardize]}"
PAIRS = r"{tokenize: {by: regex, pattern: '\W+'}}, {ngrams: 2}, {truncate: 9}, {lookup: {top: 30}}, embed"
CONFIGS = {
    "bucketed": ("load.batch_sizes=[16,8,5]",),
    "of several inputs": ("load.drop_remainder=true", "load.boundaries=[4,20]", "load.drop_long=true"),
    "in order": ("load.shuffle=buffer", "load.shuffle_buffer=0", "dataset.order=file"),
    "padded": ("load.boundaries=[]",),
    "padded from a buffer": ("load.boundaries=[]", "load.shuffle=buffer", "load.shuffle_buffer=30"),
    "as vectors": ("load=shuffled", "load.batch_size=16"),
}
STEPS_OF = {
    "of several inputs": {"more": BESIDE + STARS},
    "padded": {"steps": PAIRS},
    "as vectors": {
        "steps": f"{TOKENS}, lookup, multi_hot",
        "more": f", weights: {{of: review, steps: [{TOKENS}, lookup, tf_idf]}}",
    },
}


@pytest.fixture(scope="module")
def reviews(once: Once) -> Path:
    """The folder of `reviews.jsonl`."""
    return once("reviews", write_reviews)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_its_batches_are_those_of_the_run(reviews: Path, tmp_path: Path, name: str) -> None:
    words = words_of(reviews, *CONFIGS[name], **STEPS_OF.get(name, {}))
    words = tuple(word for word in words if name != "as vectors" or "boundaries" not in word)
    require_same_batches(plan_of(*words), tmp_path)


@pytest.fixture(scope="module")
def signals(once: Once) -> Path:
    """The folder of `signals.parquet`."""
    return once("signals", lists.write_signals)


def write_reviews_of(path: Path) -> None:
    """Write rows of lists, of which some are missing, empty, or lack a number."""
    x: tuple[Any, ...] = ([0.5, None, 2], [], None, [1], [3, 4.5], [0])
    rows = [{"x": x[n % 6], "n": [n] * (n % 3), "kind": ["a", "b"][n % 2], "text": "a b"} for n in range(24)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FILLED = "x: {of: x, steps: [{fill: median}]}, n: {of: n, steps: [{hash: 9}, embed]}"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_its_batches_of_lists_are_those_of_the_run(form: str, signals: Path, tmp_path: Path) -> None:
    words = lists.words_of(signals, "trainer.epochs=2", columns=f"{lists.SIGNAL}, {lists.EVENTS}, {lists.AGE}")
    if form == "jsonl":
        write_reviews_of(tmp_path / "a.jsonl")
        given = (f"dataset.files={tmp_path / 'a.jsonl'}", "load.boundaries=[]", "load.batch_size=4")
        words = lists.words_of(tmp_path, "trainer.epochs=2", *given, columns=FILLED)
    require_same_batches(plan_of(*words), tmp_path)


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
    return str(dataset.found.splits[-1]).partition(",")[0]


@pytest.mark.parametrize("name", WRITERS)
def test_a_sequence_behind_the_last_boundary_is_refused_with_its_row(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, rows_with(at_7=" ".join(["day"] * 700)))
    assert refusal_of_function(*words_of_rows(tmp_path / name)) == (
        f"load.boundaries: found 700 items in {tmp_path / name}, row 7; 1 of 40 sequences of train are longer than "
        "512; expected at most 512 items, the last boundary\n"
        "    -> add {truncate: 512} to the steps of the column, or a boundary, or set load.drop_long=true"
    )


@pytest.mark.parametrize("name", WRITERS)
def test_zeros_are_part_of_words(name: str, tmp_path: Path) -> None:
    assert lengths_noted(tmp_path / name, rows_with(at_3="day\0night good")) == "train: 40 sequences of 2 to 4 items"


def test_texts_without_a_word_are_sequences_without_an_item(tmp_path: Path) -> None:
    rows = rows_with(at_0="", at_1="... !", at_2="  ")
    assert lengths_noted(tmp_path / "rows.jsonl", rows) == "train: 40 sequences of 0 to 4 items"


def test_a_text_of_10_megabytes_is_read(tmp_path: Path) -> None:
    rows = rows_with(at_5="day night " * 1_000_000)
    found = lengths_noted(tmp_path / "rows.jsonl", rows, "load=padded")
    assert found == "train: 40 sequences of 4 to 2"
    assert lengths_noted(tmp_path / "rows.csv", rows, "load=padded") == found


@pytest.mark.parametrize("text", ["", "... !"])
def test_nothing_is_learned_from_texts_without_words(text: str, tmp_path: Path) -> None:
    write_json_lines(tmp_path / "rows.jsonl", rows_with(**{f"at_{n}": text for n in range(40)}))
    assert refusal_of_function(*words_of_rows(tmp_path / "rows.jsonl")) == (
        "transform.columns.text.steps[2]: found no value in the 40 rows of the training split; expected at least one "
        "value to learn from\n    -> leave the column out, or give the values in the config"
    )


def test_a_plan_has_the_share_of_tokens_that_are_unknown(reviews: Path) -> None:
    steps = f"{TOKENS}, {{lookup: {{values: [good, bad]}}}}, embed"
    plan = plan_of(*words_of(reviews, "dataset.order=file", steps=steps))
    texts = [json.loads(line)["review"].split() for line in (reviews / "reviews.jsonl").read_text().splitlines()]
    shares = []
    for name, part in (("train[:80%]", texts[:160]), ("train[80%:]", texts[160:])):
        tokens = [token for text in part for token in text]
        shares.append(f"{np.mean([token not in ('good', 'bad') for token in tokens]):.1%} of the tokens of {name}")
    columns = plan.spec.transform.steps[-1]
    assert dict(columns.lines)["review"].partition("; ")[2] == f"unknown {' and '.join(shares)}"  # type: ignore[attr-defined]


def test_texts_tokens_and_identifiers_are_shown(reviews: Path) -> None:
    words = words_of(reviews, "dataset.order=file", steps=f"{TOKENS}, {{lookup: [good, bad]}}, embed")
    sheet = collect(plan_of(*words), "train", Wanted(batches=1, examples=3))
    texts = [json.loads(line)["review"] for line in (reviews / "reviews.jsonl").read_text().splitlines()[:3]]
    shown = {
        column.path: [as_text(cell["review"], view.features["review"]) for cell in view.cells]
        for column, view in sheet.views
    }
    tokens = [text.lower().split() for text in texts]
    assert [*shown][1:4] == [f"transform.columns after step {number}" for number in (1, 2, 3)]
    assert shown["transform.columns after step 2"] == [" | ".join(of) for of in tokens]
    index = {"good": 2, "bad": 3}
    assert shown["transform.columns"] == [
        np.array2string(np.array([index.get(token, 1) for token in of]), threshold=16, edgeitems=4, separator=", ")
        for of in tokens
    ]
    view = next(view for column, view in sheet.views if column.path == "transform.columns after step 2")
    assert view.shown("review") == f"{min(map(len, tokens))} to {max(map(len, tokens))} tokens"


DIFFERENCES = {
    "boundaries": (
        ("load.boundaries=[4,40]",),
        "changes the order",
        [("load.boundaries", "[4, 10, 40]", "[4, 40]")],
    ),
    "sizes": (
        ("load.batch_sizes=[16,8,4]",),
        "changes the order",
        [("load.batch_sizes", "null", "[16, 8, 4]")],
    ),
    "long ones": (
        ("load.drop_long=true",),
        "changes the data, from load.batch on",
        [("load.drop_long", "false", "true")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "headline", "differences"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_comparison_tells_other_batches(
    reviews: Path, words: tuple[str, ...], headline: str, differences: list[tuple[str, str, str]]
) -> None:
    found = compare(plan_of(*words_of(reviews)), plan_of(*words_of(reviews, *words)))
    assert found.headline == headline
    assert [(of.path, of.old, of.new) for of in found.differences] == differences


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


def test_the_doctor_examines_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    found = json.loads(said(capsys, "doctor", *given, *splits, "--format", "json", "--html", tmp_path / "page.html"))
    assert [of["text"] for of in found["findings"]][:3] == [
        "1 text of review is in several splits",
        "1 text of review is under several targets",
        "review has no word in 2 of 24 rows of train (8.3%) and in 0 of 2 rows of validation (0.0%)",
    ]
    assert not any("blanks" in of["text"] for of in found["findings"])  # which part tokens
    assert found["notes"][-1] == "review: unknown 18.6% of the tokens of train and 16.7% of the tokens of validation."
    (texts_of_train,) = found["splits"][0]["texts"]
    letters = {"Latin": (20 + 1) * len("teanumberisnotbad"), "Cyrillic": 8}
    assert texts_of_train == {
        "name": "review",
        "rows": 24,
        "empty": 2,
        "words": [6, 6],
        "characters": [23, 24],
        "scripts": {name: count / sum(letters.values()) for name, count in letters.items()},
    }
    assert "Latin 97.8%, Cyrillic 2.2%" in (tmp_path / "page.html").read_text()
