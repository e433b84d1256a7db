"""The help of each command: what it shows, that its examples are lines of the command, and refusals of wrong lines."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.cli.completion import completions
from etlrun.cli.parsers import ARGUMENTS, Parser
from etlrun.cli.reference import markdown
from tests.configs import CONF
from tests.own import write_pets

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/commands.md"
EVALUATE = """\
### evaluate

Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, recall, F1 and \
calibration, or the errors of numbers, and the worst mistakes. Writes RUN/evaluations/NAME.json and .html.

    etlrun evaluate [OPTION ...] RUN [OVERRIDE ...]

| argument | meaning |
| --- | --- |
| `RUN` | folder of a completed run |
| `OVERRIDE` | dataset.split=SPLIT for another split than the run's validation; data and speed may differ |
| `--threshold X` | probability above which the second of two classes is predicted; default: 0.5 |
| `--importance N` | permute each column N times in all examples, to see what it is worth; 0 leaves this out; \
default: 5 times, in as many rows as cost little |
| `--epoch last\\|N` | take the model of the last epoch, or of epoch N, of which there is a checkpoint; default: \
the one kept |
| `--format text\\|json` | output format; default: text |

Example:

    etlrun evaluate RUN --format json
"""


def test_the_page_is_made_of_the_parsers() -> None:
    assert PAGE.read_text() == markdown(), f"python -m etlrun.cli.reference > {PAGE.relative_to(ROOT)} updates it"


@pytest.mark.parametrize("columns", ["20", "200"])
def test_the_page_is_the_same_on_any_terminal(columns: str) -> None:
    command, environment = [sys.executable, "-m", "etlrun.cli.reference"], {**os.environ, "COLUMNS": columns}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == PAGE.read_text()


@pytest.fixture(scope="module")
def project(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples name: a run, photos, and configs."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "RUN").symlink_to(run)
    write_pets(folder / "photos")
    (folder / "outputs").mkdir()
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "first.yaml").write_text("# The first one.\ntrainer: {epochs: 2}\n")
    return folder


ELSEWHERE = {
    "tune": "takes minutes",
    "service": "serves until it is ended",
    "vocabulary": "needs tokenizers",
    "export": "needs onnx",
}
"""Examples that are not run, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ELSEWHERE])
def test_the_example_of_a_command_runs(name: str, project: Path) -> None:
    line = COMMANDS[name].example.replace("etlrun", f"{sys.executable} -m etlrun", 1)
    folders = {"TFDS_DATA_DIR": str(project / "data"), "XDG_CACHE_HOME": str(project / "caches")}
    environment = {**os.environ, **folders}
    command = ["bash", "-c", line]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_has_its_usage_its_arguments_and_an_example() -> None:
    assert EVALUATE in markdown()


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


MOST_COLUMNS = 80


def parsers_of(name: str) -> list[Parser]:
    """The parser of a command, and those of its parts, such as `cache why`."""
    parser = parsers.parser_of(name)
    return [parser, *parser.parts.values()]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_says_what_the_command_does_and_ends_in_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for parser in parsers_of(name):
        text = parser.format_help()
        assert text.startswith(f"usage: {parser.prog} ")
        assert parser.description
        assert f"\n\nexample:\n  etlrun {name} " in f"{text[:-1]} "
        assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert parsers.parser_of(name).format_help().endswith(f"\n\nexample:\n  {COMMANDS[name].example}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_has_a_meaning(name: str) -> None:
    arguments = [argument for parser in parsers_of(name) for argument in parser.arguments]
    assert [of.dest for of in arguments if not of.help and not isinstance(of.choices, dict)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_not_abbreviated(name: str) -> None:
    assert [parser.prog for parser in parsers_of(name) if parser.allow_abbrev] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_lines_of_the_command(name: str) -> None:
    for parser in parsers_of(name):
        example = (parser.epilog or "").removeprefix("example:\n").partition(" > ")[0]
        etlrun, command, *words = shlex.split(example)
        assert (etlrun, command) == ("etlrun", name)
        assert parser.parts or f"{example} ".startswith(f"  {parser.prog} ")
        assert parsers.parser_of(name).parse_args(words)


@pytest.mark.parametrize("columns", ["1", "20", "80", "500"])
@pytest.mark.parametrize("name", ["diff", "cache", "prepare"])
def test_a_help_is_printed_at_any_width(name: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    letters = "".join(parsers.parser_of(name).format_help().split())
    monkeypatch.setenv("COLUMNS", "80")
    assert letters == "".join(parsers.parser_of(name).format_help().split())


SIDE = "quoted overrides, a config file, the folder of a run or of a sweep, or a git revision"
WRONG = {
    "diff a b --formt json": [
        "--formt json: found an unknown option; expected an option of etlrun diff",
        "did you mean `--format`?",
    ],
    "evaluate RUN --thresh 0.5": [
        "--thresh 0.5: found an unknown option; expected an option of etlrun evaluate",
        "did you mean `--threshold`?",
    ],
    "runs ls --form json": [
        "--form: found an unknown option; expected an option of etlrun runs",
        "did you mean `--format`?",
    ],
    "report RUN --quux": [
        "--quux: found an unknown option; expected an option of etlrun report",
        "see etlrun report --help",
    ],
    "diff a b c d": ["c d: found an argument too many; expected those of etlrun diff", "see etlrun diff --help"],
    "diff": [f"OLD: found nothing; expected {SIDE}", "see etlrun diff --help"],
    "init": [
        "DIR: found nothing; expected the folder of the project: a new one, or an empty one",
        "see etlrun init --help",
    ],
    "evaluate": ["RUN: found nothing; expected folder of a completed run", "see etlrun evaluate --help"],
    "prepare --seed 1": [
        "SOURCE: found nothing; expected folder, list, archive, or pattern of TFRecords",
        "see etlrun prepare --help",
        "--name: found nothing; expected name of the dataset",
        "see etlrun prepare --help",
    ],
    "cache": ["command: found nothing; expected one of ls, why, gc, rm", "see etlrun cache --help"],
    "cache lss": ["command: found 'lss'; expected one of ls, why, gc, rm", "did you mean `ls`?"],
    "plan --format xml": ["--format: found 'xml'; expected one of text, json, mermaid"],
    "cache gc --max-bytes x": [
        "--max-bytes: found x; expected a number of bytes, or one with a unit such as 50MB",
    ],
    "check --config-dir": [
        "--config-dir: found no value; expected folder of your configs, checked instead of the project's",
        "see etlrun check --help",
    ],
    "check --update=3": ["--update: found the value '3'; expected no value", "see etlrun check --help"],
    "diff a b --stat --format json": ["--format: found --stat, too; expected one of them", "see etlrun diff --help"],
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command_line_is_refused_as_a_wrong_config_is(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    out, err = capsys.readouterr()
    lines = [line.strip().removeprefix("-> ") for line in err.splitlines()]
    count = sum(": found" in line for line in WRONG[words])
    assert (ended.value.code, out) == (2, "")
    assert lines == [f"etlrun: {count} fault{'s' * (count > 1)}", *WRONG[words]]
