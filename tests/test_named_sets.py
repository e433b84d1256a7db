"""Named validation sets: what they measure, what they leave as it is, early stopping, resumed runs, and refusals."""

import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pyarrow.parquet
import pytest

import etlrun
from etlrun.eject.program import ejected
from etlrun.planning.plan import kept_by
from etlrun.results.results import Results
from etlrun.review.difference import Comparison
from etlrun.review.review import Review, Reviewed, judged
from etlrun.review.runs import Ran, qualities
from etlrun.run.callbacks import EpochRecorder
from etlrun.stages.base import TRAINING
from etlrun.sweep.ledger import RunKey
from tests import tables, texts
from tests.configs import plan_of, raised, refusal_of, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.present import present
from tests.programs import program_of
from tests.runs import are_equal, complete_here, resumed_after, run_here, small, summary_of, variables_of
from tests.sweeps import collected, sweep_of, table
from tests.trained import said

SETS = "dataset.eval_splits={same: 'train[80%:]', hard: 'train[90%:]'}"
THREE = (
    "trainer.epochs=3", "cache=none", "trainer.optimizer=sgd", "trainer.learning_rate=1", "trainer.label_smoothing=0.3",
)  # fmt: skip
"""Steps so long that the last epoch is not the best one."""
BY_HARD = "trainer.early_stopping.monitor=hard.loss"


def words_of(data_dir: Path, *overrides: str) -> list[str]:
    """A small run of the cheapest model that learns."""
    return [*(word for word in small(data_dir, *overrides) if not word.startswith("model.")), "model=linear"]


def of_set(summary: dict[str, Any], name: str) -> list[dict[str, float]]:
    """The measures of a set by epoch."""
    return [
        {key.partition(".")[2]: of for key, of in epoch["metrics"].items() if key.partition(".")[0] == name}
        for epoch in summary["epochs"]
    ]


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, all of whose checkpoints are there, with two sets."""
    folder = tmp_path_factory.mktemp("sets") / "run"
    complete_here(folder, words_of(tiny, *THREE, SETS, BY_HARD, "trainer.checkpoint_keep=3", "measure.digest=true"))
    return folder


def test_a_set_is_measured_after_each_epoch_as_the_validation_is(trained: Path) -> None:
    summary = summary_of(trained)
    wanted = [{"loss": of["val_loss"], "accuracy": of["val_accuracy"]} for of in summary["epochs"]]
    assert of_set(summary, "same") == wanted
    assert [[*of] for of in of_set(summary, "hard")] == [["loss", "accuracy"]] * 3
    assert of_set(summary, "hard") != wanted
    assert summary["dataset"]["examples"] == {"train": 38, "validation": 10, "same": 10, "hard": 5}
    digests = summary["dataset"]["digest"]
    assert digests["same"] == digests["validation"] != digests["hard"]
    for epoch in summary["epochs"]:
        assert epoch["set_digests"]["same"] == epoch["validation_digest"] != epoch["set_digests"]["hard"]
        assert epoch["validation_wait_s"] > 0
    overlaps = [note for note in summary["remarks"] if "are in" in note]
    assert overlaps == []


def test_the_epoch_of_the_best_value_of_a_set_is_kept(trained: Path) -> None:
    summary = summary_of(trained)
    losses = [of["loss"] for of in of_set(summary, "hard")]
    best = 1 + losses.index(min(losses))
    assert summary["kept"] == {"epoch": best, "monitor": "hard.loss", "value": min(losses)}
    checkpoint = trained / f"checkpoints/epoch_{best:04}.keras"
    weights = [keras.models.load_model(path).get_weights() for path in (checkpoint, trained / "model.keras")]
    assert all(map(np.array_equal, *weights))


def test_sets_change_nothing_of_the_training(tiny: Path, trained: Path, tmp_path: Path) -> None:
    plain = summary_of(trained)
    complete_here(tmp_path / "run", words_of(tiny, *THREE, "trainer.keep=last", "dataset.eval_split=null"))
    complete_here(tmp_path / "sets", words_of(tiny, *THREE, "trainer.keep=last", "dataset.eval_split=null", SETS))
    assert are_equal(variables_of(tmp_path / "run"), variables_of(tmp_path / "sets"))
    alone = summary_of(tmp_path / "sets")
    assert of_set(alone, "hard") == of_set(plain, "hard")
    assert [epoch["loss"] for epoch in alone["epochs"]] == [epoch["loss"] for epoch in plain["epochs"]]
    assert alone["kept"] == {"epoch": 3}


def test_a_set_is_part_of_the_fingerprint_only_where_it_decides_which_epoch_is_kept() -> None:
    assert plan_of(SETS).fingerprint == plan_of().fingerprint
    other = SETS.replace("90%", "95%")
    assert plan_of(SETS, BY_HARD).fingerprint != plan_of(other, BY_HARD).fingerprint
    assert plan_of(SETS, BY_HARD).fingerprint == plan_of(SETS.replace("80%", "85%"), BY_HARD).fingerprint
    assert kept_by(spec_of(SETS, BY_HARD)) == "hard.loss"


def test_training_ends_when_a_set_has_stopped_improving_and_so_does_a_resumed_one(tiny: Path, tmp_path: Path) -> None:
    patient = ("trainer.early_stopping.patience=1", BY_HARD, SETS)
    words = words_of(tiny, *THREE, "trainer.epochs=8", *patient)
    summary = complete_here(tmp_path / "whole", words)
    losses = [of["loss"] for of in of_set(summary, "hard")]
    first_worse = next(place for place in range(1, len(losses)) if losses[place] >= min(losses[:place]))
    assert len(losses) == first_worse + 1 < 8

    def stop(self: EpochRecorder, epoch: int, logs: Any = None) -> None:
        if len(self.record.summary.epochs) == first_worse:
            raise KeyboardInterrupt
        begin(self, epoch, logs)

    begin = EpochRecorder.on_epoch_begin
    resumed = resumed_after(tmp_path, words, "on_epoch_begin", stop)
    assert of_set(summary_of(resumed), "hard") == of_set(summary, "hard")
    assert summary_of(resumed)["kept"] == summary["kept"]


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["cache=memory", "cache=disk"])
def test_a_run_that_is_stopped_in_a_set_and_resumed_ends_as_if_undisturbed(
    cache: str, tiny: Path, tmp_path: Path
) -> None:
    apart = [f"cache.dir={tmp_path / 'cache'}"] if cache == "cache=disk" else []
    more = ("trainer.checkpoint_every_steps=2", "measure.digest=true", "trainer.epochs=3", "trainer.ema_momentum=0.9")
    words = words_of(tiny, SETS, BY_HARD, *more, cache, *apart)
    undisturbed = tmp_path / "undisturbed"
    complete_here(undisturbed, words)

    def stop(self: EpochRecorder, batch: int, logs: Any = None) -> None:
        if self.tested == "hard" and self.epoch == 1:
            raise KeyboardInterrupt
        ended(self, batch, logs)

    ended = EpochRecorder.on_test_batch_end
    resumed = resumed_after(tmp_path, words, "on_test_batch_end", stop)
    one, other = summary_of(resumed), summary_of(undisturbed)
    assert one["epochs"][1]["resumed_steps"] > 0
    for key in ("metrics", "set_digests", "digest", "val_loss", "loss"):
        assert [of[key] for of in one["epochs"]] == [of[key] for of in other["epochs"]]
    assert one["kept"] == other["kept"]
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


def test_a_resumed_run_refuses_other_examples_under_a_name_and_takes_further_sets(tiny: Path, tmp_path: Path) -> None:
    words = words_of(tiny, *THREE, SETS, "trainer.epochs=1")
    complete_here(tmp_path / "run", words)
    resume = f"trainer.resume={tmp_path / 'run'}"
    more = SETS.replace("{", "{more: 'train[95%:]', ")
    summary = complete_here(tmp_path / "more", words_of(tiny, *THREE, more, "trainer.epochs=2", resume))
    assert [bool(of) for of in of_set(summary, "more")] == [False, True]
    assert [note for note in summary["remarks"] if "unknown" in note] == []
    other = SETS.replace("90%", "95%")
    status, summary = run_here(tmp_path / "other", words_of(tiny, *THREE, other, "trainer.epochs=2", resume))
    assert status == 1
    assert summary["error"].startswith("dataset.eval_splits.hard: found records of digest ")


def test_sets_have_caches_of_their_own(tiny: Path, tmp_path: Path) -> None:
    disk = ("cache=disk", f"cache.dir={tmp_path / 'cache'}", "trainer.epochs=2")
    passes = []
    for name in ("one", "two"):
        summary = complete_here(tmp_path / name, words_of(tiny, SETS, *disk))
        passes.append({key: of["passes"] for key, of in summary["cache"]["pipelines"].items()})
    # the validation has the same examples as one of the sets, whose cache it has filled
    assert passes[0] == {"train": ["filled", "read"], "validation": ["filled", "read"], "same": ["read", "read"],
                         "hard": ["filled", "read"]}  # fmt: skip
    assert {*map(tuple, passes[1].values())} == {("read", "read")}


MODEL = ("model=tabular", "model.units=[4]", "trainer.epochs=2")


def write_others(folder: Path, **columns: Any) -> str:
    """Half of the houses as a table of their own, of which columns have other values."""
    rows = tables.houses().slice(100)
    for name, values in columns.items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pyarrow.array(values)) if values else rows.remove_column(place)
    pyarrow.parquet.write_table(rows, folder / "others.parquet")
    return f"{folder / 'others.parquet'}"


def test_other_files_are_prepared_by_what_the_training_has_learned(tmp_path: Path) -> None:
    tables.write_houses(tmp_path)
    other = write_others(tmp_path)
    sets = f"hard: 'train[90%:]', next: {{files: {other}}}, end: {{files: {other}, split: 'train[50%:]'}}"
    words = tables.words_of(tmp_path, *MODEL, f"dataset.eval_splits={{{sets}}}", target="{band: class}")
    summary = complete_here(tmp_path / "run", [*words])
    assert summary["dataset"]["examples"] == {"train": 160, "validation": 40, "hard": 20, "next": 100, "end": 50}
    run = tables.loaded_run(tmp_path / "run")
    kept = summary["epochs"][-1]["metrics"]
    for name, overrides in {
        "hard": ["dataset.split='train[90%:]'"],
        "next": [f"dataset.files={other}", "dataset.split=train"],
    }.items():
        found = run.evaluate(*overrides)
        assert kept[f"{name}.loss"] == pytest.approx(found.loss, rel=1e-5)
        assert kept[f"{name}.accuracy"] == pytest.approx(present(found.accuracy).value, rel=1e-5)


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"rooms": []}, "{band: class}"),
        ({"band": ["dear"] * 99 + ["palace"]}, "{band: class}"),
        ({"rooms": [1] * 99 + [None]}, "{price: number}"),
        ({"price": ["?"] * 100}, "{price: number}"),
    ],
)
def test_other_files_that_do_not_fit_are_refused(
    columns: dict[str, Any], target: str, tmp_path: Path, says: Says
) -> None:
    tables.write_houses(tmp_path)
    sets = f"dataset.eval_splits={{next: {{files: {write_others(tmp_path, **columns)}}}}}"
    words = tables.words_of(tmp_path, *MODEL, sets, tables.COLUMNS, target=target)
    says(raised(etlrun.EtlrunError, etlrun.plan, *words))


def test_a_set_whose_files_are_not_there_is_noted_by_a_plan_and_ends_a_run(tmp_path: Path, says: Says) -> None:
    tables.write_houses(tmp_path)
    sets = f"dataset.eval_splits={{next: {{files: {tmp_path / 'gone.parquet'}}}}}"
    words = tables.words_of(tmp_path, *MODEL, sets, target="{band: class}")
    says([note for note in plan_of(*words).remarks if "gone" in note])
    status, summary = run_here(tmp_path / "run", [*words])
    assert status == 1
    says(summary["error"])


def test_groups_of_the_training_are_in_no_set(tmp_path: Path, says: Says) -> None:
    tables.write_houses(tmp_path)
    by = "dataset.split_by={group: rooms}"
    sets = "dataset.eval_splits={one: 'train[60%:80%]', two: 'train[60%:]'}"
    halves = ("dataset.split='train[:60%]'", "dataset.eval_split=null", BY_HARD.replace("hard", "two"), by, sets)
    plan = plan_of(*tables.words_of(tmp_path, *MODEL, *halves))
    says([note for note in plan.remarks if "stay together" in note])
    shutil.copy(tmp_path / "houses.parquet", tmp_path / "again.parquet")
    files = f"dataset.files={{train: {tmp_path / 'houses.parquet'}, a: {tmp_path / 'again.parquet'}}}"
    more = ("dataset.split=train", "dataset.eval_split=null", by, "dataset.eval_splits={one: 'a[:60%]', two: a}")
    words = tables.words_of(tmp_path, *MODEL, *more, BY_HARD.replace("hard", "two"))
    says(refusal_of(*words, files))


def test_texts_of_a_set_are_measured_in_buckets_of_their_own(tmp_path: Path) -> None:
    texts.write_reviews(tmp_path)
    lines = (tmp_path / "reviews.jsonl").read_text().splitlines()
    (tmp_path / "others.jsonl").write_text("\n".join(lines[:30]) + "\n")
    sets = f"dataset.eval_splits={{same: 'train[80%:]', next: {{files: {tmp_path / 'others.jsonl'}}}}}"
    words = texts.words_of(tmp_path, "model=text", "model.units=4", "load.tokens_per_batch=64", sets)
    summary = complete_here(tmp_path / "run", [*words])
    wanted = [{"loss": of["val_loss"], "accuracy": of["val_accuracy"]} for of in summary["epochs"]]
    assert of_set(summary, "same") == wanted
    assert summary["dataset"]["examples"]["next"] == 30
    assert [of["loss"] > 0 for of in of_set(summary, "next")] == [True, True]


def test_a_set_is_evaluated_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    tables.write_houses(tmp_path)
    sets = (
        f"dataset.eval_splits={{hard: 'train[80%:]', 2025: {{files: {write_others(tmp_path)}, split: 'train[50%:]'}}}}"
    )
    by = ("dataset.split_by={group: rooms}", "dataset.eval_split=null", BY_HARD)
    words = tables.words_of(tmp_path, *MODEL, sets, *by, target="{band: class}")
    measured = complete_here(tmp_path / "run", [*words])["epochs"][-1]["metrics"]
    for name in ("hard", "2025"):
        found = json.loads(said(capsys, "evaluate", tmp_path / "run", f"dataset.split={name}", "--format", "json"))
        assert found["loss"] == pytest.approx(measured[f"{name}.loss"], rel=1e-5)
        assert found["then"]["loss"] == measured[f"{name}.loss"]
        assert found["accuracy"]["value"] == pytest.approx(found["then"]["accuracy"])
    run = tables.loaded_run(tmp_path / "run")
    assert run.evaluate("dataset.split=hard").then["loss"] == measured["hard.loss"]
    assert len(run.predict("dataset.split=2025")) == 50
    says(raised(etlrun.EtlrunError, run.evaluate, "dataset.split=harder"))


def test_a_program_measures_sets_that_are_splits(tiny: Path, tmp_path: Path, says: Says) -> None:
    words = words_of(tiny, *THREE, "trainer.keep=last", SETS, "trainer.ema_momentum=0.9", "dataset.eval_split=null")
    summary = complete_here(tmp_path / "run", words)
    module = program_of(plan_of(*words), tmp_path)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(tmp_path)
        (history,) = module.train()
    for name in ("same", "hard"):
        for measure in ("loss", "accuracy"):
            wanted = [of[measure] for of in of_set(summary, name)]
            assert history.history[f"{name}.{measure}"] == pytest.approx(wanted, rel=1e-6)
    other = f"dataset.eval_splits={{hard: train, next: {{data_dir: {tmp_path}}}}}"
    says(raised(etlrun.ConfigError, ejected, plan_of(*words_of(tiny, other)), [], {}))


VARIED = ("trainer.learning_rate=0.1,0.01,0.001", "sweep.repeats=3", "sweep.vary=[seed]")


def decided(folder: Path, *names: str, **leads: Sequence[float]) -> Results:
    """A sweep of three configs, each better than the first by so much of an accuracy, on each set."""

    def summary(run: RunKey) -> dict[str, Any]:
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        about = 0.7 + 0.01 * turn + 0.004 * twin + 0.001 * (-1) ** (turn + run.config)
        values = {name: about + of[run.config] for name, of in leads.items()}
        own = {
            key: of for name, of in values.items() for key, of in ((f"{name}.accuracy", of), (f"{name}.loss", 1 - of))
        }
        epoch: dict[str, Any] = {"metrics": {key: of for key, of in own.items() if not key.startswith("val.")}}
        epoch |= {key.replace(".", "_"): of for key, of in own.items() if key.startswith("val.")}
        times = {"wall_s": 1.0, "examples": 100.0, "examples_per_s": 100.0, "loss": 0.5, "accuracy": 0.5}
        examples = dict.fromkeys(("train", *("validation" if name == "val" else name for name in leads)), 10)
        return {"epochs": [times | epoch] * 2, "dataset": {"examples": examples}}

    return collected(sweep_of(folder, *VARIED, *names), summary)


@pytest.mark.parametrize(
    "leads",
    [
        pytest.param({"val": (0, 0.1, 0.05), "easy": (0, 0.1, 0.1), "hard": (0, -0.1, 0.001)}, id="worse on one"),
        pytest.param({"val": (0, 0.1, 0), "easy": (0, -0.1, 0), "hard": (0, -0.1, 0)}, id="all are worse or tied"),
        pytest.param({"val": (0, 0, 0), "easy": (0, 0.1, 0.1), "hard": (0, 0.1, -0.1)}, id="none is better"),
        pytest.param({"easy": (0, 0.1, 0.2), "hard": (0, 0.1, -0.1)}, id="without a validation"),
    ],
)
def test_a_config_is_recommended_that_is_better_and_worse_on_no_set(
    leads: dict[str, Sequence[float]], tmp_path: Path, says: Says
) -> None:
    results = decided(tmp_path, **leads)
    rows = [{key: of for key, of in row.items() if key == "config" or "." in key} for row in table(results)]
    says([results.decision.words, f"by {results.decision.by}", *(str(row) for row in rows)])


def test_the_seed_of_all_runs_compares_no_set(tmp_path: Path, says: Says) -> None:
    results = decided(tmp_path, "sweep.vary=[]", val=(0, 0.1, 0.2), hard=(0, 0.1, -0.1))
    says([results.decision.words, *(f"{row['config']} {row['hard.accuracy']}" for row in table(results))])


@pytest.mark.parametrize(
    ("leads", "seeds"),
    [
        pytest.param({"val_loss": -0.1, "hard.loss": -0.2, "easy.accuracy": 0.1}, 3, id="better"),
        pytest.param({"val_loss": -0.1, "hard.loss": 0.2, "easy.accuracy": -0.1}, 3, id="worse"),
        pytest.param({"val_loss": 0.0, "hard.loss": 0.0}, 3, id="tied"),
        pytest.param({"val_loss": -0.1, "hard.loss": -0.2}, 2, id="few"),
        pytest.param({}, 0, id="configs"),
    ],
)
def test_runs_that_are_not_better_or_worse_on_a_set_are_refused_where_that_is_asked_for(
    leads: dict[str, float], seeds: int, says: Says
) -> None:
    noise = (0.001, -0.002, 0.0015)
    old = [(seed, dict.fromkeys((*leads, "loss", "accuracy"), 1.0)) for seed in range(seeds)]
    new = [(seed, of | {name: 1.0 + lead + noise[seed] for name, lead in leads.items()}) for seed, of in old]
    ran = Ran(runs=(seeds, seeds), others={}, measured=tuple(qualities(old, new))) if leads else None
    reviewed = Reviewed(name="", sides=(None, None), ran=ran, comparison=Comparison(kinds=(TRAINING,)))
    review = Review(old="A", new="B", experiments=(reviewed,), files=(), is_of_runs=True, experiment=None)
    side: Any = SimpleNamespace(policy=None, is_revision=False, word="")
    found = present(judged(review, (side, side), ["worse"], []).policy)
    says([found.headline, *found.lines])


@pytest.mark.parametrize("case", cases("named_sets"))
def test_what_is_no_set_is_refused_with_its_whole_message(case: Case, golden: Golden) -> None:
    golden(case, refusal_of(*case["overrides"]))


def test_a_folder_of_other_classes_is_refused(folder: Path, tmp_path: Path, says: Says) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    gone = max(path for path in other.rglob("*") if path.is_dir())
    shutil.move(gone, gone.with_name("wolf"))
    words = ["dataset=folder", f"dataset.dir={folder}", f"dataset.eval_splits={{next: {{dir: {other}}}}}"]
    kept = ("transform.resize.size=[8,8]", "model=linear", "trainer.epochs=1", "cache=none", "load.batch_size=8")
    status, summary = run_here(tmp_path / "run", [*words, *kept])
    assert status == 1
    says(summary["error"])
