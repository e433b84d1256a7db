"""Rows of arrays of NumPy: mapped where they are, of any number of dimensions, and faults of their files."""

import os
import pickle
import re
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.planning.plan import Plan
from etlrun.sources.base import open_source
from etlrun.sources.rows.arrays import KeptArrays
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.flow import MISSING
from etlrun.system.errors import EtlrunError
from tests.configs import CONF, plan_of, raised, refusal_of_plan
from tests.golden import Case, Golden, Says, cases, read
from tests.pipelines import training_pipeline
from tests.present import present
from tests.runs import run_here
from tests.servers import serving

ROWS = 60


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.random((ROWS, 3, 2)).astype("float32"),
        "image": rng.integers(0, 255, (ROWS, 4, 4), np.uint8),
        "age": np.where(np.arange(ROWS) % 7 == 2, np.nan, np.arange(ROWS)),
        "count": np.arange(ROWS).astype(">i2"),
        "name": np.array(["a", "\u00e9", "c"])[np.arange(ROWS) % 3],
        "code": np.array([b"p", b"q"])[np.arange(ROWS) % 2],
        "y": rng.integers(0, 3, ROWS),
    }


def saved(folder: Path, found: dict[str, Any], *, archive: bool = False, compressed: bool = False) -> str:
    """The value of `dataset.files` for these arrays, which are saved to a folder."""
    if archive:
        (np.savez_compressed if compressed else np.savez)(folder / "all.npz", **found)
        return str(folder / "all.npz")
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    return f"{{{', '.join(f'{name}: {folder}/{name}.npy' for name in found)}}}"


def words_of(folder: Path, files: str, *others: str) -> list[str]:
    words = ["dataset=arrays", f"dataset.files={files}", f"dataset.dir={folder / 'kept'}", "transform=columns"]
    words += ["dataset.target={y: class}", "extract=sequential", "cache=none", "load.batch_size=8"]
    return [*words, *(others or ("model=emulated", "model.step_ms=0"))]


def source_of(plan: Plan) -> RowsSource:
    source = open_source(plan.spec.dataset)
    assert isinstance(source, RowsSource)
    return source


FORMS: dict[str, dict[str, bool]] = {
    "npy": {},
    "npz": {"archive": True},
    "compressed": {"archive": True, "compressed": True},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_columns_hold_what_the_arrays_hold(tmp_path: Path, form: dict[str, bool]) -> None:
    found = arrays()
    kept = source_of(plan_of(*words_of(tmp_path, saved(tmp_path, found, **form)))).kept
    numbers = np.array([3, 59, 0, 2, 3])
    assert isinstance(kept, KeptArrays)
    for name in ("x", "image", "age", "count", "y"):
        np.testing.assert_array_equal(kept.take(name, numbers), found[name][numbers])
        column = kept.known.columns[name]
        assert (column.feature.shape, column.feature.dtype) == (
            found[name].shape[1:],
            kept.take(name, numbers).dtype.name,
        )
    assert kept.take("name", numbers).tolist() == [of.encode() for of in found["name"][numbers]]
    assert kept.take("code", numbers).tolist() == found["code"][numbers].tolist()
    assert MISSING not in kept.take("name", numbers).tolist()
    assert (kept.known.columns["age"].missing, kept.known.columns["y"].distinct) == (9, 3)
    assert kept.arrow("age").null_count == 9
    assert kept.arrow("image").take([5]).to_pylist() == [found["image"][5].ravel().tolist()]
    assert len([*kept.folder.glob("*.npy")]) == (len(found) if form else 0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_all_forms_are_read_alike(tmp_path: Path, form: dict[str, bool]) -> None:
    found = arrays()
    planned = plan_of(*words_of(tmp_path, saved(tmp_path, found, **form)), "load.shuffle_buffer=0")
    rows = source_of(planned).split("train[:80%]", "").numbers
    image = found["image"][rows].astype(float)
    with training_pipeline(planned) as pipeline:
        inputs, labels = next(pipeline.dataset.as_numpy_iterator())
    np.testing.assert_allclose(inputs["image"], (image[:8] - image.mean()) / image.std(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(labels, found["y"][rows[:8]])
    assert inputs["x"].shape == (8, 3, 2)


def test_two_arrays_of_one_content_are_two_files(tmp_path: Path) -> None:
    found = {name: np.arange(ROWS) % 3 for name in ("x", "y")}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    of = [saved(tmp_path / name, found) for name in ("one", "two")]
    one, _two = (source_of(plan_of(*words_of(tmp_path, files))) for files in of)
    np.save(tmp_path / "one" / "x.npy", np.zeros(ROWS, int))
    two = source_of(plan_of(*words_of(tmp_path, of[1])))
    np.testing.assert_array_equal(two.kept.take("x", np.arange(ROWS)), found["x"])
    assert one.kept.known == two.kept.known


def test_a_changed_array_is_another(tmp_path: Path) -> None:
    found = arrays()
    one = source_of(plan_of(*words_of(tmp_path, saved(tmp_path, found))))
    found["x"][7, 0, 0] += 1
    other = source_of(plan_of(*words_of(tmp_path, saved(tmp_path, found))))
    assert one.kept.known.identity != other.kept.known.identity


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_arrays_of_urls_are_those_of_the_same_files(tmp_path: Path, form: dict[str, bool]) -> None:
    found = arrays()
    here = source_of(plan_of(*words_of(tmp_path, saved(tmp_path, found, **form)))).kept
    with serving() as server:
        urls = {path.stem: server.put(path.name, path.read_bytes()) for path in sorted(tmp_path.glob("*.np*"))}
        each = ", ".join(f"{name}: '{urls.get(name)}'" for name in found)
        files = urls.get("all") or f"{{{each}}}"
        there = source_of(plan_of(*words_of(tmp_path / "there", files))).kept
    assert (there.known.identity, there.known.columns) == (here.known.identity, here.known.columns)
    for name in found:
        assert there.arrow(name).equals(here.arrow(name))


def test_faults_of_arrays_of_urls_name_the_urls(tmp_path: Path, says: Says) -> None:
    with serving() as server:
        url = server.put("x.npy", pickle.dumps([1]))
        says(refusal(tmp_path, f"{{x: '{url}', y: '{server.url}/y.npy'}}"), URL=server.url)
        y = server.put("z.npy", b"")
        says(refusal(tmp_path, f"{{x: '{url}', y: '{y}'}}"), URL=server.url)
        says(refusal(tmp_path, server.put("x.npz", b"PK")), URL=server.url)
        says(refusal(tmp_path, f"{{x: '{server.url}/*.npy', y: '{y}'}}"), URL=server.url)


@pytest.mark.parametrize("kind", ["number", "labels"])
def test_a_target_of_several_dimensions_names_its_first_row_without_a_value(
    tmp_path: Path, kind: str, says: Says
) -> None:
    found = {"x": arrays()["x"], "t": np.zeros((ROWS, 2))}
    found["t"][[41, 7], [0, 1]] = np.nan
    words = [word.replace("y: class", f"t: {kind}") for word in words_of(tmp_path, saved(tmp_path, found))]
    says(refusal_of_plan(*words))


def test_a_share_of_missing_values_counts_the_rows_of_several_dimensions(tmp_path: Path) -> None:
    found = arrays()
    found["x"][6, 2] = np.nan
    planned = plan_of(*words_of(tmp_path, saved(tmp_path, found)), "dataset.split=train", "dataset.eval_split=null")
    (columns,) = (of for step in planned.train for of in step.stage.inner if isinstance(of, Columns))
    shares = dict(columns.shares)
    assert shares == {"x": "missing 1.7% of train", "age": "missing 15.0% of train"}


def broken(name: str, values: Any) -> dict[str, Any]:
    return {**arrays(), name: values}


FAULTS: dict[str, dict[str, Any]] = {
    "texts of another encoding": {"kind": np.array([b"x", b"y", b"\xe4"])},
    "a half of a character": {"kind": np.array(["x", "\ud800"])},
    "objects": broken("x", np.array([{"a": 1}] * ROWS, object)),
    "lengths": {"x": np.zeros((4, 2)), "y": np.arange(5)},
    "no rows": {"x": np.zeros((0, 2)), "y": np.arange(5)},
    "one number": {"x": np.float32(3), "y": np.arange(5)},
    "complex": broken("x", np.zeros(ROWS, complex)),
    "infinite": broken("x", np.where(np.arange(ROWS) == 41, np.inf, 0.0)),
}


@pytest.mark.parametrize("case", cases("arrays"))
def test_faults_of_arrays(case: Case, golden: Golden, tmp_path: Path) -> None:
    golden(case, refusal(tmp_path, saved(tmp_path, FAULTS[case["why"]])).replace(str(tmp_path), "FOLDER"))


def test_all_faults_of_arrays_are_in_the_table() -> None:
    assert [of["why"] for of in read("arrays")] == [*FAULTS]


def refusal(folder: Path, files: str) -> str:
    return raised(EtlrunError, plan_of, *words_of(folder, files))


def test_files_that_are_no_arrays(tmp_path: Path, says: Says) -> None:
    files, path = saved(tmp_path, {"x": np.arange(300.0), "y": np.arange(300)}), tmp_path / "x.npy"
    whole = path.read_bytes()
    for content in (pickle.dumps([1]), b"", b"a,b\n1,2\n", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), whole[:-8]):
        path.write_bytes(content)
        says(refusal(tmp_path, files))


def test_an_archive_that_is_cut_off_or_has_no_arrays(tmp_path: Path, says: Says) -> None:
    files = saved(tmp_path, arrays(), archive=True)
    whole = Path(files).read_bytes()
    Path(files).write_bytes(whole[:-50])
    says(refusal(tmp_path, files))
    np.savez(files)
    says(refusal(tmp_path, files))


def test_a_folder_in_the_place_of_an_array_is_told_by_a_plan(tmp_path: Path, says: Says) -> None:
    np.save(tmp_path / "y.npy", np.arange(ROWS))
    says(refusal(tmp_path, f"{{x: {tmp_path}, y: {tmp_path}/y.npy}}"))


IMPORTS = "import numpy as np\nimport pyarrow as pa\n\n\ndef rows():\n"


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, name: str = "houses") -> list[str]:
    """Install a package whose function has this body; the arguments of a run of it."""
    (folder / "estate.py").write_text(body if body.startswith("import") else IMPORTS + body)
    about = folder / "estate-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: estate\nVersion: 1.0\n")
    function = "houses" if body.startswith("import") else "rows"
    (about / "entry_points.txt").write_text(f"[etlrun.datasets]\n{name} = estate:{function}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "estate", raising=False)
    # Python takes its bytecode for another text of the same length and second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    words = ["dataset=python", "dataset.of=houses", "dataset.target={price: number}", f"dataset.dir={folder / 'kept'}"]
    words += ["transform=columns", "extract=sequential", "cache=none", "load.batch_size=8"]
    return [*words, "model=emulated", "model.step_ms=0", "trainer.epochs=1"]


PRICES = "{'area': np.arange(20.0), 'kind': ['a', 'b'] * 10, 'price': np.arange(20)}"
OF_FUNCTIONS = {
    "arrays": f"    return {PRICES}\n",
    "arrow": f"    return pa.table({PRICES})\n",
}


FRAMES = {
    name: pytest.param(f"    import {name}\n    return {name}.DataFrame({PRICES})\n", marks=pytest.mark.needs(name))
    for name in ("pandas", "polars")
}


@pytest.mark.parametrize("body", [*OF_FUNCTIONS.values(), *FRAMES.values()], ids=[*OF_FUNCTIONS, *FRAMES])
def test_all_forms_are_kept_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    source: Any = open_source(plan_of(*installed(tmp_path, monkeypatch, body)).spec.dataset)
    numbers = np.array([19, 0, 4])
    assert source.counts == {"train": 20}
    assert {name: source.kept.take(name, numbers).tolist() for name in source.kept.known.columns} == {
        "area": [19.0, 0.0, 4.0],
        "kind": [b"b", b"a", b"a"],
        "price": [19, 0, 4],
    }


def test_rows_are_made_once_for_the_source_of_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"    with open({str(tmp_path / 'told')!r}, 'a') as file:\n        file.write('made ')\n"
    found = []
    for body in (told + OF_FUNCTIONS["arrays"], told + OF_FUNCTIONS["arrays"], told + OF_FUNCTIONS["arrow"]):
        plan = plan_of(*installed(tmp_path, monkeypatch, body))
        source: Any = open_source(plan.spec.dataset)
        found.append(source.kept.known.identity)
    assert found[0] == found[1] != found[2]
    assert (tmp_path / "told").read_text() == "made made "


def refusal_of_function(*words: str) -> str:
    return raised(EtlrunError, plan_of, *words)


@pytest.mark.parametrize("case", cases("functions"))
def test_faults_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, golden: Golden) -> None:
    golden(case, refusal_of_function(*installed(tmp_path, monkeypatch, case["body"])))
    assert [path.name for path in (tmp_path / "kept").glob("rows-*") if path.is_dir()] == []


def test_bytecode_of_another_text_makes_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    path = tmp_path / "estate.py"
    for rows in (20, 30):
        words = installed(tmp_path, monkeypatch, OF_FUNCTIONS["arrays"].replace("20", str(rows)))
        monkeypatch.setattr(sys, "dont_write_bytecode", False)
        os.utime(path, ns=(10**18, 10**18 + rows))
        dataset = plan_of(*words).spec.dataset  # of the first text, which it keeps
    says(raised(EtlrunError, open_source, dataset), BYTECODE=cache_from_source(str(path)))


@pytest.mark.needs("pandas")
def test_a_frame_with_an_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    frame = f"    import pandas\n    return pandas.DataFrame({PRICES}).set_index('kind')\n"
    says(refusal_of_function(*installed(tmp_path, monkeypatch, frame)))


def test_a_name_that_no_package_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    words = installed(tmp_path, monkeypatch, OF_FUNCTIONS["arrays"], name="homes")
    says(raised(EtlrunError, open_source, plan_of(*words).spec.dataset))


def test_the_function_of_the_docs_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CONF.parent / "docs" / "extending.md").read_text()
    block = present(re.search(r"```python\n(import numpy as np\n\n\ndef houses.*?)```", text, re.DOTALL))
    words = installed(tmp_path, monkeypatch, block[1])
    status, summary = run_here(tmp_path / "run", words)
    assert (status, summary["epochs"][0]["examples"]) == (0, 800)


def kept(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, numbers: list[int]) -> dict[str, list[Any]]:
    source: Any = open_source(plan_of(*installed(folder, monkeypatch, body)).spec.dataset)
    return {name: source.kept.take(name, np.array(numbers)).tolist() for name in source.kept.known.columns}


MASKED = "    return {'area': np.ma.array([1.0, 2.0, 3.0] * 4, mask=[0, 1, 0] * 4), 'price': np.arange(12)}\n"


def test_masked_floats_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept(tmp_path, monkeypatch, MASKED, [0, 1, 2])
    assert np.isnan(found["area"][1])
    assert found["area"][::2] == [1, 3]


def test_a_function_behind_a_decorator_is_kept_for_both_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decorator = "import functools\n\n\ndef again(of):\n    return functools.wraps(of)(lambda: of())\n"
    (tmp_path / "decorators.py").write_text(decorator)
    body = "import decorators\n\n\n@decorators.again\ndef houses():\n"
    body += "    return {'area': [1, 2] * 9, 'price': [1, 2] * 9}\n"
    words = installed(tmp_path, monkeypatch, body)
    source: Any = open_source(plan_of(*words).spec.dataset)
    paths = [*source.kept.stamps]
    assert [Path(path).name for path in paths] == ["estate.py", "decorators.py"]
    words = installed(tmp_path, monkeypatch, body.replace("[1, 2]", "[3, 4]", 1))
    source = open_source(plan_of(*words).spec.dataset)
    assert source.kept.take("area", np.arange(2)).tolist() == [3, 4]
