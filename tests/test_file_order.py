"""In which order the shards are read, and how many at once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etlrun.graph.build import Pipeline
from etlrun.planning import render
from etlrun.review.difference import compare
from etlrun.run.backend import seed_all
from etlrun.system import machine
from etlrun.system.machine import calls_here
from tests.configs import plan_of, refusal_of_spec
from tests.pipelines import training_pipeline
from tests.runs import emulated, run_here, small
from tests.test_graph import PLAIN, examples
from tests.test_identity import identity_of

SHUFFLED = ("extract.shuffle_files=true", *PLAIN)
Build = Callable[..., Pipeline]


@pytest.fixture
def pipeline(tiny: Path, tmp_path: Path) -> Iterator[Build]:
    """Builds the training pipeline of a small run that reads shuffled files, without shuffling their examples."""
    with ExitStack() as stack:

        def build(*overrides: str) -> Pipeline:
            words = small(tiny, f"cache.dir={tmp_path / 'caches'}", *SHUFFLED, *overrides)
            plan = plan_of(*words)
            seed_all(plan.spec.trainer.seed)
            return stack.enter_context(training_pipeline(plan))

        yield build


@pytest.mark.parametrize("extract", ["sequential", "interleave"])
def test_each_pass_reads_the_shards_in_an_order_that_follows_from_the_seed(extract: str, pipeline: Build) -> None:
    words = (f"extract={extract}", "cache=none")
    first = pipeline(*words)
    passes = [examples(first.dataset) for _ in range(3)]
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    resumed = pipeline(*words)
    resumed.skip_passes(2)
    assert examples(resumed.dataset) == passes[2]
    endless = pipeline(*words)
    endless.skip_passes(1)
    assert examples(endless.endless().take(12)) == passes[1] + passes[2]
    assert examples(pipeline(*words, "trainer.seed=1").dataset) not in passes


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_cache_keeps_the_order_of_the_first_pass_whenever_it_is_filled(cache: str, pipeline: Build) -> None:
    first = examples(pipeline("cache=none").dataset)
    cached = pipeline(f"cache={cache}")
    assert [examples(cached.dataset) for _ in range(2)] == [first, first]
    resumed = pipeline(f"cache={cache}")
    resumed.skip_passes(2)
    assert examples(resumed.dataset) == first
    endless = pipeline(f"cache={cache}")
    endless.skip_passes(1)
    assert examples(endless.endless().take(12)) == first + first


def test_the_fingerprint_tells_an_order_that_a_cache_keeps() -> None:
    each, kept = ("extract.shuffle_files=true", "cache=none"), ("extract.shuffle_files=true", "cache=memory")
    on_disk = ("extract.shuffle_files=true", "cache=disk")
    assert plan_of(*each).fingerprint != plan_of(*kept).fingerprint
    assert plan_of(*kept).fingerprint == plan_of(*on_disk).fingerprint
    assert plan_of(*each).remarks == ()
    assert plan_of(*kept).remarks == (
        "extract.shuffle_files = true: the cache keeps the order of the first pass for all later ones.",
    )
    assert compare(plan_of(*each), plan_of(*kept)).headline == "changes the order"
    assert compare(plan_of(*kept), plan_of(*on_disk)).headline == "changes only the speed"


def test_validation_reads_the_shards_in_the_order_of_their_names() -> None:
    assert not plan_of("extract.shuffle_files=true").evaluation[0].is_random


def test_the_key_of_a_cache_holds_the_seed_where_the_shards_are_shuffled(tiny: Path, tmp_path: Path) -> None:
    def keys(*words: str) -> list[dict[str, object]]:
        return [identity_of(tiny, f"cache.dir={tmp_path}", *words, f"trainer.seed={seed}") for seed in (0, 1)]

    by_name, shuffled = keys(), keys("extract.shuffle_files=true")
    assert by_name[0] == by_name[1]
    assert [name for name in shuffled[0] if shuffled[0][name] != shuffled[1].get(name)] == ["seed"]
    one_shard = "dataset.split='train[:5]'"
    assert keys("extract.shuffle_files=true", one_shard) == keys(one_shard)


@pytest.mark.parametrize("calls", ["cores", "cores-1"])
@pytest.mark.parametrize("cycle_length", ["1", "all"])
def test_calls_that_follow_the_machine_change_no_byte(calls: str, cycle_length: str, pipeline: Build) -> None:
    words = ("cache=none", f"extract.cycle_length={cycle_length}")
    speeds = (f"extract.num_parallel_calls={calls}", f"transform.num_parallel_calls={calls}")
    assert examples(pipeline(*words, *speeds).dataset) == examples(pipeline(*words).dataset)


def test_all_shards_are_as_many_as_the_split_has(pipeline: Build) -> None:
    four = pipeline("cache=none", "extract.cycle_length=4", "extract.num_parallel_calls=4")
    every = pipeline("cache=none", "extract.cycle_length=all", "extract.num_parallel_calls=64")
    assert examples(every.dataset) == examples(four.dataset)


def test_a_plan_tells_the_cores_of_the_machine_and_its_golden_text_does_not() -> None:
    words = ("extract.num_parallel_calls=cores", "extract.cycle_length=2", "transform.num_parallel_calls=cores-1")
    plan, calls = plan_of(*words), "num_parallel_calls"
    assert _values(render.text(plan, 8), calls)[:2] == ["cores (2) speed", "cores-1 (7) speed"]
    assert _values(render.text(plan), calls)[:2] == ["cores speed", "cores-1 speed"]
    assert render.text_here(plan) == render.text(plan, machine.cores())
    assert _values(render.text(plan_of("extract.cycle_length=all"), 8), "cycle_length")[0] == "all order"


def _values(text: str, name: str) -> list[str]:
    return [" ".join(line.split()[1:]) for line in text.splitlines() if line.split()[:1] == [name]]


def test_at_least_one_call_is_left_on_one_core() -> None:
    assert [calls_here(word, 1) for word in ("cores", "cores-1")] == [1, 1]
    assert [calls_here(word, 8) for word in ("cores", "cores-1")] == [8, 7]


def test_other_words_are_refused() -> None:
    assert refusal_of_spec("extract.num_parallel_calls=core", "extract.cycle_length=every") == (
        "extract.cycle_length: found 'every'; expected an integer from 1 to 10,000, or all\n"
        "extract.num_parallel_calls: found 'core'; expected an integer from 1 to 10,000, autotune, cores, "
        "cores-1, or null for a serial stage"
    )


@pytest.mark.parametrize(
    ("cycle_length", "split", "notes"),
    [
        ("16", "train", ["extract.cycle_length = 16 is limited to 4: the split has 4 shards."]),
        ("4", "train[:5]", ["extract.cycle_length = 4 is limited to 1: the split has 1 shard."]),
        ("4", "train", []),
        ("all", "train[:5]", []),
    ],
)
def test_a_run_notes_a_cycle_above_the_shards_of_its_split(
    cycle_length: str, split: str, notes: list[str], tiny: Path, tmp_path: Path
) -> None:
    words = (
        f"extract.cycle_length={cycle_length}",
        f"dataset.split='{split}'",
        "dataset.eval_split=null",
        "cache=none",
    )
    status, summary = run_here(tmp_path, emulated(tiny, *words, "model.step_ms=0", "trainer.epochs=2"))
    assert status == 0
    assert summary["remarks"] == notes
