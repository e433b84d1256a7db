"""A pass whose first batches are skipped goes on with those that an undisturbed one has after them."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.planning.plan import Plan
from tests.configs import TENSORFLOW, plan_of
from tests.pipelines import training_pipeline
from tests.runs import small

FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
FULL = ("load.shuffle=full", "extract=sequential")
CONFIGS = [
    ("cache=none",),
    ("cache=none", "load=plain"),
    ("cache=none", "load.shuffle_at=before_batch", FLIPPED),
    ("cache=none", "extract.shuffle_files=true", "load.shuffle_buffer=5", FLIPPED),
    ("cache=none", "transform.parse_batch=4", "load.drop_remainder=true"),
    ("cache=none", "transform.decode.library=tensorflow", FLIPPED),
    ("cache=none", "dataset.on_corrupt=skip"),
    ("cache=none", "load.mixup_alpha=0.2", *FULL),
    ("cache=none", "extract=tfds"),
    ("cache=memory", "cache.at=resize", FLIPPED),
    ("cache=disk", "cache.at=resize", FLIPPED),
    ("cache=disk", "cache.at=decoded", *FULL, FLIPPED),
    ("cache=disk", "load=plain"),
]
SKIPPED, PASSES = 3, 3


def batches_of(dataset: Iterable[Any]) -> list[tuple[bytes, ...]]:
    return [tuple(part.numpy().tobytes() for part in tf.nest.flatten(batch)) for batch in dataset]


@pytest.mark.parametrize("overrides", CONFIGS, ids=" ".join)
def test_a_pass_goes_on_after_the_batches_that_are_skipped(
    overrides: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    """The second pass; and the first, where a cache is filled by it, and once without a cache."""

    def plan(name: str) -> Plan:
        return plan_of(*small(tiny, "load.batch_size=4", *overrides, *_apart(overrides, tmp_path / name)))

    with training_pipeline(plan("whole")) as pipeline:
        expected = [batches_of(pipeline.dataset) for _ in range(PASSES)]
    for skipped_pass in (1, 2) if overrides == CONFIGS[0] or overrides[0] != "cache=none" else (2,):
        with training_pipeline(plan(f"resumed in {skipped_pass}")) as pipeline:
            pipeline.skip_passes(skipped_pass - 1)
            pipeline.skip_batches(SKIPPED)
            found = [batches_of(pipeline.dataset) for _ in range(skipped_pass, PASSES + 1)]
        assert found == [expected[skipped_pass - 1][SKIPPED:], *expected[skipped_pass:]], skipped_pass


@pytest.mark.parametrize(
    "overrides", [("cache=none", FLIPPED), ("cache=memory",), ("cache=disk",), ("cache=none", *FULL)], ids=" ".join
)
def test_so_do_endless_passes(overrides: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    found = []
    for skipped in (0, SKIPPED):
        apart = _apart(overrides, tmp_path / str(skipped))
        with training_pipeline(plan_of(*small(tiny, "load.batch_size=4", *overrides, *apart))) as pipeline:
            pipeline.skip_passes(1)
            pipeline.skip_batches(skipped)
            found.append(batches_of(islice(pipeline.endless(), 30 - skipped)))
    whole, resumed = found
    assert resumed == whole[SKIPPED:]


def test_skipped_images_are_not_decoded(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etlrun.stages.image import Decode

    counted, decode = tf.Variable(0), Decode.op

    def op(image: Any, **values: Any) -> Any:
        with tf.control_dependencies([counted.assign_add(1)]):
            return decode(tf.identity(image), **values)

    monkeypatch.setattr(Decode, "op", staticmethod(op))
    plan = plan_of(*small(tiny, TENSORFLOW, "load.batch_size=4", "cache=none", "transform.num_parallel_calls=null"))
    with training_pipeline(plan) as pipeline:
        pipeline.skip_batches(SKIPPED)
        batches = len(batches_of(pipeline.dataset))
        count = pipeline.split.num_examples
    assert batches == -(-count // 4) - SKIPPED
    assert int(counted) == count - 4 * SKIPPED


def _apart(overrides: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    return (f"cache.dir={folder}",) if "cache=disk" in overrides else ()
