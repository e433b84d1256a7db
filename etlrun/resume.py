"""Going on with an interrupted run: the same config, the last checkpoint, the epochs so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun import record as records
from etlrun.errors import ConfigError, Fault, WorldError
from etlrun.plan import Plan
from etlrun.planning import plan
from etlrun.spec import parse, show
from etlrun.stages import Stages
from etlrun.stages.trainer import Trainer

CHECKPOINTS = "checkpoints"
_OPTION = "trainer.resume="
_FREE = "trainer.fit.epochs"
"""What may differ from the run that is gone on with."""


@dataclass(frozen=True, kw_only=True)
class PreviousRun:
    """What is left of an interrupted run.

    Attributes:
        folder: Of that run.
        checkpoint: The model after its last completed epoch.
        epochs: Its completed epochs, as in `summary.json`.
    """

    folder: Path
    checkpoint: Path
    epochs: list[dict[str, Any]]


def with_overrides_of_resumed_run(words: list[str]) -> list[str]:
    """`words` with the overrides that the run in `trainer.resume=FOLDER` was started with; later ones win."""
    options = [word for word in words if word.startswith(_OPTION) and word != f"{_OPTION}null"]
    if not options:
        return words
    summary = records.read_summary(Path(options[-1].removeprefix(_OPTION).strip("'\"")))
    if summary is None:
        return words
    own_configs = [f"--config-dir={summary['config_dir']}"] if summary.get("config_dir") else []
    return merged(summary["overrides"], [*own_configs, *words])


def merged(before: Iterable[str], now: Sequence[str]) -> list[str]:
    """The overrides of a command line that went before, and those of this one, which win."""
    given = {_key(word) for word in now}
    return [*(word for word in before if _key(word) not in given), *now]


def _key(word: str) -> str:
    return word.split("=", maxsplit=1)[0].lstrip("+~")


def checkpoint_path(folder: Path, epoch: int) -> Path:
    """Where the model after `epoch` (from 1) is kept."""
    return folder / CHECKPOINTS / f"epoch_{epoch:04}.keras"


def previous_run(planned: Plan, stages: Stages) -> PreviousRun | None:
    """The run that `trainer.resume` names, or None; refused where it can't be gone on with."""
    trainer = planned.spec.trainer
    if not isinstance(trainer, Trainer) or trainer.resume is None:
        return None
    folder = Path(trainer.resume)
    summary = records.read_summary(folder)
    saved = sorted((folder / CHECKPOINTS).glob("epoch_*.keras"))
    if summary is None or not saved:
        found = "no checkpoint" if summary else "no run"
        raise WorldError(
            where=f"trainer.resume={folder}",
            found=found,
            expected="the folder of a run that completed at least one epoch",
            remedy="start the run anew, without trainer.resume",
        )
    done = int(saved[-1].stem.removeprefix("epoch_"))
    if done > trainer.epochs:
        raise WorldError(
            where="trainer.epochs",
            found=str(trainer.epochs),
            expected=f"at least {done}, the epochs that {folder} has completed",
            remedy=f"set trainer.epochs={done} or more",
        )
    _same_config(planned, plan(parse(records.read_config(folder), stages)), folder)
    return PreviousRun(folder=folder, checkpoint=saved[-1], epochs=summary["epochs"][:done])


def _same_config(planned: Plan, before: Plan, folder: Path) -> None:
    now, then = planned.decisive, before.decisive
    faults = [
        Fault(
            where=key,
            found=show(now.get(key)),
            expected=f"{show(then.get(key))}, as in {folder}",
            remedy="go on with the same values, or start a new run without trainer.resume",
        )
        for key in sorted(now.keys() | then.keys())
        if now.get(key) != then.get(key) and key != _FREE
    ]
    if faults:
        raise ConfigError(faults)
