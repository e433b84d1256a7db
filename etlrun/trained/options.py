"""Options of an evaluation that a run has no use for; without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.stages.objectives import kind_of
from etlrun.system.errors import Fault
from etlrun.trained.load import Trained


def unfit_options(run: Trained, threshold: float | None, repeats: int | None) -> Iterator[Fault]:
    """Yield the faults of options: numbers out of range, and what the run has no use for."""
    flow = run.then.spec.dataset.examples
    targets, has_columns = flow.targets, any(flow.features[name].format != "image" for name in flow.inputs)
    if threshold is not None and not any(kind_of(flow.features[name]) in ("binary", "labels") for name in targets):
        found, expected = f"a threshold for {', '.join(targets)}", f"a run of dataset.target={{{targets[0]}: binary}}"
        yield Fault(where="--threshold", found=found, expected=expected, remedy="leave it out")
    elif threshold is not None and not 0 < threshold < 1:
        yield Fault(where="--threshold", found=f"{threshold:g}", expected="a number between 0 and 1")
    if repeats and not has_columns:
        yield Fault(
            where="--importance", found="images alone", expected="inputs that are columns", remedy="leave it out"
        )
    elif repeats is not None and repeats < 0:
        yield Fault(where="--importance", found=str(repeats), expected="0 or a positive integer")
