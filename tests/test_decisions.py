"""What sweeps decide by accuracies and losses of rounds with seeds of their own, and what is said of their data."""

import dataclasses
import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.cli import main as cli
from etlrun.record.outcome import outcome
from etlrun.record.summary import Summary
from etlrun.report.render import RENDER
from etlrun.results import report
from etlrun.results.decision import decide, qualities
from etlrun.results.report import of_sweep
from etlrun.results.results import Quality, Results, Run
from etlrun.sweep.ledger import Ledger, RunKey
from tests.golden import Case, Golden, Says, cases
from tests.runs import small
from tests.sweeps import Sweep, collected, ended, sweep_of, table
from tests.test_collect import as_planned, changed, config

VARIED = ("sweep.repeats=3", "sweep.vary=[seed]")
HOW = "each round has its own seed; accuracies and losses are means with 95 % intervals"


def ledger_of(folder: Path, *words: str) -> Ledger:
    return sweep_of(folder, *VARIED, *words)


def results_of(ledger: Ledger, measures: Callable[[RunKey], dict[str, Any]]) -> Results:
    """Of completed runs of a second, which ended with these measures."""
    times = {"wall_s": 1.0, "startup_s": 0.0, "fill_wait_s": 0.0, "input_wait_s": 0.0}
    rates = {"examples": 100.0, "startup_examples": 0, "examples_per_s": 100.0}
    return collected(ledger, lambda run: {"epochs": [{**times, **rates}, {**times, **rates, **measures(run)}]})


def of(results: Results, name: str) -> dict[int, Quality]:
    return {config.number: config.quality[name] for config in results.configs}


def test_each_round_has_a_seed_and_so_has_the_second_run_of_the_baseline(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "trainer.seed=7", "load.prefetch=0,1")
    seeds = {run.name: ledger.frozen(run) for run in ledger.runs}
    assert {name: values["trainer"]["seed"] for name, (values, _) in seeds.items()} == {
        "0": 7, "0.1": 1_000_007, "1": 7, "0.2": 8, "0.3": 1_000_008, "1.1": 8, "0.4": 9, "0.5": 1_000_009, "1.2": 9,
    }  # fmt: skip
    assert seeds["1.2"][1] == ["load.prefetch=1", "trainer.seed=9"]


def test_the_largest_seed_is_followed_by_the_smallest(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "trainer.seed=4294967295", "load.prefetch=0,1")
    assert ledger.frozen(RunKey(1, 1))[0]["trainer"]["seed"] == 0


def test_without_it_all_runs_have_the_seed_of_their_config(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "trainer.seed=7", "load.prefetch=0,1", "sweep.vary=[]")
    assert {ledger.frozen(run)[0]["trainer"]["seed"] for run in ledger.runs} == {7}
    measures = {"accuracy": 0.5, "loss": 1.0, "val_accuracy": 0.5, "val_loss": 1.0}
    results = results_of(ledger, lambda _run: measures)
    assert [config.quality for config in results.configs] == [{}, {}]
    assert HOW not in results.remarks
    assert [(row["val accuracy"], row["val loss"]) for row in table(results)] == [("0.500", "-")] * 2


def noisy(*leads: float, names: Sequence[str] = ("val_accuracy", "val_loss")) -> Callable[[RunKey], dict[str, float]]:
    """Accuracies around 0.7, and losses around 0.3, of configs that are so much better than the baseline."""

    def measures(run: RunKey) -> dict[str, float]:
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        value = 0.7 + 0.01 * turn + 0.004 * twin + leads[run.config] + 0.001 * (-1) ** (turn + run.config)
        return {names[0]: value, names[1]: 1 - value}

    return measures


@pytest.mark.parametrize("names", [("val_accuracy", "val_loss"), ("accuracy", "loss")])
def test_means_have_intervals_and_a_higher_accuracy_and_a_lower_loss_are_better(
    names: tuple[str, str], tmp_path: Path
) -> None:
    ledger = ledger_of(tmp_path, "load.prefetch=0,1,2,3")
    results = results_of(ledger, noisy(0.0, 0.1, -0.1, 0.001, names=names))
    accuracy, loss = of(results, names[0]), of(results, names[1])
    for found in (accuracy, loss):
        assert {number: one.lead and one.lead.call for number, one in found.items()} == {
            0: None, 1: "better", 2: "worse", 3: "tied",
        }  # fmt: skip
    assert accuracy[0].runs == 6
    values = [0.801 - 0.002, 0.811, 0.821 - 0.002]
    reach = 4.302653 * float(np.std(values, ddof=1)) / math.sqrt(3)
    expected = [float(np.mean(values)) + end for end in (0.0, -reach, reach)]
    assert [accuracy[1].mean, accuracy[1].low, accuracy[1].high] == pytest.approx(expected)
    assert [loss[1].mean, loss[1].low, loss[1].high] == pytest.approx(
        [1 - expected[0], 1 - expected[2], 1 - expected[1]]
    )
    assert HOW in results.remarks


@pytest.mark.smoke
def test_they_stand_in_every_report(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "load.prefetch=0,1,2,3")
    results = results_of(ledger, noisy(0.0, 0.1, -0.1, 0.001))
    report.publish(results)
    better = of(results, "val_accuracy")[1]
    cell = f"{better.mean:.3f} ({better.low:.3f} to {better.high:.3f}) better"
    markdown, page = ((ledger.folder / name).read_text() for name in ("report.md", "report.html"))
    assert f"| {cell} |" in markdown
    assert f'data-value="{better.mean}">{cell}</td>' in page
    assert HOW.removeprefix("each") in html.unescape(page)
    assert "accuracies and losses are means with their 95 % intervals" in page
    (found,) = [
        one for one in json.loads((ledger.folder / "results.json").read_text())["configs"] if one["number"] == 1
    ]
    assert found["quality"]["val_loss"]["lead"]["call"] == "better"


def test_a_recommendation_says_what_it_does_to_accuracy_and_loss(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "load.prefetch=0,1")
    losing = noisy(0.0, -0.1)

    def measures(run: RunKey) -> dict[str, float]:
        return {**losing(run), "wall_s": 0.5 if run.config else 1.0}

    words = results_of(ledger, measures).decision.words
    assert words.startswith("Use load.prefetch=1: ")
    assert words.endswith(" Compared with the baseline its val accuracy is worse, its val loss is worse.")


def test_a_loss_that_is_not_finite_has_no_mean_and_is_said(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "load.prefetch=0,1,2")
    known = noisy(0.0, 0.1, 0.1)

    def measures(run: RunKey) -> dict[str, Any]:
        return {**known(run), **({"val_loss": "NaN"} if run == RunKey(1, 2) else {})}

    results = results_of(ledger, measures)
    loss = of(results, "val_loss")
    assert loss[1] == Quality(mean=None, low=None, high=None, runs=3, lead=None)
    assert loss[2].lead is not None
    assert loss[2].lead.call == "better"
    assert "not compared: accuracies and losses that are not finite, of 1.2" in results.remarks


@pytest.mark.parametrize("configs", [1, 3, 10])
@pytest.mark.parametrize("images", [10, 1000])
def test_in_one_sweep_of_twenty_at_most_a_tie_of_accuracies_is_called_better(configs: int, images: int) -> None:
    """Accuracies are shares of so many images: few of them often agree by chance."""
    random, sweeps = np.random.default_rng(images), 300

    def run(config: int, repeat: int) -> Run:
        share = random.binomial(images, min(random.normal(0.8, 0.02), 1.0)) / images
        ended_with = outcome(Summary(status="completed", overrides=[]))
        ended_with = dataclasses.replace(ended_with, measures={"val_accuracy": share, "val_loss": 1 - share})
        return Run(name=f"{config}.{repeat}", config=config, repeat=repeat, outcome=ended_with)

    found = 0
    for _ in range(sweeps):
        completed = {of: [run(of, turn) for turn in range(3 if of else 6)] for of in range(configs + 1)}
        leads = [of["val_accuracy"].lead for of in qualities(completed).values()]
        found += any(lead is not None and lead.call == "better" for lead in leads)
    assert found <= 0.05 * sweeps


def test_other_data_of_other_seeds_is_not_said_to_differ(tmp_path: Path, says: Says) -> None:
    flipped = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
    ledger = ledger_of(tmp_path, "load.prefetch=0,1", "cache=none", flipped)

    def measures(run: RunKey) -> dict[str, Any]:
        return {"digest": str(ledger.frozen(run)[0]["trainer"]["seed"]), "validation_digest": ""}

    results = results_of(ledger, measures)
    assert {config.data for config in results.configs} == {"same"}
    says([remark for remark in results.remarks if "different data" in remark])


def test_each_round_of_a_sweep_runs_with_its_seed_and_a_resume_keeps_it(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    assert sweep("load.prefetch=0,1", "measure.digest=true", "load.drop_remainder=false", *VARIED) == 0
    before = (folder / "1.1" / "config.yaml").read_text()
    assert "\n  seed: 1\n" in before
    summary = json.loads((folder / "1.1" / "summary.json").read_text())
    assert summary["overrides"][-1] == "trainer.seed=1"
    (folder / "1.1" / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    assert ended([f"sweep.resume={folder}"]) == 0
    assert (folder / "attempts" / "1.1-1").is_dir()
    assert (folder / "1.1" / "config.yaml").read_text() == before
    results = json.loads((folder / "results.json").read_text())
    assert {config["data"] for config in results["configs"]} == {"same"}
    assert not any("same data" in remark for remark in results["remarks"])


def of_accuracies(folder: Path, words: list[str], of: Mapping[int, Any]) -> Results:
    """Of completed runs, each config with a rate and a validation accuracy, which vary a little with the round."""

    def summary(run: RunKey) -> dict[str, Any]:
        rate, accuracy = of[run.config]
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        rate *= 1 + 0.001 * twin
        if isinstance(accuracy, str):
            measures = {"loss": accuracy, "val_loss": accuracy}
        else:
            accuracy += 0.002 * turn + 0.001 * twin
            measures = {"loss": 1 - accuracy, "val_loss": 1 - accuracy, "val_accuracy": accuracy}
        epoch = {"examples": 1000, "examples_per_s": rate, "wall_s": 1000 / rate, "epoch": 1, **measures}
        return {"epochs": [epoch] * 2, "dataset": {"examples": {"validation": 400}}}

    return collected(sweep_of(folder, *words), summary)


RATES = "trainer.learning_rate=0.1,0.01,0.001"


@pytest.mark.parametrize("word", [RATES, "load.prefetch=0,1,2"])
@pytest.mark.parametrize("seeds", [(), VARIED])
def test_what_diverged_is_a_row_that_failed_and_is_recommended_by_nobody(
    word: str, seeds: tuple[str, ...], tmp_path: Path
) -> None:
    results = of_accuracies(tmp_path, [word, *seeds], {0: (500.0, 0.6), 1: (900.0, "NaN"), 2: (400.0, 0.6)})
    assert results.decision.config in {0, 2}
    last = table(results)[-1]
    assert (last["config"], last["status"], last["examples/s"]) == ("1", "failed", "-")
    assert last["reason"] == "epoch 1: found a loss of nan; expected a finite loss"
    assert report.conclude(results) == 1


def test_a_training_that_diverges_in_a_sweep_is_not_its_answer(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    words = (
        "trainer.optimizer=sgd", "trainer.learning_rate=1e-2,1e30", "trainer.on_nan=warn", "trainer.epochs=2",
        "model.trainable=true",
    )  # fmt: skip
    assert ended([*small(tiny, *words), f"hydra.sweep.dir={folder}"]) == 1
    out = capsys.readouterr().out
    results = json.loads((folder / "results.json").read_text())
    known = {config["number"]: config for config in results["configs"]}
    assert [known[number]["status"] for number in range(2)] == ["completed", "failed"]
    assert "expected a finite loss" in known[1]["error"]
    assert results["decision"]["config"] == 0
    assert "decision  Highest validation accuracy: trainer.learning_rate=0.01, " in out


ERRORS = {0: 30_000.0, 1: 12_000.0, 2: 20_000.0, 3: 25_000.0}


def of_errors(folder: Path, *words: str, scale: float = 1.0, name: str = "mae") -> Results:
    """Of completed runs, of which those with smaller errors have larger losses."""

    def summary(run: RunKey) -> dict[str, Any]:
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        error = scale * (ERRORS[run.config] + 100 * turn + 50 * twin)
        metrics = {name: error / 2, "r2": 0.5, f"val_{name}": error, "val_r2": 0.4}
        measures = {"loss": 1 / error, "val_loss": 1 / error, "metrics": metrics}
        epoch = {"examples": 1000, "examples_per_s": 500.0, "wall_s": 2.0, "epoch": 1, **measures}
        return {"epochs": [epoch] * 2, "dataset": {"examples": {"validation": 400}}}

    return collected(sweep_of(folder, *words), summary)


@pytest.mark.parametrize("case", cases("decisions"))
def test_a_sweep_is_decided_by_the_objective_of_what_it_changes(case: Case, golden: Golden, tmp_path: Path) -> None:
    known = case.values
    if "errors" in known:
        results = of_errors(tmp_path, *known["words"], **known["errors"])
    else:
        results = of_accuracies(tmp_path, known["words"], known["accuracies"])
    decision = results.decision
    rows = (
        ", ".join(f"{name} {row[name]}" for name in row if name == "config" or name.startswith("val "))
        for row in table(results)
    )
    found = [decision.words, f"by {decision.by}, recommended: {decision.recommended}", decision.same_data, *rows]
    golden(case, "\n".join(found))


@pytest.mark.parametrize(("name", "head"), [("mae", "val mae"), ("price_mae", "val price mae")])
def test_a_page_sorts_by_the_objective(name: str, head: str, tmp_path: Path) -> None:
    page = RENDER["html"](of_sweep(of_errors(tmp_path, RATES, name=name)))
    assert f'aria-sort="ascending"><button type="button">{head}' in page


def test_results_have_the_error_of_each_run_and_the_best_of_a_sweep_is_its_smallest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = of_errors(tmp_path, RATES)
    runs = json.loads(RENDER["json"](of_sweep(results)))["runs"]
    assert [run["outcome"]["measures"]["val_mae"] for run in runs] == [*ERRORS.values()][:3]
    cli.main(["runs", "ls", str(tmp_path), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["best"] == {"val_mae": 12_000.0}


@pytest.mark.parametrize("case", cases("same_records"))
def test_whether_the_data_is_the_same_is_said_with_how_that_is_known(case: Case, golden: Golden) -> None:
    configs = [config(1, 130.0, "better", 1.3, **case["chosen"]), config(0, 100.0, **case["baseline"])]
    golden(case, decide(configs, [1], as_planned).same_data)


@pytest.mark.parametrize("case", cases("same_data"))
def test_what_a_plan_shows_of_the_data_is_said_and_no_more(case: Case, golden: Golden) -> None:
    configs = [config(1, 130.0, "better", 1.3, fingerprint="other"), config(0, 100.0)]
    golden(case, decide(configs, [1], lambda _number: changed(case["base"], case["change"])).same_data)


def test_the_same_digests_of_another_order_are_said_to_be_that(says: Says) -> None:
    configs = [config(1, 130.0, "better", 1.3, data="same"), config(0, 100.0, data="same")]
    says(decide(configs, [1], lambda _number: changed([], ["load.batch_size=7"])).same_data)


def test_the_baseline_has_its_own_data_and_configs_that_can_not_be_planned_any_more_show_nothing(says: Says) -> None:
    says(decide([config(0, 100.0)], [0], as_planned).same_data)
    says(decide([config(1, 130.0, "better", 1.3), config(0, 100.0)], [1], lambda _number: None).same_data)
