"""Sources of other packages, which their entry points name."""

import re
import runpy
from itertools import islice
from pathlib import Path

import pytest

from etlrun.measure.digest import Digest
from tests.pastes import fenced
from tests.runs import summary_of
from tests.test_installed import installed, told


def lined(folder: Path) -> list[str]:
    """Lines of two numbers and a class, the package that reads them, and the arguments that select it."""
    installed(folder, fenced("extending.md", "class Lined"), "lined:Lined", "lined")
    (folder / "DIR" / "dataset").mkdir(parents=True)
    (folder / "DIR" / "dataset" / "lined.yaml").write_text(fenced("extending.md", "name: lined"))
    (folder / "points.csv").write_text("".join(f"{number},{number / 2},{number % 2}\n" for number in range(40)))
    words = ["--config-dir", "DIR", "dataset=lined", "dataset.file=points.csv", "extract=sequential"]
    words += ["transform.steps=[]", "transform.eval_steps=[]", "load.batch_size=8"]
    return [*words, "trainer=drain", "model=emulated", "model.step_ms=0", "hydra.run.dir=run"]


@pytest.mark.slow
def test_plans_and_runs_know_a_source_that_is_installed(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    words = [*lined(folder), "cache=disk", f"cache.dir={tmp_path}/caches"]
    plan = told(folder, "plan", *words)
    assert "float32 [2], label" in plan
    assert "file points.csv data" in " ".join(plan.split())
    told(folder, *words)
    summary = summary_of(folder / "run")
    assert (summary["status"], summary["dataset"]["name"]) == ("completed", "points.csv")
    assert [epoch["examples"] for epoch in summary["epochs"]] == [32]
    assert told(folder, "plan", *words, "dataset.split=test", status=1) == (
        "etlrun: 1 fault\n  dataset.split: found 'test', which points.csv does not have; expected a part of one of its "
        "splits: train\n    -> choose a split that is there, or a part: train, train[:80%]\n"
    )
    text = (folder / "lined.py").read_text()
    (folder / "lined.py").write_text(re.sub("    printed: .*\n", "", text))
    assert told(folder, "eject", *words, status=2) == (
        "etlrun: 1 fault\n  dataset.name: found lined, whose class has no `printed`; expected a dataset that programs "
        "can read\n    -> write its program by hand, from that of another dataset\n"
    )


@pytest.mark.slow
def test_a_program_reads_a_source_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches are those of the run; there is none if a function of the source is missing."""
    folder = tmp_path / "site"
    words = [*lined(folder), "cache=none", "measure.digest=true"]
    printed = folder / "lined_printed.py"
    printed.write_text(fenced("extending.md", "def records_of"))
    program = told(folder, "eject", *words)
    assert "etlrun." not in program.split('"""\n', 1)[1]
    (folder / "program.py").write_text(program)
    told(folder, *words)
    monkeypatch.chdir(folder)
    digest = Digest()
    for numbers, labels in islice(runpy.run_path("program.py")["train_dataset"](), 4):
        digest.add(numbers.numpy(), labels.numpy())
    assert digest.taken() == summary_of(folder / "run")["epochs"][0]["digest"]
    printed.write_text(printed.read_text().replace("def paths_of", "def paths"))
    assert told(folder, "eject", *words, status=2) == (
        "etlrun: 1 fault\n  dataset.name: found lined_printed without paths_of; expected all functions that programs "
        "need\n    -> add it to lined_printed\n"
    )
