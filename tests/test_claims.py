"""What `diff` claims about data, held against the digests of pipelines that run."""

from pathlib import Path

import pytest

from benchmarks.claims import OTHER_DATA, SPEED_ONLY, claims
from benchmarks.policies import FAILS, PASSES
from benchmarks.trainings import OTHER_TRAINING, Trainer, first_of, singles
from etlrun.sources.base import on_disk, open_source
from etlrun.stages.base import DATA, ORDER
from tests.configs import composed, spec_of


@pytest.mark.slow
def test_only_the_speed_is_never_said_of_other_data(tiny: Path, tmp_path: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    small = ("transform.resize.size=[32,32]", f"cache.dir={tmp_path}", "trainer=drain", "trainer.epochs=2")
    counts, answers, wrong = claims(composed(*words, *small), 3, 40)
    assert wrong == []
    assert counts[SPEED_ONLY, True] > 5
    assert counts[OTHER_DATA, False] > 5
    assert {answers[kind, PASSES, False] for kind in (DATA, ORDER)} == {0}
    assert min(answers[DATA, PASSES, True], answers[DATA, FAILS, False], answers[ORDER, PASSES, True]) > 5


@pytest.mark.slow
def test_trainings_differ_where_they_are_said_to(tiny: Path, tmp_path: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    small = ("transform.resize.size=[32,32]", f"cache.dir={tmp_path}", "trainer.epochs=2")
    trainer = Trainer(tmp_path)
    expected = {
        "load.batch_size=14": (OTHER_TRAINING, True, False, False),
        "load.drop_remainder=True": (OTHER_DATA, False, False, False),
        "load.prefetch=1": (SPEED_ONLY, True, True, True),
        "load.shuffle_buffer=0": (OTHER_TRAINING, True, False, True),
        "trainer.learning_rate=0.01": (OTHER_TRAINING, True, False, True),
    }
    alone = {name: (old, new) for name, old, new in singles(first_of(composed(*words, *small))) if name in expected}
    pairs = {name: trainer.pair(*both) for name, both in alone.items()}
    assert {name: (pair.said, *pair.equal.values()) for name, pair in pairs.items()} == expected
    assert [text for pair in pairs.values() for text in pair.wrong] == []


@pytest.mark.parametrize("split", ["train", "train[:80%]", "train[80%:]", "train[5:-7]", "train[:33%]+train[90%:]"])
def test_examples_are_counted_as_tfds_counts_them(split: str, tiny: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    dataset = spec_of(*words).dataset
    found = on_disk(dataset).examples(split)
    assert found is not None
    assert found.count == open_source(dataset).split(split, "dataset.split").num_examples
