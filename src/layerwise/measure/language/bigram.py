"""The bigram baseline of a language model: the loss of a table of token pairs on the same text.

Counts of the training text are smoothed as a hierarchical Dirichlet model (MacKay and Peto 1995), with V the greatest
token id + 1, and k the one of `STRENGTHS` with the smallest loss on a selection text:

    p(b) = (n(b) + 1) / (n + V)          p(b | a) = (n(a b) + k p(b)) / (n(a) + k)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import MeasureError

STRENGTHS = tuple(float(4**power) for power in range(8))
"""The values of k that are tried: from 1 to 16,384 tokens."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BigramModel:
    """Counts of tokens and of adjacent pairs, and the smoothing strength k.

    `singles` and `followed` (without the last token of every text) have shape (vocabulary,); `pairs` are sorted keys
    a * vocabulary + b with their `counts`.
    """

    singles: Ids
    followed: Ids
    pairs: Ids
    counts: Ids
    strength: float

    @classmethod
    def fit(cls, texts: Iterable[Sequence[int]], selecting: Iterable[Sequence[int]] = ()) -> BigramModel:
        """Count the token ids of `texts`, choose the strength on `selecting`; raise `MeasureError` without any pair.

        >>> table = BigramModel.fit([[0, 1, 0, 1, 0, 1]])
        >>> table.singles.tolist(), table.counts.tolist()
        ([3, 3], [3, 2])
        """
        sequences = [np.asarray(ids, dtype=np.int64) for ids in texts]
        if not any(len(ids) > 1 for ids in sequences):
            raise MeasureError("there is no pair of tokens to count: no text has two")
        vocabulary = 1 + max(int(ids.max()) for ids in sequences if len(ids))
        singles = np.bincount(np.concatenate(sequences), minlength=vocabulary)
        followed = np.bincount(np.concatenate([ids[:-1] for ids in sequences]), minlength=vocabulary)
        keys = np.concatenate([ids[:-1] * vocabulary + ids[1:] for ids in sequences])
        pairs, counts = np.unique(keys, return_counts=True)
        table = cls(singles, followed, pairs, counts, STRENGTHS[len(STRENGTHS) // 2])
        before, after = _adjacent_tokens(selecting)
        if not len(after):
            return table
        tried = [cls(singles, followed, pairs, counts, strength) for strength in STRENGTHS]
        return min(tried, key=lambda each: float(each.nll(before, after).sum()))

    def nll(self, before: Ids, after: Ids) -> NDArray[np.float64]:
        """Return the nats of every token of `after` given that in `before`; unknown ids count as unseen ones."""
        single = self.single_nll(after)
        vocabulary = len(self.singles)
        known = (before < vocabulary) & (after < vocabulary)
        keys = np.where(known, before * vocabulary + after, -1)
        indices = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        together = np.where(self.pairs[indices] == keys, self.counts[indices], 0)
        alone = self._counted(self.followed, before)
        odds = (together + self.strength * np.exp(-single)) / (alone + self.strength)
        return -np.log(odds)

    def single_nll(self, tokens: Ids) -> NDArray[np.float64]:
        return -np.log((self._counted(self.singles, tokens) + 1) / (self.singles.sum() + len(self.singles)))

    def _counted(self, counts: Ids, tokens: Ids) -> Ids:
        last = len(counts) - 1
        return np.where(tokens <= last, counts[np.minimum(tokens, last)], 0)


def unigram_loss(texts: Iterable[Sequence[int]]) -> float | None:
    """Return the loss of a unigram model in nats/token, each token predicted from all others; None without tokens.

    With n(w) of N tokens being w, and V different ones: -mean log(n(w) / (N - 1 + V)), which is add-one smoothing.

    >>> round(unigram_loss([[0, 1], [1, 1]]), 3)  # log 5 once, and log(5 / 3) three times
    0.785
    """
    counts = np.unique_counts(np.concatenate([np.empty(0, np.int64), *map(np.asarray, texts)])).counts
    total = counts.sum()
    return float(-(counts @ np.log(counts / (total - 1 + counts.size))) / total) if total else None


def _adjacent_tokens(texts: Iterable[Sequence[int]]) -> tuple[Ids, Ids]:
    both = list(_pairs(texts))
    if not both:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([ids[:-1] for ids in both]), np.concatenate([ids[1:] for ids in both])


def _pairs(texts: Iterable[Sequence[int]]) -> Iterator[Ids]:
    for ids in texts:
        tokens = np.asarray(ids, dtype=np.int64)
        if len(tokens) > 1:
            yield tokens
