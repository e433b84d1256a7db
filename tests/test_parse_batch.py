"""Parsing of several examples in one call: the same examples, in the same order, with the same caches."""

from pathlib import Path

import pytest

from etlrun.run.keepers import keepers_of
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests.configs import plan_of
from tests.own import batches, of_folder, of_records, records
from tests.pipelines import as_bytes
from tests.programs import program_of

BATCH = "transform.parse_batch=7"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("cache=none",),
        ("cache=memory", "cache.at=source"),
        ("cache=none", "extract=sequential", "load.shuffle=full"),
        ("cache=none", "transform.decode.library=tensorflow"),
        ("cache=none", "transform.num_parallel_calls=null"),
    ],
    ids=" ".join,
)
def test_examples_and_programs_are_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    records(tmp_path, "a.tfrecord", range(25))
    plan = of_records(tmp_path, *words, BATCH)
    wanted = batches(of_records(tmp_path, *words), passes=2)
    assert batches(plan, passes=2) == wanted
    program = program_of(plan, tmp_path)
    assert as_bytes(program.train_dataset().take(len(wanted))) == wanted


def test_files_of_a_folder_are_read_in_batches(folder: Path, tmp_path: Path) -> None:
    plan = of_folder(folder, "cache=none", BATCH)
    assert batches(plan) == batches(of_folder(folder, "cache=none"))
    program = program_of(plan, tmp_path)
    assert as_bytes(program.validation_dataset()) == batches(plan, name="validation")


def test_a_cache_is_the_same(tmp_path: Path) -> None:
    records(tmp_path, "a.tfrecord", range(25))
    keys = set()
    for word in (BATCH, "transform.parse_batch=null"):
        plan = of_records(tmp_path, "cache=disk", f"cache.dir={tmp_path / 'caches'}", word)
        keys.add(keepers_of(plan, contexts_of(plan, open_source(plan.spec.dataset)), {}, print)["train"].key)
    assert len(keys) == 1
    assert plan_of(BATCH).fingerprint == plan_of().fingerprint


def test_it_is_a_stage_of_the_plan_with_the_speed_of_the_map() -> None:
    (stage,) = [planned.stage for planned in plan_of(BATCH).train if planned.stage.path == "transform.parse_batch"]
    assert (stage.examples, stage.num_parallel_calls) == (7, "autotune")  # type: ignore[attr-defined]
    assert stage.nodes[1].examples == 7
