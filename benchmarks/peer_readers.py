"""Readers of photos to batches of 32 x 224 x 224 x 3 of uint8, each in an environment of its own. Used by peers.py.

    PYTHON benchmarks/peer_readers.py NAME FOLDER

FOLDER holds TFRecord files, tar files of the same images, and `images.json`: where the bytes of each image lie in the
TFRecord files. Each line of the standard input has a pass read, whose seconds of wall and of CPU, images and mean are
printed as JSON. This module imports nothing of etlrun's but for its own reader, and nothing that an environment lacks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

BATCH_SIZE, SIDE, SHAPE = 32, 224, (224, 224, 3)
CORES = len(os.sched_getaffinity(0))
Pass = Callable[[], Iterable[Any]]
"""What begins a pass over all images, in batches."""


class Images:
    """Encoded images by number, from the files of `folder`."""

    def __init__(self, folder: str) -> None:
        self.places = json.loads(Path(folder, "images.json").read_text())
        self._files = [os.open(path, os.O_RDONLY) for path in records(folder)]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> bytes:
        file, start, size = self.places[number]
        return os.pread(self._files[file], size, start)


def records(folder: str) -> list[str]:
    """Paths of the TFRecord files."""
    return sorted(str(path) for path in Path(folder).glob("*.tfrecord-*"))


_THREAD = threading.local()
"""The buffer of a thread, for the pixels of an image before it is resized."""


def decode(data: bytes, into: Any = None) -> Any:
    """Decode to the pixels of TensorFlow with simplejpeg, and resize with OpenCV, as etlrun does."""
    import cv2
    import numpy as np
    import simplejpeg

    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    if not hasattr(_THREAD, "buffer") or _THREAD.buffer.size < 3 * height * width:
        _THREAD.buffer = np.empty(3 * height * width, np.uint8)
    pixels = simplejpeg.decode_jpeg(data, "RGB", fastdct=True, fastupsample=False, buffer=_THREAD.buffer)
    return cv2.resize(pixels, (SIDE, SIDE), dst=into, interpolation=cv2.INTER_LINEAR)


def decode_batch(encoded: list[bytes]) -> Any:
    """Decode and resize a batch into one array."""
    import numpy as np

    batch = np.empty((len(encoded), *SHAPE), np.uint8)
    for image, data in zip(batch, encoded, strict=True):
        decode(data, image)
    return batch


def exercise(folder: str) -> Pass:
    """The exercise's parallel pipeline, without shuffle, cache and model."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature((), tf.string)}

    def prepare(record: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.parse_single_example(record, features)["image"], channels=3)
        return tf.cast(tf.image.resize(image, (SIDE, SIDE)), tf.uint8)

    dataset = tf.data.Dataset.from_tensor_slices(records(folder)).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def etlrun(folder: str) -> Pass:
    """The training pipeline of a config, without shuffle and cache."""
    from benchmarks.decoding import pipeline_of

    data_dir = str(Path(records(folder)[0]).resolve().parents[2])
    dataset = pipeline_of(data_dir, "load=plain").dataset
    return lambda: map(itemgetter(0), dataset)


def grain(folder: str) -> Pass:
    """Grain's map over numbered examples, in as many threads as cores, and batches of them."""
    import grain

    threads = grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * BATCH_SIZE)
    images = grain.MapDataset.source(Images(folder)).map(decode)
    return lambda: images.to_iter_dataset(threads).batch(BATCH_SIZE)


def grain_batches(folder: str) -> Pass:
    """The same with batches of encoded images, of which each is decoded in one call."""
    import grain

    threads = grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * CORES)
    batches = grain.MapDataset.source(Images(folder)).batch(BATCH_SIZE, batch_fn=list).map(decode_batch)
    return lambda: batches.to_iter_dataset(threads)


def spdl(folder: str, load: Callable[[list[bytes]], Any] = decode_batch) -> Pass:
    """SPDL's pipeline, whose threads decode batches."""
    from spdl.pipeline import PipelineBuilder

    images = Images(folder)

    def begin() -> Iterator[Any]:
        encoded = PipelineBuilder().add_source(images[number] for number in range(len(images))).aggregate(BATCH_SIZE)
        pipeline = encoded.pipe(load, concurrency=CORES).add_sink(2 * CORES).build(num_threads=CORES)
        with pipeline.auto_stop():
            yield from pipeline

    return begin


def spdl_ffmpeg(folder: str) -> Pass:
    """The same with its own decoder, which needs the libraries of FFmpeg 4 to 9 on the machine."""
    from spdl import io

    def load(encoded: list[bytes]) -> Any:
        return io.to_numpy(io.load_image_batch(encoded, width=SIDE, height=SIDE, pix_fmt="rgb24"))

    return spdl(folder, load)


class Decoded:
    """Images decoded and resized by torchvision, by number."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Any:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg
        from torchvision.transforms.v2 import functional

        data = torch.frombuffer(bytearray(self.images[number]), dtype=torch.uint8)
        return functional.resize(decode_jpeg(data, mode=ImageReadMode.RGB), [SIDE, SIDE], antialias=False)


def torch(folder: str) -> Pass:
    """The DataLoader of torch with a worker process for each core, and torchvision."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader = DataLoader(Decoded(Images(folder)), BATCH_SIZE, num_workers=CORES, persistent_workers=True)
    return lambda: (batch.permute(0, 2, 3, 1) for batch in loader)


def dali(folder: str) -> Pass:
    """DALI's reader, decoder and resize on the CPU."""
    from nvidia import dali
    from nvidia.dali import fn, tfrecord, types

    paths, indices = records(folder), [str(path) for path in sorted(Path(folder).glob("*.idx"))]
    features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}

    @dali.pipeline_def(batch_size=BATCH_SIZE, num_threads=CORES, device_id=None)  # type: ignore[untyped-decorator]
    def read() -> Any:
        data = fn.readers.tfrecord(path=paths, index_path=indices, features=features, name="r")
        image = fn.decoders.image(data["image"], device="cpu", output_type=types.RGB)
        return fn.resize(image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=False)

    pipeline = read()
    pipeline.build()
    whole, rest = divmod(pipeline.reader_meta("r")["epoch_size"], BATCH_SIZE)

    def begin() -> Iterator[Any]:
        for _ in range(whole + bool(rest)):
            (images,) = pipeline.run()
            yield images.as_tensor()

    return begin


def webdataset(folder: str) -> Pass:
    """WebDataset's tar files and its loader with a worker process for each core; simplejpeg and OpenCV decode."""
    import webdataset

    shards = [str(path) for path in sorted(Path(folder).glob("*.tar"))]
    dataset = webdataset.WebDataset(shards, shardshuffle=False).to_tuple("jpg").map_tuple(decode).batched(BATCH_SIZE)
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=CORES, persistent_workers=True)
    return lambda: (images for (images,) in loader)


READERS: Mapping[str, Callable[[str], Pass]] = {
    "exercise": exercise,
    "etlrun": etlrun,
    "grain": grain,
    "grain-batches": grain_batches,
    "spdl": spdl,
    "spdl-ffmpeg": spdl_ffmpeg,
    "torch": torch,
    "dali": dali,
    "webdataset": webdataset,
}


def cpu_s() -> float:
    """CPU seconds so far, user and system, of this process and of those that it has started."""
    used = {os.getpid(): time.process_time()}
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    parents: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # has ended
            continue
        parents[int(stat.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks_per_s
    while found := {pid: own for pid, (parent, own) in parents.items() if parent in used and pid not in used}:
        used |= found
    return sum(used.values())


def read(begin: Pass) -> dict[str, float]:
    """Read a pass: its seconds of wall and of CPU, and its images."""
    before_s, began_s, images = cpu_s(), time.perf_counter(), 0
    batches = iter(begin())  # deleted after its end: TensorFlow's may wait until its autotuner looks again
    for batch in batches:
        images += (batch.shape() if callable(batch.shape) else batch.shape)[0]
    ended_s = time.perf_counter()
    return {"s": ended_s - began_s, "cpu_s": cpu_s() - before_s, "images": images}


def mean_of(begin: Pass) -> float:
    """The mean of all pixels of a pass."""
    import numpy as np

    means = [float(np.asarray(batch).mean()) for batch in begin()]
    return sum(means) / len(means)


def main() -> None:
    """Read a pass for each line."""
    name, folder = sys.argv[1:]
    begin = READERS[name](folder)
    print(json.dumps({"mean": mean_of(begin)}), flush=True)
    for _line in sys.stdin:
        print(json.dumps(read(begin)), flush=True)
    os._exit(0)  # without waiting for threads and workers that would read on


if __name__ == "__main__":
    main()
