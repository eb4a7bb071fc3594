"""Simulated documents: the effects of arms are known, and documents differ in length and in difficulty.

A document's difficulty multiplies all effects on it (skewed, log-normal, mean one), and every arm adds noise of its own
on it, heavy-tailed (Student's t with 4 degrees of freedom).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import Part


def part(effects: Sequence[float], run: int, *, documents: int = 16, noise: float = 0.02, skew: float = 0.5) -> Part:
    draw = np.random.default_rng([run, documents])
    tokens = np.floor(np.maximum(10, draw.lognormal(4.0, 0.5, documents)))
    hard = draw.lognormal(-0.5 * skew**2, skew, documents)
    own = noise * draw.standard_t(4, (len(effects), documents)) / np.sqrt(2.0)
    return Part((np.outer(effects, hard) + own) * tokens, tokens, documents, int(tokens.sum()))
