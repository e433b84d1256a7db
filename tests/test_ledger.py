"""A ledger that a person has edited."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.multirun import multirun
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, resume_command
from etlrun.system.errors import WorldError

REQUEST: dict[str, Any] = {"overrides": [], "config_dir": None, "config_name": None, "files": "", "multirun": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a sweep of two configs."""
    found = grid.of(Request(overrides=["load.prefetch=0,1"], multirun=True), STAGES)
    return Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, REQUEST).folder


def without_multirun(text: str) -> str:
    known = json.loads(text)
    del known["request"]["multirun"]
    return json.dumps(known)


@pytest.mark.parametrize(
    ("file", "damage", "found"),
    [
        ("sweep.json", lambda _: "[]", "TypeError: list indices must be integers or slices, not str"),
        ("sweep.json", lambda _: "{}", "KeyError: 'configs'"),
        ("sweep.json", lambda _: "no", "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("sweep.json", without_multirun, "KeyError: 'multirun'"),
        (
            "configs.jsonl",
            lambda text: text.split("\n")[0],
            "ValueError: configs.jsonl has 1 configs, sweep.json says 2",
        ),
        ("configs.jsonl", lambda text: text[:-100], "ValueError: configs.jsonl, line 2: EOF while parsing "),
    ],
)
def test_damage_is_named(file: str, damage: Callable[[str], str], found: str, folder: Path) -> None:
    (folder / file).write_text(damage((folder / file).read_text()))
    refused = refused_resume(folder)
    assert refused.startswith(f"{folder}: found no sweep ({found}")
    assert refused.endswith(
        "); expected the folder of a sweep, with its sweep.json and configs.jsonl\n"
        "    -> pass the folder that the sweep printed, or start a new sweep without sweep.resume"
    )


def test_a_path_without_a_sweep_is_refused(tmp_path: Path) -> None:
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'sweep.json'}'"
    assert refused_resume(tmp_path).startswith(
        f"{tmp_path}: found no sweep ({missing}); expected the folder of a sweep"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["it's", "a,b=c", "[my] sweep", "my sweep"])
def test_the_command_that_resumes_is_read_whatever_the_name_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    etlrun, *words = shlex.split(resume_command(folder))
    with pytest.raises(WorldError) as caught:
        multirun(words)
    assert etlrun == "etlrun"
    assert str(caught.value).startswith(f"{folder}: found no sweep (FileNotFoundError: ")


def refused_resume(folder: Path) -> str:
    """The message when the sweep in `folder` is resumed."""
    with pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={folder}"])
    return str(caught.value)


def test_an_empty_line_is_no_config(folder: Path) -> None:
    before, configs = Ledger.open(folder).configs, folder / "configs.jsonl"
    configs.write_text("\n" + configs.read_text().replace("\n", "\n\n"))
    assert Ledger.open(folder).configs == before
