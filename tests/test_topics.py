"""`etlrun help TOPIC`: concepts, commands, groups, options and keys."""

import re
import shlex
from pathlib import Path

import pytest

from etlrun.cli import help as topics
from etlrun.cli import main as cli
from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.cli.help import LISTS, concepts
from etlrun.config.folders import config_dir, options_of
from tests.configs import plan_of

MOST_COLUMNS = 80
SOURCES = Path(cli.__file__).resolve().parents[1]
PREFETCH = """\
load.prefetch

  Batches to prefetch; 0 for none.

  values   an integer from 0 to 1,000,000, or autotune
  default  autotune
  changes  speed
  since    0.1
"""
CACHE = """\
cache

  Where examples are cached, and at which point.

options:
  cache=disk
      The first epoch writes a cache on disk; later epochs and runs on the same
      data read it.
  cache=memory (default)
      The first epoch fills a cache in memory; later epochs read it.
  cache=none
      No cache: every epoch reads and transforms the data again.

keys:
  cache.at=transformed (speed)
"""
DISK = """\
cache.disk

  The first epoch writes a cache on disk; later epochs and runs on the same
  data read it.

cache=disk sets:
  name: disk
  at: transformed
  dtype: auto
  dir: null
  when_busy: uncached
  codec: raw

keys of all options of cache:
  cache.at, cache.dtype, cache.dir, cache.when_busy, cache.codec
"""
PAD = """\
transform.pad

  Adds a border to all four sides of an image; it is not random.

keys:
  transform.pad.by, required (data)
      Width of the border in pixels.
"""
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
NAMES = """\
several have this name:
  dataset.name
  model.name
  trainer.schedule.name
"""
FORMS = """\
  with     dataset.table, dataset.arrays, dataset.python, dataset.text_folder
  values   a mapping from columns to class, binary, labels or number, or one of
           them with its options, such as {number: standardize}, {labels: '|'}
           or {class: {weight: 0.5}}
  default  none: it is required (dataset.table, dataset.arrays,
           dataset.python), {label: class} (dataset.text_folder)
  changes  data, training
  since    0.1
"""
INNER = """\
  changes  what its keys change
  since    0.1

its keys:
  trainer.early_stopping.patience, trainer.early_stopping.monitor,
  trainer.early_stopping.min_delta
"""


def shown(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `etlrun help` prints of a topic."""
    cli.main(["help", *topic.split()])
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("topic", ["load.prefetch", "prefetch", "load.prefetch=0", "++load.prefetch=2"])
def test_a_key_is_described_by_its_values_default_kinds_and_version(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(topic, capsys) == PREFETCH


@pytest.mark.parametrize("topic", ["cache.disk", "cache=disk", "disk"])
def test_an_option_is_described_with_what_its_file_sets(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(topic, capsys) == DISK


@pytest.mark.parametrize("topic", ["transform.pad", "pad"])
def test_a_step_is_described_with_its_keys(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(topic, capsys).startswith(PAD)


def test_a_group_is_described_below_the_command_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser = parsers.parser_of("cache")
    assert shown("cache", capsys).startswith(f"{parser.format_help()}\n{CACHE}")


def test_a_group_of_steps_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("transform", capsys)
    steps, columns = re.findall(r"^steps(?: on columns)?:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert " ".join(steps.split()).startswith("decode, center_crop, resize, pad, ")
    assert " ".join(columns.split()).startswith("fill, missing, part, ")


def test_a_name_of_several_keys_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("name", capsys) == NAMES


def test_a_key_has_the_forms_that_options_give_it_and_the_keys_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("dataset.target", capsys).endswith(FORMS)
    assert shown("trainer.early_stopping", capsys).endswith(INNER)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_a_topic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(name, capsys).startswith(parsers.parser_of(name).format_help())
    for part, parser in parsers.parser_of(name).parts.items():
        assert shown(f"{name} {part}", capsys) == parser.format_help()


@pytest.mark.parametrize("topic", ["exit-status", "exit status", "Exit-Status"])
def test_a_concept_is_a_file(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SOURCES / "cli" / "concepts" / "exit-status.md").read_text()
    assert shown(topic, capsys) == text.removeprefix("# ")


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("", capsys)
    cli.main(["help", " "])
    assert capsys.readouterr().out == text
    words = {*re.findall(r"[\w-]+", text)}
    assert {*concepts(), *LISTS, *COMMANDS, *options_of(config_dir())} <= words
    for name, concept in concepts().items():
        assert f"  {name:13} {concept.splitlines()[0]}\n" in text


@pytest.mark.parametrize(
    ("topic", "remedy"),
    [
        ("load.prefech", "did you mean etlrun help load.prefetch?"),
        ("overides", "did you mean etlrun help overrides?"),
        ("evalute", "did you mean etlrun help evaluate?"),
        ("quux", "etlrun help lists the topics"),
        ("cache quux", "etlrun help lists the topics"),
        ("plan load.prefetch", "etlrun help lists the topics"),
        ("LOAD.PREFETCH", "did you mean etlrun help load.prefetch?"),
        ("größe", "etlrun help lists the topics"),
        ("=", "etlrun help lists the topics"),
        (".", "etlrun help lists the topics"),
        ("../config", "etlrun help lists the topics"),
        ("transform.nope", "etlrun help lists the topics"),
        ("batchsize", "did you mean etlrun help load.batch_size?"),
        ("cache.dsk", "did you mean etlrun help cache.disk?"),
    ],
)
def test_an_unknown_topic_is_refused_with_the_one_that_was_meant(
    topic: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", *topic.split()])
    out, err = capsys.readouterr()
    expected = "found an unknown topic; expected a command, a group, an option, a key or a concept"
    assert (ended.value.code, out, err) == (2, "", f"etlrun: 1 fault\n  {topic}: {expected}\n    -> {remedy}\n")


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
    with pytest.raises(SystemExit, match="2"):
        cli.main(["help", "experiment.first", "--config-dir", str(tmp_path / "none")])
    assert capsys.readouterr().err == (
        f"etlrun: 1 fault\n  --config-dir: found no folder {tmp_path / 'none'}; expected a folder of configs\n"
        "    -> pass the path of an existing folder\n"
    )


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
