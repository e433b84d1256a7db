"""Runs on a machine with an NVIDIA GPU, by Keras's JAX backend: the exercise, steps, and what has to be equal.

KERAS_BACKEND=jax python -m benchmarks.gpu FOLDER --data-dir DIR --tables DIR [--parts PART...] [OVERRIDE...]
python -m benchmarks.gpu FOLDER --output benchmarks/results/gpu.md

The first runs the parts, each run as a process of its own with its folder and its log in FOLDER; one that takes longer
than `--limit-s` is ended. The second writes the tables of the runs in FOLDER, on any machine.

seen      how the GPU is seen by the backends, profiles, evaluation and a sweep
exercise  its pipelines and what comes after them, one after the other, over all photos
steps     models, batches and precisions, one after the other, photos from memory
equal     the same trainings on the GPU, on the CPU of the machine, and on the GPU again, all at a time
kills     trainings that are killed inside an epoch and resumed, beside undisturbed ones, all at a time

Steps are compiled (`trainer.jit_compile=auto`) unless a row says otherwise. Keras finds its ImageNet weights below
KERAS_HOME.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks import gpu_tables
from benchmarks.run_kills import BASE, variables

ALONE = ("seen", "exercise", "steps")
"""Parts whose runs have the machine for themselves."""
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
DETERMINISTIC = {**SHARED, "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
PHOTOS = ("experiment=cats_vs_dogs", "dataset.split=train", "dataset.eval_split=null")
STEPS = (*PHOTOS, "load.drop_remainder=true", "trainer.epochs=4")
SMALL, WHOLE = ("model=mobilenet_v2_small",), ("model.trainable=true", "model.batch_norm_momentum=0.8")
SAMPLE = ("dataset=sample", "cache=none", "measure.digest=true", "trainer.epochs=3")

Words = tuple[str, ...]


def sides(part: str, data_dir: str, tables: Path, caches: Path) -> dict[str, Words]:
    """The overrides of each run of a part, by its name."""
    photos = (f"dataset.data_dir={data_dir}", f"cache.dir={caches}")
    reviews, diamonds = tables / "reviews-train.jsonl", tables / "diamonds.parquet"
    text = ("experiment=text", f"dataset.files={reviews}", "dataset.target={score: class}", "trainer.epochs=3")
    table = ("experiment=table", f"dataset.files={diamonds}", "dataset.target={price: {number: standardize}}")
    features = (*PHOTOS, "cache.at=features", "trainer.epochs=3", *photos)
    if part == "seen":
        return {
            "tensorflow": ("model=emulated", "trainer.epochs=1"),
            "hidden": ("model=emulated", "trainer.epochs=1"),
            "profile": ("profile=trace", "profile.windows=[[20,25]]", "trainer.epochs=2"),
            "digests": ("trainer.steps_per_epoch=7", "trainer.epochs=2", "measure.digest=true", "load=plain"),
        }
    if part == "exercise":
        runs: dict[str, Words] = {
            "naive": ("experiment=naive",),
            "parallel": ("experiment=parallel",),
            "parallel-uncached": ("experiment=parallel", "cache=none"),
            "parallel-disk": ("experiment=parallel", "cache=disk"),
            "uncached": (*PHOTOS, "cache=none", "transform.decode.library=tensorflow"),
            "uncached-turbo": (*PHOTOS, "cache=none"),
            "uncached-processes": (*PHOTOS, "cache=none", "transform.decode.processes=cores"),
            "features": ("experiment=parallel", "cache.at=features"),
        }
        return {name: (*words, "trainer.epochs=3", *photos) for name, words in runs.items()}
    if part == "steps":
        return {name: (*STEPS, *photos, *words) for name, words in _steps().items()}
    if part == "equal":
        runs = {
            "features": features,
            "table": (*table, "trainer.epochs=5", f"dataset.dir={caches}"),
            "text": (*text, f"dataset.dir={caches}"),
            "small": SAMPLE,
        }
        devices: dict[str, Words] = {"gpu": (), "cpu": ("trainer.device=cpu",), "again": ()}
        return {f"{name}-{on}": (*words, *given) for name, words in runs.items() for on, given in devices.items()}
    whole = (*BASE, "trainer.epochs=6")
    return {f"{kind}{number}": whole for kind in ("default", "deterministic") for number in ("", "-again", "-killed")}


def _steps() -> dict[str, Words]:
    """The overrides of each run of the part `steps`, by its name."""
    bf16, f16 = ("trainer.mixed_precision=mixed_bfloat16",), ("trainer.mixed_precision=mixed_float16",)
    large = ("load.batch_size=256",)
    return {
        "small-32": SMALL,
        "small-256": (*SMALL, *large),
        "small-256-bfloat16": (*SMALL, *large, *bf16),
        "full-32": WHOLE,
        "full-256": (*WHOLE, *large),
        "full-256-bfloat16": (*WHOLE, *large, *bf16),
        "full-256-float16": (*WHOLE, *large, *f16),
        "frozen-256-bfloat16": (*large, *bf16),
        "small-32-uncompiled": (*SMALL, "trainer.jit_compile=false", "trainer.steps_per_epoch=8"),
    }


def environment(part: str, name: str) -> dict[str, str]:
    """What a run has in its environment beside that of this process."""
    if part == "seen":
        return {"tensorflow": {"KERAS_BACKEND": "tensorflow"}, "hidden": {"CUDA_VISIBLE_DEVICES": ""}}.get(name, {})
    if part == "kills":
        return DETERMINISTIC if name.startswith("deterministic") else SHARED
    return {} if part in ALONE else SHARED


def run(folder: Path, words: Words, more: Mapping[str, str], *, limit_s: float, kill: bool = False) -> None:
    """Run etlrun with its `folder`, and its output beside it; `kill` it inside its third epoch."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command, until_s = (
        [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={folder}"],
        time.perf_counter() + limit_s,
    )
    with folder.with_name(f"{folder.name}.log").open("w", encoding="utf-8") as log:
        log.write(f"{' '.join([*(f'{key}={value}' for key, value in more.items()), *command[1:]])}\n")
        log.flush()
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **more}, start_new_session=True
        )
        while process.poll() is None:
            if time.perf_counter() > until_s or (kill and is_inside(folder)):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                log.write("killed\n")
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
    print(f"{folder.parent.name}/{folder.name}", process.returncode, f"{limit_s - until_s + time.perf_counter():.1f} s")


def is_inside(folder: Path) -> bool:
    """Whether the training has a state inside an epoch after the second."""
    return any((folder / "checkpoints").glob("epoch_0002_step_*.npz"))


def resumed(folder: Path, words: Words, more: Mapping[str, str], *, limit_s: float) -> None:
    """Run, kill and resume in `folder`; the killed run is beside it."""
    killed = folder.with_name(f"{folder.name}-first")
    run(killed, words, more, limit_s=limit_s, kill=True)
    run(folder, (f"trainer.resume={killed}",), more, limit_s=limit_s)


def compare(folder: Path) -> None:
    """Write the largest differences of weights and optimizer variables of killed runs and repeated ones."""
    found = {}
    for path in sorted(folder.glob("*-*/model.keras")):
        ours, theirs = variables(path.parent), variables(folder / path.parent.name.partition("-")[0])
        found[path.parent.name] = max(float(abs(ours[name] - theirs[name]).max()) for name in theirs)
    (folder / "weights.json").write_text(json.dumps(found), encoding="utf-8")


def further(folder: Path, more: Mapping[str, str]) -> None:
    """Commands after a run: its evaluation, and a sweep of two jobs."""
    words = {
        "evaluate": ["evaluate", str(folder / "profile")],
        "sweep": ["-m", "trainer.epochs=2", "cache=none,memory", "trainer.jit_compile=auto"],
    }
    for name, given in words.items():
        with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
            at = [f"hydra.sweep.dir={folder / name}"] if name == "sweep" else []
            command = [sys.executable, "-m", "etlrun", *given, *at]
            done = subprocess.run(
                command, check=False, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **more}
            )
        print(folder.name, name, done.returncode, flush=True)


def main() -> None:
    """Run the parts, or write the tables of the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--tables", type=Path, default=Path())
    parser.add_argument("--parts", nargs="+", default=("seen", "exercise", "steps", "equal", "kills"))
    parser.add_argument("--only", nargs="+", help="names of the runs, if not all of a part")
    parser.add_argument("--limit-s", type=float, default=90)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*")
    given, further_words = parser.parse_known_args()
    if given.output:
        given.output.write_text(gpu_tables.tables(given.folder), encoding="utf-8")
        return
    waiting = []
    for part in given.parts:
        for name, words in sides(part, given.data_dir, given.tables, given.folder / "caches").items():
            if given.only and name not in given.only:
                continue
            takes = resumed if name.endswith("-killed") else run
            jit = () if any("jit_compile" in word for word in words) else ("trainer.jit_compile=auto",)
            start = partial(
                takes,
                given.folder.absolute() / part / name,
                (*words, *jit, *given.overrides, *further_words),
                environment(part, name),
                limit_s=given.limit_s,
            )
            if part in ALONE:
                start()
            else:
                waiting.append(start)
        if part == "seen":
            further(given.folder / part, {})
    with ThreadPoolExecutor(max(1, len(waiting))) as pool:
        for done in [pool.submit(start) for start in waiting]:
            done.result()
    if "kills" in given.parts:
        compare(given.folder / "kills")


if __name__ == "__main__":
    main()
