"""Graphs of pipelines: what each stage makes of the examples, and that it is one class for graphs and programs."""

import dataclasses
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.eject.pipeline import DATASET_TEXTS
from etlrun.eject.program import ejected, versions
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.planning.plan import PlannedStage
from etlrun.stages import STAGES
from etlrun.stages.base import Stage
from etlrun.stages.flow import Feature
from etlrun.stages.made import Call, Constant
from etlrun.stages.measure import Logger
from etlrun.stages.step import Step
from tests.configs import TENSORFLOW, plan_of, raised
from tests.golden import Says
from tests.pictures import damaged, truncate
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import loaded, of_tiny
from tests.runs import small


def test_every_stage_has_a_text() -> None:
    """A call is its own text, no cache is no stage; a service, URLs and features are refused."""
    texts: set[type[Stage]] = {*DATASET_TEXTS}
    of_pipelines = [stages for group, stages in STAGES.items() if group not in {"model", "trainer", "profile"}]
    registered = {stage for stages in of_pipelines for stage in stages.values() if not issubclass(stage, Step | Logger)}
    missing = {of.__name__ for of in registered | DATASET_STAGES.keys() if not issubclass(of, (*texts,))}
    assert missing == {"NoCache", "MemoryCache", "Service", "Fetch", "Backbone"}
    assert not [stage for stage in texts if stage.call is not Stage.call]


def test_a_stage_that_is_a_call_is_one_class(tiny: Path, tmp_path: Path) -> None:
    """A graph makes the call, and a program holds it, with what each knows of its arguments."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Skip(Stage):
        path: ClassVar[str] = "load.skip"
        count: int

        def call(self) -> Call:
            return Call("skip", (Constant("SKIPPED", self.count),))

    plan, module = of_tiny(tiny, tmp_path, "cache=none", "load.shuffle_buffer=0", "trainer.epochs=1")
    skip = PlannedStage(stage=Skip(count=2), gives=plan.train[-1].gives)
    with_skip = dataclasses.replace(plan, train=(*plan.train, skip))
    text = ejected(with_skip, [], versions())
    assert "\nSKIPPED = 2\n" in text
    assert "    dataset = dataset.skip(SKIPPED)\n" in text
    skipped = as_bytes(loaded(text, tmp_path).train_dataset())
    with training_pipeline(with_skip) as pipeline:
        assert as_bytes(pipeline.dataset) == skipped == as_bytes(module.train_dataset())[2:]


Batches = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]
Build = Callable[..., Pipeline]

PLAIN = ("load.shuffle_buffer=0", "dataset.split=train")


def batches(dataset: tf.data.Dataset) -> Batches:
    return list(dataset.as_numpy_iterator())


def examples(dataset: tf.data.Dataset) -> list[bytes]:
    """Each example, image and label, as bytes that can be compared and sorted."""
    return [
        image.tobytes() + bytes([label])
        for images, labels in batches(dataset)
        for image, label in zip(images, labels, strict=True)
    ]


@cache
def numbers(data_dir: Path, split: str) -> list[int]:
    """What TFDS itself reads of a split."""
    dataset = tfds.load("tiny_pictures", data_dir=data_dir, split=split, download=False)
    return [int(example["number"]) for example in dataset]


@pytest.fixture(scope="module")
def pictures(tiny: Path) -> dict[int, bytes]:
    """Each example as it is stored, by its number."""
    words = small(tiny, *PLAIN, "extract=sequential", "cache=none")
    with training_pipeline(plan_of(*words)) as pipeline:
        return dict(zip(numbers(tiny, "train"), examples(pipeline.dataset), strict=True))


@pytest.mark.parametrize("split", ["train", "train[10%:55%]", "train[:1]", "train[-7:]", "train[3:5]+train[40:]"])
@pytest.mark.parametrize("extract", ["sequential", "interleave", "tfds"])
def test_extraction_reads_exactly_the_examples_of_the_split(
    extract: str, split: str, pipeline: Build, pictures: dict[int, bytes], tiny: Path
) -> None:
    read = examples(pipeline(*PLAIN, f"dataset.split='{split}'", f"extract={extract}").dataset)
    assert sorted(read) == sorted(pictures[number] for number in numbers(tiny, split))


def test_interleaving_takes_blocks_from_the_shards_in_turn(pipeline: Build) -> None:
    stored = examples(pipeline(*PLAIN, "extract=sequential").dataset)
    words = ("extract.cycle_length=2", "extract.block_length=3")
    read = examples(pipeline(*PLAIN, *words).dataset)
    assert [stored.index(example) for example in read[:12]] == [0, 1, 2, 12, 13, 14, 3, 4, 5, 15, 16, 17]


@pytest.fixture(scope="module")
def usual(tiny: Path) -> list[list[bytes]]:
    """Two passes of a small run."""
    with training_pipeline(plan_of(*small(tiny))) as pipeline:
        return [examples(pipeline.dataset) for _ in range(2)]


@pytest.mark.parametrize(
    "overrides",
    [
        "extract.num_parallel_calls=null transform.num_parallel_calls=3 load.prefetch=0",
        "extract.num_parallel_calls=2 transform.num_parallel_calls=null load.prefetch=3", "cache=none",
        "cache.at=source", "cache.at=decoded", "cache=disk", "cache=disk cache.at=source",
        "cache=disk cache.at=decoded",
    ],
)  # fmt: skip
def test_what_only_changes_the_speed_changes_no_byte(overrides: str, pipeline: Build, usual: list[list[bytes]]) -> None:
    other = pipeline(*overrides.split())
    assert [examples(other.dataset) for _ in range(2)] == usual


@pytest.mark.parametrize("cycle_length", [2, 3])
def test_what_only_changes_the_speed_changes_no_order_of_damaged_data(
    cycle_length: int, pipeline: Build, tiny: Path, tmp_path: Path
) -> None:
    damaged(tiny, tmp_path / "data", truncate)
    words = ("dataset.on_corrupt=skip", "cache=none", f"extract.cycle_length={cycle_length}", "load.shuffle_buffer=0")
    here = f"dataset.data_dir={tmp_path / 'data'}"
    speeds = ("extract.num_parallel_calls=null", "extract.num_parallel_calls=1", "transform.num_parallel_calls=null")
    usual = examples(pipeline(here, *words).dataset)
    assert len(usual) == 31
    for speed in speeds:
        assert examples(pipeline(here, *words, speed).dataset) == usual


def test_tfds_decodes_to_the_same_pixels(pipeline: Build) -> None:
    steps = "[resize,scale_minus_one_one]"
    decoded = ("extract=tfds", "extract.decode=true", f"transform.steps={steps}", f"transform.eval_steps={steps}")
    read = examples(pipeline(*PLAIN, *decoded).dataset)
    assert sorted(read) == sorted(examples(pipeline(*PLAIN, TENSORFLOW).dataset))


def shuffled_passes(build: Build) -> list[list[bytes]]:
    """Three passes, each of an order of its own, which is the same in every run and another with another seed."""
    first = build()
    passes = [examples(first.dataset) for _ in range(3)]
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    second = build()
    second.skip(2)
    assert examples(second.dataset) == passes[2]
    assert examples(build("trainer.seed=1").dataset) not in passes
    return passes


@pytest.mark.parametrize("cache", ["none", "memory", "disk"])
def test_each_pass_has_an_order_of_its_own_and_the_same_one_in_every_run(cache: str, pipeline: Build) -> None:
    shuffled_passes(partial(pipeline, f"cache={cache}"))


@pytest.mark.parametrize("cache", ["none", "memory", "disk"])
def test_a_buffer_for_more_examples_than_there_are_changes_no_order(cache: str, pipeline: Build) -> None:
    words = ("dataset.split='train[:30]'", f"cache={cache}")
    whole, larger, largest = (pipeline(*words, f"load.shuffle_buffer={size}") for size in (30, 31, 100_000_000))
    passes = [examples(whole.dataset) for _ in range(3)]
    assert passes[0] != passes[1]
    assert [examples(larger.dataset) for _ in range(3)] == passes
    assert [examples(largest.dataset) for _ in range(3)] == passes


@pytest.mark.parametrize("steps", ["[decode,resize,scale_zero_one]", "[decode,resize,random_flip,scale_zero_one]"])
def test_the_endless_sequence_is_the_passes_one_after_the_other(steps: str, pipeline: Build) -> None:
    words = (f"transform.steps={steps}", "transform.eval_steps=[decode,resize,scale_zero_one]", "cache=none")
    pipe, other = pipeline(*words), pipeline(*words)
    pipe.skip(1)
    passes = [examples(other.dataset) for _ in range(3)]
    assert examples(pipe.endless().take(10)) == passes[1] + passes[2]


@pytest.mark.smoke
@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_cache_is_filled_once(cache: str, pipeline: Build, tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    words = ("load.shuffle_buffer=0", "load.prefetch=0", "load.batch_size=19", f"dataset.data_dir={tmp_path / 'data'}")
    pipe = pipeline(f"cache={cache}", *words)
    first = examples(pipe.dataset)
    assert len(first) == 38
    for shard in pipe.split.shards:
        Path(shard.path).write_bytes(b"")
    assert examples(pipe.dataset) == first


FLIPPED = ("cache=none", "transform.steps=[decode,resize,random_flip,scale_minus_one_one]", *PLAIN)


def test_a_random_flip_depends_on_seed_pass_and_picture_alone(pipeline: Build) -> None:
    plain = pipeline("cache=none", *PLAIN)
    originals = np.concatenate([images for images, _ in batches(plain.dataset)])
    flipped = pipeline(*FLIPPED)
    passes = [np.concatenate([images for images, _ in batches(flipped.dataset)]) for _ in range(2)]
    turned = [[not np.array_equal(a, b) for a, b in zip(images, originals, strict=True)] for images in passes]
    assert all(
        np.array_equal(image, original[:, ::-1] if turn else original)
        for image, original, turn in zip(passes[0], originals, turned[0], strict=True)
    )
    assert 12 < sum(turned[0]) < 36
    assert turned[0] != turned[1]
    reordered = pipeline(*FLIPPED, "extract=sequential", "transform.num_parallel_calls=null")
    reordered.skip(2)
    assert sorted(examples(reordered.dataset)) == sorted(examples(flipped.dataset))


@pytest.mark.parametrize("scaling", ["scale_zero_one", "scale_minus_one_one", "rescale"])
def test_each_picture_is_flipped_on_its_own_after_a_scaling_too(scaling: str, pipeline: Build) -> None:
    factors = ("+transform.rescale={scale: 0.001, offset: 0.0}",) if scaling == "rescale" else ()
    steps = f"[decode,resize,{scaling}]"
    words = (*PLAIN, "cache=none", f"transform.eval_steps={steps}", *factors, "transform.resize.dtype=float32")
    plain = pipeline(*words, f"transform.steps={steps}")
    flipped = pipeline(*words, f"transform.steps=[decode,resize,{scaling},random_flip]")
    originals = examples(plain.dataset)
    turned = [[a != b for a, b in zip(examples(flipped.dataset), originals, strict=True)] for _ in range(3)]
    assert all(12 < sum(of_pass) < 36 for of_pass in turned)
    assert turned[0] != turned[1] != turned[2]


def test_a_random_step_can_be_the_first_one(pipeline: Build) -> None:
    steps = ("transform.steps=[random_flip,resize,scale_zero_one]", "transform.eval_steps=[resize,scale_zero_one]")
    first = pipeline("cache=none", "extract=tfds", "extract.decode=true", *steps, *PLAIN)
    assert len(set(examples(first.dataset)) & set(examples(first.dataset))) < 40


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("scale_minus_one_one", keras.applications.mobilenet_v2.preprocess_input),
        ("scale_zero_one", lambda images: images / 255),
    ],
)
def test_the_scalings_are_those_of_mobilenet(step: str, expected: Any, pipeline: Build) -> None:
    def images(name: str) -> npt.NDArray[Any]:
        steps = f"[decode,resize,{name}]"
        words = (f"transform.steps={steps}", f"transform.eval_steps={steps}", "transform.resize.dtype=float32")
        rescale = ("+transform.rescale={scale: 0.00392156862745098, offset: 0.0}",) if name == "rescale" else ()
        first: npt.NDArray[Any] = batches(pipeline(*PLAIN, *words, *rescale).dataset)[0][0]
        return first

    pixels = images("rescale") * 255
    np.testing.assert_allclose(images(step), expected(pixels.copy()), atol=1e-4)


def test_a_center_crop_is_the_middle_square(pipeline: Build, tiny: Path) -> None:
    steps = "[decode,center_crop,resize,scale_zero_one]"
    words = (f"transform.steps={steps}", f"transform.eval_steps={steps}", "transform.resize.dtype=float32")
    sizes = ("transform.resize.size=[40,40]", "extract=sequential")
    cropped = batches(pipeline(*PLAIN, *words, *sizes).dataset)[0][0][0]
    encoded = next(iter(tfds.load("tiny_pictures", data_dir=tiny, split="train", download=False)))["image"]
    np.testing.assert_allclose(cropped, encoded.numpy()[:, 4:44] / 255, atol=1e-6)


@pytest.mark.parametrize("extract", ["sequential", "interleave", "tfds"])
def test_the_length_of_a_pass_is_unknown_so_that_it_is_read_to_its_end(extract: str, pipeline: Build) -> None:
    cardinality = pipeline(f"extract={extract}").dataset.cardinality()
    assert int(cardinality) == tf.data.UNKNOWN_CARDINALITY


def test_a_flow_that_promises_what_the_graph_does_not_give_is_found_at_once(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setattr(
        STAGES["transform"]["resize"], "gives", lambda *_: Feature(dtype="uint8", shape=(32, 33, 3), low=0, high=1)
    )
    words = ("transform.steps=[decode,resize]", "transform.eval_steps=[decode,resize]")
    says(raised(TypeError, pipeline, *words, "transform.resize.dtype=float32"))


def test_further_pipelines_of_a_process_are_not_told_to_be_retracing(
    tiny: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow tells functions apart by their code, which pipelines would share."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    plan = plan_of(*small(tiny), "cache=none")
    for _ in range(6):
        with training_pipeline(plan):
            pass
    assert "retracing" not in caplog.text
