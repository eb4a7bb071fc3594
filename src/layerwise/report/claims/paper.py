"""A founding paper: where it was published, and the rules that decide its claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from layerwise.report.claims.claim import Claim
from layerwise.report.evidence import Evidence

Rule = Callable[[Evidence], Claim]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose claims are decided: `title`, `citation`, one rule a claim, and which command measures them."""

    title: str
    citation: str
    rules: tuple[Rule, ...]
    measured_by: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the claims of one paper in one run, in the paper's order."""

    paper: Paper
    claims: tuple[Claim, ...]

    @property
    def count(self) -> int:
        """How many of them the run has rows for."""
        return sum(claim.verdict != "not measured" for claim in self.claims)
