"""What is said of runs of rows: in their output, reports and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runs import run_here
from tests.tables import words_of, write_houses


@pytest.mark.parametrize("name", ["fit", "drain"])
def test_runs_of_rows_speak_of_no_images(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_houses(tmp_path)
    others = ("trainer=drain", "trainer.step_ms=10") if name == "drain" else ("model.step_ms=10", "cache.codec=jpeg90")
    given = [word for word in words_of(tmp_path, *others) if word != "model.step_ms=0"]  # too short to be measured
    assert run_here(tmp_path / "run", given)[0] == 0
    printed = "".join(capsys.readouterr())
    page = re.sub("<style.*?</style>", "", (tmp_path / "run" / "report.html").read_text(), flags=re.DOTALL)
    told = [printed, page, *((tmp_path / "run" / each).read_text() for each in ("report.md", "plan.txt"))]
    assert [re.findall("(?i).*(?:image|picture|photo).*", text) for text in told] == [[]] * len(told)
