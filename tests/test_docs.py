"""The commands of README.md and docs/: each means something, and is composed, checked and planned."""

import re
import shlex
from pathlib import Path

import pytest

from etlrun.cli import main as cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^    python -m etlrun ?((?:.*\\\n)*.*)$", re.MULTILINE)
OF_OTHER_FOLDERS = (
    "trainer.resume=outputs/",
    "freeze outputs/",
    "-m sweep.resume=SWEEP",
    "dataset=my_flowers --config-dir DIR",
    "check --config-dir mineconf",
    "diff main HEAD",
)
"""Commands on what a reader has: a run, a sweep, configs, a repository. Tests of these commands make such things."""
OF_PACKAGES = ("-m hydra/sweeper=optuna", "+transform.grey.strength")
"""Commands for which another package has to be there."""
ELSEWHERE = ("cache ls", "cache why", "plan -m model=emulated …")


def commands() -> list[str]:
    found = [match[1].replace("\\\n", " ") for page in PAGES for match in COMMAND.finditer(page.read_text())]
    return sorted({" ".join(command.split()) for command in found if command})


def is_run_here(command: str) -> bool:
    return not any(part in command for part in (*OF_OTHER_FOLDERS, *OF_PACKAGES, *ELSEWHERE))


@pytest.mark.parametrize("command", [command for command in commands() if is_run_here(command)])
def test_a_command_of_the_docs_is_right(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command.partition(" > ")[0])
    if words[0] not in {"plan", "eject", "diff"}:
        words.insert(0, "plan")
    try:
        cli.main(words)
    except SystemExit as ended:
        pytest.fail(f"{ended.code}: {capsys.readouterr().err}")
    assert capsys.readouterr().out


def test_what_is_left_out_is_in_the_docs() -> None:
    parts = (*OF_OTHER_FOLDERS, *OF_PACKAGES, *ELSEWHERE)
    assert [part for part in parts if not any(part in command for command in commands())] == []
    assert sum(map(is_run_here, commands())) >= 15
