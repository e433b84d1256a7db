"""Phases of a training in configs, plans, differences and programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from jsonschema import Draft7Validator

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.planning import render
from etlrun.planning.schema import schema
from etlrun.review.difference import compare
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.checkpoint import previous_run
from etlrun.stages import STAGES
from etlrun.stages.model import APPLICATIONS, unfreeze
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, raised
from tests.golden import Says
from tests.programs import losses_in, of_words
from tests.quick import shallow
from tests.runs import are_equal, events_of, losses_of, resumed_after, run_here, small, summary_of, variables_of

FROZEN = ("model=mobilenet_v2", "trainer.epochs=null")
TWO = "trainer.phases=[{epochs: 3}, {epochs: 5, unfreeze: last_block, learning_rate: 1e-5}]"
FINE_TUNE = ("model=mobilenet_v2", "trainer=fine_tune")


def test_a_plan_shows_each_phase_with_all_its_values() -> None:
    third = "trainer.phases=[{epochs: 1}, {epochs: 2, unfreeze: 7}, {epochs: 3, learning_rate: 0.1}]"
    shown = render.text(plan_of(*FROZEN, third))
    assert (
        "trainer.phases[2]\n"
        "     epochs                3                    training\n"
        "     unfreeze              7 (the last 7 of 155) training\n"
        "     learning_rate         0.1                  training\n"
    ) in shown
    (*_, last) = render.as_dict(plan_of(*FROZEN, third))["trainer"]["phases"]
    assert {name: of["value"] for name, of in last.items()} == {"epochs": 3, "unfreeze": 7, "learning_rate": 0.1}
    assert json.loads(render.as_json(plan_of(*FROZEN, TWO)))["trainer"]["parameters"]["epochs"]["value"] is None


def test_a_phase_with_its_values_given_is_the_same_as_with_those_before_it() -> None:
    given = "trainer.phases=[{epochs: 1}, {epochs: 1, unfreeze: all}, {epochs: 1, unfreeze: all, learning_rate: 0.001}]"
    taken = "trainer.phases=[{epochs: 1}, {epochs: 1, unfreeze: all}, {epochs: 1}]"
    assert plan_of(*FROZEN, given).fingerprint == plan_of(*FROZEN, taken).fingerprint
    assert plan_of(*FROZEN, TWO, "trainer.keep=last").fingerprint == plan_of(*FINE_TUNE).fingerprint
    assert "trainer.phases" not in "".join(plan_of("model=mobilenet_v2").decisive)


def test_a_plan_says_which_phases_cached_features_serve(says: Says) -> None:
    four = "trainer.phases=[{epochs: 1}, {epochs: 1}, {epochs: 1, unfreeze: 9}, {epochs: 1, unfreeze: all}]"
    plan = plan_of(*FROZEN, four, "cache.at=features")
    says(plan.remarks[0])
    assert plan.unfrozen is not None
    text = render.text(plan)
    later = text[text.index("\ntrain, from phase 3 on\n") : text.index("\nmodel.mobilenet_v2\n")]
    assert "cache." not in later
    assert "\nvalidation, from phase 3 on\n" in later
    assert "model.backbone" in text
    assert [stage["stage"] for stage in render.as_dict(plan)["unfrozen"]["train"]] == [
        planned.stage.path for planned in plan_of(*FROZEN, four, "cache=none").train
    ]
    assert plan.fingerprint == plan_of(*FROZEN, four, "cache=none").fingerprint
    frozen = plan_of(*FROZEN, "trainer.phases=[{epochs: 1}, {epochs: 1}]", "cache.at=features")
    assert (frozen.unfrozen, len(frozen.remarks)) == (None, 1)


def test_a_difference_names_the_phase_or_both_lists() -> None:
    other = TWO.replace("1e-5", "0.0001")
    (one,) = compare(plan_of(*FROZEN, TWO), plan_of(*FROZEN, other)).differences
    assert (one.path, one.old, one.new, one.kind) == ("trainer.phases[1].learning_rate", "1e-05", "0.0001", "training")
    found = {
        of.path: (of.old, of.new) for of in compare(plan_of("model=mobilenet_v2"), plan_of(*FROZEN, TWO)).differences
    }
    lists = "[{epochs: 3}, {epochs: 5, unfreeze: last_block, learning_rate: 1e-05}]"
    assert found == {"trainer.epochs": ("4", "null"), "trainer.phases": ("null", lists)}


def test_last_layers_are_trained_without_their_batch_normalizations() -> None:
    base = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None, pooling="avg")
    base.trainable = False
    unfreeze(base, APPLICATIONS["MobileNetV2"].last_block)
    trained = [layer.name for layer in base.layers if layer.trainable and layer.weights]
    assert trained == ["block_16_expand", "block_16_depthwise", "block_16_project", "Conv_1"]
    unfreeze(base, len(base.layers))
    kinds = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)
    assert all(layer.trainable == isinstance(layer, kinds) for layer in base.layers if layer.weights)


@pytest.mark.parametrize(
    ("phases", "is_valid"),
    [
        (None, True),
        ("${oc.env:PHASES}", True),
        ([{"epochs": 3}, {"epochs": "${n}", "unfreeze": "last_block", "learning_rate": 1e-5}], True),
        ([{"epochs": 1, "unfreeze": 7}, {"epochs": 1, "unfreeze": "all"}], True),
        ([], False),
        ([{"epochs": 0}], False),
        ([{"epochs": 1, "unfreeze": "first"}], False),
        ([{"epochs": 1, "unfreez": "all"}], False),
        ([{"epochs": 1, "learning_rate": 0}], False),
    ],
)
def test_editors_check_phases(phases: object, *, is_valid: bool) -> None:
    assert Draft7Validator(schema(STAGES)).is_valid({"trainer": {"phases": phases}}) is is_valid


PHASES = "trainer.phases=[{epochs: 2}, {epochs: 2, unfreeze: 6, learning_rate: 0.01}]"
BASE = ("trainer.epochs=null", PHASES, "load.batch_size=6", "trainer.checkpoint_every_steps=3")
OTHERS = ("trainer.ema_momentum=0.8", "trainer.schedule.name=cosine")
NONE, FEATURES = ("cache=none", *OTHERS), ("cache=memory", "cache.at=features", *OTHERS)


def words(tiny: Path, *overrides: str) -> list[str]:
    return [word for word in small(tiny, *BASE, *overrides) if word != "trainer.epochs=1"]


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """The folder of an undisturbed run with these overrides."""
    folders: dict[tuple[str, ...], Path] = {}

    def run(overrides: tuple[str, ...]) -> Path:
        if overrides not in folders:
            folders[overrides] = tmp_path_factory.mktemp("whole")
            assert run_here(folders[overrides], words(tiny, *overrides))[0] == 0
        return folders[overrides]

    return run


def test_cached_features_serve_the_frozen_phase(whole: Callable[[tuple[str, ...]], Path]) -> None:
    plain, cached = (summary_of(whole(overrides)) for overrides in (NONE, FEATURES))
    np.testing.assert_allclose(losses_of(cached), losses_of(plain), atol=1e-4)
    assert cached["cache"]["at"] == "features"
    assert cached["cache"]["pipelines"]["train"]["held_bytes"] > 38 * 1280 * 4
    assert "The verdict and the stages are those from phase 2 on, which reads images." in cached["remarks"]


@pytest.mark.slow
def test_a_run_that_is_stopped_again_and_again_ends_to_the_bit(
    whole: Callable[[tuple[str, ...]], Path], tiny: Path, tmp_path: Path
) -> None:
    """Inside phase 1, between the phases, and inside both epochs of phase 2."""
    places = {"phase_1": (1, 5, 0), "between": (2, 1, 3), "phase_2": (2, 5, 0), "later": (3, 5, 3), "end": (9, 9, 3)}
    step, given = EpochRecorder.on_train_batch_end, words(tiny, *FEATURES)
    for name, (epochs, steps, resumed_steps) in places.items():

        def stops(self: EpochRecorder, batch: int, logs: Any = None, *, at: Any = (epochs, steps)) -> None:
            step(self, batch, logs)
            if (len(self.record.summary.epochs), batch + 1) == at:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EpochRecorder, "on_train_batch_end", stops)
            assert run_here(tmp_path / name, given)[0] == (0 if name == "end" else 130)
        given = [*words(tiny, *FEATURES), f"trainer.resume={tmp_path / name}"]
        if name not in ("phase_1", "phase_2"):
            done = summary_of(tmp_path / name)["epochs"]
            assert done[{"between": 1, "later": 2, "end": 3}[name]]["resumed_steps"] == resumed_steps
    found, wanted = summary_of(tmp_path / "end"), summary_of(whole(FEATURES))
    assert losses_of(found) == losses_of(wanted)
    assert are_equal(variables_of(tmp_path / "end"), variables_of(whole(FEATURES)))
    assert found["phases"] == wanted["phases"]
    assert [epoch["phase"] for epoch in found["epochs"]] == [1, 1, 2, 2]


@pytest.mark.slow
def test_the_last_phase_goes_on_with_more_epochs(
    whole: Callable[[tuple[str, ...]], Path], tiny: Path, tmp_path: Path, says: Says
) -> None:
    constant = ("cache=none", "trainer.ema_momentum=0.8")
    long, short = words(tiny, *constant), [word for word in words(tiny, *constant) if word != PHASES]
    short = [*short, PHASES.replace("{epochs: 2, unfreeze", "{epochs: 1, unfreeze")]
    assert run_here(tmp_path / "short", short)[0] == 0
    assert run_here(tmp_path / "long", [*long, f"trainer.resume={tmp_path / 'short'}"])[0] == 0
    assert losses_of(summary_of(tmp_path / "long")) == losses_of(summary_of(whole(constant)))
    assert are_equal(variables_of(tmp_path / "long"), variables_of(whole(constant)))
    assert summary_of(tmp_path / "long")["phases"] == summary_of(whole(constant))["phases"]
    says(refused([*short, f"trainer.resume={tmp_path / 'long'}"]))


def test_earlier_phases_and_those_of_a_schedule_over_them_stay_as_long(
    whole: Callable[[tuple[str, ...]], Path], tiny: Path, says: Says
) -> None:
    folder = whole(NONE)
    for first in ("{epochs: 2", "{epochs: 2, un"):
        given = PHASES.replace(first, first.replace("2", "3"), 1)
        resumed = [*(word for word in words(tiny, *NONE) if word != PHASES), given, f"trainer.resume={folder}"]
        says(refused(resumed), RUN=folder)


def refused(given: list[str]) -> str:
    """The whole message with which a run is not resumed."""
    return raised(EtlrunError, previous_run, resolve(Request(overrides=given), STAGES).plan, STAGES)


def test_the_record_has_the_phases(whole: Callable[[tuple[str, ...]], Path], says: Says) -> None:
    folder = whole(NONE)
    summary, page = summary_of(folder), (folder / "report.html").read_text()
    head, more = 1280 * 2 + 2, 16 * 8 + 8 * 1280
    says(summary["phases"])
    assert [of["trainable_parameters"] for of in summary["phases"]] == [head, head + more]
    begun = [event for event in events_of(folder) if event["event"] in ("phase_began", "epoch")]
    assert [event["event"] for event in begun] == ["phase_began", "epoch", "epoch"] * 2
    assert [event["phase"] for event in begun] == [1, 1, 1, 2, 2, 2]
    line = f"epochs 3 to 4, base trained: last 6 layers, {head + more:,} parameters, learning rate 0.01"
    assert f"- phase     2: {line}\n" in (folder / "report.md").read_text()
    assert f"<dt></dt><dd>2: {line}</dd>" in page
    assert "Phase 2 begins with epoch 3." in page


def test_batch_normalizations_stay_as_they_were(whole: Callable[[tuple[str, ...]], Path]) -> None:
    folder = whole(NONE)
    saved = keras.models.load_model(folder / "model.keras").layers[-2]
    trained = [layer.name for layer in saved.layers if layer.trainable and layer.weights]
    assert trained == ["expanded_conv_project", "Conv_1"]
    frozen = [layer for layer in saved.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert len(frozen) == 4
    for layer in frozen:
        gamma, beta, mean, variance = layer.get_weights()
        assert (gamma == 1).all() and (beta == 0).all() and (mean == 0).all() and (variance == 1).all()  # noqa: PT018


@pytest.mark.slow
def test_a_program_reaches_the_losses(
    whole: Callable[[tuple[str, ...]], Path], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shallow(monkeypatch)
    trained = of_words(words(tiny, *NONE), tmp_path)[1].train()
    found = [epoch for of in trained for epoch in losses_in(of.history)]
    np.testing.assert_allclose(found, losses_of(summary_of(whole(NONE))), atol=0, rtol=0)


@pytest.mark.slow
def test_a_run_of_images_goes_on_from_one_phase_to_the_next(
    whole: Callable[[tuple[str, ...]], Path], tiny: Path, tmp_path: Path
) -> None:
    def stops(self: EpochRecorder, *_: Any) -> None:
        if len(self.record.summary.epochs) == 1:
            raise KeyboardInterrupt

    resumed = resumed_after(tmp_path, words(tiny, *NONE), "on_test_begin", stops)
    assert losses_of(summary_of(resumed)) == losses_of(summary_of(whole(NONE)))
    assert are_equal(variables_of(resumed), variables_of(whole(NONE)))
