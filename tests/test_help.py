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

from etlrun.cli import commands, parsers
from etlrun.cli import main as cli
from etlrun.cli import parsers as topics
from etlrun.cli.commands import COMMANDS
from etlrun.cli.main import completions
from etlrun.cli.parsers import LISTS, concepts
from etlrun.cli.reference import markdown
from etlrun.config.folders import config_dir, options_of
from etlrun.review.folders import FORBIDDEN
from etlrun.trained.formats import FORMATS
from tests.configs import CONF, plan_of
from tests.golden import Case, Golden, cases
from tests.own import write_pets

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/commands.md"
SOURCES = Path(cli.__file__).resolve().parents[1]
EVALUATE = """\
### evaluate

Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, recall, F1 and \
calibration, or the errors of numbers, and the worst mistakes. Writes RUN/evaluations/NAME.json and .html.

    etlrun evaluate [OPTION ...] RUN [OVERRIDE ...]

| argument | meaning |
| --- | --- |
| `RUN` | folder of a completed run |
| `OVERRIDE` | dataset.split=SPLIT for another split; data and speed may differ |
| `--threshold X` | probability above which the second class is predicted; default: 0.5 |
| `--importance N` | permute each column N times in all examples, to see what it is worth; 0 leaves this out; \
default: 5 times, in as many rows as cost little |
| `--epoch last\\|N` | model of the last epoch, or of epoch N with a checkpoint; default: the one kept |
| `--format {text,json}` | output format; default: text |

Example:

    etlrun evaluate RUN --format json
"""


def test_the_page_is_made_of_the_parsers() -> None:
    assert PAGE.read_text() == markdown(), f"python -m etlrun.cli.reference > {PAGE.relative_to(ROOT)} updates it"


def test_the_page_is_the_same_on_any_terminal() -> None:
    command, environment = [sys.executable, "-m", "etlrun.cli.reference"], {**os.environ, "COLUMNS": "20"}
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
    first = "# @package _global_\n# The first one.\ntrainer: {epochs: 2}\n"
    (folder / "conf" / "experiment" / "first.yaml").write_text(first)
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


@pytest.mark.parametrize("case", cases("completions"))
def test_commands_groups_options_keys_and_values_complete_a_word(case: Case, golden: Golden) -> None:
    golden(case, "\n".join(completions(case["line"])))


def test_topics_are_configs_of_ones_own_too(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "dear.yaml").write_text("name: memory\n")
    line = f"etlrun help --config-dir {tmp_path} cache.d"
    assert completions(line) == ["cache.dear", "cache.dir", "cache.disk", "cache.dtype"]
    assert completions(line.replace("-dir ", "-dir=")) == ["cache.dear", "cache.dir", "cache.disk", "cache.dtype"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_complete_a_word(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in [[command, part] for part in COMMANDS[command].parts] or [[command]]:
        with pytest.raises(SystemExit, match="0"):
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


@pytest.mark.parametrize("columns", [1, 60, 80, 500])
@pytest.mark.parametrize("name", ["diff", "cache"])
def test_a_help_is_printed_at_any_width(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text, _, _ = parsers.parser_of(name).format_help().partition("example:")
    assert columns == 1 or max(map(len, text.splitlines())) <= min(columns, MOST_COLUMNS)
    monkeypatch.setenv("COLUMNS", "80")
    assert "".join(parsers.parser_of(name).format_help().split()).startswith("".join(text.split()))


FIRST = """\
# @package _global_
# Our photos of leaves. Reviewed by all.
load:
  batch_size: 8
"""
OF_FIRST = """\
experiment.first

  Our photos of leaves.

experiment=first sets:
  load:
    batch_size: 8
"""


def shown(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `etlrun help` prints of a topic."""
    cli.main(["help", *topic.split()])
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("case", cases("help"))
def test_a_topic_is_described(case: Case, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {topic: shown(topic, capsys) for topic in case["topics"]}
    golden(case, next(iter(texts.values())))
    assert texts == dict.fromkeys(texts, next(iter(texts.values())))


def test_a_group_of_steps_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("transform", capsys)
    steps, columns = re.findall(r"^steps(?: on columns)?:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert " ".join(steps.split()).startswith("decode, resize, center_crop, random_flip, ")
    assert " ".join(columns.split()).startswith("fill, missing, part, ")


def test_what_the_parsers_repeat_is_what_the_modules_have() -> None:
    """They are slow to import."""
    assert ((*FORMATS,), FORBIDDEN) == (commands.EXPORTS, commands.FORBIDDEN)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_a_topic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(name, capsys).startswith(parsers.parser_of(name).format_help())
    for part, parser in parsers.parser_of(name).parts.items():
        assert shown(f"{name} {part}", capsys) == parser.format_help()


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("", capsys)
    cli.main(["help", " "])
    assert capsys.readouterr().out == text
    words = {*re.findall(r"[\w-]+", text)}
    assert {*concepts(), *LISTS, *COMMANDS, *options_of(config_dir())} <= words
    for name, concept in concepts().items():
        assert f"  {name:13} {concept.splitlines()[0]}\n" in text


@pytest.mark.parametrize("topic", [*concepts(), *LISTS, *COMMANDS, *options_of(config_dir()), ""])
def test_texts_fit_80_columns(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(topic, capsys)
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_every_option_and_key_is_a_topic() -> None:
    conf = config_dir()
    assert [name for name in topics.names(conf) if name not in topics.about_config(name, conf)] == []


def test_configs_of_ones_own_are_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "first.yaml").write_text(FIRST)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "bare.yaml").write_text("name: memory\n")
    own = ["--config-dir", str(tmp_path)]
    cli.main(["help", "experiment.first", *own])
    assert capsys.readouterr().out == OF_FIRST
    cli.main(["help", "cache.bare", *own])
    assert capsys.readouterr().out.startswith("cache.bare\n\ncache=bare sets:\n  name: memory\n\nkeys of all options")
    cli.main(["help", "cache", *own])
    assert "options:\n  cache=bare\n  cache=disk\n" in capsys.readouterr().out
    cli.main(["help", "groups", *own])
    assert ", first," in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", concepts())
def test_the_commands_and_keys_of_a_concept_are_there(name: str) -> None:
    text = concepts()[name]
    known, groups = {*topics.names(config_dir())}, options_of(config_dir())
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
