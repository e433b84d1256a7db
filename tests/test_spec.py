from typing import Any

import pytest

from etlrun.planning.spec import RunSpec, show
from etlrun.stages import STAGES
from etlrun.stages.applications import APPLICATIONS
from etlrun.stages.cache import MemoryCache
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.extract import Interleave
from etlrun.stages.image import Decode, Resize, ScaleMinusOneOne
from etlrun.stages.load import Load
from etlrun.stages.logger import NoLogger
from etlrun.stages.measure import Measure, NoProfile
from etlrun.stages.model import MobileNetV2
from etlrun.stages.step import Map
from etlrun.stages.trainer import EarlyStopping, Trainer
from tests.configs import TRAINER_KEYS, composed, refusal_of_config, refusal_of_spec, spec_of

MODELS = f"mobilenet_v2, {', '.join(APPLICATIONS)}, tabular, text, emulated"
STEPS = ", ".join(STAGES["transform"])
EXTRACTS = "tfds, sequential, interleave"
MONITORED = (
    "loss, accuracy, top_N_accuracy, precision, recall, f1, recall_of_CLASS, auc, mae, rmse or r2, or one of them "
    "after val_"
)
TRANSFORM_KEYS = f"steps, eval_steps, num_parallel_calls, deterministic, parse_batch, columns, {STEPS}"
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


def test_all_faults_are_told_at_once() -> None:
    config = composed(
        "++trainr.epochs=3",
        "dataset.split=''",
        "extract.num_parallel_calls=5",
        "transform.eval_steps=[decode,rezise]",
        "~cache",
        "load.batch_size=0",
        "model.name=mobilenet",
        "++trainer.epoch=3",
        "~trainer.seed",
    )
    assert refusal_of_config(config).splitlines() == [
        (
            "trainr: found an unknown key; expected one of the keys dataset, extract, transform, cache, load, model, "
            "trainer, profile, logger, measure"
        ),
        "    -> did you mean `trainer`?",
        "cache: found nothing; expected one of none, memory, disk",
        "    -> choose cache=…",
        "dataset.split: found ''; expected a string",
        "extract.num_parallel_calls: found 5; expected at most cycle_length, which is 4",
        "    -> set extract.cycle_length=5 or extract.num_parallel_calls=autotune",
        f"transform.eval_steps[1]: found 'rezise'; expected one of {STEPS}",
        "    -> did you mean `resize`?",
        "load.batch_size: found 0; expected a positive integer",
        f"model.name: found 'mobilenet'; expected one of {MODELS}",
        "    -> did you mean `mobilenet_v2`?",
        "trainer.seed: found nothing; expected an integer from 0 to 2**32 - 1",
        f"trainer.epoch: found an unknown key; expected one of the keys {TRAINER_KEYS}",
        "    -> did you mean `trainer.epochs`?",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("load.batch_size=thirty", "load.batch_size: found 'thirty'; expected a positive integer"),
        ("load.batch_size=32.0", "load.batch_size: found 32.0; expected a positive integer"),
        ("load.batch_size=null", "load.batch_size: found null; expected a positive integer"),
        ("load.batch_size=true", "load.batch_size: found true; expected a positive integer"),
        ("load.shuffle_buffer=-1", "load.shuffle_buffer: found -1; expected an integer from 0 to 100,000,000"),
        ("load.prefetch=auto", "load.prefetch: found 'auto'; expected an integer from 0 to 1,000,000, or autotune"),
        ("load.drop_remainder=1", "load.drop_remainder: found 1; expected true or false"),
        ("load.drop_remainder='true'", "load.drop_remainder: found 'true'; expected true or false"),
        ("dataset.name=3", "dataset.name: found 3; expected a string"),
        ("dataset.version=4", "dataset.version: found 4; expected a version such as 4.0.1 or 4.*.*, or null"),
        ("dataset.version=new", "dataset.version: found 'new'; expected a version such as 4.0.1 or 4.*.*, or null"),
        ("dataset.on_corrupt=ignore", "dataset.on_corrupt: found 'ignore'; expected raise or skip"),
        (
            "extract.num_parallel_calls=0",
            (
                "extract.num_parallel_calls: found 0; expected an integer from 1 to 10,000, autotune, cores, cores-1, "
                "or null for a serial stage"
            ),
        ),
        (
            "transform.resize.size=[64,0]",
            "transform.resize.size: found [64, 0]; expected [height, width], two integers from 1 to 65,536",
        ),
        ("transform.resize.method=cubic", "transform.resize.method: found 'cubic'; expected bilinear, nearest or area"),
        ("transform.resize.dtype=uint16", "transform.resize.dtype: found 'uint16'; expected uint8 or float32"),
        ("cache.at=3", ("cache.at: found 3; expected source, decoded, transformed, features, or the name of a step")),
        ("cache.dtype=float32", "cache.dtype: found 'float32'; expected auto or uint8"),
        ("cache.dir=3", "cache.dir: found 3; expected a path on this machine, or null"),
        ("cache.dir=''", "cache.dir: found ''; expected a path on this machine, or null"),
        ("cache.dir=s3://a/b", "cache.dir: found 's3://a/b'; expected a path on this machine, or null"),
        ("dataset.copies=gs://a", "dataset.copies: found 'gs://a'; expected a path on this machine, or null"),
        ("dataset.keep=20", "dataset.keep: found 20; expected all, or a size such as 20GB"),
        (
            "dataset.storage={at_once: 0}",
            "dataset.storage: found at_once: 0; expected an integer from 1 to 256\n    -> set at_once: 8",
        ),
        ("model.weights=https://a/b", "model.weights: found 'https://a/b'; expected a path on this machine, or null"),
        ("trainer.resume=file:///a", "trainer.resume: found 'file:///a'; expected a path on this machine, or null"),
        ("cache.when_busy=fail", "cache.when_busy: found 'fail'; expected wait or uncached"),
        ("model.alpha=0", "model.alpha: found 0; expected a positive number, at most 10"),
        ("model.batch_norm_momentum=1", "model.batch_norm_momentum: found 1; expected a number in [0, 1), or null"),
        ("trainer.epochs=0", "trainer.epochs: found 0; expected a positive integer"),
        ("trainer.steps_per_epoch=0", "trainer.steps_per_epoch: found 0; expected a positive integer, or null"),
        ("trainer.learning_rate=nan", "trainer.learning_rate: found nan; expected a positive number"),
        ("trainer.learning_rate=true", "trainer.learning_rate: found true; expected a positive number"),
        ("trainer.optimizer=adamax", "trainer.optimizer: found 'adamax'; expected adam, adamw, rmsprop or sgd"),
        (
            "trainer.mixed_precision=float16",
            "trainer.mixed_precision: found 'float16'; expected mixed_float16, mixed_bfloat16, auto or null",
        ),
        (
            "trainer.jit_compile=yes_please",
            "trainer.jit_compile: found 'yes_please'; expected true, false, auto or null",
        ),
        ("trainer.device=tpu", "trainer.device: found 'tpu'; expected auto, cpu or gpu"),
        ("trainer.early_stopping=3", "trainer.early_stopping: found 3; expected a mapping"),
        ("trainer.early_stopping.monitor=val", f"trainer.early_stopping.monitor: found 'val'; expected {MONITORED}"),
        (
            "trainer.early_stopping.min_delta=inf",
            "trainer.early_stopping.min_delta: found inf; expected a finite number",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_its_key_takes(override: str, message: str) -> None:
    assert refusal_of_spec(override) == message


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
    ("override", "message"),
    [
        (
            "++extract.cycle_lenght=3",
            (
                "extract.cycle_lenght: found an unknown key; expected one of the keys shuffle_files, cycle_length, "
                "block_length, num_parallel_calls, deterministic\n    -> did you mean `extract.cycle_length`?"
            ),
        ),
        (
            "++cache.size=3",
            "cache.size: found an unknown key; expected one of the keys at, dtype, dir, when_busy, codec",
        ),
        ("++profile.size=3", "profile.size: found an unknown key; expected no key here"),
        (
            "++transform.step=[decode]",
            (
                f"transform.step: found an unknown key; expected one of the keys {TRANSFORM_KEYS}\n"
                "    -> did you mean `transform.steps`?"
            ),
        ),
        (
            "++transform.resize.width=3",
            "transform.resize.width: found an unknown key; expected one of the keys size, method, antialias, dtype",
        ),
        (
            "++trainer.early_stopping.patient=3",
            (
                "trainer.early_stopping.patient: found an unknown key; expected one of the keys patience, monitor, "
                "min_delta\n    -> did you mean `trainer.early_stopping.patience`?"
            ),
        ),
    ],
)
def test_an_unknown_key_is_told_with_those_that_are_known(override: str, message: str) -> None:
    assert refusal_of_spec(override) == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("~load.batch_size", "load.batch_size: found nothing; expected a positive integer"),
        ("~extract.name", f"extract.name: found null; expected one of {EXTRACTS}"),
        ("extract.name=7", f"extract.name: found 7; expected one of {EXTRACTS}"),
        (
            "extract.name=interleeve",
            f"extract.name: found 'interleeve'; expected one of {EXTRACTS}\n    -> did you mean `interleave`?",
        ),
        ("~transform.steps", "transform.steps: found null; expected a list of steps"),
        ("transform.steps=decode", "transform.steps: found 'decode'; expected a list of steps"),
        ("~transform.deterministic", "transform.deterministic: found nothing; expected true or false"),
        ("~trainer.early_stopping", "trainer.early_stopping: found nothing; expected a mapping"),
        ("~trainer.early_stopping.monitor", f"trainer.early_stopping.monitor: found nothing; expected {MONITORED}"),
    ],
)
def test_what_is_missing_is_told_with_what_should_be_there(override: str, message: str) -> None:
    assert refusal_of_spec(override) == message


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
