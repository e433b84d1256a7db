"""Values with brackets, commas and spaces: one level of quotes, and words of messages that real shells read."""

import shutil
import subprocess

import pytest

from etlrun.config import grid
from etlrun.config.overrides import parsed, rejoined, spelled, typed
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from etlrun.system.shell import pasted
from tests.configs import raised
from tests.golden import Says

TEXTS = {
    "dataset.split=train[:80%]": "train[:80%]",
    "dataset.dir=my photos (1)": "my photos (1)",
    "dataset.dir=it's a#b=c;d": "it's a#b=c;d",
    "logger.run_name=note: größe": "note: größe",
    "sweep.exclude=[cache=disk load.prefetch=1,model=emulated]": ["cache=disk load.prefetch=1", "model=emulated"],
    "dataset.target={price: it's}": {"price": "it's"},
    "dataset.target={größe: number}": "{größe: number}",
    "load.service.address=[[::1]:5050,cpu1:5050]": ["[::1]:5050", "cpu1:5050"],
}
"""What Hydra's grammar refuses, each with the value that it has in etlrun."""
KEPT = (
    "k=a,b",
    "k=[a,b]",
    "k={a: 1}",
    "k=${a}",
    "k=${a b(",
    "k=choice(a,b",
    "k=range(1,3)",
    "k=[a",
    "k='a",
    "k=1",
    "~k",
)


@pytest.mark.parametrize("word", TEXTS)
def test_a_text_that_the_grammar_refuses_is_taken_as_it_is(word: str) -> None:
    (override,), faults = parsed([word], None)
    assert (override.value(), faults) == (TEXTS[word], [])


def test_what_has_another_meaning_keeps_it() -> None:
    assert [spelled(word) for word in KEPT] == [*KEPT]
    assert spelled("dataset.split=train[:10%],train[:50%]") == 'dataset.split="train[:10%]","train[:50%]"'  # a sweep


def test_a_part_of_a_split_needs_one_level_of_quotes() -> None:
    plan = grid.resolve(Request(overrides=["dataset.split=train[:20%]"]), STAGES).plan
    assert plan.spec.dataset.split == "train[:20%]"


@pytest.mark.parametrize(
    "line",
    [
        "dataset.target={price: number}",
        "dataset.target={a: number, b: category}",
        "dataset.target={a:number,b:category}",
        "transform.steps=[{resize:1,crop:2}]",
        "dataset.exclude=[a, b]",
    ],
)
def test_a_value_that_bash_splits_is_a_fault_with_the_word_to_paste(line: str) -> None:
    kept, (fault,) = rejoined([*words_of("bash", line), "load.prefetch=1"])
    assert (kept, fault.where) == (["load.prefetch=1"], line.partition("=")[0])
    assert fault.remedy == f"quote it: '{line}'"


def test_texts_in_a_row_are_no_mapping() -> None:
    words = ["dataset.dir=s3://a", "dataset.dir=s3://b", "load.prefetch=1", "load.prefetch=2", "a=[", "b=1", "c=]"]
    assert rejoined(words) == (words, [])


def test_commas_without_a_sweep_are_told_as_a_list_a_text_and_a_sweep(says: Says) -> None:
    words = ["trainer.metrics=accuracy,f1", "cache=none,memory", "load.batch_size=8,16", "logger.run_name=a, b"]
    says(raised(ConfigError, grid.resolve, Request(overrides=[*words, "logger=wandb"]), STAGES))


def words_of(shell: str, line: str) -> list[str]:
    """The words that a shell makes of a line."""
    told = subprocess.run([shell, "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, text=True)
    return told.stdout.split("\0")[:-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "value", ["train[:80%]", "{a: 1, b: 2}", "it's (1) #a", "a=b", r"C:\\a 'b'", "a,b", "$x `y` !z", "ö"]
)
def test_words_to_paste_are_read_by_the_shell(shell: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert words_of(shell, pasted(f"key={value}")) == [f"key={value}"]
    (word,) = words_of(shell, typed("key=", value))
    (override,), _ = parsed([word], None)
    assert override.value() == value
