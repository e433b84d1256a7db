"""Grids with combinations of values that don't fit together: they are left out, counted, and told by their rule."""

from pathlib import Path

import pytest

from etlrun.config.grid import Unfit
from etlrun.sweep.ledger import describe, left_out
from etlrun.system.errors import ConfigError
from tests.configs import refusal_of_request
from tests.sweeps import Sweep, ended, results_of
from tests.test_compose import grid_of, jobs_of

RULE = "extract.num_parallel_calls: found 2; expected at most cycle_length, which is 1"
REMEDY = "    -> set extract.cycle_length=2 or extract.num_parallel_calls=autotune"
SWEPT = (
    "extract.cycle_length=1,2,4",
    "extract.num_parallel_calls=1,2,autotune",
    "transform.num_parallel_calls=1,2",
    "cache=none,memory,disk",
    "load.prefetch=0,autotune",
)
"""What the product is for, in one command."""
UNFIT = ("extract.cycle_length=1,2", "extract.num_parallel_calls=1,2", "load.prefetch=0,1")


def test_the_grid_of_all_knobs_runs_without_what_does_not_fit() -> None:
    found = grid_of(*SWEPT)
    assert (len(found.jobs), len(found.unfit)) == (96, 12)
    assert all(unfit.rules == (RULE,) for unfit in found.unfit)
    assert list(describe(left_out(found.unfit, [job.overrides for job in found.jobs]))) == [
        f"12 combinations with extract.cycle_length=1 extract.num_parallel_calls=2: {RULE}"
    ]


def test_a_sweep_lists_what_it_leaves_out(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    assert sweep(*UNFIT, "dataset.version=9.9.9") == 1
    words = f"2 combinations with extract.cycle_length=1 extract.num_parallel_calls=2: {RULE}"
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"sweep     6 jobs of 6 configs, 6 to run, in {folder}", f"left out  {words}"]
    assert out[-2:] == [f"left out  {words}", f"report    {folder}/report.html"]
    assert f"- Left out: {words}\n" in (folder / "report.md").read_text().replace("\\", "")
    assert f"<li>{words}</li>" in (folder / "report.html").read_text()
    assert [(unfit["own"], unfit["rules"]) for unfit in results_of(tmp_path)["unfit"]] == [
        (["extract.cycle_length=1", "extract.num_parallel_calls=2", f"load.prefetch={prefetch}"], [RULE])
        for prefetch in (0, 1)
    ]

    capsys.readouterr()
    assert ended([f"sweep.resume={folder}"]) == 1
    assert capsys.readouterr().out.splitlines()[1] == f"left out  {words}"
    assert len(results_of(tmp_path)["unfit"]) == 2

    more = ["extract.cycle_length=1,2", "extract.num_parallel_calls=1,2,4", "load.prefetch=0"]
    assert ended([f"sweep.resume={folder}", *more]) == 1
    assert [unfit["own"] for unfit in results_of(tmp_path)["unfit"]] == [
        ["extract.cycle_length=1", "extract.num_parallel_calls=2", "load.prefetch=0"],
        ["extract.cycle_length=1", "extract.num_parallel_calls=2", "load.prefetch=1"],
        ["extract.cycle_length=1", "extract.num_parallel_calls=4", "load.prefetch=0"],
        ["extract.cycle_length=2", "extract.num_parallel_calls=4", "load.prefetch=0"],
    ]


def test_zipped_keys_and_rules_of_ones_own_come_before() -> None:
    exclude = "sweep.exclude=['load.prefetch=1']"
    assert [unfit.overrides[2] for unfit in grid_of(*UNFIT, exclude).unfit] == ["load.prefetch=0"]
    assert jobs_of(*UNFIT[:2], "sweep.zip=[[extract.cycle_length,extract.num_parallel_calls]]") == [
        ["extract.cycle_length=1", "extract.num_parallel_calls=1"],
        ["extract.cycle_length=2", "extract.num_parallel_calls=2"],
    ]
    zipped = grid_of(
        "extract.cycle_length=4,1", *UNFIT[1:2], "sweep.zip=[[extract.cycle_length,extract.num_parallel_calls]]"
    )
    assert (len(zipped.jobs), [unfit.rules for unfit in zipped.unfit]) == (1, [(RULE,)])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([*UNFIT, "sweep.unfit=refuse"], f"{RULE}\n{REMEDY}"),
        ([*UNFIT, "sweep.unfit=maybe"], "sweep.unfit: found 'maybe'; expected skip or refuse"),
        (
            ["extract.cycle_length=1", "extract.num_parallel_calls=2,3"],
            (f"{RULE}\n{REMEDY}\n" + f"{RULE}\n{REMEDY}".replace("found 2", "found 3").replace("=2", "=3")),
        ),
        ([*UNFIT, "sweep.exclude=['extract.num_parallel_calls=1','extract.cycle_length=2']"], f"{RULE}\n{REMEDY}"),
        (
            ["extract.cycle_length=1,2", "extract.num_parallel_calls=1,2", "load.prefetch=-1,0"],
            "load.prefetch: found -1; expected an integer from 0 to 1,000,000, or autotune",
        ),
        (
            ["cache.at=decoded,rezise"],
            (
                "cache.at: found rezise; expected one of source, decoded, transformed, features, decode, resize\n"
                "    -> did you mean `resize`?"
            ),
        ),
        (
            ["profile=trace", "profile.windows=[[3,2]],[[2,3]]"],
            (
                "profile.windows: found [[3, 2]]; expected windows [first step, end) of at least one step, ordered and "
                "disjoint\n    -> write them as [[10, 20], [100, 110]]"
            ),
        ),
        (
            ["transform=augmented_224", "cache=memory", "load.prefetch=0,1"],
            (
                "cache.at: found transformed; expected a point before transform.random_flip, whose first result all "
                "later epochs would repeat\n    -> set cache.at=resize"
            ),
        ),
    ],
)
def test_what_fits_nowhere_and_what_is_wrong_by_itself_refuse_the_sweep(overrides: list[str], message: str) -> None:
    assert refusal_of_request(*overrides) == message


def test_a_rule_that_every_combination_breaks_is_told_beside_wrong_values() -> None:
    words = ["extract.cycle_length=1", "extract.num_parallel_calls=2", "load.prefetch=0,-1"]
    wrong = "load.prefetch: found -1; expected an integer from 0 to 1,000,000, or autotune"
    assert refusal_of_request(*words) == f"{RULE}\n{REMEDY}\n{wrong}"


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_refuses_what_does_not_fit() -> None:
    words = ["hydra/sweeper=optuna", "extract.cycle_length=choice(1,2)", "extract.num_parallel_calls=choice(1,2)"]
    with pytest.raises(ConfigError) as caught:
        grid_of(*words)
    assert str(caught.value) == f"{RULE}\n{REMEDY}"


def test_hundreds_of_combinations_are_a_few_lines() -> None:
    unfit = [
        Unfit.of([f"a={one}", f"b={other}"], [f"a: found {one}; expected below {other}"])
        for one in range(30)
        for other in range(5)
    ]
    lines = list(describe(left_out(unfit, [])))
    assert lines[0] == "1 combination with a=0 b=0: a: found 0; expected below 0"
    assert len(lines) == 9
    assert lines[-1] == "142 combinations by 142 other rules; results.json lists all"
