"""The memory of this process after each of eight passes over the photos. Used by caches.py."""

from __future__ import annotations

import json
import sys

import psutil
import tensorflow as tf

from benchmarks.caches import by_etlrun, rate

EPOCHS = 8


def main() -> None:
    """Print the number of photos and the sizes in bytes as JSON."""
    tf.config.set_visible_devices([], "GPU")
    data_dir, *words = sys.argv[1:]
    with by_etlrun(data_dir.removeprefix("dataset.data_dir="), *words) as (pipeline, dataset):
        sizes = []
        for _ in range(EPOCHS):
            rate(dataset)
            sizes.append(psutil.Process().memory_info().rss)
        print(json.dumps([pipeline.split.num_examples, *sizes]))


if __name__ == "__main__":
    main()
