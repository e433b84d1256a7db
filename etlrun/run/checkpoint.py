"""Resuming of an interrupted run: the same config, the last checkpoint, the completed epochs."""

import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import is_zipfile

from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan, as_recorded
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse, show
from etlrun.record.config import CONFIG, PLAN, known_config
from etlrun.record.record import MODEL, is_nobodys
from etlrun.record.summary import SUMMARY, Epoch, Summary, read_summary
from etlrun.stages import Stages
from etlrun.stages.dataset import Dataset
from etlrun.stages.image import Decode
from etlrun.stages.objectives import falls
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, Fault, WorldError, counted, refuse
from etlrun.system.terminal import significant
from etlrun.system.values import frozen

CHECKPOINTS = "checkpoints"
_CHECKPOINT = re.compile(r"epoch_(\d{4,})\.keras")
_STATE = re.compile(r"epoch_(\d{4,})_step_(\d{6,})\.npz")
_FEWEST_STEPS = 2
_START_NEW = "start a new run without trainer.resume"


@frozen
class PreviousRun:
    """Interrupted run to resume.

    Attributes:
        folder: Folder of the run.
        checkpoint: Model after its last completed epoch; None if there is none.
        state: State inside the epoch after that; None to begin with a whole epoch.
        epochs: Completed epochs, as in `summary.json`.
        kept: Models of completed epochs that are there, by epoch: checkpoints, and the best one so far.
    """

    folder: Path
    checkpoint: Path | None
    state: Path | None
    epochs: list[Epoch]
    kept: Mapping[int, Path]


def checkpoints_in(folder: Path) -> list[int]:
    """Return the epochs (from 1) that have a checkpoint in `folder`."""
    names = (path.name for path in (folder / CHECKPOINTS).glob("epoch_*.keras"))
    return [int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))]


def checkpoint_path(folder: Path, epoch: int) -> Path:
    """Return the path of the checkpoint after `epoch` (from 1)."""
    return folder / CHECKPOINTS / f"epoch_{epoch:04}.keras"


def states_in(folder: Path) -> list[Path]:
    """Return the states inside epochs in `folder`, the newest last."""
    paths = (folder / CHECKPOINTS).glob("epoch_*_step_*.npz")
    found = {path: [*map(int, name.groups())] for path in paths if (name := _STATE.fullmatch(path.name))}
    return sorted(found, key=lambda path: found[path])


def state_path(folder: Path, epochs: int, steps: int) -> Path:
    """Return the path of the state after `epochs` completed epochs and `steps` steps."""
    return folder / CHECKPOINTS / f"epoch_{epochs:04}_step_{steps:06}.npz"


def checkpoints(folder: Path) -> list[Path]:
    """Return the files that the run in `folder` can be resumed from."""
    return [*(checkpoint_path(folder, epoch) for epoch in checkpoints_in(folder)), *states_in(folder)]


def resumable(folder: Path, summary: Summary) -> str | None:
    """Return the folder to resume the run in `folder` from: its own, or without a checkpoint that which it resumed."""
    return str(folder) if checkpoints(folder) else summary.resumed_from


def best_epoch(epochs: Sequence[Epoch], metric: str | None) -> int | None:
    """Return the first epoch (from 1) with the best finite value of `metric`; None without a metric or a value."""
    values = ((of.epoch, of.measure(metric)) for of in epochs) if metric else ()
    known = {epoch: value for epoch, value in values if value is not None and math.isfinite(value)}
    sign = -1 if falls(metric or "") else 1
    return max(known, key=lambda epoch: (sign * known[epoch], -epoch), default=None)


def previous_run(planned: Plan, stages: Stages) -> PreviousRun | None:
    """Return the run that `trainer.resume` names, or None; raises if it cannot be resumed."""
    trainer, dataset = planned.spec.fit, planned.spec.dataset
    if trainer is None or trainer.resume is None:
        return None
    left = _left_in(Path(trainer.resume))
    config, file = known_config(left.folder, _START_NEW), str(left.folder / CONFIG)
    try:
        before = plan(recalled(parse(config, stages), left.folder))
    except ConfigError as error:
        refuse(replace(of, file=file, remedy=of.remedy or _START_NEW) for of in error.faults)
    if isinstance(dataset, Rows) and isinstance(before.spec.dataset, Rows):
        identity, read = dataset.found.identity, before.spec.dataset.found.identity
        if identity != read:
            expected = f"those of the identity {read}, which {left.folder} has read"
            where, remedy = dataset.key(dataset.given_by), f"{dataset.restore}, or {_START_NEW}"
            raise WorldError(where, f"rows of the identity {identity}", expected, remedy)
    before = as_recorded(before, left.folder / PLAN)
    now, then = planned.decisive, before.decisive
    free = {f"{Trainer.path}.devices", f"{Trainer.path}.hosts"}
    if not trainer.schedule.needs_run:  # otherwise the rate depends on the number
        free.add(_epochs(trainer))
    faults, remedy = list[Fault](), f"resume with the same values, or {_START_NEW}"
    for key in sorted(of for of in now.keys() | then.keys() if now.get(of) != then.get(of) and of not in free):
        where = key.replace(f"{Trainer.path}.", f"{Trainer.block}.")
        expected = f"{show(then.get(key))}, as in {left.folder}"
        faults.append(Fault(where, show(now.get(key)), expected, remedy))
    if faults:
        raise ConfigError([*_other_library(planned, before, left.folder), *faults])
    _same_place(trainer, before.spec.fit, left)
    done, last = len(left.epochs), trainer.planned_phases[-1]
    if done > last.end:
        key, least = _epochs(trainer).replace(Trainer.path, Trainer.block), done - last.done
        of_phase = trainer.phases is not None
        expected = f"at least {least}, the epochs that {left.folder} has completed{' in this phase' * of_phase}"
        remedy = f"give the phase {least} epochs or more" if of_phase else f"set {key}={least} or more"
        raise WorldError(key, str(last.epochs), expected, remedy)
    return left


def noise_between(values: Sequence[float]) -> float | None:
    """Return by how much a value may be worse than the best of all of them by chance; None for too few of them.

    The noise of an epoch is estimated from differences of successive ones, in which a trend hardly counts (von Neumann,
    The mean square successive difference, 1941), by their median, so that the large steps of the first epochs don't
    count either: that of a normal difference is 0.6745 of its deviation. The best is one of many: Bonferroni's
    correction at 1 %, which is 5 % with an estimated deviation.
    """
    steps = [abs(after - before) for before, after in itertools.pairwise(values)]
    if len(steps) < _FEWEST_STEPS:
        return None
    normal = statistics.NormalDist()
    return normal.inv_cdf(1 - 0.01 / len(steps)) * statistics.median(steps) / normal.inv_cdf(0.75)


def note_of_last(epochs: Sequence[Epoch], monitor: str | None, kept: int | None = None) -> str | None:
    """Return the note that the last epoch is worse than the best by a measure, by more than the noise between epochs.

    `kept` is the epoch that is kept as the best; None if the last one is kept.
    """
    values = {of.epoch: value for of in epochs if (value := of.measure(monitor or "")) is not None}
    best, noise = kept or best_epoch(epochs, monitor), noise_between([*values.values()])
    if best is None or noise is None:
        return None
    last, name = epochs[-1].epoch, (monitor or "").replace("_", " ")
    worse = (values[last] - values[best]) * (1 if falls(monitor or "") else -1)
    if not worse > noise:
        return None
    text = f"The last epoch, {last}, is worse than epoch {best}: its {name} differs by {significant(worse)}, the noise "
    text += f"between epochs is {significant(noise)}"
    return f"{text}." if kept else f"{text}: {Trainer.key('keep')}=best keeps the best one."


def note_of_completed(left: PreviousRun, trainer: Trainer) -> str | None:
    """Return the note that a resumed run leaves nothing to train; None if it does."""
    last = trainer.planned_phases[-1]
    if len(left.epochs) < last.end:
        return None
    key = _epochs(trainer).replace(Trainer.path, Trainer.block)
    text = f"{left.folder} has completed all of its epochs ({last.end}), so nothing is trained"
    return f"{text}: for more, set {key}={last.epochs + 1} or more."


def _epochs(trainer: Trainer) -> str:
    """Return the key of the epochs of a run, or of its last phase, which may differ from those of the resumed run."""
    return f"{Trainer.path if trainer.phases is None else trainer.planned_phases[-1].path}.epochs"


def _left_in(folder: Path) -> PreviousRun:
    """Return the interrupted run in `folder`; `WorldError` if there is nothing to resume."""
    expected, remedy = "the folder of a run with a checkpoint, as after each epoch", _START_NEW
    is_over = is_nobodys(folder)  # checked before reading files that a running job may replace
    summary, done = read_summary(folder), max(checkpoints_in(folder), default=0)
    after = [path for path in states_in(folder) if path.name.startswith(f"epoch_{done:04}_")]  # of no later checkpoint
    state = after[-1] if after else None
    epochs = summary.epochs if summary else []
    if not is_over:
        found, expected = "a run that is still running", "a run that has ended"
        remedy = "wait for it to end, or stop it"
    elif summary is None:
        found = "no run"
    elif not done and state is None:
        found, before = "no checkpoint", summary.resumed_from
        remedy = f"resume the run that this one resumed: {Trainer.key('resume')}={before}" if before else remedy
    elif done > len(epochs):
        found = f"a checkpoint of epoch {done}, and {counted(len(epochs), 'epoch')} in {SUMMARY}"
        expected = f"all {done} epochs in {SUMMARY}, which a run writes before its checkpoint"
        remedy = f"copy the whole folder again after the run has ended, or {_START_NEW}"
    else:
        checkpoint = checkpoint_path(folder, done) if done else None
        kept = {epoch: checkpoint_path(folder, epoch) for epoch in checkpoints_in(folder)}
        if summary.kept is not None and summary.kept.epoch not in kept and is_zipfile(folder / MODEL):
            kept[summary.kept.epoch] = folder / MODEL
        return PreviousRun(folder=folder, checkpoint=checkpoint, state=state, epochs=epochs[:done], kept=kept)
    raise WorldError(f"{Trainer.key('resume')}={folder}", found, expected, remedy)


def _other_library(planned: Plan, before: Plan, folder: Path) -> Iterator[Fault]:
    """Yield the fault of another library that decodes, which changes stages, and is not itself among what decides."""
    steps = (of.spec.transform.steps for of in (planned, before))
    now, then = (next((step.library for step in of if isinstance(step, Decode)), None) for of in steps)
    if then is not None and now not in (None, then):
        key = Decode.key("library")
        yield Fault(key, str(now), f"{then}, as in {folder}", f"set {key}={then}, or {_START_NEW}")


def _same_place(now: Trainer, then: Trainer | None, left: PreviousRun) -> None:
    """Raise `ConfigError` if an epoch that was begun on some hosts is to be ended on another number of them."""
    if left.state is not None and then is not None and now.hosts != then.hosts:
        key = Trainer.key("hosts")
        expected = f"{then.hosts}, as in {left.folder}, which ended inside an epoch whose examples are shared by them"
        remedy = f"set {key}={then.hosts}, or remove {left.state}, so that the epoch begins again"
        raise ConfigError([Fault(key, str(now.hosts), expected, remedy)])


def has_read_the_same(previous: PreviousRun, digests: Mapping[str, str | None], dataset: Dataset) -> bool:
    """Return whether `previous` is known to have read these records, by pipeline digest; raises if it has not."""
    again = "TFDS writes different records each time it prepares a dataset; " if dataset.is_of_tfds else ""
    summary = read_summary(previous.folder)
    then = summary.dataset.digest if summary else {}
    for name, digest in digests.items():
        if digest is not None and then.get(name) not in (None, digest):
            expected = f"records of digest {then[name]}, which {previous.folder} has read"
            same = f"if the examples are known to be the same, remove `digest` from {previous.folder / SUMMARY}"
            remedy = f"{dataset.restore}, or {_START_NEW} ({again}{same})"
            raise WorldError(Dataset.key_of(name), f"records of digest {digest}", expected, remedy)
    known = summary.dataset.examples if summary else digests  # a resumed run may read further validation sets
    return None not in [digest and then.get(name) for name, digest in digests.items() if name in known]
