"""The commit of a run, and the sources of what packages add to it, by digests."""

from collections.abc import Mapping

from etlrun.record.part import Part
from etlrun.system.errors import counted
from etlrun.system.values import frozen, sha256_of


@frozen
class CodeSource:
    """Source of what a package adds to a run.

    Attributes:
        title: Name of its class or function.
        package: Name and version of the package.
        file: File that defines it, below the folder from which the package is imported; so are the others.
        files: Digest of all definitions that it can reach, by file.
    """

    title: str
    package: str
    file: str
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """First 16 hex digits of a SHA-256 over all files."""
        return sha256_of(repr(sorted(self.files.items())))


class Commit(Part):
    """What git had in the repository of the configs (--config-dir), or else of the current folder, at a run's start."""

    revision: str | None = None
    """Whole name of the commit; null if it is unknown."""
    branch: str | None = None
    """Branch that was checked out; null without one."""
    is_clean: bool | None = None
    """Whether it has all files as they were, but those that git ignores and folders of runs; null if unknown."""
    changed: int = 0
    """Number of files that it has otherwise or not at all, or that were gone."""
    changes: str | None = None
    """Digest of these files, 16 hex digits: names and contents; above 1 MB, or 32 MB in all, sizes and times."""
    plugins: dict[str, CodeSource] = {}
    """Sources of what packages add to the run."""
    unknown: str | None = None
    """Why git has not said all of it."""

    @property
    def short(self) -> str:
        """The first digits, with `*` where files differed, or `?` where that is unknown; empty if it is unknown."""
        mark = {True: "", False: "*", None: "?"}[self.is_clean]
        return f"{self.revision[:7]}{mark}" if self.revision else ""

    @property
    def told(self) -> str:
        """The commit in words."""
        if self.revision is None:
            return f"unknown: {self.unknown}"
        differing = f"{counted(self.changed, 'file')} changed or new (digest {self.changes})"
        state = {True: "clean", False: differing, None: f"unknown changes: {self.unknown}"}[self.is_clean]
        return f"{self.revision[:12]}{f' on {self.branch}' if self.branch else ''}, {state}"
