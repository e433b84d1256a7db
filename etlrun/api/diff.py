"""The difference between two configs, as `etlrun diff` reports it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.report.doc import Col, Doc, Lines, Part, Section, Table
from etlrun.report.html import fragment
from etlrun.review.review import Review, review
from etlrun.review.shown import change, file_line, groups, points, unchanged, what
from etlrun.review.sides import Side, Variant
from etlrun.review.text import text
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind
from etlrun.sweep.sides import sides_of
from etlrun.system.errors import ConfigError, fault

if TYPE_CHECKING:
    from etlrun.api.planned import Planned
    from etlrun.api.run import Run
    from etlrun.api.sweep import Sweep


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
    from etlrun.api.planned import Planned
    from etlrun.api.run import require_words

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
        return text(self.review)

    def __repr__(self) -> str:
        found = self.review.experiments
        says = found[0].headline if len(found) == 1 else f"{sum(of.changes for of in found)} of {len(found)} differ"
        return f"<etlrun diff of {self.review.old} and {self.review.new}: {says}>"

    def _repr_html_(self) -> str:
        return fragment(_document(self.review))


def _document(review: Review) -> Doc:
    """Return what differs, what each difference changes, and the caches that it fills."""
    parts: list[Part] = []
    for names, reviewed in groups(review):
        notes = [*(f"note: {note}" for note in reviewed.comparison.notes), *points(reviewed)]
        table = Table(reviewed.comparison.differences, [Col("", "path"), Col("change", change), Col("changes", what)])
        lines = Lines([("", note) for note in [*notes, *map(str, reviewed.faults)]])
        parts.append(Section(f"{', '.join(filter(None, names))} {reviewed.headline}".strip(), [table, lines]))
    rest = unchanged(review)
    told = [f"{', '.join(rest)}: no difference".removeprefix(": ")] if rest else []
    parts.append(Lines([("", line) for line in [*told, *(file_line(file, review) for file in review.files)]]))
    return Doc(f"{review.old} -> {review.new}", parts)
