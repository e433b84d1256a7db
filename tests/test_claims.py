"""What `diff` claims about data, held against the digests of pipelines that run."""

from pathlib import Path

import pytest

from benchmarks.claims import OTHER_DATA, SPEED_ONLY, claims
from etlrun.sources.on_disk import examples
from etlrun.sources.open import open_source
from tests.configs import composed, spec_of


def test_only_the_speed_is_never_said_of_other_data(tiny: Path, tmp_path: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    small = ("transform.resize.size=[32,32]", f"cache.dir={tmp_path}", "trainer=drain", "trainer.epochs=2")
    counts, wrong = claims(composed(*words, *small), 3, 40)
    assert wrong == []
    assert counts[SPEED_ONLY, True] > 5
    assert counts[OTHER_DATA, False] > 5


@pytest.mark.parametrize("split", ["train", "train[:80%]", "train[80%:]", "train[5:-7]", "train[:33%]+train[90%:]"])
def test_examples_are_counted_as_tfds_counts_them(split: str, tiny: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    dataset = spec_of(*words).dataset
    found = examples(dataset, split)
    assert found is not None
    assert found.count == open_source(dataset).split(split, "dataset.split").num_examples
