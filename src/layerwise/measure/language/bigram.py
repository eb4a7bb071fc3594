"""Unigram and bigram baselines for language models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import MeasureError

STRENGTHS = tuple(float(4**power) for power in range(8))
"""The smoothing strengths k to try, in tokens."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BigramModel:
    """A bigram model, smoothed as a hierarchical Dirichlet model (MacKay and Peto 1995).

        p(b) = (n(b) + 1) / (n + V)          p(b | a) = (n(a b) + k p(b)) / (n(a) + k)

    V is the largest token id + 1. `singles` has the counts n(b) and `followed` the counts n(a), which omit the last
    token of every text; both have the shape (V,). `pairs` has sorted keys a * V + b with their `counts`, and `strength`
    is k.
    """

    singles: Ids
    followed: Ids
    pairs: Ids
    counts: Ids
    strength: float

    @classmethod
    def fit(cls, texts: Iterable[Sequence[int]], selecting: Iterable[Sequence[int]] = ()) -> BigramModel:
        """Count the token ids of `texts`, and choose the strength k that has the smallest loss on `selecting`.

        >>> model = BigramModel.fit([[0, 1, 0, 1, 0, 1]])
        >>> model.singles.tolist(), model.counts.tolist()
        ([3, 3], [3, 2])
        """
        sequences = [np.asarray(ids, dtype=np.int64) for ids in texts]
        if not any(len(ids) > 1 for ids in sequences):
            raise MeasureError("A bigram model needs a text of at least 2 tokens, got none. Use a longer text.")
        vocabulary = 1 + max(int(ids.max()) for ids in sequences if len(ids))
        singles = np.bincount(np.concatenate(sequences), minlength=vocabulary)
        followed = np.bincount(np.concatenate([ids[:-1] for ids in sequences]), minlength=vocabulary)
        keys = np.concatenate([ids[:-1] * vocabulary + ids[1:] for ids in sequences])
        pairs, counts = np.unique(keys, return_counts=True)
        before, after = _adjacent_tokens(selecting)
        if not len(after):
            return cls(singles, followed, pairs, counts, STRENGTHS[len(STRENGTHS) // 2])
        models = [cls(singles, followed, pairs, counts, strength) for strength in STRENGTHS]
        return min(models, key=lambda each: float(each.nll(before, after).sum()))

    def nll(self, before: Ids, after: Ids) -> NDArray[np.float64]:
        """Return the NLL in nats of every token of `after`, given the token of `before` that precedes it."""
        single = self.single_nll(after)
        vocabulary = len(self.singles)
        is_known = (before < vocabulary) & (after < vocabulary)
        keys = np.where(is_known, before * vocabulary + after, -1)
        indices = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        pair_counts = np.where(self.pairs[indices] == keys, self.counts[indices], 0)
        first_counts = _look_up(self.followed, before)
        return -np.log((pair_counts + self.strength * np.exp(-single)) / (first_counts + self.strength))

    def single_nll(self, tokens: Ids) -> NDArray[np.float64]:
        return -np.log((_look_up(self.singles, tokens) + 1) / (self.singles.sum() + len(self.singles)))


def _look_up(counts: Ids, tokens: Ids) -> Ids:
    last = len(counts) - 1
    return np.where(tokens <= last, counts[np.minimum(tokens, last)], 0)


def unigram_loss(texts: Iterable[Sequence[int]]) -> float | None:
    """Return the leave-one-out loss of a unigram model with add-one smoothing, or None if there are no tokens.

        -mean log(n(w) / (N - 1 + V))        nats/token; N tokens, V distinct ones, n(w) of them equal to w

    >>> round(unigram_loss([[0, 1], [1, 1]]), 3)
    0.785
    """
    counts = np.unique_counts(np.concatenate([np.empty(0, np.int64), *map(np.asarray, texts)])).counts
    total = counts.sum()
    return float(-(counts @ np.log(counts / (total - 1 + counts.size))) / total) if total else None


def _adjacent_tokens(texts: Iterable[Sequence[int]]) -> tuple[Ids, Ids]:
    sequences = [np.empty(0, np.int64), *(np.asarray(ids, dtype=np.int64) for ids in texts)]
    return np.concatenate([ids[:-1] for ids in sequences]), np.concatenate([ids[1:] for ids in sequences])
