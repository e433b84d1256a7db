"""The notebooks of docs/tutorials: each run in a kernel. `python -m tests.notebooks` saves their outputs."""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

from tests.pastes import ROOT
from tests.tutorials import LIMIT_S, environment

SCRIPTS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def run(notebook: Any, folder: Path) -> Any:
    """Run all cells in an empty folder `content` below `folder`; `CellExecutionError` if one fails."""
    (folder / "content").mkdir()
    client = nbclient.NotebookClient(
        notebook,
        timeout=LIMIT_S,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": folder / "content"}},
    )
    return client.execute(env=environment(folder / "home"))


def save(script: Path) -> None:
    """Write the notebook of a script, with what its cells print; the folder it ran in is named as that of Colab."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = run(jupytext.read(script), Path(folder))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{script.stem}-{number}"  # the same each time
        if "outputs" in cell:  # without the progress of what TFDS writes
            cell["outputs"] = [*_joined(output for output in cell.outputs if not _is_progress(output))]
    notebook.metadata.pop("language_info", None)
    text = nbformat.writes(notebook).replace(f"{folder}/home", "/root").replace(folder, "")
    nbformat.write(nbformat.reads(text, as_version=4), script.with_suffix(".ipynb"))


def _joined(outputs: Iterable[Any]) -> Iterator[Any]:
    """Outputs, of which what was printed in pieces is one."""
    for is_text, pieces in groupby(outputs, lambda output: output.output_type == "stream"):
        if is_text:
            yield nbformat.v4.new_output("stream", name="stdout", text="".join(piece.text for piece in pieces))
        else:
            yield from pieces


def _is_progress(output: Any) -> bool:
    text = output.get("text", "")
    return output.get("name") == "stderr" or "Downloading and preparing" in text or "Subsequent calls" in text


if __name__ == "__main__":
    for chosen in SCRIPTS:
        if not sys.argv[1:] or chosen.stem in sys.argv[1:]:
            save(chosen)
