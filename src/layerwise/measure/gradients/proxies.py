"""Compute cheap proxies of layer importance from one forward and one backward pass.

    block_influence, angular_distance   see `measure.activations.block_influence`
    gate_gradient, gate_sensitivity     first-order effect of a skip, and its size by window, see `GateGradients`

Check their agreement with the effect of skipping (`layerwise.studies.diagnose.agreement`). Null: `random_twin`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from layerwise.data.text.tokens import Window
from layerwise.errors import UnsupportedModel
from layerwise.measure.activations.block_influence import BlockInfluence
from layerwise.measure.activations.padding import counted_tokens
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
from layerwise.stack.inputs import evaluating
from layerwise.stack.weights import random_twin, weights_on_disk

TWINNED = frozenset({"block_influence", "angular_distance", "gate_sensitivity"})
"""The metrics that are also measured on the random twin: the gate gradient has a null of its own."""


def proxies(stack: Stack, data: EvalData, *, seed: int = 0) -> list[Score]:
    """Compute all cheap proxies of `stack` on `data`, with their nulls (of a twin if the model has one).

    Raises `MeasureError` for fewer than 4 layers, and for states that are not finite.
    """
    refuse_shallow(stack)
    branches = find_branches(stack, data)
    return [*survey(stack, data, branches, seed=seed), *_of_the_twin(stack, data, seed)]


def find_branches(stack: Stack, data: EvalData) -> Branches | None:
    """Find the branches of `stack` on the first window of `data`; `None` for a model that cannot be split."""
    inputs = {name: value[:1].to(stack.device) for name, value in data.batches[0].inputs.items()}
    with evaluating(stack.model), torch.no_grad():
        captured = stack.capture(**inputs)
    try:
        return stack.branches(captured)
    except UnsupportedModel:
        return None


def survey(stack: Stack, data: EvalData, branches: Branches | None, *, seed: int = 0) -> list[Score]:
    """Compute the proxies from one pass over `data`, without nulls of a twin. Parameters' `grad` is not changed.

    Without `branches`, gates are whole layers.
    """
    turning, gates = BlockInfluence(stack.depth), GateGradients()
    with evaluating(stack.model), differentiable(stack):
        for part in (part for batch in data.batches for part in in_parts(stack, batch)):
            passed = backward(stack, part, branches)
            turning.add(passed.states, counted_tokens(part.inputs, passed.states[0]), part.windows)
            gates.add(passed.gates, part.windows)
    return [*turning.scores(), *gates.scores(seed)]


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


class GateGradients:
    """First-order effect of skipping each layer and branch, and the loss's sensitivity to it, in nats/token.

    With alpha the factor of what a layer (or branch) adds to the residual stream, and windows w:

        gate_gradient = -dL/dalpha at alpha = 1        exact if L is linear in alpha; about 0 for a converged model
        gate_sensitivity = sum over windows w of |dL_w/dalpha| / scored tokens

    (Michel et al. 2019, arXiv 1905.10650, equation 2, for heads; Molchanov et al. 2019, arXiv 1906.10771, square it.)
    The sensitivity only ranks the layers of one model: longer windows average more away. Gradient: bootstrap intervals
    over documents, p by sign flips (Holm over gates), null band against `no_effect`. Sensitivity: Student's interval
    over documents; its null is the random twin.
    """

    def __init__(self) -> None:
        self._gates: tuple[Gate, ...] = ()
        self._sums = WindowSums()
        self._sizes = WindowSums()

    def add(self, gates: Mapping[Gate, Tensor], windows: Sequence[Window]) -> None:
        """Count one batch: for each gate the derivative of every window's summed nats by its gate, (batch,)."""
        self._gates = tuple(sorted(gates, key=lambda gate: (gate[0], gate[1] or "")))
        scored = torch.tensor([window.scored for window in windows], device="cpu")
        home = gates[self._gates[0]].device  # of a model that is spread over several
        slopes = torch.stack([gates[gate].to(home) for gate in self._gates])
        # Subtracted from zero, so that a gate without any effect has the score 0 and not -0.
        self._sums.add(0.0 - slopes, scored, windows)
        self._sizes.add(slopes.abs(), scored, windows)

    def scores(self, seed: int) -> list[Score]:
        return [*self._gradients(seed), *self._sizes.scores(PROXIES, "gate_sensitivity", self._about)]

    def _gradients(self, seed: int) -> list[Score]:
        above, below = self._sums.units()
        if below.size < FEWEST_UNITS:
            return self._sums.scores(PROXIES, "gate_gradient", self._about)
        estimate = statistics.paired_bootstrap(above, below, seed=seed)
        test = statistics.assess_effects(above, below, seed=seed)
        tests = zip(test.p.tolist(), statistics.holm(test.p).tolist(), test.mde.tolist(), strict=True)
        behind = self._sums.documents, self._sums.tokens
        scores = []
        for about, own, numbers, band in zip(self._about, estimate.each(), tests, test.band.tolist(), strict=True):
            scores.append(Score(PROXIES, "gate_gradient", *own.row(), *numbers, *behind, **about))
            if math.isfinite(band):
                scores.append(Score(PROXIES, "gate_gradient", 0.0, -band, band, against=NO_EFFECT, **about))
        return scores

    @property
    def _about(self) -> list[dict[str, Any]]:
        return [{"layer": layer, "part": part} for layer, part in self._gates]
