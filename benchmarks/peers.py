"""Peers: photos to batches of 32 x 224 x 224 x 3 of uint8, by etlrun and by other libraries, in turns.

python -m benchmarks.peers --data-dir DIR [--turns 15] [--output benchmarks/results/peers.md]

Each peer runs in an environment of its own, /tmp/peers-NAME, which is made where it is missing: the exercise and etlrun
in that of this process. All read the records of cats_vs_dogs as TFDS wrote them, WebDataset tar files of the same
images, none shuffles, and each has as many threads or processes as there are cores. Grain, SPDL, torch and WebDataset
take the bytes of an image from where they lie in a file, which was looked up before, and verify no checksums. Grain,
WebDataset and SPDL decode with the libraries and settings of etlrun, in buffers that are used again; SPDL's own decoder
needs FFmpeg's libraries on the machine. All are started once; a turn reads a whole pass of each, up to its last batch,
in random order, and one is thrown away before. The CPU time is user and system, of the process and its workers, without
that of starting.
The exercise is here without its shuffle and its cache.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.decoding import Measured, of_photos, table
from benchmarks.peer_readers import Images
from etlrun.system.machine import cores

NATIVE = tuple(f"{name}=={version(name)}" for name in ("simplejpeg", "opencv-python-headless"))
READERS = Path(__file__).with_name("peer_readers.py")
HEAD_BYTES, CRC_BYTES = 12, 4
"""Of a TFRecord: its length with a checksum before, and a checksum behind."""
BASE = "Grain 0.2.18"


class Peer(NamedTuple):
    """A library that reads photos.

    Attributes:
        reader: Its name in peer_readers.py.
        packages: What pip installs for it; nothing if it runs in this process's environment.
    """

    reader: str
    packages: tuple[str, ...] = ()


PEERS: Mapping[str, Peer] = {
    "the exercise by hand": Peer("exercise"),
    "torch's DataLoader, torchvision": Peer("torch", ("torch", "torchvision", "numpy")),
    "WebDataset": Peer("webdataset", ("webdataset", "torch", "numpy", *NATIVE)),
    "SPDL 0.8.0, its decoder": Peer("spdl-ffmpeg", ("spdl==0.8.0", *NATIVE)),
    "SPDL 0.8.0, simplejpeg and OpenCV": Peer("spdl", ("spdl==0.8.0", *NATIVE)),
    "DALI, on the CPU": Peer("dali", ("nvidia-dali-cuda120",)),
    BASE: Peer("grain", ("grain==0.2.18", *NATIVE)),
    f"{BASE}, decoding batches": Peer("grain-batches", ("grain==0.2.18", *NATIVE)),
    "etlrun": Peer("etlrun"),
}


def python_of(peer: Peer) -> str:
    """The interpreter of a peer's environment, which is made if it is missing.

    Raises:
        subprocess.CalledProcessError: Its packages can't be installed.
    """
    if not peer.packages:
        return sys.executable
    folder = Path(tempfile.gettempdir(), f"peers-{peer.reader.partition('-')[0]}")
    python, made = folder / "bin" / "python", folder / "packages.json"
    packages = json.dumps(peer.packages)
    if not made.is_file() or made.read_text() != packages:
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *peer.packages]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.write_text(packages)
    return str(python)


def images_of(record: bytes) -> tuple[int, int]:
    """Where the encoded image lies in a record, and its size."""
    image = tf.train.Example.FromString(record).features.feature["image"].bytes_list.value[0]
    return record.index(image), len(image)


def write(data_dir: str, folder: Path) -> None:
    """Write what peers read: links to the records, where images lie in them, DALI's indices and WebDataset's shards."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    places: list[tuple[int, int, int]] = []
    for number, item in enumerate(builder.info.splits["train"].file_instructions):
        path = folder / Path(item.filename).name
        path.symlink_to(Path(item.filename).resolve())
        start, index = 0, []
        for record in tf.data.TFRecordDataset(item.filename).as_numpy_iterator():
            within, size = images_of(record)
            places.append((number, start + HEAD_BYTES + within, size))
            framed = HEAD_BYTES + len(record) + CRC_BYTES
            index.append(f"{start} {framed}\n")
            start += framed
        (folder / f"{number:05}.idx").write_text("".join(index))
    (folder / "images.json").write_text(json.dumps(places))
    images = Images(str(folder))
    for number in range(places[-1][0] + 1):
        with tarfile.open(folder / f"{number:05}.tar", "w") as shard:
            for place in (place for place, (file, _, _) in enumerate(places) if file == number):
                member = tarfile.TarInfo(f"{place:08}.jpg")
                member.size = places[place][2]
                shard.addfile(member, io.BytesIO(images[place]))


class Running:
    """A started peer."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        command = [python_of(peer), *(["-m", "benchmarks.peer_readers"] if not peer.packages else [str(READERS)])]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, peer.reader, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.mean = self._answer()["mean"]

    def _answer(self) -> Any:
        if line := self._process.stdout.readline():  # type: ignore[union-attr]
            return json.loads(line)
        self._errors.seek(0)
        raise RuntimeError(self._errors.read().strip().rpartition("\n")[2])

    def measured(self) -> tuple[Measured, int]:
        """Seconds of a pass, of wall and of CPU, and its images."""
        self._process.stdin.write("\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        found = self._answer()
        return (found["s"], found["cpu_s"]), found["images"]

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()


def started(folder: Path, refused: dict[str, str]) -> Iterator[tuple[str, Running]]:
    """Peers by name; of those that can't be installed or started the errors in `refused`."""
    for name, peer in PEERS.items():
        try:
            yield name, Running(peer, folder)
        except subprocess.CalledProcessError as error:
            refused[name] = error.stderr.strip().rpartition("\n")[2]
        except RuntimeError as error:
            refused[name] = str(error)


def main() -> None:
    """Measure, print, and write the table where asked."""
    known = of_photos(__doc__)
    folder = Path(tempfile.mkdtemp())
    refused: dict[str, str] = {}
    write(known.data_dir, folder)
    running = dict(started(folder, refused))
    found: dict[str, list[Measured]] = {name: [] for name in running}
    counts: dict[str, int] = {}
    for turn in range(known.turns + 1):
        for name in random.sample([*running], len(running)):
            cost, counts[name] = running[name].measured()
            if turn:
                found[name].append(cost)
    for peer in running.values():
        peer.end()
    shutil.rmtree(folder)
    (images,) = {*counts.values()}
    command = f"python -m benchmarks.peers --data-dir DIR --turns {known.turns}"
    lines = [f"`{command}` on {cores()} cores, {images:,} photos", "", table(found, images, BASE)]
    means = (f"{name} {peer.mean:.2f}" for name, peer in running.items())
    lines += [f"The mean of all pixels: {', '.join(means)}.", ""]
    lines += [f"{name} could not be measured: {reason}\n" for name, reason in refused.items()]
    print("\n".join(lines))
    if known.output:
        known.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
