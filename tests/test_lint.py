import pytest

from etlrun.review.lint import _CHECKS, Advice, Machine, lint
from etlrun.stages.measure import ADVICE
from tests.configs import EXPERIMENTS, experiment, plan_of

TWO_CORES = Machine(cores=2, free_memory_bytes=8 * 10**9)
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
EARLY = "the cache precedes"


def advice(*overrides: str, machine: Machine = TWO_CORES) -> list[str]:
    return [str(item) for item in lint(plan_of(*overrides), machine)]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], []),
        (
            ["transform.num_parallel_calls=null"],
            [
                (
                    "serial_map: transform.decode, transform.resize, transform.scale_minus_one_one run one example at "
                    "a time; 1 of 2 cores are idle\n    -> try transform.num_parallel_calls=autotune"
                )
            ],
        ),
        (
            ["load.prefetch=0"],
            [("no_prefetch: load.prefetch=0: the model waits while the next batch is prepared\n"
             "    -> try load.prefetch=autotune")],
        ),
        (
            ["cache.at=decoded"],
            [(f"cache_early: {EARLY} transform.resize, repeated in 4 epochs; an example takes as much as the image "
             "there, 12,288 bytes after transform.resize\n    -> try cache.at=resize")],
        ),
        (
            ["cache=disk", "cache.at=source", FLIPPED],
            [(f"cache_early: {EARLY} transform.decode, transform.resize, repeated in 4 epochs; an example takes as "
             "much as the image there, 12,288 bytes after transform.resize\n    -> try cache.at=resize")],
        ),
        (["cache.at=resize", FLIPPED], []),
        (
            ["trainer.epochs=1", "cache.at=source"],
            [("cache_unread: cache.memory has no effect: a single epoch never reads it back\n"
             "    -> try cache=none")],
        ),
        (
            ["transform.num_parallel_calls=3", "extract.num_parallel_calls=4"],
            [
                ("parallelism_above_cores: extract.num_parallel_calls=4, with 2 cores\n"
                "    -> try extract.num_parallel_calls=autotune"),
                ("parallelism_above_cores: transform.num_parallel_calls=3, with 2 cores\n"
                "    -> try transform.num_parallel_calls=autotune"),
            ],
        ),
    ],
)  # fmt: skip
def test_what_makes_a_config_slow_is_told_with_evidence_and_override(overrides: list[str], expected: list[str]) -> None:
    assert advice(*overrides) == expected


def test_a_cache_that_memory_can_not_hold_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data") / "large" / "1.0.0"
    folder.mkdir(parents=True)
    lengths = '["600000", "400000"]'
    info = f'{{"splits": [{{"name": "train", "numBytes": "50000000000", "shardLengths": {lengths}}}]}}'
    (folder / "dataset_info.json").write_text(info)
    words = ("dataset=tfds", "dataset.name=large", f"dataset.data_dir={folder.parents[1]}")
    assert advice(*words, "transform=imagenet_224", "model=emulated") == [
        (
            "cache_above_memory: the cache needs 150,600 MB; 8,000 MB of memory are free, 80% of it for caches\n"
            "    -> try cache=disk"
        )
    ]
    assert advice(*words, "transform=imagenet_224", "model=emulated", "cache=disk") == []
    assert advice(*words, "cache.at=source", machine=Machine(cores=1, free_memory_bytes=10**9))[1:] == [
        (
            "cache_above_memory: the cache needs 50,072 MB; 1,000 MB of memory are free, 80% of it for caches\n"
            "    -> try cache=disk"
        )
    ]


def test_on_one_core_a_serial_map_leaves_nothing_idle() -> None:
    assert advice("transform.num_parallel_calls=null", machine=Machine(cores=1, free_memory_bytes=10**10)) == []


def test_advice_is_silenced_with_a_reason() -> None:
    silenced = plan_of("load.prefetch=0", "+measure.silence.no_prefetch='the model is the bottleneck'")
    (item,) = lint(silenced, TWO_CORES)
    assert item == Advice(
        name="no_prefetch",
        evidence="load.prefetch=0: the model waits while the next batch is prepared",
        override="load.prefetch=autotune",
        reason="the model is the bottleneck",
    )
    assert str(item) == "no_prefetch: silenced: the model is the bottleneck"


def test_a_silenced_advice_is_no_remark_of_the_plan_either() -> None:
    assert plan_of("trainer.epochs=1").remarks == ("cache.memory has no effect: a single epoch never reads it back.",)
    assert plan_of("trainer.epochs=1", "+measure.silence.cache_unread='it is a test'").remarks == ()


def test_every_advice_has_its_name_and_its_check() -> None:
    assert _CHECKS.keys() == ADVICE.keys()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_experiments_of_the_project_follow_the_advice_or_say_why_not(name: str) -> None:
    machine = Machine(cores=2, free_memory_bytes=10**12)
    assert [item for item in lint(plan_of(*experiment(name)), machine) if not item.reason] == []


def test_silence_changes_no_plan() -> None:
    quiet = plan_of("+measure.silence.no_prefetch='it is a test'")
    assert (quiet.spec, quiet.fingerprint) == (plan_of().spec, plan_of().fingerprint)
