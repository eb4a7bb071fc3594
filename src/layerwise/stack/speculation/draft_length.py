"""How many tokens to draft next, from how many drafts were kept so far.

A draft is kept with some probability a, which is estimated as a share of discounted counts, so that the estimate
follows a text whose parts are more and less predictable. The length is the one whose expected speed-up in layer
passes, (1 - a^(k+1)) / ((1 - a)(1 + c k)), is largest. Where that is no draft at all, one token is drafted every
sixteenth round, to find out when drafting pays again.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.stack.speculation.layer_passes import expected_bound

DISCOUNT = 0.95
"""What a count of an earlier round is worth a round later: the last twenty rounds or so make the estimate."""

PRIOR = (10.0, 0.25)
"""Drafts that are taken for kept and for rejected before any was seen: enough to begin with long drafts."""

PROBE = 16
"""Rounds without a draft after which one token is drafted."""


@dataclass(slots=True)
class DraftLength:
    """The length of the next draft: at most `longest`, and always that unless it `adapts`; `share` is c."""

    longest: int
    share: float
    adapts: bool = True
    kept: float = PRIOR[0]
    rejected: float = PRIOR[1]
    idle: int = 0

    @property
    def acceptance(self) -> float:
        """The estimate of a."""
        return self.kept / (self.kept + self.rejected)

    def next(self) -> int:
        """Tokens to draft in the next round.

        >>> length = DraftLength(longest=4, share=0.5)
        >>> length.next()
        4
        >>> for _ in range(3): length.observe(drafted=4, accepted=0)
        >>> length.next()
        1
        """
        if not self.adapts:
            return self.longest
        best = max(range(self.longest + 1), key=lambda length: expected_bound(self.acceptance, length, self.share))
        if best == 0 and self.idle >= PROBE:
            return min(1, self.longest)
        return best

    def observe(self, drafted: int, accepted: int) -> None:
        """Note a round: so many tokens were drafted, and so many of them kept."""
        if not drafted:
            self.idle += 1
            return
        self.idle = 0
        self.kept = DISCOUNT * self.kept + accepted
        self.rejected = DISCOUNT * self.rejected + (accepted < drafted)
