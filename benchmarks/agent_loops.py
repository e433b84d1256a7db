"""Can a program mend configs by what etlrun prints? A script without judgement mends 30 of them, by JSON alone.

    python -m benchmarks.agent_loops --output benchmarks/results/agent_loops.md [NAME...]

Each loop begins with a project whose config has a fault or is slow. The script reads exit statuses and JSON, and never
a sentence: it checks, sets the overrides that faults offer, trains for a short time, sets the overrides of the verdict
or of the decision of a sweep, and compares with the beginning. Where a person is asked to decide it takes what is
offered first, and counts it. A loop has ended well if `check` finds no fault, the run has completed, `diff` says what
has changed, and the config is the one that the sweep decided for.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

_MOST_STEPS = 14
_GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
Block = dict[str, Any]


@dataclass(frozen=True)
class Loop:
    """A beginning.

    Attributes:
        base: Key of `BASES`.
        fault: What is wrong, in words.
        values: Values of the config, beside those of the base.
        options: Options of the config by group, beside those of the base.
        sweep: Overrides of the sweep with which it begins; none for a run.
        advised: Whether a sweep compares what the verdict of the run advises, if it does, in the place of `sweep`.
        prepare: Name of the function that changes the data; empty for none.
    """

    base: str
    fault: str
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    sweep: tuple[str, ...] = ()
    advised: bool = False
    prepare: str = ""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.base}_{self.fault}".replace(" ", "_").replace(",", "")


@dataclass
class End:
    """How a loop has ended.

    Attributes:
        steps: Commands that were run.
        decided: Decisions that a person would have made.
        mended: Overrides that were set.
        words: What is not sound; empty if all is.
    """

    steps: int = 0
    decided: int = 0
    mended: list[str] = field(default_factory=list)
    words: str = ""


class Stuck(Exception):  # noqa: N818 - no error
    """Nothing is offered, or nothing helps."""


_ROWS: Block = {
    "trainer.epochs": 2,
    "load.batch_size": 16,
    "dataset.files": "rows.csv",
    "dataset.inputs": ["area", "rooms"],
}
BASES: dict[str, tuple[dict[str, str], Block]] = {
    "folder": (
        {"dataset": "folder", "model": "emulated"},
        {"dataset.dir": "photos", "trainer.epochs": 2, "load.batch_size": 8},
    ),
    "tfds": (
        {"model": "emulated"},
        {"trainer.epochs": 1, "dataset.split": "train[:64]", "dataset.eval_split": "train[64:96]"},
    ),
    "table": (
        {"dataset": "table", "extract": "sequential", "transform": "columns", "cache": "none", "model": "tabular"},
        {**_ROWS, "dataset.target": {"kind": "class"}},
    ),
    "text": (
        {
            "dataset": "table",
            "extract": "sequential",
            "transform": "columns",
            "cache": "none",
            "load": "bucketed",
            "model": "text",
        },
        {**_ROWS, "dataset.target": {"kind": "class"}, "dataset.inputs": ["note"]},
    ),
}
_LONGER: Block = {"trainer.epochs": 3, "load.batch_size": 8, "dataset.split": "train[:320]", "model.step_ms": 1.0}
LOOPS = (
    Loop("folder", "a misspelled key", {"load.prefech": 2}),
    Loop("folder", "a text for a number", {"load.batch_size": "many"}),
    Loop("folder", "an option that is not there", options={"cache": "memry"}),
    Loop("folder", "a broken image", prepare="broken"),
    Loop("folder", "a batch larger than the split", {"load.batch_size": 512, "load.drop_remainder": True}),
    Loop("tfds", "a split that is not there", {"dataset.split": "trian"}),
    Loop("tfds", "several hosts with other batches", {"trainer.devices": 3, "load.batch_size": 32}),
    Loop("tfds", "a loss of numbers", {"trainer.loss": "mean_squared_error"}, {"model": "mobilenet_v2_small"}),
    Loop("tfds", "no cache", {**_LONGER}, {"cache": "none"}, sweep=("cache=none,memory",)),
    Loop("tfds", "no prefetch", {**_LONGER, "load.prefetch": 0}, sweep=("load.prefetch=0,autotune",), advised=True),
    Loop("table", "a misspelled column", {"dataset.inputs": ["area", "romos"]}),
    Loop("table", "a column that is not there", {"dataset.inputs": ["area", "rooms", "weight"]}),
    Loop("table", "a target without its kind", {"dataset.target": "kind"}),
    Loop("table", "texts as a number", {"dataset.target": {"kind": "number"}}),
    Loop("table", "a metric of numbers", {"trainer.metrics": ["mae"]}),
    Loop("table", "a key of another option", {"cache.codec": "jpeg90"}),
    Loop("table", "a negative number of epochs", {"trainer.epochs": -1}),
    Loop("table", "a misspelled optimizer", {"trainer.optimizer": "adamm"}),
    Loop("table", "a sweep without repeats", sweep=("trainer.learning_rate=0.01,0.0001",)),
    Loop(
        "table",
        "several faults at once",
        {"load.prefech": 2, "trainer.epochs": 0, "trainer.loss": "mean_squared_error"},
    ),
    Loop(
        "text",
        "a column of numbers as text",
        {"dataset.inputs": ["note", "area"], "transform.columns": {"area": ["tokenize"]}},
    ),
    Loop("text", "a batch in buckets with a cache", options={"cache": "memory"}),
    Loop("text", "an unknown file", {"dataset.files": "row.csv"}),
    Loop("text", "a misspelled group", {"trainr": {"epochs": 1}}),
    Loop("text", "a text for a truth", {"load.drop_remainder": "sometimes"}),
    Loop(
        "text",
        "a monitor that is not measured",
        {"trainer.early_stopping.patience": 1, "trainer.early_stopping.monitor": "val_mae"},
    ),
    Loop(
        "text",
        "weights of classes and balanced samples",
        {"load.class_weights": "balanced", "load.sample": "balanced"},
        {"load": "shuffled"},
    ),
    Loop("text", "a dropout above 1", {"model.dropout": 1.5}),
    Loop("text", "epochs in phases", {"trainer.phases": [{"epochs": 1}]}),
    Loop("text", "a sweep without repeats", sweep=("model.units=8,64",)),
)


def main() -> None:
    """Run the loops, two at a time, and write a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="loops whose names begin so")
    known = parser.parse_args()
    loops = [loop for loop in LOOPS if not known.names or loop.name.startswith(tuple(known.names))]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(known.jobs) as pool:
        ends = [*pool.map(lambda loop: _ended(loop, Path(scratch, loop.name)), loops)]
    text = _table(loops, ends, time.perf_counter() - began)
    if known.output is None:
        sys.stdout.write(text)
    else:
        known.output.write_text(text, encoding="utf-8")


def _ended(loop: Loop, folder: Path) -> End:
    end = End()
    try:
        _Agent(loop, folder, end).mend()
    except Stuck as stuck:
        end.words = str(stuck)
    sys.stderr.write(f"{loop.name}: {end}\n")
    return end


class _Agent:
    """A program that follows a loop."""

    def __init__(self, loop: Loop, folder: Path, end: End) -> None:
        self.loop, self.folder, self.end = loop, folder, end
        self.file = folder / "conf/experiment/loop.yaml"
        self.file.parent.mkdir(parents=True)
        options, values = BASES[loop.base]
        config: Block = {
            "defaults": [{f"override /{group}": name} for group, name in (options | {**loop.options}).items()]
        }
        for key, value in {**values, **loop.values}.items():
            _put(config, key.split("."), value)
        self._write(config)
        self.begun = self._config()
        _draw(folder / "photos")
        _fill(folder / "rows.csv")
        if loop.prepare == "broken":
            (folder / "photos/red/3.jpg").write_bytes(b"no image")
        (folder / ".gitignore").write_text("runs\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
            subprocess.run(["git", *words], cwd=folder, check=True, env=os.environ | _GIT)  # noqa: S607

    def mend(self) -> None:
        """Mend the config, and prove it; `Stuck` if that is not possible."""
        self._until_sound(lambda: self._etlrun("check", "--json"))
        ran = self._until_sound(self._run)
        if self.loop.advised and (words := ran["verdict"]["overrides"]):
            key, _, value = words[0].partition("=")
            self._sweep((f"{key}={self._now(key)},{value}", *words[1:]))
        elif self.loop.sweep:
            self._sweep(self.loop.sweep)
        status, checked = self._etlrun("check", "--json")
        if status or checked["faults"]:
            raise Stuck("the check has faults at the end")
        if self.loop.sweep or self.loop.advised:
            self._until_sound(self._run)
        if self._config() == self.begun:
            return
        status, differs = self._etlrun("diff", "HEAD", "--json")
        (found,) = (of for of in differs["experiments"] if of["name"] == "loop")
        was_faulty = found["faults"] and all(of["file"] and of["file"].startswith("HEAD:") for of in found["faults"])
        if status != 2 * bool(was_faulty) or not (found["differences"] or (was_faulty and differs["files"])):
            raise Stuck(f"diff ended with {status} and says nothing of what changed: {differs.get('error')}")

    def _run(self) -> tuple[int, Block]:
        folder = f"hydra.run.dir=runs/{self.end.steps}"
        return self._etlrun("experiment=loop", folder, "--json", "--quiet")

    def _until_sound(self, command: Callable[[], tuple[int, Block]]) -> Block:
        """Repeat a command, and set what its faults offer, until it ends well; return its answer."""
        status, found = command()
        while status:
            before = self.file.read_text()
            for fault in found.get("faults") or []:
                self.end.decided += fault["decide"]
                if fault["overrides"]:
                    self._set(fault["overrides"][0])
            if self.file.read_text() == before:
                raise Stuck(f"status {status}, nothing is offered: {found.get('error') or found.get('faults')}")
            status, found = command()
        return found

    def _sweep(self, words: Sequence[str]) -> None:
        """Run a sweep, again with what its decision needs, and set what it decides."""
        answer = self._swept(words)
        if answer["decision"]["again"]:
            answer = self._swept([*words, *answer["decision"]["again"]])
        decided = answer["decision"]
        self.end.decided += decided["decide"]
        self._set([word for word in decided["overrides"] if not word.startswith(("experiment=", "sweep."))])

    def _swept(self, words: Sequence[str]) -> Block:
        folder = f"hydra.sweep.dir=runs/{self.end.steps}"
        status, found = self._etlrun("-m", "experiment=loop", *words, folder, "--json", "--quiet")
        if status:
            raise Stuck(f"the sweep ended with {status}: {found.get('error')}")
        return found

    def _etlrun(self, *words: str) -> tuple[int, Block]:
        self.end.steps += 1
        if self.end.steps > _MOST_STEPS:
            raise Stuck(f"more than {_MOST_STEPS} steps")
        done = subprocess.run(
            [sys.executable, "-m", "etlrun", *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        try:
            found: Block = json.loads(done.stdout)
        except ValueError:
            raise Stuck(f"no JSON of {' '.join(words)}: {done.stdout[:200]}{done.stderr[-400:]}") from None
        return done.returncode, found

    def _now(self, key: str) -> str:
        """Return the value of a key, or the option of a group, as the file has it."""
        config = self._config()
        chosen = {group.removeprefix("override /"): name for of in config["defaults"] for group, name in of.items()}
        found: Any = config
        for name in key.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return str(chosen.get(key, found))

    def _set(self, words: Sequence[str]) -> None:
        """Set overrides in the file, as Hydra would behind it."""
        config = self._config()
        for word in words:
            key, _, text = word.lstrip("+~").partition("=")
            value = yaml.safe_load(text)
            if word.startswith("~"):
                _remove(config, key.split("."))
            elif "." in key or isinstance(value, dict):
                _put(config, key.split("."), value)
            else:
                others = [of for of in config["defaults"] if f"override /{key}" not in of]
                config["defaults"] = [*others, {f"override /{key}": text}]
        self._write(config)
        self.end.mended += words

    def _config(self) -> Block:
        found: Block = yaml.safe_load(self.file.read_text())
        return found

    def _write(self, config: Block) -> None:
        self.file.write_text(f"# @package _global_\n{yaml.safe_dump(config, sort_keys=False)}")


def _put(block: Block, keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        block = block.setdefault(key, {})
    block[keys[-1]] = value


def _remove(block: Block, keys: Sequence[str]) -> None:
    for key in keys[:-1]:
        block = block.get(key, {})
    block.pop(keys[-1], None)


def _draw(folder: Path) -> None:
    """Draw 24 images of each of two classes."""
    noise = np.random.default_rng(0)
    for place, name in enumerate(("red", "blue")):
        (folder / name).mkdir(parents=True)
        for number in range(24):
            pixels = noise.integers(0, 90, (40, 40, 3))
            pixels[..., 2 * place] += 150
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.jpg")


def _fill(file: Path) -> None:
    """Write 240 rows with two numbers, a text and a class that both tell."""
    noise = np.random.default_rng(0)
    lines = ["area,rooms,note,kind"]
    for row in range(240):
        is_good = row % 3 > 0
        words = noise.choice(["fine", "great", "warm"] if is_good else ["bad", "poor", "cold"], 3)
        numbers = f"{noise.normal() + is_good:.3f},{noise.normal():.3f}"
        lines.append(f"{numbers},{' '.join(words)} {row},{'good' if is_good else 'bad'}")
    file.write_text("\n".join(lines) + "\n")


def _table(loops: Sequence[Loop], ends: Sequence[End], wall_s: float) -> str:
    head = [
        "| dataset | what is wrong | commands | decisions asked | overrides set | end |",
        "| --- | --- | --: | --: | --- | --- |",
    ]
    rows = [
        f"| {loop.base} | {loop.fault} | {end.steps} | {end.decided} | {', '.join(f'`{of}`' for of in end.mended)} "
        f"| {end.words.replace('|', '/') or 'sound'} |"
        for loop, end in zip(loops, ends, strict=True)
    ]
    sound = sum(not end.words for end in ends)
    decided, asked = sum(end.decided for end in ends), sum(bool(end.decided) for end in ends)
    told = (
        f"{sound} of {len(loops)} loops end with a sound config, after {sum(end.steps for end in ends)} commands in "
        f"{wall_s / 60:.0f} minutes on {os.cpu_count()} cores; a person decides {decided} times, in {asked} of them."
    )
    return (
        "\n".join(["# Loops of a program", "", "<!-- python -m benchmarks.agent_loops -->", "", told, "", *head, *rows])
        + "\n"
    )


if __name__ == "__main__":
    main()
