"""The reference of the command line: docs/reference/commands.md, and the example of each command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.cli.commands import COMMANDS
from etlrun.cli.reference import markdown
from tests.own import write_pets

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/commands.md"
EVALUATE = """\
### evaluate

Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, precision, recall, F1 and \
calibration, or the errors of numbers, and the worst mistakes. Writes RUN/evaluations/NAME.json and .html.

    etlrun evaluate [OPTION ...] RUN [OVERRIDE ...]

| argument | meaning |
| --- | --- |
| `RUN` | folder of a completed run |
| `OVERRIDE` | dataset.split=SPLIT for another split than the run's validation; data and speed may differ |
| `--threshold X` | probability above which the second of two classes is predicted; default: 0.5 |
| `--importance N` | permute each column N times in all examples, to see what it is worth; 0 leaves this out; \
default: 5 times, in as many rows as cost little |
| `--epoch last\\|N` | take the model of the last epoch, or of epoch N, of which there is a checkpoint; default: \
the one kept |
| `--format text\\|json` | output format; default: text |

Example:

    etlrun evaluate RUN --format json
"""


def test_the_page_is_made_of_the_parsers() -> None:
    assert PAGE.read_text() == markdown(), f"python -m etlrun.cli.reference > {PAGE.relative_to(ROOT)} updates it"


@pytest.mark.parametrize("columns", ["20", "200"])
def test_the_page_is_the_same_on_any_terminal(columns: str) -> None:
    command, environment = [sys.executable, "-m", "etlrun.cli.reference"], {**os.environ, "COLUMNS": columns}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == PAGE.read_text()


@pytest.fixture(scope="module")
def project(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples name: a run, photos, and configs."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "RUN").symlink_to(run)
    write_pets(folder / "photos")
    (folder / "outputs").mkdir()
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "first.yaml").write_text("# The first one.\ntrainer: {epochs: 2}\n")
    return folder


ELSEWHERE = {
    "tune": "takes minutes",
    "service": "serves until it is ended",
    "vocabulary": "needs tokenizers",
    "export": "needs onnx",
}
"""Examples that are not run, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ELSEWHERE])
def test_the_example_of_a_command_runs(name: str, project: Path) -> None:
    line = COMMANDS[name].example.replace("etlrun", f"{sys.executable} -m etlrun", 1)
    folders = {"TFDS_DATA_DIR": str(project / "data"), "XDG_CACHE_HOME": str(project / "caches")}
    environment = {**os.environ, **folders}
    command = ["bash", "-c", line]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_has_its_usage_its_arguments_and_an_example() -> None:
    assert EVALUATE in markdown()
