"""Images that occur more than once in a pass are augmented differently each time, the same in all ways to read them."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.load import SampleByClass, distinct
from tests.own import PETS, batches, image, of_folder, of_records, records
from tests.pipelines import as_bytes
from tests.programs import program_of

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
    "parsed together": ("transform.parse_batch=4",),
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
    folder = tmp_path_factory.mktemp("twins") / "twins"
    for number in range(8):
        path = folder / PETS[number % 2] / f"no {number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(0 if number in (2, 4) else number))
    return folder


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
@pytest.mark.parametrize("way", ["serial", "shuffled", "turbo", "parsed together", "memory", "disk", "full", "skip"])
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
        resumed.skip_passes(1)
        resumed.skip_batches(5)
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
