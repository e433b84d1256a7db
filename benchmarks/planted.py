"""Pipelines whose bottleneck is known because it was put there: does the verdict find it, and what removing it gains?

    python benchmarks/planted.py [--runs 20] [--only NAME...] [--output FILE, to which a table is added]

Each run is a real one, of `etlrun.run`, on JPEGs of the sample dataset, which TensorFlow decodes, with an emulated
accelerator. A plant is a sleep in the function of a real stage, or a real value of the config. Planted and mended runs
take turns; the gain that is predicted from the planted run alone is compared with the times of the two. (A map that is
serial waits for a function that sleeps in powers of two milliseconds, which is TensorFlow's doing: 3 ms become 4.)

Runs on texts have batches of five lengths, whose steps sleep a millisecond for each item: in buckets, or padded up to
the longest text of each batch. The accelerator utilization (AU) of the planted run is compared with the time for which
its steps were told to sleep.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from etlrun.config.request import Request, composed
from etlrun.graph import datasets
from etlrun.record.record import Record
from etlrun.record.summary import read_summary
from etlrun.run import fit, run
from etlrun.sources.base import Split
from etlrun.stages.columns import Columns
from etlrun.stages.image import CenterCrop, Decode, RandomFlip, Resize, Turbo
from etlrun.stages.step import Parse

BASE = {
    "dataset.split": "'train[:640]'",
    "dataset.eval_split": "null",
    "cache": "none",
    "load.batch_size": "8",
    "load.shuffle_buffer": "16",
    "load.drop_remainder": "true",
    "transform.decode.library": "tensorflow",
    "transform.num_parallel_calls": "2",
    "extract.num_parallel_calls": "2",
    "model": "emulated",
    "model.step_ms": "20",
    "model.eval_step_ms": "20",
    "trainer.epochs": "1",
    "trainer.device": "cpu",
}
LENGTHS, EACH = (4, 8, 16, 32, 64), 128
"""Items of texts, and texts of each length."""
TEXTS = {
    "experiment": "text",
    "dataset.target": "{score: class}",
    "dataset.split": "train",
    "dataset.eval_split": "null",
    "transform.columns": "{review: {of: review, steps: [{tokenize: whitespace}, lookup, {embed: 4}]}}",
    "transform.num_parallel_calls": "2",
    "load.batch_size": "8",
    "load.boundaries": f"[{','.join(map(str, LENGTHS))}]",
    "model": "emulated",
    "trainer.epochs": "1",
    "trainer.device": "cpu",
}
PADDED = {"load": "padded", "load.boundaries": ""}
WITHIN = 0.15
CLOSE_ENOUGH = 0.95
TRAINING, FIRST_EPOCH, VALIDATION = "training", "first epoch", "validation"


@dataclass(frozen=True)
class Plant:
    """A pipeline, what was put into it, and what it should be found to be.

    Attributes:
        kind: Of the verdict; `stage` that it should name.
        part: `training` of all epochs but the first, or the part that the verdict should name apart.
        config: Overrides of both runs.
        planted: Overrides of the planted run alone.
        mended: Overrides of the mended run alone.
        sleeps_ms: Per example, by the kind of the step, or by one of `READ`, `THROTTLED`, `LOCK`, `HELD` and `TURNS`;
            planted run alone.
        always_ms: The same, in both runs.
        fewer: Key of parallel calls of which the advice should say that fewer are as fast; no advice does otherwise.
        base: Overrides of both runs on other data than the sample.
    """

    kind: str
    stage: str | None = None
    part: str = TRAINING
    config: dict[str, str] = field(default_factory=dict)
    planted: dict[str, str] = field(default_factory=dict)
    mended: dict[str, str] = field(default_factory=dict)
    sleeps_ms: dict[Any, float] = field(default_factory=dict)
    always_ms: dict[Any, float] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    fewer: str = ""

    @property
    def in_both(self) -> dict[str, str]:
        """Overrides of both runs."""
        return {**self.base, **self.config}


READ, THROTTLED, LOCK, HELD, TURNS = "read", "throttled", "lock", "held", "turns"
"""A record that takes so long, or that times the square of the records at a time; a native decoder that holds
Python's lock so long; a resize that does, or that sleeps while others wait for it to end."""
FEWER = re.compile(r"(\w+\.num_parallel_calls)=\d+(?:: the pipeline alone is| is as fast as)")
"""What advice says of fewer calls, with their key."""
STEPS = (CenterCrop, Decode, Parse, RandomFlip, Resize)
"""Steps that can be planted to sleep."""
EVAL_STEPS = "[decode,center_crop,resize,scale_minus_one_one]"
PLANTS: dict[str, Plant] = {
    "slow storage": Plant("input", "extract.interleave", sleeps_ms={READ: 6.5}),
    "slow storage, one file after the other": Plant(
        "input",
        "extract.sequential",
        config={"extract": "sequential", "extract.num_parallel_calls": ""},
        sleeps_ms={READ: 3.0},
    ),
    "cycle length 1 on slow files": Plant(
        "input",
        "extract.interleave",
        planted={"extract.cycle_length": "1", "extract.num_parallel_calls": "1"},
        mended={"extract.cycle_length": "4", "extract.num_parallel_calls": "4"},
        always_ms={READ: 3.0},
    ),
    "slow parse": Plant("input", "transform.parse", sleeps_ms={Parse: 8.0}),
    "slow decode": Plant("input", "transform.decode", sleeps_ms={Decode: 8.0}),
    "slow decode, AUTOTUNE": Plant(
        "input",
        "transform.decode",
        config={"transform.num_parallel_calls": "autotune", "extract.num_parallel_calls": "autotune"},
        sleeps_ms={Decode: 8.0},
    ),
    "native decoding that holds Python's lock": Plant(
        "input", "transform.turbo", config={"transform.decode.library": "turbo"}, sleeps_ms={LOCK: 8.0}
    ),
    "Python's lock, 16 calls": Plant(
        "input",
        "transform.resize",
        planted={"transform.num_parallel_calls": "16"},
        mended={"transform.num_parallel_calls": "2"},
        sleeps_ms={HELD: 8.0},
        fewer="transform.num_parallel_calls",
    ),
    "calls that take turns, 16 calls": Plant(
        "input",
        "transform.resize",
        planted={"transform.num_parallel_calls": "16"},
        mended={"transform.num_parallel_calls": "2"},
        sleeps_ms={TURNS: 4.0},
        fewer="transform.num_parallel_calls",
    ),
    "a store that throttles, 8 calls": Plant(
        "input",
        "extract.interleave",
        config={"extract.cycle_length": "8"},
        planted={"extract.num_parallel_calls": "8"},
        mended={"extract.num_parallel_calls": "1"},
        always_ms={THROTTLED: 2.0},
        fewer="extract.num_parallel_calls",
    ),
    "two slow steps, one slower": Plant("input", "transform.resize", sleeps_ms={Parse: 2.0, Resize: 8.0}),
    "slow augmentation": Plant(
        "input",
        "transform.random_flip",
        config={"transform.steps": "[decode,resize,random_flip,scale_minus_one_one]"},
        sleeps_ms={RandomFlip: 8.0},
    ),
    "large pictures, real work": Plant(
        "input",
        "transform.resize",
        planted={"transform.resize.size": "[640,640]", "transform.resize.antialias": "true"},
    ),
    "serial map": Plant(
        "input",
        "transform.map",
        planted={"transform.num_parallel_calls": "null"},
        mended={"transform.num_parallel_calls": "2"},
        always_ms={Decode: 3.0},
    ),
    "prefetch 0": Plant(
        "input",
        "load.prefetch",
        config={"load.num_parallel_calls": "null"},  # batches that are put together in parallel are prefetched, too
        planted={"load.prefetch": "0"},
        mended={"load.prefetch": "2"},
        always_ms={Decode: 2.5},
    ),
    "prefetch 0 and a serial map": Plant(
        "input",
        "load.prefetch",
        config={"transform.num_parallel_calls": "null", "load.num_parallel_calls": "null"},
        planted={"load.prefetch": "0"},
        mended={"load.prefetch": "2"},
        always_ms={Decode: 0.8},
    ),
    "a shuffle buffer larger than its source": Plant(
        "input",
        "load.shuffle",
        config={"load.shuffle_at": "before_batch"},  # a buffer of records is filled at once
        planted={"load.shuffle_buffer": "1024"},
        mended={"load.shuffle_buffer": "16"},
        always_ms={Decode: 2.5},
    ),
    "cold first epoch, cached later ones": Plant(
        "input",
        "transform.decode",
        part=FIRST_EPOCH,
        config={"cache": "memory", "trainer.epochs": "2"},
        sleeps_ms={Decode: 8.0},
    ),
    "an expensive step before a disk cache": Plant(
        "input",
        "transform.resize",
        part=FIRST_EPOCH,
        config={"cache": "disk", "trainer.epochs": "2"},
        sleeps_ms={Resize: 8.0},
    ),
    "eval only": Plant(
        "input",
        "transform.center_crop",
        part=VALIDATION,
        config={"dataset.eval_split": "'train[880:]'", "transform.eval_steps": EVAL_STEPS},
        sleeps_ms={CenterCrop: 8.0},
    ),
    "slow model": Plant("model", config={"model.step_ms": "40"}),
    "balanced": Plant("balanced", sleeps_ms={Decode: 3.6}),
    "steps of five lengths, slow model": Plant("model", base=TEXTS),
    "steps of five lengths, slow columns": Plant("input", "transform.columns", sleeps_ms={Columns: 80.0}, base=TEXTS),
    "padded texts, slow model": Plant("model", config=PADDED, base=TEXTS),
    "padded texts, slow columns": Plant(
        "input", "transform.columns", config=PADDED, sleeps_ms={Columns: 160.0}, base=TEXTS
    ),
}


def _slept(value: tf.Tensor, ms: float) -> tf.Tensor:
    def sleep() -> np.int64:
        time.sleep(ms / 1000)
        return np.int64(0)

    with tf.control_dependencies([tf.numpy_function(sleep, [], tf.int64)]):
        return tf.identity(value)


def _held(value: tf.Tensor, ms: float) -> tf.Tensor:
    def compute() -> np.int64:
        until_s = time.thread_time() + ms / 1000
        while time.thread_time() < until_s:
            pass
        return np.int64(0)

    with tf.control_dependencies([tf.numpy_function(compute, [], tf.int64)]):
        return tf.identity(value)


def _in_turns(value: tf.Tensor, ms: float, turn: threading.Lock) -> tf.Tensor:
    def sleep() -> np.int64:
        with turn:
            time.sleep(ms / 1000)
        return np.int64(0)

    with tf.control_dependencies([tf.numpy_function(sleep, [], tf.int64)]):
        return tf.identity(value)


def _throttled(read: Callable[..., tf.data.Dataset], ms: float) -> Callable[..., tf.data.Dataset]:
    at_once = list[None]()

    def sleep() -> np.int64:
        at_once.append(None)
        time.sleep(ms / 1000 * len(at_once) ** 2)
        at_once.pop()
        return np.int64(0)

    def waited(record: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(sleep, [], tf.int64)]):
            return tf.identity(record)

    return lambda split, *shard: read(split, *shard).map(waited)


def _slow_step(
    make: Callable[..., Any], where: type, ms: float, slept: Callable[[tf.Tensor, float], tf.Tensor] = _slept
) -> Callable[..., Any]:
    def made(stage: Any, context: Any) -> Any:
        step = make(stage, context)
        if type(stage) is not where:
            return step

        def slow(example: Any) -> Any:
            if isinstance(example, dict):
                name = "image" if "image" in example else next(iter(example))
                return step({**example, name: slept(example[name], ms)})
            return step(slept(example, ms))

        return slow

    return made


def _slow_read(read: Callable[..., tf.data.Dataset], ms: float) -> Callable[..., tf.data.Dataset]:
    return lambda split, *shard: read(split, *shard).map(lambda record: _slept(record, ms))


def _locked(op: Callable[..., Any], ms: float) -> Callable[..., Any]:
    """A native decoder that holds Python's lock for so long an image."""

    def held(given: Any, **arguments: Any) -> Any:
        end_s = time.perf_counter() + ms / 1000 * len(given)
        while time.perf_counter() < end_s:
            pass
        return op(given, **arguments)

    return held


def _slept_by_length(slept_s: list[float]) -> Callable[[float], Callable[[Any], dict[str, Any]]]:
    """Steps that sleep a millisecond for each item of the longest text, and add that to `slept_s`."""

    def step(batches: Any) -> dict[str, Any]:
        inputs, *_ = next(batches)
        slept_s.append(0.001 * max(of.shape[1] for of in tf.nest.flatten(inputs) if of.shape.rank > 1))
        time.sleep(slept_s[-1])
        return {}

    return lambda _seconds: step


def write_texts(path: Path) -> None:
    """Write texts of all lengths in turns, of words that are drawn."""
    words = np.random.default_rng(0).choice(("good", "bad", "tea", "dog"), (EACH, max(LENGTHS)))
    rows = [{"review": " ".join(of[:length]), "score": of[0]} for of in words for length in LENGTHS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def planted(sleeps_ms: dict[Any, float]) -> Iterator[None]:
    """Stages that sleep before they work."""
    with ExitStack() as stack:
        for where, ms in sleeps_ms.items():
            if where == READ:
                stack.enter_context(mock.patch.object(Split, "read", _slow_read(Split.read, ms)))
            elif where == THROTTLED:
                stack.enter_context(mock.patch.object(Split, "read", _throttled(Split.read, ms)))
            elif where in (HELD, TURNS):
                how = _held if where == HELD else partial(_in_turns, turn=threading.Lock())
                stack.enter_context(
                    mock.patch.object(datasets, "applied", _slow_step(datasets.applied, Resize, ms, how))
                )
            elif where == LOCK:
                stack.enter_context(mock.patch.object(Turbo, "op", staticmethod(_locked(Turbo.op, ms))))
            else:
                slow = _slow_step(datasets.applied, where, ms)
                stack.enter_context(mock.patch.object(datasets, "applied", slow))
        yield


def run_once(overrides: dict[str, str], sleeps_ms: dict[Any, float]) -> dict[str, Any]:
    """The summary of one run, and as `planted_au` the AU of its steps as they were told to sleep, without the first."""
    quiet, slept_s = (redirect_stdout(StringIO()), redirect_stderr(StringIO())), list[float]()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for context in (planted(sleeps_ms), *quiet):
            stack.enter_context(context)
        settings = {**({} if "experiment" in overrides else BASE), **overrides, "cache.dir": f"{folder}/caches"}
        if "experiment" in overrides:
            write_texts(Path(folder) / "texts.jsonl")
            settings |= {"dataset.files": f"{folder}/texts.jsonl", "dataset.dir": f"{folder}/kept"}
            stack.enter_context(mock.patch.object(fit, "_slept", _slept_by_length(slept_s)))
        words = [f"{key}={value}" for key, value in settings.items() if value]
        Record.create(Path(folder), composed(Request(overrides=words)), words)
        status = run.run(Path(folder))
        summary = read_summary(Path(folder))
    if status or summary is None:
        raise RuntimeError(str(summary))
    steps = sum(epoch.steps for epoch in summary.epochs)
    slept_s = slept_s[:steps] or [float(settings["model.step_ms"]) / 1000] * steps
    trained_s = sum(epoch.wall_s - epoch.startup_s for epoch in summary.epochs)
    return {**summary.written, "planted_au": sum(slept_s[1:]) / trained_s}


def seconds(summary: dict[str, Any], part: str) -> float:
    """Of the steps of a part of the run, without the start-up."""
    first, *others = summary["epochs"]
    if part == VALIDATION:
        return float(first["validation_s"] - first["validation_startup_s"])
    epochs = [first] if part == FIRST_EPOCH else others or [first]
    return float(sum(epoch["wall_s"] - epoch["startup_s"] for epoch in epochs))


def found(verdict: dict[str, Any], part: str) -> tuple[str, str | None, float]:
    """Kind, stage and gain that a verdict has for a part of the run."""
    if part == TRAINING:
        return verdict["kind"], verdict["stage"], verdict["max_gain"] or float("nan")
    (of,) = (of for of in verdict["apart"] if of["name"] == part)
    return "input" if of["stage"] else "model", of["stage"], of["max_gain"]


def measure(plant: Plant, runs: int, name: str) -> list[Any]:
    """A row of the table."""
    right, predicted, real, aus = 0, [], [], []
    for number in range(runs):
        mended = run_once({**plant.in_both, **plant.mended}, plant.always_ms)
        bad = run_once({**plant.in_both, **plant.planted}, {**plant.always_ms, **plant.sleeps_ms})
        aus.append((bad["au"], bad["planted_au"]))
        kind, stage, guess = found(bad["verdict"], plant.part)
        fewer = [*FEWER.findall(bad["verdict"]["advice"] or "")]
        is_right = (kind, stage, fewer) == (plant.kind, plant.stage, [plant.fewer] if plant.fewer else [])
        right += is_right
        gain = seconds(bad, plant.part) / seconds(mended, plant.part)
        real.append(gain)
        predicted.append(guess)
        if not is_right or abs(guess / gain - 1) > WITHIN:
            print(f"{name} {number}: {bad['verdict']}, gain {gain:.3f}, stages {bad['stages']}", file=sys.stderr)
    near = sum(abs(guess / gain - 1) <= WITHIN for guess, gain in zip(predicted, real, strict=True))
    told = ("" if plant.part == TRAINING else plant.part, "fewer calls" if plant.fewer else "")
    expected = ", ".join(filter(None, (plant.kind, plant.stage, *told)))
    nears = "-" if plant.fewer else f"{near}/{runs}"  # what waits is not what fewer calls gain
    gains = [f"{statistics.median(of):.2f}" for of in (predicted, real)]
    shares = (
        ["-"] * 2 if plant.part == VALIDATION else [f"{statistics.median(of):.2f}" for of in zip(*aus, strict=True)]
    )
    return [name, expected, f"{right}/{runs}", *gains, nears, *shares, right, near]


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=sorted(PLANTS))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    run_once({}, {})
    head = ["pipeline", "truth", "found", "gain predicted", "gain when mended", f"within {WITHIN:.0%}"]
    head += ["AU", "AU as planted"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    totals = [0, 0, 0]
    for name in arguments.only or PLANTS:
        *row, right, near = measure(PLANTS[name], arguments.runs, name)
        lines.append(f"| {' | '.join(row)} |")
        totals = [totals[0] + arguments.runs, totals[1] + right, totals[2] + near]
        print(lines[-1], flush=True)
    runs, right, near = totals
    table = "\n".join([*lines, f"| all | | {right}/{runs} | | | {near}/{runs} | | |"]) + "\n"
    print(table)
    if arguments.output:
        command = f"python benchmarks/planted.py --runs {arguments.runs}"
        only = " ".join(f"'{name}'" for name in arguments.only or [])
        title = f"`{command}{' --only ' if only else ''}{only}` on 2 cores, TensorFlow {tf.__version__}"
        before = f"{arguments.output.read_text()}\n" if arguments.output.exists() else ""
        arguments.output.write_text(f"{before}{title}\n\n{table}")


if __name__ == "__main__":
    main()
