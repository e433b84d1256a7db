"""What an accelerator needs, by the costs of real runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import size
from etlrun.system.errors import WorldError
from tests.runs import emulated, run_here, small


@pytest.fixture(scope="module")
def drained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a model and without a cache, long enough to be measured."""
    folder = tmp_path_factory.mktemp("drained")
    words = small(tiny, "trainer=drain", "cache=none", "trainer.epochs=2")
    words = [word for word in words if not word.startswith("model.")]
    split = f"dataset.split={'+'.join(12 * ['train'])}"
    assert run_here(folder, [*words, "dataset.eval_split=null", split])[0] == 0
    return folder


def sized(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    size.main([*arguments, "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def costs_of(folder: Path) -> list[dict[str, float]]:
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [{row["stage"]: row["cost_ms"] for row in event["stages"]} for event in events if event["event"] == "stages"]


def test_threads_are_the_rate_times_the_costs(drained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sized(capsys, str(drained), "--step-ms", "4", "--au", "0.5")
    assert found["examples_per_s"] == pytest.approx(8 / 0.004 * 0.5)
    (need,) = found["needs"]
    assert need["passes"] == "each pass"
    totals = sorted(sum(costs.values()) for costs in costs_of(drained))
    assert need["busy"]["low"] == pytest.approx(totals[0] * (1 if totals[1:] else 1 / 1.25))
    assert need["busy"]["high"] == pytest.approx(totals[-1] * (1 if totals[1:] else 1.25))
    assert sum(need["threads"].values()) == pytest.approx(need["busy"]["likely"], rel=0.3)
    summary = json.loads((drained / "summary.json").read_text())
    assert need["cores"] == pytest.approx(1000 * summary["resources"]["cpu_s"] / summary["examples"])
    encoded = summary["dataset"]["bytes"] / summary["dataset"]["examples"]["train"]
    assert need["storage_bytes_per_s"] == pytest.approx(1000 * encoded)
    assert need["workers"] == max(1, -(-1000 // int(summary["pipeline_examples_per_s"])))
    assert (found["cache_bytes"], found["cache_at"]) == (None, "")


def test_twice_the_demand_needs_twice_the_threads(drained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (sized(capsys, str(drained), "--step-ms", step)["needs"][0] for step in ("8", "4"))
    assert two["busy"]["likely"] == pytest.approx(2 * one["busy"]["likely"])
    assert two["storage_bytes_per_s"] == pytest.approx(2 * one["storage_bytes_per_s"])


def test_passes_that_read_a_cache_are_sized_apart(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = emulated(tiny, "cache=memory", "trainer.epochs=3", "model.step_ms=12", "dataset.eval_split=null")
    assert run_here(tmp_path, words)[0] == 0
    capsys.readouterr()
    found = sized(capsys, str(tmp_path))
    assert found["step_ms"] >= 12  # that of the run
    assert [need["passes"] for need in found["needs"]] == ["the first pass", "later passes"]
    first, later = found["needs"]
    assert first["storage_bytes_per_s"] > 0
    assert later["storage_bytes_per_s"] == 0
    assert later["busy"]["likely"] < first["busy"]["likely"]
    assert first["cores"] is None
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert found["cache_bytes"] == summary["cache"]["pipelines"]["train"]["held_bytes"]
    assert found["cache_at"] == "memory, transformed"
    size.main([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("demand    ")
    assert [line for line in lines if not line.startswith(" ")][1:3] == ["the first pass", "later passes"]
    assert lines[-1].endswith(" MB: memory, transformed")


def test_a_run_without_a_step_needs_one(drained: Path) -> None:
    with pytest.raises(WorldError) as caught:
        size.main([str(drained)])
    assert str(caught.value.faults[0]) == (
        f"{drained}: found a run without a training step; expected the time of a step\n"
        "    -> pass --step-ms, the milliseconds of a training step of your accelerator"
    )


def changed(drained: Path, folder: Path, name: str, change: Callable[[str], str]) -> Path:
    """A copy of a run with another text in one of its files."""
    shutil.copytree(drained, folder / "run")
    file = folder / "run" / name
    file.write_text(change(file.read_text()))
    return folder / "run"


def test_a_line_that_was_cut_off_is_no_pass(drained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = changed(drained, tmp_path, "events.jsonl", lambda text: text + '{"event": "stages", "pipe')
    assert sized(capsys, str(killed), "--step-ms", "4") == sized(capsys, str(drained), "--step-ms", "4")


def test_without_a_cache_a_pass_whose_reading_was_not_sampled_is_left_out(
    drained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unread = json.dumps(
        {"event": "stages", "pipeline": "train", "stages": [{"stage": "transform.map", "cost_ms": 0.001}]}
    )
    more = changed(drained, tmp_path, "events.jsonl", lambda text: f"{text}{unread}\n")
    assert sized(capsys, str(more), "--step-ms", "4") == sized(capsys, str(drained), "--step-ms", "4")
    (tmp_path / "alone").mkdir()
    alone = changed(drained, tmp_path / "alone", "events.jsonl", lambda _: f"{unread}\n")
    (need,) = sized(capsys, str(alone), "--step-ms", "4")["needs"]
    assert need["passes"] == "each pass"
    assert need["storage_bytes_per_s"] > 0


def test_a_run_with_a_service_has_no_costs_of_stages(drained: Path, tmp_path: Path) -> None:
    served = changed(drained, tmp_path, "config.yaml", lambda text: text.replace("  service: null", "  service: {}"))
    with pytest.raises(WorldError) as caught:
        size.main([str(served), "--step-ms", "4"])
    assert str(caught.value.faults[0]) == (
        f"{served}: found load.service, whose passes are not measured; expected a run without a service\n"
        "    -> size a run of the same config with load=shuffled"
    )


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorldError) as caught:
        size.main([str(tmp_path)])
    assert str(caught.value.faults[0]) == (
        f"{tmp_path}: found no run; expected the folder of a run\n    -> pass the folder that a run prints at its end"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--step-ms", "0"), "--step-ms: found 0; expected a number from 0.001 to 1,000,000"),
        (("--step-ms", "1e-322"), "--step-ms: found 1e-322; expected a number from 0.001 to 1,000,000"),
        (("--step-ms", "inf"), "--step-ms: found inf; expected a number from 0.001 to 1,000,000"),
        (("--step-ms", "nan"), "--step-ms: found nan; expected a number from 0.001 to 1,000,000"),
        (("--au", "0"), "--au: found 0; expected a number from 0.001 to 1"),
        (("--au", "1.5"), "--au: found 1.5; expected a number from 0.001 to 1"),
        (("--au", "much"), "--au: found much; expected a number from 0.001 to 1"),
    ],
)
def test_wrong_values_are_refused(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        size.main([str(tmp_path), *arguments])
    assert told in capsys.readouterr().err
