"""What etlrun promises: nothing of it is gone, and what is new is in the golden file."""

import re

import pytest

from etlrun.planning.hints import RENAMED
from tests import public
from tests.golden import Golden
from tests.public import GOLDEN, REMEDY, broken, facts

NOW = facts()


def test_no_promise_is_broken() -> None:
    breaks = broken(public.golden(), NOW)
    assert not breaks, "\n".join([*breaks, REMEDY])


def test_what_is_new_or_wider_is_in_the_golden_file(golden: Golden) -> None:
    """What is narrower of a signature or of a key's values is a break that the diff shows a reviewer."""
    golden(GOLDEN, public.as_text(NOW))


def test_all_that_the_docs_import_is_promised() -> None:
    text = (public.ROOT / "docs" / "extending.md").read_text()
    imports = re.findall(r"^from (etlrun\.[\w.]+) import ([\w, ]+)", text, re.MULTILINE)
    names = {f"{module}.{name.strip()}" for module, names in imports for name in names.split(",")}
    assert names - public.plugin_names().keys() == set()
    members = {f"plugin {name}.{member}" for name, of in public.plugin_names().items() for member in of}
    assert members - NOW.keys() == set(), "no class has it"


def test_the_docs_list_all_keys_that_have_another_name_now() -> None:
    rows = [f"| `{old}` | `{new}` |\n" for old, new in RENAMED.items()]
    assert "".join(["| --- | --- |\n", *rows, "\n"]) in public.COMPATIBILITY.read_text()


GONE = "is gone"
UNKNOWN = "is gone, and is not in RENAMED of etlrun/planning/hints.py"


@pytest.mark.parametrize(
    ("name", "now", "why"),
    [
        ("python etlrun.load", None, GONE),
        ("plugin etlrun.stages.step.Step.gives", None, GONE),
        ("entry point etlrun.stages", None, GONE),
        ("command etlrun plan --format", None, GONE),
        ("config option cache=disk", None, GONE),
        ("summary.json Verdict max_gain", None, GONE),
        ("config key load.prefetch", None, UNKNOWN),
        ("config key model.wide of model.tabular", None, UNKNOWN),
        ("command etlrun plan --format", "json", "{} -> json"),
        ("command etlrun plan --multirun/-m", "required", "{} -> required"),
        ("exit status refused", "1", "{} -> 1"),
        ("summary.json Verdict max_gain", "number", "{} -> number"),
        ("command etlrun plan --format", "json|text|yaml", ""),
        ("config key load.prefetch", "an integer", ""),
        ("config key load.new", "an integer", ""),
        ("summary.json new", "number", ""),
    ],
)
def test_what_is_gone_or_narrower_is_a_break_and_what_is_wider_is_none(name: str, now: str | None, why: str) -> None:
    others = {key: value for key, value in NOW.items() if key != name}
    expected = [f"{name}: {why.format(NOW.get(name))}"] if why else []
    assert broken(NOW, others if now is None else {**NOW, name: now}) == expected


def test_a_key_with_another_name_needs_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "config key load.prefetch"
    now = {key: value for key, value in NOW.items() if key != name} | {"config key load.ahead": NOW[name]}
    assert broken(NOW, now) == [f"{name}: {UNKNOWN}"]
    monkeypatch.setitem(RENAMED, "load.prefetch", "load.ahead")
    assert broken(NOW, now) == []


def test_a_key_that_all_options_have_now_is_not_gone() -> None:
    name = "config key model.wide of model.tabular"
    now = {key: value for key, value in NOW.items() if key != name} | {"config key model.wide": NOW[name]}
    assert broken(NOW, now) == []
