"""Differences of what packages add to a run."""

from __future__ import annotations

from etlrun.review.sources import Source


def of_packages(old: str, new: str, sources: tuple[Source, Source] | None) -> tuple[str, str, str]:
    """Return package and version of both sides of `Plan.code`, with what differs beside them; equal ones if none does.

    The code itself is told apart only where its package and its version are the same. If the `sources` of both sides
    are known, they name the files, and tell apart what that code rests on, too.
    """
    if sources is None:
        files, title = [], ""
    else:
        was, now = (of.files for of in sources)
        files, title = [file for file in sorted({*was, *now}) if was.get(file) != now.get(file)], sources[1].title
    if old == new:
        if sources is None or not files:
            return "", "", ""
        before, after = (f"{of.package}, sources {of.digest}" for of in sources)
        return before, after, f"{title} rests on {', '.join(files)}, of which something has changed"
    (before, _, code), (after, _, other) = (text.rpartition(", code ") for text in (old, new))
    place = f"{title} in {', '.join(files or [sources[1].file])}" if sources is not None else ""
    if before == after:
        return old, new, ": ".join(filter(None, ["other code of the same version", place]))
    return before, after, "with the same code" if code == other else place
