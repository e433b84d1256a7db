"""The library that decodes images: where it changes the data, and where TensorFlow does its work."""

from __future__ import annotations

import dataclasses
from typing import Literal

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import validates
from etlrun.stages.image import CenterCrop, Decode, Resize
from etlrun.stages.step import Map
from etlrun.stages.turbo import turbo_of, turbo_steps


def unfit_for_fast(steps: Map) -> tuple[str, str, str, str]:
    """Return the fault of `fast` where `turbo` does not resize what it decodes: of values of `resize`, or its place."""
    where, off = Decode.key("fast"), "set transform.decode.fast=false, or "
    place = next(place for place, step in enumerate(steps.steps) if isinstance(step, Decode))
    behind = steps.steps[place + 1 : place + 3]
    if behind and not isinstance(behind[0], CenterCrop):
        behind = behind[:1]
    resize = next((step for step in behind if isinstance(step, Resize)), None)
    if resize is None:
        expected = "`resize` right after `decode`, and no cache between the two, since its size decides the scale"
        return where, "true", expected, f"{off}move the step or the cache between the two"
    values = {resize.key(name): (str(found).lower(), str(of).lower()) for name, found, of in resize.beyond_turbo}
    found = ", ".join(f"{key}={value}" for key, (value, _) in values.items())
    fit = " ".join(f"{key}={value}" for key, (_, value) in values.items())
    return where, f"true, with {found}", f"{fit}, as OpenCV resizes", f"{off}{fit}"


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


def served(spec: RunSpec) -> RunSpec:
    """Return the run with images decoded by TensorFlow if it reads from a service."""
    return spec if spec.load.service is None else by_tensorflow(spec)
