"""A trained run, commands on it, and what Keras's own `predict` says on the run's own validation pipeline."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest

from etlrun.cli import main as cli
from etlrun.graph.build import Pipeline
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import read_config
from etlrun.record.record import Record
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES
from tests.commands import complaint
from tests.configs import composed
from tests.golden import Case
from tests.runs import complete_here, small


def trained_run(folder: Path, data_dir: Path, *overrides: str) -> Path:
    """A run of one epoch on the tiny dataset, whose validation has two batches, of 8 and of 2."""
    complete_here(folder, small(data_dir, *overrides))
    return folder


def validation_of(folder: Path) -> Pipeline:
    planned = plan(parse(read_config(folder), STAGES))
    context = contexts_of(planned, open_source(planned.spec.dataset))["validation"]
    return Pipeline(planned.evaluation, context)


def outputs_of(folder: Path) -> npt.NDArray[np.float32]:
    """What the saved model predicts of the batches of the run's validation."""
    model = keras.models.load_model(folder / "model.keras")
    return np.concatenate([model.predict(inputs, verbose=0) for inputs, _ in validation_of(folder).dataset])


def described(folder: Path) -> dict[str, Any]:
    """What an export says of itself."""
    found: dict[str, Any] = json.loads((folder / "export.json").read_text())
    return found


def served(folder: Path, inputs: dict[str, npt.NDArray[Any]], scratch: Path) -> dict[str, npt.NDArray[Any]]:
    """What a saved model gives in a process without etlrun."""
    np.savez(scratch / "given.npz", **inputs)  # type: ignore[arg-type] # names of arrays
    program = (
        "import sys, numpy as np, tensorflow as tf\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "given = dict(np.load(sys.argv[2], allow_pickle=True))\n"
        "found = loaded.signatures['serving_default'](**{name: tf.constant(of) for name, of in given.items()})\n"
        "assert 'etlrun' not in sys.modules\n"
        "np.savez(sys.argv[3], **{name: of.numpy() for name, of in found.items()})\n"
    )
    places = [folder, scratch / "given.npz", scratch / "found.npz"]
    subprocess.run([sys.executable, "-c", program, *map(str, places)], check=True)
    return dict(np.load(places[-1], allow_pickle=True))


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command prints."""
    capsys.readouterr()
    cli.main([str(of) for of in arguments])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 1) -> list[str]:
    """The message of a command that prints nothing else, without the number of faults."""
    return complaint(capsys, *arguments, status=status).splitlines()[1:]


def refusal(capsys: pytest.CaptureFixture[str], case: Case, **folders: Path) -> str:
    """The message of the command of a case, in which names stand for folders; the case's `files` are written in DIR."""
    for name, text in case.get("files", {}).items():
        (folders["DIR"] / name).write_bytes(text.encode("latin-1"))
    words = case["words"]
    for name, folder in folders.items():
        words = [word.replace(name, str(folder)) for word in words]
    message = "\n".join(refused(capsys, *words, status=case.get("status", 1)))
    for name, folder in folders.items():
        message = message.replace(str(folder), name)
    return message


def with_summary(folder: Path, **values: Any) -> None:
    """Change values of the summary of a run; None removes one."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in summary.items() if value is not None}))


def ended(folder: Path, words: list[str], *, status: str = "completed", model: bytes | None = b"no model") -> Path:
    """A run that has ended, which no process has run."""
    Record.create(folder, composed(*words), words)
    with_summary(folder, status=status)
    if model is not None:
        (folder / "model.keras").write_bytes(model)
    return folder
