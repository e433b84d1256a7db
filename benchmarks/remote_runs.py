"""The store, the shards and the runs of remote.py."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from benchmarks.limited_server import Store
from benchmarks.processes import summary_of
from benchmarks.scale import made

NAME, VERSION = "cats_vs_dogs", "4.0.1"
COPIES, SHARDS, EPOCHS = 8, 64, 3
MB_PER_S, REQUEST_MS = 100.0, 30.0
STEP_MS = 12.0
"""Time for which a step holds a batch: 60 MB/s."""
PEERS = Path(__file__).with_name("remote_peers.py")
GENERATORS = {"fsspec": "tf.data over fsspec", "simplecache": "tf.data over fsspec's simplecache"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
Found = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """A store with the photos.

    Attributes:
        store: The server.
        folder: A folder for results and caches, whose `store` is what the server has.
        bytes: Size of all shards.
        pythons: Python of the environment of each other reader.
    """

    store: Store
    folder: Path
    bytes: int
    pythons: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which libraries find the store."""
        keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}
        return {**QUIET, **keys, "AWS_ENDPOINT_URL": self.store.url}

    @property
    def shard_s(self) -> float:
        """Seconds that a shard takes at the limit."""
        return self.bytes / SHARDS / self.store.mb_per_s / 1e6

    def run(self, *words: str, is_remote: bool = True, copies: str = "copies") -> Found:
        """Run a pipeline without a model, of encoded images; its epochs, and what the store has done."""
        target, run = self.folder / copies, self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        where = "s3://tfds" if is_remote else str(self.folder / "store/tfds")
        given = [f"experiment={NAME}", f"dataset.data_dir={where}", f"dataset.copies={target}", "cache=none"]
        given += ["dataset.download=false", "dataset.split=train", "dataset.eval_split=null", "transform.steps=[]"]
        given += ["dataset.features={image: text}", "dataset.target={label: class}"]
        given += ["trainer=drain", f"trainer.epochs={EPOCHS}", *words]
        counted: Found = {}
        with self.store.counting(counted):
            summary = summary_of(given, run, self.environment)
        epochs = [
            {"s": of["wall_s"], "first_s": of["startup_s"] + of["fill_wait_s"], "wait_s": of["input_wait_s"]}
            for of in summary["epochs"]
        ]
        return {"epochs": epochs, **counted}

    def read(self, name: str) -> Found:
        """Run another reader: its epochs, and what the store has done."""
        cache = self.folder / "copies"
        cache.mkdir()
        url = f"s3://tfds/{NAME}/{VERSION}" if name in GENERATORS else f"s3://{name}/photos"
        if name == "mosaicml-streaming":  # see its reader
            shutil.copy(self.folder / "store" / name / "photos/index.json", cache)
        counted: Found = {}
        with self.store.counting(counted):
            found = answer(self.pythons[name], ["read", name, url, str(cache), str(EPOCHS)], self.environment)
        return {**json.loads(found), **counted}


def answer(python: str, words: Sequence[str], more: Mapping[str, str]) -> str:
    """The last line of what the script of the other readers prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(more)
    done = subprocess.run([python, str(PEERS), *words], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return (done.stdout.splitlines() or [""])[-1]


def written(data_dir: Path, folder: Path, pythons: Mapping[str, str]) -> int:
    """Write the shards of all readers; the bytes of those of TFDS."""
    records = COPIES * sum(map(int, _lengths(data_dir)))
    made(data_dir, folder / "store/tfds", records, SHARDS)
    paths = sorted((folder / "store/tfds" / NAME / VERSION).glob("*.tfrecord-*"))
    size = sum(path.stat().st_size for path in paths)
    examples = []
    with (folder / "photos.bin").open("wb") as file:
        for record in tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            image = feature["image"].bytes_list.value[0]
            file.write(image)
            examples.append((len(image), feature["label"].int64_list.value[0]))
    (folder / "photos.json").write_text(json.dumps(examples))
    for name, python in pythons.items():
        if name not in GENERATORS:
            answer(
                python, ["write", name, str(folder), str(folder / "store" / name / "photos"), str(size // SHARDS)], {}
            )
    return size


def _lengths(data_dir: Path) -> list[str]:
    info = json.loads((data_dir / NAME / VERSION / "dataset_info.json").read_text(encoding="utf-8"))
    found: list[str] = info["splits"][0]["shardLengths"]
    return found


def middle(values: Sequence[float], digits: int = 2) -> str:
    """The median with the quartiles."""
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def in_turns(bench: Bench, sides: Mapping[str, Callable[[], Found]], turns: int) -> dict[str, list[Found]]:
    """What each side finds in each turn, with nothing on this machine."""
    found: dict[str, list[Found]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in random.sample([*sides], len(sides)):
            shutil.rmtree(bench.folder / "copies", ignore_errors=True)
            found[name].append(sides[name]())
            seconds = " ".join(f"{of['s']:.2f}" for of in found[name][-1]["epochs"])
            print(f"turn {turn + 1}, {name}: epochs of {seconds} s", file=sys.stderr, flush=True)
    return found


class Disk:
    """The most bytes of files in a folder, looked up again and again until the end of the block."""

    def __init__(self, folder: Path) -> None:
        self.most, self._folder, self._ended = 0, folder, threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            paths = [Path(of, name) for of, _, names in os.walk(self._folder) for name in names]
            self.most = max(self.most, sum(size_of(path) for path in paths))


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for a link, and if it has been removed meanwhile."""
    with suppress(FileNotFoundError):
        return 0 if path.is_symlink() else path.stat().st_size
    return 0
