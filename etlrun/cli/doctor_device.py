"""`etlrun doctor --device`: the device of a config, its driver, and operations that are tried on it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from etlrun.planning.plan import Plan
from etlrun.system import machine
from etlrun.system.terminal import print_table, say, say_note, say_whole

if TYPE_CHECKING:
    from etlrun.run.operations import Tried

_PACKAGES = ("tensorflow", "jax", "keras")


def of_device(plan: Plan, *, as_json: bool) -> None:
    """Try operations on the device of the trainer of `plan`, and print their times; exit with status 1 if one fails.

    Raises:
        WorldError: There is no such device, or the backend isn't built for it.
    """
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(plan.spec.fit) as backend:
        from etlrun.run.backend import built_for, fastest
        from etlrun.run.operations import tried

        host, listed = backend.host, machine.driver_gpus()
        policy = fastest(host.accelerators, listed) or "mixed_bfloat16"
        built, found = built_for(backend.name), [*tried(policy.removeprefix("mixed_"))]
        told = {
            "device": f"{host.device}, {host.cores} core{'s' * (host.cores > 1)}, {machine.rounded(host.memory_bytes)}",
            "driver": machine.driver_version() or "none",
            "gpus": [f"{gpu.name}, compute capability {'.'.join(map(str, gpu.capability))}" for gpu in listed],
            "backend": f"Keras's {backend.name} backend",
            "versions": {name: version for name, version in backend.versions.items() if name in _PACKAGES},
            "built_for": None if built is None else str(built),
        }
    if as_json:
        say_whole(json.dumps({**told, "operations": [dataclasses.asdict(of) for of in found]}, indent=2) + "\n")
    else:
        _print(told, found)
    if backend.unseen:
        say_note(backend.unseen)
    if any(of.error for of in found):
        raise SystemExit(1)


def _print(told: dict[str, Any], found: list[Tried]) -> None:
    for name, value in told.items():
        lines = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            lines = [", ".join(f"{package} {version}" for package, version in value.items())]
        for line in lines:
            if line is not None:
                say(f"{name.replace('_', ' '):9}  {line}")
    rows = [
        (
            of.operation,
            "yes" if of.is_compiled else "no",
            "" if of.first_s is None else f"{of.first_s:.3f}",
            "" if of.call_ms is None else f"{of.call_ms:.2f}",
            of.error or "works",
        )
        for of in found
    ]
    print_table(("name", "compiled", "first s", "ms", "result"), rows)
