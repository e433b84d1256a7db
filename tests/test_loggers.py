"""Logs in the folder of a run, and what no logger may do to a run; `test_services` has the others."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Annotated, Any, ClassVar

import pytest

from etlrun.record.record import Record
from etlrun.run import run
from etlrun.run.loggers import Opening
from etlrun.stages import STAGES
from etlrun.stages.base import SPEED, Text
from etlrun.stages.measure import Logger
from tests.configs import composed, plan_of
from tests.golden import Says
from tests.pages import scalars_of
from tests.runs import complete_here, emulated, run_here, summary_of


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, dict[str, Any]]:
    """A run of two epochs that resumes one of one epoch, both with `logger=tensorboard`."""
    first, then = (tmp_path_factory.mktemp(name) for name in ("first", "then"))
    assert run_here(first, emulated(tiny, "logger=tensorboard"))[0] == 0
    words = emulated(tiny, "logger=tensorboard", "trainer.epochs=2", f"trainer.resume={first}")
    summary = complete_here(then, words)
    return then, summary


def test_a_resumed_run_logs_all_epochs_as_its_summary_has_them(resumed: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = resumed
    scalars, _ = scalars_of(folder / "tensorboard")
    for epoch in summary["epochs"]:
        number, au, _ = epoch.pop("epoch"), epoch.pop("au"), epoch.pop("ended_s")
        assert scalars["au", number] == pytest.approx(au, abs=0.3)  # by floors that were known at its end
        logged = {name: scalars[name, number] for name in epoch}
        assert logged == {name: pytest.approx(value) for name, value in epoch.items()}


def test_a_log_ends_with_the_verdict_the_config_and_the_data(resumed: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = resumed
    scalars, texts = scalars_of(folder / "tensorboard")
    assert texts["status"] == "completed"
    assert texts["fingerprint"] == summary["plan_fingerprint"]
    assert texts["overrides"] == " ".join(summary["overrides"])
    assert "\n  step_ms: 5\n" in texts["config"] or "model.step_ms: 5\n" in texts["config"]
    assert texts["dataset/name"] == "tiny_pictures/1.2.0"
    assert texts["dataset/train"] == summary["dataset"]["digest"]["train"]
    assert texts["verdict/kind"] == summary["verdict"]["kind"]
    assert scalars["run/au", 2] == pytest.approx(summary["au"])
    assert scalars["run/resources/peak_rss_bytes", 2] == pytest.approx(summary["resources"]["peak_rss_bytes"])
    assert scalars["run/examples_per_s", 2] == pytest.approx(summary["examples_per_s"])


@pytest.mark.smoke
def test_a_pipeline_alone_is_logged_with_what_it_has(tiny: Path, tmp_path: Path) -> None:
    words = [word for word in emulated(tiny, "trainer=drain", "logger=tensorboard") if "step_ms" not in word]
    summary = complete_here(tmp_path, [word for word in words if not word.startswith("model=")])
    scalars, texts = scalars_of(tmp_path / "tensorboard")
    assert scalars["examples_per_s", 1] == pytest.approx(summary["epochs"][0]["examples_per_s"])
    assert ("au", 1) not in scalars
    assert texts["status"] == "completed"


def test_a_log_that_fails_is_noted_once_and_the_run_completes(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    summary = complete_here(tmp_path, emulated(tiny, "logger=tensorboard"))
    (note,) = (remark for remark in summary["remarks"] if "logger" in remark)
    says(note)
    assert capsys.readouterr().err.count(note) == 1


def test_a_run_that_fails_ends_its_log(tmp_path: Path) -> None:
    words = ["dataset=mnist", "dataset.download=false", "logger=tensorboard"]
    Record.create(tmp_path, composed(*words), words)
    assert run.run(tmp_path) == 1
    assert scalars_of(tmp_path / "tensorboard")[1]["status"] == "failed"


@dataclass(frozen=True, kw_only=True)
class Lines(Logger):
    """A logger of another package: this class, and its writer."""

    path: ClassVar[str] = "logger.lines"
    writer: ClassVar[str] = "tests.test_loggers:LinesWriter"
    last: Annotated[Text, SPEED]


class LinesWriter:
    """Writes `lines.txt` into the run's folder."""

    def open(self, opening: Opening) -> str:
        self._path, self._last = Path(opening.folder, "lines.txt"), opening.options["last"]
        return self._add(f"open {opening.parameters['load.batch_size']}")

    def texts(self, texts: Mapping[str, str]) -> None:
        self._add(f"texts {' '.join(texts)}")

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        self._add(f"epoch {number} {figures['examples']:g}")

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        self._add(f"{status} {self._last}")

    def _add(self, line: str) -> str:
        with self._path.open("a") as file:
            file.write(f"{line}\n")
        return ""


def test_a_logger_is_a_stage_and_a_writer(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny)
    Record.create(tmp_path, {**composed(*words), "logger": {"name": "lines", "last": "bye"}}, words)
    assert run.run(tmp_path, {**STAGES, "logger": {**STAGES["logger"], "lines": Lines}}) == 0
    examples = summary_of(tmp_path)["epochs"][0]["examples"]
    texts = "texts dataset/name dataset/train dataset/validation"
    written = (tmp_path / "lines.txt").read_text().splitlines()
    assert written == ["open 2", texts, f"epoch 1 {examples}", "completed bye"]


class Interrupted(LinesWriter):
    """Receives a Ctrl-C in its own thread at the end, and waits until the run is over."""

    over, was_over = threading.Event(), Queue[bool]()

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        self.was_over.put(self.over.wait(10))


def test_a_run_sees_an_interrupt_of_another_thread_while_it_waits_for_its_log(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lines, "writer", "tests.test_loggers:Interrupted")
    words = emulated(tiny)
    Record.create(tmp_path, {**composed(*words), "logger": {"name": "lines", "last": "bye"}}, words)
    assert run.run(tmp_path, {**STAGES, "logger": {**STAGES["logger"], "lines": Lines}}) == 0
    Interrupted.over.set()
    assert Interrupted.was_over.get(timeout=20)
    assert any("it was interrupted" in remark for remark in summary_of(tmp_path)["remarks"])


def test_a_logger_changes_no_result() -> None:
    for logger in STAGES["logger"]:
        assert plan_of(f"logger={logger}").fingerprint == plan_of().fingerprint


_WITHOUT = """
import sys
sys.modules["mlflow"] = None
from etlrun.cli.main import main
try:
    main({words!r})
except SystemExit as end:
    print(end.code, "tensorflow" in sys.modules)
"""


@pytest.mark.parametrize("multirun", [False, True])
def test_a_logger_without_its_package_is_refused_before_tensorflow_is_imported(
    *, multirun: bool, tmp_path: Path
) -> None:
    words = ["logger=mlflow", f"hydra.run.dir={tmp_path / 'run'}"]
    if multirun:
        words = ["-m", "logger=mlflow,none", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    script = _WITHOUT.format(words=words)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.splitlines()[-1] == "1 False"
    assert (
        "logger.name: found no package mlflow; expected the package that writes the log, since logger=mlflow\n"
        "    -> pip install 'alembic>=1.13,<2' 'mlflow-skinny>=3.10,<4' 'sqlalchemy>=2,<3', or set logger=none\n"
    ) in ended.stderr
    if not multirun:
        assert summary_of(tmp_path / "run")["status"] == "failed"
    assert not (tmp_path / "sweep").exists()
