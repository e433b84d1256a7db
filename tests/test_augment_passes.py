"""Random steps in a run: the same examples for a pass at any speed, others in another pass, the same in a program."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from etlrun.run.backend import seed_all
from etlrun.stages import STAGES
from tests.configs import plan_of
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import EPOCHS, of_tiny
from tests.runs import small
from tests.steps import RANDOM, VALUES, block_of, words_with
from tests.test_eject import code

CROPS = ["random_resized_crop", "pad", "random_crop"]
ALL = [*CROPS, *(name for name in RANDOM if name not in CROPS)]
LIST = f"transform.steps=[decode,{','.join(ALL)},normalize]"
EVERY = (
    LIST,
    "transform.eval_steps=[decode,resize,normalize]",
    *(block_of(name) for name in (*ALL, "normalize") if name in VALUES),
    "transform.random_resized_crop.size=[32,32]",
    "transform.random_crop.size=[32,32]",
    "transform.resize.size=[32,32]",
    "transform.rand_augment.num_layers=1",
    "cache=none",
)
"""A run with all random steps in one list."""
Passes = list[Counter[tuple[bytes, bytes]]]


def examples(data_dir: Path, *overrides: str) -> Passes:
    """The images and labels of two passes, in any order."""
    with training_pipeline(plan_of(*small(data_dir, *EVERY, *overrides))) as pipeline:
        return [
            Counter(
                (image.tobytes(), label.tobytes())
                for images, labels in pipeline.dataset.as_numpy_iterator()
                for image, label in zip(images, labels, strict=True)
            )
            for _ in range(2)
        ]


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Passes:
    return examples(tiny)


def test_another_pass_differs(plain: Passes) -> None:
    assert not plain[0] & plain[1]
    assert [len(found) for found in plain] == [38, 38]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("transform.num_parallel_calls=null", "extract=sequential", "load.shuffle_buffer=0", "load.batch_size=5"),
        ("transform.num_parallel_calls=3", "transform.deterministic=false", "cache=memory", "cache.at=decoded"),
    ],
    ids=["serial", "parallel, after a cache"],
)
def test_a_pass_is_the_same_at_any_speed_and_in_any_order(
    overrides: tuple[str, ...], plain: Passes, tiny: Path
) -> None:
    assert examples(tiny, *overrides) == plain


@pytest.mark.slow
def test_a_program_has_the_same_batches(tiny: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(tiny, tmp_path, *EVERY)
    seed_all(plan.spec.trainer.seed)
    with training_pipeline(plan) as pipeline:
        passes = [as_bytes(pipeline.dataset) for _ in range(EPOCHS)]
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))


def test_a_program_contains_a_called_function_once_and_before_its_callers() -> None:
    text = code(*EVERY)
    for name in ALL:
        step: Any = STAGES["transform"][name]
        places = [text.index(f"\ndef {called.__name__}(") for called in step.calls]
        assert places == sorted(places)
        assert all(text.count(f"\ndef {called.__name__}(") == 1 for called in step.calls)
        assert max(places, default=0) < text.index(f"\ndef {name}(")


def test_grey_of_all_images_is_not_given_a_seed() -> None:
    grey = words_with("random_grey")
    assert "random_grey(image, probability=0.5, seed=seed)" in code(*grey)
    assert "random_grey(image, probability=1.0)" in code(*grey, "transform.random_grey.probability=1")
