"""Files that a config names by patterns: those on this machine, and objects of URLs."""

from __future__ import annotations

from collections.abc import Iterable

from etlrun.remote.objects import Object, Storage, UnreachableError, listed
from etlrun.sources.shards import incomplete, matched, unmatched
from etlrun.stages.paths import is_remote
from etlrun.system.errors import Fault


def named(
    patterns: Iterable[str],
    storage: Storage | None,
    missing: Fault,
    objects: dict[str, Object],
    faults: list[Fault],
) -> list[str]:
    """Return the paths or URLs that patterns name, each once.

    Args:
        patterns: Patterns of files, or of URLs.
        storage: How the store of URLs is reached.
        missing: The fault of a pattern that names no file, with `{}` in its place.
        objects: To which the objects of URLs are added.
        faults: To which what is wrong is added.
    """
    return [*dict.fromkeys(path for of in patterns for path in _named(of, storage, missing, objects, faults))]


def _named(
    pattern: str, storage: Storage | None, missing: Fault, objects: dict[str, Object], faults: list[Fault]
) -> list[str]:
    if is_remote(pattern):
        try:
            found = {of.url: of for of in listed(pattern, storage or {})}
        except UnreachableError as error:
            faults += [of for of in error.faults if of not in faults]
            return []
        objects |= found
        paths = [*found]
    else:
        paths = matched(pattern)
    faults += incomplete(pattern, paths)
    if not paths:
        faults.append(
            Fault(
                missing.where,
                missing.found.replace("{}", pattern, 1),
                missing.expected,
                unmatched(pattern) or "check the pattern; relative ones start in the folder of the command",
            )
        )
    return paths
