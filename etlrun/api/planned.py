"""A planned run: its text, its datasets, and the run itself."""

from __future__ import annotations

import copy
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from etlrun.api.run import Run, require_words
from etlrun.config import grid
from etlrun.config.folders import own_folder
from etlrun.config.grid import Job
from etlrun.config.request import RESUME, Request, changed_from_defaults, composer, noted, unfit_folder, with_hydra
from etlrun.graph import figures
from etlrun.planning.outline import outline
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.report.doc import Code, Doc
from etlrun.report.render import RENDER, fragment
from etlrun.review.document import of_review
from etlrun.review.review import Review, review
from etlrun.review.sides import Side, Variant
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind
from etlrun.sweep.sides import sides_of
from etlrun.system.errors import ConfigError, EtlrunError, WorldError, fault, refuse
from etlrun.system.values import Block, Composed

if TYPE_CHECKING:
    from etlrun.api.run import Sweep
    from etlrun.run.session import Datasets


def diff(
    old: str | Path | Sequence[str] | Planned | Run | Sweep,
    new: str | Path | Sequence[str] | Planned | Run | Sweep | None = None,
    *,
    config_dir: Path | str | None = None,
) -> Diff:
    """Return what a change from `old` to `new` changes: the data, the order, the training, or only the speed.

    Each side is what `etlrun diff` takes: overrides in one string, a config file, the folder of a run or of a sweep, or
    a git revision. Or it is overrides in a list, what `etlrun.plan` returns, or what `etlrun.load` returns. Without
    `new` it is the configs of the working tree; of a run or a sweep, those that its overrides compose now.

    Raises:
        ConfigError: A side is no such thing, or its config is invalid; with all faults.
        EtlrunError: A run or a sweep can't be read.
    """
    own = None if config_dir is None else os.fspath(config_dir)
    before, after, experiment = sides_of(_side(old), None if new is None else _side(new), None, own)
    found = review(before, after, experiment)
    if found.is_faulty:
        raise ConfigError([fault for reviewed in found.experiments for fault in reviewed.faults])
    return Diff(found)


def _side(given: str | Path | Sequence[str] | Planned | Run | Sweep) -> str | Side:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    if isinstance(given, Planned):
        variant = Variant(config=given.config, plan=given.plan)
        return Side(word=shlex.join(given.overrides), variants={"": variant})
    if (folder := getattr(given, "folder", None)) is not None:
        return str(folder)
    if not isinstance(given, list | tuple):
        expected = "overrides in a string or a list, a path, a git revision, or what plan or load returns"
        raise ConfigError([fault("diff", f"a {type(given).__name__}", expected)])
    require_words(given, "etlrun.diff")
    return shlex.join(given)


class Diff:
    """Comparison of two configs, or of all experiments of two revisions, made by `etlrun.diff`.

    Attributes:
        review: All that `etlrun diff` reports.
    """

    def __init__(self, review: Review) -> None:
        self.review = review

    @property
    def changes_data(self) -> bool:
        """Whether the examples differ, or may differ."""
        return self._changes(DATA)

    @property
    def changes_order(self) -> bool:
        """Whether the order of the examples differs."""
        return self._changes(ORDER)

    @property
    def changes_training(self) -> bool:
        """Whether the model differs, or how it is trained."""
        return self._changes(TRAINING)

    @property
    def changes_speed(self) -> bool:
        """Whether something differs that changes the speed."""
        return self._changes(SPEED)

    def _changes(self, kind: Kind) -> bool:
        return any(kind in reviewed.kinds for reviewed in self.review.experiments)

    def __str__(self) -> str:
        return RENDER["text"](of_review(self.review))

    def __repr__(self) -> str:
        found = self.review.experiments
        says = found[0].headline if len(found) == 1 else f"{sum(of.changes for of in found)} of {len(found)} differ"
        return f"<etlrun diff of {self.review.old} and {self.review.new}: {says}>"

    def _repr_html_(self) -> str:
        return fragment(of_review(self.review))


_HOSTS = "a program has this host alone: start it with the command line"
_running = Lock()


def plan(*overrides: str, config_dir: Path | str | None = None, config_name: str | None = None) -> Planned:
    """Return the plan of a config, as `etlrun plan OVERRIDE ...` shows it, without importing TensorFlow.

    Args:
        *overrides: Overrides as on the command line, such as `"experiment=parallel"`, `"load.batch_size=32"`.
            `"trainer.resume=RUN"` takes those of that run; others take precedence.
        config_dir: Folder of your own configs (`--config-dir`); default: that of the current folder.
        config_name: Name of the primary config (`--config-name`).

    Raises:
        ConfigError: The config is invalid; with all of its faults.
        EtlrunError: The dataset is here, and does not have the splits.
    """
    require_words(overrides, "etlrun.plan")
    given = None if config_dir is None else os.fspath(config_dir)
    request = Request(overrides=list(overrides), config_dir=given, config_name=config_name).resuming()
    request = replace(request, config_dir=(own := request.own_dir) and str(own_folder(own)))
    job = grid.resolve(request, STAGES)
    return Planned(request, job, figures.with_figures(job.plan), changed_from_defaults(request, job.config))


class Planned:
    """A run before it starts, made by `etlrun.plan`. It holds what the config files said then."""

    def __init__(self, request: Request, job: Job, shown: Plan, changed: Composed) -> None:
        """Hold a request, its job, its plan with notes on the data here, and what is changed from the defaults."""
        self._request, self._job, self._shown, self._changed = request, job, shown, changed

    @property
    def plan(self) -> Plan:
        """The plan: stages with their parameters, and what each gives to the next."""
        return self._job.plan

    @property
    def config(self) -> Block:
        """A copy of the composed config, with references resolved."""
        return copy.deepcopy(self._job.config)

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides, those of a resumed run included."""
        return tuple(self._request.overrides)

    @property
    def fingerprint(self) -> str:
        """16 hex digits, equal for configs that differ only in speed."""
        return self.plan.fingerprint

    def text(self, *, whole: bool = False) -> str:
        """Return the text that `etlrun plan` prints; `whole` has all values, as `etlrun plan --all`."""
        if whole:
            return figures.text_of(self._shown)
        return outline(self._shown, self._changed)

    def datasets(self) -> Datasets:
        """Return the datasets of the run by name, `train` and, with a validation, `validation`; see `Datasets`.

        An element is what the model gets: (inputs, targets), and a weight behind them where the plan has weights. The
        last stage of each pipeline in `text(whole=True)` says its dtypes and shapes, such as `32 x uint8 [64, 64, 3]`.

        Raises:
            EtlrunError: Data is missing, too small or can't be read, or there is no space for a cache.
        """
        self.plan.spec.require_one_host(_HOSTS)
        from etlrun.system.loading import keras_backend, leave_gpus, load_tensorflow

        fit = self.plan.spec.fit
        if keras_backend() != "tensorflow" or (fit is not None and fit.device == "cpu"):
            leave_gpus()  # as the run does, which could not do so afterwards
        load_tensorflow()
        from etlrun.run.session import datasets_of

        return datasets_of(self.plan)

    def fit(self, folder: Path | str | None = None) -> Run:
        """Run it in this process, as the command line does, and return the run; see `etlrun.load`.

        Args:
            folder: Folder of the run; by default one in `outputs/`, as of the command line (`hydra.run.dir`).

        Raises:
            EtlrunError: The run has failed, and says why in its folder, too; or another one is at work here.
            KeyboardInterrupt: It was interrupted. `etlrun.plan("trainer.resume=FOLDER").fit()` resumes it.
        """
        self.plan.spec.require_one_host(_HOSTS)
        _require_backend()
        from etlrun.run.checkpoint import checkpoints, previous_run
        from etlrun.run.run import execute

        settings = with_hydra(composer(self._request), self._request.overrides).hydra
        given = str(settings.run.dir) if folder is None else os.fspath(folder)
        refuse(unfit_folder("folder", given, given))
        with _alone():
            path = Path(given).absolute()
            previous_run(self.plan, STAGES)  # refused while there is no folder, so that the mended plan may have it
            key = "hydra.run.dir" if folder is None else "folder"
            Record.create(path, self._job.config, **noted(settings), key=key)
            try:
                execute(path, planned=self.plan)
            except KeyboardInterrupt:
                from etlrun.config.overrides import set_to

                if checkpoints(path):
                    print(f"etlrun: resume with: etlrun.plan({set_to(RESUME, path)!r}).fit()", file=sys.stderr)
                raise
        return Run(path)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<etlrun plan {self.fingerprint} of {' '.join(self.overrides) or 'the default config'}>"

    def _repr_html_(self) -> str:
        spec = self.plan.spec
        title = f"{spec.dataset.title} to {spec.model.path}, fingerprint {self.fingerprint}"
        return fragment(Doc(title, [Code(self.text())]))


def _require_backend() -> None:
    """Raise `WorldError` if Keras was imported with another backend than `KERAS_BACKEND` names now."""
    wanted = os.environ.get("KERAS_BACKEND")
    if not wanted or "keras" not in sys.modules:
        return
    used = sys.modules["keras"].backend.backend()
    if used != wanted:
        raise WorldError(
            "KERAS_BACKEND",
            f"{wanted}, in a process that has imported Keras with {used}",
            f"{used}, since Keras can't change its backend",
            f"restart the kernel, and set KERAS_BACKEND={wanted} first; or set it to {used}",
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Refuse two runs at once in a process, of which Keras and TensorFlow have one state."""
    if not _running.acquire(blocking=False):
        expected, remedy = "one run at a time in a process", "wait for its end, or start this one with the command line"
        raise EtlrunError([fault("fit", "a run of this process that is still running", expected, remedy)])
    try:
        yield
    finally:
        _running.release()
