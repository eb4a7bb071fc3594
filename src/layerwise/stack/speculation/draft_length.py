"""Whether to draft one more token, from how confident the draft was and how many drafts were kept so far.

Behind j drafted tokens, which are all kept with probability a_1 ... a_j, one more is expected to add a_1 ... a_j a to
the text, and costs c of a pass of the model. It is drafted if that is more than c passes give on average: c S tokens,
with S the tokens of a round over its cost 1 + c k so far, the speed-up in layer passes.

Each a_i is the share kept so far of the tokens whose largest probability in the draft lay in the same fifth of [0, 1],
and a that of all. Counts are discounted, so that they follow a text whose parts are more and less predictable, and a
fifth with few counts answers as all do. Where no draft at all pays, one token is drafted every sixteenth round, to find
out when drafting pays again.

The rule reads tokens that were drafted, never the one that comes next, and every token that was drafted is verified. So
the next one is distributed as the draft says, whether or not it is drafted, and sampling stays what it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

DISCOUNT = 0.95
"""What a count of an earlier round is worth a round later: the last twenty rounds or so make the estimate."""

PRIOR = (10.0, 0.25)
"""Drafts that are taken for kept and for rejected before any was seen: enough to begin with long drafts."""

FIFTHS = 5
"""The parts of [0, 1] that confidences are told apart by."""

SHRINKAGE = 2.0
"""Tokens of the overall share that are added to the counts of a fifth."""

PROBE = 16
"""Rounds without a draft after which one token is drafted."""


@dataclass(slots=True)
class Counts:
    """Discounted counts of drafted tokens."""

    kept: float = 0.0
    rejected: float = 0.0

    @property
    def share(self) -> float:
        """The share that was kept."""
        return self.kept / (self.kept + self.rejected)


@dataclass(slots=True)
class DraftLength:
    """When a draft ends: after `longest` tokens, and if it `adapts` where one more does not pay; `share` is c."""

    longest: int
    share: float
    adapts: bool = True
    overall: Counts = field(default_factory=lambda: Counts(*PRIOR))
    fifths: tuple[Counts, ...] = field(default_factory=lambda: tuple(Counts() for _ in range(FIFTHS)))
    tokens: float = 1.0
    cost: float = 1.0
    idle: int = 0

    @property
    def acceptance(self) -> float:
        """The estimate of a."""
        return self.overall.share

    @property
    def speed(self) -> float:
        """The estimate of S, 1 at least: without drafts a pass gives a token."""
        return max(1.0, self.tokens / self.cost)

    def goes_on(self, confidences: Sequence[float]) -> bool:
        """Whether a draft whose tokens had these largest probabilities, none at first, should get one more.

        >>> length = DraftLength(longest=4, share=0.5)
        >>> length.goes_on([]), length.goes_on([0.9, 0.8, 0.9]), length.goes_on([0.9] * 4)
        (True, True, False)
        >>> for _ in range(3): length.observe([0.9, 0.8, 0.9, 0.9], accepted=0)
        >>> length.goes_on([0.9])
        False
        """
        if len(confidences) >= self.longest:
            return False
        if not self.adapts:
            return True
        kept = math.prod(map(self._acceptance, confidences)) * self.acceptance
        return kept > self.share * self.speed or (not confidences and self.idle >= PROBE)

    def observe(self, confidences: Sequence[float], accepted: int) -> None:
        """Note a round that drafted tokens with these confidences, and kept the first `accepted` of them."""
        drafted = len(confidences)
        self.tokens = DISCOUNT * self.tokens + accepted + 1
        self.cost = DISCOUNT * self.cost + 1 + self.share * drafted
        self.idle = 0 if drafted else self.idle + 1
        if not drafted:
            return
        for counts in (self.overall, *self.fifths):
            counts.kept *= DISCOUNT
            counts.rejected *= DISCOUNT
        for position, confidence in enumerate(confidences[: accepted + 1]):
            for counts in (self.overall, self.fifths[_fifth(confidence)]):
                counts.kept += position < accepted
                counts.rejected += position == accepted

    def _acceptance(self, confidence: float) -> float:
        """The share kept of tokens with about this confidence."""
        counts = self.fifths[_fifth(confidence)]
        return (counts.kept + SHRINKAGE * self.acceptance) / (counts.kept + counts.rejected + SHRINKAGE)


def _fifth(confidence: float) -> int:
    """The part of [0, 1] that a confidence lies in; the lowest for that of scores that are not finite."""
    if math.isnan(confidence):
        return 0
    return min(int(confidence * FIFTHS), FIFTHS - 1)
