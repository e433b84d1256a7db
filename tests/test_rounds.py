"""Sweeps whose rounds have splits of their own: what each reads, how they are compared, and what is refused."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.resampled import PAIRS, measured, settings
from etlrun.cli.launch import multirun
from etlrun.config import grid
from etlrun.config.request import Request, changed
from etlrun.config.rounds import cut_of, own_of, unfit_rounds
from etlrun.measure.gains import OF_FOLDS, OF_WINDOWS, interval_of_mean, leads
from etlrun.record.outcome import outcome_of
from etlrun.results.decision import comparisons_of, deciding
from etlrun.results.results import Results, Rounds
from etlrun.sources.base import open_source
from etlrun.sources.rows.source import RowsSource
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.preview import preview
from etlrun.system.errors import ConfigError, EtlrunError
from tests.configs import plan_of
from tests.golden import Says
from tests.runs import emulated, small
from tests.sweeps import collected, ended, sweep_of
from tests.tables import NUM_ROWS, houses, words_of

FOLDS = "sweep.folds=4"
WINDOWS = ("sweep.vary=[split]", "sweep.repeats=4")
RATES = "trainer.learning_rate=0.1,0.01"


def splits_of(sweep: Sweep, **dataset: Any) -> list[tuple[str, str]]:
    given = {"split": "train[:80%]", "eval_split": "train[80%:]", **dataset}
    own = [own_of(sweep, {"dataset": given, "trainer": {"seed": 0}}, turn, 0) for turn in range(sweep.rounds)]
    return [(of["dataset.split"], of["dataset.eval_split"]) for of in own]


def test_each_fold_validates_once_and_the_others_train() -> None:
    assert splits_of(settings(folds=3)) == [
        ("train[33%:]", "train[:33%]"),
        ("train[:33%]+train[67%:]", "train[33%:67%]"),
        ("train[:67%]", "train[67%:]"),
    ]


def test_by_time_a_fold_trains_on_earlier_rows_alone() -> None:
    assert splits_of(settings(folds=3), split_by={"time": "sold"}) == [
        ("train[:25%]", "train[25%:50%]"),
        ("train[:50%]", "train[50%:75%]"),
        ("train[:75%]", "train[75%:]"),
    ]


def test_windows_begin_with_the_validation_of_the_config_and_wrap_around() -> None:
    found = splits_of(settings(repeats=100, vary=("split",)))
    assert found[:4] == [
        ("train[:80%]", "train[80%:]"),
        ("train[:41%]+train[61%:]", "train[41%:61%]"),
        ("train[:2%]+train[22%:]", "train[2%:22%]"),
        ("train[:63%]+train[83%:]", "train[63%:83%]"),
    ]
    assert ("train[4%:84%]", "train[84%:]+train[:4%]") in found
    assert len({*found}) == 100


@pytest.mark.parametrize(
    ("split", "validation", "name", "size", "held_out"),
    [
        ("train[:80%]", "train[80%:]", "train", 20, ""),
        ("train[20%:]", "train[0:20%]", "train", 20, ""),
        ("train[:-30%]", "train[-30%:]", "train", 30, ""),
        ("train[:40%]+train[60%:]", "train[40%:60%]", "train", 20, ""),
        ("train[:900]", "train[900:]", "train", 0, ""),
        ("train", "test", "train", 0, "test"),
        ("train", None, "train", 0, ""),
        ("train[:100%]", "test[:50%]", "train", 0, "test[:50%]"),
    ],
)
def test_what_is_divided(split: str, validation: str | None, name: str, size: int, held_out: str) -> None:
    cut = cut_of({"split": split, "eval_split": validation})
    assert cut is not None
    assert (cut.name, cut.size, cut.held_out) == (name, size, held_out)


@pytest.mark.parametrize(
    ("split", "validation"),
    [
        ("train[:50%]", "train[80%:]"),
        ("train[:80%]", "test"),
        ("train", "train[80%:]"),
        ("train[:80%]+test", "train[80%:]"),
        ("train[3shard]", "train[:1shard]"),
        ("train[:60%]", "train[40%:]"),
        ("train[:80%]", "train[80%:]+test"),
    ],
)
def test_what_is_no_whole_is_not_divided(split: str, validation: str) -> None:
    assert cut_of({"split": split, "eval_split": validation}) is None


def grid_of(*words: str) -> grid.Grid:
    return grid.of(Request(overrides=[*words], multirun=True), STAGES)


def rows_of(folder: Path, turn: int, *words: str) -> tuple[Any, Any]:
    """Numbers of the rows that train and validate in a round."""
    ledger = sweep_of(folder, *words)
    values, overrides = ledger.frozen(RunKey(0, turn))
    dataset = plan_of(*overrides).spec.dataset
    assert {key: values["dataset"][key] for key in ("split", "eval_split")} == {
        "split": dataset.split, "eval_split": dataset.eval_split,
    }  # fmt: skip
    source = open_source(dataset)
    assert isinstance(source, RowsSource)
    train, validation = (source.split(name or "", "").numbers for name in (dataset.split, dataset.eval_split))
    return train, validation


def values(name: str, rows: Any) -> list[Any]:
    found: list[Any] = houses()[name].take(np.asarray(rows)).to_pylist()
    return found


@pytest.mark.parametrize("how", [(FOLDS,), WINDOWS])
def test_rows_are_all_of_the_table_and_never_in_both(table: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    each = [rows_of(tmp_path / str(turn), turn, *words_of(table, RATES, *how)) for turn in range(4)]
    assert all(sorted([*train, *validation]) == [*range(NUM_ROWS)] for train, validation in each)
    validated = [row for _, validation in each for row in validation]
    assert (sorted(validated) == [*range(NUM_ROWS)]) is (how == (FOLDS,))


@pytest.mark.parametrize("how", [(FOLDS,), WINDOWS])
def test_groups_are_never_in_both(table: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    words = words_of(table, RATES, *how, "dataset.split_by={group: sold}")
    for turn in range(4):
        train, validation = rows_of(tmp_path / str(turn), turn, *words)
        assert not {*values("sold", train)} & {*values("sold", validation)}
        assert len(train) + len(validation) == NUM_ROWS


@pytest.mark.parametrize("how", [(FOLDS,), WINDOWS])
def test_strata_have_their_share_in_each_round(table: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    words = words_of(table, RATES, *how, "dataset.split_by={stratify: rooms}")
    whole = values("rooms", range(NUM_ROWS))
    for turn in range(4):
        _, validation = rows_of(tmp_path / str(turn), turn, *words)
        found = values("rooms", validation)
        for rooms in {*whole}:
            assert abs(found.count(rooms) - whole.count(rooms) * len(found) / NUM_ROWS) <= 1.5


def test_by_time_rows_that_validate_are_later(table: Path, tmp_path: Path) -> None:
    words = words_of(table, RATES, FOLDS, "dataset.split_by={time: sold}")
    for turn in range(4):
        train, validation = rows_of(tmp_path / str(turn), turn, *words)
        assert max(values("sold", train)) < min(values("sold", validation))


def refusal(*words: str) -> str:
    with pytest.raises(EtlrunError) as caught:
        grid_of(*words)
    return str(caught.value)


def test_a_named_set_is_no_part_of_what_is_divided(says: Says) -> None:
    dataset = {"split": "train[:80%]", "eval_split": "train[80%:]"}
    sets = {"hard": "test[:50%]", "2025": {"files": "2025.csv"}}
    assert not [*unfit_rounds(settings(folds=3), {"dataset": {**dataset, "eval_splits": sets}})]
    sets |= {"late": "test+train[90%:]"}
    says([str(of) for of in unfit_rounds(settings(folds=3), {"dataset": {**dataset, "eval_splits": sets}})])


def test_what_can_not_be_divided_is_refused(table: Path, says: Says) -> None:
    by_values = "dataset.split_by={column: rooms, train: [1, 2], validation: [3]}"
    says(
        [
            refusal(*words_of(table, RATES, *WINDOWS, "dataset.split_by={time: sold}")),
            refusal(*words_of(table, RATES, FOLDS, by_values, "dataset.split=train", "dataset.eval_split=validation")),
            refusal(*words_of(table, RATES, FOLDS, "dataset.split='train[:50%]'")),
        ]
    )


def test_fewer_folds_are_advised_where_one_has_no_rows(table: Path, says: Says) -> None:
    (table / "few.csv").write_text("x,y\n" + "".join(f"{number % 5}.25,{number}.5\n" for number in range(12)))
    words = ["experiment=table", f"dataset.files={table / 'few.csv'}", f"dataset.dir={table / 'kept'}"]
    says(refusal(*words, "dataset.target={y: number}", "load.prefetch=0,1", "sweep.folds=20").replace(str(table), ""))


def test_folds_of_a_sweep_are_as_at_its_start(says: Says) -> None:
    sweep = settings(repeats=4, vary=("split",))
    assert changed(sweep, ["sweep.repeats=6", "sweep.vary=[split]"]).repeats == 6
    with pytest.raises(ConfigError) as caught:
        changed(sweep, ["sweep.folds=5", "sweep.vary=[seed]", "sweep.comparisons=20"])
    says(str(caught.value))


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_has_no_folds_and_compares_nothing(says: Says) -> None:
    with pytest.raises(ConfigError) as caught:
        multirun(Request.of(["-m", "hydra/sweeper=optuna", "load.prefetch=choice(0,1)", FOLDS, "sweep.comparisons=20"]))
    says(str(caught.value))


def test_a_fold_without_a_class_is_refused_before_any_run(tmp_path: Path) -> None:
    rows = [f"{number % 7 / 8},{'rare' if number == 0 else 'usual'}" for number in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    words = ["dataset=table", f"dataset.files={tmp_path / 't.csv'}", f"dataset.dir={tmp_path / 'kept'}"]
    found = refusal("experiment=table", *words, "dataset.target={y: class}", "load.prefetch=0,1", FOLDS)
    assert "expected values that train[" in found


def test_the_preview_says_what_each_round_is(tiny: Path, says: Says) -> None:
    words = [*emulated(tiny), "load.prefetch=0,1", FOLDS, "sweep.vary=[seed]"]
    held = [word for word in words if "split" not in word]
    found = preview(grid_of(*held, "dataset.split=train", "dataset.eval_split=test"))
    says([f"{label}  {text}" for part in found.parts for label, text in getattr(part, "lines", [])])
    assert found.json is not None
    rounds = found.json()["configs"][1]["rounds"]
    assert rounds[1] == {
        "dataset.split": "train[:25%]+train[50%:]", "dataset.eval_split": "train[25%:50%]", "trainer.seed": 1,
    }  # fmt: skip


def test_each_fold_has_caches_of_its_own_which_configs_share(tiny: Path, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *emulated(tiny), "cache=disk", "load.prefetch=0,1", FOLDS)
    fills = [run for run in ledger.runs if run.fills]
    assert len(fills) == 4
    for turn in range(4):
        assert ledger.caches_of(RunKey(0, turn)) == ledger.caches_of(RunKey(1, turn))


def test_a_sweep_of_an_older_version_has_seeds(tiny: Path, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *emulated(tiny), "load.prefetch=0,1", "sweep.repeats=3")
    path = ledger.folder / "sweep.json"
    known = json.loads(path.read_text())
    for key in ("folds", "vary", "comparisons"):
        del known["sweep"][key]
    known["sweep"]["vary_seed"] = True
    path.write_text(json.dumps(known))
    read = Ledger.open(ledger.folder)
    assert read.sweep == settings(**{**vars(ledger.sweep), "vary": ("seed",)})
    assert [run.name for run in read.runs] == [run.name for run in ledger.runs]


def results_of(ledger: Ledger, accuracies: list[list[float]]) -> Results:
    """Of runs with these accuracies in each fold, of which those without one have failed."""

    def summary(run: RunKey) -> dict[str, Any]:
        if run.repeat >= len(accuracies[run.config]):
            return {"status": "failed", "error": "it was ended"}
        accuracy = accuracies[run.config][run.repeat]
        epoch = {"epoch": 1, "examples": 100, "examples_per_s": 100.0, "wall_s": 1.0, "accuracy": accuracy, "loss": 0.5}
        epoch |= {"val_accuracy": accuracy, "val_loss": 1 - accuracy}
        digests = {"digest": f"train {run.repeat}", "validation_digest": f"validation {run.repeat}"}
        return {"epochs": [epoch | digests], "dataset": {"examples": {"train": 300, "validation": 100}}}

    return collected(ledger, summary)


def test_folds_are_compared_in_pairs_with_a_corrected_interval(tiny: Path, tmp_path: Path, says: Says) -> None:
    ledger = sweep_of(tmp_path, *small(tiny, RATES), FOLDS)
    base, other = [0.5, 0.7, 0.6, 0.8], [0.61, 0.79, 0.7, 0.91]
    results = results_of(ledger, [base, other])
    known = {config.number: config for config in results.configs}
    quality = known[1].quality["val_accuracy"]
    excess = OF_FOLDS * 100 / 300
    reach = 3.182446 * np.std(other, ddof=1) * np.sqrt(1 / 4 + excess)
    assert (quality.low, quality.high) == pytest.approx((0.7525 - reach, min(0.7525 + reach, 1)))
    apart = [0.11, 0.09, 0.1, 0.11]
    reach = 3.182446 * np.std(apart, ddof=1) * np.sqrt(1 / 4 + excess)
    assert quality.lead is not None
    assert (quality.lead.low, quality.lead.high) == pytest.approx((0.1025 - reach, 0.1025 + reach), rel=1e-5)
    assert (results.decision.recommended, known[1].data) == (1, "same")
    assert known[0].quality["val_accuracy"].runs == 4
    says([results.decision.words, results.decision.same_data, *results.remarks])


def test_after_two_folds_nothing_is_certain(tiny: Path, tmp_path: Path, says: Says) -> None:
    ledger = sweep_of(tmp_path, *small(tiny, RATES), FOLDS)
    results = results_of(ledger, [[0.5, 0.7], [0.6, 0.8]])
    none = results_of(sweep_of(tmp_path / "killed", *small(tiny, RATES), FOLDS), [[0.5], []])
    assert not any(of.decision.is_certain for of in (results, none))
    says([results.decision.words, none.decision.words])


def test_intervals_over_folds_by_time_are_said_to_be_of_no_rows_to_come(table: Path, tmp_path: Path) -> None:
    words = words_of(table, RATES, FOLDS, "dataset.split_by={time: sold}")
    note = "by time, intervals over folds don't hold for rows to come: later rows differ, and training sets grow"
    ledger = sweep_of(tmp_path, *words)
    assert note in results_of(ledger, [[0.5, 0.7, 0.6, 0.8]] * 2).remarks
    lines = [text for part in preview(grid_of(*words)).parts for _, text in getattr(part, "lines", [])]
    assert note in lines


def test_what_is_better_by_naive_intervals_alone_is_tied(tiny: Path, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *small(tiny, RATES), FOLDS)
    base, apart = [0.5, 0.7, 0.6, 0.8], [0.0105, 0.0025, 0.007, 0.005]
    assert leads({1: np.array(apart)}, 0.0, excess=0.0)[1].call == "better"
    results = results_of(ledger, [base, [one + more for one, more in zip(base, apart, strict=True)]])
    lead = next(config for config in results.configs if config.number).quality["val_accuracy"].lead
    assert lead is not None
    assert lead.call == "tied"
    assert results.decision.recommended == 0


def test_data_that_differs_in_one_fold_differs(tiny: Path, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *small(tiny, RATES), FOLDS)

    def summary(run: RunKey) -> dict[str, Any]:
        seen = f"{run.repeat}{' another' * (run == RunKey(1, 2))}"
        epoch = {"epoch": 1, "examples": 100, "examples_per_s": 100.0, "wall_s": 1.0, "loss": 0.5}
        return {"epochs": [epoch | {"digest": seen, "validation_digest": seen}]}

    assert {config.number: config.data for config in collected(ledger, summary).configs} == {0: "same", 1: "differs"}


def test_records_are_compared_within_a_round(tiny: Path, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *small(tiny, RATES), FOLDS)

    def summary(run: RunKey) -> dict[str, Any]:
        epoch = {"epoch": 1, "examples": 100, "examples_per_s": 100.0, "wall_s": 1.0, "loss": 0.5}
        read = f"{run.repeat}{' another' * (run == RunKey(1, 2))}"
        return {"epochs": [epoch], "dataset": {"digest": {"train": read}}}

    found = {config.number: config.data for config in collected(ledger, summary).configs}
    assert found == {0: "", 1: "other records"}


def of_run(folder: Path, key: str) -> Any:
    return json.loads((folder / key / "summary.json").read_text())


@pytest.mark.slow
def test_a_sweep_of_folds_of_a_table_is_killed_and_goes_on(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = words_of(table, RATES, "sweep.folds=3", "measure.digest=true", "model=tabular")
    assert ended([*words, f"hydra.sweep.dir={folder}"]) == 0
    names = [f"{config}{f'.{turn}' * (turn > 0)}" for config in (0, 1) for turn in range(3)]
    digests = {name: outcome_of(folder / name) for name in names}
    seen = {name: of.digests for name, of in digests.items() if of}
    assert len({*seen.values()}) == 3
    assert all(seen[name] == seen[f"1{name[1:]}"] for name in names[:3])
    before = (folder / "1.2" / "config.yaml").read_text()
    (folder / "1.2" / "summary.json").write_text(json.dumps({**of_run(folder, "1.2"), "status": "interrupted"}))
    assert ended([f"sweep.resume={folder}"]) == 0
    assert (folder / "attempts" / "1.2-1").is_dir()
    assert (folder / "1.2" / "config.yaml").read_text() == before
    again = outcome_of(folder / "1.2")
    assert again is not None
    assert again.digests == seen["1.2"]
    results = json.loads((folder / "results.json").read_text())
    assert {config["data"] for config in results["configs"]} == {"same"}
    assert results["decision"]["is_certain"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [("sweep.folds=3",), ("sweep.vary=[seed,split]", "sweep.repeats=3")])
def test_a_sweep_of_images_reads_other_ones_in_each_round(tiny: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    folder = tmp_path / "sweep"
    words = [word for word in small(tiny, "trainer.learning_rate=0.01,0.1") if "split" not in word]
    split = ("dataset.split='train[:50%]'", "dataset.eval_split='train[50%:]'")
    assert ended([*words, *split, "trainer.epochs=1", *how, f"hydra.sweep.dir={folder}"]) == 0
    found = {name: of_run(folder, name)["dataset"] for name in ("0", "0.1", "0.2", "1", "1.1", "1.2")}
    for pipeline in ("train", "validation"):
        assert len({found[name]["digest"][pipeline] for name in ("0", "0.1", "0.2")}) == 3
        assert all(found[f"0{end}"]["digest"] == found[f"1{end}"]["digest"] for end in ("", ".1", ".2"))


SWEEPS = {
    "folds of 5": (settings(folds=5), OF_FOLDS / 4),
    "folds of 10": (settings(folds=10), OF_FOLDS / 9),
    "5 windows": (settings(repeats=5, vary=("split",)), OF_WINDOWS / 4),
    "10 windows": (settings(repeats=10, vary=("split",)), OF_WINDOWS / 4),
}


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("has_classes", [False, True])
def test_intervals_over_rounds_hold_what_is_true_of_the_fits(name: str, *, has_classes: bool) -> None:
    """True is the mean over data drawn anew: that of all samples, whose own error is small beside an interval."""
    sweep, excess = SWEEPS[name]
    random, of_means, of_leads = np.random.default_rng(3), list[bool](), list[bool]()
    for title, pair in PAIRS.items():
        if title == "a line and a cut":  # which takes long; benchmarks/intervals.py has it
            continue
        found = [*measured(pair, sweep, rows=100, has_classes=has_classes, samples=150, random=random)]
        true = [statistics.fmean(map(statistics.fmean, of)) for of in zip(*found, strict=True)]
        for one, other in found:
            low, high = interval_of_mean(one, excess) or (0.0, 0.0)
            of_means.append(low <= true[0] <= high)
            lead = leads({1: np.subtract(one, other)}, 0.0, excess=excess)[1]
            assert lead.low is not None
            assert lead.high is not None
            of_leads.append(lead.low <= true[0] - true[1] <= lead.high)
    assert 0.92 <= statistics.fmean(of_means) <= 0.985
    assert 0.93 <= statistics.fmean(of_leads) <= 0.99


def accuracies_of(tiny: Path, folder: Path, *words: str) -> Results:
    """Of a sweep with seeds, in which config 1 is better by about 0.03 in each round."""
    ledger = sweep_of(folder, *small(tiny, RATES), "sweep.repeats=5", "sweep.vary=[seed]", *words)

    def summary(run: RunKey) -> dict[str, Any]:
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        accuracy = 0.6 + 0.01 * turn + 0.001 * twin + run.config * (0.03 + 0.012 * (turn % 3 - 1))
        epoch = {"epoch": 1, "examples": 100, "examples_per_s": 100.0, "wall_s": 1.0, "loss": 0.5, "val_loss": 0.5}
        return {"epochs": [epoch | {"accuracy": accuracy, "val_accuracy": accuracy}]}

    return collected(ledger, summary)


def test_what_is_better_in_one_comparison_is_tied_in_twenty(tiny: Path, tmp_path: Path, says: Says) -> None:
    alone = accuracies_of(tiny, tmp_path / "one")
    assert alone.decision.recommended == 1
    assert not any("comparisons" in remark for remark in alone.remarks)
    among = accuracies_of(tiny, tmp_path / "twenty", "sweep.comparisons=20")
    assert among.decision.recommended == 0
    says([among.decision.words, *(remark for remark in among.remarks if "comparisons" in remark)])


def test_of_twenty_sweeps_of_nulls_with_one_baseline_hardly_one_in_twenty_series_has_a_win() -> None:
    random, wins = np.random.default_rng(0), {1: 0, 20: 0}
    for comparisons in wins:
        for _ in range(200):
            base = random.normal(size=(5, 2)).mean(axis=1)
            tried = ({1: random.normal(size=5) - base} for _ in range(20))
            several = comparisons_of(1, comparisons)
            wins[comparisons] += any(leads(of, 0.0, comparisons=several)[1].call == "better" for of in tried)
    assert wins[20] <= 0.05 * 200
    assert wins[1] > 0.2 * 200


def test_a_sweep_counts_each_of_its_configs_by_the_measure_and_by_the_speed() -> None:
    assert [comparisons_of(configs, comparisons) for configs, comparisons in ((1, 1), (5, 1), (1, 20), (30, 20))] == [
        2, 10, 40, 60,
    ]  # fmt: skip


def test_a_design_without_splits_of_its_own_is_as_before() -> None:
    assert Rounds() == Rounds(varied="seed", is_paired=True, excess=None, comparisons=1)
    assert deciding({}) is None
