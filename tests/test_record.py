"""The typed summary of a run, which later versions read, and the config of what AUTOTUNE settled on."""

import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import etlrun
from etlrun.cli.main import main
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.record import record as freeze
from etlrun.record import report
from etlrun.record.record import PAGE, Record
from etlrun.record.summary import Epoch, Summary, read_summary
from etlrun.run.epochs import record_epoch
from etlrun.stages import STAGES
from etlrun.system.errors import WorldError
from tests.configs import CONF, raised
from tests.golden import Says
from tests.present import present
from tests.runs import summary_of
from tests.trained import refused


def test_freeze_prints_what_autotune_settled_on(measured: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = measured
    text = freeze.overlay(folder)
    assert text.startswith("# @package _global_\n# Values chosen by AUTOTUNE in ")
    values = {f"{group}.{key}": value for group, block in yaml.safe_load(text).items() for key, value in block.items()}
    assert values == summary["autotune"]
    parallel = {f"{group}.num_parallel_calls" for group in ("extract", "transform", "load")}
    assert values.keys() == {*parallel, "load.prefetch"}


def test_a_frozen_overlay_is_a_config(measured: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "frozen.yaml").write_text(freeze.overlay(measured[0]))
    frozen = resolve(Request(overrides=["experiment=frozen"], config_dir=str(tmp_path)), STAGES).plan
    settled = resolve(
        Request(overrides=[f"{key}={value}" for key, value in measured[1]["autotune"].items()]), STAGES
    ).plan
    assert frozen.train == settled.train


def test_a_frozen_overlay_of_an_experiment_begins_with_it(
    measured: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    words = ["experiment=naive", "load.batch_size=8", "load.prefetch=autotune"]
    (tmp_path / "summary.json").write_text(json.dumps({**summary_of(measured[0]), "overrides": words}))
    text = freeze.overlay(tmp_path)
    assert yaml.safe_load(text)["defaults"] == ["naive", "_self_"]
    assert "\n# As conf/experiment/frozen.yaml: etlrun load.batch_size=8 experiment=frozen\n" in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], []),
        (["experiment=one", "load.batch_size=8"], ["one"]),
        (["experiment=one", "experiment=two"], ["two"]),
        (["experiment=[one, two]"], ["one", "two"]),
    ],
)
def test_the_experiments_of_overrides_are_those_of_the_last_choice(words: list[str], found: list[str]) -> None:
    assert freeze.experiments_of(words) == found


def message_of_freeze(folder: Path) -> str:
    return raised(WorldError, freeze.overlay, folder)


def test_there_must_be_something_to_freeze(measured: tuple[Path, dict[str, Any]], tmp_path: Path, says: Says) -> None:
    says(message_of_freeze(tmp_path))
    (tmp_path / "summary.json").write_text(json.dumps({**summary_of(measured[0]), "autotune": {}}))
    says(message_of_freeze(tmp_path))


GOLDEN = CONF.parent / "tests" / "golden" / "run"
SCHEMA = CONF.parent / "docs" / "summary.schema.json"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, in the current one."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that has no fault and nothing to warn of."""
    main(words)
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_summary_has_what_it_had(old: Path, says: Says) -> None:
    summary = present(read_summary(old))
    says((summary.status, summary.overrides, summary.versions["etlrun"]))
    assert [epoch.val_accuracy for epoch in summary.epochs] == [0.5208333134651184]
    assert summary.verdict is not None
    assert summary.verdict.kind == "model"


@pytest.mark.smoke
def test_it_is_reported(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(maxsplit=1) for line in printed(capsys, "report", "old").splitlines() if line]
    told = dict(line for line in lines if len(line) == 2)
    assert told["status"].startswith("completed")
    assert told["result"].startswith("val accuracy 0.52083, ")
    assert told["verdict"].startswith("the input pipeline is not the bottleneck (")
    assert told["report"] == "old/report.html"
    assert (old / "report.html").is_file()


@pytest.mark.usefixtures("old")
def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = json.loads(printed(capsys, "runs", "ls", "--format", "json", "."))
    assert (run["folder"], run["status"], run["overrides"]) == ("old", "completed", ["trainer.epochs=1"])


@pytest.mark.usefixtures("old")
def test_it_is_compared_with_what_its_overrides_compose_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "diff", "old").startswith("old -> the config of its overrides now\n")
    assert printed(capsys, "diff", "old", "old").startswith("old -> old\nchanges nothing\n")


@pytest.mark.usefixtures("old")
def test_it_is_resumed_by_a_plan_of_its_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    fingerprint = printed(capsys, "plan", "trainer.resume=old").split("\nfingerprint ")[1]
    assert fingerprint == printed(capsys, "plan", "trainer.epochs=1").split("\nfingerprint ")[1]


def test_python_loads_it(old: Path) -> None:
    run = etlrun.load(old)
    assert isinstance(run, etlrun.Run)
    assert run.summary.status == "completed"


def test_an_old_key_of_its_config_is_refused_with_what_to_do(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("fast:", "scaled:"))
    lines = refused(capsys, "diff", "old", status=2)
    found = "transform.decode.scaled: found an unknown key; expected one of the keys library, fast, processes"
    assert lines == [f"  old: {found}", "    -> write `transform.decode.fast`, its name now"]


@pytest.mark.usefixtures("old")
def test_what_needs_its_model_says_that_it_is_missing(capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(refused(capsys, "evaluate", "old"))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.create(tmp_path / "run", {"load": {}}, ["load.prefetch=1"])


def test_what_is_not_known_yet_is_not_written(record: Record) -> None:
    assert list(json.loads((record.folder / "summary.json").read_text())) == ["status", "overrides", "created_s"]
    record.update(au=None, examples_per_s=math.nan)
    assert {key: summary_of(record.folder)[key] for key in ("au", "examples_per_s")} == {
        "au": None,
        "examples_per_s": None,
    }


@pytest.mark.smoke
def test_a_summary_is_read_as_it_was_written(record: Record) -> None:
    record.epoch(Epoch(epoch=1, wall_s=2.0, examples=8, startup_s=1.0, startup_examples=2, loss="NaN", accuracy=0.5))
    record.update(cache={"target": "cache.disk", "at": "source", "pipelines": {"train": {"held_bytes": 3}}})
    again = present(read_summary(record.folder))
    assert again.written == record.summary.written
    assert math.isnan(again.epochs[0].loss or 0.0)
    record.update(status="completed")
    assert record.summary.written == summary_of(record.folder)
    assert summary_of(record.folder)["epochs"][0]["loss"] == "NaN"
    assert summary_of(record.folder)["cache"]["pipelines"] == {"train": {"held_bytes": 3}}
    assert (again.examples, again.examples_per_s) == (8, 6.0)


def test_the_summary_of_a_run_that_goes_on_does_not_grow_with_its_epochs(record: Record) -> None:
    sizes = []
    for number in range(1, 31):
        record.epoch(Epoch(epoch=number, wall_s=1.0, examples=8))
        sizes.append((record.folder / "summary.json").stat().st_size)
    assert max(sizes) - min(sizes) < 40  # digits
    killed = read_summary(record.folder)
    assert killed is not None
    assert [epoch.epoch for epoch in killed.epochs] == [*range(1, 31)]
    assert (killed, killed.examples) == (record.summary, 240)


def test_each_epoch_is_added_up_once(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    added = list[int]()

    def steady(epoch: Epoch) -> tuple[int, float]:
        added.append(epoch.epoch)
        return epoch.examples - epoch.startup_examples, epoch.wall_s - epoch.startup_s

    monkeypatch.setattr(Epoch, "steady", property(steady))
    for number in range(1, 31):
        record.epoch(Epoch(epoch=number, wall_s=2.0, startup_s=1.0, examples=8 * number, startup_examples=8))
    assert added == [*range(1, 31)]
    assert record.summary.examples_per_s == 8 * sum(range(30)) / 30
    assert Record(record.folder)._steady == record._steady == (8 * sum(range(30)), 30.0)


@pytest.mark.parametrize(("epochs", "ages_s", "drawn"), [(9, [0, 4], 1), (2_999, [0, 4, 60], 1), (29_999, [30, 50], 0)])
def test_a_page_of_many_epochs_is_drawn_less_often(
    record: Record, monkeypatch: pytest.MonkeyPatch, epochs: int, ages_s: list[int], drawn: int
) -> None:
    pages, page = list[Path](), record.folder / PAGE
    monkeypatch.setattr(report, "write", pages.append)
    record.update(epochs=[Epoch(epoch=number) for number in range(1, epochs + 1)])
    page.touch()
    for age_s in ages_s:
        assert not pages
        os.utime(page, (0, time.time() - age_s))
        record_epoch(record, Epoch(epoch=len(record.summary.epochs) + 1, wall_s=1.0, examples=8))
    assert len(pages) == drawn


def test_the_epochs_of_a_run_that_ends_on_a_full_disk_are_those_of_its_events(record: Record) -> None:
    for number in (1, 2):
        record.epoch(Epoch(epoch=number, wall_s=1.0, examples=8))
    record.update_in_place(status="failed", error="no space")
    again = read_summary(record.folder)
    assert again is not None
    assert (again.status, again.error, again.epochs) == ("failed", "no space", record.summary.epochs)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"stauts": "completed"}, TypeError, "Summary has no field stauts"),
        ({"status": "done"}, ValidationError, "Input should be 'running', 'completed', 'failed'"),
        ({"au": "high"}, ValidationError, "Input should be a valid number"),
    ],
)
def test_what_is_no_field_is_not_written(
    record: Record, values: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = summary_of(record.folder)
    with pytest.raises(error, match=message):
        record.update(**values)
    assert summary_of(record.folder) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"status": "completed"}', '{"status": 1, "overrides": []}'])
def test_what_is_no_summary_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) is None


def test_keys_of_other_versions_are_left_out() -> None:
    summary = Summary.model_validate({"status": "completed", "overrides": [], "speed": 1, "epochs": [{"mood": "good"}]})
    assert summary.written == {"status": "completed", "overrides": [], "epochs": [{}]}


def test_the_schema_in_the_docs_is_that_of_the_summary() -> None:
    assert SCHEMA.read_text() == json.dumps(Summary.model_json_schema(), indent=2) + "\n"


def test_every_key_of_the_schema_has_a_meaning() -> None:
    schema = Summary.model_json_schema()
    parts = {"Summary": schema, **schema["$defs"]}
    keys = {
        f"{name}.{key}": of
        for name, part in parts.items()
        for key, of in part["properties"].items()
        if name not in {"Apart", "Verdict", "StageRow", "CodeSource"}  # whose docstrings are their descriptions
    }
    assert [key for key, of in keys.items() if "description" not in of] == []
