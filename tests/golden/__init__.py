"""What etlrun says and writes, kept in files: `pytest --update` writes them anew, and the diff is reviewed.

The fixture `golden(where, found)` compares. A text is kept in a file of its own:

    golden(ROOT / "docs" / "reference" / "stages.md", reference.markdown())

A message is kept in the table of its subject, `tests/golden/messages/<subject>.yaml`, which one test reads:

    @pytest.mark.parametrize("case", cases("spec"))
    def test_a_config_is_refused_with_its_whole_message(case: Case, golden: Golden) -> None:
        golden(case, refusal_of_spec(*case["overrides"]))

The table is a list of mappings. Their keys are what the test needs of a case (`overrides` as a rule, or values that it
sets on a config, the text of a file, words of a command line), beside `message`, the whole message:

    - overrides: [load.batch_size=0]
      message: 'load.batch_size: found 0; expected a positive integer'

To add one, write it without `message`, run `pytest --update` of that test's file, and read what it says. Comments at
the top of a table stay, others don't: a case that wants a reason has it under `why`, by which it is called, too. Where
a message names a folder of the test, the test replaces it: `golden(case, message.replace(str(tmp_path), "DIR"))`.

What one test alone reads is kept under the test's name, in the table of its file, `tests/golden/said/<file>.yaml`, by
the fixture `says`, for which `tmp_path` is DIR, and what is named is its name. A test calls it as often as it likes:

    says(refusal_of_diff(str(tmp_path), str(run)), RUN=run)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any, Protocol, Self, TypeAlias

import pytest
import yaml

MESSAGES = Path(__file__).parent / "messages"
SAID = Path(__file__).parent / "said"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of a table of messages: the name of the table, its place in it from 0, and its values by their keys."""

    subject: str
    number: int
    values: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def read_text(self) -> str:
        """Return the message that is kept, with a hint where none is yet."""
        return str(self.values.get("message", "no message yet: `pytest --update` writes it"))

    def write_text(self, message: str) -> None:
        """Write the table with `message` for this case."""
        table = read(self.subject)
        table[self.number]["message"] = message
        path_of(self.subject).write_text(as_text(self.subject, table), encoding="utf-8")


Golden: TypeAlias = Callable[[Path | Case, str], None]


class Says(Protocol):
    """Compares a text, lines or values with what is kept of this test; for what differs from run to run are names."""

    def __call__(self, value: object, **names: object) -> None: ...


def as_said(value: object) -> str:
    """Return a text as it is, texts as lines, and other values as Python writes them."""
    if isinstance(value, list) and all(isinstance(of, str) for of in value):
        return "\n".join(value)
    return value if isinstance(value, str) else pformat(value, width=120, sort_dicts=False)


@dataclass(kw_only=True)
class Said:
    """What a test says in turn, as the table of its file keeps it."""

    path: Path
    test: str
    texts: list[str]

    @classmethod
    def kept(cls, file: Path, test: str) -> Self:
        path = SAID / f"{file.stem.removeprefix('test_')}.yaml"
        return cls(path=path, test=test, texts=_said(path).get(test, []))

    def write(self, texts: list[str]) -> None:
        """Write the table with these texts, without tests that are gone."""
        source = (SAID.parents[1] / f"test_{self.path.stem}.py").read_text(encoding="utf-8")
        table = {**_said(self.path), self.test: texts}
        left = {test: of for test, of in table.items() if of and f"def {test.partition('[')[0]}(" in source}
        self.path.write_text(_dumped(dict(sorted(left.items()))), encoding="utf-8")


def _said(path: Path) -> dict[str, list[str]]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def path_of(subject: str) -> Path:
    return MESSAGES / f"{subject}.yaml"


def read(subject: str) -> list[dict[str, Any]]:
    """Return the cases of a table."""
    table: list[dict[str, Any]] = yaml.safe_load(path_of(subject).read_text(encoding="utf-8"))
    return table


def cases(subject: str) -> list[Any]:
    """Return the cases of a table as parameters of a test, each called by its `why`, or by its first value."""
    return [
        pytest.param(
            Case(subject=subject, number=number, values=values),
            id=f"{number}-{values.get('why') or next(iter(values.values()))}"[:80],
        )
        for number, values in enumerate(read(subject))
    ]


class _Dumper(yaml.SafeDumper):
    """Lists of plain values in one line, and texts as they are where quotes would double theirs."""


def _list(dumper: _Dumper, values: list[Any]) -> yaml.Node:
    plain = not any(isinstance(value, dict | list) or "\n" in str(value) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=plain)


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    as_it_is = "\n" in text or (": " in text and "'" in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if as_it_is else None)


_Dumper.add_representer(list, _list)
_Dumper.add_representer(str, _text)


def as_text(subject: str, table: list[dict[str, Any]]) -> str:
    """Return the text of a table, with the comment at its top."""
    lines = path_of(subject).read_text(encoding="utf-8").splitlines(keepends=True)
    head = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join([*lines[:head], _dumped(table)])


def _dumped(table: Any) -> str:
    return str(yaml.dump(table, Dumper=_Dumper, sort_keys=False, width=2**20, allow_unicode=True))
