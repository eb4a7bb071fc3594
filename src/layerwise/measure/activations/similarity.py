"""Similarity of hidden states (Sun et al. 2024, arXiv 2407.09298, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import check_finite, run_states
from layerwise.measure.contrasts.contrast import Part, Resampled, take_first
from layerwise.measure.stats.float64 import to_float64_cpu, token_norms, widen
from layerwise.measure.stats.grid import MIN_UNITS, resampling_unit
from layerwise.measure.stats.statistics import Numbers, Seed, student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import SIMILARITY
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

SINK_FACTOR = 10.0
"""A sink's norm exceeds the median norm by this factor (massive activations: arXiv 2402.17762, section 2)."""

MINIBATCH = 256
"""Number of tokens per CKA minibatch."""


def similarity_sums(stack: Stack, batches: Iterable[AnyBatch], seed: int = 0) -> SimilaritySums:
    """Accumulate the similarity of all pairs of hidden states over the tokens of `batches`.

    `seed` determines the minibatches of CKA. Raises `MeasureError` if states are not finite.
    """
    plan = Plan.identity(stack.depth)
    running = SimilaritySums(seed)
    with evaluating(stack.model), torch.inference_mode():
        for batch in batches:
            states, counted = run_states(stack, plan, batch)
            running.add(states, counted, [window.document for window in batch.windows])
    return running


def find_sinks(states: Sequence[Tensor], counted: Tensor) -> Tensor:
    """Find attention sinks, as booleans (batch, seq).

    A sink is the first counted token of a row, or a token whose norm after some layer exceeds `SINK_FACTOR` times the
    median norm of all counted tokens. The last layer does not count, because many models rescale all states there.
    """
    sinks = counted & (counted.cumsum(dim=1) == 1)
    for state in states[1:-1]:
        sizes = token_norms(state)
        sinks |= counted & (sizes > SINK_FACTOR * sizes[counted].median())
    return sinks


class SimilaritySums:
    """Accumulate the similarities of all pairs of hidden states without keeping the states.

    Metrics of states i and j (0 is before the first layer) have Student t intervals over documents, or windows if there
    are fewer than 8 documents. Metrics that end in `_no_sink` exclude attention sinks (`find_sinks`):

        cosine, angular    mean over tokens of cos(x_i, x_j), and of arccos(cos(x_i, x_j)) / pi (arXiv 2403.17887)
        cosine_null        mean cosine between tokens of different documents
        cka                centered kernel alignment of the two sets of tokens, see `unbiased_hsic`
        cosine_flattened   cosine of all states of a window as one vector, with sinks: the figures of the paper
    """

    def __init__(self, seed: int = 0) -> None:
        self._draw = torch.Generator().manual_seed(seed)
        self._every = _Tokens(flattened=True)
        self._no_sink = _Tokens()

    def add(self, states: Sequence[Tensor], counted: Tensor, documents: Sequence[str]) -> None:
        """Add a batch: a tensor (batch, seq, ...) per hidden state; `counted` (batch, seq) is false for padding."""
        _check_shapes(states, counted, documents)
        for tokens, mask in ((self._every, counted), (self._no_sink, counted & ~find_sinks(states, counted))):
            tokens.add(states, mask, documents)
            tokens.align(states, mask, self._draw)

    def scores(self) -> list[Score]:
        if self._every.minibatches == 0:
            raise MeasureError(f"Similarity needs a text of at least {MIN_TOKENS} tokens. Use a longer text.")
        return [*self._every.scores(""), *self._no_sink.scores("_no_sink")]

    def contrasts(self, seed: int = 0) -> list[Score]:
        every, no_sink = self._every.by_document(), self._no_sink.by_document()
        return same_space(every, no_sink, seed=seed) if every is not None and no_sink is not None else []


class _Sums(NamedTuple):
    """Sums over the tokens of a window or document, (states, states) each; `flattened` is a sum over windows.

    `direction` is the sum of the unit vectors of tokens, (states, hidden).
    """

    cosine: Tensor
    angle: Tensor
    tokens: int
    flattened: Tensor
    direction: Tensor
    windows: int = 1


class _Tokens:
    def __init__(self, *, flattened: bool = False) -> None:
        self.minibatches = 0
        self._is_flattened = flattened
        self._documents: dict[str, _Sums] = {}
        self._windows: list[_Sums] = []
        """The sums of every window, while there are too few documents for an interval."""
        self._hsic = torch.zeros((), device="cpu")

    def add(self, states: Sequence[Tensor], mask: Tensor, documents: Sequence[str]) -> None:
        for row, document in enumerate(documents):
            if not mask[row].any():
                continue
            vectors = _gather([state[row][mask[row]] for state in states])
            units = functional.normalize(vectors, dim=2, eps=torch.finfo(vectors.dtype).tiny)
            by_token = units.transpose(0, 1)
            cosines = (by_token @ by_token.transpose(1, 2)).clamp_(-1, 1)
            sums = _Sums(
                to_float64_cpu(cosines.sum(dim=0)),
                to_float64_cpu((cosines.arccos() / math.pi).sum(dim=0)),
                len(cosines),
                _flattened_cosines(vectors) if self._is_flattened else torch.zeros((), device="cpu"),
                to_float64_cpu(units.sum(dim=1)),
            )
            before: Any = self._documents.get(document)
            total = sums if before is None else _Sums(*(old + new for old, new in zip(before, sums, strict=True)))
            self._documents[document] = total
            if resampling_unit(len(self._documents)) == "window":
                self._windows.append(sums)
            else:
                self._windows.clear()

    def align(self, states: Sequence[Tensor], mask: Tensor, draw: torch.Generator) -> None:
        rows, columns = mask.nonzero(as_tuple=True)
        order = torch.randperm(len(rows), generator=draw, device="cpu").to(rows.device)
        for part in torch.split(order, MINIBATCH):
            if len(part) >= MIN_TOKENS:
                features = _gather([state[rows[part], columns[part]] for state in states])
                # Weighted by size, because the last minibatch may be small.
                self._hsic = self._hsic + len(part) * to_float64_cpu(unbiased_hsic(features))
                self.minibatches += 1

    def by_document(self) -> DocumentCosines | None:
        """Return the cosines of each document, or None for fewer than two documents.

        The values of `elsewhere` average to the cosine between tokens of different documents, and their spread gives
        its variance.
        """
        documents = list(self._documents.values())
        if len(documents) < 2:
            return None
        tokens = torch.tensor([each.tokens for each in documents], dtype=torch.float64, device="cpu")
        total = torch.stack([each.direction for each in documents]).sum(dim=0)
        means = []
        for each in documents:
            products = each.direction @ (total - each.direction).T
            means.append((products + products.T) / 2 / (each.tokens * (tokens.sum() - each.tokens)))
        by_document = torch.stack(means)
        weights = tokens[:, None, None]
        mean = (weights * by_document).sum(dim=0) / tokens.sum()
        cosine = torch.stack([each.cosine for each in documents])
        return DocumentCosines(cosine.numpy(), (weights * (2 * by_document - mean)).numpy(), tokens.numpy())

    def scores(self, suffix: str) -> Iterator[Score]:
        if not self._documents:
            return
        units = self._windows or list(self._documents.values())
        tokens = torch.tensor([each.tokens for each in units], dtype=torch.float64, device="cpu")
        yield from self._means("cosine" + suffix, torch.stack([each.cosine for each in units]), tokens, -1.0)
        yield from self._means("angular" + suffix, torch.stack([each.angle for each in units]), tokens, 0.0)
        if self._is_flattened:
            windows = torch.tensor([each.windows for each in units], dtype=torch.float64, device="cpu")
            yield from self._means("cosine_flattened", torch.stack([each.flattened for each in units]), windows, -1.0)
        yield from self._values("cosine_null" + suffix, _null_cosine(list(self._documents.values())))
        if self.minibatches:
            yield from self._values("cka" + suffix, cka_from_hsic(self._hsic))

    def _means(self, metric: str, sums: Tensor, tokens: Tensor, least: float) -> Iterator[Score]:
        means = sums.sum(dim=0) / tokens.sum()
        if len(sums) < MIN_UNITS:
            yield from self._values(metric, means)
            return
        estimate = student_interval(sums.flatten(1).T.numpy(), tokens.numpy())
        low = torch.from_numpy(estimate.low).view_as(means).clamp(least, 1.0)
        high = torch.from_numpy(estimate.high).view_as(means).clamp(least, 1.0)
        yield from self._values(metric, means, {"low": low, "high": high})

    def _values(self, metric: str, values: Tensor, bounds: Mapping[str, Tensor] | None = None) -> Iterator[Score]:
        tokens = sum(each.tokens for each in self._documents.values())
        for i in range(len(values)):
            for j in range(i, len(values)):
                value = float(values[i, j])
                interval: dict[str, Any] = {name: float(bound[i, j]) for name, bound in (bounds or {}).items()}
                if math.isfinite(value):
                    yield Score(
                        SIMILARITY,
                        metric,
                        value,
                        state=i,
                        to_state=j,
                        documents=len(self._documents),
                        tokens=tokens,
                        **interval,
                    )


def _null_cosine(documents: Sequence[_Sums]) -> Tensor:
    """Average the cosine over all pairs of tokens from different documents, (states, states); NaN for one document.

    sum_{d != e} s_d . s_e = (sum_d s_d) . (sum_e s_e) - sum_d s_d . s_d        s_d: sum of unit vectors in document d
    """
    total = torch.zeros_like(documents[0].direction)
    within = torch.zeros_like(documents[0].cosine)
    for each in documents:
        total = total + each.direction
        within = within + each.direction @ each.direction.T
    counts = [each.tokens for each in documents]
    pairs = sum(counts) ** 2 - sum(count**2 for count in counts)
    return (total @ total.T - within) / pairs if pairs else torch.full_like(within, torch.nan)


def _flattened_cosines(vectors: Tensor) -> Tensor:
    units = functional.normalize(vectors.flatten(1), dim=1, eps=torch.finfo(vectors.dtype).tiny)
    return to_float64_cpu((units @ units.T).clamp_(-1, 1))


def _gather(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack([widen(each.flatten(1)) for each in vectors])


def _check_shapes(states: Sequence[Tensor], counted: Tensor, documents: Sequence[str]) -> None:
    shapes = {tuple(state.shape) for state in states}
    if len(shapes) != 1 or any(shape[:2] != tuple(counted.shape) for shape in shapes):
        raise MeasureError(
            f"Hidden states must have one shape that starts with {tuple(counted.shape)}, got {sorted(shapes)}. "
            "Similarity needs the same (batch, seq, hidden) after every layer."
        )
    check_finite(states, counted, documents)


MIN_TOKENS = 4
"""Minimum number of tokens for the unbiased estimate, which divides by n - 3."""


def unbiased_hsic(features: Tensor) -> Tensor:
    """Compute HSIC_1 of every pair of states on one minibatch: (states, n, hidden) -> (states, states).

        CKA(X, Y) = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))    K = X X^T, L = Y Y^T  (Kornblith et al. 2019, section 3)
        HSIC_1(K, L) = (tr(K' L') + 1^T K' 1 1^T L' 1 / ((n-1)(n-2)) - 2 / (n-2) 1^T K' L' 1) / (n (n-3))

    K' is K with a zero diagonal. HSIC_1 is the unbiased estimate of Song et al. (2012). For CKA it is averaged over
    minibatches before dividing (Nguyen et al. 2021, arXiv 2010.15327, section 2.1). Raises `MeasureError` for fewer
    than 4 tokens.
    """
    layers, n, _ = features.shape
    if n < MIN_TOKENS:
        raise MeasureError(f"Unbiased HSIC needs at least {MIN_TOKENS} tokens, got {n}. Use a longer text.")
    kernels = features @ features.transpose(1, 2)
    kernels.diagonal(dim1=1, dim2=2).zero_()
    rows = kernels.sum(dim=2)
    totals = rows.sum(dim=1)
    flat = kernels.reshape(layers, n * n)
    together = flat @ flat.T
    apart = torch.outer(totals, totals) / ((n - 1) * (n - 2))
    across = rows @ rows.T * (2 / (n - 2))
    return (together + apart - across) / (n * (n - 3))


def cka_from_hsic(hsic: Tensor) -> Tensor:
    """Compute CKA from the averaged HSIC, (states, states); NaN for a state whose HSIC with itself is not positive."""
    scale = hsic.diagonal().sqrt()
    return hsic / torch.outer(scale, scale)


CLAIM = "same_space"
MIN_LAYERS = 8
"""Minimum depth. An eighth of a shallower model is less than one layer."""


@dataclass(frozen=True, slots=True)
class DocumentCosines:
    """Sums of cosines between states for each document, (documents, states, states).

    In `cosine` both states are of the same token. In `elsewhere` they are of tokens from different documents.
    """

    cosine: Numbers
    elsewhere: Numbers
    tokens: Numbers


def same_space(
    every: DocumentCosines, no_sink: DocumentCosines, *, seed: Seed = 0, resamples: int = 2_000
) -> list[Score]:
    """Compare the similarity among middle states with their similarity to the first and last states (figure 3).

    The first and last states are an eighth of the depth at each end. `published` is the mean cosine between middle
    states minus that between middle and end states. The other metrics exclude sinks, and compare only pairs of states
    that are equally far apart. There are no rows for fewer than 8 layers.

        beginning, ending = mean_d ( mean_{middle, middle} e(i, i+d)  -  mean_{end, middle} e(i, i+d) )
        e(i, j) = cos of states i and j of one token, minus that of tokens of different documents
    """
    depth = every.cosine.shape[1] - 1
    if depth < MIN_LAYERS:
        return []
    excess = no_sink.cosine - no_sink.elsewhere
    sums = {
        "published": (every, np.tensordot(every.cosine, _published_weights(depth), 2)),
        "beginning": (no_sink, np.tensordot(excess, _end_weights(depth, lambda state, middle: state < middle[0]), 2)),
        "ending": (no_sink, np.tensordot(excess, _end_weights(depth, lambda state, middle: state > middle[-1]), 2)),
    }
    return [_row(metric, cosines.tokens, numerators, seed, resamples) for metric, (cosines, numerators) in sums.items()]


def _row(metric: str, tokens: Numbers, numerators: Numbers, seed: Seed, resamples: int) -> Score:
    part = Part(numerators[None], tokens, len(tokens), int(tokens.sum()))
    return Resampled.from_parts([part], seed=seed, resamples=resamples).row(CLAIM, metric, take_first)


def middle_states(depth: int) -> range:
    """Return the middle hidden states: 1 to `depth` without an eighth of the depth at each end.

    >>> middle_states(32), middle_states(12)
    (range(5, 29), range(3, 11))
    """
    end = round(depth / 8)
    return range(1 + end, 1 + depth - end)


def _published_weights(depth: int) -> Numbers:
    middle = np.isin(np.arange(depth + 1), middle_states(depth))
    counted = np.triu(np.outer(np.arange(depth + 1) > 0, np.ones(depth + 1, dtype=bool)), 1)
    within, across = counted & np.outer(middle, middle), counted & np.not_equal.outer(middle, middle)
    return np.asarray(within / within.sum() - across / across.sum())


def _end_weights(depth: int, is_end: Callable[[int, range], bool]) -> Numbers:
    middle = middle_states(depth)
    ends = [state for state in range(1, depth + 1) if is_end(state, middle)]
    weights, distances = np.zeros((depth + 1, depth + 1)), 0
    for distance in range(1, len(middle)):
        within = [(state, state + distance) for state in middle if state + distance in middle]
        across = [(state, other) for state in ends for other in middle if abs(state - other) == distance]
        if not across:
            continue
        distances += 1
        for pairs, sign in ((within, 1), (across, -1)):
            rows, columns = np.array(pairs).T
            weights[rows, columns] += sign / len(pairs)
    return weights / distances
