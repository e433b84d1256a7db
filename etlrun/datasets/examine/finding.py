"""Findings: what is wrong with a dataset, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NAMED = 20
"""Places that a finding names."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        text: What was found.
        remedy: What to do.
        places: Files and records, the first `NAMED` of them.
        images: Some that show it, each by its scan and its number there.
    """

    text: str
    remedy: str
    places: tuple[str, ...] = ()
    images: tuple[tuple[Any, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is in a dataset, and what is wrong with it.

    Attributes:
        dataset: Its name.
        findings: What is wrong, the worst first.
        splits: Figures of each split.
        notes: What a reader may not expect of the dataset, a sentence each.
    """

    dataset: str
    findings: tuple[Finding, ...]
    splits: tuple[Any, ...]
    notes: tuple[str, ...] = ()
