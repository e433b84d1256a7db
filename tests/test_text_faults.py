"""Texts that are long, empty or odd: what becomes of them, and what is refused with its row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.configs import plan_of
from tests.test_rows_arrays import refusal_of_function

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


def words_of(path: Path, *others: str) -> tuple[str, ...]:
    files = (f"dataset.files={path}", f"dataset.dir={path.parent / 'kept'}", "dataset.target={label: class}")
    whole = ("dataset.split=train", "dataset.eval_split=null", "dataset.order=file")
    return ("experiment=text", *files, *whole, "model=emulated", "load.batch_size=8", COLUMNS, *others)


def lengths_noted(path: Path, rows: Rows, *others: str) -> str:
    WRITERS[path.name](path, rows)
    dataset: Any = plan_of(*words_of(path, *others)).spec.dataset
    return str(dataset.found.splits[-1]).partition(",")[0]


@pytest.mark.parametrize("name", WRITERS)
def test_a_sequence_behind_the_last_boundary_is_refused_with_its_row(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, rows_with(at_7=" ".join(["day"] * 700)))
    assert refusal_of_function(*words_of(tmp_path / name)) == (
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
    assert refusal_of_function(*words_of(tmp_path / "rows.jsonl")) == (
        "transform.columns.text.steps[2]: found no value in the 40 rows of the training split; expected at least one "
        "value to learn from\n    -> leave the column out, or give the values in the config"
    )
