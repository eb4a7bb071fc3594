"""Simulated documents with planted effects: log-normal difficulty (mean 1) times the effect,
plus Student's t noise (4 degrees of freedom) per variant."""

from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import Part


def simulate_part(
    effects: Sequence[float], run: int, *, documents: int = 16, noise: float = 0.02, skew: float = 0.5
) -> Part:
    draw = np.random.default_rng([run, documents])
    tokens = np.floor(np.maximum(10, draw.lognormal(4.0, 0.5, documents)))
    hard = draw.lognormal(-0.5 * skew**2, skew, documents)
    own = noise * draw.standard_t(4, (len(effects), documents)) / np.sqrt(2.0)
    return Part((np.outer(effects, hard) + own) * tokens, tokens, documents, int(tokens.sum()))
