"""Identical images: their groups, compared with those of a dictionary, and a map that holds few items at once."""

from collections.abc import Iterator

import numpy as np
import pytest

from etlrun.datasets.prepare.check import DIGEST, Image, digest_of, duplicates, identical, in_order
from etlrun.datasets.prepare.source import Entry
from etlrun.system.machine import cores


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_groups_are_those_of_a_dictionary(count: int) -> None:
    random = np.random.default_rng(count)
    contents, labels, splits = (random.integers(0, most, count) for most in (150, 2, 2))
    digests = np.array([digest_of(bytes([content])) for content in contents], DIGEST)
    of_content: dict[int, list[int]] = {}
    for number, content in enumerate(contents):
        of_content.setdefault(int(content), []).append(number)
    wanted = [group for group in of_content.values() if len(group) > 1]
    found = identical(digests, labels, splits)
    assert [found.members(group).tolist() for group in range(len(found.starts))] == wanted
    assert found.is_across.tolist() == [len(set(splits[group])) > 1 for group in wanted]
    assert found.is_conflicting.tolist() == [len(set(labels[group])) > 1 for group in wanted]


def test_a_preparation_counts_images_with_the_label_and_the_split_of_another_one() -> None:
    entry = Entry(path="", label="", split="", size=1)

    def image(content: int, label: int, split: str) -> Image:
        return Image(entry=entry, digest=digest_of(bytes([content])).hex(), label=label, split=split)

    of = ((0, 0, "train"), (1, 0, "train"), (0, 0, "train"), (0, 0, "test"), (1, 1, "train"))
    images = [image(*each) for each in of]
    found = duplicates(images)
    assert found.across == [[images[0], images[2], images[3]]]
    assert found.conflicting == [[images[1], images[4]]]
    assert found.within == 1


def test_few_items_are_taken_before_a_result_is() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    for place, result in enumerate(in_order(lambda number: number * number, items())):
        assert result == place * place
        assert len(taken) <= min(place + 2 * cores(), 1000)
    assert len(taken) == 1000


def test_an_error_of_the_work_ends_it() -> None:
    results = in_order(lambda number: 1 // (5 - number), range(1000))
    with pytest.raises(ZeroDivisionError):
        list(results)
