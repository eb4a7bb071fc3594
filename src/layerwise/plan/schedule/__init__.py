"""Growth training as a value: which layers learn when, what that costs, and how it is explained.

    phase, schedule      `Phase`, a share of the steps; `GrowthSchedule`, phases in order for models of one depth
    serialization        the written form, as JSON and YAML hold it
    presets, allocation  the schedules of the literature; from the importance of layers to a schedule
    cost, explain        floating-point operations; a schedule in words, and as a chart of depth by time

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan.schedule.allocation import Importance
from layerwise.plan.schedule.cost import ModelCost, flops_per_token, layer_shares, share_of_uniform, steps_for
from layerwise.plan.schedule.presets import PRESETS, preset, random_freezing
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.serialization import chart, explain, from_plain, to_plain

__all__ = [
    "PRESETS",
    "GrowthSchedule",
    "Importance",
    "ModelCost",
    "Phase",
    "chart",
    "explain",
    "flops_per_token",
    "from_plain",
    "layer_shares",
    "preset",
    "random_freezing",
    "share_of_uniform",
    "steps_for",
    "to_plain",
]
