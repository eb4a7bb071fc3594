"""Gates: what skipping each layer and each branch would cost, to first order, and how much the loss hangs on it.

Multiply what a layer (or one branch of it) adds to the residual stream by alpha. The loss at alpha = 1 is the model's
own and at alpha = 0 that of the skip, so the first-order estimate of the skip's effect is

    gate_gradient = (L(1) - dL/dalpha (1)) - L(1) = -dL/dalpha at alpha = 1        nats per token

for all layers and branches at once (`layerwise.measure.gradients.backward`). It is exact where the loss is linear in
the gate, and of the wrong size, sometimes of the wrong sign, where a skip is a large step. Where a model has converged
it should vanish: training has turned every gate to where the loss no longer falls on average, whatever the layer is
worth. Window by window it does not, so its size is taken first and the mean over text then:

    gate_sensitivity = sum over windows w of |dL_w/dalpha| / scored tokens          nats per token

(Michel et al. 2019, arXiv 1905.10650, equation 2, for heads; Molchanov et al. 2019, arXiv 1906.10771, square it.) It
has no sign, and compares layers of one model: longer windows average more away, so its size means little. Which of the
two ranks the layers as the measured skip does, the agreement says (`layerwise.measure.stats.agreement`).

The evidence of the gate gradient is that of a paired difference: intervals by bootstrap over documents, p from flips of
documents' signs, Holm over all gates, and the null, against `no_effect`, is the band in which all gates of no effect
stay together. The sensitivity has Student's interval over documents; its null is the random twin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from layerwise.data.text.tokens import Window
from layerwise.measure.gradients.backward import Gate
from layerwise.measure.stats import statistics
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.results.rows import Score
from layerwise.results.vocabulary import NO_EFFECT, PROXIES

METRIC = "gate_gradient"
SENSITIVITY = "gate_sensitivity"
FLIPS_PER_GATE = 40
"""Sign flips a gate: the smallest p is then small enough to survive Holm's correction."""

FEWEST_FLIPS = 10_000


class GateGradients:
    """The derivatives of the loss by all gates, fed batch by batch."""

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
        return [*self._gradients(seed), *self._sizes.scores(PROXIES, SENSITIVITY, self._about)]

    def _gradients(self, seed: int) -> list[Score]:
        above, below = self._sums.units()
        if below.size < FEWEST_UNITS:
            return self._sums.scores(PROXIES, METRIC, self._about)
        estimate = statistics.paired_bootstrap(above, below, seed=seed)
        flips = max(FEWEST_FLIPS, FLIPS_PER_GATE * len(above))
        test = statistics.sign_flips(above, seed=seed, flips=flips)
        adjusted = statistics.holm(test.p)
        errors = estimate.error
        mde = statistics.minimum_detectable_effect(errors, below.size, comparisons=len(above))
        bands = statistics.null_band(test, above, below)
        scores = []
        for index, about in enumerate(self._about):
            value, low, high, p, p_adjusted, least = (
                float(numbers[index])
                for numbers in (estimate.value, estimate.low, estimate.high, test.p, adjusted, mde)
            )
            scores.append(
                Score(
                    PROXIES, METRIC, value, low, high, p, p_adjusted, least, self._sums.documents, self._sums.tokens,
                    **about,
                )
            )  # fmt: skip
            if math.isfinite(band := float(bands[index])):
                scores.append(Score(PROXIES, METRIC, 0.0, -band, band, against=NO_EFFECT, **about))
        return scores

    @property
    def _about(self) -> list[dict[str, Any]]:
        """The columns of the rows of every gate."""
        return [{"layer": layer, "part": part} for layer, part in self._gates]
