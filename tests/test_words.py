"""Words of a command line that are no override: unknown commands, options, and words without `=`."""

from pathlib import Path

import pytest

from etlrun.cli import main as cli
from tests.readers import logging_as_it_was

COMMAND = "found an unknown command; expected a command, or overrides KEY=VALUE"
OPTION = "found an unknown option; expected overrides KEY=VALUE, or options of etlrun --help"
WORD = "found a word without `=`; expected overrides KEY=VALUE"


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines with which a command line is refused."""
    with pytest.raises(SystemExit) as ended, logging_as_it_was():
        cli.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["train", "--help"], "leave it out: etlrun trains without a command"),
        (["run", "cache=disk"], "leave it out: etlrun trains without a command"),
        (["prdict", "x"], "did you mean etlrun predict?"),
        (["evalute", "outputs/x", "--format", "json"], "did you mean etlrun evaluate?"),
        (["resume", "outputs/x"], "write etlrun trainer.resume=RUN"),
        (["foo", "bar", "cache=disc"], "etlrun --help lists the commands"),
        (["my/pets.yaml"], "for a whole config write etlrun --config-dir my --config-name pets"),
    ],
)
def test_an_unknown_command_is_refused_with_the_one_that_was_meant(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(words, capsys) == ["etlrun: 1 fault", f"  {words[0]}: {COMMAND}", f"    -> {remedy}"]


def test_a_folder_in_the_place_of_a_command_is_a_run_or_has_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos" / "cats").mkdir(parents=True)
    (tmp_path / "outputs" / "day" / "run").mkdir(parents=True)
    (tmp_path / "outputs" / "day" / "run" / "summary.json").write_text("{}")
    remedies = {
        "my photos": "for a folder of images write etlrun experiment=own dataset.dir='my photos'",
        "outputs/day/run": "write etlrun report outputs/day/run",
        "outputs": "write etlrun report outputs",
    }
    for word, remedy in remedies.items():
        assert refusal([word], capsys)[1:] == [f"  {word}: {COMMAND}", f"    -> {remedy}"]


@pytest.mark.parametrize("command", [[], ["plan"], ["-m"], ["plan", "--format", "json"], ["eject"]])
@pytest.mark.parametrize(
    ("words", "where", "remedy"),
    [
        (["--epochs", "3"], "--epochs 3", "write trainer.epochs=3"),
        (["--batch-size=64"], "--batch-size 64", "write load.batch_size=64"),
        (["--lr", "0.1"], "--lr 0.1", "write trainer.learning_rate=0.1"),
        (["--dataset", "folder"], "--dataset folder", "write dataset=folder"),
        (["--model.name", "VGG16"], "--model.name VGG16", "write model.name=VGG16"),
        (["--config_dir", "mine"], "--config_dir mine", "did you mean `--config-dir`?"),
    ],
)
def test_an_option_that_is_an_override_is_told_as_one(
    command: list[str], words: list[str], where: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal([*command, *words], capsys) == ["etlrun: 1 fault", f"  {where}: {OPTION}", f"    -> {remedy}"]


@pytest.mark.parametrize(
    ("words", "meant"), [("plan --formt json", "--format"), ("doctor --htm a.html", "--html"), ("-m --multrun", "")]
)
def test_an_option_of_a_command_is_told_before_overrides(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = words.partition(" ")[2]
    remedy = f"    -> did you mean `{meant or '--multirun'}`?"
    assert refusal(words.split(), capsys) == ["etlrun: 1 fault", f"  {where}: {OPTION}", remedy]


BRACKETS = {
    "transform.steps=[decode,resize": ("]", "'transform.steps=[decode,resize]'"),
    "dataset.split=train[:80%": ("]", "'dataset.split=\"train[:80%]\"'"),
    "+transform.pad={size: [1, 2": ("]}", "'+transform.pad={size: [1, 2]}'"),
}


@pytest.mark.parametrize("word", BRACKETS)
def test_a_bracket_that_is_missing_is_named(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    missing, written = BRACKETS[word]
    assert refusal(["plan", word], capsys)[1:] == [
        f"  {word}: found no closing {missing}; expected KEY=VALUE in Hydra's grammar",
        f"    -> write {written}",
    ]


NO_KEY = "the config does not have; expected a reference to a key of the config, such as ${trainer.epochs}"
OR = "or a reference such as ${trainer.epochs}"
RESOLVERS = "oc.deprecated, oc.dict.keys, oc.dict.values, oc.select"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("${trainer.epoch}", [f"${{trainer.epoch}}, which {NO_KEY}", "`${trainer.epochs}`"]),
        ("${nowhere}", [f"${{nowhere}}, which {NO_KEY}"]),
        (
            "${oc.slect:trainer.seed}",
            [f"the unknown resolver oc.slect; expected one of the resolvers {RESOLVERS}, {OR}", "`oc.select`"],
        ),
    ],
)
def test_a_reference_to_nothing_is_told_with_what_was_meant(
    value: str, fault: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, *meant = fault
    told = [f"  load.prefetch: found {found}", *(f"    -> did you mean {of}?" for of in meant)]
    assert refusal(["plan", f"load.prefetch={value}"], capsys)[1:] == told


def test_words_without_an_equals_sign_are_told_with_the_other_faults(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["epochs", "3", "cache=disc", "dataset=folder", "dataset.dir=my", "own", "photos", "--verbose"]
    assert refusal(words, capsys) == [
        "etlrun: 4 faults",
        "  cache: found the unknown option 'disc'; expected one of disk, memory, none",
        "    -> did you mean cache=disk?",
        f"  epochs 3: {WORD}",
        "    -> write trainer.epochs=3",
        f"  own photos: {WORD}",
        "    -> quote a value with spaces, once for Hydra and once for the shell: 'dataset.dir=\"my own photos\"'",
        f"  --verbose: {OPTION}",
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--info", "defaults", "extract=nope"], "In 'config': Could not find 'extract/nope'"),
        (["--resolve", "cache=none"], "The --resolve flag can only be used in conjunction with --cfg"),
    ],
)
def test_what_hydra_refuses_has_no_traceback(
    words: list[str], found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["etlrun"])
    first, second = refusal(words, capsys)[-2:]  # Hydra warns first
    assert first == "etlrun: 1 fault"
    assert second.startswith(f"  config: found {found}")
