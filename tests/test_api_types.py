"""The types of the Python API, as a program that is checked strictly sees them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
from pathlib import Path

import etlrun

planned = etlrun.plan("experiment=parallel", config_dir=Path("own"))
reveal_type(planned.config)
reveal_type(planned.fit())
reveal_type(planned.datasets())
reveal_type(etlrun.diff(planned, "load.prefetch=1").changes_data)
found = etlrun.load("outputs")
if isinstance(found, etlrun.Run):
    reveal_type(found.predict("a.jpg", [{"area": 3.0}])[0].probabilities)
    reveal_type(found.evaluate("dataset.split=test").loss)
    reveal_type(found.verdict)
else:
    reveal_type(found.best)
    reveal_type(found.results[0].examples_per_s)
try:
    etlrun.plan("a=1")
except etlrun.ConfigError as error:
    reveal_type(error.faults)
etlrun.nothing
"""
TYPES = [
    "dict[str, Any]",
    "etlrun.api.run.Run",
    "etlrun.run.session.Datasets",
    "bool",
    "typing.Mapping[str, float]",
    "float",
    "etlrun.record.summary.Verdict | None",
    "tuple[str, ...]",
    "float | None",
    "tuple[etlrun.system.errors.Fault, ...]",
]


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_a_program_sees_the_types(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert re.findall(r'Revealed type is "(.*)"', said) == TYPES
    errors = [line for line in said.splitlines() if ": error: " in line]
    assert errors == [
        f'program.py:{len(PROGRAM.splitlines())}: error: Module has no attribute "nothing"  [attr-defined]'
    ]
