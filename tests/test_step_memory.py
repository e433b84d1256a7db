"""Memory of a training step, which `plan --memory` says."""

import json
import re
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.run.memory import StepMemory
from tests.commands import complaint
from tests.golden import Says
from tests.quick import shallow
from tests.runs import emulated, finish_well, small, start

_PARTS = ("weights", "optimizer", "batch", "computed")


def test_a_plan_says_the_memory_of_a_step(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow(monkeypatch)
    words = small(tiny, "model.trainable=true", "cache=memory")
    cli.main(["plan", *words, "--memory", "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    found = told["step_memory"]
    assert found["bytes"] == sum(found[part] for part in _PARTS)
    assert found["batch"] == 8 * (32 * 32 * 3 + 8)
    assert found["how"] == "the growth of this process in one step, without a GPU"
    cli.main(["plan", *words, "--memory"])
    out = capsys.readouterr().out
    cli.main(["plan", *words])
    text, line = capsys.readouterr().out, out.splitlines()[-1]
    assert out == f"{text}{line}\n"
    size = r"[\d.,]+ (kB|MB|bytes)"
    parts = ", ".join(f"{part} {size}" for part in _PARTS)
    assert re.fullmatch(rf"memory of a step: {size}: {parts} \({found['how']}\)", line)


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_the_compiler_of_jax_says_it_exactly(tiny: Path, tmp_path: Path) -> None:
    told = {}
    for size, trainable in ((8, "true"), (16, "true"), (8, "false")):
        words = small(tiny, f"load.batch_size={size}", f"model.trainable={trainable}")
        out, _ = finish_well(start(["plan", *words, "--memory", "--format", "json"], tmp_path, KERAS_BACKEND="jax"))
        told[size, trainable] = json.loads(out)["step_memory"]
    whole, doubled, frozen = told.values()
    assert whole["how"] == "the compiler's analysis of the step for cpu"
    assert whole["weights"] == doubled["weights"] == frozen["weights"]
    # Adam has two variables of the size of each weight that is trained, its step and its rate.
    assert whole["optimizer"] > whole["weights"]
    assert frozen["optimizer"] < whole["weights"] / 10
    assert doubled["batch"] == 2 * whole["batch"] == 16 * (32 * 32 * 3 + 8)
    assert frozen["computed"] < whole["computed"] < doubled["computed"] < 2 * whole["computed"]


def test_a_step_that_does_not_fit_is_refused(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    shallow(monkeypatch)
    message = complaint(capsys, "plan", *small(tiny), "--fits", "20 kB", status=2)
    says(re.sub(r"takes .*?\(", "takes SIZES (", message))
    cli.main(["plan", *small(tiny), "--fits", "100GB"])
    assert "memory of a step: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weights", "remedy"),
    [(10, "set a smaller load.batch_size: an example takes at most 15 bytes"), (100, "choose a smaller model")],
)
def test_the_remedy_is_what_can_help(weights: int, remedy: str) -> None:
    found = StepMemory(weights=weights, optimizer=0, batch=20, computed=100, how="by hand")
    assert str(found.past(50, 8)) == (
        f"load.batch_size: found 8, of which a training step takes {120 + weights} bytes: weights {weights} bytes, "
        f"optimizer 0 bytes, batch 20 bytes, computed 100 bytes (by hand); expected at most 50 bytes, as --fits says\n"
        f"    -> {remedy}"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("trainer=drain",),
        ("trainer.devices=2", "load.drop_remainder=true"),
        ("cache=memory", "cache.at=features"),
        ("--multirun", "load.batch_size=1,2"),
    ],
)
def test_plans_without_such_a_step(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(complaint(capsys, "plan", "model.trainable=false", *words, "--memory", status=2))


def test_an_emulated_step(tiny: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(complaint(capsys, "plan", *emulated(tiny), "--memory", status=2))
