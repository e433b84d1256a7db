"""Other readers of data that lie in a store, each in an environment of its own. Used by remote.py.

    PYTHON benchmarks/remote_peers.py write NAME PHOTOS FOLDER
    PYTHON benchmarks/remote_peers.py read NAME URL FOLDER EPOCHS

NAME is `fsspec`, `simplecache`, `mosaicml-streaming` or `litdata`. Each reads batches of 32 of encoded images and their
labels, in another order in each epoch, with shards in random order and at least 1,024 examples to choose from, and
prints its seconds as JSON. The endpoint of the store is that of AWS_ENDPOINT_URL. This module imports nothing of
etlrun's, and nothing that some of these environments lack before it is used.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

BATCH_SIZE, BUFFER, WORKERS, AT_ONCE = 32, 1024, 2, 8
_LENGTH, _CRC_BYTES = struct.Struct("<Q"), 4
Epoch = Callable[[int], Iterable[Any]]
"""What gives the batches of the epoch of a number, from 0."""


def photos(folder: str) -> Iterator[dict[str, Any]]:
    """Encoded images with their labels, as remote.py writes them."""
    content = Path(folder, "photos.bin").read_bytes()
    start = 0
    for size, label in json.loads(Path(folder, "photos.json").read_text()):
        yield {"image": content[start : start + size], "label": label}
        start += size


def write_mds(source: str, folder: str, shard_bytes: int) -> None:
    """Write mosaicml-streaming's shards."""
    from streaming import MDSWriter

    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=folder, columns=columns, size_limit=shard_bytes) as writer:
        for example in photos(source):
            writer.write(example)


def write_chunks(source: str, folder: str, shard_bytes: int) -> None:
    """Write litdata's chunks."""
    import litdata

    litdata.optimize(photos, [source], folder, chunk_bytes=shard_bytes, num_workers=1)


def records(file: Any) -> Iterator[bytes]:
    """Records of an opened TFRecord file."""
    while head := file.read(_LENGTH.size + _CRC_BYTES):
        (size,) = _LENGTH.unpack_from(head)
        yield file.read(size + _CRC_BYTES)[:size]


def by_fsspec(url: str, folder: str, *, is_kept: bool) -> Epoch:
    """tf.data over generators of records, of which several read at once; of copies on this machine if they are kept."""
    import fsspec
    import tensorflow as tf

    files = fsspec.filesystem("s3")
    paths = files.glob(f"{url}/*.tfrecord-*")
    if is_kept:
        files = fsspec.filesystem("simplecache", target_protocol="s3", cache_storage=folder)

    def of_shard(path: bytes) -> Iterator[bytes]:
        with files.open(path.decode(), "rb", block_size=8 << 20) as file:
            yield from records(file)

    def opened(of: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(of_shard, output_signature=tf.TensorSpec((), tf.string), args=(of,))

    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def epoch(number: int) -> tf.data.Dataset:
        shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=number)
        read = shards.interleave(opened, cycle_length=AT_ONCE, block_length=16, num_parallel_calls=tf.data.AUTOTUNE)
        batches = read.shuffle(BUFFER, seed=number).batch(BATCH_SIZE)
        parsed = batches.map(lambda of: tf.io.parse_example(of, features), num_parallel_calls=tf.data.AUTOTUNE)
        return parsed.prefetch(tf.data.AUTOTUNE)

    return epoch


def as_bytes(examples: list[Any]) -> list[Any]:
    """A batch that processes can send: litdata gives views of memory."""
    return [{**example, "image": bytes(example["image"])} for example in examples]


def by_mosaic(url: str, folder: str) -> Epoch:
    """The dataset of mosaicml-streaming, whose index is in `folder`: workers would share what has fetched it."""
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    dataset = StreamingDataset(
        remote=url, local=folder, shuffle=True, batch_size=BATCH_SIZE, predownload=2 * BUFFER, num_canonical_nodes=1
    )
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE, num_workers=WORKERS, collate_fn=as_bytes, persistent_workers=True
    )
    return lambda _number: loader


def by_litdata(url: str, folder: str) -> Epoch:
    """The dataset and the loader of litdata."""
    from litdata import StreamingDataLoader, StreamingDataset

    options = {
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    dataset = StreamingDataset(url, cache_dir=folder, shuffle=True, storage_options=options, max_pre_download=AT_ONCE)
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH_SIZE, num_workers=WORKERS, collate_fn=as_bytes, persistent_workers=True
    )
    return lambda _number: loader


READERS: Mapping[str, Callable[[str, str], Epoch]] = {
    "fsspec": partial(by_fsspec, is_kept=False),
    "simplecache": partial(by_fsspec, is_kept=True),
    "mosaicml-streaming": by_mosaic,
    "litdata": by_litdata,
}
WRITERS = {"mosaicml-streaming": write_mds, "litdata": write_chunks}


def size_of(batch: Any) -> int:
    """Number of examples of a batch."""
    return len(batch["label"] if isinstance(batch, dict) else batch)


def read(epoch: Epoch, number: int) -> dict[str, Any]:
    """Read an epoch: its seconds, those until its first batch, and its examples."""
    began_s, first_s, examples = time.perf_counter(), 0.0, 0
    for batch in epoch(number):
        first_s = first_s or time.perf_counter() - began_s
        examples += size_of(batch)
    return {"s": time.perf_counter() - began_s, "first_s": first_s, "examples": examples}


def main() -> None:
    """Write a dataset, or read one."""
    work, name, *words = sys.argv[1:]
    if work == "write":
        source, folder, shard_bytes = words
        WRITERS[name](source, folder, int(shard_bytes))
        return
    url, cache, epochs = words
    epoch = READERS[name](url, cache)
    found = [read(epoch, number) for number in range(int(epochs))]
    print(json.dumps({"epochs": found}), flush=True)
    os._exit(0)  # at the end of the process threads of TensorFlow and fsspec may wait for each other


if __name__ == "__main__":
    main()
