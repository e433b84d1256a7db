"""Folders of text files by class: rows with their texts and the names of their classes, and what is wrong with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from etlrun.sources.base import open_source
from tests.configs import plan_of
from tests.test_rows_eject import require_same_batches
from tests.test_rows_python import refusal

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


def words_of(folder: Path, *others: str) -> tuple[str, ...]:
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
    numbers = source.split(split, "dataset.split").rows
    texts, labels = (source.kept.take(name, numbers) for name in ("text", "label"))
    return {(text.decode(), label.decode()) for text, label in zip(texts, labels, strict=True)}


def test_rows_are_texts_and_the_names_of_their_classes(folder: Path) -> None:
    source = source_of(*words_of(folder, *OF_SPLITS))
    assert source.counts == {"test": 40, "train": 40}
    assert source.class_names == ("neg", "pos")
    for split in source.counts:
        labels = ("neg", "pos")
        assert rows_of(source, split) == {(text_of(split, label, n), label) for label in labels for n in range(20)}
    split = source.split("train", "dataset.split")
    text, label = (source.kept.take(name, split.rows[:1])[0].decode() for name in ("text", "label"))
    number = text.rpartition("train")[2]
    assert split.where(split.shards[0], 0) == str(folder / "texts" / "train" / label / f"{number}.txt")


def test_parts_of_a_split_are_samples_of_all_classes(folder: Path) -> None:
    source = source_of(*words_of(folder))
    parts = [rows_of(source, split) for split in ("train[:80%]", "train[80%:]")]
    assert [len(part) for part in parts] == [32, 8]
    assert parts[0].isdisjoint(parts[1])
    assert {label for _, label in parts[1]} == {"neg", "pos"}


def test_texts_are_kept_for_their_content_wherever_they_are(folder: Path, tmp_path: Path) -> None:
    kept = f"dataset.dir={folder / 'kept'}"
    shutil.copytree(folder / "texts", tmp_path / "texts")
    before = source_of(*words_of(folder)).kept.known.identity
    assert source_of(*words_of(tmp_path, kept)).kept.known.identity == before
    (tmp_path / "texts" / "train" / "neg" / "0.txt").write_text("neg but another text")
    assert source_of(*words_of(tmp_path, kept)).kept.known.identity != before


def test_a_program_reads_the_same_batches(folder: Path, tmp_path: Path) -> None:
    require_same_batches(plan_of(*words_of(folder, *OF_SPLITS, *PRINTED)), tmp_path)


def test_marks_at_the_start_and_zeros_and_nothing_are_texts(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", ("train",))
    written = {"mark": b"\xef\xbb\xbfneg a", "zero": b"neg \x00 b\r\n", "nothing": b""}
    for name, data in written.items():
        (tmp_path / "texts" / "train" / "neg" / f"{name}.txt").write_bytes(data)
    source = source_of(*words_of(tmp_path, "dataset.split=train", "dataset.eval_split=null"))
    assert {("neg a", "neg"), ("neg \x00 b\r\n", "neg"), ("", "neg")} < rows_of(source, "train")
    assert source.kept.known.columns["text"].missing == 0


LATIN = b"neg\ncaf\xe9"


def test_texts_in_other_encodings_are_refused_or_repaired(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", ("train",))
    path = tmp_path / "texts" / "train" / "neg" / "a.txt"
    path.write_bytes(LATIN)
    assert refusal(*words_of(tmp_path)) == (
        f"{path}, line 2: found the byte 0xe9; expected text in UTF-8\n"
        f"    -> convert it, as by: iconv -f LATIN1 -t UTF-8 {path}; or set dataset.errors=replace"
    )
    source = source_of(*words_of(tmp_path, "dataset.errors=replace"))
    assert ("neg\ncaf\ufffd", "neg") in rows_of(source, "train")
    assert source.notes == ("1 text is not in UTF-8: U+FFFD is read for what can't be decoded.",)
    require_same_batches(plan_of(*words_of(tmp_path, "dataset.errors=replace", *PRINTED)), tmp_path)
    other = path.with_name("b.txt")
    other.write_text("neg", encoding="utf-16")
    told = refusal(*words_of(tmp_path))
    assert "found the byte 0xe9; 2 texts are not in UTF-8; expected" in told
    assert f"{other}: found text in UTF-16; 2 texts are not in UTF-8; expected text in UTF-8" in told


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


def test_pointers_of_git_lfs_are_no_texts(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", ("train",))
    path = tmp_path / "texts" / "train" / "neg" / "a.txt"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12345\n")
    assert refusal(*words_of(tmp_path)) == (
        f"{path}: found a pointer of Git LFS; expected lines of text\n    -> fetch the file itself, as by: git lfs pull"
    )


FAULTS = {
    "a class without texts": "texts/train/none: found a class without texts; expected files with .txt\n"
    "    -> remove the folder",
    "a class": "texts: found texts of one class, neg; expected a folder for each of at least two classes\n"
    "    -> name the folder above those of the classes",
    "no class": "texts: found 1 text in no folder of a class, such as a.txt; expected a folder for each of at least "
    "two classes\n    -> put them into folders that are named by their classes",
    "a link": "texts/train/neg/a.txt: found a link to a file that is gone: gone; expected a text\n    -> remove it",
    "no folder": "dataset.folder: found texts: a file; expected a folder of classes with texts\n    -> check the path",
}


@pytest.mark.parametrize("name", FAULTS)
def test_folders_that_are_none_of_texts(name: str, tmp_path: Path) -> None:
    faulty(tmp_path / "texts", name)
    assert refusal(*words_of(tmp_path)).replace(f"{tmp_path}/", "") == FAULTS[name]


def test_files_that_are_left_out_are_noted(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", ("train",))
    (tmp_path / "texts" / "train" / "neg" / "a.csv").touch()
    (tmp_path / "texts" / "train" / "about.txt").touch()
    assert source_of(*words_of(tmp_path)).notes == (
        "1 file of the folder has no suffix of a text (.txt) and is left out: train/neg/a.csv.",
        "1 text is in no folder of a class, and left out: train/about.txt.",
    )


def test_a_folder_that_is_not_on_this_machine_can_be_reviewed(tmp_path: Path) -> None:
    dataset: Any = plan_of(*words_of(tmp_path)).spec.dataset
    assert dataset.found.notes == ("texts is not on this machine: its columns are neither checked nor fitted.",)


def test_a_folder_of_a_url_is_refused() -> None:
    assert refusal(*words_of(Path("F"), "dataset.folder=s3://me:abc@bucket/texts")) == (
        "dataset.folder: found s3://...@bucket/texts; expected the path of a folder on this machine\n"
        "    -> copy it here, or write its texts as JSON lines, which dataset=table reads from URLs"
    )
