"""The Python API in the kernel of a notebook: what cells show, an interrupt, and a second run."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import jpeg
from tests.runs import emulated

pytestmark = [pytest.mark.slow, pytest.mark.needs("nbclient", "ipykernel")]

PLAN = """\
import etlrun

words = {words!r}
planned = etlrun.plan(*words)
planned"""
LATER = "etlrun.diff(planned, etlrun.plan(*words, 'load.prefetch=3'))"
LOOK = "[(inputs.shape, target.shape) for inputs, target in planned.datasets()['train'].take(1)]"
FIT = "run = planned.fit()\nrun"
PREDICT = "trained = etlrun.load({folder!r})\n[of.class_name for of in trained.predict('a.jpg')]"
STATE = """\
import signal
from hydra.core.global_hydra import GlobalHydra

signal.getsignal(signal.SIGTERM), GlobalHydra.instance().hydra, trained.summary.status"""


class Notebook:
    """A kernel that executes cells in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        import nbformat
        from nbclient import NotebookClient

        self._format: Any = nbformat.v4
        self._book = self._format.new_notebook()
        resources = {"metadata": {"path": str(folder)}}
        self._client = NotebookClient(self._book, timeout=300, kernel_name="python3", resources=resources)
        self._folder = folder
        stack.enter_context(self._client.setup_kernel())

    def cell(self, source: str, *, fails: bool = False) -> dict[str, str]:
        """The outputs of a cell: streams by their names, forms of its value by their types, the name of an error."""
        cell = self._format.new_code_cell(source, metadata={"tags": ["raises-exception"] * fails})
        self._book.cells.append(cell)
        self._client.execute_cell(cell, len(self._book.cells) - 1)
        found: dict[str, str] = {}
        for output in cell.outputs:
            if output.output_type == "stream":
                found[output.name] = found.get(output.name, "") + output.text
            else:
                found |= output.get("data", {}) if output.output_type != "error" else {"error": output.ename}
        return found

    def interrupt(self, when: str) -> threading.Thread:
        """Interrupt the kernel as soon as there is a file in the folder that matches a pattern."""

        def wait() -> None:
            until_s = time.monotonic() + 240
            while time.monotonic() < until_s:
                if next(self._folder.glob(when), None) is not None:
                    kernel: Any = self._client.km
                    asyncio.run(kernel.interrupt_kernel())
                    return
                threading.Event().wait(0.01)

        waiting = threading.Thread(target=wait)
        waiting.start()
        return waiting


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with ExitStack() as stack:
        yield Notebook(tmp_path, stack)


def test_a_notebook_plans_trains_is_interrupted_resumes_and_predicts(
    notebook: Notebook, tiny: Path, run: Path, tmp_path: Path
) -> None:
    words = emulated(tiny, "trainer.epochs=2", "measure.digest=true")
    shown = notebook.cell(PLAN.format(words=words))
    assert shown["text/html"].startswith('<div class="etlrun inline">')
    assert "error" not in shown
    assert "changes only the speed" in notebook.cell(LATER)["text/html"]
    assert notebook.cell(LOOK)["text/plain"] == "[(TensorShape([2, 32, 32, 3]), TensorShape([2]))]"
    ended = notebook.cell(FIT)
    assert "completed" in ended["text/html"]
    assert "epoch 2/2" in ended["stderr"]
    assert "Warning" not in ended["stderr"]

    waiting = notebook.interrupt("long/checkpoints/epoch_*.keras")  # each is there for a sixth of a second
    long = "etlrun.plan(*words, 'trainer.epochs=500').fit('long')"
    assert notebook.cell(long, fails=True)["error"] == "KeyboardInterrupt"
    waiting.join()
    last = max(int(path.stem.removeprefix("epoch_")) for path in tmp_path.glob("long/checkpoints/epoch_*.keras"))
    resumed = f"etlrun.plan('trainer.resume=long', 'trainer.epochs={last + 2}').fit('again')"
    assert "completed" in notebook.cell(resumed)["text/html"]
    assert notebook.cell("etlrun.load('again').summary.resumed_from")["text/plain"] == "'long'"

    (tmp_path / "a.jpg").write_bytes(jpeg(1))
    assert notebook.cell(PREDICT.format(folder=str(run)))["text/plain"] in ("['dark']", "['bright']")
    assert notebook.cell(STATE)["text/plain"] == "(<Handlers.SIG_DFL: 0>, None, 'completed')"
    refused = notebook.cell("etlrun.plan('load.batch_size=0')", fails=True)
    assert refused["error"] == "ConfigError"
