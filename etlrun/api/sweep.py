"""A sweep that is loaded: its table, and what it recommends."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from etlrun.report.doc import Code, Doc, Lines
from etlrun.report.html import fragment
from etlrun.report.render import RENDER
from etlrun.results.report import collected, of_sweep
from etlrun.results.results import ConfigResult, Decision, Results, Run


class ShownDecision(Decision):
    """A decision that shows as the words of its recommendation."""

    def __repr__(self) -> str:
        return f"<etlrun decision: {self.words}>"

    def _repr_html_(self) -> str:
        return fragment(Doc(self.words, [Code(shlex.join(self.overrides)), Lines([("data", self.same_data)])]))


class Sweep:
    """A sweep in its folder, or a folder of runs, as it was when it was loaded.

    Attributes:
        folder: Folder of the sweep.
        collected: All that its reports say.
    """

    def __init__(self, folder: Path) -> None:
        """Read the results; `EtlrunError` if there is no run in the folder."""
        self.folder = folder
        self.collected: Results = collected(folder)

    @property
    def results(self) -> list[ConfigResult]:
        """Results of each config, the best first: its overrides, throughput, gain and metrics; see `ConfigResult`."""
        return [*self.collected.configs]

    @property
    def runs(self) -> list[Run]:
        """Each run with its folder's name, its config's number and its outcome; see `etlrun.load` for more on it."""
        return [*self.collected.runs]

    @property
    def decision(self) -> Decision:
        """The recommended config with its reasons."""
        return ShownDecision(**vars(self.collected.decision))

    @property
    def best(self) -> tuple[str, ...]:
        """The overrides of the recommended config, for `etlrun.plan(*sweep.best)`; empty without a completed run."""
        return self.decision.overrides

    def __str__(self) -> str:
        return RENDER["text"](of_sweep(self.collected))

    def __repr__(self) -> str:
        return f"<etlrun sweep {self.folder}: {len(self.collected.configs)} configs, {len(self.collected.runs)} runs>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Sweep, (self.folder,)

    def _repr_html_(self) -> str:
        return fragment(of_sweep(self.collected))
