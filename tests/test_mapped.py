"""Reading of caches by operations of TensorFlow alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from etlrun.cache import parts
from etlrun.graph.disk import Mapped
from etlrun.graph.parts import require_portable
from etlrun.stages.flow import ITEM_BYTES, Feature, Flow

SHAPES = ((), (3,), (2, 1, 3))


@pytest.mark.parametrize("part_bytes", [100, 10**6], ids=["many parts", "one part"])
def test_examples_are_read_by_number_as_they_were_written(
    part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", part_bytes)
    features = {
        f"{dtype}_{len(shape)}": Feature(dtype=dtype, shape=shape) for dtype in sorted(ITEM_BYTES) for shape in SHAPES
    }
    kept = Flow(features=features, targets=("uint8_0",))
    random, writer, examples = np.random.default_rng(0), parts.Writer(tmp_path), []
    for _ in range(7):
        sides = {
            f"{dtype}_{len(shape)}": (*shape, ITEM_BYTES[dtype]) for dtype in sorted(ITEM_BYTES) for shape in SHAPES
        }
        raw = {name: random.integers(0, 2, of, np.uint8) for name, of in sides.items()}
        examples.append({name: raw[name].view(of.dtype)[..., 0] for name, of in features.items()})
        writer.add(*(examples[-1][name] for name in kept.columns))
    sizes = {name: of["bytes"] for name, of in writer.close().items() if name != parts.INDEX}
    assert len(sizes) == (7 if part_bytes == 100 else 1)
    mapped = Mapped([(tmp_path / name, sizes[name]) for name in sorted(sizes)], kept, np.arange(len(examples)))
    order = [3, 6, 0, 6, 1, 5, 4, 2]
    read = mapped.read(tf.data.Dataset.from_tensor_slices(tf.constant(order, tf.int64)))
    require_portable(read)
    found = [*read.as_numpy_iterator()]
    assert mapped.count == 7
    assert len(found) == len(order)
    for number, example in zip(order, found, strict=True):
        for name, feature in features.items():
            assert (example[name].dtype, example[name].shape) == (np.dtype(feature.dtype), feature.shape)
            assert example[name].tobytes() == examples[number][name].tobytes()
