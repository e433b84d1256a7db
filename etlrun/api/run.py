"""Runs and sweeps that are loaded: what they say, what the model of a run predicts, and how well it does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etlrun.record.folders import found_by
from etlrun.record.report import of_run
from etlrun.record.summary import Summary, Verdict, read_summary
from etlrun.report.render import RENDER, fragment
from etlrun.system.errors import ConfigError, EtlrunError, counted, fault, refuse
from etlrun.system.files import refuse_unwritable

if TYPE_CHECKING:
    from etlrun.api.predictions import Given, Prediction
    from etlrun.results.results import ConfigResult, Decision, Results
    from etlrun.results.results import Run as RunOfSweep
    from etlrun.trained.evaluate import Evaluation
    from etlrun.trained.load import Trained


def load(folder: Path | str) -> Run | Sweep:
    """Return the run in `folder`, or the sweep, whether it has ended or not.

    `folder` may be "latest", or a unique part of the name of one in `outputs`.

    Raises:
        EtlrunError: There is neither.
    """
    if not isinstance(folder, str | os.PathLike):
        expected = "the path of a folder, which a run or a sweep prints at its end"
        raise ConfigError([fault("folder", f"a {type(folder).__name__}", expected)])
    path = found_by(os.path.expanduser(folder), "", "run", "sweep").absolute()  # noqa: PTH111 - pathlib drops a `./`
    if read_summary(path) is not None:
        return Run(path)
    return Sweep(path)


def require_words(overrides: Sequence[object], function: str) -> None:
    """Raise `ConfigError` for the first override that is no string."""
    if others := [of for of in overrides if not isinstance(of, str)]:
        expected = 'a string for each override, such as "load.prefetch=1"'
        remedy = f"of a list pass its items: {function}(*overrides)" if isinstance(others[0], list | tuple) else ""
        raise ConfigError([fault("overrides", f"a {type(others[0]).__name__}", expected, remedy)])


class Run:
    """A run in its folder.

    Attributes:
        folder: Folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def summary(self) -> Summary:
        """What `summary.json` says now; every key is documented there."""
        summary = read_summary(self.folder)
        if summary is None:
            expected = "the summary of a run"
            raise EtlrunError([fault(self.folder, "no summary that can be read", expected, "restore the folder")])
        return summary

    @property
    def verdict(self) -> Verdict | None:
        """Whether the input or the model limits the run, and by how much; None before it is known."""
        return self.summary.verdict

    def report(self) -> str:
        """Return the text that `etlrun report` prints."""
        return RENDER["text"](of_run(self.folder, self.summary))

    @cached_property
    def model(self) -> Any:
        """The trained `keras.Model`, loaded once, on the backend and the device of its training.

        Raises:
            EtlrunError: The run has not completed, or its model can't be loaded here.
        """
        from etlrun.trained.load import trained

        return self._model_of(trained(self.folder, reads_split=False))

    def _model_of(self, run: Trained) -> Any:
        """Return the model, which is loaded for `run` unless it is there."""
        from etlrun.trained.model import ready  # starts TensorFlow

        if "model" not in self.__dict__:
            with ready(run) as model:
                self.__dict__["model"] = model
        return self.__dict__["model"]

    def predict(
        self, *given: Given | Iterable[Given], top: int | None = None, on_corrupt: Literal["raise", "skip"] = "raise"
    ) -> list[Prediction]:
        """Return a prediction for each image or row, in their order, as `etlrun predict` writes them.

        Args:
            *given: As on the command line: paths of images, of folders of them, of tables (or their URLs) or
                arrays, or `"dataset.split=test"` for a split. Or encoded images as bytes. Or rows: a mapping from each
                column to its value, of which None is a missing one.
            top: Only so many of the likeliest classes; None for all.
            on_corrupt: `skip` leaves out images that can't be used, which are listed on standard error.

        Raises:
            EtlrunError: The run has no model that predicts this, or an image or a row can't be used.
        """
        from etlrun.api.predictions import predictions

        return predictions(self.folder, self._model_of, given, top, on_corrupt)

    def evaluate(self, *overrides: str, threshold: float | None = None) -> Evaluation:
        """Return the evaluation of the model on the validation split, and write it into the folder of the run.

        Args:
            *overrides: As of `etlrun evaluate`: `"dataset.split=test"` for another split.
            threshold: Probability above which the second of two classes is predicted; None for 0.5.

        Raises:
            EtlrunError: The run, an override or the data is unfit.
        """
        from etlrun.trained.load import trained, unfit_options

        require_words(overrides, "run.evaluate")
        run = trained(self.folder, overrides)
        refuse(unfit_options(run, threshold, None))
        refuse_unwritable(self.folder, "folder")
        model = self._model_of(run)
        from etlrun.trained.documents import document, recorded
        from etlrun.trained.evaluate import evaluate

        evaluation = evaluate(run, model, overrides, threshold)
        recorded(run, evaluation, document(evaluation, f"etlrun.load({str(self.folder)!r}).evaluate{overrides!r}"))
        return evaluation

    def __repr__(self) -> str:
        summary = read_summary(self.folder)
        return f"<etlrun run {self.folder}: {'no summary' if summary is None else summary.status}>"

    def __str__(self) -> str:
        return self.report()

    def __reduce__(self) -> tuple[Any, ...]:  # without the model, which the other process loads when it needs it
        return Run, (self.folder,)

    def _repr_html_(self) -> str:
        return fragment(of_run(self.folder, self.summary))


class Sweep:
    """A sweep in its folder, or a folder of runs, as it was when it was loaded.

    Attributes:
        folder: Folder of the sweep.
        collected: All that its reports say.
    """

    def __init__(self, folder: Path) -> None:
        """Read the results; `EtlrunError` if there is no run in the folder."""
        from etlrun.results.report import collected

        self.folder = folder
        self.collected: Results = collected(folder)

    @property
    def results(self) -> list[ConfigResult]:
        """Results of each config, the best first: its overrides, throughput, gain and metrics; see `ConfigResult`."""
        return [*self.collected.configs]

    @property
    def runs(self) -> list[RunOfSweep]:
        """Each run with its folder's name, its config's number and its outcome; see `etlrun.load` for more on it."""
        return [*self.collected.runs]

    @property
    def decision(self) -> Decision:
        """The recommended config with its reasons."""
        return self.collected.decision

    @property
    def best(self) -> tuple[str, ...]:
        """The overrides of the recommended config, for `etlrun.plan(*sweep.best)`; empty without a completed run."""
        return self.decision.overrides

    def __str__(self) -> str:
        from etlrun.results.report import of_sweep

        return RENDER["text"](of_sweep(self.collected))

    def __repr__(self) -> str:
        runs = counted(len(self.collected.runs), "run")
        return f"<etlrun sweep {self.folder}: {counted(len(self.collected.configs), 'config')}, {runs}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Sweep, (self.folder,)

    def _repr_html_(self) -> str:
        from etlrun.results.report import of_sweep

        return fragment(of_sweep(self.collected))
