"""How tokens are chosen, and when an answer ends: the options of a request, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerwise.errors import SwarmError

MOST_STOPS = 16
"""Stop texts that a request may have; the API of OpenAI allows four."""

MOST_STOP_CHARACTERS = 1_000
"""Characters of the longest stop text: so much of an answer may have to be held back."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the tokens of one answer are chosen.

    `temperature` divides the logits; 0 takes the likeliest token. Of the distribution only the `top_k` likeliest tokens
    are kept (0: all), and of those the fewest that have `top_p` of the probability. `repetition_penalty` divides the
    positive logits of tokens that are there already, and multiplies the negative ones. The answer ends after
    `max_new_tokens`, at the model's end token (which none of the first `min_new_tokens` is), or where one of the texts
    in `stop` appears in the text of the new tokens. A request with a `seed` has the same answer again.

    >>> Decoding(16).temperature
    0.0
    >>> Decoding(16, top_p=0.0)
    Traceback (most recent call last):
        ...
    layerwise.errors.SwarmError: top_p is 0.0; write a number above 0 and up to 1
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raise `SwarmError` for a value out of its range."""
        penalty = self.repetition_penalty
        rules = (
            ("max_new_tokens", self.max_new_tokens >= 1, "a whole number from 1"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= self.max_new_tokens, "0 to max_new_tokens"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (the likeliest token) or a positive number"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0 and up to 1"),
            ("top_k", self.top_k >= 0, "0 (all tokens) or a positive whole number"),
            ("repetition_penalty", 0 < penalty < math.inf, "a positive number (1 changes nothing)"),
            ("stop", len(self.stop) <= MOST_STOPS and all(self.stop), f"up to {MOST_STOPS} texts, none of them empty"),
            ("stop", max(map(len, self.stop), default=0) <= MOST_STOP_CHARACTERS, "shorter texts"),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
        )
        for name, holds, instead in rules:
            if not holds:
                raise SwarmError(f"{name} is {str(getattr(self, name))[:80]}; write {instead}")
