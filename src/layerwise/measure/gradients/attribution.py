"""Token attributions of a binary classifier by integrated gradients (Sundararajan et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.stack.inputs import evaluating
from layerwise.stack.placement import device_of

NODES = 20
MAX_NODES = 320
TOLERANCE = 0.01
_BATCH = 32

Spans = tuple[tuple[int, int], ...]
"""The start and the end of each word, in characters."""


@dataclass(frozen=True, slots=True)
class MarkedText:
    text: str
    linguistic: Spans
    surface: Spans


@dataclass(frozen=True, slots=True)
class FeatureShares:
    """For each text, the fraction of its attribution that is on the words of the linguistic and the surface feature.

    The baseline is the fraction of tokens in these words (`linguistic_tokens`, `surface_tokens`). `gap` is the largest
    completeness error, relative to the sum of the absolute attributions.
    """

    linguistic: tuple[float, ...]
    surface: tuple[float, ...]
    linguistic_tokens: tuple[float, ...]
    surface_tokens: tuple[float, ...]
    gap: float


@dataclass(frozen=True, slots=True, eq=False)
class Attributions:
    """Token attributions (batch, seq), and the change from baseline to input, (batch,), to which they should sum."""

    tokens: Tensor
    difference: Tensor

    @property
    def gaps(self) -> Tensor:
        """The completeness error relative to the sum of the absolute attributions, (batch,)."""
        size = self.tokens.abs().sum(1)
        return (self.tokens.sum(1) - self.difference).abs() / size.clamp(min=torch.finfo(size.dtype).tiny)


def integrated_gradients(
    decision: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, nodes: int = NODES
) -> Attributions:
    """Attribute the difference of a function f between `vectors` x and `baseline` b to each token i.

        a_i = sum over hidden of (x_i - b_i) * integral from 0 to 1 of df/dx_i (b + t (x - b)) dt

    `decision` is f, which maps (batch, seq, hidden) to (batch,). The integral is computed with `nodes` Gauss-Legendre
    nodes.

    >>> linear = integrated_gradients(lambda x: 2 * x[:, :, 0].sum(1), torch.ones(1, 2, 1), torch.zeros(1, 2, 1))
    >>> linear.tokens.round(decimals=3).tolist(), linear.difference.tolist()
    ([[2.0, 2.0]], [4.0])
    """
    points, weights = np.polynomial.legendre.leggauss(nodes)
    total = torch.zeros_like(vectors)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        inputs = (baseline + float(point) * (vectors - baseline)).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(decision(inputs).sum(), inputs)
        total += float(weight) * gradient
    with torch.no_grad():
        return Attributions(((vectors - baseline) * total).sum(-1), decision(vectors) - decision(baseline))


def feature_shares(model: Any, tokenizer: Any, texts: Sequence[MarkedText], length: int) -> FeatureShares:
    """Compute how much of the attribution of f = logit(1) - logit(0) is on the words of each feature.

    Texts are truncated to `length` tokens. In the baseline, all tokens except special ones are masked (or padding). The
    number of nodes is doubled, up to `MAX_NODES`, until the completeness error is at most `TOLERANCE`.

    Raises:
        MeasureError: If the model does not have two labels, or the tokenizer does not return the offsets of tokens.
    """
    if model.config.num_labels != 2:
        raise MeasureError(f"Attribution needs a binary classifier, got {model.config.num_labels} labels.")
    if not tokenizer.is_fast:
        raise MeasureError("Attribution needs the offsets of tokens. Use the fast version of the tokenizer.")
    rows: list[tuple[float, float, float, float]] = []
    gaps: list[float] = []
    with evaluating(model):
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            attributions, positions = _attribute(model, tokenizer, batch, length)
            gaps += attributions.gaps.tolist()
            rows += map(_split_shares, batch, attributions.tokens.abs().cpu().numpy(), positions)
    linguistic, surface, linguistic_tokens, surface_tokens = (tuple(column) for column in zip(*rows, strict=True))
    return FeatureShares(linguistic, surface, linguistic_tokens, surface_tokens, max(gaps))


def _attribute(
    model: Any, tokenizer: Any, texts: Sequence[MarkedText], length: int
) -> tuple[Attributions, list[list[tuple[int, int] | None]]]:
    encoded = tokenizer(
        [each.text for each in texts],
        truncation=True,
        max_length=length,
        padding=True,
        return_tensors="pt",
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    special = encoded["special_tokens_mask"].bool()
    positions = [
        [None if hidden else (int(start), int(end)) for (start, end), hidden in zip(offsets, hide, strict=True)]
        for offsets, hide in zip(encoded["offset_mapping"].tolist(), special.tolist(), strict=True)
    ]
    device = device_of(model)
    mask, ids = encoded["attention_mask"].to(device), encoded["input_ids"].to(device)
    embed = model.get_input_embeddings()
    blank = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.pad_token_id
    with torch.no_grad():
        vectors, baseline = embed(ids), embed(ids.masked_fill(~special.to(device), blank))

    def decision(inputs: Tensor) -> Tensor:
        logits: Tensor = model(inputs_embeds=inputs, attention_mask=mask).logits
        return logits[:, 1] - logits[:, 0]

    nodes = NODES
    attributions = integrated_gradients(decision, vectors, baseline, nodes)
    while float(attributions.gaps.max()) > TOLERANCE and nodes < MAX_NODES:
        nodes *= 2
        attributions = integrated_gradients(decision, vectors, baseline, nodes)
    return attributions, positions


def _split_shares(
    text: MarkedText, sizes: np.ndarray[Any, Any], positions: Sequence[tuple[int, int] | None]
) -> tuple[float, float, float, float]:
    tokens = {index: where for index, where in enumerate(positions) if where is not None}
    linguistic, surface = (
        [index for index, (start, end) in tokens.items() if any(start < last and first < end for first, last in spans)]
        for spans in (text.linguistic, text.surface)
    )
    total = float(sizes[list(tokens)].sum())
    shares = [len(each) / len(tokens) for each in (linguistic, surface)]
    attributed = [float(sizes[each].sum()) / total for each in (linguistic, surface)] if total > 0 else shares
    return attributed[0], attributed[1], shares[0], shares[1]
