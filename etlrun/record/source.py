"""Sources of what packages add to a run, by digests."""

import hashlib
from collections.abc import Mapping

from etlrun.system.values import frozen


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
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()[:16]
