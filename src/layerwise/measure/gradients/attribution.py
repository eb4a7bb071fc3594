"""Compute the share of a classifier's decision by token, with integrated gradients (Sundararajan et al. 2017).

For f = logit(1) - logit(0), token vectors x (seq, width), and a baseline b, all but special tokens masked (or padding):
    a_i = sum over the width of (x_i - b_i) * integral from 0 to 1 of df/dx_i (b + t (x - b)) dt
They sum to f(x) - f(b). Gauss-Legendre nodes double, up to `MAX_NODES`, until the error is at most `TOLERANCE` of
sum |a_i|. The null of the share of some words is their share of the tokens.
"""

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
"""The first character of each word, and the one behind it."""


@dataclass(frozen=True, slots=True)
class MarkedText:
    text: str
    linguistic: Spans
    surface: Spans


@dataclass(frozen=True, slots=True)
class FeatureShares:
    """Each text's share of attribution on the words of each feature, and those words' share of the tokens.

    `gap` is the largest part of sum |a_i| that is missing from completeness.
    """

    linguistic: tuple[float, ...]
    surface: tuple[float, ...]
    linguistic_tokens: tuple[float, ...]
    surface_tokens: tuple[float, ...]
    gap: float


@dataclass(frozen=True, slots=True, eq=False)
class Attributions:
    """Attributions (batch, seq), and the difference that they should sum to, (batch,)."""

    tokens: Tensor
    difference: Tensor

    @property
    def gaps(self) -> Tensor:
        """What is missing from completeness, as a share of sum |a_i|, (batch,)."""
        size = self.tokens.abs().sum(1)
        return (self.tokens.sum(1) - self.difference).abs() / size.clamp(min=torch.finfo(size.dtype).tiny)


def integrated_gradients(
    decision: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, nodes: int = NODES
) -> Attributions:
    """Attribute `decision`, from token vectors (batch, seq, width) to (batch,), relative to `baseline`.

    >>> linear = integrated_gradients(lambda x: 2 * x[:, :, 0].sum(1), torch.ones(1, 2, 1), torch.zeros(1, 2, 1))
    >>> linear.tokens.round(decimals=3).tolist(), linear.difference.tolist()
    ([[2.0, 2.0]], [4.0])
    """
    points, weights = np.polynomial.legendre.leggauss(nodes)
    total = torch.zeros_like(vectors)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        at = (baseline + float(point) * (vectors - baseline)).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(decision(at).sum(), at)
        total += float(weight) * gradient
    with torch.no_grad():
        return Attributions(((vectors - baseline) * total).sum(-1), decision(vectors) - decision(baseline))


def feature_shares(model: Any, tokenizer: Any, texts: Sequence[MarkedText], length: int) -> FeatureShares:
    """Compute the shares of a binary classifier's decision; texts are cut to `length` tokens.

    Raises `MeasureError` for other than two labels, and for a tokenizer without offsets.
    """
    if model.config.num_labels != 2:
        raise MeasureError(f"attribution is of a choice between 2 labels; the model has {model.config.num_labels}")
    if not tokenizer.is_fast:
        raise MeasureError("the tokenizer does not say where tokens stand in the text; use its fast version")
    rows: list[tuple[float, float, float, float]] = []
    gaps: list[float] = []
    with evaluating(model):
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            attributions, positions = _attribute(model, tokenizer, some, length)
            gaps += attributions.gaps.tolist()
            rows += [
                _split_shares(text, own, where)
                for text, own, where in zip(some, attributions.tokens.abs().cpu().numpy(), positions, strict=True)
            ]
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

    def decision(at: Tensor) -> Tensor:
        logits: Tensor = model(inputs_embeds=at, attention_mask=mask).logits
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
    own = [index for index, where in enumerate(positions) if where is not None]
    on = [[index for index in own if _overlaps(positions[index], spans)] for spans in (text.linguistic, text.surface)]
    whole = float(sizes[own].sum())
    shares = [float(sizes[each].sum()) / whole if whole > 0 else len(each) / len(own) for each in on]
    return shares[0], shares[1], len(on[0]) / len(own), len(on[1]) / len(own)


def _overlaps(where: tuple[int, int] | None, spans: Spans) -> bool:
    return where is not None and any(where[0] < end and start < where[1] for start, end in spans)
