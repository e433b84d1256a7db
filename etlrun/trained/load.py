"""Loading of a run that has ended: summary, config with overrides, plan, fitted columns; without TensorFlow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from etlrun.config.overrides import typed
from etlrun.config.request import RESUME, overlaid
from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan, given_to_model, set_of_monitor, validates
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse, show
from etlrun.record.config import CONFIG, known_config
from etlrun.record.record import MODEL, is_nobodys
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, RUNNING, SUMMARY, Epoch, Summary, events, read_summary
from etlrun.remote.objects import look_up_again
from etlrun.run.checkpoint import checkpoint_path, checkpoints, checkpoints_in
from etlrun.sources.base import source_type
from etlrun.stages import STAGES, Stages
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.objectives import kind_of
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import EarlyStopping, Trainer
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, refuse
from etlrun.system.values import Block, Composed, frozen

_TRAIN_AGAIN = "train again with this version"
_ENDS = {RUNNING: "a run whose process was killed", FAILED: "a run that failed", INTERRUPTED: "an interrupted run"}
"""Runs that have ended without completing, by status."""
LAST = "last"
_ON_CORRUPT = ("raise", "skip")
_FILES = f"{Dataset.path}.files"
SPLIT = Dataset.key("split")
"""Key of an override that names the split to read: here, it is not that of the training."""
_FREE = {
    *(
        f"{Dataset.path}.{name}"
        for name in ("split", "eval_split", "dir", "files", "folder", "version", "errors", "csv", "on_corrupt")
    ),
    f"{Trainer.path}.device",
}
"""Values that may differ from those of the training, besides those of speed."""
_MONITOR = EarlyStopping.key("monitor")
_TYPES = f"{Dataset.path}.columns"
"""Types of the columns of rows, which another table has from the training unless an override names others."""


@frozen
class Trained:
    """A run whose model can be used.

    Attributes:
        folder: Folder of the run.
        summary: Its summary.
        then: Plan of the training.
        plan: The same plan with the overrides of the command.
        trainer: Trainer of the plan.
        backend: Keras backend of the training; None if the run did not note it.
        split_key: Config key of the split that the validation pipeline of `plan` reads.
        path: File of the model.
        epoch: The epoch that it is of, the kept one unless another was asked for; None if the run has none.
        named: Name of the validation set that is read; empty if `dataset.split` names none.
    """

    folder: Path
    summary: Summary
    then: Plan
    plan: Plan
    trainer: Trainer
    backend: str | None
    split_key: str
    path: Path
    epoch: Epoch | None
    named: str = ""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes in the order of the model's outputs; None if the run did not note them."""
        names = self.summary.dataset.classes
        return None if names is None else tuple(names)

    @cached_property
    def flow(self) -> Flow:
        """What the model takes of the validation, and its targets."""
        return given_to_model(self.plan.evaluation)

    @property
    def precision(self) -> str | None:
        """Keras's dtype policy of the training; None for float32."""
        then, on_host = self.trainer.mixed_precision, self.summary.host.precision
        return then if then != "auto" else None if on_host == "float32" else on_host

    @property
    def storage(self) -> Block:
        """How the store of files that are named by URLs is reached: as that of the dataset, if it may be in one."""
        return getattr(self.plan.spec.dataset, "storage", None) or {}

    @property
    def takes_images(self) -> bool:
        """Whether the only input of its model is an encoded image."""
        flow = self.then.spec.dataset.examples
        return [flow.features[name].format for name in flow.inputs] == ["image"]


def trained(
    folder: Path,
    words: Sequence[str] = (),
    stages: Stages = STAGES,
    *,
    reads_split: bool = True,
    epoch: str | None = None,
) -> Trained:
    """Return the run in `folder`, its config with the overrides `words`.

    `reads_split` says whether a split of a dataset is read, for which the run, or `dataset.split`, has to name one.
    `epoch` is `last` or a number for another epoch than the one that is kept.

    Raises:
        ConfigError: Overrides are invalid, or change more than the data and the speed.
        EtlrunError: There is no completed run of a model; with all faults of the overrides.
    """
    look_up_again()
    summary, faults = read_summary(folder), list(_run_faults(folder))
    if summary is None:
        raise EtlrunError(faults)
    try:
        config = known_config(folder, "restore the file, or train again")
    except WorldError as error:
        raise EtlrunError([*faults, *error.faults]) from error
    then, now, wrong, keys, named = None, None, list[Fault](), set[str](), ""
    try:
        then = plan(recalled(parse(config, stages), folder))
        faults += _model_faults(folder, summary, then)
    except ConfigError as error:
        for of in error.faults:
            where, remedy = f"{folder / CONFIG}: {of.where}", of.remedy or _TRAIN_AGAIN
            faults.append(replace(of, where=where, remedy=remedy))
    except WorldError as error:
        faults = faults or [*error.faults]
    number, path = _model(folder, summary, epoch, faults)
    try:
        after, keys = overlaid(config, words, summary.config_dir)
        named = _of_set(config, after, keys) if then else ""
        now = _now(config, after, keys, stages, reads_split=reads_split, like=then) if then else None
    except ConfigError as error:
        wrong += error.faults
    if now is not None and then is not None:
        wrong += (reads_split and [*_absent(now.spec.dataset)]) or _changed(now, then, keys)
        if reads_split and now.spec.dataset.eval_split is None:
            found, remedy = "no split, and the run has no validation", f"name one: {SPLIT}=SPLIT"
            wrong.append(Fault(SPLIT, found, "the split to read", remedy))
    refuse([*faults, *wrong], EtlrunError if faults else ConfigError)
    assert now is not None and then is not None and now.spec.fit is not None  # noqa: S101, PT018 - for mypy
    started = [of for of in events(folder) if of.get("event") == "started" and "backend" in of]
    return Trained(
        folder=folder,
        summary=summary,
        then=then,
        plan=now,
        trainer=now.spec.fit,
        backend=started[-1]["backend"] if started else None,
        split_key=SPLIT if SPLIT in keys else Dataset.key_of("validation"),
        path=path,
        epoch=next((of for of in summary.epochs if of.epoch == number), None),
        named=named,
    )


def _of_set(config: Composed, after: Block, keys: set[str]) -> str:
    """Let `dataset.split` be what the validation set of that name reads; return the name, empty if it is none."""
    dataset, sets = after["dataset"], config["dataset"].get("eval_splits") or {}
    name = next((of for of in sets if str(of) == str(dataset["split"])), None)  # which YAML may read as a number
    if SPLIT not in keys or name is None:
        return ""
    if isinstance(sets[name], str):
        dataset["split"] = sets[name]
    else:
        dataset |= {"split": "train", **({"split_by": None} if "split_by" in dataset else {}), **sets[name]}
        keys.add(Dataset.path)  # since it is another dataset
    return str(name)


def _model(folder: Path, summary: Summary, epoch: str | None, faults: list[Fault]) -> tuple[int, Path]:
    """Return the number of an epoch, 0 for none, and the file of its model; the fault of one that is not there."""
    kept, last = (of.epoch if of else 0 for of in (summary.kept_epoch, next(reversed(summary.epochs), None)))
    number = kept if epoch is None else last if epoch == LAST else int(epoch) if epoch.isdecimal() else 0
    path = folder / MODEL if number == kept else checkpoint_path(folder, number)
    if epoch is not None and not faults and (number == 0 or not path.is_file()):
        there = ", ".join(map(str, sorted({kept, *checkpoints_in(folder)})))
        found = epoch if epoch != LAST else f"{epoch}, which is {number}"
        remedy = f"choose one of them; {Trainer.key('checkpoint_keep')}=N keeps those of the last N epochs"
        faults.append(Fault("--epoch", found, f"an epoch with a saved model: {there}", remedy))
    return number, path


def _run_faults(folder: Path) -> Iterator[Fault]:
    """Yield why the folder holds no run that has completed."""
    is_over = is_nobodys(folder)  # checked before reading files that a running job may replace
    summary, remedy = read_summary(folder), "check the path"
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
    elif summary is None and (folder / SUMMARY).is_file():
        found, remedy = f"a {SUMMARY} that this version can't read", _TRAIN_AGAIN
    elif summary is None:
        found = f"no run: there is no {SUMMARY}"
        inner = sorted(path.parent.name for path in folder.glob(f"*/{SUMMARY}"))
        remedy = f"name one of the runs in it, such as {folder / inner[0]}" if inner else remedy
    elif not is_over:
        found, remedy = "a run that is still running", "wait for it to end, or stop it"
    elif summary.status != COMPLETED:
        found = _ENDS[summary.status] + (f": {summary.error.splitlines()[0]}" if summary.error else "")
        remedy = f"resume it: etlrun {typed(RESUME, folder)}" if checkpoints(folder) else "train again"
    else:
        return
    yield Fault(str(folder), found, "the folder of a completed run", remedy)


def _model_faults(folder: Path, summary: Summary, then: Plan) -> Iterator[Fault]:
    """Yield why the run leaves no model that predicts anything."""
    spec, expected = then.spec, "a run of trainer=fit with a model that learns"
    if spec.fit is None:
        yield Fault(str(folder), "a run of trainer=drain, which trains no model", expected)
    elif not spec.model.learns:
        found = f"a run of {spec.model.path}, which learns nothing"
        yield Fault(str(folder), found, expected)
    elif summary.status == COMPLETED and not (folder / MODEL).is_file():
        found = "a folder" if (folder / MODEL).is_dir() else "no such file"
        yield Fault(str(folder / MODEL), found, "the trained model", model_again(folder))


def model_again(folder: Path) -> str:
    """Return the remedy for a model of a run that is not there, or damaged."""
    return f"restore it, or resume the run, whose new folder has the model: etlrun {typed(RESUME, folder)}"


def _absent(dataset: Dataset) -> Iterator[Fault]:
    """Yield that the rows that a command reads are not on this machine."""
    if isinstance(dataset, Rows) and not source_type(dataset).is_there(dataset):
        expected = "the rows to read: the folder of a run keeps the fitted values of their columns, not the rows"
        yield Fault(dataset.key(dataset.given_by), "no rows on this machine", expected, dataset.restore)


def _now(config: Composed, after: Block, keys: set[str], stages: Stages, *, reads_split: bool, like: Plan) -> Plan:
    """Return the plan of a config `after` overrides of `keys`, whose `dataset.split` is what the validation reads."""
    dataset, before, hidden = after["dataset"], config["dataset"], ""
    sets, dataset["eval_splits"] = before.get("eval_splits") or (), None  # read by their names alone: `_of_set`
    if SPLIT in keys:
        dataset["eval_split"], files, hidden = dataset["split"], dataset.get("files"), Dataset.key_of("validation")
        lacks = isinstance(files, Mapping) and before["split"].partition("[")[0] not in files
        if Dataset.path not in keys and not (_FILES in keys and lacks):
            dataset["split"] = before["split"]
    elif not reads_split and dataset["eval_split"] is None:
        dataset["eval_split"] = dataset["split"]  # so that the steps of the validation are planned
    on_corrupt = dataset.get("on_corrupt")
    if on_corrupt in _ON_CORRUPT:  # what the training could not skip, this pass can
        dataset["on_corrupt"] = before["on_corrupt"]
    try:
        spec = parse(after, stages)
        if isinstance(spec.dataset, Rows):
            from etlrun.planning.rows import with_columns_of  # which imports Arrow

            spec = with_columns_of(spec, like.spec, reads=reads_split)
        if set_of_monitor(like.spec) and spec.fit is not None and _MONITOR not in keys:  # which nothing reads here
            stopping = replace(spec.fit.early_stopping, monitor="loss")
            spec = replace(spec, trainer=replace(spec.fit, early_stopping=stopping))
        planned = plan(spec)
    except EtlrunError as error:
        others = f", or a validation set of the run: {', '.join(map(str, sets))}" * bool(sets)
        faults = [
            replace(of, where=SPLIT, expected=of.expected + others) if of.where == hidden else of for of in error.faults
        ]
        raise (ConfigError if isinstance(error, ConfigError) else EtlrunError)(faults) from error
    if on_corrupt not in _ON_CORRUPT:
        return planned
    skipping = replace(planned.spec.dataset, on_corrupt=on_corrupt)
    return replace(planned, spec=replace(planned.spec, dataset=skipping))


def _changed(now: Plan, then: Plan, keys: set[str]) -> Iterator[Fault]:
    """Yield a fault for each override of these keys that changes more than the data and the speed."""
    is_other_data, had_none = Dataset.path in keys, not validates(then.spec)
    changed: dict[str, tuple[Any, Any]] = {}
    for path in sorted(now.decisive.keys() | then.decisive.keys()):
        one, other = now.decisive.get(path), then.decisive.get(path)
        pipeline, _, key = path.rpartition("/")
        is_free = key in _FREE or (is_other_data and key.startswith(f"{Dataset.path}."))
        is_free = is_free or key.startswith(f"{Dataset.key('eval_splits')}.") or (key == _MONITOR and key not in keys)
        is_free = is_free or (key == _TYPES and not any(_sets(override, key) for override in keys))
        if one != other and not is_free and not (had_none and pipeline == "eval"):
            changed.setdefault(key, (one, other))
    overrides = {key: override for key in changed for override in keys if _sets(override, key)}
    for key, (found, expected) in sorted(changed.items(), key=lambda item: overrides.get(item[0], item[0])):
        if key in overrides or not overrides:  # all others follow from these
            yield Fault(
                overrides.get(key, key),
                show(found),
                f"{show(expected)}, as in the training: only the data and the speed may differ",
                "leave it out, or train a model with it",
            )
    if _seen(now) != _seen(then):
        found, expected = (
            ", ".join(f"{name} ({kind})" for name, kind in _seen(of)[0].items())
            if isinstance(of.spec.dataset, Rows)
            else str(of.spec.dataset.examples)
            for of in (now, then)
        )
        expected += ", as in the training"
        yield Fault(Dataset.path, found, expected, "choose a dataset with these features")


def _sets(override: str, value: str) -> bool:
    """Return whether the key of an override is that of a plan's value, whose stage has a longer path."""
    one, other = override.split("."), value.split(".")
    return (one[0], one[-1]) == (other[0], other[-1])


def _seen(planned: Plan) -> tuple[Block, str]:
    """Return the features and the target that the model sees: of rows their types, since others have other ranges."""
    examples, is_rows = planned.spec.dataset.examples, isinstance(planned.spec.dataset, Rows)
    return {
        name: of.format or ("text" if of.dtype == "string" else "number") if is_rows else of
        for name, of in examples.features.items()
    }, examples.target


def unfit_options(run: Trained, threshold: float | None, repeats: int | None) -> Iterator[Fault]:
    """Yield the faults of options: numbers out of range, and what the run has no use for."""
    flow = run.then.spec.dataset.examples
    kinds = {kind_of(flow.features[name]) for name in flow.targets}
    if threshold is not None and kinds.isdisjoint(("binary", "labels")):
        found = f"a threshold for {', '.join(flow.targets)}"
        yield Fault("--threshold", found, f"a run of dataset.target={{{flow.target}: binary}}", "leave it out")
    elif threshold is not None and not 0 < threshold < 1:
        yield Fault("--threshold", f"{threshold:g}", "a number between 0 and 1")
    if repeats and all(flow.features[name].format == "image" for name in flow.inputs):
        yield Fault("--importance", "images alone", "inputs that are columns", "leave it out")
    elif repeats is not None and repeats < 0:
        yield Fault("--importance", str(repeats), "0 or a positive integer")
