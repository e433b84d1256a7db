"""Tables of messages: each is read by one test, and stands as `pytest --update` writes it."""

import re
from pathlib import Path

import pytest

from tests.golden import MESSAGES, Case, as_text, path_of, read

SUBJECTS = sorted(path.stem for path in MESSAGES.iterdir())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_table_is_as_an_update_writes_it(subject: str) -> None:
    assert path_of(subject).read_text(encoding="utf-8") == as_text(subject, read(subject))
    assert all("message" in case for case in read(subject))


def test_each_table_is_read_by_one_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    assert sorted(re.findall(r'\("case", cases\("(\w+)"\)\)', "".join(texts))) == SUBJECTS


def test_an_update_writes_the_message_of_its_case_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.golden.MESSAGES", tmp_path)
    text = "# Why.\n- a: [1, b=2]\n  message: 'c: d'\n- a: [[3]]\n"
    path_of("own").write_text(text)
    Case(subject="own", number=1, values={}).write_text("e: f\n    -> g\n")
    message = "  message: |\n    e: f\n        -> g\n"
    assert path_of("own").read_text() == text.replace("- a: [[3]]\n", "- a:\n  - [3]\n") + message
    assert read("own")[1]["message"] == "e: f\n    -> g\n"
