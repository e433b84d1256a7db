"""Decoding on 1 core to all: photos to batches of 32 x 224 x 224 x 3 of uint8, by threads, processes and Grain.

python -m benchmarks.cores --data-dir DIR [--cores 1 2 4 8 16] [--turns 3] [--output benchmarks/results/cores.md]

For each number of cores a process that may use as many runs all sides, in turns, each for two seconds from its second
half second on. `independent processes` decode what they hold in memory, and share nothing: what the machine gives. The
others read the records of cats_vs_dogs again and again. Those of etlrun are its stages: interleaved files, a shuffle
of 1,024, batches, parsing, and a call for each batch, or TensorFlow's decoder in a parallel map. Grain is measured
where it is installed; it reads the bytes of an image from where they lie, shuffles none, and verifies no checksum.

The second table is of coordination alone, on all cores: workers sleep for 0.58 ms an image in place of decoding. The
third is Python's lock: what a call holds it for at most, by images of 8 x 8, whose decoding is nearly nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.peer_readers import BATCH_SIZE, SIDE, Images, decode_batch, records

SECONDS, BEFORE_S, IMAGE_S, SHUFFLE_BUFFER = 2.0, 0.5, 0.58e-3, 1024
WORKERS = (2, 4, 8, 16, 32)
Rates = dict[str, list[float]]


def sleep(encoded: list[bytes], **_arguments: Any) -> Any:
    """Take the time of decoding a batch."""
    import numpy as np

    time.sleep(IMAGE_S * len(encoded))
    return np.zeros((len(encoded), SIDE, SIDE, 3), np.uint8)


def sleep_each(encoded: list[bytes]) -> Any:
    """Take the time of decoding and of resizing each image, after each of which a thread asks for Python's lock."""
    import numpy as np

    for _ in encoded:
        time.sleep(IMAGE_S * 0.72)
        time.sleep(IMAGE_S * 0.28)
    return np.zeros((len(encoded), SIDE, SIDE, 3), np.uint8)


def alone(folder: str) -> float:
    """Images per second of a process that decodes what it holds."""
    import cv2

    cv2.setNumThreads(1)
    images = Images(folder)
    batches = [[images[number] for number in range(start, start + BATCH_SIZE)] for start in range(0, 320, BATCH_SIZE)]
    begun_s, done = time.perf_counter(), 0
    while time.perf_counter() - begun_s < SECONDS:
        decode_batch(batches[done % len(batches)])
        done += 1
    return done * BATCH_SIZE / (time.perf_counter() - begun_s)


def rate(batches: Iterator[Any], first: int = 0) -> float:
    """Images per second, after the `first` batches, by which all workers run, and half a second more."""
    for _ in range(first):
        next(batches)
    begun_s = time.perf_counter()
    while time.perf_counter() - begun_s < BEFORE_S:
        next(batches)
    begun_s, done = time.perf_counter(), 0
    while time.perf_counter() - begun_s < SECONDS:
        next(batches)
        done += 1
    return done * BATCH_SIZE / (time.perf_counter() - begun_s)


def iterated(dataset: Any, threads: int = 0) -> Iterator[Any]:
    """The batches, as etlrun runs a dataset, prefetched."""
    import tensorflow as tf

    from etlrun.graph.build import as_written

    options = as_written()
    if threads:
        options.threading.private_threadpool_size = threads
    return iter(dataset.prefetch(tf.data.AUTOTUNE).with_options(options))


def decoded_by(folder: str, function: Callable[..., Any], calls: int, threads: int = 0) -> Iterator[Any]:
    """Batches of what `function` makes of encoded photos, without an end."""
    from benchmarks.image_cost import called, parsed_of, records_of

    shuffled = records_of(records(folder), None).shuffle(SHUFFLE_BUFFER, seed=0)
    return iterated(called(parsed_of(shuffled), function, calls), threads)


def by_tensorflow(folder: str) -> Iterator[Any]:
    """Batches that TensorFlow decodes, image by image."""
    import tensorflow as tf

    from benchmarks.decoding import as_uint8
    from benchmarks.image_cost import records_of

    def apply(record: Any) -> Any:
        example = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature((), tf.string)})
        return as_uint8(tf.io.decode_jpeg(example["image"], channels=3))

    shuffled = records_of(records(folder), None).shuffle(SHUFFLE_BUFFER, seed=0)
    decoded = shuffled.map(apply, num_parallel_calls=tf.data.AUTOTUNE)
    return iterated(decoded.batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE))


def by_grain(folder: str, threads: int, processes: int) -> Iterator[Any]:
    """Batches of Grain, each decoded in one call."""
    import grain

    batches = grain.MapDataset.source(Images(folder)).repeat().batch(BATCH_SIZE, batch_fn=list).map(decode_batch)
    read = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    dataset = batches.to_iter_dataset(read)
    if processes:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes, per_worker_buffer_size=2))
    return iter(dataset)


def sides(folder: str, number: int) -> dict[str, Callable[[], float]]:
    """What measures images per second, by name."""
    import tensorflow as tf

    from etlrun.graph.decoders import decoders
    from etlrun.stages.image import Turbo

    arguments: dict[str, Any] = {"center_crop": False, "size": (SIDE, SIDE), "fast": False}
    threads, processes = partial(Turbo.op, **arguments), partial(decoders(number), **arguments)
    found: dict[str, Callable[[], float]] = {
        "independent processes": partial(independent, folder, number),
        "etlrun, TensorFlow's decoder": lambda: rate(by_tensorflow(folder)),
        "etlrun, threads": lambda: rate(decoded_by(folder, threads, tf.data.AUTOTUNE)),
        "etlrun, processes": lambda: rate(decoded_by(folder, processes, tf.data.AUTOTUNE), 4 * number),
    }
    if importlib.util.find_spec("grain"):
        found["Grain, threads"] = lambda: rate(by_grain(folder, number, 0))
        found["Grain, processes"] = lambda: rate(by_grain(folder, 1, number))
    return found


def independent(folder: str, number: int) -> float:
    """Images per second of processes that share nothing."""
    with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(alone, [folder] * number))


def coordination(folder: str) -> Rates:
    """Rates of sleeping workers, as shares of what as many that never wait reach."""
    from etlrun.graph.decoders import Decoders

    found: Rates = {"threads": [], "processes": []}
    for number in WORKERS:
        processes = partial(Decoders(number, "benchmarks.cores"), size=(SIDE, SIDE))
        asleep: dict[str, Callable[..., Any]] = {"threads": sleep_each, "processes": processes}
        for name, function in asleep.items():
            found[name].append(rate(decoded_by(folder, function, number, number + 2), 8 * number) * IMAGE_S / number)
    return found


def held_us(folder: str) -> Mapping[str, float]:
    """Microseconds an image in which a call holds Python's lock, at most."""
    import numpy as np
    import simplejpeg
    import tensorflow as tf

    from etlrun.stages.image import Turbo

    tiny = [simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))] * BATCH_SIZE
    images = Images(folder)
    photos = tf.constant([images[number] for number in range(BATCH_SIZE)])

    def median_us(call: Callable[[], object]) -> float:
        taken_s = []
        for _ in range(300):
            begun_s = time.perf_counter()
            call()
            taken_s.append(time.perf_counter() - begun_s)
        return 1e6 * statistics.median(taken_s) / BATCH_SIZE

    return {
        "Turbo.op": median_us(lambda: Turbo.op(tiny, center_crop=False, size=(8, 8), fast=False)),
        "strings of photos for Python": median_us(photos.numpy),
    }


def measured(folder: str, number: int, turns: int, *, is_all: bool) -> dict[str, Any]:
    """What the process with this number of cores finds."""
    found: Rates = {}
    all_sides = sides(folder, number)
    for _ in range(turns):
        for name in random.sample([*all_sides], len(all_sides)):
            found.setdefault(name, []).append(all_sides[name]())
    result: dict[str, Any] = {"rates": {name: statistics.median(found[name]) for name in all_sides}}
    if is_all:
        result |= {"coordination": coordination(folder), "held": held_us(folder)}
    return result


def on_cores(folder: str, number: int, turns: int, *, is_all: bool) -> dict[str, Any]:
    """Measure in a process that may use this number of cores."""
    command = ["taskset", "-c", f"0-{number - 1}", sys.executable, "-m", "benchmarks.cores", "--folder", folder]
    command += ["--turns", str(turns), "--cores", str(number), *["--all"] * is_all]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return result


def text_of(found: Mapping[int, Mapping[str, Any]], turns: int) -> str:
    """The tables as Markdown."""
    most = max(found)
    heads = "".join(f" {number} |" for number in found)
    lines = [f"`python -m benchmarks.cores --data-dir DIR --turns {turns}` on a machine of {os.cpu_count()} cores", ""]
    lines += [f"| images/s by cores |{heads} of {most} independent processes |", f"|---|{'---|' * len(found)}---|"]
    bound = found[most]["rates"]["independent processes"]
    for name in found[most]["rates"]:
        cells = "".join(f" {of['rates'][name]:,.0f} |" for of in found.values())
        lines.append(f"| {name} |{cells} {found[most]['rates'][name] / bound:.2f} |")
    lines += ["", f"| sleeping workers, share of the ideal |{''.join(f' {number} |' for number in WORKERS)}"]
    lines.append(f"|---|{'---|' * len(WORKERS)}")
    for name, shares in found[most]["coordination"].items():
        lines.append(f"| {name} |{''.join(f' {share:.2f} |' for share in shares)}")
    lines += ["", "| what holds Python's lock | at most us an image |", "|---|---|"]
    lines += [f"| {name} | {us:.1f} |" for name, us in found[most]["held"].items()]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, nargs="+")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    if known.folder:
        print(json.dumps(measured(known.folder, known.cores[0], known.turns, is_all=known.all)))
        return
    from benchmarks.peers import write

    folder = tempfile.mkdtemp()
    write(known.data_dir, Path(folder))
    numbers = known.cores or [number for number in (1, 2, 4, 8, 16, 32, 64) if number <= (os.cpu_count() or 1)]
    found = {number: on_cores(folder, number, known.turns, is_all=number == max(numbers)) for number in numbers}
    shutil.rmtree(folder)
    text = text_of(found, known.turns)
    print(text)
    if known.output:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] and all(word.isdigit() for word in sys.argv[1:]):  # a worker of `coordination`
        from etlrun.graph.decoders import serve

        serve(sleep)
    else:
        main()
