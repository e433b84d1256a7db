"""Tables of the runs of gpu.py. Used by it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

TITLES = {
    "seen": "How the GPU is seen",
    "exercise": "The exercise and what comes after it, 1,600 photos, three epochs",
    "steps": "Steps of MobileNetV2 at 224x224, photos from memory",
    "equal": "The same trainings on the GPU, on a CPU, and on the GPU again",
    "kills": "Killed inside the third epoch and resumed",
}
UNTRIED = """
## Not tried

- Installed from the extras `gpu`, `jax-cuda12` and `jax-cuda13`: that pip resolves them on Python 3.12 was tried, to
  TensorFlow 2.21.0 with cuDNN 9.28, and to JAX 0.12.0.1 with CUDA 12.9 and 13.5. On Python 3.11 JAX ends at 0.10.2.
- `trainer.mixed_precision=auto` on a GPU, and steps in mixed precision to their end.
- Refusals of a card, a driver or a cuDNN: T4, A100, H100, RTX 4090, RTX 5090 and B200 are figures of tests.
- TensorFlow's backend on any GPU; steps that are not compiled, profiles, several GPUs, the second job of a sweep.
"""
LOSSES = ("loss", "val_loss")
Summary = dict[str, Any]


def tables(folder: Path) -> str:
    """The tables of all parts that have runs in `folder`, each with the machine that it was measured on."""
    lines = ["`python -m benchmarks.gpu`, by Keras's JAX backend; each run is a process of its own."]
    for part, title in TITLES.items():
        runs = summaries(folder / part)
        if runs:
            lines += ["", f"## {title}", "", *machines(runs.values()), ""]
            lines += {"equal": equal, "kills": kills, "seen": seen}.get(part, measured)(runs, folder / part)
    return "\n".join(lines) + "\n" + UNTRIED


def summaries(folder: Path) -> dict[str, Summary]:
    """The summaries of the runs in `folder`, by name, in the order in which they began."""
    found = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/summary.json")}
    return dict(sorted(found.items(), key=lambda of: of[1]["created_s"]))


def machines(runs: Iterable[Summary]) -> list[str]:
    """Sentences with the machine of `runs`, and their versions."""
    texts = set()
    for run in runs:
        if "host" not in run:  # it failed before
            continue
        host, versions = run["host"], run["versions"]
        names = ", ".join(
            f"{name} {versions[name]}" for name in ("jax", "keras", "numpy", "python") if name in versions
        )
        gpus, memory = " and ".join(host["driver_gpus"]) or "no GPU", f"{host['memory_bytes'] / 1e9:.0f} GB"
        texts.add(f"- {gpus}, {host['cores']} cores of {host['processor']}, {memory}; {names}.")
    return sorted(texts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


def measured(runs: dict[str, Summary], _: Path) -> list[str]:
    """Times of runs, apart from their first epoch, with the device that each has."""
    head = "run|device|status|start-up s|first epoch s|later epochs, s each|images/s|ms a step|waiting|AU|verdict"
    head += "|at most faster|pipeline alone, images/s|GPU busy|tensors, GB|last loss"
    return table(head.split("|"), [[name, *figures(run)] for name, run in runs.items()])


def figures(run: Summary) -> list[str]:
    """The cells of a run behind its name."""
    epochs, device = run.get("epochs", []), device_of(run)
    if len(epochs) < 2:
        return [device, status_of(run), *["-"] * 13]
    later, used, verdict = epochs[1:], run.get("resources") or {}, run.get("verdict") or {}
    wall_s = sum(epoch["wall_s"] for epoch in later)
    waited_s = sum(epoch["fill_wait_s"] + epoch["input_wait_s"] for epoch in later)
    stage = f" at {verdict['stage']}" if verdict.get("stage") else ""
    return [
        device,
        status_of(run),
        f"{sum(epoch['startup_s'] for epoch in epochs):.1f}",
        f"{epochs[0]['wall_s'] - epochs[0]['startup_s']:.2f}",
        f"{wall_s / len(later):.2f}",
        f"{sum(epoch['examples'] for epoch in later) / wall_s:,.0f}",
        number(run.get("step_floor_ms"), 1),
        f"{100 * waited_s / wall_s:.0f} %",
        number(100 * run["au"] if run.get("au") is not None else None, 0, " %"),
        f"{verdict.get('kind', '-')}{stage}",
        number(verdict.get("train_max_gain"), 2),
        number(run.get("pipeline_examples_per_s"), 0),
        ", ".join(f"{gpu['utilisation_percent']:.0f} %" for gpu in used.get("gpus", [])) or "-",
        number(used["peak_gpu_bytes"] / 1e9 if used.get("peak_gpu_bytes") else None, 2),
        f"{epochs[-1].get('loss') or float('nan'):.4f}",
    ]


def device_of(run: Summary) -> str:
    """The device of a run; a dash if it failed before it had one."""
    return str(run.get("host", {}).get("device", "-"))


def status_of(run: Summary) -> str:
    """The status of a run, of which none is running any more."""
    return "killed at its limit" if run["status"] == "running" else str(run["status"])


def number(value: float | None, digits: int, unit: str = "") -> str:
    """A number as text; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def seen(runs: dict[str, Summary], _: Path) -> list[str]:
    """The device and the notes of each run."""
    rows = [
        [name, status_of(run), device_of(run), run.get("au_of", "-"), " ".join(run.get("remarks", [])) or "-"]
        for name, run in runs.items()
    ]
    return table(["run", "status", "device", "AU of", "notes"], rows)


def equal(runs: dict[str, Summary], _: Path) -> list[str]:
    """The last losses on the GPU and elsewhere, or there again, and the largest relative difference of an epoch."""
    rows = []
    for name, run in runs.items():
        training, where = name.rsplit("-", 1)
        first = runs.get(f"{training}-gpu", {})
        both = [*zip(losses_of(first), losses_of(run), strict=False)]
        if where == "gpu" or not both:
            continue
        apart = [abs(ours / theirs - 1) for ours, theirs in both]
        cores, lasts = run["host"]["cores"], [f"{of:.6f}" for of in both[-1]]
        rows.append([training, device_of(first), f"{device_of(run)} of {cores} cores", len(both), *lasts])
        rows[-1] += [f"{apart[0]:.1e}", f"{max(apart):.1e}"]
    head = "training|device|and|losses|last on the first|on the second|difference of the first loss|largest of all"
    return table(head.split("|"), rows)


def losses_of(run: Summary) -> list[float]:
    """The losses of all epochs, of the training and the validation."""
    return [epoch[key] for epoch in run.get("epochs", []) for key in LOSSES if epoch.get(key) is not None]


def kills(runs: dict[str, Summary], folder: Path) -> list[str]:
    """Differences of repeated and of resumed runs from the first of their kind."""
    rows, weights = [], json.loads((folder / "weights.json").read_text(encoding="utf-8"))
    for name, run in runs.items():
        kind, _, how = name.partition("-")
        if name in weights:
            pairs = [*zip(losses_of(run), losses_of(runs[kind]), strict=False)]
            apart = max(abs(ours / theirs - 1) for ours, theirs in pairs)
            digests = [[epoch.get("digest") for epoch in of["epochs"]] for of in (run, runs[kind])]
            steps = sum(epoch.get("resumed_steps", 0) for epoch in run["epochs"])
            same = "equal" if digests[0] == digests[1] else "differ"
            device = device_of(run)
            first = abs(pairs[0][0] / pairs[0][1] - 1)
            cells = [kind, how, device, status_of(run), steps, same, f"{first:.1e}", f"{apart:.1e}"]
            rows.append([*cells, f"{weights[name]:.1e}"])
    head = (
        "operations|run|device|status|resumed after steps|digests|first loss, relative difference|largest of all losses"
    )
    return table([*head.split("|"), "weights and optimizer, largest difference"], rows)
