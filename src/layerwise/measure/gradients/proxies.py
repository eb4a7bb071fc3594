"""Cheap proxies of layer importance: what can be said of all layers from one forward and one backward pass.

    block_influence    how far a layer turns the state                      `measure.activations.block_influence`
    angular_distance   how far a run of layers turns the last token         the same
    gate_gradient      a skip's effect to first order, branches too         `GateGradients`
    gate_sensitivity   the size of that, window by window                   the same

All of them come from the same pass (`survey`). A proxy is as good as its agreement with the measured effect of skipping
(`layerwise.measure.stats.agreement`). The rows against `random_twin` are the scores of an untrained model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from layerwise.data.batches import IGNORED, AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.errors import UnsupportedModel
from layerwise.measure.activations.block_influence import BlockInfluence
from layerwise.measure.activations.padding import counted_tokens
from layerwise.measure.activations.residual_updates import split
from layerwise.measure.cost.pass_time import PassClock, in_turns
from layerwise.measure.gradients.backward import Gate, backward, differentiable, in_parts
from layerwise.measure.interventions.ablation import refuse_shallow
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats import statistics
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.results.rows import Score
from layerwise.results.vocabulary import NO_EFFECT, PROXIES, RANDOM_TWIN
from layerwise.stack import Stack
from layerwise.stack.branches import Branches
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.weights import random_twin, weights_on_disk

TWINNED = frozenset({"block_influence", "angular_distance", "gate_sensitivity"})
"""The metrics that are also measured on the random twin: the gate gradient has a null of its own."""


def proxies(stack: Stack, data: EvalData, *, seed: int = 0) -> list[Score]:
    """All cheap proxies of `stack` on `data`, with their nulls; see the module.

    `seed` draws the bootstrap, the sign flips and the weights of the random twin; a model that has no twin has no rows
    of it. Raises `MeasureError` for fewer than 4 layers, and for states that are not finite.
    """
    refuse_shallow(stack)
    branches = split(stack, data)
    return [*survey(stack, data, branches, seed=seed), *_of_the_twin(stack, data, seed)]


def survey(stack: Stack, data: EvalData, branches: Branches | None, *, seed: int = 0) -> list[Score]:
    """The proxies that one forward and one backward pass over `data` give, without nulls of a twin.

    Without `branches` there are gates of whole layers alone. The model is as before on exit; nothing is added to the
    `grad` of its parameters.
    """
    turning, gates = BlockInfluence(stack.depth), GateGradients()
    with evaluating(stack.model), differentiable(stack):
        for part in (part for batch in data.batches for part in in_parts(stack, batch)):
            passed = backward(stack, part, branches)
            turning.add(passed.states, counted_tokens(part.inputs, passed.states[0]), part.windows)
            gates.add(passed.gates, part.windows)
    return [*turning.scores(), *gates.scores(seed)]


def cost_ratio(stack: Stack, data: EvalData, *, rounds: int = 3) -> Score:
    """What `survey` costs on the first batch of `data`, in units of one plain forward and backward pass.

    The plain pass is the model's own on the same windows, with the gradients of the blocks' weights. Both sides are
    timed in turns, `rounds` times each, after one round that is not counted; the value is the ratio of the medians, low
    and high the least and the greatest ratio within a round. A time is no part of the scores: it differs between runs.
    """
    first = replace(data, batches=data.batches[:1])
    branches = split(stack, first)
    works: Mapping[str, Callable[[], object]] = {
        "plain": partial(plain_pass, stack, first),
        "survey": partial(survey, stack, first, branches),
    }
    clock = PassClock(stack.device)
    timed = {name: lambda _, work=work: clock.seconds(work) for name, work in works.items()}
    times = list(in_turns(timed, range(-1, rounds)))[1:]
    ratios = [each["survey"] / each["plain"] for each in times]
    ours, plain = (median(each[name] for each in times) for name in ("survey", "plain"))
    return Score(PROXIES, "cost_ratio", ours / plain, min(ratios), max(ratios), tokens=first.tokens)


def plain_pass(stack: Stack, data: EvalData) -> None:
    """One forward and one backward pass of the model's own over `data`, in the same parts as `survey`."""
    with evaluating(stack.model), differentiable(stack):
        wanted = [parameter for parameter in stack.model.parameters() if parameter.requires_grad]
        for batch in data.batches:
            for part in in_parts(stack, batch):
                torch.autograd.grad(_own_loss(stack, part), wanted, allow_unused=True)


def _own_loss(stack: Stack, batch: AnyBatch) -> torch.Tensor:
    inputs = {name: value.to(stack.device) for name, value in batch.inputs.items()}
    logits = main_tensor(stack.model(**inputs))
    return functional.cross_entropy(
        logits.flatten(0, -2).float(), batch.targets.to(stack.device).flatten(), ignore_index=IGNORED
    )


def _of_the_twin(stack: Stack, data: EvalData, seed: int) -> list[Score]:
    try:
        untrained = random_twin(stack, seed)
    except UnsupportedModel:
        return []
    with weights_on_disk(stack):  # two models would be held at once
        scores = survey(untrained, data, None, seed=seed)
    return [
        replace(score, against=RANDOM_TWIN) for score in scores if score.metric in TWINNED and score.against is None
    ]


FLIPS_PER_GATE = 40
"""Sign flips a gate: the smallest p is then small enough to survive Holm's correction."""

FEWEST_FLIPS = 10_000


class GateGradients:
    """What skipping each layer and each branch would cost, to first order, and how much the loss hangs on it.

    Multiply what a layer (or one branch of it) adds to the residual stream by alpha. The loss at alpha = 1 is the
    model's own and at alpha = 0 that of the skip, so the first-order estimate of the skip's effect is

        gate_gradient = (L(1) - dL/dalpha (1)) - L(1) = -dL/dalpha at alpha = 1        nats per token

    for all layers and branches at once (`backward`). It is exact where the loss is linear in the gate, and of the wrong
    size, sometimes of the wrong sign, where a skip is a large step. Where a model has converged it should vanish:
    training has turned every gate to where the loss no longer falls on average, whatever the layer is worth. Window by
    window it does not, so its size is taken first and the mean over text then:

        gate_sensitivity = sum over windows w of |dL_w/dalpha| / scored tokens          nats per token

    (Michel et al. 2019, arXiv 1905.10650, equation 2, for heads; Molchanov et al. 2019, arXiv 1906.10771, square it.)
    It has no sign, and compares layers of one model: longer windows average more away, so its size means little. Which
    of the two ranks the layers as the measured skip does, the agreement says (`layerwise.measure.stats.agreement`).

    The evidence of the gate gradient is that of a paired difference: intervals by bootstrap over documents, p from
    flips of documents' signs, Holm over all gates, and the null, against `no_effect`, is the band in which all gates of
    no effect stay together. The sensitivity has Student's interval over documents; its null is the random twin.
    """

    def __init__(self) -> None:
        self._gates: tuple[Gate, ...] = ()
        self._sums = WindowSums()
        self._sizes = WindowSums()

    def add(self, gates: Mapping[Gate, Tensor], windows: Sequence[Window]) -> None:
        """Count one batch: for each gate the derivative of every window's summed nats by its gate, (batch,)."""
        self._gates = tuple(sorted(gates, key=lambda gate: (gate[0], gate[1] or "")))
        scored = torch.tensor([window.scored for window in windows])
        slopes = torch.stack([gates[gate] for gate in self._gates])
        # Subtracted from zero, so that a gate without any effect has the score 0 and not -0.
        self._sums.add(0.0 - slopes, scored, windows)
        self._sizes.add(slopes.abs(), scored, windows)

    def scores(self, seed: int) -> list[Score]:
        """Of each gate the gradient with its interval, p, mde and null, and the sensitivity with its interval;
        bare values for few windows.
        """
        return [*self._gradients(seed), *self._sizes.scores(PROXIES, "gate_sensitivity", self._about)]

    def _gradients(self, seed: int) -> list[Score]:
        above, below = self._sums.units()
        if below.size < FEWEST_UNITS:
            return self._sums.scores(PROXIES, "gate_gradient", self._about)
        estimate = statistics.paired_bootstrap(above, below, seed=seed)
        flips = max(FEWEST_FLIPS, FLIPS_PER_GATE * len(above))
        test = statistics.sign_flips(above, seed=seed, flips=flips)
        mde = statistics.minimum_detectable_effect(estimate.error, below.size, comparisons=len(above))
        tests = zip(test.p.tolist(), statistics.holm(test.p).tolist(), mde.tolist(), strict=True)
        bands = statistics.null_band(test, above, below).tolist()
        behind = self._sums.documents, self._sums.tokens
        scores = []
        for about, own, numbers, band in zip(self._about, estimate.each(), tests, bands, strict=True):
            scores.append(Score(PROXIES, "gate_gradient", *own.row(), *numbers, *behind, **about))
            if math.isfinite(band):
                scores.append(Score(PROXIES, "gate_gradient", 0.0, -band, band, against=NO_EFFECT, **about))
        return scores

    @property
    def _about(self) -> list[dict[str, Any]]:
        return [{"layer": layer, "part": part} for layer, part in self._gates]
