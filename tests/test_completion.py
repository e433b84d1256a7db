"""Completion of command lines, asked as the shells ask it, and by bash itself."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.cli.commands import COMMANDS
from etlrun.cli.completion import completions
from etlrun.cli.parsers import ARGUMENTS
from tests.configs import CONF

GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("etlrun pl", ["plan", "plugins"]),
        ("etlrun plan cach", ["cache.", "cache="]),
        ("etlrun cach", ["cache", "cache.", "cache="]),
        ("etlrun cache ", ["gc", "ls", "rm", "why"]),
        ("etlrun cache why extract=in", ["extract=interleave"]),
        ("etlrun cache=", ["cache=disk", "cache=memory", "cache=none"]),
        ("etlrun -m cache=none,me", ["cache=none,memory"]),
        ("etlrun -m cache=none,disk,", ["cache=none,disk,memory"]),
        ("etlrun plan load.pre", ["load.prefetch="]),
        ("etlrun trainer.early_stopping.m", ["trainer.early_stopping.min_delta=", "trainer.early_stopping.monitor="]),
        ("etlrun ++trainer.ear", ["++trainer.early_stopping."]),
        ("etlrun load.drop_remainder=", ["load.drop_remainder=false", "load.drop_remainder=true"]),
        ("etlrun model.st", []),
        ("etlrun model=emulated model.st", ["model.step_ms="]),
        ("etlrun experiment=own dataset.d", ["dataset.dir="]),
        ("etlrun experiment=nope load.pre", ["load.prefetch="]),
        ('etlrun plan dataset.split="tra', []),
        ("etlrun predict outputs/", []),
        ("etlrun --conf", ["--config-dir", "--config-name"]),
        ("etlrun --config-dir ", []),
        ("etlrun plan load=plain --f", ["--format"]),
        ("etlrun cache gc --", ["--dir", "--help", "--max-bytes", "--yes"]),
        ("etlrun evaluate run --c", []),
        ("etlrun diff --show ", []),
        ("etlrun --config-dir /nowhere cache=d", ["cache=disk"]),
        ("etlrun help re", ["report", "resume"]),
        ("etlrun help cach", ["cache", "cache.", "caches"]),
        ("etlrun help cache.d", ["cache.dir", "cache.disk", "cache.dtype"]),
        ("etlrun help cache w", ["why"]),
        ("etlrun help --config-dir /nowhere cache w", ["why"]),
        (
            "etlrun help trainer.early_stopping.m",
            ["trainer.early_stopping.min_delta", "trainer.early_stopping.monitor"],
        ),
        ("etlrun help model.na", []),
    ],
)
def test_commands_groups_options_keys_and_values_complete_a_word(line: str, found: list[str]) -> None:
    assert completions(line) == found


def test_topics_are_configs_of_ones_own_too(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "dear.yaml").write_text("name: memory\n")
    line = f"etlrun help --config-dir {tmp_path} cache.d"
    assert completions(line) == ["cache.dear", "cache.dir", "cache.disk", "cache.dtype"]
    assert completions(line.replace("-dir ", "-dir=")) == ["cache.dear", "cache.dir", "cache.disk", "cache.dtype"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_complete_a_word(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in [[command, part] for part in ARGUMENTS[command].parts] or [[command]]:
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        options = {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", capsys.readouterr().out.partition("options:")[2])}
        assert {*completions(f"etlrun {' '.join(words)} --")} == options


@pytest.mark.parametrize("line", ["", "etlrun", "etlrun "])
def test_a_line_begins_with_a_command_or_a_group(line: str) -> None:
    assert completions(line) == sorted([*COMMANDS, *(f"{group}{end}" for group in GROUPS for end in ".=")])


def test_own_configs_complete_a_word_as_well(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "pets.yaml").write_text("defaults: [folder, _self_]\ndir: photos\nown: 1\n")
    (tmp_path / "dataset" / "broken.yaml").write_text("{")
    line = f"etlrun --config-dir {tmp_path} dataset="
    assert completions(f"{line}p") == ["dataset=pets", "dataset=python"]
    assert completions(f"{line}pets dataset.dir=") == ["dataset.dir=photos"]
    assert completions(f"{line}pets dataset.sp") == ["dataset.split="]
    assert completions(f"{line}broken dataset.sp") == []


def test_a_query_imports_nothing_that_takes_its_time_and_prints_nothing_else(tmp_path: Path) -> None:
    code = (
        "import json, sys; from etlrun.cli.main import main; main(['-sc', 'query=fish']); "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    command, environment = [sys.executable, "-c", code], {**os.environ, "COMP_LINE": "etlrun cache=disk load.pre"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "load.prefetch=\n"
    slow = {"hydra", "omegaconf", "pydantic", "numpy", "rich", "tensorflow", "keras"}
    assert set(json.loads(done.stderr)) & slow == set()


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("etlrun pre", ["predict ", "prepare "]),
        ("etlrun plan cache=d", ["disk "]),
        ("etlrun plan load.pre", ["load.prefetch="]),
        ("etlrun plan train --epochs pl", []),
        ("etlrun nope=(", []),
    ],
)
def test_bash_replaces_the_word_at_the_cursor(line: str, reply: list[str], tmp_path: Path) -> None:
    """Bash splits words at `=`, and replaces what is behind the last one."""
    installed = Path(sys.executable).with_name("etlrun")
    script = f"""eval "$({installed} -sc install=bash)"
COMP_LINE={json.dumps(line + " behind")} COMP_POINT={len(line)}
_etlrun {installed} '' ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (reply or [""], "")


_AS_ZSH = """compdef() {{ }}; _files() {{ print a file }}
compadd() {{ while [[ $1 != -- ]] {{ shift }}; print -l -- ${{(M)@[2,-1]:#${{words[CURRENT]}}*}} }}
eval "$({etlrun} -sc install=zsh)"; words=({etlrun} {words}) CURRENT={count}; _etlrun
"""
_AS_FISH = "{etlrun} -sc install=fish | source; complete -C 'etlrun {words}'"


@pytest.mark.parametrize(("shell", "script"), [("zsh", _AS_ZSH), ("fish", _AS_FISH)], ids=["zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("pre", ["predict", "prepare"]),
        ("plan cache=d", ["cache=disk"]),
        ("plan load.pre", ["load.prefetch="]),
        ("diff --ex", ["--exit-code", "--experiment"]),
        ("predict a", ["a file"]),
    ],
)
def test_other_shells_complete_the_word_at_the_cursor(
    shell: str, script: str, words: str, reply: list[str], tmp_path: Path
) -> None:
    """Zsh with its function that takes what is found as a stand-in, which needs a terminal; fish as a whole."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "a file").touch()
    installed = Path(sys.executable).with_name("etlrun")
    text = script.format(etlrun=installed, words=words, count=len(words.split()) + 1)
    environment = {**os.environ, "PATH": f"{installed.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [shell, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    found = [line.partition("\t")[0].replace("\\ ", " ") for line in done.stdout.splitlines() if line.strip()]
    assert (found, done.stderr) == (reply, "")


@pytest.mark.parametrize(("asked", "found"), [([], "nothing"), (["install=csh"], "install=csh"), (["bash"], "bash")])
def test_an_unknown_shell_is_refused(asked: list[str], found: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["-sc", *asked])
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        f"etlrun: 1 fault\n  -sc: found {found}; expected install=bash or install=zsh or install=fish\n",
    )
