"""The result as an experiment for a config folder: the changed values, with their evidence as comments.

`etlrun check` reads the evidence back, and reports what is out of date.
"""

from __future__ import annotations

import shlex
import time
from typing import Any

import yaml

from etlrun.planning.spec import bare
from etlrun.review.evidence import Evidence
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.sweep.tune.search import Found
from etlrun.sweep.tune.space import changed, value_of
from etlrun.system.machine import megabytes

EXPERIMENT = "experiment="


def overlay(found: Found, overrides: list[str], name: str, files: list[str]) -> str:
    """Return the text of `experiment/NAME.yaml` for a search that found something; with `files` a command finds it."""
    assert found.winner is not None  # noqa: S101 - for mypy
    assert found.gain is not None  # noqa: S101 - for mypy
    evidence = Evidence.here(found.winner.plan.fingerprint, _others(found, overrides), found.winner.changes)
    values: dict[str, Any] = changed({}, found.winner.changes)
    base = [word.removeprefix(EXPERIMENT) for word in overrides if word.startswith(EXPERIMENT)]
    defaults = {"defaults": [*base[-1:], "_self_"]} if base else {}
    command = ["etlrun", *files, *evidence.overrides, f"{EXPERIMENT}{name}"]
    lines = [
        "# @package _global_",
        f"# {gain_words(found)}, found by `etlrun tune` on {time.strftime('%Y-%m-%d')}.",
        f"#   {shlex.join(command)}",
        *(f"# {line}" for line in proofs(found)),
        f"# Compare the later epochs of both again: {again(found, overrides)}",
        evidence.comment,
    ]
    return "\n".join([*lines, yaml.safe_dump(defaults | values, sort_keys=False)])


def gain_words(found: Found) -> str:
    """Return how much faster the winner is, with the interval."""
    gain, scene = found.gain, found.scene
    assert gain is not None  # noqa: S101 - for mypy
    assert scene is not None  # noqa: S101 - for mypy
    return f"{gain.words} times as fast over {scene.epochs} epoch{'s' * (scene.epochs > 1)}"


def proofs(found: Found) -> list[str]:
    """Return the noise, the data and the space, a sentence each."""
    lines = []
    if found.noise is not None and found.noise.median is not None:
        apart = f"{found.noise.median:.1%} in the median, {found.noise.largest:.1%} at most"
        lines.append(f"Two equal runs differ by {apart} ({found.noise.pairs} pairs).")
    assert found.winner is not None  # noqa: S101 - for mypy
    if found.digests is not None:
        is_same = found.winner.plan.fingerprint == found.baseline.plan.fingerprint
        plan, digests = "The same" if is_same else "Another", "the same" if found.digests else "OTHER"
        lines.append(f"{plan} fingerprint as the baseline, and {digests} examples by their digests.")
    if found.cache_bytes is not None:
        target = found.winner.config["cache"]
        lines.append(f"The cache takes {megabytes(found.cache_bytes)}: {target['name']}, {target['at']}.")
    return lines


def again(found: Found, overrides: list[str]) -> str:
    """Return the command of a sweep that compares the winner with the baseline once more."""
    assert found.winner is not None  # noqa: S101 - for mypy
    assert found.scene is not None  # noqa: S101 - for mypy
    scene, changes = found.scene, found.winner.changes
    pairs = [f"{key}={bare(value_of(found.baseline.config, key))},{bare(value)}" for key, value in changes.items()]
    zipped = [f"sweep.zip=[[{','.join(changes)}]]"] if len(changes) > 1 else []
    step = [f"trainer.step_ms={scene.step_ms:.4g}", f"trainer.step_cores={scene.step_cores:.3g}"]
    trainer = ["trainer=drain", f"trainer.epochs={scene.epochs}", *step]
    neutral = {Measure.key("au_min"): None, Load.key("class_weights"): "none"}
    words = [f"{key}={bare(value)}" for key, value in neutral.items() if value_of(found.baseline.config, key) != value]
    idle = words if value_of(found.baseline.config, "profile.name") == "none" else [*words, "profile=none"]
    replaced = ("trainer", *(word.partition("=")[0] for word in idle))
    others = _others(found, overrides, with_experiment=True)
    kept = [word for word in others if not word.lstrip("+").startswith(replaced)]
    return shlex.join(["etlrun", "-m", *found.files, *kept, *trainer, *idle, *pairs, *zipped, "sweep.repeats=5"])


def _others(found: Found, overrides: list[str], *, with_experiment: bool = False) -> list[str]:
    """Return the overrides that the experiment does not replace."""
    assert found.winner is not None  # noqa: S101 - for mypy
    return [
        word
        for word in overrides
        if word.partition("=")[0].lstrip("+") not in found.winner.changes
        and not word.startswith("tune.")
        and (with_experiment or not word.startswith(EXPERIMENT))
    ]
