"""What names and values of a table look like in a terminal: no color, no line of their own."""

from pathlib import Path

import pytest

from etlrun.cli import main as cli


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "plan",
            [
                r"a. transform.parse               -> 32 x {b\x1b[31m: text, c\nd: text}, y",
                r"b\x1b[31m             <- b\x1b[31m: lookup [\x1b[31mred\x1b[0m, \x1b[31mblue\x1b[0m], one_hot (3)",
                r"c\nd                  <- c\nd: lookup [line\nmore, line], one_hot (3)",
            ],
        ),
        ("stats", [r"b\x1b[31m   \x1b[31mred\x1b[0m    43  53.8%", r"     c\nd            line more    43  53.8%"]),
    ],
)
def test_marks_of_terminals_and_line_ends_are_escaped(
    command: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ['\x1b[31mred\x1b[0m,"line\nmore",yes\r\n', "\x1b[31mblue\x1b[0m,line,no\r\n"]
    (tmp_path / "t.csv").write_text('b\x1b[31m,"c\nd",y\r\n' + "".join(rows * 50), newline="")
    words = ["experiment=table", f"dataset.files={tmp_path}/t.csv", "dataset.target={y: class}", "load.batch_size=32"]
    cli.main([command, *words])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert [line for line in lines if line not in said] == []
