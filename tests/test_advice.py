from pathlib import Path

import pytest

from etlrun.measure.advice import advice, told
from etlrun.measure.assessment import cached_bytes
from etlrun.record.summary import StageCost
from tests.configs import plan_of
from tests.pipelines import as_bytes, training_pipeline
from tests.runs import small
from tests.tables import words_of


@pytest.mark.parametrize(
    ("overrides", "stage", "expected"),
    [
        (["extract=sequential"], "extract.sequential", "extract=interleave extract.cycle_length=8"),
        (["extract=tfds"], "extract.tfds", "extract=interleave extract.cycle_length=8"),
        (["extract.cycle_length=1"], "extract.interleave", "extract.cycle_length=8 extract.num_parallel_calls=8"),
        (["extract.num_parallel_calls=2"], "extract.interleave", "extract.cycle_length=8 extract.num_parallel_calls=8"),
        (["extract.cycle_length=8"], "extract.interleave", "cache=memory"),
        (["load.prefetch=0"], "load.prefetch", "load.prefetch=autotune"),
        ([], "transform.decode", "cache=memory"),
        (["transform.num_parallel_calls=1"], "transform.map", "transform.num_parallel_calls=4"),
        (["load.mixup_alpha=0.2", "transform.num_parallel_calls=1"], "load.mix", "transform.num_parallel_calls=4"),
        ([], "load.shuffle", "load.shuffle_buffer=128"),
        (["cache=disk"], "cache.disk", "cache=memory"),
        (
            ["transform.steps=[decode,resize,random_flip,scale_minus_one_one]"],
            "transform.decode",
            "cache=disk cache.at=resize",
        ),
    ],
)
def test_advice_can_be_pasted(overrides: list[str], stage: str, expected: str) -> None:
    base = ["cache=none", *overrides] if not any(word.startswith("cache") for word in overrides) else overrides
    serial = stage in {"transform.map", "load.mix"}
    rows = [StageCost(stage="transform.map", examples=1, cost_ms=1, parallelism=1 if serial else 4)]
    conditions = {"cores": 4, "shards": 8, "cached_bytes": 10**6, "epochs": 4}
    text = advice(stage, plan_of(*base), rows, conditions) or ""
    head, _, _ = text.removeprefix("Try ").partition(":")
    assert head == expected
    pasted = head.split()
    keys = {word.split("=")[0] for word in pasted}
    plan_of(*(word for word in base if word.split("=")[0] not in keys), *pasted)


def test_phases_behind_those_of_cached_features_are_advised_no_cache_which_is_set() -> None:
    unfrozen = plan_of("model=mobilenet_v2", "trainer=fine_tune", "cache=memory", "cache.at=features").unfrozen
    assert unfrozen is not None
    conditions = {"cores": 1, "shards": 1, "cached_bytes": 10**6, "epochs": 4}
    text = advice("transform.decode", unfrozen, [], conditions)
    assert text == "No override helps: transform.decode needs less work, faster storage, or more cores."


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("Try trainer.steps_per_epoch=63: why.", "Changes the training: t"),
        ("Try load.shuffle_buffer=128: why.", "Changes the training: t"),
        ("Try extract=interleave extract.cycle_length=8: why.", "Changes the order: t"),
        ("Try load.prefetch=autotune: why.", "T"),
        ("Try cache=disk cache.at=resize: why.", "T"),
    ],
)
def test_advice_says_what_it_changes_beside_the_speed(text: str, changes: str) -> None:
    assert told(text, plan_of("model.trainable=true").spec) == f"{changes}{text[1:]}"


def test_another_order_is_as_another_seed_to_a_model_without_batch_norms() -> None:
    text = "Try load.shuffle_buffer=128: why."
    assert told(text, plan_of("model.trainable=false").spec) == f"Changes the order: t{text[1:]}"


@pytest.mark.parametrize(
    ("words", "example_bytes"),
    [
        (["cache=disk", "cache.at=decoded"], 40 * 48 * 3 + 8),
        (["cache=memory", "cache.at=decoded"], 40 * 48 * 3 + 8),
        (["cache=disk", "cache.at=resize"], 32 * 32 * 3 + 8),
        (["cache=none"], 32 * 32 * 3 + 8 + 64),  # of which the index has at most 64
    ],
)
def test_the_size_of_a_cache_is_that_of_what_it_holds(
    words: list[str], example_bytes: int, tiny: Path, tmp_path: Path
) -> None:
    plan = plan_of(*small(tiny, *words, f"cache.dir={tmp_path}"))
    with training_pipeline(plan) as pipeline:
        as_bytes(pipeline.dataset)
        assert cached_bytes(pipeline) == 38 * example_bytes


def test_rows_that_are_kept_need_no_cache(table: Path) -> None:
    conditions = {"cores": 4, "shards": 1, "cached_bytes": 10**6, "epochs": 4}
    found = advice("extract.sequential", plan_of(*words_of(table)), [], conditions)
    assert found == "No override helps: extract.sequential needs less work, faster storage, or more cores."


def test_a_service_that_limits_a_run_wants_more_machines() -> None:
    overrides = ("load=service", "load.service.address=localhost:5050", "load.service.trusted_network=true")
    conditions = {"cores": 4, "shards": 8, "cached_bytes": 10**6, "epochs": 4}
    assert advice("transform.map", plan_of("cache=none", *overrides), [], conditions) == (
        "Start a dispatcher with a worker on another machine, and add it to load.service.address."
    )


@pytest.mark.parametrize(
    ("overrides", "stage", "changes"),
    [
        (["cache=memory"], "transform.decode", {}),
        (["cache=memory"], "load.prefetch", {}),
        (["cache=none"], "transform.decode", {"epochs": 1}),
        (["cache=none", "load.shuffle_buffer=16"], "load.shuffle", {"epochs": 1}),
        (["cache=memory", "extract=sequential"], "extract.sequential", {"shards": 1}),
    ],
)
def test_advice_says_where_no_override_helps(overrides: list[str], stage: str, changes: dict[str, int]) -> None:
    conditions = {"cores": 1, "shards": 8, "cached_bytes": 10**6, "epochs": 4} | changes
    assert advice(stage, plan_of(*overrides), [], conditions) == (
        f"No override helps: {stage} needs less work, faster storage, or more cores."
    )


NEARER = "No override helps: extract.fetch needs a nearer or faster store"
COPIES = "; later epochs and runs read the copies"


@pytest.mark.parametrize(
    ("overrides", "changes", "expected"),
    [
        ([], {}, f"Try dataset.storage='{{at_once: 16}}': 8 of 64 shards were fetched at once{COPIES}."),
        (
            ["dataset.storage={anon: true, at_once: 4}"],
            {"epochs": 1},
            f"Try dataset.storage.at_once=8: 4 of 64 shards were fetched at once{COPIES}.",
        ),
        ([], {"shards": 15}, f"{NEARER}{COPIES}."),
        (["dataset.keep=1MB"], {}, "Try dataset.keep=all: later epochs then read 9 MB from /, where they fit."),
        (
            ["dataset.keep=1MB"],
            {"fetched_bytes": 10**18},
            "Try cache=memory: later epochs then read 1 MB from it.",
        ),
        (["dataset.keep=1MB", "cache=disk"], {"fetched_bytes": 10**18, "shards": 8}, f"{NEARER}."),
        (["dataset.keep=1MB"], {"epochs": 1, "shards": 8}, f"{NEARER}."),
    ],
)
def test_advice_on_a_store_is_what_helps_by_the_evidence(
    overrides: list[str], changes: dict[str, int], expected: str
) -> None:
    base = ["dataset=tfds", "dataset.name=x", "dataset.data_dir=s3://bucket/data", "dataset.copies=/", "cache=none"]
    cache = [word for word in base if not any(other.startswith("cache") for other in overrides) or word != "cache=none"]
    conditions = {"cores": 1, "shards": 64, "cached_bytes": 10**6, "fetched_bytes": 9 * 10**6, "epochs": 4} | changes
    assert advice("extract.fetch", plan_of(*cache, *overrides), [], conditions) == expected
