"""What self-speculation costs, in layer passes: one layer, run on one or several tokens of each text.

A model of L layers, a draft of s steps, R rounds and P draft passes make R L + P s layer passes. Decoding one token
after the other makes N L of them for N tokens. With c = s / L the ratio, and so the speed-up that is possible where
every pass of a layer takes as long, is N / (R + c P) (Leviathan et al. 2023, arXiv:2211.17192, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LayerPasses:
    """The count of one generation, after the pass over the prompt, which gives the first token in any case.

    `depth` are the layers of the model and `draft_steps` those that the draft runs; `tokens` those of each text that
    came after the first, in `rounds` passes of the whole model and `draft_passes` of the draft. `accepted` of the
    drafted tokens, one a draft pass, were kept; in a batch, by all texts that were not finished.
    """

    COUNTED: ClassVar = ("tokens", "rounds", "draft_passes", "accepted")

    depth: int
    draft_steps: int
    tokens: int = 0
    rounds: int = 0
    draft_passes: int = 0
    accepted: int = 0

    @property
    def share(self) -> float:
        """c: what a draft pass costs beside a pass of the whole model, s / L."""
        return self.draft_steps / self.depth

    @property
    def total(self) -> int:
        """R L + P s.

        >>> LayerPasses(depth=16, draft_steps=8, tokens=20, rounds=4, draft_passes=16).total
        192
        """
        return self.rounds * self.depth + self.draft_passes * self.draft_steps

    @property
    def bound(self) -> float:
        """N / (R + c P): layer passes of plain decoding over those of this one; 1 where nothing was decoded.

        >>> round(LayerPasses(depth=16, draft_steps=8, tokens=20, rounds=4, draft_passes=16).bound, 3)
        1.667
        """
        return self.tokens * self.depth / self.total if self.total else 1.0

    @property
    def acceptance(self) -> float:
        """The share of drafted tokens that were kept; not a number where none was drafted."""
        return self.accepted / self.draft_passes if self.draft_passes else float("nan")


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens that a round is expected to give: (1 - a^(k+1)) / (1 - a), each of k drafts kept with probability a.

    >>> expected_tokens(1.0, 4), expected_tokens(0.5, 1)
    (5.0, 1.5)
    """
    return float(sum(acceptance**position for position in range(length + 1)))


def expected_bound(acceptance: float, length: int, share: float) -> float:
    """The speed-up in layer passes that is expected of drafts of `length` tokens: `expected_tokens` over 1 + c k.

    >>> round(expected_bound(1.0, 4, 0.5), 3), round(expected_bound(0.6, 4, 0.5), 3)
    (1.667, 0.769)
    """
    return expected_tokens(acceptance, length) / (1 + share * length)
