"""The lines that a run ends in: one screen, whose tables are those of `etlrun report`."""

from pathlib import Path
from typing import Any

import pytest

from etlrun.record import page, report
from etlrun.record.record import Record
from tests.runs import emulated, run_here

EPOCHS = [
    {"epoch": 1, "loss": 1.0, "accuracy": 0.5, "val_loss": 1.5, "val_accuracy": 0.25},
    {"epoch": 2, "loss": 0.5, "accuracy": 0.75, "val_loss": 0.5, "val_accuracy": 0.875},
    {"epoch": 3, "loss": 0.25, "accuracy": 1.0, "val_loss": 0.75, "val_accuracy": 0.75},
]
LONG = [{"wall_s": 2.0, **epoch} for epoch in EPOCHS]
VERDICT = {
    "kind": "input",
    "stage": "transform.map",
    "max_gain": 1.5,
    "because": "it waits",
    "advice": "Try transform.num_parallel_calls=2: it uses one core.",
}
CACHE = {"target": "cache.memory", "at": "decoded", "pipelines": {"train": {"held_bytes": 1_000_000}}}


def ended(folder: Path, **summary: Any) -> list[str]:
    """The lines at the end of a run with this summary."""
    record = Record.create(folder, {}, [])
    record.update(**{"status": "completed", "wall_s": 12.34, "examples_per_s": 2345.678, **summary})
    lines = report.end(record.summary, folder)
    return [f"{label:<9} {text}" for label, text in lines]


def places(name: str) -> list[str]:
    return [f"folder    {name}", f"tables    etlrun report {name}"]


def test_a_run_ends_with_its_result_its_verdict_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits = {"input_wait_ms_median": 1.0, "input_wait_ms_p95": 2.0, "fill_wait_s": 0.1}
    told: dict[str, Any] = {"verdict": VERDICT, "cache": CACHE, "remarks": ["One.", "Two."], "epochs": LONG, **waits}
    told["kept"] = {"epoch": 2, "monitor": "val_loss", "value": 0.5}
    assert ended(tmp_path / "a run", **told) == [
        "result    val accuracy 0.875, val loss 0.5 in epoch 2",
        "kept      epoch 2 (val loss 0.5); epoch 3 has 0.75",
        "status    completed in 12.3 s, 2,345.7 examples/s",
        "verdict   input-bound at transform.map: training at most 1.50x faster with an ideal input pipeline",
        "because   it waits",
        "advice    Try transform.num_parallel_calls=2: it uses one core.",
        "cache     memory, decoded: train 1.0 MB",
        "note      One.",
        "note      Two.",
        "folder    a run",
        "tables    etlrun report 'a run'",
    ]


@pytest.mark.parametrize(
    ("summary", "told"),
    [
        ({"epochs": EPOCHS}, ["result    val accuracy 0.75, val loss 0.75 in epoch 3"]),
        (
            {"epochs": EPOCHS, "kept": {"epoch": 3}},
            ["result    val accuracy 0.75, val loss 0.75 in epoch 3", "kept      epoch 3, the last"],
        ),
        ({"epochs": [{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]}, ["result    accuracy 0.5, loss 1 in epoch 1"]),
        ({"epochs": [{"epoch": 4, "metrics": {"mae": 3.0, "val_mae": 1.5}}]}, ["result    val mae 1.5 in epoch 4"]),
    ],
)
def test_the_result_is_that_of_the_epoch_that_is_kept(summary: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    lines = ended(tmp_path / "run", **summary)
    assert lines[: len(told) + 1] == [*told, "status    completed in 12.3 s, 2,345.7 examples/s"]


@pytest.mark.parametrize(
    ("epochs", "verdict", "au_min", "aside"),
    [
        (LONG, VERDICT | {"max_gain": 1.014}, None, "6.0"),
        (LONG, VERDICT | {"max_gain": 1.02}, None, ""),
        (LONG, {"kind": "unknown", "because": "inconclusive", "max_gain": None}, None, ""),
        (EPOCHS, VERDICT, None, "0.0"),
        (EPOCHS, VERDICT, 0.9, ""),
        ([{"epoch": 1}], VERDICT, None, ""),
    ],
)
def test_the_speed_is_one_line_where_nothing_is_to_be_had_from_it(
    epochs: list[dict[str, Any]], verdict: dict[str, Any], au_min: float | None, aside: str, tmp_path: Path
) -> None:
    waits = {"input_wait_ms_median": 1.0, "input_wait_ms_p95": 2.0, "fill_wait_s": 0.1}
    lines = ended(tmp_path / "run", epochs=epochs, verdict=verdict, au_min=au_min, **waits)
    told = [line for line in lines if line.split()[0] in ("verdict", "because", "advice")]
    assert (told == [f"verdict   the input is not the bottleneck of {aside} s of training"]) == bool(aside)
    assert not aside or len(told) == 1


def test_the_report_begins_with_the_result_and_says_nothing_of_it_for_a_run_without_any(tmp_path: Path) -> None:
    ended(tmp_path / "run", epochs=LONG)
    first = "result    val accuracy 0.75, val loss 0.75 in epoch 3"
    assert report.text(tmp_path / "run", Record(tmp_path / "run").summary).splitlines()[0] == first
    report.write(tmp_path / "run")
    assert (tmp_path / "run" / "report.md").read_text().startswith(f"# Run\n\n- {first}\n\n| epoch")
    ended(tmp_path / "other", epochs=[{"epoch": 1}])
    assert "result" not in report.text(tmp_path / "other", Record(tmp_path / "other").summary)


def test_a_run_without_metrics_ends_with_its_rate_and_one_that_failed_with_how_far_it_came(tmp_path: Path) -> None:
    assert ended(tmp_path / "0", epochs=[{"epoch": 1}])[0] == "status    completed in 12.3 s, 2,345.7 examples/s"
    nothing: dict[str, Any] = {"examples_per_s": None, "epochs": []}
    assert ended(tmp_path / "1", status="failed", **nothing) == [
        "status    failed after 12.3 s, 0 epochs done",
        *places(str(tmp_path / "1")),
    ]
    one: dict[str, Any] = {"examples_per_s": None, "epochs": [{"epoch": 1}]}
    assert ended(tmp_path / "2", status="interrupted", **one)[0] == "status    interrupted after 12.3 s, 1 epoch done"


def test_many_notes_leave_the_end_on_a_screen(tmp_path: Path) -> None:
    notes = [f"Note {number}." for number in range(7)]
    lines = ended(tmp_path / "run", remarks=notes)
    assert lines[1:-2] == [*(f"note      {note}" for note in notes[:5]), "note      2 more notes are in the report."]
    assert ended(tmp_path / "other", remarks=notes[:6])[1:-2] == [f"note      {note}" for note in notes[:6]]


def test_the_required_utilization_is_told_where_it_decides_on_the_exit_status(tmp_path: Path) -> None:
    waits = {"input_wait_ms_median": 1.0, "input_wait_ms_p95": 2.0, "fill_wait_s": 0.1}
    told: dict[str, Any] = {**waits, "verdict": VERDICT, "au": 0.5}
    assert not [line for line in ended(tmp_path / "0", **told) if line.startswith("au ")]
    assert "au        time in model steps: 50.0%, below the required 0.9" in ended(tmp_path / "1", **told, au_min=0.9)


def test_the_page_is_named_where_it_exists(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert ended(folder)[1:] == places(str(folder))
    page.write(folder)
    told = [f"{label:<9} {text}" for label, text in report.end(Record(folder).summary, folder)]
    assert told[1:] == [f"page      {folder}/report.html", *places(str(folder))]


def test_a_run_prints_its_end_and_no_table(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    status, summary = run_here(folder, emulated(tiny, "trainer.epochs=2"))
    lines = capsys.readouterr().out.splitlines()
    assert (status, lines[0]) == (
        0,
        f"status    completed in {summary['wall_s']:.1f} s, {summary['examples_per_s']:,.1f} examples/s",
    )
    assert lines[2] == f"because   {summary['verdict']['because']}"
    assert lines[-3:] == [f"page      {folder}/report.html", *places(str(folder))]
    assert {line.split()[0] for line in lines} <= {
        "status", "verdict", "because", "advice", "cache", "note", "page", "folder", "tables",
    }  # fmt: skip


def test_a_run_that_fails_after_an_epoch_names_the_command_that_resumes_it(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etlrun.run import callbacks

    def refused(*_: Any) -> None:
        raise RuntimeError("no second line")

    folder = tmp_path / "run"
    monkeypatch.setattr(callbacks.EpochRecorder, "say", refused)
    status, _ = run_here(folder, emulated(tiny, "trainer.epochs=2"))
    printed = capsys.readouterr()
    assert status == 1
    assert printed.err.splitlines()[-4:] == [
        "etlrun: failed",
        "  The run failed: RuntimeError: no second line",
        f"    -> the traceback is in {folder}/traceback.txt; etlrun doctor --report prints what an issue needs",
        f"etlrun: resume with: etlrun trainer.resume={folder}",
    ]
    assert printed.out.splitlines()[-3:] == [f"page      {folder}/report.html", *places(str(folder))]
