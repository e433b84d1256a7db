from typing import Any

import pytest

from etlrun.planning.spec import RunSpec, show
from etlrun.stages import STAGES
from etlrun.stages.cache import MemoryCache
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.extract import Interleave
from etlrun.stages.image import Decode, RandomFlip, Rescale, Resize, ScaleMinusOneOne
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure, NoLogger, NoProfile
from etlrun.stages.model import MobileNetV2
from etlrun.stages.step import Map
from etlrun.stages.trainer import EarlyStopping, Trainer
from tests.configs import composed, refusal_of, refusal_of_config, refusal_of_spec, spec_of
from tests.golden import Case, Golden, cases

STEPS = ", ".join(STAGES["transform"])
EXTRACTS = "tfds, sequential, interleave"
TRAINER = Trainer(
    epochs=4,
    steps_per_epoch=None,
    optimizer="adam",
    learning_rate=0.001,
    seed=0,
    mixed_precision=None,
    jit_compile=None,
    device="auto",
    resume=None,
    early_stopping=EarlyStopping(patience=None, monitor="val_loss", min_delta=0.0),
)


def test_the_default_config_is_this_spec() -> None:
    resize = Resize(size=(64, 64), method="bilinear", antialias=False, dtype="uint8")
    steps = (Decode(), resize, ScaleMinusOneOne())
    transform = Map(num_parallel_calls="autotune", deterministic=True, steps=steps)
    assert spec_of() == RunSpec(
        dataset=TfdsDataset(
            name="etlrun_sample",
            version="1.*.*",
            data_dir=None,
            split="train[:80%]",
            eval_split="train[80%:]",
            download=True,
            image_key="image",
            label_key="label",
            on_corrupt="raise",
        ),
        extract=Interleave(
            shuffle_files=False, cycle_length=4, block_length=1, num_parallel_calls="autotune", deterministic=True
        ),
        transform=transform,
        eval_transform=transform,
        cache=MemoryCache(at="transformed", dtype="auto", dir=None, when_busy="uncached"),
        load=Load(
            shuffle_buffer=1024, batch_size=32, drop_remainder=False, prefetch="autotune", num_parallel_calls="autotune"
        ),
        model=MobileNetV2(alpha=0.35, weights=None, trainable=True, batch_norm_momentum=0.8),
        trainer=TRAINER,
        profile=NoProfile(),
        logger=NoLogger(),
        measure=Measure(au_min=None, digest=False),
    )


def test_training_and_validation_have_their_own_steps_and_share_their_parameters() -> None:
    spec = spec_of(
        "transform.steps=[decode,random_flip,resize,rescale]",
        "transform.eval_steps=[decode,resize,rescale]",
        "++transform.rescale={scale: 0.5, offset: -1}",
    )
    resize = Resize(size=(64, 64), method="bilinear", antialias=False, dtype="uint8")
    rescale = Rescale(scale=0.5, offset=-1.0)
    assert spec.transform.steps == (Decode(), RandomFlip(), resize, rescale)
    assert spec.eval_transform.steps == (Decode(), resize, rescale)


def test_parameters_of_an_unused_step_may_be_null() -> None:
    spec = spec_of("transform.steps=[decode]", "transform.eval_steps=[decode]", "transform.resize=null")
    assert spec.transform.steps == (Decode(),)


@pytest.mark.parametrize("case", cases("stages"))
def test_a_config_that_stages_refuse_is_told_why(case: Case, golden: Golden) -> None:
    golden(case, refusal_of(*case["overrides"]))


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("load.shuffle_buffer",), 100_000_000),
        (("load.prefetch",), 1_000_000),
        (("extract.cycle_length",), 10_000),
        (("extract.num_parallel_calls", "extract.cycle_length=10000"), 10_000),
        (("transform.num_parallel_calls",), 10_000),
        (("model.alpha",), 10),
        (("model.step_ms", "model=emulated"), 86_400_000),
        (("model.eval_step_ms", "model=emulated"), 86_400_000),
        (("load.batch_size",), 2**63 - 1),
        (("trainer.steps_per_epoch",), 2**63 - 1),
    ],
)
def test_numbers_that_no_machine_can_bear_are_refused(words: tuple[str, ...], limit: int) -> None:
    key, *others = words
    spec_of(*others, f"{key}={limit}")
    assert refusal_of_spec(*others, f"{key}={limit + 1}").startswith(f"{key}: found {limit + 1}; expected a")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("dataset", "a mapping"),
        ("extract", f"one of {EXTRACTS}"),
        ("transform", f"one of {STEPS}"),
        ("cache", "one of none, memory, disk"),
        ("load", "a mapping"),
        ("model", "one of mobilenet_v2, keras_application, tabular, text, emulated"),
        ("trainer", "one of fit, drain"),
        ("profile", "one of none, trace"),
        ("measure", "a mapping"),
    ],
)
@pytest.mark.parametrize(("value", "found"), [(None, "nothing"), ("none", "'none'"), ([1], "[1]"), (False, "false")])
def test_a_group_must_be_a_mapping(group: str, expected: str, value: object, found: str) -> None:
    config: dict[str, Any] = composed() | {group: value}
    assert refusal_of_config(config) == f"{group}: found {found}; expected {expected}\n    -> choose {group}=…"


def test_a_missing_group_is_told() -> None:
    config = composed()
    del config["load"]
    assert refusal_of_config(config) == "load: found nothing; expected a mapping\n    -> choose load=…"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), (True, "true"), ("a b", "'a b'"), (0.5, "0.5"), ((64, 64), "[64, 64]")]
)
def test_values_are_shown_as_in_yaml(value: object, text: str) -> None:
    assert show(value) == text


def test_an_integer_of_more_digits_than_python_prints_is_refused() -> None:
    config = composed() | {"load": {**composed()["load"], "batch_size": 16**5000}}
    fault = "load: found an integer of more than 4,300 digits; expected a number with fewer digits"
    assert refusal_of_config(config) == fault
