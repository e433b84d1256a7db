"""The code that counts for a cache's key: the source of steps as it was when they were imported."""

import shutil
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from etlrun.graph.identity import code_of
from etlrun.stages import STAGES
from etlrun.stages.installed import with_installed
from etlrun.stages.plugins import STEPS as GROUP
from etlrun.stages.plugins import source
from tests.configs import TENSORFLOW
from tests.runs import emulated, finish, start, summary_of
from tests.test_installed import GREY, calling, installed

ROOT = Path(__file__).resolve().parent.parent


def test_the_source_of_a_step_is_that_of_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default counts by its value; of an edit nothing is seen until the file is imported again."""
    text = calling(more="HALF = 0.5").replace("of(image):", "of(image, by=HALF):")
    monkeypatch.syspath_prepend(installed(tmp_path, text))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for edit in (("", ""), ("tf.cast", "1.0 * tf.cast"), ("HALF = 0.5", "HALF = 0.25")):
        text = text.replace(*edit) if edit[0] else text
        (tmp_path / "greyed.py").write_text(text)
        sys.modules.pop("greyed", None)
        registry, faults = with_installed(STAGES, [EntryPoint(name="grey", value="greyed:Grey", group=GROUP)])
        assert not faults
        (tmp_path / "greyed.py").write_text(f"# Another one, with lines elsewhere.\n{GREY}")
        step: Any = registry["transform"]["grey"]
        found.append(([source(made) for made in step(strength=1.0).makers], code_of(step(strength=1.0))))
    sys.modules.pop("greyed", None)
    texts, digests = zip(*found, strict=True)
    assert [each[0].count("1.0 * tf.cast") for each in texts] == [0, 1, 1]
    assert texts[1] == texts[2]
    assert texts[0][1] == "def own_mean_of(image, by=HALF):\n    return tf.reduce_mean(image)"
    assert len({*digests}) == 3


def passes_of(folder: Path) -> list[str]:
    passes: list[str] = summary_of(folder)["cache"]["pipelines"]["train"]["passes"]
    return passes


@pytest.mark.slow
def test_an_edit_while_a_sweep_runs_is_another_cache_for_later_runs(tiny: Path, tmp_path: Path) -> None:
    """All jobs of a sweep are made by the code that it began with, whatever the files say by then."""
    checkout = tmp_path / "checkout"
    for name in ("etlrun", "conf"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    quick = (TENSORFLOW, "model.step_ms=0", "dataset.eval_split=null", "measure.digest=true", "load.shuffle_buffer=0")
    words = emulated(tiny, "cache=disk", f"cache.dir={tmp_path / 'caches'}", *quick)
    sweep, after, last = tmp_path / "sweep", tmp_path / "after", "dataset.split='train[:20]'"
    splits = "dataset.split='train[:16]','train[:20]'"
    process = start(["-m", *words, splits, f"hydra.sweep.dir={sweep}"], tmp_path, PYTHONPATH=str(checkout))
    deadline = time.monotonic() + 240
    while not (sweep / "0" / "plan.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    path = checkout / "etlrun/stages/image.py"
    path.write_text(path.read_text().replace("tf.round(image) if", "255.0 - tf.round(image) if"))
    status, _, err = finish(process)
    assert status == 0, err
    status, _, err = finish(start([*words, last, f"hydra.run.dir={after}"], tmp_path, PYTHONPATH=str(checkout)))
    assert status == 0, err
    assert [passes_of(folder) for folder in (sweep / "1", after)] == [
        ["read"],
        ["filled"],
    ]  # a sweep fills its caches first
    by_old_code, by_new_code = (summary_of(folder)["epochs"][0]["digest"] for folder in (sweep / "1", after))
    assert by_old_code != by_new_code
