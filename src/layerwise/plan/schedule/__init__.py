"""Growth schedules: which layers are trained in which part of a training run, and what that costs."""

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
