"""Going on with an interrupted run: the same config, the last checkpoint, the epochs so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from etlrun.config.request import RESUME
from etlrun.errors import ConfigError, Fault, WorldError, headline
from etlrun.plan.plan import Plan
from etlrun.plan.planner import plan
from etlrun.plan.spec import parse, show
from etlrun.record import record as records
from etlrun.record.locks import is_nobodys
from etlrun.record.summary import SUMMARY, Epoch, read_summary
from etlrun.stages import Stages
from etlrun.stages.dataset import Dataset
from etlrun.stages.trainer import Trainer

CHECKPOINTS = "checkpoints"
_CHECKPOINT = re.compile(r"epoch_(\d{4,})\.keras")
_START_ANEW = "start the run anew, without trainer.resume"
_FREE = f"{Trainer.path}.epochs"
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
    epochs: list[Epoch]


def newest_checkpoint(folder: Path) -> int:
    """The last epoch (from 1) after which the run in `folder` kept its model; 0 where it kept none."""
    names = (path.name for path in (folder / CHECKPOINTS).glob("epoch_*.keras"))
    return max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=0)


def checkpoint_path(folder: Path, epoch: int) -> Path:
    """Where the model after `epoch` (from 1) is kept."""
    return folder / CHECKPOINTS / f"epoch_{epoch:04}.keras"


def previous_run(planned: Plan, stages: Stages) -> PreviousRun | None:
    """The run that `trainer.resume` names, or None; refused where it can't be gone on with."""
    trainer = planned.spec.fit
    if trainer is None or trainer.resume is None:
        return None
    left = _left_in(Path(trainer.resume))
    done = len(left.epochs)
    if done > trainer.epochs:
        raise WorldError(
            where=trainer.key("epochs"),
            found=str(trainer.epochs),
            expected=f"at least {done}, the epochs that {left.folder} has completed",
            remedy=f"set trainer.epochs={done} or more",
        )
    _same_config(planned, plan(parse(_config_in(left.folder), stages)), left.folder)
    return left


def _left_in(folder: Path) -> PreviousRun:
    """What the run in `folder` left; `WorldError` where nothing can be gone on with."""
    expected, remedy = "the folder of a run that completed at least one epoch", _START_ANEW
    is_over = is_nobodys(folder)  # before anything is read that a run may still replace
    summary, done = read_summary(folder), newest_checkpoint(folder)
    epochs = summary.epochs if summary else []
    if not is_over:
        found, expected, remedy = "a run that still goes on", "a run that has ended", "wait for its end, or stop it"
    elif summary is None:
        found = "no run"
    elif not done:
        found, before = "no checkpoint", summary.resumed_from
        remedy = f"resume the run that this one went on with: {RESUME}{before}" if before else remedy
    elif done > len(epochs):
        found = f"a checkpoint of epoch {done}, and {len(epochs)} epochs in {SUMMARY}"
        expected = f"all {done} epochs in {SUMMARY}, which a run writes before its checkpoint"
        remedy = f"copy the whole folder again, after the run's end, or {_START_ANEW}"
    else:
        return PreviousRun(folder=folder, checkpoint=checkpoint_path(folder, done), epochs=epochs[:done])
    raise WorldError(where=f"{RESUME}{folder}", found=found, expected=expected, remedy=remedy)


def _config_in(folder: Path) -> dict[str, Any]:
    try:
        return records.read_config(folder)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise WorldError(
            where=str(folder / records.CONFIG),
            found=headline(error),
            expected="the config that the run was started with",
            remedy=_START_ANEW,
        ) from error


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


def has_read_the_same(previous: PreviousRun, digests: Mapping[str, str | None]) -> bool:
    """Whether `previous` is known to have read the records of these digests, by pipeline; refused where it has not."""
    summary = read_summary(previous.folder)
    then = summary.dataset.digest if summary else {}
    for name, digest in digests.items():
        if digest is not None and then.get(name) not in (None, digest):
            raise WorldError(
                where=Dataset.key_of(name),
                found=f"records of digest {digest}",
                expected=f"records of digest {then[name]}, which {previous.folder} has read",
                remedy="set dataset.data_dir to those, or start a new run without trainer.resume (TFDS writes other "
                "records each time that it prepares one data set; where the examples are known to be the same, remove "
                f"`digest` from {previous.folder / SUMMARY})",
            )
    return None not in [digest and then.get(name) for name, digest in digests.items()]
