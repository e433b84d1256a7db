"""Commands that this process runs, and what they answer."""

from pathlib import Path

import pytest

from etlrun.cli import main as cli


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 1) -> str:
    """The whole message of a command that ends with this status and prints nothing else."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(of) for of in arguments])
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (status, "")
    return captured.err
