"""What `etlrun help` and each `--help` show, the page of commands, and how shells complete a word."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reference import page_of_commands
from etlrun.cli import commands, parsers
from etlrun.cli import main as cli
from etlrun.cli import parsers as topics
from etlrun.cli.commands import COMMANDS
from etlrun.cli.parsers import concepts
from etlrun.config.folders import config_dir, options_of
from etlrun.config.reference import keys, options
from etlrun.review.folders import FORBIDDEN
from etlrun.stages import STAGES
from etlrun.trained.formats import FORMATS
from tests.configs import plan_of
from tests.golden import Case, Golden, cases
from tests.own import write_pets

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/commands.md"
SOURCES = Path(cli.__file__).resolve().parents[1]


@pytest.mark.parametrize("columns", ["20", "200"])
def test_the_page_is_made_of_the_parsers(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert PAGE.read_text() == page_of_commands(), "python -m benchmarks.reference updates it"


@pytest.fixture(scope="module")
def project(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples name: a run, photos, and configs."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "RUN").symlink_to(run)
    write_pets(folder / "photos")
    (folder / "outputs").mkdir()
    (folder / "conf" / "experiment").mkdir(parents=True)
    first = "# @package _global_\n# The first one.\ntrainer: {epochs: 2}\n"
    (folder / "conf" / "experiment" / "first.yaml").write_text(first)
    return folder


LEAVES = [f"{name} {part}".strip() for name, command in COMMANDS.items() for part in command.parts or [""]]
"""All commands, with each of their parts."""
ELSEWHERE = {
    "tune": "takes minutes",
    "service dispatcher": "serves until it is ended",
    "service worker": "serves until it is ended",
    "cache rm": "needs a cache of this key",
    "data vocabulary": "needs tokenizers",
    "export": "needs onnx",
}
"""Examples that are not run, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ELSEWHERE])
def test_the_example_of_a_command_runs(name: str, project: Path) -> None:
    line = commands.split(name.split())[1].example.replace("etlrun", f"{sys.executable} -m etlrun", 1)
    folders = {"TFDS_DATA_DIR": str(project / "data"), "XDG_CACHE_HOME": str(project / "caches")}
    environment = {**os.environ, **folders}
    command = ["bash", "-c", line]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def completed(line: str, shell: str, folder: Path) -> list[str]:
    environment = {**os.environ, "COMP_LINE": line}
    command = [sys.executable, "-m", "etlrun", "-sc", f"query={shell}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_groups_options_keys_and_values_complete_a_word(tmp_path: Path) -> None:
    (tmp_path / "own" / "cache").mkdir(parents=True)
    (tmp_path / "own" / "cache" / "dear.yaml").write_text("name: memory\n")
    lines = {
        "etlrun pre": ["predict"],
        "etlrun data pre": ["prepare"],
        "etlrun cache ": ["gc", "ls", "rm", "why"],
        "etlrun cache x ": [],
        "etlrun plan cache=d": ["cache=disk"],
        "etlrun config eject cache=d": ["cache=disk"],
        "etlrun cache=disk cache.d": ["cache.dir="],
        f"etlrun show --config-dir {tmp_path / 'own'} cache=d": ["cache=dear", "cache=disk"],
        "etlrun nope=(": [],
    }
    assert {line: completed(line, "bash", tmp_path) for line in lines} == lines


_AS_BASH = """PATH={folder}:$PATH; eval "$(etlrun -sc install={shell})"
COMP_LINE='etlrun {words}' COMP_CWORD={count}
hydra_bash_completion
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_AS_FISH = "etlrun -sc install=fish | source; complete -C 'etlrun {words}'"


@pytest.mark.parametrize(("shell", "script"), [("bash", _AS_BASH), ("fish", _AS_FISH)], ids=["bash", "fish"])
@pytest.mark.parametrize(("words", "reply"), [("data pre", ["prepare"]), ("plan load.pre", ["load.prefetch="])])
def test_shells_complete_the_word_at_the_cursor(
    shell: str, script: str, words: str, reply: list[str], tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder = Path(sys.executable).parent
    text = script.format(folder=folder, shell=shell, words=words, count=len(words.split()))
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [shell, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert ([line.partition("\t")[0] for line in done.stdout.splitlines()], done.stderr) == (reply, "")


MOST_COLUMNS = 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_a_meaning_for_all_and_ends_in_an_example_which_is_a_line_of_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    whole = parsers.parser_of(name)
    assert whole.format_help().endswith(f"\n\nexample:\n  {COMMANDS[name].example}\n")
    for parser in (whole, *whole.parts.values()):
        text = parser.format_help()
        assert text.startswith(f"usage: {parser.prog} ")
        assert max(map(len, text.splitlines())) <= MOST_COLUMNS
        assert parser.description
        assert not parser.allow_abbrev
        assert [of.dest for of in parser._actions if not of.help and not isinstance(of.choices, dict)] == []
        example = (parser.epilog or "").removeprefix("example:\n").partition(" > ")[0]
        etlrun, command, *words = shlex.split(example)
        assert (etlrun, command) == ("etlrun", name)
        assert parser.parts or f"{example} ".startswith(f"  {parser.prog} ")
        assert whole.parse_args(words)


def test_json_is_an_option_of_each_command_that_answers_a_document() -> None:
    helps = {name: parsers.parser_of(*name.split()).format_help() for name in LEAVES}
    with_json = {name for name, text in helps.items() if "--json" in text}
    assert helps.keys() - with_json == {
        "predict", "tune", "service dispatcher", "service worker", "help", "data stats", "data vocabulary",
        "config schema", "config eject", "config freeze",
    }  # fmt: skip
    formats = {name for name in LEAVES if ",json" in " ".join(commands.split(name.split())[1].arguments)}
    assert {name for name in formats if "the same as --format json" in helps[name]} == formats - {"predict"}


@pytest.mark.parametrize("columns", [1, 60, 80, 500])
@pytest.mark.parametrize("name", ["diff", "cache"])
def test_a_help_is_printed_at_any_width(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text, _, _ = parsers.parser_of(name).format_help().partition("example:")
    assert columns == 1 or max(map(len, text.splitlines())) <= min(columns, MOST_COLUMNS)
    monkeypatch.setenv("COLUMNS", "80")
    assert "".join(parsers.parser_of(name).format_help().split()).startswith("".join(text.split()))


def shown(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `etlrun help` prints of a topic."""
    cli.main(["help", *topic.split()])
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_help_of_an_option_has_its_keys_alone(capsys: pytest.CaptureFixture[str]) -> None:
    heads = [line for line in shown("two_towers", capsys).splitlines() if not line.startswith(" ")]
    assert heads[0] == "model.two_towers"
    assert [head for head in heads[1:] if not re.search(r", with model\.(\w+, )*two_towers", head)] == []
    assert {"model.base, with model.two_towers", "model.units, with model.tabular, two_towers"} <= {*heads}


@pytest.mark.parametrize("case", cases("help"))
def test_a_topic_is_described(case: Case, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {topic: shown(topic, capsys) for topic in case["topics"]}
    golden(case, next(iter(texts.values())))
    assert texts == dict.fromkeys(texts, next(iter(texts.values())))


def test_what_the_parsers_repeat_is_what_the_modules_have() -> None:
    """They are slow to import."""
    assert COMMANDS["export"].arguments["--format FORMAT !"] == f"one of {', '.join(FORMATS)}"
    assert COMMANDS["diff"].arguments["--fail-on KIND[,KIND]"].endswith(f": {','.join(FORBIDDEN)}")
    assert commands.FORBIDDEN == FORBIDDEN


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_a_topic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(name, capsys).startswith(parsers.parser_of(name).format_help())
    for part, parser in parsers.parser_of(name).parts.items():
        assert shown(f"{name} {part}", capsys) == parser.format_help()
        assert part in ("ls", "schema") or shown(part, capsys).startswith(parser.format_help())


@pytest.mark.smoke
def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("", capsys)
    cli.main(["help", " "])
    assert capsys.readouterr().out == text
    words = {*re.findall(r"[\w-]+", text)}
    assert {*concepts()} <= words
    for name, concept in concepts().items():
        assert f"  {name:13} {concept.splitlines()[0]}\n" in text


@pytest.mark.parametrize("topic", [*concepts(), *({*COMMANDS} - {"cache"}), "load.prefetch", "cache.disk", ""])
def test_texts_fit_80_columns(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(topic, capsys)
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_every_option_and_key_is_a_topic() -> None:
    names = {*options(STAGES), *(key.path for key in keys(STAGES))}
    assert names == topics._entries().keys()


@pytest.mark.parametrize("name", concepts())
def test_the_commands_and_keys_of_a_concept_are_there(name: str) -> None:
    text = concepts()[name]
    known, groups = {*topics._entries(), *options_of(config_dir())}, options_of(config_dir())
    keys = re.findall(r"`([a-z]+\.[a-z_.]+)(?:=[^`]*)?`", text)
    assert [key for key in keys if key.partition(".")[0] in groups and key not in known] == []
    for line in re.findall(r"^    (etlrun [^\n]*?)(?:  +.*)?$", text, re.MULTILINE):
        first, *words = shlex.split(line.partition(" > ")[0])[1:]
        if first in COMMANDS:
            parsers.parser_of(first).parse_args([word for word in words if word != "..."])
        else:
            assert first.startswith("-") or first.partition("=")[0] in known


def test_the_overrides_of_their_concept_compose() -> None:
    lines = re.findall(r"^    (\S+)  ", concepts()["overrides"], re.MULTILINE)
    words = [word for line in lines for word in shlex.split(line) if word != "load.prefetch=0,2,autotune"]
    assert len(words) == 7
    assert plan_of(*words).spec.load.batch_size == 64
    for word in words:
        plan_of(word)


def test_each_variable_that_is_read_is_in_the_concept_of_the_environment() -> None:
    read = re.compile(
        r"""environ(?:\.get\(|\.setdefault\(|\[)["']([A-Z_]+)["']|["']([A-Z_]+)["'] (?:not )?in os\.environ"""
    )
    texts = [path.read_text() for path in SOURCES.rglob("*.py") if "printed" not in path.parts]
    found = {name for text in texts for pair in read.findall(text) for name in pair if name}
    assert len(found) > 8
    internal = {"COMP_LINE", "PYTHONPATH", "HOME", "HOSTNAME"}  # the last two are hidden in reports
    assert {name for name in found - internal if not re.search(rf"`{name}[`=]", concepts()["environment"])} == set()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("plan", 0),
        ("plan -m load.batch_size=8,16", 0),
        ("check --config-dir conf", 0),
        ("diff cache=none cache=memory --exit-code", 1),
        ("diff load.batch_size=8 load.batch_size=16 --fail-on order", 4),
        ("runs ls", 0),
        ("doctor experiment=own dataset.dir=photos", 0),
        ("evaluate RUN", 0),
    ],
)
def test_json_has_the_keys_that_the_page_lists(
    words: str, status: int, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    if words == "runs ls":
        shutil.copytree(project / "RUN", project / "outputs" / "one")
    ended: object = 0
    try:
        cli.main([*words.split(), "--format", "json"])
    except SystemExit as error:
        ended = error.code
    found = json.loads(capsys.readouterr().out)
    name, *more = words.split()
    command = COMMANDS[name].parts.get(more[0], COMMANDS[name]) if more else COMMANDS[name]
    listed = command.json.removeprefix("a list of ").partition("; -m has ")[2 * ("-m" in more)]
    assert (ended, [*(found[0] if isinstance(found, list) else found)]) == (status, listed.split(", "))
    assert status in (0, 1) or f"{status}: " in command.exits
