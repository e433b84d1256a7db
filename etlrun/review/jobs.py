"""Jobs of two sweeps, matched by their overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etlrun.review.sides import Variant


def matched(old: Sequence[Variant], new: Sequence[Variant]) -> list[tuple[str, Variant | None, Variant | None]]:
    """Return the jobs of two sweeps by their overrides, those of one sweep alone with None for the other.

    Counted are the keys that one of the two sweeps: what all jobs of a sweep share may differ from the other's.
    """
    sides = [[_by_key(job.overrides) for job in jobs] for jobs in (old, new)]
    swept = dict.fromkeys(key for side in sides for key in _swept(side))
    named = [
        {" ".join(words[key] for key in swept if key in words): job for words, job in zip(side, jobs, strict=True)}
        for side, jobs in zip(sides, (old, new), strict=True)
    ]
    return [(name, named[0].get(name), named[1].get(name)) for name in dict.fromkeys([*named[0], *named[1]])]


def _by_key(overrides: Iterable[str]) -> dict[str, str]:
    """Return the last override of each key."""
    return {word.partition("=")[0].lstrip("+~"): word.lstrip("+") for word in overrides}


def _swept(jobs: Sequence[Mapping[str, str]]) -> list[str]:
    keys = dict.fromkeys(key for words in jobs for key in words)
    return [key for key in keys if len({words.get(key) for words in jobs}) > 1]
