"""What `--quiet` and `--json` leave on standard output and standard error, and what they don't change."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import launch
from etlrun.cli import main as cli
from etlrun.record.record import Record
from tests.forked import Forked, forked
from tests.runs import emulated, finish, summary_of
from tests.sweeps import QUICK
from tests.test_resume import kill_after_epoch

UNKNOWN = (
    "cahe: found an unknown key; expected one of the keys dataset, extract, transform, cache, load, model, trainer, "
    "profile, logger, measure\n    -> did you mean `cache`?"
)


def answered(cwd: Path, *words: str) -> tuple[int, str, str]:
    return finish(forked([*words], cwd))


def document(text: str) -> dict[str, Any]:
    """The one JSON document that is all of `text`."""
    found: dict[str, Any] = json.loads(text)
    assert text == json.dumps(found, indent=2) + "\n"
    return found


def test_a_quiet_run_prints_nothing(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "cache=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert answered(tmp_path, "--quiet", *words) == (0, "", "")
    assert summary_of(tmp_path / "run")["status"] == "completed"


def test_json_is_the_summary_with_its_folder_and_all_else_is_on_stderr(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    status, out, err = answered(tmp_path, *emulated(tiny, "measure.au_min=0.99"), "--json", f"hydra.run.dir={folder}")
    assert (status, document(out)) == (3, {"folder": str(folder), **summary_of(folder)})
    lines = err.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["device", "data", "epoch", "status"]
    assert lines[-1] == "tables    etlrun report run"


def test_json_of_a_run_that_fails_has_its_error_and_standard_error_the_fault(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = emulated(tiny, "dataset.split=nothing", f"hydra.run.dir={folder}")
    status, out, err = answered(tmp_path, *words, "--json", "--quiet")
    found = document(out)
    assert (status, found) == (1, {"folder": str(folder), **summary_of(folder)})
    assert found["status"] == "failed"
    assert err == f"etlrun: failed\n  {found['error']}\n"


def test_json_of_a_training_begins_with_its_result(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run", {}, [])
    record.update(epochs=[{"epoch": 1, "loss": 0.5, "val_accuracy": float("nan")}])
    launch.answer_run(tmp_path / "run")
    found = launch._answer.document
    assert found is not None
    assert [*found().items()][:2] == [("folder", f"{tmp_path}/run"), ("result", {"loss": 0.5, "val_accuracy": None})]


def test_json_of_what_is_refused_before_a_run_has_the_fault(tmp_path: Path) -> None:
    status, out, err = answered(tmp_path, "cahe=disk", "--json")
    assert (status, document(out)) == (2, {"status": "failed", "error": UNKNOWN})
    assert err == f"etlrun: 1 fault\n  {UNKNOWN}\n"
    assert not (tmp_path / "outputs").exists()


def test_json_of_an_interrupted_run_says_so_and_the_command_that_resumes_it_is_an_error(
    tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    words = emulated(tiny, "trainer.epochs=400", "cache=none", f"hydra.run.dir={folder}", "--json", "--quiet")
    process = forked(words, tmp_path)
    kill_after_epoch(process, folder, 1, signal.SIGINT)
    status, out, err = finish(process)
    found = document(out)
    assert (status, found) == (130, {"folder": str(folder), **summary_of(folder)})
    assert (found["status"], found["error"]) == ("interrupted", "The run was interrupted")
    assert err == f"etlrun: interrupted; resume with: etlrun trainer.resume={folder}\n"


@pytest.mark.slow
def test_json_of_a_sweep_is_its_results_and_quiet_leaves_the_jobs_that_fail(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["-m", *emulated(tiny, "dataset.version=null,9.9.9", *QUICK), f"hydra.sweep.dir={folder}"]
    status, out, err = answered(tmp_path, *words, "--json", "--quiet")
    results = json.loads((folder / "results.json").read_text())
    assert (status, document(out)) == (1, {"status": "failed", **results})
    (error,) = err.splitlines()
    assert error.startswith("2/2 1 dataset.version=9.9.9: failed, ")
    assert "dataset.version: found 9.9.9, which is not in " in error

    status, out, err = answered(tmp_path, "-m", f"sweep.resume={folder}", "dataset.version=null", "--json")
    assert (status, document(out)) == (1, {"status": "failed", **json.loads((folder / "results.json").read_text())})
    assert err.splitlines()[0].startswith("sweep     ")
    assert err.endswith(f"report    {folder}/report.html\n")


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_what_hydra_answers_alone_is_refused_with_them(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main([option, "--cfg", "job"])
    fault = f"{option}: found --cfg; expected a run or a sweep\n    -> leave out {option}"
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (2, f"etlrun: 1 fault\n  {fault}\n")
    assert (document(printed.out) if printed.out else {}) == (
        {"status": "failed", "error": fault} if option == "--json" else {}
    )


def test_a_config_named_quiet_and_an_override_are_what_they_are(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "quiet.yaml").write_text("defaults: [config, _self_]\ntrainer: {epochs: 2}\n")
    folder = tmp_path / "run"
    words = ["--config-name", "quiet", "--config-dir", "own", f"hydra.run.dir={folder}"]
    mine = [word for word in emulated(tiny) if not word.startswith("trainer.epochs")]
    assert answered(tmp_path, *mine, *words, "--quiet") == (0, "", "")
    summary = summary_of(folder)
    assert (summary["config_name"], len(summary["epochs"])) == ("quiet", 2)
    assert not [word for word in summary["overrides"] if "--" in word]


def _loudly(words: list[str]) -> None:
    """Run `etlrun` with libraries that print."""
    real = launch.start

    def loud(*given: Any) -> None:
        os.write(1, b"from a library\n")
        print("from Python")
        real(*given)

    launch.start = loud  # type: ignore[assignment] # its arguments are passed on as they are
    cli.main(words)


def test_a_library_that_prints_on_standard_output_leaves_the_document_alone(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny), "--json", "--quiet", f"hydra.run.dir={tmp_path / 'run'}"]
    status, out, err = finish(Forked(partial(_loudly, words), tmp_path))
    assert (status, document(out)["status"]) == (0, "completed")
    assert sorted(err.splitlines()) == ["from Python", "from a library"]
