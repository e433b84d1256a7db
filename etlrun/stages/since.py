"""Version of etlrun from which on a field exists."""

from __future__ import annotations

from dataclasses import dataclass

FIRST = "0.1"
"""Version that has all fields without a `Since`."""


@dataclass(frozen=True)
class Since:
    """Mark of a field that was added later than in the first version, beside its `Expected`.

    Attributes:
        version: Version that has it first, such as `0.2`.
    """

    version: str
