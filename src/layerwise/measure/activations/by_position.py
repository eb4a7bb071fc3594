"""Measure layers at every position: in the `depth` rotations of an order, each layer runs once at each position."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from torch.utils.data import DataLoader, Subset

from layerwise.data.splits import sample
from layerwise.errors import UnsupportedModelError
from layerwise.measure.activations.padding import token_mask, token_mean
from layerwise.measure.interventions.accuracy import predict_batch, split_labels
from layerwise.measure.language.loss import LanguageModelHead, find_head
from layerwise.measure.stats.float64 import to_float64_cpu, widen
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.ridge import Moments, RidgeFit
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.plan.samplers import SeededSampler, Shuffle
from layerwise.results.rows import Note, Score
from layerwise.results.vocabulary import BRANCHES
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

Collate = Callable[[Sequence[Any]], dict[str, Tensor]]
BASES = 3
EXAMPLES = 64


def draw_rotations(depth: int, seed: str) -> tuple[Plan, ...]:
    layers = list(range(depth))
    random.Random(seed).shuffle(layers)
    return tuple(Plan.of(layers[shift:] + layers[:shift]) for shift in range(depth))


def branch_norms(
    stack: Stack, variant: str, examples: Any, collate: Collate, *, seed: int = 0
) -> tuple[list[Score], list[Note]]:
    """Measure the update of every layer at every position in the order, and return rows of measure `branches`.

    `norm` is the Euclidean norm of a sublayer's update, averaged over tokens. `share` is the norm of the layer's update
    divided by that of its input. If layers cannot be split into sublayers, there is only `share`, and a note.
    """
    (inputs,) = sample_batches(stack, examples, collate, EXAMPLES, seed, parts=1)
    has_branches, notes = True, []
    values: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    with evaluating(stack.model), torch.inference_mode():
        captured = stack.capture(**inputs)
        counted = token_mask(inputs, captured.state)
        try:
            stack.branches(captured)
        except UnsupportedModelError as refused:
            has_branches, notes = False, [Note(BRANCHES, f"{variant}: {refused}")]
        for plan in (p for base in range(BASES) for p in draw_rotations(stack.depth, f"{seed}/rotations/{base}")):
            before = captured.state
            for position, layer in enumerate(plan.order()):
                after = stack.apply(layer, before, captured)
                values[layer, position, "share"].append(update_share(before, after, counted))
                if has_branches:
                    middle = stack.apply(layer, before, captured, "attn")
                    for part, update in (("attn", subtract(middle, before)), ("mlp", subtract(after, middle))):
                        values[layer, position, part].append(float(_norms(update, counted).mean()))
                before = after
    rows = []
    for (layer, position, name), norms in sorted(values.items()):
        about: dict[str, Any] = {"variant": variant, "layer": layer, "position": position}
        if name == "share":
            rows.append(Score(BRANCHES, "share", float(np.mean(norms)), **about))
        else:
            rows.append(Score(BRANCHES, "norm", float(np.mean(norms)), part=name, **about))
    return rows, notes


def update_share(before: Tensor, after: Tensor, counted: Tensor) -> float:
    """Return the norm of a layer's update divided by that of its input, averaged over tokens."""
    size = _norms(before, counted)
    return float((_norms(subtract(after, before), counted) / size.clamp_min(torch.finfo(size.dtype).tiny)).mean())


def subtract(after: Tensor, before: Tensor) -> Tensor:
    dtype = torch.promote_types(after.dtype, torch.float32)  # half precision would round it again
    return after.to(dtype) - before.to(dtype)


def pool_tokens(state: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the state of the first token for images, or the mean over tokens for text, (batch, hidden)."""
    return state[:, 0] if "pixel_values" in inputs else token_mean(state, token_mask(inputs, state))


def sample_batches(
    stack: Stack, examples: Any, collate: Collate, count: int, seed: int, *, parts: int
) -> Iterator[dict[str, Tensor]]:
    subset = Subset(examples, sample(examples, count, seed))
    return iterate_batches(stack, subset, collate, max(1, -(-len(subset) // parts)))


def iterate_batches(stack: Stack, examples: Any, collate: Collate, size: int) -> Iterator[dict[str, Tensor]]:
    for batch in DataLoader(examples, batch_size=size, collate_fn=collate):
        yield {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}


def layer_outputs(stack: Stack, plans: Sequence[Plan], inputs: Mapping[str, Tensor]) -> list[dict[int, Tensor]]:
    """Return the output of every layer under each plan, pooled by `pool_tokens`, (batch, hidden) each."""
    with evaluating(stack.model), torch.inference_mode():
        captured = stack.capture(**inputs)
        return [
            {
                layer: pool_tokens(state, inputs)
                for layer, state in zip(plan.order(), islice(stack.states(plan, captured), 1, None), strict=True)
            }
            for plan in plans
        ]


def _norms(state: Tensor, counted: Tensor) -> Tensor:
    return torch.linalg.vector_norm(widen(state[counted]).flatten(1), dim=1)


MAX_FITTED = 512
"""Maximum number of examples to fit the probes on; each example runs with every layer at every position."""

PENALTY = 0.001

STREAM = "position"
"""Name of the random stream that draws the orders in which positions are predicted."""


def probe_positions(
    stack: Stack, fitted_on: Any, judged_on: Any, collate: Collate, batch_size: Callable[[int], int], seed: int
) -> dict[int, Numbers]:
    """Fit a linear probe to each layer that predicts its position in the order from its output.

    The probe is a ridge regression of the one-hot position on the normalized output, as in the head of
    LayerShuffle-predict (`layerwise.train.position`). It is evaluated on held-out examples in other random orders:

        predicted position = argmax W_l norm(z)        z the first token of an image, the mean over tokens of a text

    Returns:
        For each position, the numbers of correct and of all predictions in each batch, (2, batches).
    """
    fits = _fit_probes(stack, Subset(fitted_on, sample(fitted_on, MAX_FITTED, seed)), collate, batch_size, seed)
    draws = SeededSampler(Shuffle(), stack.depth, seed, stream=STREAM)
    counts: dict[int, list[tuple[int, int]]] = {position: [] for position in range(stack.depth)}
    for number, inputs in enumerate(iterate_batches(stack, judged_on, collate, batch_size(len(judged_on)))):
        plan = draws.at(number)
        (outputs_by_layer,) = _normalized_outputs(stack, [plan], inputs)
        for position, (layer, outputs) in enumerate(outputs_by_layer.items()):
            right = fits[layer].predict(outputs).argmax(dim=1) == position
            counts[position].append((int(right.sum()), len(right)))
    return {position: np.array(answers, dtype=np.float64).T for position, answers in counts.items()}


def _fit_probes(
    stack: Stack, examples: Any, collate: Collate, batch_size: Callable[[int], int], seed: int
) -> list[RidgeFit]:
    moments: list[Moments | None] = [None] * stack.depth
    for number, inputs in enumerate(iterate_batches(stack, examples, collate, batch_size(len(examples)))):
        for outputs_by_layer in _normalized_outputs(
            stack, draw_rotations(stack.depth, f"{seed}/probe/{number}"), inputs
        ):
            for position, (layer, outputs) in enumerate(outputs_by_layer.items()):
                one_hot = torch.eye(stack.depth, dtype=torch.float64, device="cpu")[position]
                seen = Moments.from_rows(outputs, one_hot.expand(len(outputs), -1))
                before = moments[layer]
                moments[layer] = seen if before is None else before + seen
    return [each.fit([PENALTY])[0] for each in moments if each is not None]


def _normalized_outputs(
    stack: Stack, plans: Sequence[Plan], inputs: Mapping[str, Tensor]
) -> Iterator[dict[int, Tensor]]:
    for outputs in layer_outputs(stack, plans, inputs):
        wide_outputs = {layer: to_float64_cpu(state) for layer, state in outputs.items()}
        yield {layer: layer_norm(state, state.shape[-1:]) for layer, state in wide_outputs.items()}


MAX_EXAMPLES = 512
"""Maximum number of examples; each example runs under depth * (depth + 1) plans."""

UNITS = MIN_UNITS
"""Number of batches. It is the minimum for an interval, because each batch runs under many plans."""


@dataclass(frozen=True, slots=True, eq=False)
class PositionTables:
    """The results of `importance_by_position`, both of shape (batches, layers, positions)."""

    added: Numbers
    importance: Numbers


def importance_by_position(
    stack: Stack, examples: Any, collate: Callable[[Sequence[Any]], dict[str, Tensor]], *, seed: int = 0
) -> PositionTables:
    """Measure the update and the importance of each layer at each position in the order.

        added[l, p]         norm of the update of layer l at position p, divided by that of its input, mean over tokens
        importance[l, p]    loss increase when layer l at position p is skipped, in nats

    Each batch runs in all rotations of a random order, first with all layers, then with each layer skipped in turn. The
    order depends only on the seed and the batch.
    """
    subset = Subset(examples, _deal(sample(examples, min(MAX_EXAMPLES, len(examples)), seed), UNITS))
    size = max(1, len(subset) // UNITS)
    shape, head = (stack.depth, stack.depth), find_head(stack)
    added, importance = [], []
    for number, batch in enumerate(DataLoader(subset, batch_size=size, collate_fn=collate)):
        if number == UNITS:
            break  # the rest is less than a batch
        added.append(np.zeros(shape))
        importance.append(np.zeros(shape))
        with evaluating(stack.model), torch.inference_mode():
            _fill_tables(stack, head, batch, f"{seed}/worth/{number}", added[-1], importance[-1])
    return PositionTables(np.array(added), np.array(importance))


def _fill_tables(
    stack: Stack, head: LanguageModelHead | None, batch: Any, seed: str, added: Numbers, importance: Numbers
) -> None:
    inputs, labels = split_labels(batch, stack.device)
    captured = stack.capture(**inputs)
    counted = token_mask(inputs, captured.state)

    def loss(plan: Plan) -> float:
        under = partial(stack.under, plan, single_pass=True)
        return predict_batch(stack.model, head, inputs, labels, under=under).mean_nll

    for plan in draw_rotations(stack.depth, seed):
        full = loss(plan)
        for position, (layer, states) in enumerate(
            zip(plan.order(), pairwise(stack.states(plan, captured)), strict=True)
        ):
            added[layer, position] = update_share(*states, counted)
            importance[layer, position] = loss(skip(plan, layer)) - full


def _deal(indices: Sequence[int], units: int) -> list[int]:
    size = len(indices) // units
    dealt = [list(indices[start::units]) for start in range(units)]
    return [index for unit in dealt for index in unit[:size]] or list(indices)
