"""Folders of text files by class: rows with their texts and the names of their classes, and what is wrong with them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
import tensorflow as tf

import etlrun
from etlrun.planning import learned, render
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, parse
from etlrun.record.config import read_config
from etlrun.run import checkpoint
from etlrun.sources.base import open_source
from etlrun.sources.rows.kept import KeptColumns
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import kept_of, values_of_folders
from etlrun.stages import STAGES
from etlrun.stages.columns import Columns
from etlrun.stages.flow import MISSING
from etlrun.system.errors import EtlrunError
from etlrun.trained.load import trained
from tests.configs import plan_of, raised
from tests.golden import Says
from tests.pipelines import digest_of, training_pipeline
from tests.runs import run_here
from tests.servers import serving
from tests.tables import NUM_ROWS, STEPS, a_table, houses, message, types, values, words_of, write_houses
from tests.test_rows_arrays import refusal_of_function
from tests.test_rows_eject import FORMATS, require_same_batches
from tests.trained import ended, said

WORDS = ("good", "bad", "long", "day", "night", "and", "then")


def text_of(split: str, label: str, number: int) -> str:
    """A text of 1 to 7 words, of which the first is its class."""
    return " ".join([label, *WORDS[: number % len(WORDS)], f"{split}{number}"])


def write_texts(folder: Path, splits: tuple[str, ...] = ("train", "test"), each: int = 20) -> None:
    """Write texts of two classes to the folders of splits, and beside these a file that is no example."""
    for split in splits:
        for label in ("neg", "pos"):
            (folder / split / label).mkdir(parents=True)
            for number in range(each):
                (folder / split / label / f"{number}.txt").write_text(text_of(split, label, number))


def words_of_texts(folder: Path, *others: str) -> tuple[str, ...]:
    """Arguments of a run on the texts in `folder / 'texts'` that trains nothing."""
    given = (f"dataset.folder={folder / 'texts'}", f"dataset.dir={folder / 'kept'}")
    emulated = ("model=emulated", "model.step_ms=0", "trainer.epochs=2", "load.batch_size=4")
    return ("experiment=text", "dataset=text_folder", *given, *emulated, *others)


PRINTED = ("load=shuffled", "transform.columns={text: {steps: [{hash: 50}, embed]}}")
"""Of what programs read."""
OF_SPLITS = ("dataset.split=train", "dataset.eval_split=test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 texts to train on, and 40 others, with their columns kept."""
    path = tmp_path_factory.mktemp("of_texts")
    write_texts(path / "texts")
    return path


def source_of(*words: str) -> Any:
    return open_source(plan_of(*words).spec.dataset)


def rows_of(source: Any, split: str) -> set[tuple[str, str]]:
    numbers = source.split(split, "dataset.split").numbers
    texts, labels = (source.kept.take(name, numbers) for name in ("text", "label"))
    return {(text.decode(), label.decode()) for text, label in zip(texts, labels, strict=True)}


def test_rows_are_texts_and_the_names_of_their_classes(folder: Path) -> None:
    source = source_of(*words_of_texts(folder, *OF_SPLITS))
    assert source.counts == {"test": 40, "train": 40}
    assert source.class_names == ("neg", "pos")
    for split in source.counts:
        labels = ("neg", "pos")
        assert rows_of(source, split) == {(text_of(split, label, n), label) for label in labels for n in range(20)}
    split = source.split("train", "dataset.split")
    text, label = (source.kept.take(name, split.numbers[:1])[0].decode() for name in ("text", "label"))
    number = text.rpartition("train")[2]
    assert split.where(split.shards[0], 0) == str(folder / "texts" / "train" / label / f"{number}.txt")


def test_parts_of_a_split_are_samples_of_all_classes(folder: Path) -> None:
    source = source_of(*words_of_texts(folder))
    parts = [rows_of(source, split) for split in ("train[:80%]", "train[80%:]")]
    assert [len(part) for part in parts] == [32, 8]
    assert parts[0].isdisjoint(parts[1])
    assert {label for _, label in parts[1]} == {"neg", "pos"}


def test_texts_are_kept_for_their_content_wherever_they_are(folder: Path, tmp_path: Path) -> None:
    kept = f"dataset.dir={folder / 'kept'}"
    shutil.copytree(folder / "texts", tmp_path / "texts")
    before = source_of(*words_of_texts(folder)).kept.known.identity
    assert source_of(*words_of_texts(tmp_path, kept)).kept.known.identity == before
    (tmp_path / "texts" / "train" / "neg" / "0.txt").write_text("neg but another text")
    assert source_of(*words_of_texts(tmp_path, kept)).kept.known.identity != before


def test_a_program_reads_the_same_batches(folder: Path, tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of_texts(folder, *OF_SPLITS, *PRINTED)), tmp_path)


def test_marks_at_the_start_and_zeros_and_nothing_are_texts(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", ("train",))
    written = {"mark": b"\xef\xbb\xbfneg a", "zero": b"neg \x00 b\r\n", "nothing": b""}
    for name, data in written.items():
        (tmp_path / "texts" / "train" / "neg" / f"{name}.txt").write_bytes(data)
    source = source_of(*words_of_texts(tmp_path, "dataset.split=train", "dataset.eval_split=null"))
    assert {("neg a", "neg"), ("neg \x00 b\r\n", "neg"), ("", "neg")} < rows_of(source, "train")
    assert source.kept.known.columns["text"].missing == 0


LATIN = b"neg\ncaf\xe9"


def test_texts_in_other_encodings_are_refused_or_repaired(tmp_path: Path, says: Says) -> None:
    write_texts(tmp_path / "texts", ("train",))
    path = tmp_path / "texts" / "train" / "neg" / "a.txt"
    path.write_bytes(LATIN)
    says(refusal_of_function(*words_of_texts(tmp_path)))
    source = source_of(*words_of_texts(tmp_path, "dataset.errors=replace"))
    assert ("neg\ncaf\ufffd", "neg") in rows_of(source, "train")
    require_same_batches(plan_of(*words_of_texts(tmp_path, "dataset.errors=replace", *PRINTED)), tmp_path)
    other = path.with_name("b.txt")
    other.write_text("neg", encoding="utf-16")
    told = refusal_of_function(*words_of_texts(tmp_path))
    assert "found the byte 0xe9; 2 texts are not in UTF-8; expected" in told
    assert f"{other}: found no text: it begins with b'\\xff\\xfen\\x00e\\x00g\\x00'; 2 texts are not" in told
    for number in range(6):
        path.with_name(f"{number}.txt").write_bytes(LATIN)
    assert refusal_of_function(*words_of_texts(tmp_path)).count("; 8 texts are not in UTF-8; expected") == 5


def faulty(folder: Path, name: str) -> None:
    """Make a folder of texts one with a fault."""
    write_texts(folder, ("train",))
    if name == "a class without texts":
        (folder / "train" / "none").mkdir()
        (folder / "train" / "none" / "a.jpg").touch()
    elif name == "a class":
        shutil.rmtree(folder / "train" / "pos")
    elif name == "no class":
        shutil.rmtree(folder / "train")
        (folder / "a.txt").touch()
    elif name == "a link":
        (folder / "train" / "neg" / "a.txt").symlink_to("gone")
    elif name == "no folder":
        shutil.rmtree(folder)
        folder.touch()


def test_pointers_of_git_lfs_are_no_texts(tmp_path: Path, says: Says) -> None:
    write_texts(tmp_path / "texts", ("train",))
    path = tmp_path / "texts" / "train" / "neg" / "a.txt"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12345\n")
    says(refusal_of_function(*words_of_texts(tmp_path)))


@pytest.mark.parametrize("name", ["a class without texts", "a class", "no class", "a link", "no folder"])
def test_folders_that_are_none_of_texts(name: str, tmp_path: Path, says: Says) -> None:
    faulty(tmp_path / "texts", name)
    says(refusal_of_function(*words_of_texts(tmp_path)))


def test_files_that_are_left_out_are_noted(tmp_path: Path, says: Says) -> None:
    write_texts(tmp_path / "texts", ("train",))
    (tmp_path / "texts" / "train" / "neg" / "a.csv").touch()
    (tmp_path / "texts" / "train" / "about.txt").touch()
    says(source_of(*words_of_texts(tmp_path)).notes)


def test_a_folder_that_is_not_on_this_machine_can_be_reviewed(tmp_path: Path) -> None:
    dataset: Any = plan_of(*words_of_texts(tmp_path)).spec.dataset
    assert dataset.found.notes == ("texts is not on this machine: its columns are not checked, and nothing is fitted.",)


def test_a_folder_of_a_url_is_refused(says: Says) -> None:
    says(refusal_of_function(*words_of_texts(Path("F"), "dataset.folder=s3://me:abc@bucket/texts")))


def a_run(folder: Path, *others: str, target: str = "{price: {number: standardize}}") -> Plan:
    """The plan of a run that has ended after an epoch of the houses beside its folder."""
    words = [*words_of(folder.parent, *others, target=target)]
    ended(folder, words, model=None)
    planned = plan_of(*words)
    learned.write(planned.spec, folder)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "epoch_0000_step_000001.npz").touch()
    return planned


def recalled(folder: Path) -> RunSpec:
    return learned.recalled(parse(read_config(folder), STAGES), folder)


@pytest.mark.parametrize("target", ["{price: {number: standardize}}", "{band: binary}", "{rooms: class}"])
def test_a_run_is_planned_again_without_its_rows(tmp_path: Path, target: str) -> None:
    write_houses(tmp_path)
    others = [f"transform.columns={{{STEPS}}}", "dataset.inputs=[area,rooms,kind,sold,garden]"]
    others = ["dataset.inputs=[area,kind,sold]"] if "rooms" in target else others
    planned = a_run(tmp_path / "run", *others, target=target)
    (tmp_path / "houses.parquet").unlink()
    again = plan(recalled(tmp_path / "run"))
    assert (again.spec, again.fingerprint) == (planned.spec, planned.fingerprint)
    assert (again.train, again.evaluation) == (planned.train, planned.evaluation)


def test_a_vocabulary_is_in_one_line_of_the_file(tmp_path: Path) -> None:
    names = [f"name {place % 1_001}" for place in range(12_012)]
    table = pa.table({"name": names, "price": np.arange(12_012.0)})
    pyarrow.parquet.write_table(table, tmp_path / "houses.parquet")
    columns = "transform.columns={name: {of: name, steps: [lookup, embed]}}"
    planned = a_run(tmp_path / "run", "dataset.inputs=[name]", columns)
    lines = (tmp_path / "run" / "columns.json").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith('  "name": {"of"')]
    assert line.count('"name ') == 1_001
    assert len(lines) == 19
    step = render.as_dict(planned)["train"][-2]["steps"][-1]
    assert step["parameters"]["outputs"]["value"]["name"]["steps"][0]["lookup"]["values"] == "1,001 values"


def test_a_resumed_run_has_the_columns_of_the_run_that_it_resumes(tmp_path: Path) -> None:
    write_houses(tmp_path)
    folder = tmp_path / "run"
    a_run(folder)
    path = folder / "columns.json"
    before = path.read_text()
    path.write_text(before.replace('"mean": 120.6', '"mean": 121.6'))  # as another version might fit it
    assert path.read_text() != before
    words = words_of(tmp_path, f"trainer.resume={folder}", target="{price: {number: standardize}}")
    planned = plan_of(*words)
    assert planned.spec.transform == recalled(folder).transform
    assert checkpoint.previous_run(planned, STAGES) is not None
    others = plan_of(*words, "dataset.inputs=[area]")
    assert others.spec.transform != planned.spec.transform


def test_a_run_is_not_resumed_on_a_table_that_has_changed(tmp_path: Path, says: Says) -> None:
    write_houses(tmp_path)
    folder = tmp_path / "run"
    before = a_run(folder)
    pyarrow.parquet.write_table(houses().slice(1), tmp_path / "houses.parquet")
    words = words_of(tmp_path, f"trainer.resume={folder}", target="{price: {number: standardize}}")
    planned = plan_of(*words)
    with pytest.raises(EtlrunError) as caught:
        checkpoint.previous_run(planned, STAGES)
    now, then = (of.spec.dataset.found.identity for of in (planned, before))  # type: ignore[attr-defined] # rows
    says(str(caught.value), NOW=now, THEN=then)


def test_a_file_of_columns_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    write_houses(tmp_path)
    a_run(tmp_path / "run")
    path = tmp_path / "run" / "columns.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(EtlrunError, match="a file that this version can't read: JSONDecodeError: ") as caught:
        recalled(tmp_path / "run")
    assert str(caught.value).startswith(f"{path}: found a file")
    assert str(caught.value).endswith("the run has written them\n    -> restore the file, or train again")


def test_a_run_whose_columns_are_gone_is_neither_used_nor_resumed_with_those_of_its_rows_today(tmp_path: Path) -> None:
    write_houses(tmp_path)
    folder = tmp_path / "run"
    a_run(folder)
    (folder / "columns.json").unlink()
    planned = plan_of(*words_of(tmp_path, f"trainer.resume={folder}", target="{price: {number: standardize}}"))
    message = (
        f"{folder}/columns.json: found no such file; expected the columns as the run has written them\n"
        "    -> restore the file, or train again"
    )
    assert raised(EtlrunError, trained, folder) == message
    assert raised(EtlrunError, checkpoint.previous_run, planned, STAGES) == message


def written(folder: Path, name: str, *places: str) -> str:
    """A pattern of files of two rows in these folders."""
    for number, place in enumerate(places):
        (folder / place).mkdir(parents=True)
        FORMATS[name](pa.table({"x": [number + 0.5, 7.25], "price": [number, 9]}), folder / place / name)
    return f"{folder}/**/{name}"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "rows.parquet"])
def test_folders_of_all_formats_are_columns(tmp_path: Path, name: str, says: Says) -> None:
    files = written(tmp_path, name, "of=x/kind=a%20b/n=1", "of=x/kind=__HIVE_DEFAULT_PARTITION__/n=20")
    kept = kept_of(a_table(files, tmp_path / "kept"))
    says(values(kept))
    assert types(kept) == {"x": "float64", "price": "int64", "kind": "text", "n": "int64"}
    declared = a_table(files, tmp_path / "kept", columns={"of": "text", "n": "text"})
    assert values(kept_of(declared))["of"] == ["x"] * 4
    assert values(kept_of(declared))["n"] == ["20", "20", "1", "1"]


def test_codes_with_leading_zeros_are_text(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "month=09", "month=10")
    assert values(kept_of(a_table(files, tmp_path / "kept")))["month"] == ["09", "09", "10", "10"]


def test_a_column_of_a_file_is_not_that_of_its_folder(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "x=1", "x=2")
    assert values(kept_of(a_table(files, tmp_path / "kept")))["x"] == [0.5, 7.25, 1.5, 7.25]


def test_files_in_folders_of_other_columns_are_refused(tmp_path: Path, says: Says) -> None:
    files = written(tmp_path, "rows.csv", "kind=a", "others")
    says(message(tmp_path, kept_of, a_table(files, tmp_path / "kept")))


def test_files_of_other_folders_are_other_data(tmp_path: Path) -> None:
    files = written(tmp_path, "rows.csv", "kind=a", "kind=b")
    before = kept_of(a_table(files, tmp_path / "kept")).known.identity
    (tmp_path / "kind=b").rename(tmp_path / "kind=c")
    kept = kept_of(a_table(files, tmp_path / "kept"))
    assert (values(kept)["kind"], kept.known.identity == before) == (["a", "a", "c", "c"], False)


def test_folders_of_urls_are_columns(tmp_path: Path) -> None:
    written(tmp_path / "data", "rows.csv", "kind=a", "kind=c")
    with serving() as server:
        url = server.put_folder(tmp_path / "data")
        urls = [f"{url}/kind={of}/rows.csv" for of in "ac"]
        assert values(kept_of(a_table(urls, tmp_path / "kept")))["kind"] == ["a", "a", "c", "c"]


def test_only_whole_folders_are_columns() -> None:
    assert values_of_folders("C:\\data\\a=1=2\\=3\\b=\\c=4.csv") == {"a": "1=2", "b": ""}
    assert values_of_folders("s3://bucket/a=1/c.csv?b=2") == {"a": "1"}


def words_of_folders(folder: Path, *others: str) -> Sequence[str]:
    rng, kinds = np.random.default_rng(0), ("a", "b")
    for number, kind in enumerate(kinds):
        (folder / f"kind={kind}").mkdir(exist_ok=True)
        x = rng.random(20)
        rows = pa.table({"x": x, "price": x + number})
        pyarrow.csv.write_csv(rows, folder / f"kind={kind}" / "rows.csv")
    files = (f"dataset.files='{folder}/*/rows.csv'", "dataset.target={price: number}", f"dataset.dir={folder}/kept")
    return ("experiment=table", *files, "load.batch_size=8", "trainer.epochs=2", *others)


def test_a_program_reads_the_same_batches_with_columns_of_folders(tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of_folders(tmp_path)), tmp_path)


def test_one_folder_of_them_is_predicted_and_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of_folders(tmp_path, "model=linear", "transform.columns={x: {}, kind: {steps: [lookup, one_hot]}}")
    assert run_here(tmp_path / "run", [*words])[0] == 0
    found: Any = etlrun.load(tmp_path / "run")
    given = [of["x"] for of in pyarrow.csv.read_csv(tmp_path / "kind=b/rows.csv").to_pylist()]
    wanted = found.predict([{"x": x, "kind": "b"} for x in given])
    (tmp_path / "kind=b/inputs.csv").write_text("\n".join(["x", *map(str, given)]))
    assert found.predict(tmp_path / "kind=b/inputs.csv") == wanted
    said(capsys, "evaluate", tmp_path / "run", f"dataset.files='{tmp_path}/kind=b/rows.csv'", "dataset.split=train")


def kept_in(folder: Path) -> KeptColumns:
    source = open_source(plan_of(*words_of(folder)).spec.dataset)
    assert isinstance(source, RowsSource)
    return source.kept


def columns_of(*words: str) -> dict[str, Any]:
    """The columns of a plan, as it shows them."""
    maps = plan_of(*words).train
    return next(step.stage.described() for stage in maps for step in stage.steps if isinstance(step.stage, Columns))


def test_kept_columns_hold_what_the_table_holds(table: Path) -> None:
    kept, rows = kept_in(table), np.array([3, 199, 0, 3])
    for name, expected in zip(houses().column_names, houses().columns, strict=True):
        values = expected.combine_chunks().take(rows)
        taken, missing = kept.take(name, rows), values.is_null().to_numpy(zero_copy_only=False)
        if name == "sold":
            assert taken.tolist() == values.cast("int64").to_pylist()
        elif name in ("kind", "band"):
            assert taken.tolist() == [MISSING if of is None else of.encode() for of in values.to_pylist()]
        else:
            np.testing.assert_array_equal(np.isnan(taken.astype(float)), missing)
            np.testing.assert_array_equal(taken[~missing], values.drop_null().to_numpy(zero_copy_only=False))
        assert kept.arrow(name).null_count == expected.null_count == kept.known.columns[name].missing
        assert kept.known.columns[name].distinct == pc.count_distinct(expected).as_py()


def test_a_plan_tells_what_the_columns_have_learned_from_the_training_split(table: Path) -> None:
    source = open_source(plan_of(*words_of(table)).spec.dataset)
    rows = source.split("train[:80%]", "").numbers
    area = houses()["area"].take(rows)
    filled = pc.quantile(area, 0.5)[0].as_py()
    whole = area.fill_null(filled).to_numpy()
    assert len(rows) == 0.8 * NUM_ROWS
    assert columns_of(*words_of(table))["area"] == {
        "of": ["area"],
        "steps": [
            {"fill": {"filled": filled, "value": "median", "indicator": True}},
            {"standardize": {"mean": pytest.approx(whole.mean()), "std": pytest.approx(whole.std())}},
        ],
    }
    kinds = columns_of(*words_of(table))["kind"]["steps"][0]["lookup"]["values"]
    assert kinds == ["flat", "house", "loft"]


def test_a_class_is_looked_up_in_the_values_of_the_training_split(table: Path) -> None:
    planned = plan_of(*words_of(table, target="{band: class}"))
    source = open_source(planned.spec.dataset)
    assert (source.class_names, source.num_classes) == (("cheap", "dear"), 2)
    assert planned.train[-1].gives.features["band"].is_class


CACHES = {
    "rows by number": ("load.shuffle=full",),
    "a buffer": ("load.shuffle=buffer",),
    "in order": ("load.shuffle_buffer=0",),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "on disk by number": ("cache=disk", "load.shuffle=full"),
    "before the columns": ("cache=memory", "cache.at=source"),
}


@pytest.mark.parametrize("words", CACHES.values(), ids=CACHES)
def test_all_configs_read_the_same_rows(table: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    planned = plan_of(*words_of(table, *words), f"cache.dir={tmp_path}")
    with training_pipeline(planned) as pipeline:
        digests = {digest_of(pipeline.dataset) for _ in range(2)}
    assert digests == {expected_digest(table)}


def expected_digest(folder: Path) -> str:
    """The digest of the training rows, with the outputs of the plan's columns computed once for all of them."""
    planned = plan_of(*words_of(folder))
    source, columns = open_source(planned.spec.dataset), planned.train[-2].steps[-1].stage
    assert isinstance(source, RowsSource)
    assert isinstance(columns, Columns)
    rows = source.split("train[:80%]", "").numbers
    example = {name: tf.constant(source.kept.take(name, rows)) for name in ("area", "rooms", "kind", "garden", "price")}
    outputs = columns.given(example)
    price = outputs.pop("price")
    return digest_of(tf.data.Dataset.from_tensor_slices((outputs, price)).batch(7))
