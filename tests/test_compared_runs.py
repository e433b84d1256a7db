"""Comparisons of runs and sweeps: `etlrun diff` of them, and gains within and beyond the noise of the machine."""

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.config.request import composed as composed_by
from etlrun.measure.gains import Gain, Noise, gains, interval_of_ratio, noise_of
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, FAILED
from etlrun.review.review import matched
from etlrun.review.runs import compare_runs, measured, qualities
from etlrun.review.sides import Variant
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger
from tests.configs import composed, refusal_of_diff
from tests.golden import Says
from tests.made import REQUEST, sweep
from tests.repository import Repository
from tests.runs import emulated, finish_well, start, summary_of
from tests.tables import words_of

approx: Any = pytest.approx
STILL = Noise(median=0.0, largest=0.0, pairs=5)
BASE = dict.fromkeys(range(5), 100.0)


def ratios(*values: float) -> dict[int, float]:
    """Rates of one config whose rounds are these times the baseline's."""
    return {turn: 100.0 * value for turn, value in enumerate(values)}


def test_the_gain_is_the_median_of_the_rounds_with_its_interval() -> None:
    gain = gains({1: ratios(1.28, 1.30, 1.32, 1.31, 1.29)}, BASE, STILL)[1]
    assert gain.ratio == approx(1.30)
    assert gain.low is not None
    assert gain.high is not None
    assert 1.27 < gain.low < 1.30 < gain.high < 1.33
    assert (gain.call, gain.rounds) == ("better", 5)


@pytest.mark.parametrize(
    ("values", "call"),
    [
        ((1.1, 1.12, 1.09, 1.1, 1.11), "better"),
        ((0.9, 0.91, 0.89, 0.9, 0.9), "worse"),
        ((1.1, 0.92, 1.01, 0.99, 1.0), "tied"),
        ((1.0, 1.0, 1.0, 1.0, 1.0), "tied"),
    ],
)
def test_a_config_is_called_by_its_interval(values: tuple[float, ...], call: str) -> None:
    assert gains({1: ratios(*values)}, BASE, STILL)[1].call == call


def test_a_gain_within_the_noise_of_the_machine_is_a_tie() -> None:
    sure = ratios(1.05, 1.051, 1.049, 1.05, 1.05)
    assert gains({1: sure}, BASE, STILL)[1].call == "better"
    assert gains({1: sure}, BASE, Noise(median=0.06, largest=0.2, pairs=5))[1].call == "tied"


def test_a_drift_that_all_runs_of_a_round_share_is_no_noise() -> None:
    drifting = {turn: 100.0 * 0.7**turn for turn in range(5)}
    gain = gains({1: {turn: rate * 1.1 for turn, rate in drifting.items()}}, drifting, STILL)[1]
    assert gain == Gain(ratio=approx(1.1), low=approx(1.1), high=approx(1.1), call="better", rounds=5)


def test_the_noise_of_other_configs_counts_for_one_that_seems_still() -> None:
    alone = gains({1: ratios(1.1, 1.1, 1.1)}, BASE, STILL)[1]
    beside = gains({1: ratios(1.1, 1.1, 1.1), 2: ratios(0.7, 1.0, 1.4), 3: ratios(0.8, 1.1, 1.5)}, BASE, STILL)[1]
    assert (alone.call, beside.call) == ("better", "tied")


@pytest.mark.parametrize(
    ("of", "ratio", "rounds"), [({}, None, 0), ({0: 130.0}, 1.3, 1), ({0: 120.0, 4: 130.0}, math.sqrt(1.56), 2)]
)
def test_fewer_than_three_rounds_tell_nothing(of: dict[int, float], ratio: float | None, rounds: int) -> None:
    expected = None if ratio is None else approx(ratio)
    assert gains({1: of}, BASE, STILL)[1] == Gain(ratio=expected, low=None, high=None, call="untold", rounds=rounds)


def test_rounds_in_which_the_reference_is_missing_do_not_count() -> None:
    reference = {0: 100.0, 2: 100.0, 3: 100.0}
    assert gains({1: ratios(9.0, 9.0, 1.1, 1.1, 9.0)}, reference, STILL)[1].rounds == 3


def test_noise_is_what_pairs_differ_by() -> None:
    assert noise_of([(100.0, 110.0), (110.0, 100.0), (100.0, 100.0)]) == Noise(
        median=approx(0.1), largest=approx(0.1), pairs=3
    )
    assert noise_of([]) == Noise(median=None, largest=None, pairs=0)


@pytest.mark.parametrize("rounds", [3, 5, 7])
def test_of_ties_at_most_one_in_twenty_is_called_better_and_large_gains_are_found(rounds: int) -> None:
    """On noise with outliers and drift; what real machines do is measured in benchmarks/results/sweeps.md."""
    random, found = np.random.default_rng(rounds), {"tie": 0, "gain": 0}
    for _ in range(300):
        outliers = (random.random((5, rounds)) < 0.05) * random.uniform(0.1, 0.5, (5, rounds))
        logs = random.normal(0, 0.05, (5, rounds)) - outliers + np.cumsum(random.normal(0, 0.03, rounds))
        logs[3] += math.log(1.3)
        rates = {number: dict(enumerate(np.exp(log).tolist())) for number, log in enumerate(logs)}
        baseline = {turn: math.sqrt(rates[0][turn] * rates[1][turn]) for turn in range(rounds)}
        noise = noise_of([(rates[0][turn], rates[1][turn]) for turn in range(rounds)])
        told = gains({2: rates[2], 3: rates[3], 4: rates[4]}, baseline, noise)
        found["tie"] += told[2].call == "better"
        found["gain"] += told[3].call == "better"
    assert found["tie"] <= 0.05 * 300
    assert found["gain"] >= (0.9 if rounds > 3 else 0.8) * 300


def simulated(random: np.random.Generator, spreads: list[float], rounds: int) -> dict[int, Gain]:
    """Gains of equal configs; the first of `spreads` is the baseline's, which runs twice in each round."""
    logs = [random.normal(0, spread, rounds) for spread in [spreads[0], *spreads]]
    rates = [dict(enumerate(np.exp(log).tolist())) for log in logs]
    baseline = {turn: math.sqrt(rates[0][turn] * rates[1][turn]) for turn in range(rounds)}
    noise = noise_of([(rates[0][turn], rates[1][turn]) for turn in range(rounds)])
    return gains(dict(enumerate(rates[2:])), baseline, noise)


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("spreads", [[0.01, 0.01, 0.01, 0.08], [0.03, 0.03], [0.02, 0.02, 0.02, 0.08, 0.08, 0.08]])
def test_an_interval_holds_the_truth_however_unlike_the_noise_of_the_configs(spreads: list[float], rounds: int) -> None:
    random, sweeps = np.random.default_rng(rounds), 400
    held = np.zeros(len(spreads) - 1)
    for _ in range(sweeps):
        told = simulated(random, spreads, rounds)
        held += [(gain.low or 0.0) <= 1.0 <= (gain.high or 0.0) for gain in told.values()]
    # Three rounds that agree by chance look like those of a quiet config.
    assert held.min() >= (0.93 if rounds > 3 else 0.9) * sweeps


@pytest.mark.parametrize("rounds", [3, 5])
@pytest.mark.parametrize("configs", [20, 40])
def test_in_one_sweep_of_twenty_at_most_some_tie_is_called_better_however_many_configs(
    configs: int, rounds: int
) -> None:
    random, sweeps = np.random.default_rng(configs), 200
    found = sum(
        any(gain.call == "better" for gain in simulated(random, [0.03] * configs, rounds).values())
        for _ in range(sweeps)
    )
    assert found <= 0.05 * sweeps


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (2, 8), (5, 5)])
def test_the_interval_of_unpaired_runs_holds_the_true_ratio(runs: tuple[int, int]) -> None:
    random, sweeps = np.random.default_rng(0), 600
    held = 0
    for _ in range(sweeps):
        old, new = (np.exp(random.normal(0, 0.05, count)).tolist() for count in runs)
        low, high = interval_of_ratio(old, new)
        held += low <= 1.0 <= high
    assert held >= 0.93 * sweeps


def test_rounds_that_agree_by_chance_are_believed_no_more_than_those_of_the_others() -> None:
    told = gains({1: ratios(1.1, 1.1, 1.1), 2: ratios(1.0, 1.2, 1.1), 3: ratios(1.15, 1.05, 1.1)}, BASE, STILL)
    assert told[1].call == "tied"


def test_a_ratio_has_an_interval_where_both_sides_have_a_spread(says: Says) -> None:
    sides: list[tuple[tuple[float, ...], tuple[float, ...]]]
    sides = [((100.0, 102.0, 98.0, 101.0), (150.0, 153.0, 147.0, 151.5)), ((0.5,) * 4, (0.5,) * 4)]
    sides += [((100.0,), (90.0,)), ((1.0, 2.0), (0.0, 1.0)), ((0.0,) * 4, (0.0,) * 4)]
    says([measured("examples/s", old, new).told() for old, new in sides])


def test_losses_are_compared_by_seed(says: Says) -> None:
    for count in (4, 2):
        old = [(seed, {"val_loss": 3.0 + seed, "loss": 1.0}) for seed in range(count)]
        new = [(seed, {"val_loss": 2.6 + 0.9 * seed}) for seed in range(count)]
        says([of.told() for of in qualities(old, new)])
        says([of.told() for of in qualities(old, [(seed + 9, of) for seed, of in new])])


HOST = {"processor": "AMD EPYC", "cores": 2}
VERSIONS = {"python": "3.11.7", "keras": "3.14.0"}


def a_run(folder: Path, *words: str, rate: float = 100.0, **values: Any) -> Path:
    """A completed run of two epochs, of which the second one has this rate and half of this loss."""
    record = Record.create(folder, composed(*words), list(words))
    return in_runs(record, rate, **values)


def in_runs(record: Record, rate: float, **values: Any) -> Path:
    rates, losses = (rate / 2, rate), (rate / 50, rate / 100)
    epochs = [
        {"examples": int(10 * of), "wall_s": 10.0, "examples_per_s": of, "loss": loss, "val_loss": loss}
        for of, loss in zip(rates, losses, strict=True)
    ]
    record.update(**{"status": COMPLETED, "epochs": epochs, "host": HOST, "versions": VERSIONS, "au": 0.5, **values})
    return record.folder


def test_two_runs_are_compared_by_their_plans_and_by_what_they_measured(told: Any, tmp_path: Path, says: Says) -> None:
    read = {"name": "pets", "examples": {"train": 8, "validation": 2}}
    old = a_run(
        tmp_path / "a", "load.prefetch=1", dataset={**read, "digest": {"train": "aa", "validation": "bb"}}, in_flight=1
    )
    new = a_run(
        tmp_path / "b",
        "load.prefetch=2",
        rate=150.0,
        host={**HOST, "accelerators": ["NVIDIA H100"]},
        versions={"python": "3.11.7", "keras": "3.15.1", "jax": "0.10.2"},
        dataset={**read, "digest": {"train": "aa", "validation": "cc"}},
        au=None,
        status=FAILED,
        in_flight=2,
    )
    says(told(str(old), str(new)))


def test_runs_of_one_plan_are_compared_though_nothing_changes(told: Any, tmp_path: Path, says: Says) -> None:
    of = {"examples": 10, "wall_s": 1.0}
    epochs = [{"epoch": number, "digest": digest, **of} for number, digest in ((1, "aa"), (2, "bb"))]
    old = a_run(tmp_path / "a", epochs=epochs)
    same = a_run(tmp_path / "b", epochs=epochs[:1])
    other = a_run(tmp_path / "c", epochs=[epochs[0], {**epochs[1], "digest": "cc"}])
    title, *lines = told(str(old), str(same), "--exit-code").splitlines()
    assert title == f"{old} -> {same}"
    says(lines)
    assert "  read other examples from epoch 2 on, by their digests" in told(str(old), str(other)).splitlines()
    document = json.loads(told(str(old), str(other), "--format", "json"))
    assert document["experiments"][0]["ran"]["read"] == ["read other examples from epoch 2 on, by their digests"]


def test_a_run_alone_is_compared_with_what_its_overrides_compose_now(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = Repository.small(tmp_path)
    repository.write("whole.yaml", "defaults: [config, _self_]\nload: {prefetch: 2}\n")
    words, named = ["experiment=small", "load.batch_size=8"], {"config_dir": "mine", "config_name": "whole"}
    config = composed_by(Request(overrides=words, **named))  # type: ignore[arg-type]
    Record.create(Path("run"), {key: of for key, of in config.items() if key not in ("sweep", "tune")}, words, **named)
    title = "run -> the config of its overrides now\n"
    assert told("run", "--exit-code") == f"{title}no difference\n"
    repository.replace("transform/small_48.yaml", "[48, 48]", "[40, 40]")
    repository.replace("whole.yaml", "prefetch: 2", "prefetch: 3")
    says(told("run", "--exit-code", status=1))
    Path("run/summary.json").unlink()
    says(refusal_of_diff("run"))


def swept(folder: Path, *words: str, rates: dict[str, float], **values: Any) -> Path:
    """A sweep whose first runs are completed, each with its rate; the others have not begun."""
    found = grid.of(Request(overrides=[*words], multirun=True), STAGES)
    ledger = Ledger.create(folder, found.sweep, found.jobs, {**REQUEST, "overrides": [*words]})
    for run in ledger.runs:
        if run.name in rates:
            in_runs(Record(ledger.start(run)), rates[run.name], **values)
    return folder


def test_a_run_beside_a_revision_is_compared_with_what_its_overrides_compose_there(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(repository.folder)
    words = ["experiment=small", "load.prefetch=1"]
    config = composed_by(Request(overrides=words, config_dir="mine"))
    run = str(in_runs(Record.create(tmp_path / "run", config, words, config_dir="mine"), 100.0))
    own, same = (
        ("--config-dir", "mine"),
        f"note: the commit of {run}: unknown: an older version has run it\nno difference\n",
    )
    assert told(run, "main", *own) == f"{run} -> main\n{same}"
    assert told("main", run, *own) == same
    repository.replace("experiment/small.yaml", "trainer: {epochs: 2}", "trainer: {epochs: 2}\nload: {prefetch: 2}")
    repository.replace("experiment/small.yaml", "trainer: {epochs: 2}", "trainer: {epochs: 3}")
    repository.commit("Longer")
    assert told(run, "main", *own).splitlines()[2:] == ["changes the training", "  trainer.epochs  2 -> 3  training"]
    assert "  transform.resize.size  [48, 48] -> [64, 64]" in told(run, "main", "--experiment", "other", *own)
    assert told("main", "main", "--experiment", "", *own) == told("main", "main", *own)


def test_jobs_of_two_sweeps_are_matched_by_what_was_swept(told: Any, tmp_path: Path, says: Says) -> None:
    old = swept(tmp_path / "a", "load.prefetch=0,1,2", "model=emulated", rates={"0": 100.0, "1": 100.0})
    new = swept(
        tmp_path / "b", "cache=none", "load.prefetch=1,0,3", "load.batch_size=32", "model=emulated", rates={"1": 150.0}
    )
    says(told(str(old), str(new)))


def test_repeated_jobs_are_compared_with_intervals(told: Any, tmp_path: Path, says: Says) -> None:
    repeats = ("sweep.repeats=3", "sweep.vary=[seed]", "model=emulated")
    rates = {"0": 100.0, "0.1": 100.0, "0.2": 102.0, "0.3": 102.0, "0.4": 98.0, "0.5": 98.0}
    old = swept(tmp_path / "a", "load.prefetch=0,1", *repeats, rates=rates)
    new = swept(tmp_path / "b", "load.prefetch=0,1", *repeats, rates={name: 1.5 * rate for name, rate in rates.items()})
    lines = told(str(old), str(new)).splitlines()
    says(lines[:7])
    assert lines[7] == "load.prefetch=1: changes nothing"


@pytest.mark.parametrize(
    ("how", "part"),
    [(("sweep.folds=3",), 0.5), (("sweep.folds=3", "sweep.vary=[seed]"), 0.5),
     (("sweep.vary=[seed,split]", "sweep.repeats=3"), 1.0)],
)  # fmt: skip
def test_rounds_with_splits_of_their_own_are_compared_in_pairs(
    told: Any, tmp_path: Path, how: tuple[str, ...], part: float
) -> None:
    words = ("load.prefetch=0,1", "model=emulated", "dataset.split='train[:80%]'", "dataset.eval_split='train[80%:]'")
    read = {"dataset": {"name": "pets", "examples": {"train": 200, "validation": 100}}}
    old = swept(tmp_path / "a", *words, *how, rates={"0": 100.0, "0.1": 130.0, "0.2": 120.0}, **read)
    new = swept(tmp_path / "b", *words, *how, rates={"0": 110.0, "0.1": 144.0, "0.2": 132.0}, **read)
    reach = 4.302653 * 0.02 * math.sqrt(1 / 3 + part * 100 / 200)
    interval = f"95% interval {0.12 - reach:+.4g} to {0.12 + reach:+.4g}, 3 rounds"
    assert f"  measured val_loss: 1.2 (3 runs) -> 1.32 (3 runs), +0.12 ({interval})" in told(str(old), str(new))
    other = swept(tmp_path / "c", *words, "sweep.folds=4", rates={"0": 110.0, "0.2": 144.0}, **read)
    assert "val_loss: 1.2 (3 runs) -> 1.27 (2 runs), no run of one round on both sides" in told(str(old), str(other))


def test_a_sweep_is_compared_with_another_one_alone(tmp_path: Path, says: Says) -> None:
    old = sweep(tmp_path / "a").folder
    for words in ((str(old),), (str(old), ""), ("", str(old)), (str(old), "a-revision-without-configs")):
        says(refusal_of_diff(*words))


def test_a_folder_of_runs_is_neither_a_run_nor_a_sweep(tmp_path: Path, says: Says) -> None:
    a_run(tmp_path / "a")
    says(refusal_of_diff(str(tmp_path), ""))


def test_what_can_not_be_read_of_a_run_is_named(told: Any, tmp_path: Path, says: Says) -> None:
    run, other = a_run(tmp_path / "a", "load.prefetch=1"), a_run(tmp_path / "b", "load.prefetch=1")
    (run / "summary.json").write_text("{")
    assert told(str(run), str(other)).splitlines()[1:] == ["changes nothing", "  status: unknown -> completed"]
    (run / "config.yaml").write_text("[1]")
    says(refusal_of_diff(str(run), str(other)))
    (other / "config.yaml").write_text("load: {prefetch: 1}")
    assert (
        refusal_of_diff(str(other)).splitlines()[0].startswith(f"{other}: dataset: found nothing; expected a mapping")
    )
    old = swept(tmp_path / "c", "load.prefetch=0", "model=emulated", rates={})
    (old / "configs.jsonl").unlink()
    assert refusal_of_diff(str(old), str(old)).startswith(f"{old}: found no sweep (FileNotFoundError: ")


def test_the_overrides_of_a_run_that_compose_nothing_now_are_faults(told: Any, tmp_path: Path, says: Says) -> None:
    run = a_run(tmp_path / "a", "load.prefetch=1")
    record = Record(run)
    record.update(overrides=["load.prefetch=-1"])
    says(refusal_of_diff(str(run)))
    record.update(overrides=[], config_dir=str(tmp_path / "gone"))
    assert refusal_of_diff(str(run)).startswith(f"{run} now: --config-dir: found no folder {tmp_path}/gone;")
    (tmp_path / "mine").mkdir()
    says(told(str(run), "--config-dir", str(tmp_path / "mine")).splitlines()[2])


def test_the_columns_of_a_run_are_those_of_its_folder(table: Path, tmp_path: Path, says: Says) -> None:
    run = a_run(tmp_path / "a", *words_of(table))
    (run / "plan.json").write_text("{}")
    says(refusal_of_diff(str(run)))


def test_losses_that_are_not_finite_and_odd_names_are_told(told: Any, tmp_path: Path) -> None:
    lost = [{"examples": 10, "wall_s": 1.0, "loss": "NaN", "val_loss": "Infinity"}]
    kept = [{"examples": 10, "wall_s": 1.0, "loss": "NaN", "val_loss": 0.5}]
    old, new = a_run(tmp_path / "a", epochs=lost), a_run(tmp_path / "b", epochs=kept, versions={"a\x1b[31m": "1"})
    lines = told(str(old), str(new)).splitlines()
    assert lines[2:4] == ["  loss: not finite -> not finite", "  val_loss: not finite -> 0.5"]
    assert "  packages: python 3.11.7 -> (none), keras 3.14.0 -> (none), a\\x1b[31m (none) -> 1" in lines
    json.loads(told(str(old), str(new), "--format", "json"), parse_constant=pytest.fail)


@pytest.mark.slow
def test_a_run_keeps_the_name_of_its_config(tiny: Path, tmp_path: Path) -> None:
    """And its page and one that resumes it have it, too."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/whole.yaml").write_text("defaults: [config, _self_]\nload: {prefetch: 3}\n")
    words = emulated(tiny, "dataset.eval_split=null", "load.batch_size=8")
    named = ["--config-dir", "own", "--config-name", "whole"]
    commands = ([*named, *words, "hydra.run.dir=a"], ["trainer.resume=a", "trainer.epochs=2", "hydra.run.dir=b"])
    for command in (*commands, ["diff", "a"], ["diff", "b"]):
        out, _ = finish_well(start(command, tmp_path))
        assert "diff" not in command or out.splitlines()[1:] == ["no difference"]
    assert [summary_of(tmp_path / name)["config_name"] for name in "ab"] == ["whole", "whole"]
    again = shlex.join(["python", "-m", "etlrun", "--config-dir", str(tmp_path / "own"), "--config-name", "whole"])
    assert f"{again} " in (tmp_path / "a/report.html").read_text()


def names(old: list[str], new: list[str]) -> list[tuple[str, bool, bool]]:
    """The jobs with these overrides, and whether the old and the new sweep has each."""
    sides = [[Variant(config=None, plan=None, overrides=tuple(of.split())) for of in words] for words in (old, new)]
    return [(name, was is not None, now is not None) for name, was, now in matched(*sides)]


def test_jobs_are_matched_by_the_keys_that_either_sweep_has_several_values_of(says: Says) -> None:
    assert names(["a=1 c=5", "a=2 c=5"], ["c=6 a=2", "c=6 a=1"]) == [("a=1", True, True), ("a=2", True, True)]
    assert names(["a=1 b=1"], ["a=1 b=1", "a=1 b=2"]) == [("b=1", True, True), ("b=2", False, True)]
    says(names(["a=1", "a=2"], ["a=1 b=1", "a=1 b=2"]))
    says(names(["+a=1", "a=1 +a=2"], ["++a=2", "~a"]))
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
    (name,) = (run.name for run in Ledger.open(filled).runs if run.fills)
    a_run(filled / name, rate=7.0)
    assert told(str(old), str(filled)).splitlines().count("  measured examples/s: 100 -> 100, 1.00x") == 1
    assert told(str(old), str(filled)).splitlines()[1] == "load.prefetch=0, load.prefetch=1: changes nothing"
