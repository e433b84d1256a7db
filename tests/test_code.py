"""What code counts for a cache's key: what is in memory, and all own code that it reaches."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from etlrun.graph.code import code_of
from tests.runs import emulated, finish, start, summary_of

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "mine/__init__.py": "",
    "mine/steps.py": '''
import functools
import hashlib
import numpy as np
import their_lib
from mine import colours
from mine.tables import GAMMA

FACTOR = 2.0

class Base:
    gain = 1.5
    def apply(self, picture):
        return picture * self.gain

class Stage(Base):
    @property
    def factors(self):
        return FACTOR, 0.0

def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

@their_lib.counted
def brighter(value):
    return value + 5

@their_lib.hidden
def darker(value):
    return value - 5

@logged
def step(picture, kinds=("jpeg", "png")):
    """What it does."""
    from . import late
    def inner(value):
        return value in {"one", "two", "three"} or colours.greyed(value) * GAMMA["a"] + np.max(picture)
    picture = brighter(darker(picture))
    return their_lib.loaded(inner(picture)), late.done(picture), Stage(), hashlib.md5
''',
    "mine/colours.py": """import helper

def greyed(value):
    return helper.grey(value)

def unused():
    return 1
""",
    "mine/tables.py": 'GAMMA = {"a": 1.0}\n',
    "mine/late.py": "def done(value):\n    return value\n",
    "helper.py": "def grey(value):\n    return value + 1\n",
    "site-packages/their_lib.py": """import functools

def counted(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

def hidden(function):
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

def loaded(value):
    return value
""",
}  # fmt: skip
EDITS = {
    "a line": ("mine/steps.py", "+ np.max(picture)", "- np.max(picture)", {"mine.steps"}),
    "a constant": ("mine/steps.py", "FACTOR = 2.0", "FACTOR = 3.0", {"mine.steps"}),
    "a default": ("mine/steps.py", '("jpeg", "png")', '("jpeg", "gif")', {"mine.steps"}),
    "a method of the class before": ("mine/steps.py", "* self.gain", "/ self.gain", {"mine.steps"}),
    "an attribute of a class": ("mine/steps.py", "gain = 1.5", "gain = 1.6", {"mine.steps"}),
    "the decorator": ("mine/steps.py", "return function(*arguments)", "function(*arguments)", {"mine.steps"}),
    "what a library decorates": ("mine/steps.py", "value + 5", "value + 6", {"mine.steps"}),
    "what a library wraps": ("mine/steps.py", "value - 5", "value - 6", {"mine.steps"}),
    "a table": ("mine/tables.py", "1.0", "2.0", {"mine.steps"}),
    "a helper of a helper": ("helper.py", "value + 1", "value + 2", {"helper"}),
    "a module that is imported late": ("mine/late.py", "return value", "return -value", {"mine.late"}),
    "a comment": ("mine/steps.py", "FACTOR = 2.0", "# Twice.\n\nFACTOR = 2.0  # times", set()),
    "what nobody calls": ("mine/colours.py", "return 1", "return 2", set()),
    "a library": ("site-packages/their_lib.py", "return value", "return -value", set()),
}


def written(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def edited(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    importlib.invalidate_caches()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that no other test has imported."""
    written(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for place in ("site-packages", ""):
        monkeypatch.syspath_prepend(tmp_path / place)
    yield tmp_path
    forgotten()


def forgotten() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in {"mine", "helper", "their_lib"}]:
        del sys.modules[name]


def code() -> dict[str, str]:
    steps: ModuleType = importlib.import_module("mine.steps")
    return code_of([steps.step])


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_counts_once_it_is_imported_and_where_it_can_make_a_difference(edit: str, mine: Path) -> None:
    name, old, new, modules = EDITS[edit]
    before = code()
    assert set(before) == {"mine.steps", "mine.colours", "mine.late", "helper"}
    edited(mine, name, old, new)
    assert code() == before
    forgotten()
    after = code()
    assert {module for module in after if after[module] != before.get(module)} == modules


def test_functions_of_one_name_are_told_apart(mine: Path) -> None:
    path = mine / "pair.py"
    path.write_text("one, two = (lambda x: x + 1), (lambda x: x + 2)\ndef step(x):\n    return one(x) / two(x)\n")
    before = code_of([importlib.import_module("pair").step])
    del sys.modules["pair"]
    path.write_text("two, one = (lambda x: x + 1), (lambda x: x + 2)\ndef step(x):\n    return one(x) / two(x)\n")
    after = code_of([importlib.import_module("pair").step])
    del sys.modules["pair"]
    assert before.keys() == after.keys() == {"pair"}
    assert before != after


def test_it_is_the_same_in_all_processes_and_folders(tmp_path: Path) -> None:
    """Compiled anew or read from a .pyc, with other hashes of strings, in another checkout."""
    command = "import json; from etlrun.graph.code import code_of; from mine.steps import step; "
    command += "print(json.dumps(code_of([step])))"
    found = []
    for folder, hash_seed in (("one", "1"), ("one", "2"), ("deeper/other", "3")):
        place = tmp_path / folder
        if not place.exists():
            written(place)
        path = os.pathsep.join([str(place), str(place / "site-packages"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert list(place.rglob("mine/__pycache__/steps.*.pyc"))
        found.append(json.loads(done.stdout))
    assert len(found[0]) == 4
    assert found[0] == found[1] == found[2]


def passes_of(folder: Path) -> list[str]:
    passes: list[str] = summary_of(folder)["cache"]["pipelines"]["train"]["passes"]
    return passes


def test_an_edit_while_a_sweep_runs_is_another_cache_for_later_runs(tiny: Path, tmp_path: Path) -> None:
    """All jobs of a sweep are made by the code that it began with, whatever the files say by then."""
    checkout = tmp_path / "checkout"
    for name in ("etlrun", "conf"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    quick = ("model.step_ms=0", "dataset.eval_split=null", "measure.digest=true", "load.shuffle_buffer=0")
    words = emulated(tiny, "cache=disk", f"cache.dir={tmp_path / 'caches'}", *quick)
    sweep, after, last = tmp_path / "sweep", tmp_path / "after", "dataset.split='train[:20]'"
    splits = "dataset.split='train[:16]','train[:20]'"
    process = start(["-m", *words, splits, f"hydra.sweep.dir={sweep}"], tmp_path, PYTHONPATH=str(checkout))
    deadline = time.monotonic() + 240
    while not (sweep / "0" / "plan.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    edited(checkout, "etlrun/stages/image.py", "tf.round(image) if", "255.0 - tf.round(image) if")
    status, _, err = finish(process)
    assert status == 0, err
    status, _, err = finish(start([*words, last, f"hydra.run.dir={after}"], tmp_path, PYTHONPATH=str(checkout)))
    assert status == 0, err
    assert [passes_of(folder) for folder in (sweep / "1", after)] == [["filled"], ["filled"]]
    by_old_code, by_new_code = (summary_of(folder)["epochs"][0]["digest"] for folder in (sweep / "1", after))
    assert by_old_code != by_new_code
