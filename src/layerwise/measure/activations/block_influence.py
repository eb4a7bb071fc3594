"""Block Influence (arXiv 2403.03853, section 3.1) and angular distance (arXiv 2403.17887, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from layerwise.data.text.tokens import Window
from layerwise.measure.stats.float64 import widen
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.results.rows import Score
from layerwise.results.vocabulary import PROXIES


def block_influence_sums(states: Sequence[Tensor], counted: Tensor) -> Tensor:
    """Sum 1 - cos(x_l, x_{l+1}) over the counted tokens of each window, giving shape (layers, batch)."""
    sums = []
    before = widen(states[0].flatten(2))
    for state in states[1:]:
        after = widen(state.flatten(2))
        squares = torch.linalg.vecdot(before, before) * torch.linalg.vecdot(after, after)
        cosines = torch.linalg.vecdot(before, after) / squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        sums.append((1 - cosines).masked_fill(~counted, 0.0).sum(dim=1))
        before = after
    return torch.stack(sums)


def angular_distances(states: Sequence[Tensor], counted: Tensor) -> Tensor:
    """Compute angle / pi between all pairs of states at each window's last counted token, (states, states, batch).

    The angle between unit vectors u and v is 2 arcsin(|u - v| / 2), which is accurate for small angles.
    """
    positions = torch.arange(counted.shape[1], device=counted.device)
    last = torch.where(counted, positions, -1).amax(dim=1)
    rows = torch.arange(len(last), device=last.device)
    vectors = torch.stack([widen(state[rows, last].flatten(1)) for state in states], dim=1)
    units = functional.normalize(vectors, dim=2, eps=torch.finfo(vectors.dtype).tiny)
    chords = torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")
    return (2 / math.pi * (chords / 2).clamp(max=1.0).arcsin()).permute(1, 2, 0)


class BlockInfluence:
    """Accumulate Block Influence and angular distances over batches, with x_l the state before layer l.

    block_influence     layer l       1 - mean over tokens of cos(x_l, x_{l+1})
    angular_distance    pair (l, n)   mean over windows of arccos(cos(x_l, x_{l+n})) / pi at the last token
    """

    def __init__(self, depth: int) -> None:
        self._layers = [{"layer": layer} for layer in range(depth)]
        self._pairs = [(start, width) for start in range(depth) for width in range(1, depth - start + 1)]
        self._influences = WindowSums()
        self._distances = WindowSums()

    def add(self, states: Sequence[Tensor], counted: Tensor, windows: Sequence[Window]) -> None:
        """Add a batch of `states` (batch, seq, ...): before the first layer, and after each layer."""
        self._influences.add(block_influence_sums(states, counted), counted.sum(dim=1), windows)
        distances = angular_distances(states, counted)
        pairs = torch.stack([distances[start, start + width] for start, width in self._pairs])
        self._distances.add(pairs, torch.ones(len(windows), device="cpu"), windows)

    def scores(self) -> list[Score]:
        windows = [{"layer": start, "distance": width} for start, width in self._pairs]
        return [
            *self._influences.scores(PROXIES, "block_influence", self._layers),
            *self._distances.scores(PROXIES, "angular_distance", windows),
        ]
