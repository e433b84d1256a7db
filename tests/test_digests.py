"""Digests of batches: of the same examples alone, in any order, and beside the step that has them."""

import threading
from typing import Any

import numpy as np
import pytest

from etlrun.measure.digest import Digest

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def of(images: np.ndarray, labels: np.ndarray, *sizes: int) -> str:
    digest, start = Digest(), 0
    for size in sizes:
        digest.add(images[start : start + size], labels[start : start + size])
        start += size
    return digest.taken()


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


def test_each_call_starts_anew() -> None:
    digest = Digest()
    digest.add(IMAGES, LABELS)
    first = digest.taken()
    digest.add(IMAGES, LABELS)
    assert digest.taken() == first


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
    with pytest.raises(ValueError, match="zip"):
        digest.taken()
