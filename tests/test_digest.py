"""Two configs see the same data exactly when their digests say so."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.cache.store import CacheStore
from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.measure.digest import Digest
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests.configs import KINDS, TENSORFLOW, plan_of
from tests.runs import complete_here, small

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def of(images: np.ndarray, labels: np.ndarray, *sizes: int) -> str:
    digest, start = Digest(), 0
    for size in sizes:
        digest.add(images[start : start + size], labels[start : start + size])
        start += size
    return digest.taken()


@pytest.mark.smoke
def test_order_and_batches_change_nothing() -> None:
    order = RNG.permutation(6)
    assert of(IMAGES, LABELS, 6) == of(IMAGES[order], LABELS[order], 1, 3, 2)
    assert of(IMAGES, LABELS, 6).startswith("6:")


def test_any_other_example_changes_it() -> None:
    pixel, label = IMAGES.copy(), LABELS.copy()
    pixel[3, 1, 1, 1] ^= 1
    label[3] ^= 1
    texts = {
        of(IMAGES, LABELS, 6),
        of(pixel, LABELS, 6),
        of(IMAGES, label, 6),
        of(IMAGES, LABELS, 5),
        of(np.concatenate([IMAGES[:5], IMAGES[:1]]), np.append(LABELS[:5], LABELS[0]), 6),
        of(IMAGES.astype(np.float32), LABELS, 6),
        of(IMAGES.reshape(6, 5, 4, 3), LABELS, 6),
    }
    assert len(texts) == 7


def test_an_example_that_comes_twice_counts_twice() -> None:
    twice = (np.repeat(IMAGES[number : number + 1], 2, axis=0) for number in range(2))
    assert len({of(images, LABELS[:1].repeat(2), 2) for images in twice}) == 2


class Slow:
    """Images that can be read once they are let go."""

    def __init__(self) -> None:
        self.is_free = threading.Event()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        assert self.is_free.wait(60)
        return IMAGES


def test_a_step_does_not_wait_for_the_digest_of_its_batch() -> None:
    digest, slow = Digest(), [Slow() for _ in range(4)]
    for pictures in slow:
        digest.add(pictures, LABELS)  # though none of them can be hashed yet
    for pictures in slow:
        pictures.is_free.set()
    assert digest.taken() == of(np.concatenate([IMAGES] * 4), np.concatenate([LABELS] * 4), 24)


def test_no_more_batches_are_held_than_are_hashed_at_a_time() -> None:
    digest, slow, has_added = Digest(), [Slow() for _ in range(5)], threading.Event()

    def add() -> None:
        for pictures in slow:
            digest.add(pictures, LABELS)
        has_added.set()

    thread = threading.Thread(target=add)
    thread.start()
    for pictures in slow[1:]:
        pictures.is_free.set()
    assert not has_added.is_set()  # the first of them holds the fifth up
    slow[0].is_free.set()
    thread.join()
    assert digest.taken().startswith("30:")


def test_a_batch_that_was_read_ahead_counts_for_the_next_epoch() -> None:
    digest = Digest()
    digest.add(IMAGES[:2], LABELS[:2])
    digest.add(IMAGES[2:], LABELS[2:])
    assert digest.taken(1) == of(IMAGES[:2], LABELS[:2], 2)
    assert digest.taken() == of(IMAGES[2:], LABELS[2:], 4)


def test_what_is_wrong_with_a_batch_is_told_where_the_digest_is_taken() -> None:
    digest = Digest()
    digest.add(IMAGES, LABELS[:5])
    with pytest.raises(ValueError, match=r"a batch has values of \[5, 6\] examples"):
        digest.taken()


SPEEDS: dict[str, tuple[str, ...]] = {
    "dataset.data_dir": (),
    "dataset.download": ("dataset.download=true",),
    "extract.decode": (
        "extract=tfds",
        "extract.decode=true",
        "transform.steps=[resize,scale_minus_one_one]",
        "transform.eval_steps=[resize,scale_minus_one_one]",
    ),
    **dict.fromkeys(("dataset.storage", "dataset.keep", "dataset.copies"), ()),
    "extract.num_parallel_calls": ("extract.num_parallel_calls=2",),
    "transform.num_parallel_calls": ("transform.num_parallel_calls=null",),
    "transform.decode.processes": ("transform.decode.processes=1",),
    "cache.at": (),
    "cache.dir": (),
    "load.prefetch": ("load.prefetch=0",),
    "load.num_parallel_calls": ("load.num_parallel_calls=3",),
    "load.shuffle_at": ("cache=none", "load.shuffle_at=before_batch"),
    "model.step_ms": ("model.step_ms=1",),
    "model.eval_step_ms": ("model.eval_step_ms=1",),
    "trainer.checkpoint_every_steps": (),
    "trainer.checkpoint_keep": ("trainer.checkpoint_keep=2",),
    "trainer.on_nan": ("trainer.on_nan=warn",),
    "trainer.resume": (),
    "trainer.step_ms": (),
    "trainer.step_cores": (),
    "profile.windows": ("profile=trace", "profile.windows=[[1,2]]"),
    "logger.tracking_uri": (),
    "logger.experiment_name": (),
    "logger.project": (),
    "logger.entity": (),
    "logger.mode": (),
    "measure.au_min": ("measure.au_min=0",),
    "measure.digest": (),
}
"""For each parameter that only changes the speed another value; where there is none, the reason stands below."""
UNTRIED = {
    "dataset.data_dir": "where the files are; test_the_place_of_the_data_changes_no_digest copies them",
    "cache.at": "test_neither_does_a_cache_wherever_it_stands",
    "cache.dir": "each test has a folder of its own",
    "trainer.resume": "tests/test_laws.py resumes runs",
    "trainer.checkpoint_every_steps": "test_a_run_killed_inside_an_epoch_ends_as_if_undisturbed",
    **dict.fromkeys(
        ("logger.tracking_uri", "logger.experiment_name", "logger.project", "logger.entity", "logger.mode"),
        "where a process of its own sends figures; test_services has such runs",
    ),
    **dict.fromkeys(("trainer.step_ms", "trainer.step_cores"), "test_a_batch_that_is_held_is_the_same"),
    **dict.fromkeys(("dataset.storage", "dataset.keep", "dataset.copies"), "test_remote_tfds compares batches of URLs"),
    "measure.digest": "without it there is no digest",
}
APART = ("extract.decode", "load.shuffle_at")
"""Parameters that are tried alone, since they need another pipeline; all others are tried in one run."""
TRIED = [
    [word for name, words in SPEEDS.items() if name not in APART for word in words],
    *(SPEEDS[name] for name in APART),
]


def words_of(data_dir: Path, folder: Path, *overrides: str) -> list[str]:
    """Overrides of a run of two epochs, whose caches on disk are in a folder of its own."""
    quick = ("model=emulated", "model.step_ms=0", "model.eval_step_ms=0", "measure.digest=true", "trainer.epochs=2")
    given = {word.split("=")[0] for word in overrides}
    kept = [word for word in (*quick, f"cache.dir={folder / 'caches'}") if word.split("=")[0] not in given]
    return [word for word in small(data_dir, *kept, *overrides) if not word.startswith("model.trainable")]


def watched(data_dir: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    """The summary of a run with digests."""
    return complete_here(folder, words_of(data_dir, folder, *overrides))


def digests_of(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return [(epoch["digest"], epoch["validation_digest"]) for epoch in summary["epochs"]]


def digests(data_dir: Path, folder: Path, *overrides: str) -> list[tuple[str, str]]:
    return digests_of(watched(data_dir, folder, *overrides))


def passes_of(summary: dict[str, Any]) -> list[list[str]]:
    """What each pass of training and of validation did with its cache on disk."""
    return [pipeline["passes"] for pipeline in summary["cache"]["pipelines"].values()]


def read(data_dir: Path, folder: Path, *overrides: str) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The digests of two passes of training and of validation without a run, and what they did with a cache on disk."""
    plan = plan_of(*words_of(data_dir, folder, *overrides))
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    keepers = keepers_of(plan, contexts, {"folder": "-", "overrides": []}, pytest.fail)
    for keeper in keepers.values():
        keeper.prepare()
    digest = Digest()
    found: list[list[str]] = []
    for name in ("train", "validation"):
        pipeline = Pipeline(plan.pipelines[name], contexts[name], keepers.get(name))
        found.append([])
        for _ in range(2):
            for images, labels in pipeline.dataset.as_numpy_iterator():
                digest.add(images, labels)
            found[-1].append(digest.taken())
    for keeper in keepers.values():
        keeper.close()
    return [*zip(*found, strict=True)], [keeper.passes for keeper in keepers.values()]


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    found = digests(tiny, tmp_path_factory.mktemp("plain"))
    assert found[0] == found[1]
    assert [text.split(":")[0] for text in found[0]] == ["38", "10"]
    return found


def test_there_is_a_value_to_try_for_every_parameter_of_speed() -> None:
    assert SPEEDS.keys() == {name for name, kind in KINDS.items() if kind == "speed"}
    assert UNTRIED.keys() == {name for name, overrides in SPEEDS.items() if not overrides}


@pytest.mark.parametrize("overrides", TRIED, ids=["all others", *APART])
def test_what_changes_only_the_speed_changes_no_digest(
    overrides: Sequence[str], plain: list[tuple[str, str]], tiny: Path, tmp_path: Path
) -> None:
    if "extract.decode=true" in overrides:  # TensorFlow resizes what TFDS decodes
        plain = digests(tiny, tmp_path / "plain", TENSORFLOW)
    assert digests(tiny, tmp_path, *overrides) == plain


def test_neither_does_an_order_or_a_run_without_a_cache(
    plain: list[tuple[str, str]], tiny: Path, tmp_path: Path
) -> None:
    assert read(tiny, tmp_path, "cache=none", "extract=sequential", "load.shuffle_buffer=0") == (plain, [])


POINTS = ("source", "decoded", "resize", "transformed")


@pytest.mark.parametrize("at", POINTS)
def test_neither_does_a_cache_wherever_it_stands(
    at: str, plain: list[tuple[str, str]], tiny: Path, tmp_path: Path
) -> None:
    assert read(tiny, tmp_path, "cache=memory", f"cache.at={at}") == (plain, [])
    for first in ("filled", "read"):
        assert read(tiny, tmp_path, "cache=disk", f"cache.at={at}") == (plain, [[first, "read"]] * 2)


def test_neither_does_a_cache_that_another_run_fills(
    plain: list[tuple[str, str]], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CacheStore, "claim", lambda _store, _key: None)
    summary = watched(tiny, tmp_path, "cache=disk")
    assert passes_of(summary) == [["uncached", "uncached"]] * 2
    assert digests_of(summary) == plain


FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


@pytest.fixture(scope="module")
def flipped(
    plain: list[tuple[str, str]], tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, str]]:
    found = digests(tiny, tmp_path_factory.mktemp("flipped"), FLIPPED, "cache=none")
    assert len({plain[0][0], found[0][0], found[1][0]}) == 3
    assert found[0][1] == plain[0][1]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("at", POINTS[:-1])
def test_a_random_step_after_a_cache_does_what_it_does_without_one(
    at: str, flipped: list[tuple[str, str]], tiny: Path, tmp_path: Path
) -> None:
    words = (FLIPPED, f"cache.at={at}")
    assert read(tiny, tmp_path, *words, "cache=memory")[0] == flipped
    for _ in ("fills", "finds"):
        assert read(tiny, tmp_path, *words, "cache=disk")[0] == flipped


@pytest.mark.parametrize(
    "override", ["transform.resize.antialias=true", "dataset.split='train[:50%]'", "load.drop_remainder=true"]
)
def test_other_data_has_another_digest(override: str, plain: list[tuple[str, str]], tiny: Path, tmp_path: Path) -> None:
    found, _ = read(tiny, tmp_path, override)
    assert found[0][0] != plain[0][0]
    assert found[0][1] == plain[0][1] or "antialias" in override


def test_the_place_of_the_data_changes_no_digest(plain: list[tuple[str, str]], tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.symlink_to(tiny)
    assert read(copy, tmp_path)[0] == plain
