"""Do predicted weights collapse together, beyond what they cost one by one and beyond noise of the same norm?

With J the nats per token that the largest set of predicted layers costs together, S the sum of what its layers cost one
by one, and R what random errors of the same norm in the same layers cost together,

    joint           J
    beyond_singles  1 - S / J    the share of the damage that single replacements do not add up to
    beyond_noise    1 - R / J    the share that errors of the same size do not do

The random errors are one draw a layer: the interval is over documents. A claim of collapse needs all three, so
`mde` is that of 93 % power each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.arms import arms
from layerwise.measure.contrasts.contrast import CONTRAST, RESAMPLES, Part, contrast
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Loss, Score

CLAIM = "joint_collapse"

LEAST = 1e-3
"""Nats per token: damage that is smaller has no shares."""


def joint_collapse(
    losses: Sequence[Loss], baseline: str, subject: str, layers: Sequence[int], *, seed: Seed
) -> list[Score]:
    """The rows of the module for the set `subject` (`set:8`) of `layers`; none where a loss is missing."""
    keys = [f"{subject}=predicted", f"{subject}=same_norm_random", *(f"{layer}=predicted" for layer in layers)]
    part = arms(losses, baseline, keys)
    return [] if part is None else joint_collapse_rows(part, seed=seed)


def joint_collapse_rows(part: Part, *, seed: Seed, resamples: int = RESAMPLES) -> list[Score]:
    """The rows of the module from effects: of the set, of random errors in its layers, and of each layer by itself.

    A last row, `layers`, says how many layers were replaced together.
    """
    statistics = {"joint": _joint, "beyond_singles": _beyond_singles, "beyond_noise": _beyond_noise}
    rows = [
        contrast([part], statistic, seed=seed, resamples=resamples).row(CLAIM, metric, power=1 - 0.2 / 3)
        for metric, statistic in statistics.items()
    ]
    return [*rows, Score(CONTRAST, "layers", float(len(part.numerators) - 2), claim=CLAIM)]


def _joint(effects: Numbers) -> Numbers:
    return effects[..., 0]


def _beyond_singles(effects: Numbers) -> Numbers:
    return np.asarray(1 - effects[..., 2:].sum(axis=-1) / np.maximum(effects[..., 0], LEAST))


def _beyond_noise(effects: Numbers) -> Numbers:
    return np.asarray(1 - effects[..., 1] / np.maximum(effects[..., 0], LEAST))
