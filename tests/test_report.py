"""What a run's table and lines say, from a summary."""

from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.main import main
from etlrun.record import report
from etlrun.record.locks import nobodys
from etlrun.record.record import Record
from tests.run_pages import course, epoch


def written(folder: Path, **summary: Any) -> list[str]:
    """The list of `report.md` of a run with this summary."""
    record = Record.create(folder, {}, [])
    record.update(status="completed", wall_s=1.0, **summary)
    report.write(folder)
    return [line for line in (folder / "report.md").read_text().splitlines() if line.startswith("- ")]


def test_what_users_and_systems_wrote_is_no_markup(tmp_path: Path) -> None:
    error = "trainer: found <b>*x*</b>_q_ `x|y`; expected `no` error\n    -> see [this](/tmp/a_b)"
    lines = written(tmp_path / "run", remarks=["Of @all\n# Heading"], error=error)
    assert lines[0] == "- status    completed, 0 examples at - examples/s, 1.0 s in total"
    assert lines[2:] == [
        "- note      Of &#64;all # Heading",
        (
            "- error     trainer: found &#60;b>&#42;x&#42;&#60;/b>&#95;q&#95; &#96;x|y&#96;; expected "
            "&#96;no&#96; error -> see &#91;this](/tmp/a_b)"
        ),
    ]


def test_the_peak_of_a_gpus_memory_is_told_where_the_backend_knows_it(tmp_path: Path) -> None:
    gpus = [{"index": 1, "utilisation_percent": 80.0, "peak_memory_bytes": 2e9}]
    used = {"peak_rss_bytes": 1e9, "cpu_s": 2.0, "cores_used": 1.0, "bytes_read": 10**6, "gpus": gpus}
    waits = {"input_wait_ms_median": 1.0, "input_wait_ms_p95": 2.0, "fill_wait_s": 0.1}
    verdict = {"kind": "model", "stage": None, "max_gain": 1.0, "because": "it is", "advice": None}
    values = {**waits, "verdict": verdict, "resources": {**used, "peak_gpu_bytes": 1_234_500_000}}
    (line,) = (line for line in written(tmp_path / "run", **values) if line.startswith("- resources "))
    assert line == (
        "- resources peak memory 1,000.0 MB, 2.0 CPU seconds on 1.0 cores, 1.0 MB read; GPU 1 at 80 %, "
        "peak memory 2,000.0 MB; peak GPU memory for tensors 1,234.5 MB"
    )


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
