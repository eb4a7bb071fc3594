"""Entropy, distance and first-token fraction of attention, for each layer at each position in the order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from layerwise.measure.activations.by_position import Collate, draw_rotations, sample_batches
from layerwise.measure.activations.padding import token_mask
from layerwise.measure.stats.float64 import widen
from layerwise.results.rows import Note, Score
from layerwise.results.vocabulary import ATTENTION, UNIFORM_ATTENTION
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

EXAMPLES = 64
BATCHES = 8
TINY = 1e-30
"""Added inside logarithms, so that zero attention contributes nothing to an entropy."""

Sums = dict[tuple[str, str | None], tuple[float, float]]
"""Maps a metric, and the name of a baseline or None, to a sum over queries and its divisor."""


def attention_by_position(
    stack: Stack, variant: str, examples: Any, collate: Collate, *, seed: int = 0
) -> tuple[list[Score], list[Note]]:
    """Measure the attention of every layer at every position in the order, using rotations of random orders.

    a_qk is the attention from query q to key k. The metrics are averaged over heads, tokens and examples, and compared
    with uniform attention over the visible keys:

        entropy     sum_q -sum_k a_qk log a_qk, relative to uniform attention (1 is uniform, 0 is a single key)
        first       attention of all other queries to the first token, which is the class token of a ViT
        distance    mean distance to the attended key, in patches without the class token (Dosovitskiy et al. 2021,
                    figure 7) or in tokens

    If the model does not return attention, there is only a note.
    """
    totals: dict[tuple[int, int, tuple[str, str | None]], list[tuple[float, float]]] = defaultdict(list)
    with evaluating(stack.model), torch.inference_mode(), eager_attention(stack.model):
        for number, inputs in enumerate(sample_batches(stack, examples, collate, EXAMPLES, seed, parts=BATCHES)):
            for plan in draw_rotations(stack.depth, f"{seed}/attention/{number}"):
                weights = run_with_attention(stack, inputs, stack.under(plan, single_pass=True))
                if not weights:
                    return [], [Note(ATTENTION, f"{variant}: the model does not return the attention of every layer")]
                for position, layer in enumerate(plan.order()):
                    for metric, pair in attention_sums(weights[position], inputs).items():
                        totals[layer, position, metric].append(pair)
    rows = []
    in_order = sorted(totals, key=lambda key: (*key[:2], key[2][0], key[2][1] or ""))
    for layer, position, (name, against) in in_order:
        above, below = map(sum, zip(*totals[layer, position, (name, against)], strict=True))
        rows.append(
            Score(ATTENTION, name, above / below, variant=variant, layer=layer, position=position, against=against)
        )
    return rows, []


def attention_sums(weights: Tensor, inputs: Mapping[str, Tensor]) -> Sums:
    """Return each metric of a layer's attention, (batch, heads, query, key), as a sum over queries and its divisor."""
    mean = widen(weights)
    counted = token_mask(inputs, mean[:, 0])
    visible = (mean > 0).any(dim=1) & counted[:, None, :]
    asking = counted & (visible.sum(dim=2) > 1)
    even = widen(visible) / visible.sum(dim=2, keepdim=True).clamp_min(1)
    entropy = -(mean * (mean + TINY).log()).sum(dim=-1).mean(dim=1)
    most = visible.sum(dim=2).clamp_min(1).to(mean.dtype).log()
    over_heads = mean.mean(dim=1)
    others = asking.clone()
    others[:, 0] = False
    sums: Sums = {
        ("entropy", None): (_masked_sum(entropy, asking), _masked_sum(most, asking)),
        ("first", None): (_masked_sum(over_heads[:, :, 0], others), float(others.sum())),
        ("first", UNIFORM_ATTENTION): (_masked_sum(even[:, :, 0], others), float(others.sum())),
    }
    distances = token_distances(mean.shape[-1], is_image="pixel_values" in inputs)
    if distances is not None:
        # The class token of an image has no position.
        start = 1 if "pixel_values" in inputs else 0
        between = distances.to(mean.device, mean.dtype)
        for against, attention in ((None, over_heads), (UNIFORM_ATTENTION, even)):
            inner = attention[:, start:, start:]
            weight = inner.sum(dim=2).clamp_min(TINY)
            far = (inner * between).sum(dim=2) / weight
            sums["distance", against] = (_masked_sum(far, asking[:, start:]), float(asking[:, start:].sum()))
    return {metric: pair for metric, pair in sums.items() if pair[1] > 0}


def token_distances(tokens: int, *, is_image: bool) -> Tensor | None:
    """Return the distances between all tokens or all patches of a square image, or None if it is not square.

    >>> token_distances(5, is_image=True)[0].round(decimals=2).tolist()
    [0.0, 1.0, 1.0, 1.41]
    """
    if not is_image:
        steps = torch.arange(tokens, dtype=torch.float64, device="cpu")
        return (steps[:, None] - steps[None]).abs()
    side = round((tokens - 1) ** 0.5)
    if side < 2 or side * side != tokens - 1:
        return None
    grid = widen(torch.cartesian_prod(torch.arange(side, device="cpu"), torch.arange(side, device="cpu")))
    return torch.cdist(grid, grid)


def _masked_sum(values: Tensor, counted: Tensor) -> float:
    return float(values.masked_fill(~counted, 0.0).sum())


def run_with_attention(
    stack: Stack, inputs: Mapping[str, Tensor], under: AbstractContextManager[Any]
) -> Sequence[Tensor]:
    """Return the attention of every layer, (batch, heads, query, key) each, or () if the model does not return it."""
    try:
        with under:
            output = stack.model(**inputs, output_attentions=True)
    except (TypeError, ValueError, RuntimeError):
        return ()  # models refuse `output_attentions` in any of these ways
    weights = getattr(output, "attentions", None) or ()
    is_square = all(isinstance(each, Tensor) and each.ndim == 4 and each.shape[2] == each.shape[3] for each in weights)
    return weights if is_square and len(weights) == stack.depth else ()


@contextmanager
def eager_attention(model: nn.Module) -> Iterator[None]:
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if not isinstance(model, PreTrainedModel) or before is None:
        yield
        return
    try:
        with suppress(ValueError):  # the model does not support it
            model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)
