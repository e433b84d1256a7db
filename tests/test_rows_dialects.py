"""How csv and tsv are written: `dataset.csv`, what it makes of quotes, and what is noted of them without it."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from etlrun.review.difference import compare
from etlrun.sources.rows.delimited import Dialect
from etlrun.sources.rows.table import identity_of, kept_of, opened_file
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, refusal_of_spec
from tests.tables import a_table, kept_from, values
from tests.test_rows_eject import require_same_batches

DIALECTS: dict[str, tuple[str, str, dict[str, str | None], list[str]]] = {
    "escapes": ("a.csv", r'a,price|"12\"",1|"1\\",2|x\,y,3', {"escape": "\\"}, ['12"', "1\\", "x,y"]),
    "no quotes": ("a.tsv", 'a\tprice|"It is\t1|"x" y\t2|z\t3', {"quote": None}, ['"It is', '"x" y', "z"]),
    "other quotes": ("a.csv", "a,price|'x, y',1|z,2|\"z,3", {"quote": "'"}, ["x, y", "z", '"z']),
    "semicolons": ("a.csv.gz", 'a;price|x,y;1|"2;3";2|z;3', {"separator": ";"}, ["x,y", "2;3", "z"]),
    "tabs in a .txt": ("a.txt", 'a\tprice|"x\t1|y\t2|z\t3', {"separator": "\\t", "quote": None}, ['"x', "y", "z"]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_read(tmp_path: Path, dialect: str) -> None:
    name, content, csv, texts = DIALECTS[dialect]
    kept = kept_from(tmp_path, name, content.replace("|", "\n"), csv=csv)
    assert values(kept) == {"a": texts, "price": [1, 2, 3]}
    assert kept.known.notes == ()


def words_of(path: Path, *others: str) -> tuple[str, ...]:
    """Arguments of a run that reads the columns `a` and `price` of a file."""
    return (
        "dataset=table",
        f"dataset.files={path}",
        f"dataset.dir={path.parent / 'kept'}",
        "dataset.target={price: number}",
        "dataset.split=train",
        "dataset.eval_split=train",
        "transform=columns",
        "transform.columns={a: {steps: [{hash: 50}, one_hot]}}",
        "extract=sequential",
        "cache=none",
        "load.batch_size=2",
        "trainer.epochs=2",
        "model=emulated",
        *others,
    )


@pytest.mark.parametrize(
    ("name", "content", "csv"),
    [
        ("a.csv", 'a,price\n"12\\"",1\n"13\\"",2\n', """dataset.csv={escape: "\\\\"}"""),
        ("a.txt.gz", 'a\tprice\n"12\t1\n13\t2\n', r"""dataset.csv={separator: "\t", quote: null}"""),
    ],
)
def test_a_program_reads_the_same_dialect(tmp_path: Path, name: str, content: str, csv: str) -> None:
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) + bytes(512) if name.endswith(".gz") else data)
    plan = plan_of(*words_of(tmp_path / name, csv))
    assert plan.spec.dataset.examples.features["price"].dtype == "int64"
    require_same_batches(plan, tmp_path)


def test_a_dialect_is_part_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,price\nx,1\ny,2\n")
    one, other = (plan_of(*words_of(tmp_path / "a.csv", *words)) for words in ((), ("dataset.csv={quote: null}",)))
    (difference,) = compare(one, other).differences
    assert (difference.kind, difference.path, difference.new) == ("data", "dataset.csv", "{quote: null}")
    plain, set_to = (a_table(str(tmp_path / "a.csv"), tmp_path / "kept", csv=of) for of in (None, {"quote": None}))
    assert identity_of(plain) == identity_of(a_table(str(tmp_path / "a.csv"), tmp_path / "kept"))
    assert identity_of(plain) != identity_of(set_to)


@pytest.mark.parametrize(
    ("csv", "found"),
    [
        ("{separator: ab}", "found {separator: ab}; expected a mapping from separator, quote or escape to a character"),
        ("{sep: ';'}", "found {sep: ;}; expected a mapping from separator, quote or escape to a character"),
        ('{separator: "\\""}', "found {'separator': '\"'}; expected different characters"),
    ],
)
def test_a_dialect_that_is_none_is_refused(tmp_path: Path, csv: str, found: str) -> None:
    (tmp_path / "a.csv").write_text("a,price\nx,1\n")
    told = refusal_of_spec(*words_of(tmp_path / "a.csv", f"dataset.csv={csv}"))
    assert told.startswith("dataset.csv")
    assert found in told


def test_rows_that_quotes_may_have_merged_are_noted(tmp_path: Path) -> None:
    content = 'text\tprice\nplain\t1\n"It begins.\t1\nmiddle.\t2\nIt ends."\t3\n'
    kept = kept_from(tmp_path, "a.tsv", content)
    assert kept.known.rows == {"train": 2}
    assert kept.known.notes == (
        (
            "a.tsv, line 3 begins a row whose quotes hold several lines, each with a value for each column: "
            "if these are rows, set 'dataset.csv={quote: null}'."
        ),
    )
    kept = kept_from(tmp_path, "a.tsv", content, csv={"quote": None})
    assert (kept.known.rows, kept.known.notes) == ({"train": 4}, ())


@pytest.mark.parametrize("content", ['a,b,price\n"x, y\nz",1,2\n', 'a,price\n"x\ny",1\n', 'a,price\n"x ""y""",1\n'])
def test_texts_of_several_lines_have_no_note(tmp_path: Path, content: str) -> None:
    assert kept_from(tmp_path, "a.csv", content).known.notes == ()


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_zeros_in_texts_are_noted(tmp_path: Path, name: str) -> None:
    notes = kept_from(tmp_path, name, "a,price\nx,1\nx\0y,2\n").known.notes
    assert notes == (f"{name}, line 3 has the byte 0x00, which stays: damaged files have it more often than texts.",)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.txt.gz"])
def test_zeros_behind_a_gzip_are_left_out(tmp_path: Path, name: str) -> None:
    rows = {"a.jsonl.gz": '{"price": 1}\n{"price": 2}\n', "a.csv.gz": "price\n1\n2\n"}.get(name, "1\n2\n")
    (tmp_path / name).write_bytes(gzip.compress(rows.encode()) + bytes(512))
    assert kept_of(a_table(str(tmp_path / name), tmp_path / "kept")).known.rows == {"train": 2}


def refused(path: Path) -> str:
    """The remedy of a file that is refused."""
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(path), path.parent / "kept"))
    return caught.value.faults[0].remedy


REPAIRED: dict[str, tuple[str, str | bytes]] = {
    "a separator for Excel": ("a.csv", "sep=,\na,price\n1,2\n2,3\n"),
    "names of rows": ("a.csv", 'a,price\n"1",1,2\n"2",2,3\n'),
    "ends of lines": ("a.csv.gz", "a,price\n1,2,\n2,3,\n"),
    "UTF-16": ("a.csv", "a,price\n1,2\n2,3\n".encode("utf-16-le")),
    "UTF-32, compressed": ("a.csv.gz", "a,price\n1,2\n2,3\n".encode("utf-32")),
    "line ends": ("a.txt", "a\rb"),
    "an array": ("a.jsonl", '[{"a": 1, "price": 2},\n{"a": 2, "price": 3}]'),
    "objects": ("a.jsonl.gz", '{\n"a": 1, "price": 2\n}\n{"a": 2, "price": 3}'),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_the_commands_of_remedies_repair_files(tmp_path: Path, name: str) -> None:
    file, content = REPAIRED[name]
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / file).write_bytes(gzip.compress(data) if file.endswith(".gz") else data)
    command = re.sub(r" \(with .*", "", refused(tmp_path / file).partition("as by: ")[2])
    programs = [shlex.split(part)[0] for part in command.split(" | ")]
    if lacking := [of for of in programs if shutil.which(of) is None]:
        pytest.skip(f"there is no {lacking[0]}")
    repaired = tmp_path / f"new-{file.removesuffix('.gz')}"
    repaired.write_bytes(subprocess.run(command, shell=True, check=True, capture_output=True).stdout)  # noqa: S602
    assert kept_of(a_table(str(repaired), tmp_path / "kept")).known.rows == {"train": 2}


MARKED: dict[str, tuple[str, str]] = {
    "escapes": ("a.csv", 'a,price\n"12\\"",1\n"13\\"",2\n'),
    "no quotes": ("a.csv", 'a,price\n"12,1\n"13,2\n'),
    "beside another mark": ("a.csv", "a;price\n1;2\n2;3\n"),
    "tabs": ("a.csv", "a\tprice\n1\t2\n2\t3\n"),
}


@pytest.mark.parametrize("name", MARKED)
def test_the_dialects_of_remedies_read_files(tmp_path: Path, name: str) -> None:
    file, content = MARKED[name]
    (tmp_path / file).write_text(content)
    (override,) = re.findall("set '(dataset.csv=.*?)'", refused(tmp_path / file))
    plan = plan_of(*words_of(tmp_path / file, override))
    assert isinstance(plan.spec.dataset, Table)
    assert plan.spec.dataset.found.rows == {"train": 2}


def test_a_dialect_that_is_set_stays_in_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a;price\n"1;2\n"2;3\n')
    table = a_table(str(tmp_path / "a.csv"), tmp_path / "kept", csv={"separator": ";"})
    with pytest.raises(EtlrunError) as caught:
        opened_file(str(tmp_path / "a.csv"), table).kinds({}, lambda: None)
    assert caught.value.faults[0].remedy == ("""set 'dataset.csv={separator: ";", quote: null}', or repair the line""")


def test_a_gzip_that_is_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = bytearray(gzip.compress("".join(f"{n * 7919 % 1000}\n" for n in range(5_000)).encode()))
    data[900:1_200] = b"\xff" * 300
    (tmp_path / "a.csv.gz").write_bytes(data)
    assert refused(tmp_path / "a.csv.gz") == "check its permissions and its storage, or write it again"


def test_a_remedy_is_quoted_for_a_shell_whatever_a_dialect_has() -> None:
    assert shlex.split(Dialect(",", {"quote": "'"}).remedy) == ["set", """dataset.csv={quote: "'"}"""]
