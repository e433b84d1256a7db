"""What a run's table and lines say, from a summary."""

from pathlib import Path
from typing import Any

from etlrun import report
from etlrun.record import Record


def written(folder: Path, **summary: Any) -> list[str]:
    """The list of `report.md` of a run with this summary."""
    record = Record.create(folder, {}, [])
    record.update(status="completed", wall_s=1.0, **summary)
    report.write(folder)
    return [line for line in (folder / "report.md").read_text().splitlines() if line.startswith("- ")]


def test_what_users_and_systems_wrote_is_no_markup(tmp_path: Path) -> None:
    error = "trainer: found <b>*x*</b>; expected `no` error\n    -> see [this](/tmp/a_b)"
    lines = written(tmp_path / "run", remarks=["Of @all\n# Heading"], error=error)
    assert lines[0] == "- status    completed, 0 examples at - a second, 1.0 s in all"
    assert lines[2:] == [
        "- remark    Of &#64;all # Heading",
        "- error     trainer: found &#60;b>&#42;x&#42;&#60;/b>; expected &#96;no&#96; error -> see &#91;this](/tmp/a_b)",
    ]
