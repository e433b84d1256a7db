"""The library that decodes images: where it changes the data, and where TensorFlow does its work."""

from __future__ import annotations

import dataclasses
from typing import Literal

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import validates
from etlrun.stages.image import Decode
from etlrun.stages.step import Map
from etlrun.stages.turbo import turbo_of, turbo_steps

FAST = (
    Decode.key("fast"),
    "true",
    "`resize` right after `decode`, and no cache between the two, since its size decides the scale",
    "set transform.decode.fast=false, or move the step or the cache between the two",
)
"""The fault of `fast` where `turbo` does not resize what it decodes."""


def is_fast(steps: Map) -> bool:
    """Return whether images are decoded more coarsely than TensorFlow does."""
    return any(isinstance(step, Decode) and step.fast for step in steps.steps)


def with_library(steps: Map, library: Literal["tensorflow", "turbo"]) -> Map:
    """Return the same steps with images decoded by that library."""
    decoded = (dataclasses.replace(step, library=library) if isinstance(step, Decode) else step for step in steps.steps)
    return dataclasses.replace(steps, steps=tuple(decoded))


def by_tensorflow(spec: RunSpec) -> RunSpec:
    """Return the same run with images decoded and resized by TensorFlow; as it is if it decodes them `fast`."""
    if is_fast(spec.transform) or is_fast(spec.eval_transform):
        return spec
    return dataclasses.replace(
        spec,
        transform=with_library(spec.transform, "tensorflow"),
        eval_transform=with_library(spec.eval_transform, "tensorflow"),
    )


def resizes(spec: RunSpec, library: Literal["tensorflow", "turbo"] | None = None) -> bool:
    """Return whether `turbo` resizes images of a run, or would if they were decoded by that library."""
    for whole in (spec.transform, *([spec.eval_transform] if validates(spec) else [])):
        steps = (whole if library is None else with_library(whole, library)).steps
        part = [step for step, fits in zip(steps, turbo_steps(steps), strict=True) if fits]
        if turbo_of(part, whole, skips=False) is not None:
            return True
    return False
