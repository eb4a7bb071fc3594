"""Hidden states in which zones are planted, or which have none: (tokens, states, width)."""

from collections.abc import Sequence

import numpy as np

from layerwise.measure.stats.statistics import Numbers

TOKENS, WIDTH = 200, 32


def cosines(states: Numbers) -> Numbers:
    units = states / np.linalg.norm(states, axis=2, keepdims=True)
    return np.asarray(np.einsum("tiw,tjw->ij", units, units) / len(states))


def zoned(draw: np.random.Generator, sizes: Sequence[int], share: float = 0.7, noise: float = 1.0) -> Numbers:
    common = draw.standard_normal((TOKENS, 1, WIDTH))
    zones = []
    for size in sizes:
        own = np.sqrt(1 - share) * common + np.sqrt(share) * draw.standard_normal((TOKENS, 1, WIDTH))
        spread = noise * np.exp(0.1 * draw.standard_normal((1, size, 1)))
        zones.append(own + spread * draw.standard_normal((TOKENS, size, WIDTH)))
    return np.concatenate(zones, axis=1)


def walked(draw: np.random.Generator, states: int, growth: float = 0.0, uneven: float = 0.0) -> Numbers:
    sizes = np.exp(growth * np.arange(states) + uneven * draw.standard_normal(states))
    return np.asarray(np.cumsum(sizes[None, :, None] * draw.standard_normal((TOKENS, states, WIDTH)), axis=1))


def redrawn(draw: np.random.Generator, states: int, kept: float) -> Numbers:
    found = [draw.standard_normal((TOKENS, WIDTH))]
    for _ in range(states - 1):
        found.append(kept * found[-1] + np.sqrt(1 - kept**2) * draw.standard_normal((TOKENS, WIDTH)))
    return np.stack(found, axis=1)


def untrained(draw: np.random.Generator, states: int) -> Numbers:
    state, found = draw.standard_normal((TOKENS, WIDTH)), []
    for _ in range(states):
        first = draw.standard_normal((WIDTH, 4 * WIDTH)) / np.sqrt(WIDTH)
        second = draw.standard_normal((4 * WIDTH, WIDTH)) / np.sqrt(4 * WIDTH)
        read = state / np.sqrt((state**2).mean(axis=1, keepdims=True))
        state = state + np.tanh(read @ first) @ second
        found.append(state)
    return np.stack(found, axis=1)
