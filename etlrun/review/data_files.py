"""Data files of a repository that differ between its revisions, of which a review reads those of the working tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from etlrun.planning.plan import Plan
from etlrun.review.git import git
from etlrun.review.sides import Side, Variant
from etlrun.stages.paths import is_remote


def notes_on_data(old: Side, new: Side, pairs: Iterable[tuple[Variant | None, Variant | None]]) -> Iterator[str]:
    """Yield a note on each file, pattern or folder that both configs of a pair read, and that differs in git."""
    between = [side.revision for side in (old, new) if side.revision]
    if not between or not (old.is_revision and new.is_revision):
        return
    plans = [(a.plan, b.plan) for a, b in pairs if a is not None and b is not None]
    read = dict.fromkeys(path for a, b in plans if a and b for path in _paths(a) if path in _paths(b))
    for path in read:
        if git(Path.cwd(), "diff", "--name-only", *between, "--", f":(glob){Path(path).expanduser()}"):
            yield f"{path} differs between {old.word} and {new.word}; both sides read that of the working tree"


def _paths(plan: Plan) -> list[str]:
    dataset = plan.spec.dataset
    patterns = getattr(dataset, "patterns", None)
    if patterns is not None:
        return [path for of in patterns.values() for path in of if not is_remote(path)]
    folder = getattr(dataset, "folder", None) or getattr(dataset, "dir", None)
    return [folder] if isinstance(folder, str) and not is_remote(folder) else []
