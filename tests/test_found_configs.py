"""Own configs without `--config-dir`: `./conf`, and the folder that `pyproject.toml` names."""

import json
import re
import shutil
from pathlib import Path

import pytest

import etlrun
from etlrun.cli import main as cli
from etlrun.config.folders import config_dir, found_folder
from tests.forked import forked
from tests.golden import Says
from tests.own_configs import write
from tests.repository import Repository
from tests.runs import emulated, finish_well, summary_of

MINE = "# @package _global_\n# Mine.\ntrainer: {epochs: 7}\n"


def answer(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What a command prints on both streams."""
    try:
        cli.main([*words])
        code: object = 0
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    assert code == status, err
    return f"{out}{err}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an experiment in `conf`, whose root is the current folder."""
    write(tmp_path / "conf/experiment/mine.yaml", MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_each_command_reads_conf_of_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "plan", "experiment=mine").endswith("\nconfigs conf\n")
    assert answer(capsys, "plan", "-m", "experiment=mine", "cache=none,memory").endswith("\nconfigs   conf\n")
    assert answer(capsys, "check").startswith("checked 1 config of 1 experiment and of options in ")
    assert "  trainer.epochs" in answer(capsys, "diff", "", "experiment=mine")
    assert "epochs: 7" in answer(capsys, "--cfg", "job", "experiment=mine")
    assert "\nEPOCHS = 7\n" in answer(capsys, "config", "eject", "experiment=mine")
    assert etlrun.plan("experiment=mine").config["trainer"]["epochs"] == 7
    assert "changes the training" in str(etlrun.diff("", "experiment=mine"))


@pytest.mark.usefixtures("here")
def test_words_of_them_are_completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "etlrun plan experiment=mi")
    assert answer(capsys, "-sc", "query=bash") == "experiment=mine\n"


def test_a_run_keeps_their_folder_so_that_commands_elsewhere_find_them(
    here: Path, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = emulated(tiny, "experiment=mine", "trainer.epochs=1", "cache=none")
    finish_well(forked([*words, "hydra.run.dir=run"], here))
    assert summary_of(here / "run")["config_dir"] == str(here / "conf")
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    resumed = answer(capsys, "plan", f"trainer.resume={here / 'run'}", "trainer.epochs=2")
    assert resumed.endswith(f"\nconfigs {here / 'conf'}\n")


def test_a_revision_is_compared_with_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Repository(here, "conf")
    write(Path("conf/experiment/mine.yaml"), MINE.replace("7", "8"))
    assert answer(capsys, "diff", "HEAD").startswith("mine: changes the training\n  trainer.epochs  7 -> 8  training\n")


def test_the_nearest_pyproject_names_another_folder_and_an_option_wins(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, epochs in (("configs", 8), ("given", 9)):
        write(here / name / "experiment/mine.yaml", MINE.replace("7", str(epochs)))
    write(here / "pyproject.toml", '[project]\nname = "etlrun-project"\n\n[tool.etlrun]\nconfigs = "configs"\n')
    write(here / "sub/pyproject.toml", '[project]\nname = "configs-of-etlrun"\n')
    assert answer(capsys, "plan", "experiment=mine").endswith("\nconfigs configs\n")
    assert etlrun.plan("experiment=mine").config["trainer"]["epochs"] == 8
    monkeypatch.chdir(here / "sub")
    assert found_folder() == str(here / "configs")
    given = answer(capsys, "plan", "experiment=mine", "--config-dir", "../given")
    assert given.endswith("\nconfigs ../given\n")
    assert etlrun.plan("experiment=mine", config_dir="../given").config["trainer"]["epochs"] == 9


@pytest.mark.parametrize(
    "value", ["configs = 3", 'configs = "nowhere"', 'configs = ""', "configs = ", 'config = "conf"']
)
def test_a_wrong_value_is_refused(value: str, here: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    write(here / "pyproject.toml", f"[tool.etlrun]\n{value}\n")
    says(answer(capsys, "plan", status=2))
    assert answer(capsys, "plan", "--config-dir", "conf").endswith("\nconfigs conf\n")


def test_names_of_a_project_that_is_not_installed_are_installed_with_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "pyproject.toml", '[project.entry-points."etlrun.stages"]\nmy_grey = "my:Grey"\n')
    words = ["+transform.my_grey.strength=1", "transform.steps=[decode,resize,my_grey,scale_zero_one]"]
    told = answer(capsys, "plan", *words, "--json", status=2)
    assert [
        (of["where"], of["remedy"], of["overrides"]) for of in json.JSONDecoder().raw_decode(told)[0]["faults"]
    ] == [
        (where, "install the project of this folder, which adds it: pip install -e .", [])
        for where in ("transform.my_grey", "transform.steps[2]")
    ]


def test_etlruns_own_folder_counts_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config_dir().parent)
    assert found_folder() is None
    monkeypatch.chdir(here)
    shutil.rmtree("conf")
    Path("conf").symlink_to(config_dir())
    assert found_folder() is None


FOREIGN = {
    "config.yaml": "defaults: [model: resnet, _self_]\nhydra: {run: {dir: /nowhere}}\n",
    "cache/none.yaml": "name: theirs\n",
    "model/resnet.yaml": "_target_: torchvision.models.resnet50\n",
    "model/broken.yaml": "a: [\n",
    "hydra/default.yaml": "run: {dir: /nowhere}\n",
    "experiment/theirs.yaml": "# @package _global_\ndefaults: [override /model: resnet]\noptimizer: {lr: 1}\n",
}
"""Configs of another program that uses Hydra."""


def test_configs_of_another_program_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ("plan cache=none", "plan -m cache=none,memory", "diff cache=none cache=memory", "--cfg job cache=none")
    before = [answer(capsys, *line.split()) for line in lines]
    for name, text in FOREIGN.items():
        write(tmp_path / "conf" / name, text)
    after = [answer(capsys, *line.split()) for line in lines]
    assert [re.sub("configs +conf\n", "", text) for text in after] == before
    assert [text != of for text, of in zip(after, before, strict=True)] == [True, True, False, False]


@pytest.mark.parametrize("name", ["conf", "conf/model.yaml", "conf/db/model/a.yaml"])
def test_a_folder_without_a_group_is_not_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(name), "a: 1\n")
    assert found_folder() is None
