"""What the runs of a sweep come to, from their summaries alone, and what a search is given of a job."""

import html
import json
import math
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from etlrun.cli.launch import _objectives
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.measure.gains import Gain, Noise, gains, itself
from etlrun.record.outcome import outcome
from etlrun.record.summary import Summary
from etlrun.report.render import RENDER
from etlrun.results import decision, report
from etlrun.results.decision import decide, tied_with_best
from etlrun.results.report import collect
from etlrun.results.results import ConfigResult, Results
from etlrun.review.difference import Comparison, compare
from etlrun.stages import STAGES
from etlrun.system.errors import WorldError
from etlrun.system.values import grouped
from tests.configs import plan_of, raised
from tests.golden import Case, Golden, Says, cases
from tests.present import present
from tests.sweeps import collected, sweep_of

SWEEP = grid.of(Request(overrides=["sweep.objectives=[throughput,utilisation,peak_memory]"]), STAGES).sweep
EPOCH = {"fill_wait_s": 0.0, "input_wait_s": 0.0, "wall_s": 2.0, "startup_s": 0.0, "startup_examples": 0}
DONE: dict[str, Any] = {
    "status": "completed",
    "overrides": [],
    "epochs": [{**EPOCH, "examples": 100, "examples_per_s": 50.0}] * 2,
    "au": 0.5,
    "resources": {"peak_rss_bytes": 1000},
}


def cached(*passes: str) -> dict[str, Any]:
    return {"cache": {"pipelines": {"train": {"passes": list(passes)}}}}


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, (50.0, 0.5, 1000.0)),
        (cached("filled", "read"), (50.0, 0.5, 1000.0)),
        (cached("uncached", "uncached"), (0.0, 0.0, math.inf)),
        ({"status": "failed"}, (0.0, 0.0, math.inf)),
        ({"status": "interrupted"}, (0.0, 0.0, math.inf)),
        ({"au": None}, (50.0, 0.0, 1000.0)),
    ],
)
def test_a_run_that_did_not_measure_its_config_gets_the_worst_values(
    changes: dict[str, Any], given: tuple[float, ...]
) -> None:
    assert _objectives(outcome(Summary.model_validate({**DONE, **changes})), SWEEP) == given


def test_a_run_without_a_summary_gets_them_too() -> None:
    assert _objectives(None, SWEEP) == (0.0, 0.0, math.inf)


STILL = Noise(median=0.0, largest=0.0, pairs=3)


def as_planned(_number: int) -> Comparison:
    """A config that differs from the baseline in speed alone."""
    return changed([], ["load.prefetch=1"])


@cache
def _changed(old: tuple[str, ...], new: tuple[str, ...]) -> Comparison:
    return compare(plan_of(*old), plan_of(*new))


def changed(old: Sequence[str], new: Sequence[str]) -> Comparison:
    """What the config with the overrides `old` and `new` changes in the one with `old`."""
    return _changed(tuple(old), (*old, *new))


def config(
    number: int, rate: float | None, call: str = "tied", ratio: float = 1.0, rounds: int = 3, **values: Any
) -> ConfigResult:
    gain = Gain(ratio=ratio, low=ratio - 0.02, high=ratio + 0.02, call=call, rounds=rounds)
    known: dict[str, Any] = {
        "overrides": ("model=emulated", f"load.prefetch={number}"), "own": (f"load.prefetch={number}",),
        "swept": {"load.prefetch": str(number)}, "status": "completed", "runs": (str(number),), "state": "warm",
        "overall_examples_per_s": rate, "gain": gain, "bound_by": "model", "peak_rss_bytes": 1e9, "cores_used": 1.0,
        "wall_s": 3.0, "quality": {}, "data": "", "records": {"train": "a"}, "fingerprint": "same", "error": "",
        **dict.fromkeys(("first_examples_per_s", "fill_s", "au", "max_gain")),
    }  # fmt: skip
    return ConfigResult(number=number, examples_per_s=rate, **{**known, **values})


@pytest.mark.parametrize("case", cases("taken_configs"))
def test_the_cheapest_of_those_tied_with_the_best_is_taken_as_the_table_calls_it(case: Case, golden: Golden) -> None:
    decision = decide([config(**of) for of in case["configs"]], case["tied"], as_planned)
    golden(case, f"{decision.config}: {decision.words}")
    assert decision.overrides == ("model=emulated", f"load.prefetch={decision.config}")
    assert decision.tied == tuple(case["tied"])


def test_a_tie_that_leaves_much_open_is_not_certain() -> None:
    open_tie = config(1, 140.0, gain=Gain(ratio=1.45, low=0.63, high=3.34, call="tied", rounds=3), peak_rss_bytes=2e9)
    decision = decide([open_tie, config(0, 100.0)], [1, 0], as_planned)
    assert (decision.config, decision.is_certain, decision.decide) == (0, False, True)
    assert decision.again == ("sweep.repeats=6",)
    assert decision.words == (
        "Keep the baseline, load.prefetch=0: nothing is shown to be faster. Of 2 configs tied with the best it has the "
        "least memory (within 2%), then the fewest changed values, then the fewest cores. Another one may be up to "
        "3.34 times as fast, which more repeats tell. A person decides which is used."
    )


@pytest.mark.parametrize("rounds", [3, 5])
def test_no_decision_contradicts_the_table_in_simulated_sweeps(rounds: int) -> None:
    random = np.random.default_rng(rounds)
    for _ in range(200):
        logs = random.normal(0, 0.03, (6, rounds)) + random.normal(0, 0.03, (6, 1))
        rates = {number: dict(enumerate((100 * np.exp(log)).tolist())) for number, log in enumerate(logs)}
        over = gains({number: of for number, of in rates.items() if number}, rates[0], STILL) | {0: itself(rates[0])}
        configs = [
            config(number, float(np.median(list(of.values()))), gain=over[number], peak_rss_bytes=1e9 + 5e7 * number)
            for number, of in rates.items()
        ]
        configs.sort(key=lambda one: -(one.examples_per_s or 0.0))
        decision = decide(configs, tied_with_best(configs, rates, STILL), as_planned)
        calls = {one.number: one.gain.call for one in configs}
        assert decision.config is not None
        assert calls[decision.config] == ("better" if "better" in calls.values() else "tied")
        assert ("nothing is shown to be faster" in decision.words.lower()) == ("better" not in calls.values())


@pytest.mark.parametrize(
    ("ranked", "rates", "tied"),
    [
        # Too few rounds are not taken for the best beside one that was compared.
        (
            [config(1, 140.0, "untold", 1.4, rounds=1), config(2, 130.0, "better", 1.3), config(0, 100.0)],
            {0: [100.0] * 3, 1: [140.0], 2: [130.0] * 3},
            [2],
        ),
        (
            [config(2, 130.5), config(1, 130.0), config(0, 100.0)],
            {0: [100.0] * 5, 1: [130.0] * 5, 2: [131.0, 128.0, 130.0, 129.0, 132.0]},
            [2, 1],
        ),
        ([config(1, 130.0), config(0, 129.0)], {1: [130.0], 0: [129.0]}, [1]),
        ([config(0, None)], {0: []}, []),
    ],
)
def test_tied_with_the_best_is_what_rounds_beside_it_do_not_show_to_be_slower(
    ranked: list[ConfigResult], rates: dict[int, list[float]], tied: list[int]
) -> None:
    assert tied_with_best(ranked, {number: dict(enumerate(of)) for number, of in rates.items()}, STILL) == tied


def test_nothing_is_taken_where_nothing_has_completed() -> None:
    decision = decide([config(0, None)], [], as_planned)
    assert (decision.config, decision.overrides, decision.words) == (None, (), "No comparable run has completed.")


def epoch(rate: float = 1000.0, **values: Any) -> dict[str, Any]:
    """An epoch of a second."""
    times = {"wall_s": 1.0, "startup_s": 0.0, "fill_wait_s": 0.0, "input_wait_s": 0.0}
    return {**times, "examples": rate, "startup_examples": 0, "examples_per_s": rate, **values}


def results_of(folder: Path, *summaries: dict[str, Any]) -> Results:
    """Of completed runs with these summaries, each of a config of its own."""
    for number, summary in enumerate(summaries):
        (folder / str(number)).mkdir()
        known = {"status": "completed", "overrides": [f"load.prefetch={number}"], "epochs": [epoch(), epoch()]}
        (folder / str(number) / "summary.json").write_text(json.dumps({**known, **summary}))
    return present(collect(folder))


def saw(*digests: str) -> dict[str, Any]:
    """A run whose epochs have these digests, `training` or `training/validation`."""
    parts = [digest.partition("/") for digest in digests]
    return {"epochs": [epoch(digest=train, validation_digest=other) for train, _, other in parts]}


@pytest.mark.parametrize(
    ("runs", "data"),
    [
        ([saw("a"), saw("a", "b")], ["same", "same"]),
        ([saw("a", "b"), saw("a"), saw("a", "c")], ["same", "same", "differs"]),
        ([saw("a"), saw("b", "b"), saw("a", "b")], ["same", "differs", "same"]),
        ([saw("a/x", "b/x"), saw("a", "b")], ["same", "same"]),
        ([saw("a/x"), saw("a/y")], ["same", "differs"]),
        ([saw("a"), {}, saw("a")], ["same", "", "same"]),
        ([saw("a"), {}], ["", ""]),
        ([{}, saw("a"), saw("a")], ["", "", ""]),
    ],
)
def test_data_is_the_same_where_the_epochs_are_that_both_have(
    runs: list[dict[str, Any]], data: list[str], tmp_path: Path
) -> None:
    found = {config.number: config.data for config in results_of(tmp_path, *runs).configs}
    assert [found[number] for number in range(len(runs))] == data


@pytest.mark.parametrize(
    ("again", "remarks"),
    [(saw("a"), ()), (saw("a", "c"), ("runs of the same config have seen different data: config 0",))],
)
def test_runs_of_a_config_are_told_apart_by_the_epochs_that_both_have(
    again: dict[str, Any], remarks: tuple[str, ...], tmp_path: Path
) -> None:
    results = collected(sweep_of(tmp_path, "sweep.repeats=2"), lambda run: again if run.repeat else saw("a", "b"))
    assert tuple(remark for remark in results.remarks if "data" in remark) == remarks
    assert decision.data_of_first(grouped((run.config, run) for run in results.runs if run.outcome)).keys() == (
        set() if remarks else {0}
    )


def passed(*passes: str, rates: Sequence[float] = (100.0, 200.0, 300.0)) -> dict[str, Any]:
    """A run whose passes over its cache on disk did this."""
    return {"epochs": [epoch(rate) for rate in rates], "cache": {"pipelines": {"train": {"passes": list(passes)}}}}


@pytest.mark.parametrize(
    ("run", "rate", "first", "state"),
    [
        (passed("filled", "read", "read"), 250.0, 100.0, "warm"),
        (passed("read", "read", "read"), 250.0, None, "warm"),
        (passed("uncached", "read", "read"), 250.0, None, "warm"),
        (passed("uncached", "uncached", "read"), 300.0, None, "warm"),
        (passed("uncached", "uncached", "filled"), None, None, ""),
        (passed("uncached", "uncached", "uncached"), None, None, ""),
        (passed("uncached", rates=[100.0]), None, None, ""),
        (passed("filled", "filled", "filled"), 200.0, 100.0, "cold"),
        (passed("filling", rates=[100.0, 200.0]), 150.0, 100.0, "cold"),
        (passed("filled", "read", rates=[100.0, 200.0, 300.0, 400.0]), 350.0, 100.0, "warm"),
        (passed("filled", "read", "read", "read", rates=[100.0, 200.0]), 200.0, 100.0, "warm"),
    ],
)
def test_a_rate_is_of_epochs_that_read_the_cache_of_their_config(
    run: dict[str, Any], rate: float | None, first: float | None, state: str, tmp_path: Path
) -> None:
    (config,) = results_of(tmp_path, run).configs
    assert (config.status, config.runs) == ("completed", ("0",))
    assert (config.examples_per_s, config.first_examples_per_s, config.state) == (rate, first, state)


def test_what_went_without_its_cache_is_said_and_recommended_to_nobody(tmp_path: Path, says: Says) -> None:
    slow, without = {"epochs": [epoch(50.0)] * 2}, passed("uncached", "uncached")
    results = results_of(tmp_path, slow, {**without, **saw("a", "b")}, saw("a", "b"))
    assert results.decision.config == 2
    assert [config.number for config in results.configs] == [2, 0, 1]
    assert {config.number: config.data for config in results.configs} == {0: "", 1: "", 2: ""}
    (said,) = results.remarks
    says(said)


MARKUP = r"<b>*x*</b> _y_ __z__ ~~s~~ $a$ [l](http://e.test) ![i](j) \ \| |c| `q` &amp; @me load.shuffle_buffer=1"


def read(markdown: str) -> str:
    """What a reader sees of it."""
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    assert not re.search("<(em|del|a|img|b)>", rendered)
    return html.unescape(re.sub("<[^>]*>", "", rendered))


def test_markdown_shows_what_the_user_wrote(tmp_path: Path) -> None:
    overrides = [f"dataset.name='{MARKUP}'", "dataset.version='1\n\n# 2'"]
    failed = {"status": "failed", "error": f"dataset.name: found {MARKUP}"}
    text = read(
        RENDER["md"](
            report.of_sweep(results_of(tmp_path, {"overrides": overrides}, {"overrides": ["cache=none"], **failed}))
        )
    )
    assert f"Fastest: dataset.name='{MARKUP}' dataset.version='1 # 2'. A difference can't be told from noise" in text
    assert f"\n{shlex.join(overrides)}\n" in text
    assert text.count(f"\n'{MARKUP}'\n") == text.count("\n'1 # 2'\n") == 1
    assert f"\ndataset.name: found {MARKUP}\n" in text


def test_results_are_shown_where_they_can_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    """A folder stands where a report is to be, as if the disk were full."""
    results_of(tmp_path, {}, {})
    (tmp_path / "report.md").mkdir()
    told = raised(WorldError, report.publish, report.collected(tmp_path))
    assert "decision  Fastest: load.prefetch=0. " in capsys.readouterr().out
    says(re.sub("found [^;]+", "found ERROR", told))


def test_runs_on_unlike_machines_are_not_compared(tmp_path: Path, says: Says) -> None:
    """The second config is twice as fast, on another CPU; of the third nothing is known."""

    def ran(rate: float, **host: Any) -> dict[str, Any]:
        return {"epochs": [epoch(rate), epoch(rate)], "host": host}

    results = results_of(
        tmp_path,
        ran(1000.0, processor="Xeon", cores=8),
        ran(2000.0, processor="EPYC", cores=64, accelerators=["Tesla T4", "Tesla T4"]),
        ran(900.0, cores=8),
        ran(800.0, processor="Xeon", cores=4),
    )
    says(results.remarks[0])
    assert {config.number: config.examples_per_s for config in results.configs} == {0: 1000, 1: None, 2: 900, 3: None}
    assert {config.status for config in results.configs} == {"completed"}
    assert results.decision.config == 0


def test_an_accuracy_that_is_no_number_is_none_to_a_sweep(tmp_path: Path) -> None:
    runs = [{"epochs": [epoch(val_accuracy=accuracy)]} for accuracy in ("NaN", 0.5)]
    measures = {config.number: config.measures for config in results_of(tmp_path, *runs).configs}
    assert measures == {0: {}, 1: {"val_accuracy": 0.5}}


def test_the_jobs_that_a_sweep_has_left_are_told_with_the_command_that_runs_them(tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, "load.prefetch=0,1,2,3")
    again = f"go on with: etlrun -m sweep.resume={ledger.folder}"
    known = {"overrides": [], "epochs": [epoch(), epoch()]}
    ends = {"0": "completed", "1": "running", "2": "interrupted", "3": "failed"}

    def remarks(*names: str) -> tuple[str, ...]:
        for name in names:
            (ledger.folder / name).mkdir(exist_ok=True)
            (ledger.folder / name / "summary.json").write_text(json.dumps({**known, "status": ends[name]}))
        results = present(collect(ledger.folder))
        notes = [line for line in RENDER["text"](report.of_sweep(results)).splitlines() if line.startswith("note")]
        assert notes == [f"note      {remark}" for remark in results.remarks]
        return results.remarks

    assert remarks("0") == (f"3 of 4 jobs have not ended; {again}",)
    assert remarks("1", "2", "3") == (f"2 of 4 jobs have not ended; {again}",)
    ends |= {"1": "completed", "2": "failed"}
    assert remarks("1") == (f"1 of 4 jobs has not ended; {again}",)
    assert remarks("2") == ()
