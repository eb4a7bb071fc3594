"""Which plan of a model's layers drafts best: the most tokens per second, predicted from agreement and milliseconds.

A draft is kept where its arg-max is that of the whole model. How often it is, is measured for many plans at once, at
every token of a text: plans that begin alike share their beginnings (`layerwise.stack.executors.graph`). With agreement
a, drafts of k tokens, d milliseconds for a pass of the draft and v_(k+1) for one of the whole model on k + 1 tokens,

    tokens per second = 1000 * (1 - a^(k+1)) / (1 - a) / (k d + v_(k+1))

Layers are left out one after the other, each time the one whose loss leaves the most agreement; every plan on that way
is a candidate. What a text chose flatters it there: candidates are compared on a second, and reported on a third.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from statistics import median

import torch
from torch import Tensor

from layerwise.data.batches import Batch
from layerwise.measure.cost.pass_time import PassClock, Setting
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.plan.sublayer import Sublayer
from layerwise.search.prices import PriceTable
from layerwise.search.timing import REPEATS, measured
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import GraphExecutor, build
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.speculation.layer_passes import expected_bound, expected_tokens


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Milliseconds behind a cache: of every layer and the rest in a pass of one token, and of the whole model.

    `verify[k]` is a pass of the whole model on k + 1 tokens; `verify[0]` is plain decoding.
    """

    table: PriceTable
    verify: tuple[float, ...]

    def draft(self, plan: Plan) -> float:
        """A pass of the draft. A half of a layer costs the layer: its other branch is computed, and left out."""
        return self.table.rest + sum(self.table.pieces[step.layer, None] for step in plan.steps())

    def rate(self, plan: Plan, agreement: float, length: int) -> float:
        """Tokens per second that are expected of drafts of `length` tokens; of plain decoding for 0."""
        return 1000 * expected_tokens(agreement, length) / (length * self.draft(plan) + self.verify[length])


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A plan as a draft: how often it agrees with the whole model, its best length, and what that is expected to give.

    `rate` is in tokens per second, `bound` the speed-up in layer passes.
    """

    plan: Plan
    agreement: float
    length: int
    rate: float
    bound: float


def agreements(stack: Stack, plans: Sequence[Plan], data: EvalData) -> dict[Plan, float]:
    """The share of the scored tokens of `data` at which each plan has the arg-max of the whole model.

    >>> from layerwise.data.demo.corpus import demo_corpus
    >>> from layerwise.measure.language.evaluation_data import tokenize
    >>> from layerwise.stack import load
    >>> stack = load("demo")
    >>> agreements(stack, [Plan.identity(12)], tokenize(stack, demo_corpus(), tokens=64))[Plan.identity(12)]
    1.0
    """
    whole = Plan.identity(stack.depth)
    graph = build([whole, *plans])
    equal: Counter[int] = Counter()
    tokens = 0
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            assert isinstance(batch, Batch), "a text is read, not labelled items"
            captured = stack.capture(**{name: value.to(stack.device) for name, value in batch.inputs.items()})
            walk = GraphExecutor(
                graph,
                partial(_applied, stack, captured),
                captured.state,
                whole,
            )
            own: Tensor | None = None
            for node, state in walk.states():
                guesses = _guesses(stack, state, batch)
                own = guesses if own is None else own  # the whole model comes first
                equal[node] += int((guesses == own).sum())
            tokens += 0 if own is None else len(own)
    return {plan: equal[graph.ends[plan]] / tokens for plan in plans}


def _applied(
    stack: Stack, captured: Capture, layer: int, state: Tensor, part: Sublayer | None, source: str | None
) -> Tensor:
    return stack.apply(layer, state, captured, part, source)


def _guesses(stack: Stack, state: Tensor, batch: Batch) -> Tensor:
    """The arg-max at every scored position of a batch, window by window, so that no more logits are held."""
    parts = []
    for window in range(len(batch.windows)):
        rows = slice(window, window + 1)
        inputs = {name: value[rows].to(state.device) for name, value in batch.inputs.items()}
        part = stack.changed(state, itemgetter(rows))
        scored = batch.scored[window].to(state.device)
        parts.append(main_tensor(stack.finish(part, inputs))[0][scored].argmax(dim=-1))
    return torch.cat(parts)


def draft_times(stack: Stack, context: int, longest: int, repeats: int = REPEATS) -> DraftTimes:
    """The times of a model behind a cache of `context` tokens: medians, for drafts of up to `longest` tokens."""
    table, _ = measured(stack, Setting("decode", 1, context), repeats=repeats)
    ids = torch.randint(0, int(stack.text_config.vocab_size), (1, context + longest + 1))
    ids = ids.to(stack.device)
    verify: list[list[float]] = [[] for _ in range(longest + 1)]
    clock = PassClock(stack.device)
    with evaluating(stack.model), torch.inference_mode():
        cache = stack.model(input_ids=ids[:, :context], use_cache=True).past_key_values
        cache.activate_past_recording()
        for number in range(repeats + 2):
            for length, times in enumerate(verify):
                tokens = ids[:, context : context + length + 1]
                verified = partial(stack.model, input_ids=tokens, past_key_values=cache, use_cache=True)
                times += [1000 * clock.seconds(verified)] * (number >= 2)
                cache.crop(-length - 1)
    return DraftTimes(table, tuple(map(median, verify)))


def leaving_out(stack: Stack, data: EvalData) -> list[Plan]:
    """Plans of one layer less each, down to a single layer: each time the removal that leaves the most agreement."""
    plan, plans = Plan.identity(stack.depth), []
    while len(plan.order()) > 1:
        layers = plan.order()
        smaller = [Plan.of([*layers[:gone], *layers[gone + 1 :]]) for gone in range(len(layers))]
        agreed = agreements(stack, smaller, data)
        plan = max(smaller, key=agreed.__getitem__)
        plans.append(plan)
    return plans


def best_first(
    stack: Stack, plans: Sequence[Plan], data: EvalData, times: DraftTimes, longest: int
) -> list[DraftCandidate]:
    """The plans as drafts, each at its best length, the one with the most tokens per second first."""
    drafts = []
    for plan, agreement in agreements(stack, plans, data).items():
        length = max(range(1, longest + 1), key=lambda k: times.rate(plan, agreement, k))
        rate = times.rate(plan, agreement, length)
        bound = expected_bound(agreement, length, len(plan.steps()) / stack.depth)
        drafts.append(DraftCandidate(plan, agreement, length, rate, bound))
    return sorted(drafts, key=lambda each: each.rate, reverse=True)
