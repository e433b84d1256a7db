"""Deprecated keys of configs: they are read for one minor version, with a warning for each place, and then refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from etlrun.cli import main
from etlrun.config import grid
from etlrun.config.deprecated import current_composed
from etlrun.config.overlay import overlaid
from etlrun.config.request import Request, merged
from etlrun.planning.schema import schema
from etlrun.record.config import known_config, read_config
from etlrun.review.evidence import MARK, Evidence, evidence_in
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger
from etlrun.system import deprecated
from etlrun.system.deprecated import DEPRECATIONS
from tests.configs import composed, refusal_of_config, refusal_of_request
from tests.own_configs import write
from tests.repository import Repository
from tests.runs import emulated, finish, start
from tests.sweeps import QUICK

OLD = """\
# @package _global_
# Coarse.
transform:
  decode:
    scaled: true
"""
FAST = "transform.decode.fast=true"


def warning(place: str, written: str = "transform.decode.fast", old: str = "transform.decode.scaled") -> str:
    return (
        f"etlrun: {place}: {old} is deprecated since 0.1, and refused from 0.2 on; write {written}, "
        "as `etlrun migrate` does in config files\n"
    )


def fingerprint(*overrides: str, config_dir: str | None = None) -> str:
    return grid.resolve(Request(overrides=[*overrides], config_dir=config_dir), STAGES).plan.fingerprint


@pytest.fixture(autouse=True)
def _anew() -> None:
    deprecated.begin()


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that refuses what is deprecated now."""
    monkeypatch.setattr(deprecated, "__version__", "0.2.0")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of own configs in the current one, with an experiment that has an old key."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine/experiment/coarse.yaml", OLD)
    return tmp_path / "mine"


def test_an_old_key_leads_to_a_new_one_that_there_is() -> None:
    blocks = schema(STAGES)["definitions"]
    for of in DEPRECATIONS:
        block, name = of.new.rpartition(".")[::2]
        assert of.old.rpartition(".")[0] == block, "a key that is elsewhere can't be replaced by itself"
        assert name in blocks[block]["properties"]
        assert of.gone == f"0.{int(of.since.partition('.')[2]) + 1}", "it is read for one minor version"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("transform.decode.scaled=true", FAST),
        ("++transform.decode.scaled=true", f"++{FAST}"),
        ("transform.decode={library: turbo, scaled: true}", "transform.decode={library: turbo, fast: true}"),
        ("transform={decode:{scaled:true}}", "transform={decode:{fast:true}}"),
    ],
)
def test_an_override_is_read_as_its_new_name(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fingerprint(old) == fingerprint(new) == fingerprint(FAST)
    assert capsys.readouterr().err == warning(old, new)


def test_a_reference_is_read_as_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    word = "trainer.early_stopping.min_delta='${transform.decode.scaled}'"
    assert Request(overrides=[word]).overrides == [word.replace("scaled", "fast")]
    assert capsys.readouterr().err == warning(word, word.replace("scaled", "fast"))


@pytest.mark.parametrize(
    "word", ["transform.decode.scaledown=true", "dataset.dir=scaled", "transform={steps: [scaled]}", "scaled", "a='x"]
)
def test_what_only_looks_like_an_old_key_is_left(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Request(overrides=[word]).overrides == [word]
    assert capsys.readouterr().err == ""


def test_a_sweep_has_the_new_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["transform.decode.scaled=true,false", "load.prefetch=1,2"]
    rule = "sweep.exclude=['transform.decode.scaled=True load.prefetch=1']"
    found = grid.of(Request(overrides=[*words, rule], multirun=True), STAGES)
    assert [job.overrides for job in found.jobs] == [
        ["transform.decode.fast=True", "load.prefetch=2"],
        ["transform.decode.fast=False", "load.prefetch=1"],
        ["transform.decode.fast=False", "load.prefetch=2"],
    ]
    assert capsys.readouterr().err == "".join(
        warning(word, word.replace("scaled", "fast")) for word in (words[0], rule)
    )


def test_a_file_is_read_as_if_it_had_the_new_key(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "transform/wide.yaml", "# Wide.\ndefaults: [small_64, _self_]\ndecode: {scaled: true}\n")
    write(mine / "logger/team.yaml", "# Ours.\ndefaults: [mlflow, _self_]\nexperiment: ours\n")
    assert fingerprint("experiment=coarse", config_dir="mine") == fingerprint(FAST)
    assert fingerprint("transform=wide", config_dir="mine") == fingerprint(FAST)
    planned = grid.resolve(Request(overrides=["logger=team"], config_dir="mine"), STAGES)
    assert planned.config["logger"] == {"name": "mlflow", "tracking_uri": None, "experiment_name": "ours"}
    assert capsys.readouterr().err == (
        warning("mine/experiment/coarse.yaml:5")
        + warning("mine/transform/wide.yaml:3")
        + warning("mine/logger/team.yaml:3", "logger.experiment_name", "logger.experiment")
    )


def test_an_override_takes_precedence_over_an_old_key_of_a_file(mine: Path) -> None:
    assert fingerprint("experiment=coarse", "transform.decode.fast=false", config_dir=str(mine)) == fingerprint()


def test_both_names_on_a_command_line_are_refused() -> None:
    assert refusal_of_request("transform.decode.scaled=true", "transform.decode.fast=false") == (
        "transform.decode.scaled=true: found transform.decode.scaled, and transform.decode.fast in "
        "transform.decode.fast=false; expected transform.decode.fast alone\n"
        "    -> leave transform.decode.scaled=true out, the deprecated name"
    )


def test_both_names_in_a_file_are_refused_with_both_lines(mine: Path) -> None:
    write(mine / "experiment/coarse.yaml", f"{OLD}    fast: false\n")
    assert refusal_of_request("experiment=coarse", config_dir=mine) == (
        "mine/experiment/coarse.yaml:5: found transform.decode.scaled, and transform.decode.fast in line 6; expected "
        "transform.decode.fast alone\n    -> remove `scaled`, the deprecated name"
    )


@pytest.mark.usefixtures("_later")
def test_the_next_version_refuses_an_override_with_what_to_write() -> None:
    assert refusal_of_request("+transform.decode.scaled=true") == (
        "+transform.decode.scaled=true: found a key that is gone; expected transform.decode.fast, its name since 0.1\n"
        "    -> write +transform.decode.fast=true"
    )


@pytest.mark.usefixtures("_later")
def test_the_next_version_refuses_a_file_with_the_command_that_rewrites_it(mine: Path) -> None:
    assert refusal_of_request("experiment=coarse", config_dir=mine) == (
        "mine/experiment/coarse.yaml:5: found a key that is gone; expected transform.decode.fast, its name since 0.1\n"
        "    -> etlrun migrate mine/experiment/coarse.yaml"
    )


@pytest.mark.usefixtures("_later")
def test_the_next_version_has_no_old_key_in_the_schema() -> None:
    assert '"deprecated"' not in json.dumps(schema(STAGES))


def test_the_schema_marks_old_keys() -> None:
    blocks = schema(STAGES)["definitions"]
    old = blocks["transform.decode"]["properties"]["scaled"]
    assert old.items() >= {"deprecated": True, "description": "Deprecated since 0.1: write `fast`."}.items()
    (mlflow,) = (rule for rule in blocks["logger"]["allOf"] if "experiment" not in rule["then"]["properties"])
    assert mlflow["if"]["properties"]["name"] == {"enum": ["mlflow"]}


@pytest.mark.usefixtures("mine")
def test_check_warns_of_an_old_key_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["check", "--config-dir", "mine"])
    out, err = capsys.readouterr()
    assert re.fullmatch(r"checked 1 config of 1 experiment and of options in \d+\.\d s: no fault\n", out)
    assert err == warning("mine/experiment/coarse.yaml:5")


def test_a_fault_of_an_old_key_has_its_line(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "experiment/coarse.yaml", OLD.replace("true", "perhaps"))
    with pytest.raises(SystemExit):
        main.main(["check", "--config-dir", "mine"])
    assert capsys.readouterr().err == (
        warning("mine/experiment/coarse.yaml:5")
        + "etlrun: 1 fault\n  mine/experiment/coarse.yaml:5: transform.decode.fast, in experiment=coarse: "
        "found 'perhaps'; expected true or false\n"
    )


def test_revisions_are_compared_by_the_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(repository.folder)
    repository.write("experiment/other.yaml", OLD)
    repository.commit("Coarse")
    repository.write("experiment/other.yaml", OLD.replace("scaled", "fast"))
    repository.commit("Renamed")
    main.main(["diff", "HEAD~1", "HEAD", "--experiment", "other", "--config-dir", "mine"])
    out, err = capsys.readouterr()
    assert out.startswith("other: no difference\n")
    assert err == warning("HEAD~1:mine/experiment/other.yaml:5")


def test_a_file_beside_the_configs_is_named_as_it_was_given(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine.parent / "overlay.yaml", OLD)
    main.main(["diff", FAST, "overlay.yaml"])
    out, err = capsys.readouterr()
    assert (out, err) == ("no difference\n", warning("overlay.yaml:5"))


def test_the_frozen_config_of_a_run_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = grid.resolve(Request(overrides=[FAST]), STAGES).config
    text = yaml.safe_dump(config, sort_keys=False).replace("fast:", "scaled:")
    write(tmp_path / "config.yaml", text)
    assert read_config(tmp_path) == config
    assert capsys.readouterr().err == "", "of many runs, as beside a comparison, nothing is told"
    assert known_config(tmp_path, "") == config
    line = text.splitlines().index("    scaled: true") + 1
    assert capsys.readouterr().err == warning(f"{tmp_path / 'config.yaml'}:{line}")


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_the_configs_of_a_sweep_are_read_in_any_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    found = grid.of(Request(overrides=["transform.decode.fast=true,false"], multirun=True), STAGES)
    request: dict[str, Any] = {"overrides": [], "config_dir": None, "config_name": None, "files": "", "multirun": {}}
    ledger = Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, request)
    path = ledger.folder / "configs.jsonl"
    path.write_text(path.read_text().replace('"fast"', '"scaled"').replace("decode.fast", "decode.scaled"))
    monkeypatch.setattr(deprecated, "__version__", version)
    again = Ledger.open(ledger.folder)
    assert [(of.values, of.overrides, of.identity) for of in again.configs] == [
        (of.values, of.overrides, of.identity) for of in ledger.configs
    ]
    assert capsys.readouterr().err == (warning(str(path)) if version == "0.1.0" else "")


def test_evidence_of_a_search_is_read_in_any_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = Evidence.here("0123456789abcdef", ["transform.decode.scaled=true"], {"transform.decode.scaled": True})
    found = evidence_in(f"# Mine.\n{MARK}{json.dumps(vars(evidence))}\n", "mine.yaml")
    assert found == (2, replace(evidence, overrides=[FAST], changes={"transform.decode.fast": True}))
    assert capsys.readouterr().err == ""


def test_an_old_key_in_a_config_that_nothing_has_read_is_told_with_its_name() -> None:
    config = composed(FAST)
    config["transform"]["decode"]["scaled"] = config["transform"]["decode"].pop("fast")
    (told, remedy) = refusal_of_config(config).splitlines()
    assert told == "transform.decode.scaled: found an unknown key; expected one of the keys library, fast"
    assert remedy == "    -> write `transform.decode.fast`, its name now"


def test_overrides_of_a_frozen_config_are_read() -> None:
    assert overlaid(composed(), ["transform.decode.scaled=true"], None) == (composed(FAST), {"transform.decode.fast"})


def test_a_resumed_run_takes_over_an_old_override() -> None:
    assert merged(["transform.decode.scaled=true", "load.prefetch=1"], ["transform.decode.fast=false"]) == [
        "load.prefetch=1",
        "transform.decode.fast=false",
    ]


@pytest.mark.needs("hydra-optuna-sweeper")
@pytest.mark.slow
def test_a_search_whose_configs_hydra_composes_reads_an_old_key(tiny: Path, mine: Path) -> None:
    search = (
        "hydra/sweeper=optuna",
        "hydra.sweeper.n_trials=1",
        "hydra.sweep.dir=sweep",
        "sweep.objectives=[throughput]",
    )
    words = [*emulated(tiny, "load.prefetch=choice(0,1)", *QUICK), *search, "--config-dir", "mine", "experiment=coarse"]
    status, _, err = finish(start(["-m", *words], mine.parent))
    assert status == 0, err
    assert warning("mine/experiment/coarse.yaml:5") in err
    assert read_config(mine.parent / "sweep/0")["transform"]["decode"] == {"library": "turbo", "fast": True}


def test_of_a_config_that_hydra_composed_an_override_takes_precedence() -> None:
    config = {"transform": {"decode": {"fast": False, "scaled": True}}}
    assert current_composed(config, []) == {"transform": {"decode": {"fast": True}}}
    assert current_composed(config, ["transform.decode.fast=false"]) == {"transform": {"decode": {"fast": False}}}
    assert current_composed({"transform": None}, []) == {"transform": None}
