"""The structure of the activations: what layers add beside what they read, and how much attention the sinks draw.

    output_ratio     layer, half   mean over tokens of |what it adds| / |the residual stream it is added to|
    sink_strength    layer         share of the attention that goes to sink tokens, mean over heads and queries
    sink_norm        layer         norm of the first token / median norm, after the layer (where no attention is given)

The residual stream of a half is the state before the layer plus what the layer's earlier half has added: the sum that
its own output joins. Sink tokens (`layerwise.measure.activations.similarity.sink_tokens`) are left out of the ratios:
their norms are a thousand times those of others, and nothing that is added to them shows. As queries they are left out
of the sink strength too: the first token can look at nothing else.

Nulls: of `output_ratio` against `random_twin`; of `sink_strength` against `uniform`, what the sinks would draw if a
query looked at all tokens that it can see alike. Rows are of measure `structure`. Attention sinks: Xiao et al. 2023,
arXiv 2309.17453.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from layerwise.data.batches import AnyBatch, Batch
from layerwise.errors import UnsupportedModel
from layerwise.measure.activations.padding import (
    captured_batch,
    check_finite,
    counted_states,
    counted_tokens,
    some_windows,
)
from layerwise.measure.activations.residual_updates import additions, completing, difference, split
from layerwise.measure.activations.similarity import sink_tokens
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.float64 import norms, wide
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan, Sublayer
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RANDOM_TWIN, STRUCTURE, UNIFORM_GUESS
from layerwise.stack import Capture, Stack
from layerwise.stack.branches import Branches
from layerwise.stack.inputs import accepted, evaluating
from layerwise.stack.weights import random_twin

ATTENTION = 1 << 25
"""Attention weights held at once, over all layers: 128 MB in float32."""


def activations(stack: Stack, data: EvalData, *, seed: int = 0) -> list[Score]:
    """The rows of the module for `stack` on `data`, with Student intervals over documents.

    `seed` draws the weights of the random twin; a model that has no twin has no rows of it. Raises `MeasureError` for a
    state that is not finite.
    """
    branches = split(stack, data)
    scores = output_ratios(stack, data, branches)
    with suppress(UnsupportedModel):
        untrained = output_ratios(random_twin(stack, seed), data, branches)
        scores += [replace(score, against=RANDOM_TWIN) for score in untrained]
    return [*scores, *sinks(stack, data)]


def output_ratios(stack: Stack, data: EvalData, branches: Branches | None) -> list[Score]:
    """`output_ratio` of every layer, and of every half where there are `branches`."""
    sums = WindowSums()
    halves: list[tuple[int, Sublayer | None]] = []
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            captured = captured_batch(stack, batch)
            states = [captured.state]
            ratios: dict[tuple[int, Sublayer | None], Tensor] = {}
            for layer in range(stack.depth):
                after, added = _layer(stack, layer, states[-1], captured, branches)
                ratios.update(_ratios(layer, states[-1], after, added))
                states.append(after)
            counted = counted_tokens(batch.inputs, states[0])
            check_finite(states, counted, [window.document for window in batch.windows])
            # A token whose embedding is all zeros (a padding token that is text) reads nothing to be compared with.
            kept = counted & ~sink_tokens(states, counted) & states[0].flatten(2).any(dim=2)
            halves = list(ratios)
            sums.add(torch.stack([_total(each, kept) for each in ratios.values()]), kept.sum(dim=1), batch.windows)
    return sums.scores(STRUCTURE, "output_ratio", [{"layer": layer, "part": part} for layer, part in halves])


def sinks(stack: Stack, data: EvalData) -> list[Score]:
    """`sink_strength` with its null, or `sink_norm` of a model that does not give its attention."""
    with evaluating(stack.model), torch.inference_mode(), eager(stack.model):
        attention = _attention_sinks(stack, data)
        return attention or _norm_sinks(stack, data)


def _layer(
    stack: Stack, layer: int, before: Tensor, captured: Capture, branches: Branches | None
) -> tuple[Tensor, Mapping[Sublayer, Tensor]]:
    """The state after a layer, and what each of its branches adds, in the order in which they add it."""
    run = partial(stack.apply, layer, before, captured)
    if branches is None:
        return run(), {}
    block, pair = stack.block(layer), branches.paths[layer]
    with completing(block, pair) as order:
        after = run()
    return after, additions(block, pair, order, before, after, run)


def _ratios(
    layer: int, before: Tensor, after: Tensor, added: Mapping[Sublayer, Tensor]
) -> Iterator[tuple[tuple[int, Sublayer | None], Tensor]]:
    """A layer, whole and by halves, each with its ratio at every token, (batch, seq)."""
    yield (layer, None), _ratio(difference(after, before), before)
    stream = before
    for part, one in added.items():
        yield (layer, part), _ratio(one, stream)
        stream = stream + one


def _attention_sinks(stack: Stack, data: EvalData) -> list[Score]:
    """The rows of `sink_strength`; none at all for a model that does not give the attention of every layer."""
    drawn, chance = WindowSums(), WindowSums()
    for batch in data.batches:
        for part in some_windows(batch, _windows_at_once(stack, batch)):
            seen = _attention(stack, part)
            if seen is None:
                return []
            weights, states = seen
            counted = counted_tokens(part.inputs, states[0])
            at = sink_tokens(states, counted)
            asking = counted & ~at
            shares = [_share_of_sinks(layer, at, asking) for layer in weights]
            drawn.add(torch.stack([each for each, _ in shares]), asking.sum(dim=1), part.windows)
            chance.add(torch.stack([each for _, each in shares]), asking.sum(dim=1), part.windows)
    layers = [{"layer": layer} for layer in range(stack.depth)]
    return [
        *drawn.scores(STRUCTURE, "sink_strength", layers),
        *chance.scores(STRUCTURE, "sink_strength", layers, against=UNIFORM_GUESS),
    ]


def _windows_at_once(stack: Stack, batch: AnyBatch) -> int:
    """How many windows may give the attention of all their layers together; one where the heads are not known."""
    config = getattr(stack.model, "config", None)
    heads = getattr(config and config.get_text_config(), "num_attention_heads", None)
    if not isinstance(heads, int) or not isinstance(batch, Batch):
        return 1
    return ATTENTION // (stack.depth * heads * batch.input_ids.shape[1] ** 2)


def _attention(stack: Stack, batch: AnyBatch) -> tuple[Sequence[Tensor], Sequence[Tensor]] | None:
    """Attention weights of all layers and the hidden states; `None` if one is not given."""
    inputs = accepted(stack.model, {name: value.to(stack.device) for name, value in batch.inputs.items()})
    output, weights = with_attention(stack, inputs, output_hidden_states=True)
    states = getattr(output, "hidden_states", None)
    return (weights, states) if weights and states and len(states) == stack.depth + 1 else None


def with_attention(
    stack: Stack, inputs: Mapping[str, Tensor], under: AbstractContextManager[Any] | None = None, **wanted: bool
) -> tuple[Any, Sequence[Tensor]]:
    """What the model gives within a context, and the attention of its layers, (batch, heads, query, key) each; none at
    all where one is not given.
    """
    try:
        with under or nullcontext():
            output = stack.model(**inputs, output_attentions=True, **wanted)
    except (TypeError, ValueError, RuntimeError):
        return None, ()  # a model may refuse the question in any of these ways
    weights = getattr(output, "attentions", None) or ()
    given = all(isinstance(of, Tensor) and of.ndim == 4 and of.shape[2] == of.shape[3] for of in weights)
    return output, weights if given and len(weights) == stack.depth else ()


def _share_of_sinks(weights: Tensor, at: Tensor, asking: Tensor) -> tuple[Tensor, Tensor]:
    """Summed over the queries that ask, (batch,): the attention on sinks, and what it would be if spread evenly.

    A query can see the keys to which any head gives any weight at all.
    """
    keys = at[:, None, :]
    drawn = (wide(weights).mean(dim=1) * keys).sum(dim=2)
    visible = (weights > 0).any(dim=1)
    even = wide((visible & keys).sum(dim=2)) / visible.sum(dim=2).clamp_min(1)
    return _total(drawn, asking), _total(even, asking)


def _norm_sinks(stack: Stack, data: EvalData) -> list[Score]:
    """The rows of `sink_norm`, which need no attention."""
    plan = Plan.identity(stack.depth)
    sums = WindowSums()
    for batch in data.batches:
        states, counted = counted_states(stack, plan, batch)
        ratios = torch.stack([_first_to_median(norms(state), counted) for state in states[1:]])
        sums.add(ratios, torch.ones(len(batch.windows)), batch.windows)
    return sums.scores(STRUCTURE, "sink_norm", [{"layer": layer} for layer in range(stack.depth)])


def _first_to_median(norms: Tensor, counted: Tensor) -> Tensor:
    """Each window's norm of the first counted token by the median of all counted ones, (batch,)."""
    first = norms.gather(1, counted.long().argmax(dim=1, keepdim=True)).squeeze(1)
    return first / norms.masked_fill(~counted, torch.nan).nanmedian(dim=1).values


def _ratio(added: Tensor, stream: Tensor) -> Tensor:
    below = norms(stream)
    return norms(added) / below.clamp_min(torch.finfo(below.dtype).tiny)


def _total(ratios: Tensor, kept: Tensor) -> Tensor:
    """Each window's sum over the tokens that are kept; padding may be anything, even not a number."""
    return ratios.masked_fill(~kept, 0.0).sum(dim=1)


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """Within the context a model of transformers computes attention step by step, so that its weights can be had."""
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if not isinstance(model, PreTrainedModel) or before is None:
        yield
        return
    try:
        with suppress(ValueError):  # the model knows no such way
            model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)
