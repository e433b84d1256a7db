"""MixUp, CutMix and repeated images: what they make of a batch, of its targets, and of a training."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.eject.program import ejected, versions
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import staged
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.load import SampleByClass, distinct
from etlrun.stages.mix import beta, mix, mixed_accuracy, mixed_crossentropy
from tests.own import PETS, batches, image, of_folder, of_records, records, write_pets
from tests.pipelines import as_bytes
from tests.programs import losses_in, of_words, program_of
from tests.quick import shallow
from tests.runs import complete_here, losses_of, run_here

STEPS = (
    "transform.steps=[decode,resize,random_brightness,random_flip]",
    "transform.resize.dtype=float32",
    "+transform.random_brightness.max_delta=0.3",
)
BASE = (*STEPS, "dataset.split=train+train", "dataset.eval_split=null", "cache=none", "load.batch_size=1")
DISK = ("cache=disk", "cache.at=resize", "extract=sequential", "load.shuffle_buffer=0")
WAYS: dict[str, tuple[str, ...]] = {
    "serial": ("extract=sequential", "load.shuffle_buffer=0", "transform.num_parallel_calls=null"),
    "shuffled": ("extract.cycle_length=3", "extract.shuffle_files=true", "load.shuffle_buffer=7"),
    "after all steps": ("load.shuffle_at=before_batch", "load.shuffle_buffer=7"),
    "turbo": ("transform.resize.dtype=uint8",),
    "memory": ("cache=memory", "cache.at=resize", "load.shuffle_buffer=7"),
    "disk": (*DISK, "load.shuffle_buffer=7"),
    "disk, interleaved": ("cache=disk", "cache.at=resize", "extract.cycle_length=3", "extract.shuffle_files=true"),
    "full": ("extract=sequential", "load.shuffle=full"),
    "full, disk": (*DISK, "load.shuffle=full"),
    "skip": ("dataset.on_corrupt=skip",),
}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight images in a folder, of which three are the same."""
    return write_pets(tmp_path_factory.mktemp("twins") / "twins", (0, 1, 0, 3, 0, 5, 6, 7))


@pytest.fixture(scope="module")
def serial(twins: Path) -> list[Counter[Any]]:
    return passes_of(of_twins(twins, *WAYS["serial"]))


def of_twins(folder: Path, *words: str) -> Plan:
    given = {word.partition("=")[0] for word in words}
    return of_folder(folder, *(word for word in BASE if word.partition("=")[0] not in given), *words)


def passes_of(plan: Plan, count: int = 2) -> list[Counter[Any]]:
    """How often each image of a pass occurs there, for each pass."""
    found = batches(plan, passes=count)
    each = len(found) // count
    return [Counter(found[start : start + each]) for start in range(0, len(found), each)]


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_an_image_differ_and_are_the_same_in_all_ways(
    way: str, twins: Path, serial: list[Counter[Any]], tmp_path: Path
) -> None:
    """By the number of the example in the data, whatever the order, the parallelism and the cache."""
    found = passes_of(of_twins(twins, f"cache.dir='{tmp_path}'", *WAYS[way]))
    if way == "turbo":  # which resizes to other pixels
        assert [len(of) for of in found] == [16, 16]
        return
    assert found == serial
    assert [max(of.values()) for of in found] == [1, 1]
    assert not found[0] & found[1]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["serial", "shuffled", "turbo", "memory", "disk", "full", "skip"])
def test_a_program_augments_the_copies_like_the_run(way: str, twins: Path, tmp_path: Path) -> None:
    plan = of_twins(twins, f"cache.dir='{tmp_path}'", *WAYS[way], "trainer.epochs=2")
    program = program_of(plan, tmp_path)
    assert as_bytes(program.train_dataset().take(32)) == batches(plan, passes=2)


@pytest.mark.parametrize("cache", [("cache=none",), DISK])
def test_each_draw_of_a_rare_image_is_another_one(cache: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "rare"
    for number in range(24):
        path = folder / PETS[number > 2] / f"no {number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    sampled = ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential", "dataset.split=train")
    plan = of_twins(folder, *sampled, f"cache.dir='{tmp_path / 'caches'}'", *cache, "trainer.epochs=2")
    found = batches(plan, passes=2)
    rare = [pixels for pixels, label, _ in found if not int(np.frombuffer(label, np.int64)[0])]
    assert len(rare) > 15
    assert len({*rare}) == len(rare)
    program = program_of(plan, tmp_path)
    assert as_bytes(program.train_dataset().take(48)) == found
    context = contexts_of(plan, open_source(plan.spec.dataset))["train"]
    resumed = Pipeline(plan.train, context) if cache == ("cache=none",) else None
    if resumed is not None:
        resumed.skip(1, 5)
        assert as_bytes(resumed.dataset) == found[24 + 5 :]


def test_records_that_are_equal_differ_too(tmp_path: Path) -> None:
    """With steps on features of turbo, in whole batches, from which broken ones are left out."""
    data = tmp_path / "data"
    data.mkdir()
    records(data, "a.tfrecord", range(6))
    shutil.copy(data / "a.tfrecord", data / "b.tfrecord")
    words = (*STEPS, "dataset.on_corrupt=skip", "load.batch_size=1", "cache=none")
    plan = of_records(data, *words, "dataset.split=train", "dataset.eval_split=null", "trainer.epochs=1")
    found = batches(plan)
    assert (len(found), len({*found})) == (12, 12)
    assert as_bytes(program_of(plan, tmp_path).train_dataset().take(12)) == found


def test_a_draw_has_the_number_of_its_example_and_then_others() -> None:
    assert distinct(np.array([2, 0, 2, 1, 2, 0])).tolist() == [2, 0, 8, 1, 14, 6]
    order = SampleByClass.op(np.array([0] * 3 + [1] * 97), 7)
    assert len({*distinct(order).tolist()}) == 100
    assert (distinct(order) % 100 == order).all()


RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(256, size=(6, 16, 24, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9])
NAMES = {"mixup": (0.4, 0.0), "cutmix": (0.0, 1.0), "either": (0.4, 1.0)}


def mixed(images: np.ndarray, seed: int, mixup: float, cutmix: float) -> tuple[np.ndarray, np.ndarray]:
    found = mix(
        tf.constant(images),
        tf.constant(LABELS),
        mixup_alpha=mixup,
        cutmix_alpha=cutmix,
        seed=tf.constant(seed, tf.int64),
    )
    return found[0].numpy(), found[1].numpy()


def partners(targets: np.ndarray) -> list[int]:
    """The example that each one is mixed with, or the first of its class."""
    return [next(place for place, label in enumerate(LABELS) if label == target) for target in targets[:, 1]]


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_keeps_its_form_and_targets_are_classes_and_a_share(name: str) -> None:
    for images in (IMAGES, IMAGES.astype(np.float32) / 255):
        pixels, targets = mixed(images, 1, *NAMES[name])
        assert (pixels.shape, pixels.dtype) == (images.shape, images.dtype)
        assert targets.dtype == np.float32
        np.testing.assert_array_equal(targets[:, 0], LABELS)
        assert sorted(targets[:, 1]) == sorted(LABELS)
        assert len(set(targets[:, 2])) == 1
        assert 0 <= targets[0, 2] <= 1


def test_mixup_is_the_weighted_mean_of_two_images() -> None:
    images = IMAGES.astype(np.float32)
    images[3] = images[1]  # of one class, so that the targets tell all partners
    pixels, targets = mixed(images, 5, 0.4, 0.0)
    share = targets[0, 2]
    wanted = share * images + (1 - share) * images[partners(targets)]
    np.testing.assert_allclose(pixels, wanted, rtol=1e-6)
    assert 0 < share < 1
    whole, _ = mixed(images.astype(np.uint8), 5, 0.4, 0.0)
    assert whole.dtype == np.uint8


def test_cutmix_has_a_rectangle_of_the_partner_and_the_share_of_the_rest() -> None:
    images = IMAGES.copy()
    images[3] = images[1]
    shares = []
    for seed in range(20):
        pixels, targets = mixed(images, seed, 0.0, 1.0)
        others = images[partners(targets)]
        is_own, is_other = (pixels == images).all(-1), (pixels == others).all(-1)
        assert (is_own | is_other).all()
        shares.append(targets[0, 2])
        cut = ~is_own[0] if targets[0, 1] != LABELS[0] else np.zeros((16, 24), bool)
        if cut.any():
            rows, columns = np.flatnonzero(cut.any(1)), np.flatnonzero(cut.any(0))
            area = (rows[-1] + 1 - rows[0]) * (columns[-1] + 1 - columns[0])
            assert 1 - area / (16 * 24) == pytest.approx(shares[-1], abs=1e-6)
    assert min(shares) < 0.4
    assert max(shares) > 0.8


def test_shares_are_drawn_from_a_beta_distribution() -> None:
    drawn = np.array([float(beta(0.4, tf.constant([seed, 7], tf.int64))) for seed in range(1500)])
    assert abs(drawn.mean() - 0.5) < 0.04
    assert abs(drawn.var() - 0.25 / (2 * 0.4 + 1)) < 0.02  # the variance of Beta(a, a) is 1 / (4 (2a + 1))


def test_both_are_chosen_at_the_same_odds() -> None:
    images = IMAGES.astype(np.float32) + 0.25
    cut = 0
    for seed in range(60):
        pixels, _ = mixed(images, seed, 1.0, 1.0)
        cut += bool(np.isin(pixels, images).all())
    assert 15 < cut < 45


def test_the_loss_and_the_accuracy_are_those_of_mixed_one_hot_targets() -> None:
    probabilities = tf.nn.softmax(tf.constant(RANDOM.normal(size=(6, 10)), tf.float32))
    _, targets = mixed(IMAGES, 3, 0.4, 0.0)
    one, other, share = targets[:, 0].astype(int), targets[:, 1].astype(int), targets[0, 2]
    hot = share * np.eye(10)[one] + (1 - share) * np.eye(10)[other]
    wanted = keras.losses.categorical_crossentropy(hot.astype(np.float32), probabilities)
    np.testing.assert_allclose(mixed_crossentropy(tf.constant(targets), probabilities), wanted, rtol=1e-5)
    predicted = np.argmax(probabilities, axis=1)
    hits = share * (predicted == one) + (1 - share) * (predicted == other)
    np.testing.assert_allclose(mixed_accuracy(tf.constant(targets), probabilities), hits, rtol=1e-6)
    plain = keras.losses.sparse_categorical_crossentropy(LABELS, probabilities)
    np.testing.assert_array_equal(mixed_crossentropy(tf.constant(LABELS), probabilities), plain)


OWN = ("load.mixup_alpha=0.2", "load.cutmix_alpha=1.0", "cache=none")


@pytest.mark.slow
def test_passes_differ_and_are_repeated_by_a_program(folder: Path, tmp_path: Path) -> None:
    plan = of_folder(folder, *OWN)
    found = batches(plan, passes=2)
    assert found == batches(of_folder(folder, *OWN, "transform.num_parallel_calls=null"), passes=2)
    assert found[: len(found) // 2] != found[len(found) // 2 :]
    assert found != batches(of_folder(folder, *OWN, "trainer.seed=1"), passes=2)
    assert as_bytes(program_of(plan, tmp_path).train_dataset().take(len(found))) == found


@pytest.mark.parametrize(
    ("calls", "text"), [("2", ",num_parallel_calls=2,deterministic=True,)"), ("null", ",)")], ids=["two", "serial"]
)
def test_batches_are_mixed_with_the_parallelism_of_the_transform(calls: str, text: str, folder: Path) -> None:
    plan = of_folder(folder, *OWN, f"transform.num_parallel_calls={calls}", "load.prefetch=0")
    pipeline = Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset))["train"])
    mapped = staged(pipeline.uncached(plan.train[:-1]), plan.train[-1].stage, pipeline.context)
    assert type(mapped).__name__ == ("_ParallelMapDataset" if calls == "2" else "_MapDataset")
    assert f'seed=seed),feature="image",target="label",){text}' in "".join(ejected(plan, [], versions()).split())


def test_the_graph_of_all_passes_is_traced_once(folder: Path) -> None:
    plan = of_folder(folder, *OWN)
    pipeline = Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset))["train"])
    for _ in range(3):
        assert len(list(pipeline.dataset)) == 8
    assert pipeline._traced.experimental_get_tracing_count() == 1


@pytest.mark.slow
def test_a_program_trains_to_the_losses_of_the_run_and_its_model_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow(monkeypatch)
    data = ["dataset=folder", f"dataset.dir='{folder}'", "load.batch_size=8", "transform.resize.size=[32,32]"]
    words = [*data, *OWN, "trainer.epochs=2"]
    whole = complete_here(tmp_path / "whole", words)
    monkeypatch.chdir(tmp_path)
    assert losses_in(of_words(words, tmp_path)[1].train()[0].history) == losses_of(whole)
    run_here(tmp_path / "half", [*words, "trainer.epochs=1"])
    status, rest = run_here(tmp_path / "rest", [*words, f"trainer.resume={tmp_path / 'half'}"])
    assert (status, losses_of(rest)) == (0, losses_of(whole))
