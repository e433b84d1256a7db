"""Broken images among whole batches that libjpeg-turbo decodes: they alone are left out."""

from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests import pictures
from tests.configs import plan_of
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import of_tiny
from tests.runs import small
from tests.test_stage_costs import plan_on, seen

SKIP = "dataset.on_corrupt=skip"
READS = {
    "uncached": ("cache=none",),
    "shuffled late": ("cache=none", "load.shuffle_at=before_batch"),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "flipped": ("cache=none", "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"),
    "from JPEGs": ("cache=memory", "cache.codec=jpeg90"),
}


def broken(shard: Path) -> None:
    """Give a shard a record without a label, two images that can't be decoded, and a PNG."""
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    png = tf.io.encode_png(np.full((9, 9, 3), 200, np.uint8)).numpy()
    changes = {1: None, 5: b"no image", 6: pictures.jpeg(5)[:700], 8: png}
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for number, record in enumerate(records):
            example = tf.train.Example.FromString(record)
            if number in changes:
                data = changes[number]
                key, feature = ("label", None) if data is None else ("image", pictures.bytes_feature(data))
                del example.features.feature[key]
                if feature is not None:
                    example.features.feature[key].CopyFrom(feature)
            writer.write(example.SerializeToString())


@pytest.fixture(scope="module")
def with_broken(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("broken") / "data"
    pictures.damaged(tiny, data_dir, broken)
    return data_dir


@pytest.mark.parametrize("name", READS)
def test_images_are_decoded_in_batches_although_broken_ones_are_skipped(name: str) -> None:
    stages = [of.stage for of in plan_of(SKIP, *READS[name]).train]
    turbo = {stage.path: getattr(stage, "at_once", None) for stage in stages if "turbo" in stage.path}
    assert turbo.pop("transform.turbo") == 32
    turbo.pop("transform.after_turbo", None)
    assert turbo == ({"transform.turbo_after_cache": 0} if name == "from JPEGs" else {})


@pytest.mark.parametrize("name", READS)
def test_all_but_the_broken_images_are_those_of_sound_data(
    name: str, tiny: Path, with_broken: Path, tmp_path: Path
) -> None:
    """In the order of the data: in a shuffle, what is skipped shifts those behind it."""
    words = (*READS[name], "load.shuffle_buffer=0", f"cache.dir={tmp_path}", "dataset.split=train")
    words = (*words, "extract=sequential", "load.batch_size=1", "dataset.eval_split=null")
    skipping = plan_of(*small(with_broken, *words, SKIP))
    shards = len(list(tiny.rglob("*.tfrecord-*")))
    first = pictures.NUM_EXAMPLES // shards
    with training_pipeline(plan_of(*small(tiny, *words))) as pipeline:
        sound = as_bytes(pipeline.dataset)
    lost = [first + number for number in (1, 5, 6)]
    with training_pipeline(skipping) as pipeline:
        for _ in range(2):
            found = as_bytes(pipeline.dataset)
            expected = [batch for number, batch in enumerate(sound) if number not in lost]
            is_png = first + 8 - len(lost)
            assert len(found) == len(expected)
            if name != "flipped":  # whose seeds depend on the pass
                assert [*found[:is_png], *found[is_png + 1 :]] == [*expected[:is_png], *expected[is_png + 1 :]]
            assert found[is_png][0] != expected[is_png][0]
        assert [record.where.rpartition(" ")[2] for record in pipeline.context.losses.records or ()] == ["1", "5", "6"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncached", "flipped", "from JPEGs"])
def test_a_program_skips_the_same(name: str, with_broken: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(with_broken, tmp_path, SKIP, *READS[name], "dataset.split='train[:75%]'")
    with training_pipeline(plan) as pipeline:
        passes = reduce(list.__add__, (as_bytes(pipeline.dataset) for _ in range(2)))
    assert as_bytes(module.train_dataset())[: len(passes)] == passes
    validation = Pipeline(plan.evaluation, contexts_of(plan, open_source(plan.spec.dataset))["validation"])
    assert as_bytes(module.validation_dataset()) == as_bytes(validation.dataset)


def test_a_batch_of_broken_images_is_an_empty_one(tiny: Path, tmp_path: Path) -> None:
    def all_broken(shard: Path) -> None:
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
        with tf.io.TFRecordWriter(str(shard)) as writer:
            for record in records:
                example = tf.train.Example.FromString(record)
                example.features.feature["image"].CopyFrom(pictures.bytes_feature(b"no image"))
                writer.write(example.SerializeToString())

    pictures.damaged(tiny, tmp_path / "data", all_broken)
    shards = sorted((tmp_path / "data").rglob("*.tfrecord-*"))
    for shard in (shards[0], shards[2]):
        all_broken(shard)
    words = (SKIP, "cache=none", "dataset.split=train", "dataset.eval_split=null", "extract=sequential")
    with training_pipeline(plan_of(*small(tmp_path / "data", *words))) as pipeline:
        assert sum(len(labels) // 8 for _, labels, _ in as_bytes(pipeline.dataset)) == pictures.NUM_EXAMPLES // 4


def test_all_its_nodes_belong_to_it(tiny: Path) -> None:
    serial = (
        "load.prefetch=0",
        "load.num_parallel_calls=null",
        "transform.num_parallel_calls=null",
    )  # reads no batch ahead
    costs = seen(plan_on(tiny, SKIP, "transform.decode.library=turbo", *serial))
    rows = {row.stage: row for row in costs.rows}
    assert [*rows][:4] == ["extract.interleave", "transform.map", "transform.turbo", "load.shuffle"]  # turbo skips
    assert rows["transform.map"].examples >= rows["load.shuffle"].examples > 0


def test_tensorflow_takes_the_names_of_its_parameters(with_broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    with training_pipeline(plan_of(*small(with_broken, SKIP, "cache=none"))) as pipeline:
        assert list(pipeline.alone(pipeline.stages, from_cache=False))
    assert "is not a valid node name" not in caplog.text
