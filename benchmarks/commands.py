"""What answers without a run costs: CPU seconds (user and system) of whole processes, before and after a commit.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.commands --before /tmp/before [--turns 9] [--output benchmarks/results/commands.md]
    python -m benchmarks.commands --trained [--turns 5] [--output benchmarks/results/commands_trained.md]

The package in `--before`, a checkout of an older commit, against the one of this working tree, in turns. A turn that is
thrown away comes first: it has the files read once, and Python write its bytecode, into a folder of each version.

With `--trained`, commands on the model of a run beside plain scripts of Keras that load it and do the same, in turns,
in CPU and wall seconds of whole processes; and where the time of that run went, which takes about a minute on two quiet
cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = "etlrun plan cache=disk load.pre"
OWN = "own"
PAIRS = """\
import itertools, random, time
from etlrun.config.request import Request, composer
files = composer(Request(overrides=[]))
groups = [group for group in files.groups() if group != "experiment"]
words = [[f"{group}={option}" for option in files.options(group)] for group in groups]
words.append(["load.batch_size=7", "trainer.epochs=2", "+model.x=1", "cache.at=source", "load={prefetch: 3}"])
pairs = [pair for one, other in itertools.combinations(words, 2) for pair in itertools.product(one, other)]
files.values([])
chosen = random.Random(0).sample(pairs, 1000)
began = time.process_time()
for pair in chosen:
    files.values(pair)
print(time.process_time() - began)
"""
"""A program that composes pairs of options, and of options and values, and prints how many CPU seconds that took."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "`etlrun --help`": ("--help",),
    "completion of a key": ("-sc", "query=bash"),
    "`etlrun plan`": ("plan",),
    "`etlrun plan experiment=cats_vs_dogs`": ("plan", "experiment=cats_vs_dogs"),
    "`etlrun diff experiment=naive experiment=parallel`": ("diff", "experiment=naive", "experiment=parallel"),
    "`etlrun check --config-dir DIR`, of one experiment": ("check", "--config-dir", OWN),
    "`etlrun check`, of the project": ("check",),
    "1,000 pairs of options and values, composed": ("-c", PAIRS),
}

_LOADS = """\
import sys
import keras, tensorflow as tf
model, given, output = keras.models.load_model(sys.argv[1]), sys.argv[2], sys.argv[3]
def sized(image):
    return tf.cast(tf.round(tf.image.resize(image, (64, 64))), tf.uint8)
"""
_PREDICTS = f"""{_LOADS}
image = sized(tf.io.decode_jpeg(tf.io.read_file(given), channels=3))
print(model.predict(image[None], verbose=0))
"""
_EVALUATES = f"""{_LOADS}
import tensorflow_datasets as tfds
data = tfds.load("etlrun_sample", split="train[80%:]", data_dir=given)
data = data.map(lambda of: (sized(of["image"]), of["label"]), num_parallel_calls=tf.data.AUTOTUNE)
print(model.evaluate(data.batch(32).prefetch(tf.data.AUTOTUNE), verbose=0, return_dict=True))
"""
_EXPORTS = f"""{_LOADS}
def decoded(file):
    return sized(tf.io.decode_image(file, channels=3, expand_animations=False))
def serve(files):
    images = tf.map_fn(decoded, files, fn_output_signature=tf.TensorSpec((64, 64, 3), tf.uint8))
    return model(images, training=False)
archive = keras.export.ExportArchive()
archive.track(model)
archive.add_endpoint("serve", serve, input_signature=[tf.TensorSpec((None,), tf.string, name="image")])
archive.write_out(output, verbose=False)
"""
_RUN, _DATA, _PHOTO, _OUTPUT = "run", "data", "photo.jpg", "output"
_TRAINED: Mapping[str, tuple[Sequence[str], str, str]] = {
    "`predict`, of a JPEG": (("predict", _RUN, _PHOTO), _PREDICTS, _PHOTO),
    "`evaluate`, of 240 JPEGs": (("evaluate", _RUN), _EVALUATES, _DATA),
    "`export --format saved_model`, of image files": (
        ("export", _RUN, "--format", "saved_model", "--output", _OUTPUT), _EXPORTS, _DATA,
    ),
}  # fmt: skip
"""Of each command its words, the plain script, and what that is given beside the model."""


def _environment(package: Path, scratch: Path) -> dict[str, str]:
    """Return the variables of a process that imports `package`, whose bytecode is kept in a folder of its own."""
    bytecode = scratch / f"bytecode{package.resolve().as_posix().replace('/', '-')}"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(package), "PYTHONPYCACHEPREFIX": str(bytecode)}


def spent(command: Sequence[str], scratch: Path) -> tuple[float, float]:
    """CPU and wall seconds of a command in `scratch`, whose output is removed."""
    shutil.rmtree(scratch / _OUTPUT, ignore_errors=True)
    environment = {**_environment(ROOT, scratch), "TFDS_DATA_DIR": str(scratch / _DATA)}
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", *command], check=False, cwd=scratch, env=environment, capture_output=True, text=True
    )
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def of_run(folder: Path) -> str:
    """Where the time of the run in `folder` went, as its last lines say; checkpoints are in what is neither."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    at = {name: [of["elapsed_s"] for of in events if of["event"] == name] for name in ("epoch", "checkpoint")}
    epochs, whole_s = summary["epochs"], summary["wall_s"]
    startup_s = sum(of["startup_s"] + of["validation_startup_s"] for of in epochs)
    parts = {
        "imports": summary["imports_s"],
        "the first steps, which are traced": startup_s,
        "epochs": sum(of["wall_s"] + of["validation_s"] for of in epochs) - startup_s,
        "checkpoints, each a `save` of Keras": sum(at["checkpoint"]) - sum(at["epoch"]),
    }
    parts["all else"] = whole_s - sum(parts.values())
    lines = [f"| part of a run of {len(epochs)} epochs | s | share |", "| --- | --- | --- |"]
    lines += [f"| {name} | {spent_s:.1f} | {spent_s / whole_s:.0%} |" for name, spent_s in parts.items()]
    return "\n".join([*lines, f"| whole run | {whole_s:.1f} | |"]) + "\n"


def of_trained(turns: int, epochs: int) -> str:
    """Both tables of `--trained`."""
    from etlrun.sources.sample.draw import jpeg

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / _PHOTO).write_bytes(jpeg(0))
        spent(["-m", "etlrun", f"hydra.run.dir={_RUN}", f"trainer.epochs={epochs}"], scratch)
        found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in _TRAINED}
        for _turn in range(turns + 1):
            for name, (words, program, given) in _TRAINED.items():
                both = [["-m", "etlrun", *words], ["-c", program, f"{_RUN}/model.keras", given, _OUTPUT]]
                taken = {side: spent(both[side], scratch) for side in random.sample((0, 1), 2)}
                found[name].append([taken[0], taken[1]])
        lines = [f"Seconds of whole processes beside plain scripts of Keras, medians of {turns} turns.", ""]
        lines += ["| command | CPU s | of the script | ratio, median of the pairs | wall s | of the script | ratio |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for name, (_thrown_away, *pairs) in found.items():
            cells = list[str]()
            for of in (0, 1):
                cells += [f"{statistics.median(pair[side][of] for pair in pairs):.2f}" for side in (0, 1)]
                cells.append(f"{statistics.median(pair[0][of] / pair[1][of] for pair in pairs):.2f}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join([*lines, "", of_run(scratch / _RUN)])


def cpu_s(package: Path, words: Sequence[str], scratch: Path) -> float:
    """CPU seconds of a command by `package`, in a process of its own; of a program, those that it prints."""
    environment = {**_environment(package, scratch), "COMP_LINE": LINE}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    is_program = words[0] == "-c"
    command = [sys.executable, "-P", *([] if is_program else ["-m", "etlrun"]), *words]
    done = subprocess.run(command, check=False, cwd=scratch, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{package}: etlrun {' '.join(words)}\n{done.stderr}")
    if is_program:
        return float(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_versions(before: Path, turns: int) -> str:
    """The table of `--before`."""
    sides = {"before": before, "after": ROOT}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / OWN / "experiment").mkdir(parents=True)
        shutil.copy(ROOT / "conf" / "experiment" / "naive.yaml", scratch / OWN / "experiment" / "mine.yaml")
        for _turn in range(turns + 1):
            for name, words in COMMANDS.items():
                found[name].append({side: cpu_s(package, words, scratch) for side, package in sides.items()})
    lines = [f"CPU seconds of whole processes, medians of {turns} turns.", ""]
    lines += ["| command | before | after | ratio, median of the pairs |", "| --- | --- | --- | --- |"]
    for name, (_thrown_away, *pairs) in found.items():
        before_s, after_s = (statistics.median(pair[side] for pair in pairs) for side in sides)
        ratio = statistics.median(pair["after"] / pair["before"] for pair in pairs)
        lines.append(f"| {name} | {before_s:.2f} | {after_s:.2f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--before", type=Path, help="checkout of the older commit")
    which.add_argument("--trained", action="store_true", help="commands on a trained run, beside plain scripts")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=30, help="of the trained run")
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    text = of_trained(known.turns, known.epochs) if known.trained else of_versions(known.before, known.turns)
    print(text, end="")
    if known.output is not None:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
