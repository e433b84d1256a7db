"""The doctor on rows: a table with planted faults, and what is found in it; and figures of its columns."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from etlrun.datasets.examine.rows import _explained, _right
from tests.golden import Golden, Says
from tests.tables import houses, words_of, write_houses
from tests.trained import said

ROWS = 400
ROOT = Path(__file__).resolve().parent.parent


def planted() -> dict[str, pa.Table]:
    """Two splits of a table in which much is wrong."""
    rng = np.random.default_rng(0)
    tables = {}
    for split, rows in (("train", ROWS), ("val", ROWS // 4)):
        size, kind = rng.normal(50, 10, rows), rng.choice(["a", "b", "c"], rows)
        is_dear = (size + rng.normal(0, 10, rows) > 50).astype(str)
        if split == "val":
            kind[:30], size = "d", size + 20
        pay, sold = rng.lognormal(0, 1, rows), np.where(is_dear == "True", rng.integers(100, 200, rows), 0)
        pay[[3, 5]] = -999
        tables[split] = pa.table(
            {
                "id": np.arange(rows) + ROWS * (split == "val"),
                "size": size,
                "kind": kind,
                "pay": pay,
                "city": np.full(rows, "Ulm"),
                "sold": sold,
                "note": pa.array(rng.choice(["x", " y"], rows), mask=rng.random(rows) < 0.7),
                "dear": is_dear,
            }
        )
    same = tables["train"].slice(7, 1).set_column(0, "id", pa.array([900]))
    other = tables["train"].slice(8, 1).set_column(0, "id", pa.array([901]))
    dear = "False" if other["dear"][0].as_py() == "True" else "True"
    other = other.set_column(7, "dear", pa.array([dear]))
    tables["val"] = pa.concat_tables([tables["val"], same])
    tables["train"] = pa.concat_tables([tables["train"], other, same.set_column(0, "id", pa.array([902]))])
    return tables


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("planted")
    for split, table in planted().items():
        pyarrow.csv.write_csv(table, folder / f"{split}.csv")
    files = f"dataset.files={{train: {folder}/train.csv, val: {folder}/val.csv}}"
    others = ["dataset.split=train", "dataset.eval_split=val", "dataset.inputs=null"]
    return [*words_of(folder, files, *others, target="{dear: binary}")]


def test_what_is_wrong_is_found(
    words: list[str], capsys: pytest.CaptureFixture[str], golden: Golden, says: Says
) -> None:
    text = said(capsys, "doctor", *words, "--format", "json")
    folder = str(Path(words[2].partition("=")[2]).parent)
    found = json.loads(text.replace(folder, "TMP"))
    findings = [{name: of[name] for name in ("text", "remedy", "places")} for of in found["findings"]]
    kept = ROOT / "tests" / "golden" / "reports" / "doctor_of_rows.json"
    golden(kept, json.dumps(findings, indent=2, ensure_ascii=False) + "\n")
    assert "note has blanks around values, which stay: dataset.strip=true removes them." in found["notes"]
    note = found["splits"][0]["columns"][6]
    says(note)


def test_columns_without_faults_have_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_houses(tmp_path)
    text = said(capsys, "doctor", *words_of(tmp_path, "dataset.inputs=null", "dataset.order=file"))
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    assert text.splitlines()[0] == "finding   none"
    (area,) = [line for line in lines if line[:2] == ["train[:80%]", "area"]]
    values = houses()["area"].to_numpy()[:160]
    there = values[~np.isnan(values)]
    figures = [f"{of:.6g}" for of in (there.mean(), there.min(), np.median(there), there.max())]
    missing = 160 - len(there)
    assert area[2:10] == ["number", str(missing), f"{missing / 160:.1%}", str(len(there)), *figures]
    flats = houses()["kind"][:160].to_pylist().count("flat")
    assert any(f"flat ({flats})" in of for line in lines for of in line)
    assert "mage" not in text


def test_a_rule_of_one_column_is_judged_on_rows_that_it_has_not_seen() -> None:
    rng = np.random.default_rng(0)
    truth = rng.permutation(1_000).astype(float)
    classes = (truth > 500).astype(np.int64)
    assert _explained(classes, truth) == pytest.approx(0.75, abs=0.02)
    assert _right(classes, classes) == 1
    numbers_of_rows = np.arange(1_000)
    assert _explained(numbers_of_rows, truth) == pytest.approx(0, abs=0.02)
    assert _right(numbers_of_rows, classes) == 0
    assert _right(rng.integers(0, 5, 1_000), classes) == pytest.approx(0, abs=0.2)


def test_targets_that_are_out_of_balance_or_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    rare = ["yes" if row % 20 == 0 else "no" for row in range(200)]
    table = pa.table({"a": np.arange(200.0) % 40, "rare": rare, "flag": np.arange(200) % 2})
    pyarrow.csv.write_csv(table, tmp_path / "a.csv")

    def findings(target: str) -> list[tuple[str, str]]:
        files = f"dataset.files={tmp_path}/a.csv"
        words = words_of(tmp_path, files, "dataset.inputs=[a]", "dataset.order=file", target=target)
        found = json.loads(said(capsys, "doctor", *words, "--format", "json"))["findings"]
        return [(of["text"], of["remedy"]) for of in found if "equal" not in of["text"]]

    uniform = "load.sample=uniform_by_class with load.shuffle=full"
    says(findings("{rare: class}"))
    assert findings("{rare: binary}")[0][1] == f"try {uniform}, and look at auc, precision and recall"
    says(findings("{flag: number}"))


def test_integers_far_from_others_are_named_with_all_of_their_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*((number, number % 2) for number in range(300)), *((10**9 + number, 1) for number in range(2))]
    lines = "".join(f"{count},{dear}\n" for count, dear in rows)
    (tmp_path / "counts.csv").write_text(f"count,dear\n{lines}")
    words = words_of(tmp_path, f"dataset.files={tmp_path}/counts.csv", "dataset.inputs=null", target="{dear: binary}")
    found = json.loads(said(capsys, "doctor", *words, "--format", "json"))["findings"]
    (far,) = (of for of in found if "is far from all other values" in of["text"])
    assert {place.rpartition(": ")[2] for place in far["places"]} == {"1000000000", "1000000001"}
