"""Lines that no command can read: what is said of each, and that nothing is left of them."""

import shlex
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from tests.golden import Case, Golden, cases
from tests.readers import logging_as_it_was


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message with which a line is refused."""
    with pytest.raises(SystemExit) as ended, logging_as_it_was():
        cli.main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    return err


@pytest.mark.parametrize("case", cases("commands"))
def test_a_wrong_line_is_refused_with_its_whole_message(
    case: Case, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    golden(case, refusal(shlex.split(case["line"]), capsys))
    assert list(tmp_path.iterdir()) == []


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
        assert refusal([word], capsys).splitlines()[1:] == [
            f"  {word}: found an unknown command; expected a command, or overrides KEY=VALUE",
            f"    -> {remedy}",
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
    first, second = refusal(words, capsys).splitlines()[-2:]  # Hydra warns first
    assert first == "etlrun: 1 fault"
    assert second.startswith(f"  config: found {found}")
