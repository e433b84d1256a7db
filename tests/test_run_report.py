"""The report of a run: the lines that it ends in, all of them, and its page, of files that are odd, hostile or old."""

import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.main import main
from etlrun.record import report
from etlrun.record.record import Record, nobodys
from etlrun.record.summary import Summary, read_summary
from etlrun.report.render import RENDER
from tests.golden import Golden, Says
from tests.present import present
from tests.run_pages import PLAN, STAGES, course, epoch, whole
from tests.runs import emulated, run_here

REPORTS = Path(__file__).parent / "golden" / "reports"
EVIL = "</pre></style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
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
WAITS = {"input_wait_s": 1.0, "fill_wait_s": 0.1}
CACHE = {"target": "cache.memory", "at": "decoded", "pipelines": {"train": {"held_bytes": 1_000_000}}}


def ended(folder: Path, **summary: Any) -> list[str]:
    """The lines at the end of a run with this summary."""
    record = Record.create(folder, {}, [])
    record.update(**{"status": "completed", "wall_s": 12.34, "examples_per_s": 2345.678, **summary})
    return RENDER["text"](report.of_end(record.summary, folder)).splitlines()


def drawn(folder: Path, name: str = "html") -> str:
    """The report of the run in a format."""
    return RENDER[name](report.of_run(folder, summary_of(folder)))


def summary_of(folder: Path) -> Summary:
    return present(read_summary(folder))


def places(name: str) -> list[str]:
    return [f"folder    {name}", f"tables    etlrun report {name}"]


@pytest.mark.smoke
def test_a_run_ends_with_its_result_its_verdict_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    told: dict[str, Any] = {"verdict": VERDICT, "cache": CACHE, "remarks": ["One.", "Two."], "epochs": LONG, **WAITS}
    told["kept"] = {"epoch": 2, "monitor": "val_loss", "value": 0.5}
    says(ended(tmp_path / "a run", **told))


def test_the_end_says_where_the_time_went_without_the_epochs_of_the_run_that_it_resumes(tmp_path: Path) -> None:
    resumed = {"epoch": 1, "wall_s": 99.0, "startup_s": 9.0, "ended_s": 1.0}
    own = {
        "epoch": 2,
        "wall_s": 6.0,
        "startup_s": 2.5,
        "validation_s": 1.5,
        "validation_startup_s": 0.5,
        "ended_s": 1e12,
    }
    lines = ended(tmp_path / "run", imports_s=2.25, epochs=[resumed, own])
    assert "time      imports 2.2 s, start-up 3.0 s, epochs 4.5 s, all else 2.6 s" in lines
    assert not any(line.startswith("time") for line in ended(tmp_path / "older", epochs=[own]))


def test_the_end_of_a_run_says_what_the_network_is_to_its_baseline(tmp_path: Path) -> None:
    epochs = [{"epoch": 1, "val_loss": 1.176, "val_accuracy": 0.737}]
    own: dict[str, Any] = {
        "examples": 100,
        "linear": {"val_accuracy": 0.786, "val_loss": 0.451},
        "constant": {"val_accuracy": 0.5, "val_loss": 0.69},
        "results": {"val_accuracy": "worse"},
        "fit_s": 1.25,
    }
    dataset = {"examples": {"train": 400, "validation": 100}}
    lines = ended(tmp_path / "run", epochs=epochs, baseline=own, dataset=dataset, imports_s=1.0)
    text = "baseline  val accuracy 0.786 of a linear model, 0.5 of a constant prediction: the network is worse"
    assert {text, "baseline  fitted on 100 of 400 examples"} <= {*lines}
    assert any(line.startswith("time") and "baseline 1.2 s" in line for line in lines)
    others = {"linear": {}, "constant": {"val_a_mae": 3.0, "val_b_accuracy": 0.5}, "note": "Something is missing."}
    results = {"val_a_mae": None, "val_b_accuracy": "tied"}
    lines = ended(tmp_path / "other", epochs=epochs, baseline={"examples": 400, **others, "results": results})
    assert [line for line in lines if line.startswith("baseline")] == [
        "baseline  val a mae 3 of a constant prediction",
        "baseline  val b accuracy 0.5 of a constant prediction: the network is not better by more than noise",
        "baseline  Something is missing.",
    ]
    assert not any(line.startswith("baseline") for line in ended(tmp_path / "older", epochs=epochs))


SUMMARIES: tuple[dict[str, Any], ...] = (
    {"epochs": EPOCHS},
    {"epochs": EPOCHS, "kept": {"epoch": 3}},
    {"epochs": [{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]},
    {"epochs": [{"epoch": 4, "metrics": {"mae": 3.0, "val_mae": 1.5}}]},
    {"epochs": [{"epoch": 1}]},
    {"epochs": [], "examples_per_s": None, "status": "failed"},
    {"epochs": [{"epoch": 1}], "examples_per_s": None, "status": "interrupted"},
)


def test_the_result_is_that_of_the_epoch_that_is_kept_or_the_rate_or_how_far_a_run_came(
    tmp_path: Path, says: Says
) -> None:
    for number, summary in enumerate(SUMMARIES):
        says(ended(tmp_path / str(number), **summary))


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
    lines = ended(tmp_path / "run", epochs=epochs, verdict=verdict, au_min=au_min, **WAITS)
    told = [line for line in lines if line.split()[0] in ("verdict", "because", "advice")]
    assert (told == [f"verdict   the input pipeline is not the bottleneck ({aside} s of training)"]) == bool(aside)
    assert not aside or len(told) == 1


def test_the_report_begins_with_the_result_and_says_nothing_of_it_for_a_run_without_any(tmp_path: Path) -> None:
    ended(tmp_path / "run", epochs=LONG)
    first = "result    val accuracy 0.75, val loss 0.75 in epoch 3"
    assert drawn(tmp_path / "run", "text").splitlines()[0] == first
    told = first.removeprefix("result    ")
    assert drawn(tmp_path / "run", "md").startswith(f"# Run {tmp_path}/run\n\n{told}\n\n| epoch")
    ended(tmp_path / "other", epochs=[{"epoch": 1}])
    assert "result" not in drawn(tmp_path / "other", "text")


def test_many_notes_leave_the_end_on_a_screen(tmp_path: Path, says: Says) -> None:
    notes = [f"Note {number}." for number in range(7)]
    ended(tmp_path / "run", remarks=notes)
    report.write(tmp_path / "run")
    says(RENDER["text"](report.of_end(summary_of(tmp_path / "run"), tmp_path / "run")))
    says(ended(tmp_path / "other", remarks=notes[:6]))


def test_the_required_utilization_is_told_where_it_decides_on_the_exit_status(tmp_path: Path) -> None:
    told: dict[str, Any] = {**WAITS, "verdict": VERDICT, "au": 0.5}
    assert not [line for line in ended(tmp_path / "0", **told) if line.startswith("au ")]
    assert "au        time in model steps: 50.0%, below the required 0.9" in ended(tmp_path / "1", **told, au_min=0.9)


def test_a_run_prints_its_end_and_no_table(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    status, summary = run_here(folder, emulated(tiny, "trainer.epochs=2"))
    lines = capsys.readouterr().out.splitlines()
    place = lines.index(
        f"status    completed in {summary['wall_s']:.1f} s, {summary['examples_per_s']:,.1f} examples/s"
    )
    assert (status, lines[place + 1].startswith("time      imports ")) == (0, True)
    assert lines[1] == f"because   {summary['verdict']['because']}"
    assert lines[-3:] == [f"page      {folder}/report.html", *places(str(folder))]
    assert {line.split()[0] for line in lines} <= {
        "status", "time", "verdict", "because", "advice", "cache", "note", "page", "folder", "tables",
    }  # fmt: skip


def test_a_run_that_fails_after_an_epoch_names_the_command_that_resumes_it(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    from etlrun.run import callbacks

    def begin(recorder: Any, epoch: int, logs: Any = None) -> None:
        if epoch:
            raise RuntimeError("no second line")
        begun(recorder, epoch, logs)

    folder = tmp_path / "run"
    begun = callbacks.EpochRecorder.on_epoch_begin
    monkeypatch.setattr(callbacks.EpochRecorder, "on_epoch_begin", begin)
    status, _ = run_here(folder, emulated(tiny, "trainer.epochs=2"))
    printed = capsys.readouterr()
    assert status == 1
    says(printed.err.splitlines()[-4:])
    assert printed.out.splitlines()[-3:] == [f"page      {folder}/report.html", *places(str(folder))]


def test_the_report_of_a_killed_run_says_so_and_how_to_resume_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = course(tmp_path, epoch(1), status="running")
    rate = "8 examples at 1.0 examples/s, 30.0 s in total"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "epoch_0001.keras").touch()
    with nobodys(tmp_path):
        main(["report", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("status", "resume"))] == [f"status    running, {rate}"]

    def resume() -> str:
        main(["report", str(tmp_path)])
        lines = capsys.readouterr().out.splitlines()
        status, line = (line for line in lines if line.startswith(("status", "resume")))
        assert status == f"status    killed, {rate}"
        return line

    assert resume() == f"resume    etlrun trainer.resume={tmp_path}"
    (tmp_path / "checkpoints" / "epoch_0001.keras").unlink()
    record.update(overrides=["load=naive", "dataset.target={a: number}"], resumed_from="before")
    assert resume() == "resume    etlrun trainer.resume=before"
    record.update(resumed_from=None)
    again = "etlrun load=naive 'dataset.target={a: number}'"
    assert resume() == f"resume    no checkpoint was written; start a new run: {again}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "run"
    whole(folder)
    report.write(folder)
    return folder


@pytest.mark.parametrize(("name", "suffix"), [("text", "txt"), ("md", "md"), ("html", "html")])
def test_the_report_of_a_run_with_everything(name: str, suffix: str, folder: Path, golden: Golden) -> None:
    text = drawn(folder, name).replace(str(folder), "FOLDER")
    text = re.sub("(<svg[^>]*>).*?</svg>", r"\1</svg>", text.partition("</style>")[2] or text)
    golden(REPORTS / f"run.{suffix}", text)


def test_the_page_is_made_again_from_the_folder_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    main(["report", str(folder)])
    assert (folder / "report.html").read_text() == before
    assert capsys.readouterr().out.endswith(f"report    {folder}/report.html\n")
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()  # which is no reason to print no report
    main(["report", str(folder)])
    printed = capsys.readouterr()
    assert "status    completed" in printed.out
    assert printed.err == f"etlrun: {folder}/report.html is as it was: Is a directory\n"
    (folder / "report.html").rmdir()
    report.write(folder)


def test_a_run_that_goes_on_says_so_and_a_killed_one_too(tmp_path: Path) -> None:
    record = course(tmp_path, epoch(1), status="running")
    os.utime(tmp_path / "summary.json", (0, 86_400))
    with nobodys(tmp_path):
        text = drawn(tmp_path)
        assert '<span class="badge accent">running, as of 1970-01-02 00:00:00 UTC</span>' in text
        assert '<meta http-equiv="refresh" content="5">' in text
    assert '<span class="badge bad">killed, as of 1970-01-02 00:00:00 UTC</span>' in drawn(tmp_path)
    record.update(status="failed", error="the run: found a test; expected none")
    text = drawn(tmp_path)
    assert '<pre class="bad">the run: found a test; expected none</pre>' in text
    assert "as of" not in text
    assert "refresh" not in text
    assert "<h1>Val accuracy 0.25, val loss 3 in epoch 1</h1>" in text
    record.update(kept={"epoch": 1, "monitor": "val_loss", "value": 3.0})
    assert "<dt>kept</dt><dd>epoch 1 (val loss 3)</dd>" in drawn(tmp_path)
    record.update(epochs=[], kept=None)
    assert "<h1>Failed, 0 epochs</h1>" in drawn(tmp_path)


def test_what_files_say_stays_text(tmp_path: Path) -> None:
    record = whole(tmp_path / "run")
    folder = record.folder
    (folder / "config.yaml").write_text(EVIL)
    (folder / "plan.json").write_text(json.dumps({"train": [{"stage": EVIL, "steps": [{"stage": EVIL}]}]}))
    record.update(
        overrides=[EVIL], remarks=[EVIL], error=EVIL, resumed_from=EVIL, versions={EVIL: EVIL}, config_dir=EVIL,
        verdict={"kind": "input", "stage": EVIL, "because": EVIL, "advice": EVIL},
        stages=[{**STAGES[0], "stage": EVIL}], skipped={EVIL: 1},
        dataset={"name": EVIL, "examples": {EVIL: 1}, "classes": [EVIL]},
        host={"device": EVIL, "cores": 1, "system": EVIL}, cache={"target": EVIL, "at": EVIL, "pipelines": {EVIL: {}}},
    )  # fmt: skip
    text = drawn(folder)
    assert not re.search(r"<script|<img src=x|[\"']>\s*<img src=x|onerror=alert\(1\)>(?!&)", text.replace("&gt;", "&"))
    assert text.count("</style>") == 1
    assert text.count("&lt;script&gt;") > 15


def test_a_pipeline_without_a_model_has_no_loss_and_no_validation(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("loss", "val_loss", "accuracy", "val_accuracy", "validation_s"))
    values = {key: value for key, value in epoch(1).model_dump(exclude_unset=True).items() if key not in nothing}
    course(tmp_path, type(epoch(1))(**values))
    text = drawn(tmp_path)
    assert "Loss and metrics" not in text
    assert "waiting for input: 3.0 in all, minimum 3, maximum 3; start-up: 2.0 in all" in text
    assert '<span class="fourth bar">' not in text


def test_a_run_without_an_epoch_and_an_old_summary_have_a_page(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "completed", "overrides": []}')
    text = drawn(tmp_path)
    assert "<h1>Completed, 0 epochs</h1>" in text
    assert not any(mark in text for mark in ("<svg", "<img", "<table", "<details"))
    report.write(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"train": 3}', '{"train": [3]}', '{"train": [{"steps": 1}]}'])
def test_a_plan_and_events_that_cannot_be_read_are_left_out(tmp_path: Path, text: str) -> None:
    course(tmp_path, epoch(1))
    (tmp_path / "plan.json").write_text(text)
    (tmp_path / "events.jsonl").write_text(
        f'{text}\n{{"event": "stages", "pipeline": "train", "stages": {text or 1}}}\n'
    )
    assert report.stages_of(tmp_path, summary_of(tmp_path)) == ("train", [])


def test_until_the_verdict_the_costs_are_those_of_the_last_epoch(tmp_path: Path, says: Says) -> None:
    record = course(tmp_path, epoch(1), status="running")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    for cost_ms in (9.0, 3.0):
        record.event("stages", pipeline="train", stages=[{**STAGES[1], "cost_ms": cost_ms}])
    record.event("stages", pipeline="validation", stages=[{**STAGES[1], "cost_ms": 7.0}])
    _, found = report.stages_of(tmp_path, summary_of(tmp_path))
    says([(of.name, of.cost and of.cost.cost_ms, of.mark) for of in found])


def test_a_long_run_with_long_texts_has_a_small_page_that_is_made_at_once(tmp_path: Path) -> None:
    record = whole(tmp_path / "run")
    long = {"overrides": ["x=" + "y" * 10**5], "remarks": ["z" * 10**4] * 100, "error": "e" * 10**5}
    many = [f"{of}top_{number}_accuracy" for of in ("", "val_") for number in range(2, 22)]
    epochs = [
        epoch(number, loss=math.sin(number), metrics=dict.fromkeys(many, math.cos(number))) for number in range(1, 2001)
    ]
    record.update(epochs=epochs, **long, dataset={"name": "d", "classes": ["c" * 99] * 1000})
    (record.folder / "config.yaml").write_text("k: v\n" * 10**4)
    assert len(drawn(record.folder).encode()) < 200_000
    began_s = time.process_time()
    drawn(record.folder)
    assert time.process_time() - began_s < 1.0
