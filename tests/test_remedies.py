"""Rules: each has a config that breaks it, and each remedy ends its fault and uncovers no other."""

import re
import shlex
from pathlib import Path

import pytest

from etlrun.planning.plan import served
from etlrun.planning.planner import drafted, planned, with_data
from etlrun.planning.rule import OPTIONS, Rule, broken, faults_of
from etlrun.planning.rules import RULES
from etlrun.planning.spec import ConflictError, RunSpec, parse
from etlrun.stages import STAGES
from etlrun.stages.rule import Need, When
from etlrun.system.errors import ConfigError, Fault, override
from tests.configs import composed, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.grove import load_grove
from tests.trained import refused, said

BASES = {
    "images": (),
    "class": ("experiment=table", "dataset.files=t.csv", "dataset.target={kind: class}", "dataset.inputs=[a,b]"),
    "number": ("experiment=table", "dataset.files=t.csv", "dataset.target={b: number}", "dataset.inputs=[a]"),
    "text": ("experiment=text", "dataset.files=t.csv", "dataset.target={kind: class}", "dataset.inputs=[note]"),
}
PHASES = "trainer.phases=[{epochs: 1, learning_rate: 0.1},{epochs: 1, unfreeze: all}]"
BAD = (
    "cache=memory trainer.hosts=2", "cache=disk trainer.hosts=2", "cache=disk cache.at=features",
    "cache=disk cache.codec=jpeg90", "cache=disk load=served", "load.mixup_alpha=0.2",
    "load.mixup_alpha=0.2 load.class_weights=balanced", "load.boundaries=[8,16]", "load=padded", "load.sample=balanced",
    "load.class_weights=balanced", "dataset.on_corrupt=skip", "extract=tfds", "extract=tfds trainer.hosts=2",
    "trainer.hosts=2", "trainer.devices=2", "trainer.hosts=2 trainer.devices=2",
    "trainer=drain measure.au_min=0.9 profile=trace",
    "trainer.loss=mean_squared_error", PHASES,
)  # fmt: skip
"""Overrides that do not fit together with some of the datasets."""
_SETTING = r"[a-z_]+(?:\.[a-z_]+)*=(?:\[[^\]]*\]|[^\s,;:]+)"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a table of numbers, texts and classes; beside it a package with a loss and a callback."""
    rows = (f"{row / 7:.2f},{row * 3},the {row}th of some words,{'ab'[row % 2]}" for row in range(1_200))
    (tmp_path / "t.csv").write_text("\n".join(["a,b,note,kind", *rows]))
    monkeypatch.chdir(tmp_path)
    load_grove(tmp_path / "site", monkeypatch)


def settings(remedy: str) -> list[list[str]]:
    """The alternatives of a remedy `set …`, each with the overrides that it sets."""
    found = re.search(r"\bset ([^;]*?)(?:[;:] |$)", remedy)
    alternatives = re.split(r",? or (?:set )?|, (?=[a-z_.]+=)", found[1]) if found else []
    return [words for of in alternatives if (words := re.findall(_SETTING, of))]


def refusal(words: list[str]) -> list[Fault]:
    try:
        planned(composed(*words), STAGES)
    except ConfigError as error:
        return [*error.faults]
    return []


def named(faults: list[Fault]) -> set[tuple[str, str]]:
    return {(of.where, of.expected) for of in faults}


def wrong_remedies(words: list[str]) -> list[tuple[str, str, list[str]]]:
    """The remedies of a config that don't end their faults, or uncover others that have no remedy themselves."""
    wrong, faults = [], refusal(words)
    for fault in faults:
        for remedy in settings(fault.remedy):
            after = refusal([*words, *remedy])
            others = [settings(of.remedy)[:1] for of in after if settings(of.remedy)]
            whole = refusal([*words, *remedy, *(word for of in others for word in of[0])]) if others else after
            is_there = named([fault]) & named(after)
            uncovered = [of for of in whole if settings(of.remedy) or not named([of]) <= named(faults)]
            wrong += [(str(fault), " ".join(remedy), [*map(str, uncovered)])] if is_there or uncovered else []
    return wrong


def whole(words: list[str]) -> list[str]:
    return [*words, "dataset.dir=kept"] if "dataset.files=t.csv" in words else words


def broken_by(words: list[str]) -> set[Rule]:
    """The rules that a config breaks; none if its values or its data are refused before."""
    try:
        spec: RunSpec | None = parse(composed(*words), STAGES)
    except ConflictError as error:
        spec = error.spec
    try:
        return set() if spec is None else {*broken(drafted(served(with_data(spec))), RULES)}
    except ConfigError:
        return set()


@pytest.mark.parametrize("case", cases("rules"))
@pytest.mark.usefixtures("table")
def test_what_does_not_fit_together_is_refused_and_mended_by_each_remedy(case: Case, golden: Golden) -> None:
    words = whole(case["overrides"])
    golden(case, "\n".join(map(str, refusal(words))))
    assert wrong_remedies(words) == []


@pytest.mark.parametrize("word", OPTIONS)
def test_an_option_that_a_remedy_chooses_is_tried_as_its_file_has_it(word: str) -> None:
    assert getattr(parse(composed(word), STAGES), word.partition("=")[0]) == OPTIONS[word]


@pytest.mark.usefixtures("table")
def test_each_rule_has_a_config_that_breaks_it() -> None:
    found = set[Rule]().union(*(broken_by(whole(case.values[0]["overrides"])) for case in cases("rules")))
    rules = [(when, need) for when, needs in RULES.items() for need in needs]
    assert [(when.words, need.values) for when, need in rules if (when, need) not in found] == []


def test_a_change_that_does_not_mend_is_not_proposed(says: Says) -> None:
    small = When("{load.batch_size}", lambda draft: draft.load.batch_size < 64, ("load.batch_size=48",))
    needs = (
        Need("load.prefetch=2", by=("load.prefetch=3", "load.shuffle_buffer=7")),
        Need("load.prefetch=2 or 4", advice="buy memory", by=()),
        Need("load.drop_remainder=true"),
    )
    other = When("", lambda draft: draft.load.drop_remainder)
    rules = {small: needs, other: (Need("cache=none"),)}
    faults = [*faults_of(drafted(spec_of()), rules, drafted)]
    says([str(fault).partition("\n    -> ")[2] for fault in faults])
    says(str(faults[1]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
@pytest.mark.usefixtures("table")
def test_each_remedy_ends_its_fault_and_uncovers_no_other(kind: str) -> None:
    for bad in BAD:
        assert wrong_remedies(whole([*BASES[kind], *([bad] if bad == PHASES else bad.split())])) == []


@pytest.mark.parametrize(
    "name", ["größe", "sepal length (cm)", "a, b", "it's", 'say "so"', "#1", "Null", "x ", "plain"]
)
def test_a_column_of_any_name_is_predicted_by_the_words_of_the_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    header = ",".join('"{}"'.format(of.replace('"', '""')) for of in (name, "x"))
    (tmp_path / "a.csv").write_text(f"{header}\n" + "".join(f"{row / 7:.2f},{row % 3}\n" for row in range(60)))
    words = ["plan", "experiment=table", "dataset.files=a.csv", "dataset.dir=kept"]
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    lines = refused(capsys, *words, f'dataset.target="{text}"', status=2)
    remedy = lines[-1].removeprefix("    -> write ").removesuffix(", or class in place of number if it names classes")
    assert remedy == override("dataset.target", name, "number")
    assert name in said(capsys, *words, *shlex.split(remedy))
