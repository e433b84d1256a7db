"""Policy on changes: what a change of each kind needs."""

from __future__ import annotations

from dataclasses import dataclass

from etlrun.system.errors import EtlrunError, Fault


class PolicyError(EtlrunError):
    """Change that a policy doesn't allow."""

    status = 4


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a policy says of a change.

    Attributes:
        broken: Rules that the change breaks, a fault each.
        waived: Rules that it would break without a label, a sentence each.
        file: Name of the policy's file; empty for `--fail-on`.
    """

    broken: tuple[Fault, ...]
    waived: tuple[str, ...] = ()
    file: str = ""

    @property
    def lines(self) -> list[str]:
        """What it says, a sentence each."""
        return [f"policy: {fault}" for fault in self.broken] + [f"policy: {text}" for text in self.waived]
