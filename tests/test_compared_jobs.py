"""Which jobs of two sweeps are matched, and which of their runs are compared."""

import json
from pathlib import Path
from typing import Any

from etlrun.record.summary import FAILED
from etlrun.review.review import matched
from etlrun.review.runs import compare_runs
from etlrun.review.sides import Variant
from tests.test_compared_runs import a_run, swept


def names(old: list[str], new: list[str]) -> list[tuple[str, bool, bool]]:
    """The jobs with these overrides, and whether the old and the new sweep has each."""
    sides = [[Variant(config=None, plan=None, overrides=tuple(of.split())) for of in words] for words in (old, new)]
    return [(name, was is not None, now is not None) for name, was, now in matched(*sides)]


def test_jobs_are_matched_by_the_keys_that_either_sweep_has_several_values_of() -> None:
    assert names(["a=1 c=5", "a=2 c=5"], ["c=6 a=2", "c=6 a=1"]) == [("a=1", True, True), ("a=2", True, True)]
    assert names(["a=1 b=1"], ["a=1 b=1", "a=1 b=2"]) == [("b=1", True, True), ("b=2", False, True)]
    assert names(["a=1", "a=2"], ["a=1 b=1", "a=1 b=2"]) == [
        ("a=1", True, False),
        ("a=2", True, False),
        ("a=1 b=1", False, True),
        ("a=1 b=2", False, True),
    ]
    assert names(["+a=1", "a=1 +a=2"], ["++a=2", "~a"]) == [
        ("a=1", True, False),
        ("a=2", True, True),
        ("~a", False, True),
    ]
    assert names(["a=1"], ["b=1"]) == [("", True, True)]


def test_runs_that_are_not_completed_are_compared_where_no_other_is(tmp_path: Path) -> None:
    old = [a_run(tmp_path / "a"), a_run(tmp_path / "b", rate=1.0, status=FAILED)]
    lost = [a_run(tmp_path / "c", rate=50.0, status=FAILED)]
    found = compare_runs(old, lost)
    assert (found.runs, found.others) == ((1, 1), {"status": ("1 completed, 1 failed", "failed")})
    assert next((of.measure, of.old, of.new) for of in found.measured) == ("examples/s", (100.0,), (50.0,))


def test_what_is_not_known_of_each_run_is_no_difference(tmp_path: Path) -> None:
    versions = ({"python": "3.11", "keras": "3.14"}, {"python": "3.11"})
    old = [a_run(tmp_path / str(number), versions=of) for number, of in enumerate(versions)]
    new = [a_run(tmp_path / "new", versions={"python": "3.12"}), a_run(tmp_path / "other", versions={"python": "3.11"})]
    assert compare_runs(old, new).packages == {"python": ("3.11", "1 3.12, 1 3.11")}


def test_jobs_that_fill_caches_are_not_compared(told: Any, tmp_path: Path) -> None:
    words, rates = ("load.prefetch=0,1", "model=emulated", "cache=disk"), {"0": 100.0, "1": 100.0}
    old = swept(tmp_path / "a", *words, rates=rates)
    filled = swept(tmp_path / "b", *words, rates=rates)
    (name,) = {path.name for path in map(Path, fills_of(filled))}
    a_run(filled / name, rate=7.0)
    assert told(str(old), str(filled)).splitlines().count("  measured examples/s: 100 -> 100, 1.00x") == 1
    assert told(str(old), str(filled)).splitlines()[1] == "load.prefetch=0, load.prefetch=1: changes nothing"


def fills_of(folder: Path) -> list[str]:
    from etlrun.sweep.ledger import Ledger

    return [run.name for run in Ledger.open(folder).runs if run.fills]


def test_a_sweep_is_composed_of_the_config_that_it_named(told: Any, tmp_path: Path) -> None:
    old, own = swept(tmp_path / "a", "load.prefetch=0,1", "model=emulated", rates={}), tmp_path / "own"
    own.mkdir()
    (own / "whole.yaml").write_text("defaults: [config, _self_]\ntrainer: {epochs: 9}\n")
    known = json.loads((old / "sweep.json").read_text())
    known["request"] |= {"config_dir": str(own), "config_name": "whole"}
    (old / "sweep.json").write_text(json.dumps(known))
    assert "  trainer.epochs  4 -> 9  training" in told(str(old)).splitlines()
