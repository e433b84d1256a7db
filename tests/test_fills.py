"""Caches on disk that the runs of a sweep share: filled by jobs of their own, so that no result rests on an order."""

import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.config import grid
from etlrun.config.grid import Job
from etlrun.config.request import Request
from etlrun.record.outcome import Outcome, outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import Summary
from etlrun.results.report import collect, columns_of, of_ledger
from etlrun.results.results import Results
from etlrun.run import run as running
from etlrun.stages import STAGES
from etlrun.stages.image import Decode
from etlrun.sweep.ledger import Ledger, RunKey, configs_of
from etlrun.sweep.runs import unfinished
from tests.configs import composed
from tests.present import present
from tests.runs import emulated, summary_of
from tests.sweeps import REQUEST, Sweep, ended, results_of, table

EPOCHS, EXAMPLES = 3, 1000
READ = ["read"] * EPOCHS


@cache
def found_of(*words: str) -> grid.Grid:
    return grid.of(Request(overrides=list(words), multirun=True), STAGES)


def ledger_of(*words: str, jobs: Sequence[Job] | None = None, folder: Path = Path("sweep")) -> Ledger:
    """Of a sweep that isn't written."""
    found = found_of(*words)
    with_numbers = [*configs_of(found.jobs if jobs is None else jobs)]
    return Ledger(folder, found.sweep, with_numbers, REQUEST)


@pytest.mark.parametrize(
    ("words", "fills"),
    [
        (["cache=none,memory", "load.prefetch=0,1"], 0),
        (["cache=none,memory,disk", "load.prefetch=0,1"], 1),
        (["cache=disk", "cache.at=source,transformed", "load.prefetch=0,1"], 2),
        (["cache=disk", "cache.at=transformed", "cache.codec=raw,jpeg90", "transform.num_parallel_calls=1,2"], 2),
        (["cache=disk", "trainer.seed=0,1", "load.prefetch=0,1"], 1),
        (["cache=disk", "trainer.seed=0,1", "extract.shuffle_files=true"], 2),
        (["cache=disk", "cache.at=features", "model.trainable=false", "trainer.learning_rate=1e-3,1e-2"], 1),
        (["cache=disk", "load.prefetch=0,1", "sweep.repeats=3", "sweep.vary=[seed]"], 1),
        (["cache=disk", "extract.shuffle_files=true", "sweep.repeats=3", "sweep.vary=[seed]"], 6),
    ],
)  # fmt: skip
def test_each_cache_that_runs_share_is_filled_once_and_before_them(words: list[str], fills: int) -> None:
    ledger = ledger_of("dataset=tfds", "dataset.name=mnist", *words)
    runs = ledger.runs
    assert [bool(run.fills) for run in runs] == [True] * fills + [False] * (len(runs) - fills)
    assert {ledger.caches_of(run) for run in runs if not run.fills} - {""} == {run.fills for run in runs[:fills]}


def test_who_fills_a_cache_does_not_depend_on_the_order_of_the_grid() -> None:
    words = ("cache=disk", "transform.num_parallel_calls=1,2,autotune")
    jobs = found_of(*words).jobs
    fillers = set()
    for order in (jobs, jobs[::-1], [jobs[1], jobs[2], jobs[0]]):
        ledger = ledger_of(*words, jobs=order)
        (fill,) = [run for run in ledger.runs if run.fills]
        fillers.add((fill.name, ledger.configs[fill.config].identity))
    assert len(fillers) == 1


class Planted:
    """A machine on which each config has its speed, and a cache is slow to whoever fills it, in later epochs, too."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger, self.seed, self.random, self.there = ledger, seed, np.random.default_rng(), set[str]()
        identities = sorted(config.identity for config in ledger.configs)
        self.rank = np.random.default_rng(seed).permutation(identities).tolist()

    def of(self, run: RunKey, noise: float = 0.002) -> Outcome:
        config = self.ledger.configs[run.config]
        cached = config.values["cache"]["name"] != "none"
        rate = (1500.0 if cached else 1000.0) * 1.07 ** self.rank.index(config.identity)
        fill_s = np.random.default_rng([self.seed, int(config.identity, 16)]).uniform(0.5, 1.5)
        rate *= 1 + self.random.uniform(-noise, noise)
        key = self.ledger.caches_of(run) or run.fills
        if run.fills:
            self.there.add(key)
            held = {"key": key, "passes": ["filled"], "filled_s": fill_s, "is_filled_ahead": True}
            return self._outcome([], held, only_fills=True)
        fills = cached and key not in self.there
        passes = (["read"] if not fills else ["filled"]) + ["read"] * (EPOCHS - 1) if key else []
        self.there |= {key} if key else set()
        first = EXAMPLES / (EXAMPLES / rate + fill_s) if fills else rate
        slowed = 0.8 if fills and key else 1.0
        return self._outcome([first, *[slowed * rate] * (EPOCHS - 1)], {"key": key or None, "passes": passes})

    def _outcome(self, rates: Sequence[float], held: dict[str, Any], *, only_fills: bool = False) -> Outcome:
        epochs = [{"examples": EXAMPLES, "examples_per_s": rate, "wall_s": EXAMPLES / rate} for rate in rates]
        known = {"status": "completed", "overrides": [], "only_fills": only_fills, "epochs": epochs}
        caches = {"target": "cache", "pipelines": {"train": held}}
        return outcome(Summary.model_validate({**known, "cache": caches}))

    def has_one_best(self) -> bool:
        outcomes = {run: self.of(run, noise=0.0) for run in self.ledger.runs}
        best, second, *_ = [config.overall_examples_per_s or 0.0 for config in of_ledger(self.ledger, outcomes).configs]
        return best > 1.03 * second


def decided(ledger: Ledger, seed: int, *, fills: bool = True) -> frozenset[str]:
    machine = Planted(ledger, seed)
    outcomes = {run: machine.of(run) for run in ledger.runs if fills or not run.fills}
    if not fills:  # as if whoever comes first were to fill the cache
        outcomes = {run: dataclasses.replace(of, has_filled=False) for run, of in outcomes.items()}
    return frozenset(of_ledger(ledger, outcomes).decision.overrides)


KINDS = {
    "memory": ("cache=none,memory",),
    "disk": ("cache=none,disk",),
    "features": ("cache=none,disk", "cache.at=features", "model.trainable=false"),
    "jpeg": ("cache=none,disk", "cache.codec=jpeg90", "cache.at=transformed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_does_not_depend_on_the_order_of_the_jobs(kind: str) -> None:
    """In 50 planted sweeps of each kind, some of them repeated, each in three orders of its configs."""
    flipped = 0
    for seed in range(50):
        words = (*KINDS[kind], "load.prefetch=0,1,2", f"sweep.repeats={1 if seed % 2 else 3}")
        jobs = [*found_of(*words).jobs]
        np.random.default_rng(seed).shuffle(jobs)
        orders = [ledger_of(*words, jobs=order) for order in (jobs, jobs[::-1], [*jobs[2:], *jobs[:2]])]
        planted = next(of for of in range(100 * seed, 100 * seed + 100) if Planted(orders[0], of).has_one_best())
        decisions = {decided(ledger, planted) for ledger in orders}
        assert len(decisions) == 1, (planted, decisions)
        flipped += len({decided(ledger, planted, fills=False) for ledger in orders}) > 1
    assert flipped > 0 or kind == "memory"  # it is the jobs that fill caches which make it so


def summaries(ledger: Ledger, rates: dict[str, tuple[float, float]]) -> Results:
    """Of runs with a throughput, whose cache took so long to fill by a pass of its own."""

    def of(run: RunKey) -> Outcome:
        rate, fill_s = rates["fill" if run.fills else run.name]
        key = ledger.caches_of(run) or run.fills
        filled = {"passes": ["filled"], "filled_s": fill_s} if run.fills else {"passes": ["read"]}
        held = {"key": key or None, **filled}
        each = {"examples": EXAMPLES, "examples_per_s": rate, "wall_s": EXAMPLES / rate}
        epochs = [] if run.fills else [each] * EPOCHS
        known = {"status": "completed", "overrides": [], "only_fills": bool(run.fills), "epochs": epochs}
        return outcome(Summary.model_validate({**known, "cache": {"pipelines": {"train": held}} if key else None}))

    return of_ledger(ledger, {run: of(run) for run in ledger.runs})


@pytest.mark.parametrize(("fill_s", "best"), [(0.5, 1), (4.0, 0)])
def test_the_fill_of_a_cache_counts_over_the_epochs(fill_s: float, best: int) -> None:
    """Three epochs of a second each, or of half a second with a cache, of which the first one would fill it."""
    rates = {"0": (1000.0, 0.0), "1": (2000.0, 0.0), "fill": (1.0, 0.5 + fill_s)}
    results = summaries(ledger_of("cache=none,disk"), rates)
    assert results.decision.config == best
    found = {row["config"].strip("*"): (row["examples/s"], row["fill s"], row["with fill"]) for row in table(results)}
    with_fill = 3000 / (1.5 + fill_s)
    assert found == {"0": ("1,000.0", "", "1,000.0"), "1": ("2,000.0", f"{fill_s:.2f}", f"{with_fill:,.1f}")}


def test_jobs_of_a_sweep_read_the_cache_that_a_job_has_filled(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = ("cache=disk", f"cache.dir={tmp_path / 'caches'}", "load.prefetch=0,1")
    assert sweep(*disk, "trainer.epochs=3") == 0
    (fill,) = results_of(tmp_path)["fills"]
    folder = tmp_path / "sweep" / fill["name"]
    assert summary_of(folder)["only_fills"]
    assert summary_of(folder)["epochs"] == []
    assert "cache filled in " in capsys.readouterr().out.splitlines()[1]
    for run in results_of(tmp_path)["runs"]:
        assert summary_of(tmp_path / "sweep" / run["name"])["cache"]["pipelines"]["train"]["passes"] == ["read"] * 3
        assert run["outcome"]["created_s"] > fill["outcome"]["created_s"] + fill["outcome"]["wall_s"]
        assert (run["outcome"]["state"], run["outcome"]["first_examples_per_s"]) == ("warm", None)
    runs = {run["config"]: run["outcome"] for run in results_of(tmp_path)["runs"]}
    for config in results_of(tmp_path)["configs"]:
        of = runs[config["number"]]
        reading_s = of["examples"] / of["epochs"] / of["examples_per_s"]
        assert config["fill_s"] == pytest.approx(max(0.0, fill["outcome"]["fill_s"] - reading_s))
    assert results_of(tmp_path)["remarks"] == []


def test_runs_whose_cache_was_not_filled_do_not_run_and_a_resume_repeats_both(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, broken = tmp_path / "sweep", tmp_path / "data"
    disk = ("cache=none,disk", f"cache.dir={tmp_path / 'caches'}", f"dataset.data_dir={broken}")
    assert sweep(*disk) == 1
    fill = next(path for path in folder.iterdir() if path.name.startswith("fill-"))
    assert not (folder / "1" / "events.jsonl").exists()
    reason = f"{fill.name}, the job that fills its cache, has not completed: {summary_of(fill)['error']}"
    assert summary_of(folder / "1")["error"] == reason
    assert not (folder / "attempts" / "1-1").exists()
    capsys.readouterr()
    assert ended([f"sweep.resume={folder}"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"sweep     3 jobs of 2 configs, 3 to run, in {folder}"


def test_a_cache_that_has_gone_is_filled_again_for_the_runs_that_are_left(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, caches = tmp_path / "sweep", tmp_path / "caches"
    assert sweep("cache=disk", f"cache.dir={caches}", "load.prefetch=0,1") == 0
    shutil.rmtree(caches)
    ledger = Ledger.open(folder)
    assert unfinished(ledger, {run: outcome_in(ledger, run) for run in ledger.runs}) == []
    (folder / "1" / "summary.json").write_text(json.dumps(summary_of(folder / "1") | {"status": "interrupted"}))
    capsys.readouterr()
    assert ended([f"sweep.resume={folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"sweep     3 jobs of 2 configs, 2 to run, in {folder}"
    assert summary_of(folder / "1")["cache"]["pipelines"]["train"]["passes"] == ["read"]


def outcome_in(ledger: Ledger, run: RunKey) -> Outcome:
    return outcome(Summary.model_validate_json((ledger.folder_of(run) / "summary.json").read_text()))


def filling(held: dict[str, Any], first_s: float, later_s: float = 0.5, *, startup_s: float = 0.0) -> Outcome:
    """A run of three epochs, of which the first has filled its cache."""
    passes = ((first_s + startup_s, startup_s), (later_s, 0.0), (later_s, 0.0))
    epochs = [{"examples": EXAMPLES, "wall_s": of, "startup_s": startup, "examples_per_s": EXAMPLES / of}
              for of, startup in passes]  # fmt: skip
    cache = {"target": "cache.memory", "pipelines": {"train": held}}
    known = {"status": "completed", "overrides": [], "epochs": epochs, "cache": cache}
    return outcome(Summary.model_validate(known))


@pytest.mark.parametrize(
    ("of", "fill_s"),
    [
        (filling({"filled_s": 2.0}, 0.7, startup_s=1.5), 1.5),  # most of it was read during the start-up
        (filling({}, 2.0, startup_s=1.5), 1.5),
        (filling({"filled_s": 0.4}, 0.5), 0.0),
        (filling({"filled_s": 0.4, "is_filled_ahead": True, "key": "a", "passes": ["filled", *READ]}, 0.5), 0.4),
        (filling({"key": "a", "passes": READ}, 0.5), None),
    ],
)
def test_a_fill_costs_what_a_run_takes_more_than_one_that_reads(of: Outcome, fill_s: float | None) -> None:
    assert of.fill_s == (None if fill_s is None else pytest.approx(fill_s))


def test_a_cache_is_at_most_as_many_times_faster_as_there_are_epochs() -> None:
    """Epochs of 2 s without a cache, and of a thousandth with one, which is filled while the model is compiled."""
    held = {"filled_s": 2.0}
    cached, each_s = filling(held, 0.1, 0.002, startup_s=3.0), 2.0
    of_cache = present(cached.with_fill(cached.fill_s))
    assert of_cache / (EXAMPLES / each_s) <= EPOCHS
    assert of_cache == pytest.approx(EPOCHS * EXAMPLES / (2.0 + 2 * 0.002))


def test_the_ratio_that_is_printed_follows_from_the_seconds_beside_it(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("cache=none,memory,disk", f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=3") == 0
    found = present(collect(tmp_path / "sweep"))
    columns = columns_of(found)
    cells: list[dict[str, Any]] = [{of.name: of.value(config) for of in columns} for config in found.configs]
    examples = {run.config: run.outcome.examples for run in found.runs if run.outcome is not None}
    seconds = {row["config"]: examples[row["config"]] / row["examples/s"] + (row["fill s"] or 0.0) for row in cells}
    gains = {config.number: config.gain.ratio for config in found.configs}
    for row in cells:
        assert row["with fill"] == pytest.approx(examples[row["config"]] / seconds[row["config"]])
        assert gains[row["config"]] == pytest.approx(seconds[0] / seconds[row["config"]])
    assert [row["config"] for row in cells if row["fill s"] == ""] == [0]


@pytest.mark.parametrize("target", ["memory", "disk", "job"])
def test_the_seconds_of_a_fill_are_those_of_its_work(
    target: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """38 pictures, each of which takes 10 ms to decode in one thread, and a graph that takes 1,000 s to build."""
    from benchmarks.planted import planted
    from etlrun.graph import build

    built, late_s = build.Pipeline._filling, [0.0]

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return time.perf_counter() + late_s[0]

    def slow(*arguments: Any) -> Any:
        late_s[0] += 1_000.0
        return built(*arguments)

    if target == "job":
        monkeypatch.setattr(build, "time", Clock)
        monkeypatch.setattr(build.Pipeline, "_filling", slow)
    words = emulated(tiny, "transform.decode.library=tensorflow", "transform.num_parallel_calls=1", "trainer.epochs=3")
    words += [f"cache={'memory' if target == 'memory' else 'disk'}", f"cache.dir={tmp_path / 'caches'}"]
    words += ["dataset.eval_split=null", "model.step_ms=1"]
    Record.create(tmp_path / "run", composed(*words), words)
    Record(tmp_path / "run").update(only_fills=target == "job")
    with planted({Decode: 10.0}):
        assert running.run(tmp_path / "run") == 0
    found = present(outcome_of(tmp_path / "run"))
    assert found.fill_s is not None
    assert 0.3 < found.fill_s < 100
