"""How faults are worded, what is said of each line that no command can read, and tables of messages."""

import re
import shlex
from pathlib import Path

import pytest

from etlrun.system.errors import ConfigError, Fault, WorldError, describe, did_you_mean, headline
from tests.commands import complaint
from tests.golden import MESSAGES, Case, Golden, as_text, cases, path_of, read
from tests.readers import logging_as_it_was

SUBJECTS = sorted(path.stem for path in MESSAGES.iterdir())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_table_is_as_an_update_writes_it(subject: str) -> None:
    assert path_of(subject).read_text(encoding="utf-8") == as_text(subject, read(subject))
    assert all("message" in case for case in read(subject))


def test_each_table_is_read_by_one_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    assert sorted(re.findall(r'\("case", cases\("(\w+)"\)\)', "".join(texts))) == SUBJECTS


PLAIN = Fault(where="trainer.epochs", found="0", expected="a positive integer")
WITH_REMEDY = Fault(where="cache.name", found="'disc'", expected="one of none, disk", remedy="did you mean `disk`?")


def test_a_fault_says_where_what_was_found_and_expected_and_its_remedy_on_a_line_of_its_own() -> None:
    assert str(PLAIN) == "trainer.epochs: found 0; expected a positive integer"
    assert str(WITH_REMEDY) == "cache.name: found 'disc'; expected one of none, disk\n    -> did you mean `disk`?"


def test_a_config_error_tells_all_its_faults_in_order_and_a_world_error_its_own() -> None:
    error = ConfigError([WITH_REMEDY, PLAIN])
    assert (str(error), error.faults, error.status) == (f"{WITH_REMEDY}\n{PLAIN}", (WITH_REMEDY, PLAIN), 2)
    assert describe(error) == f"etlrun: 2 faults\n  {WITH_REMEDY}\n  {PLAIN}"
    of_world = WorldError(where="/data", found="no such folder", expected="a folder", remedy="make it")
    assert (str(of_world), of_world.status) == ("/data: found no such folder; expected a folder\n    -> make it", 1)
    assert describe(of_world) == f"etlrun: 1 fault\n  {of_world}"


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("epoch", ["epochs", "seed"], "did you mean `epochs`?"),
        ("interleeve", ["tfds", "sequential", "interleave"], "did you mean `interleave`?"),
        ("memory", ["memory", "memories"], "otherwise"),
        ("xyz", ["epochs", "seed"], "otherwise"),
        ("epochs", [], "otherwise"),
    ],
)
def test_the_likeliest_word_is_suggested_where_there_is_one(word: str, known: list[str], expected: str) -> None:
    assert did_you_mean(word, known, otherwise="otherwise") == expected


def test_a_suggestion_is_shown_as_it_is_to_be_written() -> None:
    assert did_you_mean("dik", ["disk"], "cache={}") == "did you mean cache=disk?"


@pytest.mark.parametrize("case", cases("headlines"))
def test_a_headline_is_the_line_that_tells_most(case: Case, golden: Golden) -> None:
    golden(case, headline(ValueError(case["error"])))


def refusal(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """The message with which a line is refused."""
    with logging_as_it_was():
        return complaint(capsys, *words, status=status)


@pytest.mark.parametrize("case", cases("commands"))
def test_a_wrong_line_is_refused_with_its_whole_message(
    case: Case, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(shlex.split(case["line"]), capsys, case.get("status", 2))
    golden(case, message.replace(str(tmp_path), "DIR"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--info", "defaults", "extract=nope"], "In 'config': Could not find 'extract/nope'"),
        (["--resolve", "cache=none"], "The --resolve flag can only be used in conjunction with --cfg"),
    ],
)
def test_what_hydra_refuses_has_no_traceback(
    words: list[str], found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["etlrun"])
    first, second = refusal(words, capsys).splitlines()[-2:]  # Hydra warns first
    assert first == "etlrun: 1 fault"
    assert second.startswith(f"  config: found {found}")
