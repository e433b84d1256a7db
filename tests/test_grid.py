from pathlib import Path

import pytest

from etlrun.config import grid
from etlrun.config.grid import Grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from tests.configs import refusal_of_request


def grid_of(*overrides: str) -> Grid:
    return grid.of(Request(overrides=list(overrides), multirun=True), STAGES)


def jobs_of(*overrides: str) -> list[list[str]]:
    return [job.overrides for job in grid_of(*overrides).jobs]


def test_the_last_key_changes_fastest() -> None:
    assert jobs_of("cache=none,memory", "load.prefetch=0,1") == [
        ["cache=none", "load.prefetch=0"],
        ["cache=none", "load.prefetch=1"],
        ["cache=memory", "load.prefetch=0"],
        ["cache=memory", "load.prefetch=1"],
    ]


def test_a_job_is_what_it_would_be_alone() -> None:
    words = ["cache=disk", "load.prefetch=3", "+transform.rescale.scale=0.007843137254901961", "~load.drop_remainder"]
    words += ["+load.drop_remainder=true", "transform.steps=[decode,resize,rescale]", "hydra.sweep.dir=x"]
    words += ["transform.eval_steps=[decode,resize,rescale]", "+transform.rescale.offset=-1.0"]
    alone = grid.resolve(Request(overrides=words), STAGES).plan
    swept = grid_of(*words, "load.batch_size=8,16").jobs[1]
    assert swept.plan.spec.load.batch_size == 16
    assert swept.plan.decisive == {**alone.decisive, **{
        key: value for key, value in swept.plan.decisive.items() if key.endswith("batch_size")
    }}  # fmt: skip
    assert swept.plan.spec.cache == alone.spec.cache


def test_references_follow_what_is_swept() -> None:
    jobs = grid_of("load.batch_size=8,16", "load.shuffle_buffer=${load.batch_size}").jobs
    assert [job.config["load"]["shuffle_buffer"] for job in jobs] == [8, 16]


def test_a_mapping_holds_nothing_of_the_job_before() -> None:
    jobs = grid_of("trainer.early_stopping={patience:3},{min_delta:0.5}", "load.prefetch=0,1").jobs
    stopping = [job.plan.spec.trainer.early_stopping for job in jobs]  # type: ignore[union-attr] # none is a drain
    assert [(item.patience, item.min_delta) for item in stopping] == [(3, 0.0), (3, 0.0), (None, 0.5), (None, 0.5)]


def test_how_a_sweep_goes_is_no_part_of_its_jobs() -> None:
    found = grid_of("load.prefetch=0,1", "sweep.repeats=5", "sweep.timeout_s=3.5")
    assert (found.sweep.repeats, found.sweep.timeout_s) == (5, 3.5)
    assert all("sweep" not in job.config for job in found.jobs)
    assert [job.overrides for job in found.jobs] == [["load.prefetch=0"], ["load.prefetch=1"]]


def test_zipped_keys_go_together_at_the_place_of_the_first() -> None:
    zipped = "sweep.zip=[[load.prefetch,load.batch_size]]"
    assert jobs_of("load.prefetch=0,1", "cache=none,memory", "load.batch_size=8,16", zipped) == [
        ["load.prefetch=0", "cache=none", "load.batch_size=8"],
        ["load.prefetch=0", "cache=memory", "load.batch_size=8"],
        ["load.prefetch=1", "cache=none", "load.batch_size=16"],
        ["load.prefetch=1", "cache=memory", "load.batch_size=16"],
    ]  # fmt: skip


def test_a_key_can_be_tried_only_where_it_means_something() -> None:
    rule = "sweep.exclude=['cache!=disk cache.dir!=null']"
    assert jobs_of("cache=none,disk", "cache.dir=null,mine", rule) == [
        ["cache=none", "cache.dir=null"],
        ["cache=disk", "cache.dir=null"],
        ["cache=disk", "cache.dir=mine"],
    ]  # fmt: skip


def test_a_rule_takes_several_values() -> None:
    assert jobs_of("load.prefetch=0,1,2,autotune", "sweep.exclude=['load.prefetch=0|2']") == [
        ["load.prefetch=1"],
        ["load.prefetch=autotune"],
    ]


def test_what_a_rule_leaves_out_may_be_wrong() -> None:
    rule = "sweep.exclude=['transform=augmented_224 cache=memory']"
    assert len(jobs_of("transform=small_64,augmented_224", "cache=none,memory", rule)) == 3


def test_the_grid_may_stand_in_a_config(tmp_path: Path) -> None:
    text = "# Mine.\ndefaults: [config, _self_]\nhydra: {sweeper: {params: {load.prefetch: '0,1'}}}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    request = Request(overrides=["cache=none"], config_dir=str(tmp_path), config_name="mine", multirun=True)
    assert [job.overrides for job in grid.of(request, STAGES).jobs] == [
        ["load.prefetch=0", "cache=none"],
        ["load.prefetch=1", "cache=none"],
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["load.prefetch=0,1", "sweep.exclude=['load.prefetch=0|1']"],
            ("sweep.exclude: found rules that exclude every job; expected at least one combination of the "
            "overrides' values"),
        ),
        (["load.prefetch=range(0,1000000000)"],
            "load.prefetch: found more than 100,000 values; expected at most 100,000"),
        (["hydra.sweeper.params={load.prefetch:'0,1'}"],
            ("config: found 'NoneType' object has no attribute 'get' full_key: hydra.sweeper.params "
            "reference_type=Optional[Dict[str, str]] object_type=NoneType; expected a config that Hydra can compose")),
        (["load.prefetch=range(3,1)"], ("load.prefetch: found no value; expected a value for each job\n"
            "    -> give load.prefetch a value, or leave it out")),
        (
            ["sweep.repeats=0", "sweep.max_jobs_in_flight=0"],
            ("sweep.repeats: found 0; expected an integer from 1 to 1,000\n"
            "sweep.max_jobs_in_flight: found 0; expected a positive integer"),
        ),
        (
            ["sweep.repeats=1,2"],
            "sweep.repeats: found 2 values; expected one value: it configures the sweep, not a job",
        ),
        (
            ["sweep.repeat=3"],
            ("sweep.repeat: found an unknown key; expected one of the keys repeats, seed, vary_seed, prune, resume, "
            "on_error, retries, timeout_s, max_jobs_in_flight, unfit, exclude, zip, objectives\n"
            "    -> did you mean `sweep.repeats`?"),
        ),
        (
            ["load.prefetch=0,1", "+load={prefetch:2}", "cache=none,disk", "cache=memory"],
            ("load.prefetch: found 2 values, and then +load={prefetch:2}; expected one override for each key: the last "
            "one takes precedence\n    -> remove one of the two\n"
            "cache: found 2 values, and then cache=memory; expected one override for each key: the last one takes "
            "precedence\n    -> remove one of the two"),
        ),
        (
            ["measure.silence={serial_map:one},{no_prefetch:two}"],
            ("measure.silence.serial_map: found a key that no file of this config sets; expected an existing key\n"
            "    -> write +measure.silence={serial_map:one},{no_prefetch:two} to add it\n"
            "measure.silence.no_prefetch: found a key that no file of this config sets; expected an existing key\n"
            "    -> write +measure.silence={serial_map:one},{no_prefetch:two} to add it"),
        ),
        (
            ["load.batch_size=int(interval(8,64))"],
            ("load.batch_size: found an interval; expected values for a grid\n"
            "    -> list the values, or search: hydra/sweeper=optuna"),
        ),
        (
            ["load.prefetch=0,1", "load.batch_size=8,16,32", "sweep.zip=[[load.prefetch,load.batch_size]]"],
            ("sweep.zip[0]: found load.prefetch with 2, load.batch_size with 3; expected the same number "
            "of values for each key, and each key in one list"),
        ),
        (
            ["load.prefetch=0,1", "sweep.zip=[[load.prefetch,cache]]", "sweep.exclude=['load.prefech=0', 'x']"],
            ("sweep.zip[0]: found the key cache, which is not on the command line; expected one of load.prefetch\n"
            "sweep.exclude: load.prefech=0: found the key load.prefech, which is not on the command line; expected "
            "one of load.prefetch\n    -> did you mean `load.prefetch`?\n"
            "sweep.exclude: x: found x; expected terms KEY=VALUE or KEY!=VALUE, with | between values"),
        ),
        (
            ["load.prefetch=0,1", "sweep.exclude=['load.prefetch=9']"],
            "sweep.exclude: load.prefetch=9: found load.prefetch=9; expected one of 0, 1",
        ),
        (
            ["sweep.objectives=[throughput,throughput]"],
            ("sweep.objectives: found ['throughput', 'throughput']; expected each objective once\n"
            "    -> remove one of the two"),
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_grid_is_told(overrides: list[str], message: str) -> None:
    assert refusal_of_request(*overrides) == message


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_is_checked_value_by_value() -> None:
    words = ["hydra/sweeper=optuna", "load.prefetch=choice(0,1,2)", "load.batch_size=int(interval(8,64))"]
    assert jobs_of(*words) == [
        ["load.prefetch=0", "load.batch_size=8"],
        ["load.prefetch=1", "load.batch_size=8"],
        ["load.prefetch=2", "load.batch_size=8"],
        ["load.prefetch=0", "load.batch_size=64"],
    ]
    assert refusal_of_request(*words, "trainer.epochs=choice(1,0)") == (
        "trainer.epochs: found 0; expected a positive integer"
    )
